//! The scripts of the audit example, each alone: they count what there is to count, whatever files are called, and
//! say what they cannot do.

#![allow(clippy::unwrap_used, clippy::disallowed_methods, reason = "a test")]

use std::io::Write;
use std::path::Path;
use std::process::{Command, Stdio};

use posthouse_tests::home::{Home, Output, exit_code};
use posthouse_tests::repository::top;
use posthouse_tests::skip::has_program;
use posthouse_tests::tree;
use serde_json::json;

/// The strictest shell there is.
fn shell() -> &'static str {
    if has_program("dash") { "dash" } else { "sh" }
}

fn script(name: &str, arguments: &[&str], stdin: &str, path: Option<&Path>) -> Output {
    let mut command = Command::new(shell());
    command.arg(top().join("deploy/examples/audit").join(name)).args(arguments);
    if let Some(path) = path {
        let own = std::env::var("PATH").unwrap_or_default();
        command.env("PATH", format!("{}:{own}", path.display()));
    }
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().unwrap();
    child.stdin.take().unwrap().write_all(stdin.as_bytes()).unwrap();
    let output = child.wait_with_output().unwrap();
    Output {
        status: exit_code(output.status),
        stdout: String::from_utf8_lossy(&output.stdout).into_owned(),
        stderr: String::from_utf8_lossy(&output.stderr).into_owned(),
    }
}

/// The numbers of a row of the table by language.
fn row(table: &str, language: &str) -> (u64, u64, u64) {
    let line = table.lines().find(|line| line.split_whitespace().next() == Some(language)).unwrap();
    let mut numbers = line.split_whitespace().skip(1).map(|number| number.parse().unwrap());
    (numbers.next().unwrap(), numbers.next().unwrap(), numbers.next().unwrap())
}

#[test]
fn the_scripts_count_right_whatever_files_are_called() {
    let home = Home::new();
    // A directory that is itself called target is audited all the same.
    let dir = home.dir("target");
    let counts = tree::make(&dir);
    let dir = dir.display().to_string();
    let table = script("size.sh", &[&dir], "", None).ended(0).stdout;
    assert_eq!(row(&table, "Rust"), counts.rust, "{table}");
    let (files, lines, _) = row(&table, "all");
    assert_eq!((files, lines), (counts.files, counts.lines), "{table}");
    let todo = script("todo.sh", &[&dir], "", None).ended(0).stdout;
    assert!(todo.starts_with(&format!("{} lines", counts.todo)), "{todo}");
    let links = script("links.sh", &[&dir], "", None).ended(0).stdout;
    let (all, broken) = counts.links;
    assert!(links.starts_with(&format!("{broken} broken of {all} relative links\n")), "{links}");
    assert!(links.contains("./docs/odd (1).md:1 -> gone.md"), "{links}");
}

#[test]
fn an_empty_tree_is_no_error_and_a_missing_one_is() {
    let home = Home::new();
    let empty = home.dir("empty").display().to_string();
    for name in ["size.sh", "todo.sh", "links.sh"] {
        script(name, &[&empty], "", None).ended(0);
        let missing = script(name, &[&format!("{empty}/missing")], "", None).ended(1);
        assert!(missing.stderr.contains("cannot enter directory"), "{missing:?}");
    }
}

#[test]
fn a_teammate_writes_the_report_from_the_results_it_was_given() {
    let (size, links) = ("a \"quoted\"\ttable\nwith \\ and \u{1f600}", "x".repeat(100_000));
    let turn = json!({
        "turn": 3, "agent": "writer", "team": "audit", "messages": [],
        "task": {"id": "report", "subject": "s", "description": "d", "generation": "1.9", "blocked_by": [
            {"id": "size", "result": size}, {"id": "todo", "result": "7 lines"}, {"id": "links", "result": links}]},
    });
    let report = script("teammate.sh", &["some/tree"], &turn.to_string(), None).ended(0).stdout;
    assert!(report.starts_with("# Audit of some/tree\n"), "{report}");
    for part in [size, "7 lines", &links] {
        assert!(report.contains(part), "{part:.40} is not in the report");
    }
}

#[test]
fn a_teammate_agrees_to_end_and_refuses_what_it_does_not_know() {
    let shutdown = json!({"messages": [{"id": "x", "kind": "shutdown_request"}]}).to_string();
    script("teammate.sh", &["."], &shutdown, None).ended(0);
    let unknown = json!({"task": {"id": "dance"}, "messages": []}).to_string();
    assert!(script("teammate.sh", &["."], &unknown, None).ended(1).stderr.contains("dance"));
    let no_results = json!({"task": {"id": "report", "blocked_by": []}, "messages": []}).to_string();
    script("teammate.sh", &["."], &no_results, None).ended(1);
}

#[test]
fn the_lead_briefs_each_teammate_under_the_same_ids_in_every_attempt() {
    let home = Home::new();
    let bin = home.dir("bin");
    let fake = bin.join("posthouse");
    std::fs::write(&fake, "#!/bin/sh\necho \"$2 $5\" >&2\n").unwrap();
    assert!(Command::new("chmod").arg("+x").arg(&fake).status().unwrap().success());
    let turn = json!({"turn": 1, "messages": [
        {"id": "019ac1d2-aaaa-7bbb-8ccc-0123456789ab", "kind": "task", "from": "external", "body": "go"},
        {"id": "019ac1d2-aaaa-7bbb-8ccc-0123456789ac", "kind": "idle", "from": "counter", "body": ""}]})
    .to_string();
    let first = script("lead.sh", &["counter", "linker"], &turn, Some(&bin)).ended(0);
    let ids = "counter 019ac1d2-aaaa-8bbb-8ccc-012345678901\nlinker 019ac1d2-aaaa-8bbb-8ccc-012345678902\n";
    assert_eq!(first.stderr, ids);
    assert_eq!(first.stdout, "briefed: counter linker\nnoted: idle from counter\n");
    assert_eq!(script("lead.sh", &["counter", "linker"], &turn, Some(&bin)).ended(0).stderr, ids);
}

#[test]
fn input_that_is_not_json_is_an_error() {
    for broken in ["{", "{\"a\":1}x", "[1,", "\"abc", "{\"a\" 1}", "", "nul", "{\"a\":\"\\q\"}"] {
        let mut command = Command::new("awk");
        command
            .args(["-v", "want=a", "-f"])
            .arg(top().join("deploy/examples/audit/json.awk"))
            .env("LC_ALL", "C");
        command.stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::null());
        let mut child = command.spawn().unwrap();
        child.stdin.take().unwrap().write_all(broken.as_bytes()).unwrap();
        assert_eq!(child.wait().unwrap().code(), Some(2), "{broken:?}");
    }
}
