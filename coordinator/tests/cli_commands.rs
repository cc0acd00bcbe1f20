//! Commands against a coordinator that answers by script: what is asked, what is printed, exit codes.
#![allow(
    missing_docs,
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    clippy::disallowed_methods,
    reason = "tests read as sentences, and fail by panicking"
)]

mod cli_support;

use cli_support::{Fake, Shell};
use posthouse_coordinator::cli::Terminal;
use posthouse_shared::codes::Code;
use posthouse_shared::refusal::Refusal;
use posthouse_shared::wire::Failure;
use proptest::prelude::*;
use serde_json::{Value, json};

fn ok(reply: Value) -> (u16, String) {
    let mut document = json!({ "v": 1, "as_of": { "seq": 18204, "age_ms": 300 } });
    document.as_object_mut().unwrap().extend(reply.as_object().unwrap().clone());
    (200, document.to_string())
}

fn no(refusal: Refusal) -> (u16, String) {
    (409, serde_json::to_string(&Failure { v: 1, error: refusal }).unwrap())
}

fn agent(name: &str, more: Value) -> Value {
    let mut agent = json!({
        "name": name, "team": "main", "host": "alpha", "state": "running", "host_state": "up",
        "since": "2026-11-30T14:00:00Z", "for_s": 41, "doing": "T-117 Bash: cargo test", "last_s": 2,
        "quiet_s": 0, "mail": 0, "quarantined": 0, "try": 2, "turn": 7, "birth": "1.2", "generation": "1.2",
    });
    agent.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
    agent
}

fn agents() -> Value {
    json!({ "agents": [
        agent("lint-03", json!({ "state": "failed", "doing": "T-098 exit 101", "for_s": 361, "last_s": 361, "quarantined": 1, "try": 1, "needs": "resume" })),
        agent("scribe-2", json!({ "doing": "T-101", "for_s": 1080, "last_s": 660, "quiet_s": 660, "mail": 4, "try": 1 })),
        agent("scout-11", json!({})),
    ]})
}

#[test]
fn ps_prints_all_rows_to_a_pipe_and_what_fits_to_a_terminal() {
    let fake = Fake::answering(|_, _| ok(agents()));
    let mut shell = Shell::against(&fake);
    let piped = shell.run(&["ps"]);
    let expected = "\
NAME      HOST   STATE    FOR    DOING                   LAST   MAIL  TRY
lint-03   alpha  failed   6m01s  T-098 exit 101          6m01s  1 q   1
scribe-2  alpha  running  18m    T-101 quiet 11m         11m    4     1
scout-11  alpha  running  41s    T-117 Bash: cargo test  2s     0     2
";
    assert_eq!((piped.code, piped.out.as_str(), piped.err.as_str()), (0, expected, ""));
    assert_eq!((fake.asked()[0].line.as_str(), fake.asked()[0].token.as_str()), ("GET /v1/agents", "secret"));

    assert_eq!(shell.run(&["ps", "-o", "name"]).out, "lint-03\nscribe-2\nscout-11\n");
    let document = shell.run(&["ps", "--json"]).json();
    assert_eq!(document["agents"][1]["quiet_s"], 660);
    assert_eq!(document, shell.run(&["ps", "-o", "json"]).json());
    assert!(shell.run(&["ps", "-o", "wide"]).out.contains("GENERATION"));

    shell.terminal = Terminal { stdout: true, size: Some((100, 6)), ..Terminal::piped() };
    let short = shell.run(&["ps"]).out;
    assert!(
        short.contains("...1 of 3 shown: those that need attention or ran last. All: posthouse ps -a\n"),
        "{short}"
    );
    assert!(short.ends_with("1 needs you: posthouse attention        as of #18204, 0.3s ago\n"), "{short}");
    assert!(shell.run(&["ps", "-a"]).out.contains("scout-11"));
    shell.run(&["ps", "--team", "x"]);
    assert_eq!(fake.asked().last().unwrap().line, "GET /v1/agents?team=x");
}

fn unknown() -> Refusal {
    let mut refusal = Refusal::new(Code::UnknownAgent, "no teammate \"scot-07\" in team \"main\"")
        .closest_to("scot-07", [("scout-07", Some("beta, waiting".to_owned()))]);
    refusal = refusal.effect("nothing was sent").next("posthouse send scout-07 \"...\"");
    refusal.next("all names: posthouse ps -o name")
}

#[test]
fn a_refusal_is_a_block_on_stderr_or_one_document_on_stdout() {
    let fake = Fake::answering(|_, _| no(unknown()));
    let shell = Shell::against(&fake);
    let text = shell.run(&["send", "scot-07", "hi"]);
    let expected = "\
error[PH0201]: no teammate \"scot-07\" in team \"main\"
  closest: scout-07 (beta, waiting)
  nothing was sent
help: posthouse send scout-07 \"...\"        all names: posthouse ps -o name
";
    assert_eq!((text.code, text.out.as_str(), text.err.as_str()), (3, "", expected));
    let json = shell.run(&["send", "scot-07", "hi", "--json"]);
    assert_eq!((json.code, json.err.as_str()), (3, ""));
    let error = &json.json()["error"];
    assert_eq!((&error["code"], &error["kind"]), (&json!("PH0201"), &json!("refused")));
    assert_eq!(error["closest"][0], json!({ "name": "scout-07", "state": "beta, waiting" }));
}

#[test]
fn a_coordinator_that_is_not_there_is_exit_4_and_tells_which_address_was_used_and_why() {
    let mut shell = Shell::new();
    shell.variables = vec![("POSTHOUSE_URL", "http://127.0.0.1:1".to_owned())];
    let ran = shell.run(&["ps"]);
    let expected = "\
error[PH0001]: cannot reach the coordinator at http://127.0.0.1:1
  |-> connect: connection refused
  `-> the address is set by POSTHOUSE_URL
help: start one: posthouse up        or point to one: export POSTHOUSE_URL=http://HOST:7420
";
    assert_eq!((ran.code, ran.err.as_str()), (4, expected));
    shell.variables = vec![("POSTHOUSE_SOCKET", "/no/such/socket".to_owned())];
    let ran = shell.run(&["ps", "--json"]);
    assert_eq!((ran.code, &ran.json()["error"]["code"]), (4, &json!("PH0001")));
}

#[test]
fn usage_errors_are_exit_2_as_text_and_as_json() {
    let shell = Shell::new();
    for arguments in [
        vec!["nonsense"],
        vec!["send"],
        vec!["wait", "agent/a=idle", "--timeout", "soon"],
        vec!["task", "update", "T-1"],
        vec!["inbox", "--limit", "0"],
        vec!["send", "a", "b", "--id", "7"],
        vec!["send", "a", "b", "--file", "c"],
    ] {
        let ran = shell.run(&arguments);
        assert_eq!((ran.code, ran.out.as_str()), (2, ""), "{arguments:?}");
        let ran = shell.run(&[&arguments[..], &["--json"]].concat());
        assert_eq!((ran.code, ran.err.as_str()), (2, ""), "{arguments:?}");
        assert_eq!(ran.json()["error"]["kind"], "usage", "{arguments:?}");
    }
    assert_eq!(shell.run(&["--help"]).code, 0);
    assert!(shell.run(&["--version"]).out.starts_with("posthouse "));
}

#[test]
fn send_says_its_id_and_when_it_will_be_read() {
    let id = "019ac1d2-0000-7000-8000-000000000001";
    let reply = json!({ "id": id, "state": "stored", "reads": "scout-07 is in turn 12, reads it next turn" });
    let fake = Fake::answering(move |_, _| ok(reply.clone()));
    let mut shell = Shell::against(&fake);
    shell.stdin = "from stdin\n".to_owned();
    shell.variables.push(("POSTHOUSE_TEAM", "blue".to_owned()));
    let ran = shell.run(&["send", "scout-07", "-", "--urgent", "--id", id]);
    assert_eq!(ran.out, format!("{id}  stored  scout-07 is in turn 12, reads it next turn\n"));
    let asked = fake.asked().pop().unwrap();
    assert_eq!(asked.line, "POST /v1/teams/blue/messages");
    assert_eq!(asked.body, json!({ "to": "scout-07", "body": "from stdin\n", "urgent": true, "id": id }));
    std::io::Write::write_all(&mut std::fs::File::create(shell.cwd().join("f")).unwrap(), b"of a file")
        .unwrap();
    shell.run(&["send", "scout-07", "--file", "f"]);
    assert_eq!(fake.asked().pop().unwrap().body["body"], "of a file");
    assert_eq!(shell.run(&["send", "scout-07", "--file", "missing"]).code, 2);
}

fn mail(id: u8, body: &str) -> Value {
    json!({
        "id": format!("019ac1d2-0000-7000-8000-00000000000{id}"), "kind": "result", "from": "counter",
        "to": "lead", "team": "main", "created_at": "2026-11-30T14:02:11.204Z", "body": body,
        "attempt": id, "marks": [], "vouched": "node",
    })
}

#[test]
fn inbox_acknowledges_only_what_was_printed() {
    let answer = json!({ "messages": [mail(1, "42"), mail(2, "\u{1b}[2Jseven")], "more": 3, "peek": false });
    let fake = Fake::answering(move |_, _| ok(answer.clone()));
    let mut shell = Shell::against(&fake);
    let ran = shell.run(&["inbox"]);
    let expected = "\
-- 019ac1d2-0000-7000-8000-000000000001  result from counter  14:02:11.204
42

-- 019ac1d2-0000-7000-8000-000000000002  result from counter  14:02:11.204  (attempt 2)
\u{1b}[2Jseven

3 more: posthouse inbox
";
    assert_eq!((ran.code, ran.out.as_str()), (0, expected));
    let asked = fake.asked();
    assert_eq!(asked.len(), 2);
    assert_eq!(asked[1].line, "POST /v1/teams/main/agents/lead/inbox");
    assert_eq!(asked[1].body["seen"].as_array().unwrap().len(), 2);

    shell.broken_stdout = true;
    assert_eq!(shell.run(&["inbox"]).code, 1);
    assert_eq!(fake.asked().len(), 3, "a failed print acknowledges nothing");
    shell.broken_stdout = false;

    shell.terminal.stdout = true;
    assert!(!shell.run(&["inbox"]).out.contains('\u{1b}'), "mail does not steer a terminal");
}

#[test]
fn another_ones_inbox_is_only_looked_at() {
    let answer = json!({ "messages": [mail(1, "42")], "more": 0, "peek": true });
    let fake = Fake::answering(move |_, _| ok(answer.clone()));
    let shell = Shell::against(&fake);
    assert_eq!(shell.run(&["inbox", "counter", "--json"]).json()["messages"][0]["body"], "42");
    assert_eq!(fake.asked().len(), 1);
}

#[test]
fn wait_asks_again_until_it_holds_and_ends_with_5_or_1_otherwise() {
    let holds =
        Fake::answering(|count, _| ok(json!({ "holds": count == 2, "state": format!("look {count}") })));
    let ran = Shell::against(&holds).run(&["wait", "task/T-1=completed", "--timeout", "10m"]);
    assert_eq!((ran.code, ran.out.as_str()), (0, "look 2\n"));
    assert_eq!(holds.asked()[0].body, json!({ "condition": "task/T-1=completed", "timeout_ms": 30_000 }));

    let late = Fake::answering(|_, _| no(Refusal::new(Code::WaitTimedOut, "not yet").cause("pending")));
    let ran = Shell::against(&late).run(&["wait", "task/T-1=completed", "--timeout", "0"]);
    assert_eq!(ran.code, 5);
    let open = Fake::answering(|_, _| ok(json!({ "holds": false, "state": "pending" })));
    let ran = Shell::against(&open).run(&["wait", "task/T-1=completed", "--timeout", "1ms", "--json"]);
    assert_eq!((ran.code, &ran.json()["error"]["code"]), (5, &json!("PH0007")));
    let never = Fake::answering(|_, _| no(Refusal::new(Code::WaitImpossible, "T-1 was cancelled")));
    let ran = Shell::against(&never).run(&["wait", "task/T-1=completed", "--timeout", "10m"]);
    assert_eq!((ran.code, never.asked().len()), (1, 1));
}

#[test]
fn trace_shows_each_stage_and_its_exit_code_tells_of_quarantine() {
    let reply = |state: &str| {
        json!({
            "id": "019ac1d2-0000-7000-8000-00000000007f", "kind": "task", "from": "lead@main", "to": "scout-07@main",
            "lane": 41, "bytes": 2150, "state": state, "summary": "stored on beta for 3m10s", "next": ["posthouse why scout-07"],
            "steps": [
                { "at": "2026-11-30T14:02:11.204Z", "stage": "accepted", "host": "alpha", "detail": "synced" },
                { "stage": "stored", "host": "beta" },
            ],
        })
    };
    let fake = Fake::answering(move |count, _| ok(reply(if count == 0 { "stored" } else { "quarantined" })));
    let shell = Shell::against(&fake);
    let ran = shell.run(&["trace", "019ac1d2"]);
    let expected = "\
019ac1d2-...-7f  task  lead@main -> scout-07@main  lane 41  2.0 KiB
stored on beta for 3m10s

  14:02:11.204  accepted     alpha  synced
  .             stored       beta
  .             done         -      not yet

next: posthouse why scout-07
";
    assert_eq!((ran.code, ran.out.as_str()), (0, expected));
    assert_eq!(shell.run(&["trace", "019ac1d2"]).code, 1);
}

#[test]
fn events_are_printed_one_object_a_line() {
    let fake =
        Fake::answering(|_, _| (200, "id: 1\ndata: {\"seq\":1}\n\nid: 2\ndata: {\"seq\":2}\n\n".to_owned()));
    let ran = Shell::against(&fake).run(&["events"]);
    assert_eq!((ran.code, ran.out.as_str()), (0, "{\"seq\":1}\n{\"seq\":2}\n"));
    assert_eq!(fake.asked()[0].line, "GET /v1/events?follow=false&after=0");
    assert_eq!(fake.asked()[0].token, "secret");
}

#[test]
fn what_destroys_asks_on_a_terminal_and_names_yes_elsewhere() {
    let team = json!({ "team": { "name": "blue", "birth": "1.1", "created_at": "2026-11-30T14:00:00Z", "config": {}, "members": [], "tasks": { "pending": 0, "in_progress": 0, "completed": 0, "cancelled": 0 } }, "done": "ended blue" });
    let fake = Fake::answering(move |_, _| ok(team.clone()));
    let mut shell = Shell::against(&fake);
    let deleted = |fake: &Fake| fake.asked().iter().filter(|asked| asked.line.starts_with("DELETE")).count();
    let ran = shell.run(&["team", "delete", "blue"]);
    assert_eq!(ran.code, 2);
    assert!(ran.err.contains("help: posthouse team delete blue --yes"), "{}", ran.err);
    (shell.terminal.stdin, shell.terminal.stderr) = (true, true);
    shell.stdin = "green\n".to_owned();
    assert_eq!((shell.run(&["team", "delete", "blue"]).code, deleted(&fake)), (2, 0));
    shell.stdin = "blue\n".to_owned();
    assert_eq!((shell.run(&["team", "delete", "blue"]).code, deleted(&fake)), (0, 1));
    shell.stdin.clear();
    assert_eq!((shell.run(&["team", "delete", "blue", "--yes"]).code, deleted(&fake)), (0, 2));
}

#[test]
fn spawn_makes_paths_absolute_and_refuses_other_runners() {
    let fake = Fake::answering(|_, _| ok(json!({ "agent": agent("a", json!({})) })));
    let shell = Shell::against(&fake);
    let cwd = shell.cwd();
    let arguments =
        ["spawn", "a", "--prompt", "go", "--cwd", "x/../y", "--label", "gpu=yes", "--", "./tool", "--json"];
    let ran = shell.run(&arguments);
    assert_eq!((ran.code, ran.out.starts_with("spawned a on alpha")), (0, true), "{ran:?}");
    let spec = &fake.asked()[0].body["spec"];
    assert_eq!(spec["cwd"], json!(cwd.join("y")));
    assert_eq!(spec["command"], json!([cwd.join("tool"), "--json"]));
    assert_eq!(spec["labels"], json!({ "gpu": "yes" }));
    assert_eq!(shell.run(&["spawn", "a", "--prompt", "go", "--runner", "claude", "--", "x"]).code, 3);
    assert_eq!(shell.run(&["spawn", "A", "--prompt", "go", "--", "x"]).code, 2);
}

#[test]
fn commands_without_a_coordinator_work_without_one() {
    let shell = Shell::new();
    let config = shell.run(&["config"]);
    assert!(config.out.starts_with("SETTING"), "{}", config.out);
    assert!(shell.run(&["config", "--json"]).json()["settings"].as_array().unwrap().len() > 30);
    for code in ["PH0201", "0201", "201", "ph0201"] {
        assert!(
            shell.run(&["explain", code]).out.starts_with("PH0201: no teammate of that name\n"),
            "{code}"
        );
    }
    assert_eq!(shell.run(&["explain", "9999"]).code, 3);
    for code in Code::ALL {
        let ran = shell.run(&["explain", &code.to_string(), "--json"]);
        assert!(!ran.json()["explain"].as_str().unwrap().is_empty(), "{code}");
        assert_eq!(ran.json()["exit_code"], code.kind().exit_code());
    }
    assert!(shell.run(&["completions", "bash"]).out.contains("posthouse"));
    assert!(shell.run(&["man"]).out.contains(".TH"));
    assert_eq!(shell.run(&["init"]).code, 0);
    let again = shell.run(&["init"]);
    assert_eq!(again.code, 2);
    assert!(again.err.contains("team.toml is there already"), "{}", again.err);
    let checked = shell.run(&["team", "check", "team.toml"]);
    assert_eq!(checked.out, "team.toml is good: team first, 1 member, 2 tasks, 0 schedules\n");
    let plan = shell.run(&["run", "team.toml", "--dry-run", "--set", "dir=x"]);
    assert!(plan.out.contains(&format!("dir = {}/x\n", shell.cwd().display())), "{}", plan.out);
    assert_eq!(shell.run(&["run", "team.toml", "--dry-run", "--json"]).json()["dry_run"], true);
}

#[test]
fn up_and_run_are_handed_to_the_host_with_everything_read() {
    let shell = Shell::new();
    assert_eq!(shell.run(&["up", "--listen", "127.0.0.1:0"]).code, 0);
    shell.run(&["init"]);
    let ran = shell.run(&["run", "team.toml", "--fresh", "--json"]);
    assert_eq!((ran.code, &ran.json()["error"]["message"]), (3, &json!("first fresh=true")));
    let missing = shell.run(&["run", "nothing.toml"]);
    assert_eq!(missing.code, 2);
    let unused = shell.run(&["run", "team.toml", "--set", "dri=x"]);
    assert!(unused.err.contains("did you mean \"dir\"?"), "{}", unused.err);
}

proptest! {
    #[test]
    fn arguments_never_panic(words in prop::collection::vec(prop_oneof!["[a-z]{1,8}", "-{1,2}[a-z]{0,6}", ".{0,12}",
        Just("task".to_owned()), Just("team".to_owned()), Just("check".to_owned()), Just("explain".to_owned()), Just("--json".to_owned())], 0..6)) {
        let mut shell = Shell::new();
        shell.variables = vec![("POSTHOUSE_SOCKET", "/no/such/socket".to_owned())];
        let words: Vec<&str> = words.iter().map(String::as_str).filter(|word| *word != "up").collect();
        let ran = shell.run(&words);
        prop_assert!(ran.code <= 5, "{:?}", ran);
    }
}
