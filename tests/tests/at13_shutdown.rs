//! at13: shutdown never acknowledged, orphans that pile up, a clean-up that kills strangers. Here: request, grace,
//! SIGTERM, SIGKILL, each on the agent's own process group; no orphan and no dead stranger, also after kill -9.

#![allow(clippy::unwrap_used, clippy::indexing_slicing, clippy::disallowed_methods, reason = "a test")]

use std::process::{Child, Command};

use posthouse_tests::cluster::Posthouse;
use posthouse_tests::home::Home;
use posthouse_tests::processes::{alive, wait_until_ended};
use posthouse_tests::recorded::wait_for_file;
use posthouse_tests::repository::agent;

/// A process that has nothing to do with Posthouse, though it runs the same program as an agent.
struct Stranger(Child);

impl Stranger {
    fn new(home: &Home) -> Self {
        let dir = home.dir("stranger");
        Self(Command::new(agent("ignore-term.sh")).arg(dir).spawn().unwrap())
    }
}

impl Drop for Stranger {
    fn drop(&mut self) {
        let lives = alive(self.0.id());
        let _it_may_have_ended = self.0.kill();
        let _nobody_asks = self.0.wait();
        assert!(lives || std::thread::panicking(), "the stranger was killed");
    }
}

fn pid_in(dir: &std::path::Path) -> u32 {
    wait_for_file(&dir.join("pid")).trim().parse().unwrap()
}

#[test]
fn at13_an_agent_that_agrees_is_shut_down_and_its_mail_refused() {
    let home = Home::new();
    let posthouse = Posthouse::up(&home);
    posthouse.team();
    posthouse.spawn("polite", &[&agent("echo.sh")]);
    posthouse.wait("agent/polite=idle");
    posthouse.ok(&["shutdown", "polite"]);
    posthouse.wait("agent/polite=shutdown");
    let refused = posthouse.cli(&["send", "polite", "still there?", "--json"]).ended(3).json();
    assert_eq!(refused["error"]["code"], "PH0211");
    // The name is free again, and its new holder hears nothing of the old one's mail.
    posthouse.spawn("polite", &[&agent("echo.sh")]);
    posthouse.wait("agent/polite=idle");
    assert_eq!(posthouse.term(), 0);
}

#[test]
fn at13_an_agent_may_refuse_with_its_reason_and_be_forced() {
    let home = Home::new();
    let posthouse = Posthouse::up(&home);
    posthouse.team();
    posthouse.spawn("stubborn", &[&agent("refuse-shutdown.sh")]);
    posthouse.wait("agent/stubborn=idle");
    let mut events = posthouse.events();
    // The command itself may wait for the answer or not; the lead is told in any case.
    let asked = posthouse.cli(&["shutdown", "stubborn"]);
    assert!(matches!(asked.status, 0 | 3), "{asked:?}");
    events.until("message_stored", |event| event["kind"] == "shutdown_response" && event["to"] == "lead");
    let inbox = posthouse.json(&["inbox", "--peek"]);
    assert!(inbox.to_string().contains("not before lunch"), "{inbox:#}");
    posthouse.wait("agent/stubborn=idle");
    posthouse.ok(&["shutdown", "stubborn", "--force"]);
    posthouse.wait("agent/stubborn=shutdown");
    assert_eq!(posthouse.term(), 0);
}

#[test]
fn at13_silence_ends_by_sigkill_and_no_stranger_is_touched() {
    let home = Home::new();
    home.expect_log("WARN");
    let _stranger = Stranger::new(&home);
    let dir = home.dir("deaf");
    let posthouse = Posthouse::up(&home);
    posthouse.team();
    posthouse.spawn("deaf", &[&agent("ignore-term.sh"), &dir.display().to_string()]);
    let pid = pid_in(&dir);
    posthouse.cli(&["shutdown", "deaf", "--force"]);
    posthouse.wait("agent/deaf=shutdown");
    wait_until_ended(pid);
    assert_eq!(posthouse.term(), 0);
}

#[test]
fn at13_no_orphan_outlives_a_closing_coordinator() {
    let home = Home::new();
    home.expect_log("WARN");
    let _stranger = Stranger::new(&home);
    let (dir, left) = (home.dir("deaf"), home.dir("daemon"));
    let posthouse = Posthouse::up(&home);
    posthouse.team();
    posthouse.spawn("forker", &[&agent("daemon.sh"), &left.display().to_string()]);
    posthouse.wait("agent/forker=idle");
    posthouse.spawn("deaf", &[&agent("ignore-term.sh"), &dir.display().to_string()]);
    let (pid, daemon) = (pid_in(&dir), pid_in(&left));
    assert_eq!(posthouse.term(), 0);
    wait_until_ended(pid);
    wait_until_ended(daemon);
}

#[test]
fn at13_after_kill_9_the_next_start_ends_the_orphans_and_no_stranger() {
    let home = Home::new();
    home.expect_log("WARN");
    let _stranger = Stranger::new(&home);
    let dir = home.dir("deaf");
    let posthouse = Posthouse::up(&home);
    posthouse.team();
    posthouse.spawn("deaf", &[&agent("ignore-term.sh"), &dir.display().to_string()]);
    let orphan = pid_in(&dir);
    posthouse.kill9();
    std::fs::remove_file(dir.join("pid")).unwrap();
    let posthouse = Posthouse::up(&home);
    wait_until_ended(orphan);
    // Its turn is run again, as the next attempt, by a process of its own.
    let next = pid_in(&dir);
    assert_ne!(next, orphan);
    assert_eq!(posthouse.term(), 0);
    wait_until_ended(next);
}
