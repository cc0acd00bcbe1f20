//! A mailbox is a directory: other programs may put files there. Good ones are delivered as `external`, bad ones go
//! to quarantine with a reason, and none stops the queue.

#![allow(clippy::unwrap_used, clippy::indexing_slicing, clippy::disallowed_methods, reason = "a test")]

use std::time::Instant;

use posthouse_tests::cluster::{PATIENCE, Posthouse};
use posthouse_tests::home::{Home, TEAM};
use posthouse_tests::recorded::{recorder, turns};

#[test]
fn foreign_files_are_delivered_as_external_or_quarantined_and_never_stop_the_queue() {
    let home = Home::new();
    home.expect_log("WARN");
    let dir = home.dir("reader");
    let posthouse = Posthouse::up(&home);
    posthouse.team();
    let command = recorder(&dir);
    posthouse.spawn("reader", &command.iter().map(String::as_str).collect::<Vec<_>>());
    posthouse.wait("agent/reader=idle");
    let mailbox = home.data().join("mailboxes").join(TEAM).join("reader");
    let sample = std::fs::read_dir(mailbox.join("done")).unwrap().flatten().next().unwrap();
    let whole = std::fs::read(sample.path()).unwrap();

    // As a program does it: written elsewhere on the file system, renamed into place.
    let drop_in = |name: &str, content: &[u8]| {
        let part = home.data().join("mailboxes").join(TEAM).join("reader").join("tmp").join("dropped");
        std::fs::write(&part, content).unwrap();
        std::fs::rename(&part, mailbox.join("ready").join(name)).unwrap();
    };
    let mut foreign: serde_json::Value = serde_json::from_slice(&whole).unwrap();
    let fields = foreign.as_object_mut().unwrap();
    fields["id"] = "01890000-0000-7000-8000-000000000001".into();
    fields["body"] = "from a script".into();
    fields.remove("lane");
    fields.remove("sig");
    drop_in("a-script-put-this-here.json", foreign.to_string().as_bytes());
    drop_in("empty.json", b"");
    drop_in("cut.json", &whole[..whole.len() / 2]);
    drop_in("text.txt", b"good morning");
    drop_in("bits", &whole.iter().map(|byte| byte ^ 0x10).collect::<Vec<_>>());
    posthouse.send("reader", "behind them all");
    let started = Instant::now();
    while posthouse.json(&["quarantine", "ls"])["quarantined"].as_array().unwrap().len() < 4 {
        assert!(started.elapsed() < PATIENCE, "{:#}", posthouse.json(&["quarantine", "ls"]));
    }
    posthouse.wait("agent/reader=idle");

    let seen = turns(&dir);
    let messages: Vec<_> = seen.iter().flat_map(|turn| turn["messages"].as_array().unwrap()).collect();
    assert!(messages.iter().any(|message| message["body"] == "behind them all"));
    let script = messages.iter().find(|message| message["body"] == "from a script").unwrap();
    assert_eq!(script["from"], "external", "{script:#}");
    let quarantined = posthouse.json(&["quarantine", "ls"]);
    let entries = quarantined["quarantined"].as_array().unwrap();
    assert_eq!(entries.len(), 4, "{quarantined:#}");
    assert!(entries.iter().all(|entry| !entry["reason"].as_str().unwrap().is_empty()), "{quarantined:#}");

    // The lead is told of each, once: another life of the process does not tell it again.
    let told = |posthouse: &Posthouse<'_>| {
        let inbox = posthouse.json(&["inbox", "--peek"]);
        let notices =
            inbox["messages"].as_array().unwrap().iter().filter(|message| message["kind"] == "notice");
        notices.filter(|notice| notice["body"].as_str().unwrap().contains("in quarantine")).count()
    };
    assert_eq!(told(&posthouse), 4);
    posthouse.kill9();
    let posthouse = Posthouse::up(&home);
    posthouse.send("reader", "once more");
    posthouse.wait("agent/reader=idle");
    assert_eq!(told(&posthouse), 4);
    assert_eq!(posthouse.term(), 0);
}

#[test]
fn at06_a_long_body_is_kept_whole_and_one_over_the_limit_is_refused_whole() {
    let home = Home::new();
    let posthouse = Posthouse::up(&home);
    posthouse.team();
    let file = home.room().join("body.txt");
    let path = file.display().to_string();
    // The limit of the envelope is on the encoded form: quotes count twice.
    let bodies = ["x".repeat(200 << 10), "\"".repeat(140 << 10), "line ü\n".repeat(1 << 18)];
    for body in &bodies {
        std::fs::write(&file, body).unwrap();
        posthouse.ok(&["send", "lead", "--file", &path]);
    }
    let inbox = posthouse.json(&["inbox", "--peek"]);
    let message = |n: usize| &inbox["messages"][n];
    assert_eq!(message(0)["body"], bodies[0]);
    assert!(message(0)["whole"].is_null());
    for n in [1, 2] {
        let (body, whole) = (message(n)["body"].as_str().unwrap(), &message(n)["whole"]);
        assert!(bodies[n].starts_with(body) && body.len() > 4_000, "{} bytes are shown", body.len());
        assert_eq!(whole["bytes"], bodies[n].len());
        assert!(std::fs::read_to_string(whole["file"].as_str().unwrap()).unwrap() == bodies[n]);
        let trace = posthouse.json(&["trace", message(n)["id"].as_str().unwrap()]);
        assert!(trace["bytes"].as_u64().unwrap() > u64::try_from(bodies[n].len()).unwrap());
    }
    let shown = posthouse.ok(&["inbox", "--peek"]);
    assert!(shown.stdout.contains("in all, only its beginning is shown"), "{}", shown.stdout.len());

    std::fs::write(&file, "x".repeat((64 << 20) + 1)).unwrap();
    let refused = posthouse.cli(&["send", "lead", "--file", &path, "--json"]).ended(3).json();
    assert_eq!(refused["error"]["code"], "PH0301");
    assert_eq!(refused["error"]["effect"], "nothing was sent");
    assert_eq!(posthouse.json(&["inbox", "--peek"])["messages"].as_array().unwrap().len(), 3);
}
