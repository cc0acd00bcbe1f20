//! File names and the mailbox's own small files, frozen: what an older build wrote is read for ever.
//! `POSTHOUSE_BLESS=1` writes the golden file anew.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::disallowed_methods,
    missing_docs,
    reason = "tests"
)]

mod support;

use std::ffi::OsStr;
use std::path::Path;

use posthouse_node::mailbox::dedup::Seen;
use posthouse_node::mailbox::name::{FileName, Incarnation, Marks};
use posthouse_shared::clock::Stamp;
use support::message_at;

fn names() -> Vec<(&'static str, FileName)> {
    let arriving = |from, control| {
        let sealed = message_at(from, 255, 1_764_540_245_000_000_007, control);
        FileName::arriving(&sealed.envelope, sealed.envelope.created_at, Marks::NONE)
    };
    let plain = arriving("a", false);
    vec![
        ("plain", plain),
        ("of the lead", arriving("lead", false)),
        ("control", arriving("lead", true)),
        ("external", FileName::external(plain.id, Stamp::from_nanos(5))),
        ("second attempt", FileName { attempt: 2, ..plain }),
        ("held", plain.held(Incarnation(26))),
        ("ahead of a lower number", FileName { after: Some(31), ..plain }),
        (
            "everything",
            FileName {
                attempt: 17,
                delivery: 3,
                marks: Marks::LATE
                    .and(Marks::SUPERSEDED)
                    .and(Marks::REDELIVERED)
                    .and(Marks::MAY_HAVE_BEEN_HANDLED)
                    .and(Marks::URGENT),
                holder: Some(Incarnation(u64::MAX)),
                ..plain
            },
        ),
    ]
}

#[test]
fn file_names_are_frozen() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden/file_names_v1.txt");
    let text: String = names().iter().map(|(what, name)| format!("{what}: {name}\n")).collect();
    if std::env::var_os("POSTHOUSE_BLESS").is_some() {
        std::fs::write(&path, &text).unwrap();
    }
    let golden = std::fs::read_to_string(&path).expect("the golden file is there");
    assert_eq!(golden, text);
    for (line, (_, name)) in golden.lines().zip(names()) {
        let (_, read) = line.split_once(": ").unwrap();
        assert_eq!(FileName::parse(OsStr::new(read)), Some(name));
    }
}

#[test]
fn cursors_are_frozen() {
    let mut seen = Seen::default();
    for (_, name) in names() {
        seen.insert(&name);
    }
    let lanes = ["07b6a6f46e930327", "1571794e025d1a63", "5b83b59e43d07e05"];
    let lanes = lanes.map(|lane| format!("\"{lane}@1.3\":{{\"255\":255}}")).join(",");
    let golden =
        format!("{{\"v\":1,\"lanes\":{{{lanes}}},\"ids\":[\"0130b608-3628-5c16-8171-4c6cef1ce7c7\"]}}");
    assert_eq!(String::from_utf8(seen.encode()).unwrap(), golden);
    assert_eq!(Seen::decode(golden.as_bytes()).unwrap(), seen);
}
