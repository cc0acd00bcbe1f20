//! Hosts that are killed at each durable step of the relay, over a real NATS server. The one that dies runs in a child
//! process, this test binary again with a variable set; the other one lives on here.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    clippy::disallowed_methods,
    reason = "tests"
)]

mod relay_support;
mod teammate_support;

use std::collections::BTreeSet;
use std::io::Write as _;
use std::os::unix::process::ExitStatusExt;
use std::path::Path;
use std::process::{Command, ExitStatus, Stdio};
use std::sync::Arc;
use std::time::Duration;

use posthouse_node::post::{Draft, DraftId};
use posthouse_shared::durable::{CrashPoints, Files, RealDisk};
use posthouse_shared::message::Kind;
use posthouse_shared::name::MessageId;
use relay_support::*;
use teammate_support::{draft, id, name};

const DIR: &str = "POSTHOUSE_TEST_RELAY_DIR";
const ROLE: &str = "POSTHOUSE_TEST_RELAY_ROLE";
const URL: &str = "POSTHOUSE_TEST_RELAY_URL";
const SPEC: &str = "POSTHOUSE_TEST_RELAY_CRASH";
const INCARNATION: &str = "POSTHOUSE_TEST_RELAY_INCARNATION";
const MESSAGES: usize = 12;
const LONG: Duration = Duration::from_secs(60);

async fn link(url: &str, name: &str) -> posthouse_node::link::jetstream::NatsLink {
    let link = posthouse_node::link::jetstream::NatsLink::connect(url, name).await.unwrap();
    link.check_server(Duration::from_secs(20)).await.unwrap();
    link
}

/// Sends all, each under an id of its own choice, and stays until all is done.
async fn sender(alpha: &Host) {
    for body in numbered(MESSAGES) {
        let id_of = DraftId::Chosen(MessageId::derived(&["relay crash", &body]));
        let sent = Draft { from: id("lead"), to: name("scout"), id: id_of, ..draft(Kind::Message, &body) };
        let post = alpha.node.post().clone();
        tokio::task::spawn_blocking(move || post.send(sent)).await.unwrap().unwrap();
    }
    alpha.drained().await;
}

/// Reads all into a ledger, each entry synced before its acknowledgement, until it has everything.
async fn reader(beta: &Host, ledger: &Path) {
    let mailbox = beta.node.mailboxes().get(&id("scout")).unwrap();
    let orphans: Vec<_> = mailbox.orphans().unwrap().iter().map(|one| one.lease).collect();
    mailbox.release(&orphans, posthouse_node::mailbox::Release::Interrupted).unwrap();
    let mut changes = mailbox.changes();
    let all = async {
        loop {
            let one = posthouse_node::mailbox::Batch::ONE;
            for claimed in mailbox.claim(one).unwrap() {
                let mut file = std::fs::File::options().create(true).append(true).open(ledger).unwrap();
                let body = claimed.message.envelope.body.clone().unwrap();
                writeln!(file, "{body} {}", claimed.attempt).unwrap();
                file.sync_all().unwrap();
                mailbox.ack(&[claimed.lease]).unwrap();
            }
            if mailbox.counts().unwrap().ready == 0 {
                if mailbox.counts().unwrap().done >= MESSAGES {
                    return;
                }
                changes.changed().await.unwrap();
            }
        }
    };
    tokio::time::timeout(LONG, all).await.expect("everything is read");
}

/// Not a test of its own: what the child process runs.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn child_process() {
    let Some(dir) = std::env::var_os(DIR) else { return };
    let (role, url) = (std::env::var(ROLE).unwrap(), std::env::var(URL).unwrap());
    let crash = std::env::var(SPEC).map_or(CrashPoints::none(), |spec| CrashPoints::abort_at(&spec));
    let files = Files::new(Arc::new(RealDisk), crash);
    let incarnation = std::env::var(INCARNATION).unwrap().parse().unwrap();
    let link = Arc::new(link(&url, &role).await);
    let host = start_on(Path::new(&dir), &role, incarnation, link, files).await;
    if role == "alpha" {
        sender(&host).await;
    } else {
        reader(&host, &Path::new(&dir).join("ledger")).await;
        // Its last words may be lost: it stays until it was asked.
        tokio::time::sleep(LONG).await;
    }
}

fn child(dir: &Path, url: &str, role: &str, incarnation: u64, spec: Option<&str>) -> Command {
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args(["--exact", "child_process", "--nocapture"]).env(DIR, dir).env(ROLE, role).env(URL, url);
    command.env(INCARNATION, incarnation.to_string()).stdout(Stdio::null()).stderr(Stdio::null());
    if let Some(spec) = spec {
        command.env(SPEC, spec);
    }
    command
}

async fn dies(mut command: Command) -> ExitStatus {
    tokio::task::spawn_blocking(move || command.status().unwrap()).await.unwrap()
}

/// In the order of first appearance; each again only as another attempt.
fn check(dir: &Path, point: &str) {
    let text = std::fs::read_to_string(dir.join("ledger")).unwrap();
    let (mut seen, mut order) = (BTreeSet::new(), Vec::new());
    for line in text.lines() {
        let (body, _attempt) = line.split_once(' ').unwrap();
        if seen.insert(body.to_owned()) {
            order.push(body.to_owned());
        }
    }
    assert_eq!(order, numbered(MESSAGES), "{point}");
    let twice = text.lines().count() - MESSAGES;
    assert!(twice <= 1, "{point}: one turn may have been cut short\n{text}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_sender_that_dies_at_any_step_of_the_outbox_loses_nothing_and_sends_nothing_twice() {
    let Some(nats) = Nats::start() else { return };
    prepare(&nats.link("coordinator").await).await;
    for point in [
        "outbox.put.begin:4",
        "place.written:4",
        "place.renamed:4",
        "outbox.put.synced:4",
        "outbox.removed:3",
    ] {
        let dir = tempfile::tempdir().unwrap();
        let beta = start(dir.path(), "beta", 1, Arc::new(nats.link("beta").await)).await;
        let ledger = dir.path().join("ledger");
        let twice = async {
            let died = dies(child(dir.path(), &nats.url, "alpha", 1, Some(point))).await;
            assert_eq!(died.signal(), Some(6), "{point}");
            let ended = dies(child(dir.path(), &nats.url, "alpha", 2, None)).await;
            assert!(ended.success(), "{point}");
        };
        tokio::join!(twice, reader(&beta, &ledger));
        check(dir.path(), point);
        assert!(beta.node.close(Duration::from_secs(5)).await);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn at07_a_receiver_killed_between_delivery_and_sync_gets_it_again_and_a_new_incarnation_goes_on() {
    let Some(nats) = Nats::start() else { return };
    prepare(&nats.link("coordinator").await).await;
    for point in [
        "place.begin:2",
        "place.written:2",
        "place.renamed:2",
        "place.synced:2",
        "mailbox.deliver.indexed:2",
        "relay.stored",
        "mailbox.ack.renamed:2",
        "mailbox.ack.synced:2",
    ] {
        let (dir, begun) = (tempfile::tempdir().unwrap(), std::time::Instant::now());
        let alpha = start(dir.path(), "alpha", 1, Arc::new(nats.link("alpha").await)).await;
        let dying = dies(child(dir.path(), &nats.url, "beta", 1, Some(point)));
        let sending = sender(&alpha);
        tokio::pin!(sending);
        let died = tokio::select! {
            died = dying => died,
            () = &mut sending => panic!("{point}: beta never died"),
        };
        assert_eq!(died.signal(), Some(6), "{point}");
        let mut beta = child(dir.path(), &nats.url, "beta", 2, None).spawn().unwrap();
        tokio::time::timeout(LONG, sending).await.expect("all is done");
        beta.kill().unwrap();
        beta.wait().unwrap();
        check(dir.path(), point);
        assert!(alpha.node.close(Duration::from_secs(5)).await);
        assert_eq!(alpha.node.on_the_way().len(), 0);
        eprintln!("{point}: {:?}", begun.elapsed());
    }
}
