//! at01: a typo in the recipient's name. Elsewhere: success, and a phantom inbox. Here: exit 3, the nearest names,
//! and nothing made.

#![allow(clippy::unwrap_used, reason = "a test")]

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use posthouse_tests::cluster::Posthouse;
use posthouse_tests::home::Home;
use posthouse_tests::recorded::recorder;

/// Every path below, files and directories, but for the lead's mail, which may still come in.
fn all_below(dir: &Path) -> BTreeSet<PathBuf> {
    let mut found = BTreeSet::new();
    for entry in std::fs::read_dir(dir).unwrap().flatten() {
        if entry.file_name() == "lead" {
            continue;
        }
        if entry.file_type().unwrap().is_dir() {
            found.extend(all_below(&entry.path()));
        }
        found.insert(entry.path());
    }
    found
}

#[test]
fn at01_a_typo_in_the_recipient_creates_nothing_and_names_the_nearest() {
    let home = Home::new();
    let posthouse = Posthouse::up(&home);
    posthouse.team();
    let command = recorder(&home.dir("turns"));
    let command: Vec<&str> = command.iter().map(String::as_str).collect();
    posthouse.spawn("scout-07", &command);
    posthouse.wait("agent/scout-07=idle");
    let before = all_below(&home.data().join("mailboxes"));

    let text = posthouse.cli(&["send", "scot-07", "hello"]).ended(3);
    assert!(text.stdout.is_empty(), "{}", text.stdout);
    assert!(text.stderr.contains("PH0201") && text.stderr.contains("scout-07"), "{}", text.stderr);

    let refusal = posthouse.cli(&["send", "scot-07", "hello", "--json"]).ended(3).json();
    assert_eq!(refusal["error"]["code"], "PH0201");
    assert_eq!(refusal["error"]["kind"], "refused");
    assert_eq!(refusal["error"]["closest"][0]["name"], "scout-07");

    for nonsense in ["../lead", "", "Lead", "lead/../../x", &"x".repeat(300), "a\u{1}b", "sc\u{f6}ut"] {
        let refused = posthouse.cli(&["send", "--", nonsense, "hello"]);
        assert!(matches!(refused.status, 2 | 3), "{nonsense:?}: {refused:?}");
    }
    assert_eq!(all_below(&home.data().join("mailboxes")), before);
    assert_eq!(posthouse.term(), 0);
}

#[test]
fn at01_unknown_teams_tasks_and_messages_are_refused_too() {
    let home = Home::new();
    let posthouse = Posthouse::up(&home);
    posthouse.team();
    for command in [
        &["send", "lead", "hello", "--team", "crow"][..],
        &["task", "show", "nothing"],
        &["trace", "00000000-0000-7000-8000-000000000000"],
        &["stop", "nobody"],
        &["why", "nobody"],
    ] {
        let refused = posthouse.cli(&[command, &["--json"]].concat()).ended(3).json();
        assert_eq!(refused["error"]["kind"], "refused", "{command:?}: {refused:#}");
    }
}
