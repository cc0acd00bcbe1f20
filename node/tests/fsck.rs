//! `posthouse-node fsck`: finds every breach, changes nothing unless told, and mends what can be mended.

#![allow(
    clippy::unwrap_used,
    clippy::panic,
    clippy::indexing_slicing,
    clippy::disallowed_methods,
    missing_docs,
    reason = "tests; they do the damage"
)]

mod support;

use std::fs;
use std::path::Path;
use std::process::Command;

use posthouse_node::mailbox::{Batch, Marks};
use support::{House, all, bodies, draft, message};

fn run(dir: &Path, flags: &[&str]) -> (i32, serde_json::Value) {
    let output = Command::new(env!("CARGO_BIN_EXE_posthouse-node"))
        .arg("fsck")
        .arg(dir)
        .arg("--json")
        .args(flags)
        .output()
        .unwrap();
    let json = serde_json::from_slice(&output.stdout).unwrap_or(serde_json::Value::Null);
    (output.status.code().unwrap(), json)
}

fn codes(report: &serde_json::Value) -> Vec<String> {
    let breaches = report["breaches"].as_array().unwrap();
    let mut codes: Vec<String> = breaches.iter().map(|b| b["code"].as_str().unwrap().to_owned()).collect();
    codes.sort();
    codes
}

/// A directory with a message in each state, and a history.
fn lived_in(dir: &Path) -> House {
    let house = House::at(dir);
    fs::write(dir.join("node.key"), "07".repeat(32)).unwrap();
    let mailboxes = house.mailboxes();
    house.post(&mailboxes).send(draft("lead", "lint", "hello")).unwrap();
    let mailbox = house.mailbox();
    for seq in 1..=6 {
        mailbox.deliver(&message("a", seq), Marks::NONE).unwrap();
    }
    let claimed = mailbox.claim(Batch { messages_max: 3, ..all() }).unwrap();
    mailbox.ack(&[claimed[0].lease]).unwrap();
    let reason =
        posthouse_node::mailbox::Reason { code: "turn_failed".into(), text: "exit 1".into(), turn: Some(1) };
    mailbox.quarantine(&[claimed[1].lease], &reason).unwrap();
    fs::create_dir_all(dir.join("history/main")).unwrap();
    fs::write(dir.join("history/main/scout.1.7.jsonl"), "{\"input\":1}\n").unwrap();
    house
}

#[test]
fn a_directory_that_was_lived_in_is_clean() {
    let dir = tempfile::tempdir().unwrap();
    lived_in(dir.path());
    let (code, report) = run(dir.path(), &[]);
    assert_eq!((code, codes(&report)), (0, Vec::<String>::new()), "{report}");
    assert_eq!((report["mailboxes"].as_u64(), report["messages"].as_u64()), (Some(4), Some(6)));
}

#[test]
fn every_breach_is_found_and_a_repair_leaves_a_clean_directory_with_its_good_mail() {
    let dir = tempfile::tempdir().unwrap();
    let house = lived_in(dir.path());
    let scout = dir.path().join("mailboxes/main/scout");
    let file = |state: &str, at: usize| {
        let mut names: Vec<_> = fs::read_dir(scout.join(state)).unwrap().map(|e| e.unwrap().path()).collect();
        names.sort();
        names[at].clone()
    };
    let (flipped, cut, ended, held) =
        (file("ready", 0), file("ready", 1), file("done", 0), file("processing", 0));
    let content = fs::read_to_string(&flipped).unwrap();
    fs::write(&flipped, content.replace("a 4", "a 5")).unwrap();
    fs::write(&cut, "{\"v\":1,").unwrap();
    fs::copy(&ended, scout.join("ready").join(ended.file_name().unwrap())).unwrap();
    fs::write(scout.join("ready/notes.txt"), "hm").unwrap();
    fs::write(scout.join("processing/notes.txt"), "hm").unwrap();
    fs::write(scout.join("quarantine/unexplained.json"), "hm").unwrap();
    fs::write(scout.join("tmp/1-2-3"), "half").unwrap();
    fs::write(scout.join("cursors"), "not json").unwrap();
    fs::write(dir.path().join("history/main/scout.1.7.jsonl"), "{\"input\":1}\n{\"turn_e").unwrap();
    assert!(held.exists());
    let expected = [
        "bad_cursors",
        "foreign",
        "foreign",
        "half_written",
        "mismatch",
        "no_reason",
        "torn_tail",
        "twice",
        "unreadable",
    ];
    for _ in 0..2 {
        let (code, report) = run(dir.path(), &[]);
        assert_eq!((code, codes(&report)), (1, expected.map(str::to_owned).to_vec()), "{report}");
    }
    let (code, report) = run(dir.path(), &["--repair"]);
    assert_eq!((code, codes(&report).len()), (0, 9), "{report}");
    let (code, report) = run(dir.path(), &[]);
    // What was put aside stays to be seen.
    assert_eq!(codes(&report), ["foreign"], "{report}");
    assert_eq!(
        (code, report["breaches"][0]["path"].as_str()),
        (1, Some("mailboxes/main/scout/cursors.broken"))
    );
    let mailbox = house.incarnation(2).mailbox();
    assert_eq!(bodies(&mailbox.claim(all()).unwrap()), ["a 6"]);
    assert_eq!(bodies(&mailbox.orphans().unwrap()), ["a 3"]);
    assert_eq!(mailbox.counts().unwrap().done, 1);
}

#[test]
fn a_held_directory_and_what_is_none_are_refused() {
    let dir = tempfile::tempdir().unwrap();
    assert_eq!(run(dir.path(), &[]).0, 3);
    lived_in(dir.path());
    let lock = fs::File::create(dir.path().join("lock")).unwrap();
    lock.lock().unwrap();
    assert_eq!(run(dir.path(), &["--repair"]).0, 3);
}
