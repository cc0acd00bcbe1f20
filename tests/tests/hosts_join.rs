//! Hosts join a coordinator over a real NATS server, and nobody else does: wrong and used tokens, another
//! host's name, copies of a data directory are refused with what to do.

#![allow(
    clippy::unwrap_used,
    clippy::panic,
    clippy::indexing_slicing,
    clippy::disallowed_methods,
    reason = "a test"
)]

use std::collections::BTreeMap;
use std::path::Path;
use std::time::Duration;

use posthouse_coordinator::authority::{BoardCommand, Command, State};
use posthouse_coordinator::start::{Running, StartOptions};
use posthouse_node::bus::daemon::{Daemon, DaemonOptions};
use posthouse_shared::codes::Code;
use posthouse_shared::identity::sha256_hex;
use posthouse_shared::limits::Limits;
use posthouse_shared::name::HostName;
use posthouse_shared::refusal::Refusal;
use posthouse_shared::task::{TaskSpec, TaskStatus};
use posthouse_shared::wire::Caller;
use posthouse_tests::nats::Nats;

const GRACE: Duration = Duration::from_secs(5);
const SOON: Duration = Duration::from_secs(20);

async fn alpha(nats: &Nats, dir: &Path) -> Running {
    Running::start(StartOptions {
        data: dir.join("alpha"),
        name: Some(HostName::new("alpha").unwrap()),
        listen: "127.0.0.1:0".to_owned(),
        limits: Limits::default(),
        settings: Vec::new(),
        blob_store: None,
        environment: std::env::vars_os().collect(),
        nats: Some(nats.url().to_owned()),
        labels: BTreeMap::new(),
        crash_at: None,
    })
    .await
    .unwrap()
}

async fn host(nats: &Nats, data: &Path, name: &str, join: Option<&str>) -> Result<Daemon, Refusal> {
    let starting = Daemon::start(DaemonOptions {
        data: data.to_owned(),
        name: Some(HostName::new(name).unwrap()),
        nats: nats.url().to_owned(),
        join: join.map(str::to_owned),
        labels: BTreeMap::new(),
        limits: Limits::default(),
        blob_store: None,
        environment: std::env::vars_os().collect(),
        crash_at: None,
    });
    tokio::time::timeout(SOON, starting).await.unwrap()
}

async fn token(alpha: &Running, token: &str, replace: Option<&str>) {
    let hash = sha256_hex(token.as_bytes());
    decide(alpha, Command::HostToken { hash, replace: replace.map(str::to_owned) }).await;
}

async fn decide(alpha: &Running, command: Command) {
    alpha.authority().decide(Caller::Operator, command, None).await.unwrap();
}

async fn until(alpha: &Running, is_so: impl Fn(&State) -> bool) {
    let mut changes = alpha.authority().changes();
    let waiting = changes.wait_for(|state| is_so(state));
    tokio::time::timeout(SOON, waiting).await.unwrap().unwrap();
}

fn code(refused: Result<Daemon, Refusal>) -> Code {
    let Err(refusal) = refused else { panic!("it was taken in") };
    assert!(!refusal.next.is_empty(), "no next step: {refusal:?}");
    refusal.code
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_host_joins_with_a_token_once_and_is_known_by_its_key_afterwards() {
    let Some(nats) = Nats::start() else { return };
    let dir = tempfile::tempdir().unwrap();
    let alpha = alpha(&nats, dir.path()).await;
    let (beta, gamma) = (dir.path().join("beta"), dir.path().join("gamma"));

    assert_eq!(code(host(&nats, &beta, "beta", None).await), Code::Unauthorized, "no token");
    assert_eq!(code(host(&nats, &beta, "beta", Some("made up")).await), Code::Unauthorized, "wrong token");
    token(&alpha, "t1", None).await;
    let joined = host(&nats, &beta, "beta", Some("t1")).await.unwrap();
    assert_eq!(code(host(&nats, &gamma, "gamma", Some("t1")).await), Code::Unauthorized, "used token");
    // Another host's name, and the coordinator's own.
    token(&alpha, "t2", None).await;
    let thief = dir.path().join("thief");
    assert_eq!(code(host(&nats, &thief, "beta", Some("t2")).await), Code::DataForeign);
    let liar = dir.path().join("liar");
    assert_eq!(code(host(&nats, &liar, "alpha", Some("t2")).await), Code::NameTaken);

    assert!(joined.close(GRACE).await);
    // Its key is enough for the next start; its grant stays.
    let before = alpha.authority().state().hosts.get("beta").cloned().unwrap();
    let again = host(&nats, &beta, "beta", None).await.unwrap();
    let after = alpha.authority().state().hosts.get("beta").cloned().unwrap();
    assert_eq!((after.generation, after.boot), (before.generation, before.boot + 1));
    assert!(again.close(GRACE).await);

    // A blank disk under the old name takes its place with a replacement token only, and with a new grant.
    let blank = dir.path().join("blank");
    token(&alpha, "t3", Some("beta")).await;
    let replaced = host(&nats, &blank, "beta", Some("t3")).await.unwrap();
    let now = alpha.authority().state().hosts.get("beta").cloned().unwrap();
    assert!(now.generation > after.generation);
    assert!(replaced.close(GRACE).await);
    assert!(alpha.close(GRACE).await);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_old_backup_needs_to_be_adopted_and_a_copy_ends_the_first_one() {
    let Some(nats) = Nats::start() else { return };
    let dir = tempfile::tempdir().unwrap();
    let alpha = alpha(&nats, dir.path()).await;
    let beta = dir.path().join("beta");
    token(&alpha, "t1", None).await;
    assert!(host(&nats, &beta, "beta", Some("t1")).await.unwrap().close(GRACE).await);
    let backup = std::fs::read(beta.join("host.json")).unwrap();
    let copy = dir.path().join("copy");
    std::fs::create_dir(&copy).unwrap();
    let mut first = host(&nats, &beta, "beta", None).await.unwrap();
    for file in ["host.json", "host.seed", "node.key"] {
        std::fs::copy(beta.join(file), copy.join(file)).unwrap();
    }
    let second = host(&nats, &copy, "beta", None).await.unwrap();
    let refusal = tokio::time::timeout(SOON, first.refused()).await.unwrap();
    assert_eq!(refusal.code, Code::DataForeign);
    first.close(GRACE).await;
    assert!(second.close(GRACE).await);

    std::fs::write(beta.join("host.json"), backup).unwrap();
    assert_eq!(code(host(&nats, &beta, "beta", None).await), Code::DataForeign, "an old backup");
    decide(&alpha, Command::HostAdopt { host: "beta".to_owned() }).await;
    let before = alpha.authority().state().hosts.get("beta").cloned().unwrap();
    assert!(host(&nats, &beta, "beta", None).await.unwrap().close(GRACE).await);
    assert!(alpha.authority().state().hosts.get("beta").unwrap().generation > before.generation);
    assert!(alpha.close(GRACE).await);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_teammate_elsewhere_claims_a_task_and_completes_it() {
    let Some(nats) = Nats::start() else { return };
    let dir = tempfile::tempdir().unwrap();
    let alpha = alpha(&nats, dir.path()).await;
    token(&alpha, "t1", None).await;
    let beta = host(&nats, &dir.path().join("beta"), "beta", Some("t1")).await.unwrap();
    let home = HostName::new("alpha").unwrap();
    decide(&alpha, Command::TeamCreate { name: "crew".to_owned(), config: Default::default(), host: home })
        .await;
    let spec = serde_json::json!({
        "name": "scout", "cwd": dir.path(), "runner": "command", "command": ["sh", "-c", "cat >/dev/null; echo found it"],
        "prompt": "look", "self_claim": true, "host": "beta",
    });
    let spec = Box::new(serde_json::from_value(spec).unwrap());
    decide(&alpha, Command::Spawn { team: "crew".to_owned(), spec }).await;
    let spec: TaskSpec =
        serde_json::from_value(serde_json::json!({ "id": "T-1", "subject": "find" })).unwrap();
    let what = BoardCommand::Add { spec: Box::new(spec) };
    decide(&alpha, Command::Board { team: "crew".to_owned(), as_agent: None, what }).await;
    until(&alpha, |state| {
        let team = state.teams.get("crew").unwrap();
        team.board.tasks().any(|task| task.status == TaskStatus::Completed)
    })
    .await;
    let state = alpha.authority().state();
    let task = state.teams.get("crew").unwrap().board.tasks().next().unwrap().clone();
    assert_eq!(task.owner.as_ref().unwrap().as_str(), "scout");
    assert!(task.result.as_ref().unwrap().contains("found it"));
    assert!(beta.close(GRACE).await);
    assert!(alpha.close(GRACE).await);
}
