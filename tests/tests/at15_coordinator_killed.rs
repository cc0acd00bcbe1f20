//! at15: a crash wiped the team, and the resumed lead never got the replies. Here kill -9 of the coordinator leaves
//! the same team, members, tasks and backlog, and `brief` tells a fresh lead what it needs.

#![allow(clippy::unwrap_used, clippy::indexing_slicing, reason = "a test")]

use posthouse_tests::cluster::Posthouse;
use posthouse_tests::home::{Home, TEAM};
use posthouse_tests::repository::agent;
use serde_json::Value;

/// An answer without how far the state was.
fn plain(mut answer: Value) -> Value {
    answer.as_object_mut().unwrap().remove("as_of");
    // Numbers of mail still move: notices may be on their way.
    if let Some(team) = answer["team"].as_object_mut() {
        team.remove("messages");
    }
    answer
}

/// Of all members what does not depend on the moment.
fn members(posthouse: &Posthouse<'_>) -> Vec<Value> {
    let answer = posthouse.json(&["ps", "-a"]);
    let mut members: Vec<Value> = answer["agents"].as_array().unwrap().clone();
    for member in &mut members {
        let lasting =
            ["name", "team", "host", "state", "role", "cwd", "runner", "birth", "generation", "task"];
        member.as_object_mut().unwrap().retain(|key, _| lasting.contains(&key.as_str()));
    }
    members.sort_by_key(|member| member["name"].to_string());
    members
}

#[test]
fn at15_kill_9_of_the_coordinator_keeps_team_members_tasks_and_backlog() {
    let home = Home::new();
    home.expect_log("WARN");
    let posthouse = Posthouse::up(&home);
    posthouse.team();
    posthouse.spawn("ann", &[&agent("echo.sh")]);
    posthouse.spawn("ben", &[&agent("echo.sh")]);
    posthouse.wait("agent/ann=idle");
    posthouse.wait("agent/ben=idle");
    posthouse.ok(&["stop", "ben"]);
    posthouse.wait("agent/ben=stopped");
    posthouse.ok(&["task", "add", "Count", "--id", "count"]);
    posthouse.ok(&["task", "add", "Report", "--id", "report", "--blocked-by", "count"]);
    posthouse.ok(&["task", "add", "Check", "--id", "check"]);
    posthouse.ok(&["task", "claim", "check", "--as", "ann"]);
    posthouse.wait("task/check=completed");
    // A claim that is alive across the kill: the lead's own, which no turn works off.
    posthouse.ok(&["task", "add", "Decide", "--id", "decide"]);
    posthouse.ok(&["task", "claim", "decide", "--as", "lead"]);
    posthouse.wait("agent/ann=idle");
    posthouse.send("lead", "remember the milk");

    let state = |posthouse: &Posthouse<'_>| {
        let team = plain(posthouse.json(&["team", "show", TEAM]));
        let tasks = plain(posthouse.json(&["task", "ls"]));
        (team, members(posthouse), tasks)
    };
    let backlog = |posthouse: &Posthouse<'_>| -> Vec<Value> {
        posthouse.json(&["inbox", "--peek"])["messages"].as_array().unwrap().clone()
    };
    let (before, mail_before) = (state(&posthouse), backlog(&posthouse));
    posthouse.kill9();

    let posthouse = Posthouse::up(&home);
    posthouse.wait("agent/ann=idle");
    assert_eq!(state(&posthouse), before);
    let mail = backlog(&posthouse);
    assert!(mail_before.iter().all(|message| mail.contains(message)), "{mail_before:#?}\n{mail:#?}");

    posthouse.ok(&["task", "check", "decide", "--as", "lead"]);
    posthouse.ok(&["task", "complete", "decide", "--as", "lead", "--result", "yes"]);

    let brief = posthouse.ok(&["brief"]).stdout;
    for needed in [TEAM, "ann", "ben", "stopped", "count", "report", "remember the milk"] {
        assert!(brief.contains(needed), "{needed} is not in the brief:\n{brief}");
    }
    // Mail of the lead ends a stop, and what the lead has read does not come again.
    posthouse.send("ben", "go on");
    posthouse.wait("agent/ben=idle");
    posthouse.ok(&["inbox"]);
    posthouse.ok(&["inbox"]);
    let left = posthouse.json(&["inbox", "--peek"]);
    assert!(!left.to_string().contains("remember the milk"), "{left:#}");
    assert_eq!(posthouse.term(), 0);
}
