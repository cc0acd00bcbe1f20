//! README is kept: its table names tests that exist, and its commands do what it says when they are typed.

#![allow(
    clippy::unwrap_used,
    clippy::panic,
    clippy::indexing_slicing,
    clippy::disallowed_methods,
    reason = "a test"
)]

use std::collections::BTreeSet;

use posthouse_tests::repository;

/// Each promise of README's table, with the last cell of its row.
fn promises() -> Vec<(String, String)> {
    let readme = repository::read("README.md");
    let rows = readme.lines().filter(|line| line.starts_with("| P"));
    rows.map(|row| {
        let cells: Vec<&str> = row.trim_matches('|').split('|').map(str::trim).collect();
        ((*cells.first().unwrap()).to_owned(), (*cells.last().unwrap()).to_owned())
    })
    .collect()
}

/// What stands between backticks.
fn quoted(text: &str) -> Vec<&str> {
    text.split('`').skip(1).step_by(2).collect()
}

#[test]
fn each_promise_names_tests_that_exist_or_says_not_yet() {
    let promises = promises();
    let names: Vec<&str> = promises.iter().map(|(name, _)| name.as_str()).collect();
    assert_eq!(names, ["P1", "P2", "P3", "P4", "P5", "P6", "P7", "P8"]);
    let tests: BTreeSet<String> = repository::tests().into_iter().collect();
    for (promise, proof) in &promises {
        let named = quoted(proof);
        assert!(
            !named.is_empty() || proof.contains("not yet"),
            "{promise} names no test and does not say not yet"
        );
        for test in named {
            assert!(tests.contains(test), "{promise} names {test}, and there is no such test");
        }
    }
}
