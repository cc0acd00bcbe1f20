//! Teammates that are programs, through the real binary: who they are, what happens when they fail, print without
//! end, or leave processes behind.

#![allow(clippy::unwrap_used, clippy::indexing_slicing, clippy::disallowed_methods, reason = "a test")]

use posthouse_tests::cluster::Posthouse;
use posthouse_tests::home::Home;
use posthouse_tests::recorded::{attempts, recorder, turns, wait_for_file};
use posthouse_tests::repository::agent;

#[test]
fn a_teammate_acts_as_itself_and_as_nobody_else() {
    let home = Home::new();
    let dir = home.dir("speaker");
    let posthouse = Posthouse::up(&home);
    posthouse.team();
    posthouse.spawn("other", &[&agent("echo.sh")]);
    posthouse.wait("agent/other=idle");
    posthouse.spawn("speaker", &[&agent("speak.sh"), &dir.display().to_string()]);
    wait_for_file(&dir.join("env"));
    posthouse.wait("agent/speaker=idle");
    let told = |name: &str| std::fs::read_to_string(dir.join(name)).unwrap();
    assert_eq!(told("send.status"), "0\n", "{}", told("send.err"));
    assert_eq!(told("as.status"), "3\n", "{}", told("as.err"));
    assert!(told("as.err").contains("PH0003"), "{}", told("as.err"));
    assert_eq!(told("stop.status"), "3\n", "{}", told("stop.err"));
    let inbox = posthouse.json(&["inbox", "--peek"]);
    let hello =
        inbox["messages"].as_array().unwrap().iter().find(|message| message["kind"] == "message").unwrap();
    assert_eq!(hello["from"].as_str().unwrap().split('@').next(), Some("speaker"), "{hello:#}");
    assert!(!inbox.to_string().contains("I am the other"), "{inbox:#}");
    // Of the environment it has what it needs, and nothing of ours.
    let env = told("env");
    for needed in ["PATH", "POSTHOUSE_TEAM", "POSTHOUSE_AGENT", "POSTHOUSE_SOCKET", "POSTHOUSE_TOKEN"] {
        assert!(env.lines().any(|name| name == needed), "{needed} is missing in\n{env}");
    }
    assert!(!env.contains("POSTHOUSE_DATA\n"), "{env}");
    assert_eq!(posthouse.term(), 0);
}

#[test]
fn a_failed_turn_is_shown_and_its_input_is_kept_until_a_person_brings_it_back() {
    let home = Home::new();
    home.expect_log("WARN");
    let dir = home.dir("worker");
    let flag = dir.join("mended").display().to_string();
    let posthouse = Posthouse::up(&home);
    posthouse.team();
    let broken = format!("[ -e {flag} ] || {{ echo made of cheese >&2; exit 101; }}");
    posthouse.spawn("worker", &[&agent("record.sh"), &dir.display().to_string(), &broken]);
    posthouse.wait("agent/worker=failed");
    let inbox = posthouse.json(&["inbox", "--peek"]).to_string();
    assert!(inbox.contains("101") && inbox.contains("made of cheese"), "{inbox}");
    let attention = posthouse.json(&["attention"]);
    assert!(attention["attention"].to_string().contains("worker"), "{attention:#}");
    let held = posthouse.json(&["send", "worker", "for later"]);
    assert!(held["reads"].as_str().unwrap().contains("failed"), "{held:#}");

    std::fs::write(&flag, "").unwrap();
    let quarantined = posthouse.json(&["quarantine", "ls"]);
    let entries = quarantined["quarantined"].as_array().unwrap();
    assert_eq!(entries.len(), 1, "{quarantined:#}");
    let id = entries[0]["id"].as_str().unwrap();
    posthouse.ok(&["quarantine", "redeliver", id, "--turn"]);
    posthouse.cli(&["resume", "worker"]);
    posthouse.wait("agent/worker=idle");
    let seen = attempts(&dir);
    assert!(seen.contains_key(id), "{seen:?}");
    assert!(turns(&dir).iter().any(|turn| turn.to_string().contains("for later")));
    assert_eq!(posthouse.json(&["trace", id])["state"], "done");
    assert_eq!(posthouse.term(), 0);
}

#[test]
fn a_teammate_that_prints_gigabytes_is_cut_short_and_not_kept() {
    let home = Home::new();
    home.expect_log("WARN");
    let posthouse = Posthouse::up(&home);
    posthouse.team();
    posthouse.spawn("spammer", &[&agent("spam.sh")]);
    posthouse.wait("agent/spammer=idle");
    let status = std::fs::read_to_string(format!("/proc/{}/status", posthouse.pid())).unwrap();
    let peak = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).unwrap();
    let peak_kib: u64 = peak.split_whitespace().next().unwrap().parse().unwrap();
    assert!(peak_kib < 256 << 10, "{peak_kib} KiB");
    assert_eq!(posthouse.term(), 0);
}

#[test]
fn a_daemon_that_keeps_the_output_open_does_not_keep_the_turn_open() {
    let home = Home::new();
    home.expect_log("WARN");
    let dir = home.dir("forker");
    let posthouse = Posthouse::up(&home);
    posthouse.team();
    posthouse.spawn("forker", &[&agent("daemon.sh"), &dir.display().to_string()]);
    wait_for_file(&dir.join("pid"));
    posthouse.wait("agent/forker=idle");
    assert_eq!(posthouse.term(), 0);
}

#[test]
fn mail_to_the_stopped_is_held_and_read_in_order_after_the_resume() {
    let home = Home::new();
    let dir = home.dir("reader");
    let posthouse = Posthouse::up(&home);
    posthouse.team();
    let command = recorder(&dir);
    posthouse.spawn("reader", &command.iter().map(String::as_str).collect::<Vec<_>>());
    posthouse.wait("agent/reader=idle");
    posthouse.ok(&["stop", "reader"]);
    posthouse.wait("agent/reader=stopped");
    // From another agent: what the lead sends after the stop would end it.
    let speaker = "for n in 1 2 3 4 5; do posthouse send reader \"part $n\" || exit 1; done; echo sent";
    posthouse.spawn("speaker", &["sh", "-c", speaker]);
    posthouse.wait("agent/speaker=idle");
    assert_eq!(turns(&dir).len(), 1, "a stopped teammate has read mail");
    posthouse.ok(&["resume", "reader"]);
    posthouse.wait("agent/reader=idle");
    let mut bodies: Vec<(u64, Vec<String>)> = turns(&dir)
        .iter()
        .map(|turn| {
            let messages = turn["messages"].as_array().unwrap();
            let bodies = messages.iter().map(|message| message["body"].as_str().unwrap().to_owned());
            (turn["turn"].as_u64().unwrap(), bodies.filter(|body| body.starts_with("part ")).collect())
        })
        .collect();
    bodies.sort();
    let order: Vec<String> = bodies.into_iter().flat_map(|(_, bodies)| bodies).collect();
    assert_eq!(order, ["part 1", "part 2", "part 3", "part 4", "part 5"]);
    assert_eq!(posthouse.term(), 0);
}
