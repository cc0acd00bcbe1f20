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
fn a_body_over_the_limit_is_refused_whole() {
    let home = Home::new();
    let posthouse = Posthouse::up(&home);
    posthouse.team();
    let large = home.room().join("large.txt");
    std::fs::write(&large, "x".repeat(300 << 10)).unwrap();
    let refused =
        posthouse.cli(&["send", "lead", "--file", &large.display().to_string(), "--json"]).ended(3).json();
    assert_eq!(refused["error"]["code"], "PH0301");
    // The limit is on the encoded form: quotes count twice.
    std::fs::write(&large, "\"".repeat(140 << 10)).unwrap();
    posthouse.cli(&["send", "lead", "--file", &large.display().to_string()]).ended(3);
    std::fs::write(&large, "x".repeat(200 << 10)).unwrap();
    posthouse.ok(&["send", "lead", "--file", &large.display().to_string()]);
    let inbox = posthouse.json(&["inbox", "--peek"]);
    assert_eq!(inbox["messages"][0]["body"].as_str().unwrap().len(), 200 << 10);
}
