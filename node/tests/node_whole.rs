//! A whole node: its socket, its schedules, duplicates, restarts, and programs that are strangers to it.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    clippy::disallowed_methods,
    reason = "tests"
)]

mod teammate_support;

use std::io::{Read, Write};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use posthouse_node::post::{Draft, DraftId};
use posthouse_shared::clock::Stamp;
use posthouse_shared::durable::Files;
use posthouse_shared::message::Kind;
use posthouse_shared::name::MessageId;
use posthouse_shared::team::{AgentState, Missed, Schedule, Standing};
use posthouse_shared::wire::Caller;
use posthouse_shared::wire::event::What;
use teammate_support::*;

fn ask(socket: &Path, token: &str, body: &str) -> (u16, serde_json::Value) {
    let mut stream = UnixStream::connect(socket).unwrap();
    let request = format!(
        "POST /v1/teams/main/messages HTTP/1.1\r\nHost: node\r\nConnection: close\r\nAuthorization: Bearer {token}\r\nContent-Length: {}\r\n\r\n{body}",
        body.len()
    );
    stream.write_all(request.as_bytes()).unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    let (head, body) = answer.split_once("\r\n\r\n").unwrap();
    let status = head.split(' ').nth(1).unwrap().parse().unwrap();
    (status, serde_json::from_str(body).unwrap())
}

async fn asked(socket: &Path, token: &str, body: &str) -> (u16, serde_json::Value) {
    let (socket, token, body) = (socket.to_owned(), token.to_owned(), body.to_owned());
    tokio::task::spawn_blocking(move || ask(&socket, &token, &body)).await.unwrap()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_turn_talks_to_its_node_as_itself_and_only_while_it_runs() {
    let bench = Bench::new(limits()).await;
    bench
        .scout(r#"echo "$POSTHOUSE_TOKEN $POSTHOUSE_SOCKET $POSTHOUSE_TEAM $POSTHOUSE_AGENT" > who; until test -e go; do sleep 0.01; done"#)
        .await;
    bench.send("go");
    let who = bench.appears("who").await;
    let [token, socket, "main", "scout"] = who.split_whitespace().collect::<Vec<_>>()[..] else {
        panic!("{who}")
    };
    let socket = Path::new(socket);
    assert_eq!(std::fs::metadata(socket).unwrap().permissions().mode() & 0o777, 0o600);
    let (status, answer) = asked(socket, token, r#"{"to":"lead","body":"hello"}"#).await;
    assert_eq!((status, answer["done"].as_str(), answer["v"].as_u64()), (200, Some("heard"), Some(1)));
    assert_eq!(answer["as_of"]["seq"], 0);
    let told = bench.port.told();
    let caller = Caller::Agent { id: id("scout"), generation: generation(2) };
    assert_eq!(told.requests[0].0, caller);
    for (token, body, status, code) in [
        ("0123", "{}", 401, "PH0002"),
        ("", "{}", 401, "PH0002"),
        (token, "{", 400, "PH0101"),
        (token, &"x".repeat(2 << 20), 400, "PH0101"),
    ] {
        let (got, answer) = asked(socket, token, body).await;
        assert_eq!((got, answer["error"]["code"].as_str()), (status, Some(code)));
    }
    std::os::unix::fs::symlink("/dev/null", bench.dir.join("go")).unwrap();
    bench.told_lead(Kind::Idle, 1).await;
    assert_eq!(asked(socket, token, "{}").await.0, 401);
    assert!(!bench.history().contains(token) && !bench.file("logs/main/scout.log").contains(token));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_data_directory_with_a_long_path_gets_its_socket_elsewhere() {
    let temp = tempfile::tempdir().unwrap();
    let dir = temp.path().join("d".repeat(100)).join("e".repeat(100));
    std::fs::create_dir_all(&dir).unwrap();
    let bench = Bench::at(&dir, limits(), Files::real(), 1, Arc::default()).await;
    assert!(!bench.node.socket().starts_with(&dir));
    let socket = bench.node.socket().to_owned();
    assert_eq!(asked(&socket, "none", "{}").await.0, 401);
    assert!(bench.node.close(Duration::from_secs(1)).await);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn at05_a_message_that_comes_again_and_again_is_injected_once() {
    let temp = tempfile::tempdir().unwrap();
    let chosen =
        || Draft { id: DraftId::Chosen(MessageId::derived(&["once"])), ..draft(Kind::Message, "once") };
    for incarnation in 1..=3 {
        let bench = Bench::at(temp.path(), limits(), Files::real(), incarnation, Arc::default()).await;
        bench.scout("jq -r '.messages[].body' >> seen").await;
        let first = bench.node.post().send(chosen()).unwrap();
        assert_eq!(first.duplicate, incarnation > 1);
        bench.appears("seen").await;
        for _ in 0..3 {
            assert!(bench.node.post().send(chosen()).unwrap().duplicate);
            assert!(bench.node.post().deliver(&first.sealed).unwrap().duplicate);
        }
        // A message after it shows that nothing of it is still to come.
        bench.send(&format!("after {incarnation}"));
        bench.told_lead(Kind::Idle, 1).await;
        assert!(bench.node.close(Duration::from_secs(5)).await);
    }
    let seen = std::fs::read_to_string(temp.path().join("seen")).unwrap();
    assert_eq!(seen.lines().filter(|line| *line == "once").count(), 1, "{seen}");
    let history = std::fs::read_to_string(temp.path().join("history/main/scout.1.2.jsonl")).unwrap();
    assert_eq!(history.matches(r#""body":"once""#).count(), 1);
}

fn schedule(missed: Missed, through: &str) -> Schedule {
    Schedule {
        id: "nightly".parse().unwrap(),
        team: team(),
        cron: "0 0 * * *".to_owned(),
        to: name("scout"),
        message: "tidy up".to_owned(),
        missed,
        birth: generation(20),
        through: through.parse().unwrap(),
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_missed_tick_is_sent_once_also_across_restarts() {
    let temp = tempfile::tempdir().unwrap();
    for incarnation in 1..=2 {
        let bench = Bench::at(temp.path(), limits(), Files::real(), incarnation, Arc::default()).await;
        bench.node.set_schedules(vec![schedule(Missed::Once, "2026-01-01T00:00:00Z")]);
        let ticked = |told: &Told| told.events.iter().any(|what| matches!(what, What::ScheduleTicked { .. }));
        bench.port.until("a tick", ticked).await;
        assert_eq!(bench.node.mailboxes().get(&id("scout")).unwrap().counts().unwrap().ready, 1);
        assert!(bench.node.close(Duration::from_secs(5)).await);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn at15_a_restart_goes_on_with_backlog_standing_and_history() {
    let temp = tempfile::tempdir().unwrap();
    let bench = Bench::at(temp.path(), limits(), Files::real(), 1, Arc::default()).await;
    bench.scout("jq -r '.messages[].body'").await;
    bench.send("first");
    bench.told_lead(Kind::Idle, 1).await;
    bench.command(Kind::Stop, 5, false);
    bench.states("stopped", &[AgentState::Stopped]).await;
    let stopped = now();
    bench.send_from_other("held");
    assert!(bench.node.close(Duration::from_secs(5)).await);
    drop(bench);

    let bench = Bench::at(temp.path(), limits(), Files::real(), 2, Arc::default()).await;
    let mut setup = bench.setup("jq -r '.turn, .messages[].body'", Standing::Stopped);
    (setup.command, setup.since) = (generation(5), stopped);
    bench.node.ensure_agent(setup).await.unwrap();
    bench.states("still stopped", &[AgentState::Stopped]).await;
    // What the lead had got and not read is there, and nothing was told again.
    assert_eq!(bench.inbox(), [(Kind::Idle, "first".to_owned())]);
    bench.command(Kind::Resume, 6, false);
    bench.told_lead(Kind::Idle, 1).await;
    assert_eq!(bench.inbox(), [(Kind::Idle, "2\nheld".to_owned())]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_later_agent_of_the_same_name_starts_empty() {
    let bench = Bench::new(limits()).await;
    bench.scout("sleep 600").await;
    bench.send("for the first");
    bench.states("running", &[AgentState::Running]).await;
    bench.node.remove_agent(&id("scout")).await.unwrap();
    assert!(bench.node.mailboxes().get(&id("scout")).is_err());
    let mut setup = bench.setup("jq -r '.messages[].body'", Standing::Active);
    (setup.birth, setup.generation) = (generation(30), generation(30));
    let members = [("lead", 1), ("scout", 30)].map(|(agent, birth)| (name(agent), residence("here", birth)));
    bench.directory.set_team(team(), members.into());
    let mailbox = bench.node.ensure_agent(setup).await.unwrap();
    assert_eq!(mailbox.counts().unwrap().ready, 0);
    bench.send("for the second");
    bench.told_lead(Kind::Idle, 1).await;
    assert_eq!(bench.inbox(), [(Kind::Idle, "for the second".to_owned())]);
    assert_eq!(std::fs::read_dir(bench.dir.join("attic/main")).unwrap().count(), 1);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_file_that_any_program_drops_becomes_a_turn_as_external() {
    let bench = Bench::new(limits()).await;
    let mailbox = bench.scout("jq -r '.messages[] | \"\\(.from): \\(.body)\"'").await;
    let sealed = bench.node.post().prepare(draft(Kind::Stop, "x")).unwrap();
    let mut envelope = sealed.envelope;
    envelope.id = MessageId::derived(&["dropped"]);
    envelope.lane = None;
    envelope.created_at = Stamp::default();
    let dropped = bench.dir.join("dropped");
    std::fs::write(&dropped, serde_json::to_vec(&envelope).unwrap()).unwrap();
    std::fs::rename(&dropped, mailbox.dir().join("ready/dropped.json")).unwrap();
    bench.told_lead(Kind::Idle, 1).await;
    assert_eq!(bench.inbox(), [(Kind::Idle, "external: x".to_owned())]);
    // A forged stop stops nobody.
    bench.port.until("idle", |told| told.states.last() == Some(&AgentState::Idle)).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_command_that_was_given_before_this_start_does_not_hold_its_own_word_back() {
    let bench = Bench::new(limits()).await;
    bench.port.with(|told| told.commanded = generation(50));
    let mut setup = bench.setup("exit 1", Standing::Active);
    setup.command = generation(50);
    bench.node.ensure_agent(setup).await.unwrap();
    bench.send("go");
    let told = bench.port.until("standing", |told| !told.standings.is_empty()).await;
    assert_eq!(told.standings, [Standing::Failed]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_shutdown_request_that_waited_for_a_start_is_asked() {
    let bench = Bench::new(limits()).await;
    bench.command(Kind::ShutdownRequest, 50, false);
    let mut setup = bench.setup("echo not now; exit 1", Standing::Active);
    setup.command = generation(50);
    bench.node.ensure_agent(setup).await.unwrap();
    bench.told_lead(Kind::ShutdownResponse, 1).await;
    assert!(bench.inbox()[0].1.contains("not now"));
}
