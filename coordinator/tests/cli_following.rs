//! Where the command line finds its coordinator, and what it does when that one goes away.
#![allow(
    missing_docs,
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    clippy::disallowed_methods,
    reason = "tests read as sentences, and fail by panicking"
)]

mod cli_support;

use std::io::Write;

use cli_support::{Fake, Shell};
use serde_json::{Value, json};

fn ok(reply: Value) -> (u16, String) {
    let mut document = json!({ "v": 1, "as_of": { "seq": 1, "age_ms": 0 } });
    document.as_object_mut().unwrap().extend(reply.as_object().unwrap().clone());
    (200, document.to_string())
}

/// What an answer of nothing makes of a connection: the fake writes a broken status line.
const BREAKS: (u16, String) = (0, String::new());

#[test]
fn a_running_up_is_found_by_its_data_directory_and_its_token_is_used() {
    let fake = Fake::answering(|_, _| ok(json!({ "hosts": [] })));
    let shell = Shell::new();
    let data = shell.cwd().join("data");
    std::fs::create_dir_all(&data).unwrap();
    let holder = json!({ "pid": 7, "url": fake.url, "since": "2026-11-30T14:00:00Z" });
    let mut lock = std::fs::File::create(data.join("lock")).unwrap();
    lock.write_all(holder.to_string().as_bytes()).unwrap();
    std::fs::File::create(data.join("token")).unwrap().write_all(b"of-the-directory\n").unwrap();

    let stale = shell.run(&["hosts", "ls", "--data", "data", "--json"]);
    assert!(fake.asked().is_empty(), "a lock that nobody holds says nothing: {stale:?}");

    lock.lock().unwrap();
    assert_eq!(shell.run(&["hosts", "ls", "--data", "data"]).code, 0);
    assert_eq!(fake.asked()[0].token, "of-the-directory");
}

#[test]
fn inside_a_turn_the_socket_is_used_and_no_home_is_needed() {
    let mut shell = Shell::new();
    let path = shell.cwd().join("socket");
    let listener = std::os::unix::net::UnixListener::bind(&path).unwrap();
    let served = std::thread::spawn(move || {
        use std::io::{BufRead, BufReader};
        let (mut stream, _) = listener.accept().unwrap();
        let reader = BufReader::new(stream.try_clone().unwrap());
        let head: Vec<String> =
            reader.lines().map(Result::unwrap).take_while(|line| !line.is_empty()).collect();
        let (_, body) = ok(json!({ "brief": "go on" }));
        write!(stream, "HTTP/1.1 200 OK\r\ncontent-length: {}\r\n\r\n{body}", body.len()).unwrap();
        head
    });
    shell.variables = vec![
        ("POSTHOUSE_SOCKET", path.display().to_string()),
        ("POSTHOUSE_TOKEN", "turn-7".to_owned()),
        ("POSTHOUSE_TEAM", "blue".to_owned()),
        ("HOME", String::new()),
    ];
    let ran = shell.run(&["brief"]);
    assert_eq!((ran.code, ran.out.as_str()), (0, "go on\n"), "{ran:?}");
    let head = served.join().unwrap();
    assert_eq!(head[0], "GET /v1/teams/blue/brief HTTP/1.1");
    assert!(head.iter().any(|line| line.eq_ignore_ascii_case("authorization: bearer turn-7")), "{head:?}");
}

#[test]
fn a_wait_outlives_a_coordinator_that_starts_again_but_not_its_own_time() {
    let fake = Fake::answering(|count, _| match count {
        0 => ok(json!({ "holds": false, "state": "pending" })),
        1 => BREAKS,
        _ => ok(json!({ "holds": true, "state": "completed" })),
    });
    let ran = Shell::against(&fake).run(&["wait", "task/a=completed", "--timeout", "10m"]);
    assert_eq!((ran.code, ran.out.as_str()), (0, "completed\n"), "{ran:?}");
    assert!(ran.err.contains("asking again"), "{}", ran.err);
    let never = Fake::answering(|_, _| BREAKS);
    assert_eq!(Shell::against(&never).run(&["wait", "task/a=completed", "--timeout", "10m"]).code, 4);
    assert_eq!(never.asked().len(), 1, "one that never answered is not waited for");
}

#[test]
fn a_broken_connection_says_that_the_outcome_is_not_known() {
    let fake = Fake::answering(|_, _| BREAKS);
    let ran = Shell::against(&fake).run(&["send", "a", "b", "--json"]);
    assert_eq!((ran.code, &ran.json()["error"]["effect"]), (4, &json!("whether it was done is not known")));
    let odd = Fake::answering(|_, _| (502, "<html>".to_owned()));
    let ran = Shell::against(&odd).run(&["send", "a", "b"]);
    assert_eq!(ran.code, 1);
    assert!(ran.err.contains("answered 502"), "{}", ran.err);
    let short = Fake::answering(|_, _| (200, "{}".to_owned()));
    assert_eq!(Shell::against(&short).run(&["brief", "--json"]).json()["error"]["code"], "PH0005");
}

#[test]
fn a_follower_of_mail_acknowledges_what_it_printed_with_its_next_question() {
    let mail = |id: u8| {
        json!({
            "id": format!("019ac1d2-0000-7000-8000-00000000000{id}"), "kind": "message", "from": "a", "to": "lead",
            "team": "main", "created_at": "2026-11-30T14:02:11Z", "body": "x", "attempt": 1, "vouched": "node",
        })
    };
    let fake = Fake::answering(move |count, _| match count {
        0 => ok(json!({ "messages": [mail(1)], "more": 1, "peek": false })),
        1 => ok(json!({ "messages": [mail(2)], "more": 0, "peek": false })),
        _ => (
            403,
            json!({ "v": 1, "error": { "code": "PH0002", "kind": "refused", "message": "enough" } })
                .to_string(),
        ),
    });
    let ran = Shell::against(&fake).run(&["inbox", "--follow", "--json"]);
    assert_eq!(ran.code, 3);
    let lines: Vec<Value> = ran.out.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert_eq!(lines.len(), 3, "two messages and the failure, one object a line");
    let asked = fake.asked();
    assert_eq!(asked[0].body.get("seen"), None);
    assert_eq!(asked[1].body["seen"], json!([lines[0]["id"]]));
    assert_eq!(asked[2].body["seen"], json!([lines[1]["id"]]));
    assert_eq!(asked[2].body["timeout_ms"], 30_000);
}

#[test]
fn a_follower_of_events_goes_on_where_the_stream_broke() {
    let fake = Fake::answering(|count, _| match count {
        0 => (200, "id: 4\ndata: {\"seq\":4}\n\n".to_owned()),
        1 => BREAKS,
        2 => (200, "id: 5\ndata: {\"seq\":5}\n\n".to_owned()),
        _ => (
            403,
            json!({ "v": 1, "error": { "code": "PH0002", "kind": "refused", "message": "enough" } })
                .to_string(),
        ),
    });
    let ran = Shell::against(&fake).run(&["events", "--follow"]);
    assert_eq!((ran.code, ran.out.as_str()), (3, "{\"seq\":4}\n{\"seq\":5}\n"), "{ran:?}");
    let lines: Vec<String> = fake.asked().into_iter().map(|asked| asked.line).collect();
    assert_eq!(lines[0], "GET /v1/events?follow=true");
    assert_eq!(
        lines[1..],
        [
            "GET /v1/events?follow=true&after=4",
            "GET /v1/events?follow=true&after=4",
            "GET /v1/events?follow=true&after=5"
        ]
    );
}

#[test]
fn config_shows_what_the_coordinator_goes_by_and_works_without_one() {
    let limit =
        json!({ "name": "limits.hosts", "value": "7", "unit": "hosts", "origin": "POSTHOUSE_LIMITS_HOSTS" });
    let team = json!({ "name": "team", "value": "theirs", "origin": "default" });
    let fake = Fake::answering(move |_, _| ok(json!({ "settings": [limit, team] })));
    let shell = Shell::against(&fake);
    let document = shell.run(&["config", "--json", "--team", "mine"]).json();
    let value = |name: &str| {
        let all = document["settings"].as_array().unwrap();
        let one = all.iter().find(|one| one["name"] == name).unwrap();
        (one["value"].as_str().unwrap().to_owned(), one["origin"].as_str().unwrap().to_owned())
    };
    assert_eq!(document["as_of"]["seq"], 1);
    assert_eq!(value("limits.hosts"), ("7".to_owned(), "coordinator: POSTHOUSE_LIMITS_HOSTS".to_owned()));
    assert_eq!(value("team"), ("mine".to_owned(), "--team".to_owned()));
    let broken = Fake::answering(|_, _| BREAKS);
    let ran = Shell::against(&broken).run(&["config"]);
    assert_eq!((ran.code, ran.out.starts_with("SETTING")), (0, true));
    assert!(ran.err.starts_with("only the settings of this command line: "), "{}", ran.err);
}
