//! What scripts rely on: exit codes, one JSON document on stdout on failure too, `v` and `as_of` in every answer, data
//! on stdout and all else on stderr.

#![allow(clippy::unwrap_used, clippy::indexing_slicing, reason = "a test")]

use posthouse_tests::cluster::Posthouse;
use posthouse_tests::home::{Home, TEAM};

#[test]
fn every_list_is_one_document_with_version_and_as_of() {
    let home = Home::new();
    let posthouse = Posthouse::up(&home);
    posthouse.team();
    posthouse.ok(&["task", "add", "Look", "--id", "look"]);
    for (command, key) in [
        (&["ps"][..], "agents"),
        (&["team", "ls"], "teams"),
        (&["team", "show", TEAM], "team"),
        (&["task", "ls"], "tasks"),
        (&["task", "show", "look"], "task"),
        (&["schedule", "ls"], "schedules"),
        (&["quarantine", "ls"], "quarantined"),
        (&["hosts", "ls"], "hosts"),
        (&["attention"], "attention"),
        (&["inbox", "--peek"], "messages"),
        (&["why", "look"], "why"),
        (&["brief"], "brief"),
    ] {
        let answer = posthouse.json(command);
        assert_eq!(answer["v"], 1, "{command:?}");
        assert!(answer["as_of"]["seq"].is_u64(), "{command:?}: {answer:#}");
        assert!(!answer[key].is_null(), "{command:?}: {answer:#}");
    }
}

#[test]
fn exit_codes_are_what_the_interface_says() {
    let home = Home::new();
    let posthouse = Posthouse::up(&home);
    posthouse.team();
    posthouse.ok(&["task", "add", "Look", "--id", "look"]);
    for (status, command) in [
        (0, &["task", "ls"][..]),
        (2, &["no-such-command"]),
        (2, &["send"]),
        (3, &["task", "show", "nothing"]),
        (5, &["wait", "task/look=completed", "--timeout", "200ms"]),
        (0, &["explain", "PH0201"]),
        (3, &["explain", "PH9999"]),
    ] {
        let output = posthouse.cli(command);
        assert_eq!(output.status, status, "{command:?}: {output:?}");
        if status != 0 {
            assert!(output.stdout.is_empty(), "{command:?} failed and wrote to stdout: {output:?}");
        }
    }
    posthouse.ok(&["task", "cancel", "look"]);
    // At once, since it can no longer come true.
    assert_eq!(posthouse.cli(&["wait", "task/look=completed", "--timeout", "10m"]).status, 1);
}

#[test]
fn without_a_coordinator_the_answer_is_unreachable_and_says_what_to_do() {
    let home = Home::new();
    let text = home.posthouse(["ps"]).ended(4);
    assert!(text.stderr.contains("PH0001") && text.stderr.contains("posthouse up"), "{}", text.stderr);
    let json = home.posthouse(["ps", "--json"]).ended(4).json();
    assert_eq!(json["error"]["kind"], "unreachable");
    assert!(!home.data().exists(), "asking made a data directory");
}

#[test]
fn a_message_can_be_followed_and_named_by_the_beginning_of_its_id() {
    let home = Home::new();
    let posthouse = Posthouse::up(&home);
    posthouse.team();
    let id = posthouse.send("lead", "hello");
    // The end of the first block and the next tell two ids of the same second apart.
    let trace = posthouse.json(&["trace", &id[..18]]);
    assert_eq!(trace["id"], id.as_str());
    assert_eq!(trace["state"], "stored");
    assert!(trace["steps"].as_array().is_some_and(|steps| !steps.is_empty()), "{trace:#}");
    posthouse.ok(&["inbox"]);
    posthouse.ok(&["inbox"]);
    posthouse.ok(&["wait", &format!("message/{id}=done"), "--timeout", "10s"]);
    assert_eq!(posthouse.json(&["trace", &id])["state"], "done");
}

#[test]
fn a_board_refuses_with_its_reasons() {
    let home = Home::new();
    let posthouse = Posthouse::up(&home);
    posthouse.team();
    // Its turn on a task does not end by itself.
    posthouse.spawn("ann", &["sh", "-c", "[ -z \"$POSTHOUSE_TASK\" ] || exec sleep 60; cat"]);
    posthouse.wait("agent/ann=idle");
    posthouse.ok(&["task", "add", "First", "--id", "first"]);
    posthouse.ok(&["task", "add", "Second", "--id", "second", "--blocked-by", "first"]);
    let code = |command: &[&str]| {
        let refused = posthouse.cli(&[command, &["--json"]].concat());
        refused.ended(3).json()["error"]["code"].as_str().unwrap().to_owned()
    };
    assert_eq!(code(&["task", "claim", "second", "--as", "ann"]), "PH0403");
    assert_eq!(code(&["task", "update", "first", "--blocked-by", "second"]), "PH0407");
    assert_eq!(code(&["task", "add", "Again", "--id", "first"]), "PH0410");
    let claimed = posthouse.json(&["task", "claim", "first", "--as", "ann"]);
    let generation = claimed["task"]["generation"].as_str().unwrap().to_owned();
    posthouse.ok(&["task", "release", "first"]);
    let complete = ["task", "complete", "first", "--as", "ann", "--generation", &generation];
    assert!(["PH0406", "PH0409"].contains(&code(&complete).as_str()));
    posthouse.ok(&["task", "claim", "first", "--as", "ann"]);
    assert_eq!(code(&complete), "PH0406");
    posthouse.ok(&["task", "complete", "first", "--as", "ann", "--result", "done"]);
    assert_eq!(code(&["task", "claim", "first", "--as", "ann"]), "PH0402");
    posthouse.ok(&["task", "claim", "second", "--as", "ann"]);
}
