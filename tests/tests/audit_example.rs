//! The first thing that a newcomer runs: the audit example, whole, through the real binary. Its figures agree with
//! README's `find`, `wc` and `grep`; it is killed in the middle and started again, and every task is done once.

#![allow(
    clippy::unwrap_used,
    clippy::panic,
    clippy::indexing_slicing,
    clippy::disallowed_methods,
    reason = "a test"
)]

use std::collections::BTreeMap;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

use posthouse_tests::home::{Home, Output};
use posthouse_tests::repository::{read, top};
use posthouse_tests::tree;
use serde_json::Value;

fn team_file() -> String {
    top().join("deploy/examples/audit.toml").display().to_string()
}

/// `posthouse run` of the example over `dir`, with more arguments.
fn run(home: &Home, dir: &Path, more: &[&str]) -> Output {
    let set = format!("dir={}", dir.display());
    home.posthouse([&["run", &team_file(), "--set", &set], more].concat())
}

/// Tasks by id.
fn tasks(summary: &Value) -> BTreeMap<String, Value> {
    let tasks = summary["tasks"].as_array().unwrap_or_else(|| panic!("no tasks: {summary:#}"));
    tasks.iter().map(|task| (task["id"].as_str().unwrap().to_owned(), task.clone())).collect()
}

fn assert_completed(summary: &Value) {
    assert_eq!(summary["v"], 1);
    assert_eq!(summary["team"], "audit");
    assert_eq!(summary["outcome"], "completed", "{summary:#}");
    let tasks = tasks(summary);
    let ids: Vec<&str> = tasks.keys().map(String::as_str).collect();
    assert_eq!(ids, ["links", "report", "size", "todo"]);
    for task in tasks.values() {
        assert_eq!(task["status"], "completed", "{task:#}");
        assert!(["counter", "linker", "writer"].contains(&task["owner"].as_str().unwrap()), "{task:#}");
        assert!(!task["result"].as_str().unwrap().is_empty(), "{task:#}");
    }
    let messages = &summary["messages"];
    assert_eq!(messages["quarantined"], 0, "{messages:#}");
    assert_eq!(messages["accepted"], messages["done"], "{messages:#}");
}

/// README's own lines over `dir`: each prints one line.
fn lines_of_readme(dir: &Path) -> Vec<Vec<u64>> {
    let readme = read("README.md");
    let block = readme.split("```sh\n").find(|block| block.starts_with("files()")).unwrap();
    let script = block.split("```").next().unwrap();
    let output = Output::of(Command::new("sh").args(["-c", script]).current_dir(dir)).ended(0);
    let numbers = |line: &str| line.split_whitespace().map(|number| number.parse().unwrap()).collect();
    output.stdout.lines().map(numbers).collect()
}

fn row(report: &str, language: &str) -> Vec<u64> {
    let row = report.lines().find(|line| line.split_whitespace().next() == Some(language));
    let row = row.unwrap_or_else(|| panic!("no row {language} in\n{report}"));
    row.split_whitespace().skip(1).map(|number| number.parse().unwrap()).collect()
}

fn assert_agrees(report: &str, dir: &Path) {
    let lines = lines_of_readme(dir);
    let [files, all, rust_files, rust, todo] = lines.as_slice() else {
        panic!("README's lines print {lines:?}")
    };
    assert_eq!(row(report, "all"), [files.as_slice(), all].concat(), "{report}");
    assert_eq!(row(report, "Rust"), [rust_files.as_slice(), rust].concat(), "{report}");
    assert!(report.contains(&format!("\n{} lines in ", todo[0])), "{} and not so in\n{report}", todo[0]);
}

#[test]
fn the_audit_of_this_repository_agrees_with_find_wc_and_grep() {
    let home = Home::new();
    let output = home.posthouse(["run", &team_file(), "--json"]).ended(0);
    let summary = output.json();
    assert_completed(&summary);
    assert_agrees(tasks(&summary)["report"]["result"].as_str().unwrap(), &top());
}

#[test]
fn the_audit_of_another_tree_prints_its_report_and_prints_it_again() {
    let home = Home::new();
    let dir = home.dir("tree");
    let counts = tree::make(&dir);
    let first = run(&home, &dir, &[]).ended(0);
    assert!(first.stdout.contains("# Audit of "), "{first:?}");
    assert_eq!(row(&first.stdout, "Rust"), [counts.rust.0, counts.rust.1, counts.rust.2]);
    assert!(
        first.stdout.contains(&format!("{} broken of {} relative links", counts.links.1, counts.links.0))
    );
    // Tasks being claimed are seen on stderr.
    for task in ["size", "todo", "links", "report"] {
        assert!(first.stderr.contains(task), "{task} was not shown:\n{}", first.stderr);
    }

    let again = run(&home, &dir, &[]).ended(0);
    assert_eq!(again.stdout, first.stdout);
    assert!(again.stderr.contains("--fresh"), "{}", again.stderr);

    let fresh = run(&home, &dir, &["--fresh", "--json"]).ended(0).json();
    assert_completed(&fresh);
}

#[test]
fn another_file_of_the_same_team_needs_fresh() {
    let home = Home::new();
    let dir = home.dir("tree");
    tree::make(&dir);
    run(&home, &dir, &[]).ended(0);
    let changed = home.room().join("audit.toml");
    let text = read("deploy/examples/audit.toml")
        .replace("\"audit/", &format!("\"{}/deploy/examples/audit/", top().display()))
        .replace("goal = \"Audit", "goal = \"Look at");
    std::fs::write(&changed, text).unwrap();
    let changed = changed.display().to_string();
    let set = format!("dir={}", dir.display());
    let refused = home.posthouse(["run", &changed, "--set", &set]).ended(3);
    assert!(refused.stderr.contains("PH0111") && refused.stderr.contains("--fresh"), "{}", refused.stderr);
    assert_completed(&home.posthouse(["run", &changed, "--set", &set, "--fresh", "--json"]).ended(0).json());
}

#[test]
fn a_dry_run_makes_nothing() {
    let home = Home::new();
    let plan = home.posthouse(["run", &team_file(), "--dry-run"]).ended(0);
    assert!(
        ["counter", "linker", "writer", "report"].iter().all(|name| plan.stdout.contains(name)),
        "{plan:?}"
    );
    assert!(!home.data().exists());
}

#[test]
fn killed_in_the_middle_the_same_command_ends_with_every_task_done_once() {
    let home = Home::new();
    // What is found half-done after a kill is worth a line.
    home.expect_log("WARN");
    let dir = home.dir("tree");
    tree::make(&dir);
    let uncut = {
        let other = Home::new();
        run(&other, &dir, &["--json"]).ended(0).json()
    };
    let set = format!("dir={}", dir.display());
    for cut in [20, 60, 110, 170, 240, 320, 410, 510] {
        let mut command = home.command(["run", &team_file(), "--set", &set]);
        let mut child = command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
        std::thread::park_timeout(Duration::from_millis(cut));
        child.kill().unwrap();
        child.wait().unwrap();
    }
    let summary = run(&home, &dir, &["--json"]).ended(0).json();
    assert_completed(&summary);
    let results = |summary: &Value| -> BTreeMap<String, Value> {
        tasks(summary).into_iter().map(|(id, task)| (id, task["result"].clone())).collect()
    };
    assert_eq!(results(&summary), results(&uncut));
    let completions = completions(&home);
    for (task, times) in &completions {
        assert_eq!(*times, 1, "{task} was completed {times} times");
    }
    assert_eq!(completions.len(), 4, "{completions:?}");
}

/// How often each task was completed, by the journal.
fn completions(home: &Home) -> BTreeMap<String, u32> {
    let mut times = BTreeMap::new();
    for entry in std::fs::read_dir(home.data().join("journal")).unwrap().flatten() {
        let text = std::fs::read(entry.path()).unwrap();
        for line in String::from_utf8_lossy(&text).lines() {
            let Ok(entry) = serde_json::from_str::<Value>(line) else { continue };
            count_completions(&entry, &mut times);
        }
    }
    times
}

/// Entries nest what they decide; a decision that completes a task is an object that names itself so.
fn count_completions(value: &Value, times: &mut BTreeMap<String, u32>) {
    match value {
        Value::Object(fields) => {
            let names = |key: &str| fields.get(key).and_then(Value::as_str);
            if names("what") == Some("task_completed")
                && let Some(task) = names("task").or_else(|| names("id"))
            {
                *times.entry(task.to_owned()).or_default() += 1;
            }
            if let Some(task) =
                fields.get("task_completed").and_then(|inner| inner["id"].as_str().or(inner["task"].as_str()))
            {
                *times.entry(task.to_owned()).or_default() += 1;
            }
            fields.values().for_each(|inner| count_completions(inner, times));
        }
        Value::Array(items) => items.iter().for_each(|inner| count_completions(inner, times)),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
    }
}
