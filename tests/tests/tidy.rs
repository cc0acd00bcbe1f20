//! What a reader expects of the sources: a promise on top of every file, no file too long to read, the arrows
//! between the packages, nothing left for later.

#![allow(clippy::unwrap_used, reason = "a test")]

use posthouse_tests::repository::{read, sources, top};

const LINES_MAX: usize = 500;
const ALL: &[&str] = &["shared", "node", "coordinator", "tests"];

/// Files of these directories for which `offends` gives a reason.
fn offenders(below: &[&str], offends: impl Fn(&str) -> Option<String>) -> Vec<String> {
    let name = |path: &std::path::PathBuf| path.display().to_string();
    let files = sources(below);
    assert!(!files.is_empty());
    files
        .iter()
        .filter_map(|path| offends(&read(&name(path))).map(|why| format!("{}: {why}", name(path))))
        .collect()
}

#[test]
fn every_file_opens_with_its_promise() {
    let found =
        offenders(ALL, |text| (!text.starts_with("//! ")).then(|| "does not open with //!".to_owned()));
    assert!(found.is_empty(), "{}", found.join("\n"));
}

#[test]
fn no_file_is_too_long_to_read() {
    let found = offenders(ALL, |text| {
        let lines = text.lines().count();
        (lines > LINES_MAX).then(|| format!("{lines} lines, the limit is {LINES_MAX}"))
    });
    assert!(found.is_empty(), "{}", found.join("\n"));
}

#[test]
fn the_arrows_between_the_packages_hold() {
    for (package, not) in
        [("shared", "posthouse_node"), ("shared", "posthouse_coordinator"), ("node", "posthouse_coordinator")]
    {
        let found = offenders(&[package], |text| text.contains(not).then(|| format!("knows {not}")));
        assert!(found.is_empty(), "{}", found.join("\n"));
        let manifest = read(&format!("{package}/Cargo.toml"));
        assert!(!manifest.contains(&not.replace('_', "-")), "{package}/Cargo.toml knows {not}");
    }
}

/// Rooms of the node, and the rooms above them that they must not know.
const ABOVE: &[(&str, &[&str])] = &[
    ("node/src/mailbox", &["post", "trace_index", "teammate", "runner", "local", "schedule", "node"]),
    ("node/src/post", &["teammate", "runner", "local", "schedule", "node"]),
    ("node/src/history", &["post", "teammate", "runner", "local", "schedule", "node"]),
    ("node/src/runner", &["mailbox", "post", "teammate", "local", "schedule", "node"]),
];

#[test]
fn rooms_of_the_node_know_only_those_below() {
    let rooms: Vec<_> = ABOVE.iter().filter(|(room, _)| top().join(room).is_dir()).collect();
    assert!(!rooms.is_empty());
    for (room, above) in rooms {
        let found = offenders(&[room], |text| {
            let known = above.iter().find(|above| text.contains(&format!("use crate::{above}::")));
            known.map(|above| format!("knows {above}"))
        });
        assert!(found.is_empty(), "{}", found.join("\n"));
    }
}

#[test]
fn nothing_is_left_for_later() {
    let marks =
        [concat!("to", "do!("), concat!("unimple", "mented!("), concat!("TO", "DO"), concat!("FIX", "ME")];
    let found = offenders(&["shared/src", "node/src", "coordinator/src"], |text| {
        marks.iter().find(|mark| text.contains(**mark)).map(|mark| format!("holds {mark}"))
    });
    assert!(found.is_empty(), "{}", found.join("\n"));
}

#[test]
fn nothing_else_lies_at_the_top() {
    const TOP: &[&str] = &[
        "ARCHITECTURE.md",
        "Cargo.lock",
        "Cargo.toml",
        "LICENSE",
        "README.md",
        "coordinator",
        "deploy",
        "node",
        "shared",
        "tests",
    ];
    let listed = std::process::Command::new("git").arg("ls-files").current_dir(top()).output().unwrap();
    let listed = String::from_utf8(listed.stdout).unwrap();
    let first = listed.lines().filter_map(|path| path.split('/').next());
    let other: std::collections::BTreeSet<_> =
        first.filter(|name| !name.starts_with('.') && !TOP.contains(name)).collect();
    assert!(other.is_empty(), "at the top level: {other:?}");
}
