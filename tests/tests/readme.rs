//! README is kept: its table names tests that exist, and its commands do what it says when they are typed.

#![allow(
    clippy::unwrap_used,
    clippy::panic,
    clippy::indexing_slicing,
    clippy::disallowed_methods,
    reason = "a test"
)]

use std::collections::BTreeSet;
use std::process::Command;

use posthouse_tests::cluster::Posthouse;
use posthouse_tests::home::{Home, Output, posthouse};
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

/// The commands that README shows under a heading, without their comments.
fn commands(heading: &str) -> Vec<String> {
    let readme = repository::read("README.md");
    let (_, section) = readme.split_once(heading).unwrap_or_else(|| panic!("README has no {heading:?}"));
    let section = section.split("\n## ").next().unwrap_or_default();
    let lines = section.lines().filter_map(|line| line.strip_prefix("$ "));
    lines.map(|line| line.split("  # ").next().unwrap_or_default().trim().to_owned()).collect()
}

/// A command as typed at the top of the repository, with `posthouse` on PATH and nothing of the tester's own.
fn typed(home: &Home, line: &str, url: Option<&str>) -> Output {
    let binary = posthouse();
    let path = format!("{}:{}", binary.parent().unwrap().display(), std::env::var("PATH").unwrap());
    let mut command = Command::new("sh");
    command.args(["-c", line]).current_dir(repository::top()).env_clear().env("PATH", path);
    command.env("HOME", home.room()).env("POSTHOUSE_DATA", home.data()).env("NO_COLOR", "1");
    if let Some(url) = url {
        command.env("POSTHOUSE_URL", url);
    }
    Output::of(&mut command)
}

#[test]
fn the_first_run_does_what_readme_says_as_a_newcomer_types_it() {
    let home = Home::new();
    home.expect_log("WARN");
    let commands = commands("## First run");
    let [first, killed, again, tests] = commands.as_slice() else {
        panic!("README's first run is {commands:#?}")
    };
    assert_eq!(tests, "tests/run --install");
    let data = home.dir("second").join("data").display().to_string();
    // The binary is built by whoever runs this test; a second data directory is given in place of one in /tmp.
    let ready = |line: &str| {
        line.replace("cargo run --release --bin posthouse --", "posthouse")
            .replace("target/release/posthouse", "posthouse")
            .replace("/tmp/audit", &data)
    };
    assert_eq!(killed.replace("timeout -s KILL 1 ", ""), *again, "the same command");
    let report = typed(&home, &ready(first), None).ended(0);
    let title = format!("# Audit of {}\n", repository::top().display());
    assert!(report.stdout.contains(&title), "{report:?}");
    // A second time it prints the same.
    assert_eq!(typed(&home, &ready(first), None).ended(0).stdout, report.stdout);
    typed(&home, &ready(killed), None);
    let report = typed(&home, &ready(again), None).ended(0);
    assert!(report.stdout.contains("# Audit of /usr/include\n"), "{report:?}");
}

#[test]
fn a_team_by_hand_works_as_readme_types_it() {
    let home = Home::new();
    let coordinator = Posthouse::up(&home);
    let mut last_id = None;
    for line in commands("## A team by hand") {
        if line == "posthouse up" {
            continue;
        }
        let line = line.replace(" ID", &format!(" {}", last_id.as_deref().unwrap_or("ID")));
        let output = typed(&home, &line, Some(coordinator.url())).ended(0);
        let said = format!("{} {}", output.stdout, output.stderr);
        let words = said.split(|c: char| !c.is_ascii_hexdigit() && c != '-');
        last_id = words.filter(|word| word.len() == 36).map(str::to_owned).next().or(last_id);
    }
    assert!(last_id.is_some(), "send did not tell the id");
    assert_eq!(coordinator.term(), 0);
}
