//! Two hosts in one process: mail between them over the link in this process, and over a real NATS server.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    clippy::disallowed_methods,
    reason = "tests"
)]

mod teammate_support;

use std::collections::{BTreeMap, HashSet};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use posthouse_node::blob::BlobStore;
use posthouse_node::directory::{Directory, Residence};
use posthouse_node::host_keys::open_host_key;
use posthouse_node::link::in_process::{Fate, Hub};
use posthouse_node::link::jetstream::NatsLink;
use posthouse_node::link::{HostLink, Link};
use posthouse_node::mailbox::{Batch, Incarnation, Which};
use posthouse_node::node::{Node, NodeHandle, NodeOptions};
use posthouse_node::port::AuthorityPort;
use posthouse_node::post::Draft;
use posthouse_shared::clock::SystemClock;
use posthouse_shared::codes::Code;
use posthouse_shared::durable::Files;
use posthouse_shared::identity::{HostIdentity, HostKey, NodeKey};
use posthouse_shared::limits::Limits;
use posthouse_shared::message::{Kind, Vouched};
use posthouse_shared::name::HostName;
use posthouse_shared::wire::event::What;
use posthouse_shared::wire::replies::SendState;
use teammate_support::*;

const HOSTS: [(&str, u64); 2] = [("alpha", 11), ("beta", 12)];

fn host(name: &str) -> HostName {
    HostName::new(name).unwrap()
}

struct Host {
    node: NodeHandle,
    port: Arc<FakePort>,
}

/// The lead lives on alpha, scout on beta.
async fn start(data: &Path, at: &str, incarnation: u64, link: Arc<dyn Link>) -> Host {
    start_with(data, at, incarnation, link, None).await
}

async fn start_with(
    data: &Path,
    at: &str,
    incarnation: u64,
    link: Arc<dyn Link>,
    blob_store: Option<BlobStore>,
) -> Host {
    let directory = Directory::default();
    let home = |home: &str, birth| Residence { host: host(home), ..residence(home, birth) };
    let members = [(name("lead"), home("alpha", 1)), (name("scout"), home("beta", 2))];
    directory.set_team(team(), members.into());
    let mut keys: BTreeMap<&str, HostKey> = BTreeMap::new();
    for (other, index) in HOSTS {
        std::fs::create_dir_all(data.join(other)).unwrap();
        let key = open_host_key(&Files::real(), &data.join(other)).unwrap();
        directory.hosts().set(host(other), HostIdentity { generation: generation(index), key: key.public() });
        keys.insert(other, key);
    }
    let port = Arc::<FakePort>::default();
    let index = HOSTS.iter().find(|(other, _)| *other == at).unwrap().1;
    let link = HostLink { link, key: keys[at].clone(), generation: generation(index) };
    let node = Node::start(NodeOptions {
        data: data.join(at),
        temp: std::env::temp_dir(),
        files: Files::real(),
        key: NodeKey::from_bytes([7; NodeKey::BYTES]),
        limits: Arc::new(Limits::default()),
        clock: Arc::new(SystemClock),
        host: host(at),
        incarnation: Incarnation(incarnation),
        bin_dir: PathBuf::from("/nonexistent"),
        environment: Vec::new(),
        directory,
        port: Arc::clone(&port) as Arc<dyn AuthorityPort>,
        link: Some(link),
        blob_store,
    })
    .await
    .unwrap();
    let (agent, birth) = if at == "alpha" { ("lead", 1) } else { ("scout", 2) };
    node.mailboxes().create(&id(agent), generation(birth)).unwrap();
    Host { node, port }
}

impl Host {
    fn send(&self, from: &str, to: &str, body: &str) -> SendState {
        let draft = Draft { from: id(from), to: name(to), ..draft(Kind::Message, body) };
        self.node.post().send(draft).unwrap().state
    }

    async fn stored(&self, n: usize) {
        let stored = move |told: &Told| {
            let ids = told.events.iter().filter_map(|what| match what {
                What::MessageStored { id, .. } => Some(*id),
                _ => None,
            });
            ids.collect::<HashSet<_>>().len() >= n
        };
        self.port.until("stored", stored).await;
    }

    async fn drained(&self) {
        let outbox = self.node.relay().unwrap().outbox();
        let mut changes = outbox.changes();
        let all = async {
            while outbox.counts().unstored + outbox.counts().undone > 0 {
                changes.changed().await.unwrap();
            }
        };
        tokio::time::timeout(Duration::from_secs(40), all).await.expect("outbox drained");
    }

    fn take(&self, agent: &str) -> Vec<String> {
        let mailbox = self.node.mailboxes().get(&id(agent)).unwrap();
        let all = Batch { messages_max: 10_000, bytes_max: u64::MAX, only: Which::All };
        let claimed = mailbox.claim(all).unwrap();
        assert!(claimed.iter().all(|one| one.vouched == Vouched::Host));
        mailbox.ack(&claimed.iter().map(|one| one.lease).collect::<Vec<_>>()).unwrap();
        claimed.iter().map(|one| one.message.envelope.body.clone().unwrap()).collect()
    }
}

fn numbered(n: usize) -> Vec<String> {
    (0..n).map(|i| i.to_string()).collect()
}

/// Mail there and back, a restart of both in between, and nothing left in the outboxes.
async fn there_and_back(alpha_link: Arc<dyn Link>, beta_link: Arc<dyn Link>) {
    let temp = tempfile::tempdir().unwrap();
    let alpha = start(temp.path(), "alpha", 1, Arc::clone(&alpha_link)).await;
    for body in numbered(100) {
        assert_eq!(alpha.send("lead", "scout", &body), SendState::Accepted);
    }
    // Beta was not there yet, and alpha starts anew.
    assert!(alpha.node.close(Duration::from_secs(5)).await);
    drop(alpha);
    let beta = start(temp.path(), "beta", 1, Arc::clone(&beta_link)).await;
    let alpha = start(temp.path(), "alpha", 2, alpha_link).await;
    beta.stored(100).await;
    assert!(beta.node.close(Duration::from_secs(5)).await);
    drop(beta);
    let beta = start(temp.path(), "beta", 2, beta_link).await;
    assert_eq!(beta.take("scout"), numbered(100));
    beta.send("scout", "lead", "answer");
    alpha.stored(1).await;
    assert_eq!(alpha.take("lead"), ["answer"]);
    alpha.drained().await;
    beta.drained().await;
    assert!(beta.take("scout").is_empty());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn mail_goes_there_and_back_over_restarts_of_both_in_process() {
    let hub = Arc::new(Hub::default());
    there_and_back(Arc::clone(&hub) as Arc<dyn Link>, hub).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn at05_parcels_lost_repeated_and_refused_are_one_message_each() {
    let temp = tempfile::tempdir().unwrap();
    let hub = Hub::default();
    let mut count = 0;
    hub.fates(move |_| {
        count += 1;
        [Fate::Twice, Fate::Lost, Fate::Unknown, Fate::Arrives, Fate::Refused][count % 5]
    });
    let link: Arc<dyn Link> = Arc::new(hub.clone());
    let alpha = start(temp.path(), "alpha", 1, Arc::clone(&link)).await;
    let beta = start(temp.path(), "beta", 1, link).await;
    numbered(50).iter().for_each(|body| assert_eq!(alpha.send("lead", "scout", body), SendState::Accepted));
    beta.stored(50).await;
    // All that is on its way is forgotten, and words are lost for a while.
    hub.lose_notes(true);
    let first: HashSet<String> = beta.take("scout").into_iter().collect();
    hub.wipe();
    hub.lose_notes(false);
    alpha.drained().await;
    assert_eq!(first, numbered(50).into_iter().collect());
    assert!(beta.take("scout").is_empty());
}

/// A real server with its data in a directory of its own; ended with the test.
struct Nats {
    child: std::process::Child,
    url: String,
    _dir: tempfile::TempDir,
}

impl Drop for Nats {
    fn drop(&mut self) {
        let _gone = self.child.kill();
        let _reaped = self.child.wait();
    }
}

fn server() -> Option<PathBuf> {
    let named = std::env::var_os("POSTHOUSE_NATS_SERVER").map(PathBuf::from);
    let path = std::env::var_os("PATH").unwrap_or_default();
    let on_path = std::env::split_paths(&path).map(|dir| dir.join("nats-server")).find(|file| file.is_file());
    let tools = Path::new(env!("CARGO_MANIFEST_DIR")).join("../target/tools/nats-server");
    let found = named.or(on_path).or_else(|| tools.is_file().then_some(tools));
    if found.is_none() {
        eprintln!("skipped: nats-server is missing (POSTHOUSE_NATS_SERVER, PATH, target/tools)");
        assert!(std::env::var("POSTHOUSE_TEST_STRICT").as_deref() != Ok("1"), "nothing may be skipped here");
    }
    found
}

impl Nats {
    fn start() -> Option<Self> {
        let server = server()?;
        let dir = tempfile::tempdir().unwrap();
        let port = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
        let child = std::process::Command::new(server)
            .args(["-a", "127.0.0.1", "-p", &port.to_string(), "-js", "-sd"])
            .arg(dir.path())
            .stdout(std::process::Stdio::null())
            .stderr(std::process::Stdio::null())
            .spawn()
            .unwrap();
        Some(Self { child, url: format!("nats://127.0.0.1:{port}"), _dir: dir })
    }

    async fn link(&self, name: &str) -> NatsLink {
        let link = NatsLink::connect(&self.url, name).await.unwrap();
        link.check_server(Duration::from_secs(20)).await.unwrap();
        link
    }
}

async fn prepare(link: &NatsLink) {
    link.prepare_stream(1).await.unwrap();
    for (name, index) in HOSTS {
        link.prepare_consumer(&host(name), generation(index)).await.unwrap();
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn mail_goes_there_and_back_over_restarts_of_both_over_nats() {
    let Some(nats) = Nats::start() else { return };
    let (alpha, beta) = (nats.link("alpha").await, nats.link("beta").await);
    prepare(&alpha).await;
    there_and_back(Arc::new(alpha), Arc::new(beta)).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_stream_that_is_deleted_in_mid_flight_loses_nothing() {
    let Some(nats) = Nats::start() else { return };
    let temp = tempfile::tempdir().unwrap();
    let link = nats.link("alpha").await;
    prepare(&link).await;
    let alpha = start(temp.path(), "alpha", 1, Arc::new(link.clone())).await;
    for body in numbered(20) {
        alpha.send("lead", "scout", &body);
    }
    // The bus has taken all, the other host has none of it.
    let waiting = async {
        loop {
            let stream = link.context().get_stream("PH_RELAY").await.unwrap();
            if stream.cached_info().state.messages == 20 {
                return;
            }
        }
    };
    tokio::time::timeout(Duration::from_secs(20), waiting).await.unwrap();
    link.context().delete_stream("PH_RELAY").await.unwrap();
    let beta = start(temp.path(), "beta", 1, Arc::new(nats.link("beta").await)).await;
    prepare(&link).await;
    beta.stored(20).await;
    let taken: HashSet<String> = beta.take("scout").into_iter().collect();
    assert_eq!(taken, numbered(20).into_iter().collect());
    alpha.drained().await;
}

fn share(temp: &Path) -> BlobStore {
    let dir = temp.join("share");
    std::fs::create_dir_all(&dir).unwrap();
    BlobStore::open(&format!("file://{}", dir.display()), &[]).unwrap()
}

/// Larger than an envelope, different at every place, and not all of one byte a character.
fn long_body(lines: usize) -> String {
    (0..lines).map(|n| format!("line {n} of a long body, with \"quotes\" and ümlauts\n")).collect()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn at06_a_body_larger_than_an_envelope_arrives_whole_and_is_there_before_stored_is_said() {
    let temp = tempfile::tempdir().unwrap();
    let hub = Hub::default();
    let mut count = 0;
    hub.fates(move |_| {
        count += 1;
        [Fate::Twice, Fate::Lost, Fate::Arrives][count % 3]
    });
    let link: Arc<dyn Link> = Arc::new(hub);
    let store = share(temp.path());
    let alpha = start_with(temp.path(), "alpha", 1, Arc::clone(&link), Some(store.clone())).await;
    let beta = start_with(temp.path(), "beta", 1, link, Some(store)).await;
    let bodies = [long_body(20_000), "short".to_owned(), long_body(60_000)];
    for body in &bodies {
        assert_eq!(alpha.send("lead", "scout", body), SendState::Accepted);
    }
    beta.stored(3).await;
    // What was said to be stored needs the store no more.
    std::fs::remove_dir_all(temp.path().join("share")).unwrap();
    let mailbox = beta.node.mailboxes().get(&id("scout")).unwrap();
    let all = Batch { messages_max: 10, bytes_max: u64::MAX, only: Which::All };
    let claimed = mailbox.claim(all).unwrap();
    let read: Vec<String> = claimed
        .iter()
        .map(|one| {
            assert!(one.message.bytes.len() < 1_000);
            match &one.message.envelope.blob {
                Some(blob) => beta.node.blobs().text(blob, usize::MAX).unwrap(),
                None => one.message.envelope.body.clone().unwrap(),
            }
        })
        .collect();
    assert!(read == bodies, "bodies differ");
    mailbox.ack(&claimed.iter().map(|one| one.lease).collect::<Vec<_>>()).unwrap();
    alpha.drained().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn at06_without_a_shared_store_a_long_body_is_refused_and_nothing_is_cut_or_left() {
    let temp = tempfile::tempdir().unwrap();
    let hub: Arc<dyn Link> = Arc::new(Hub::default());
    let alpha = start(temp.path(), "alpha", 1, Arc::clone(&hub)).await;
    let beta = start(temp.path(), "beta", 1, hub).await;
    let long = Draft { from: id("lead"), to: name("scout"), ..draft(Kind::Message, &long_body(20_000)) };
    let refusal = alpha.node.post().send(long).unwrap_err();
    assert_eq!((refusal.code, refusal.effect.as_deref()), (Code::NoBlobStore, Some("nothing was sent")));
    let counts = alpha.node.relay().unwrap().outbox().counts();
    assert_eq!((counts.unstored, counts.undone), (0, 0));
    assert!(!temp.path().join("alpha/blobs").exists());
    // The lane goes on.
    alpha.send("lead", "scout", "next");
    beta.stored(1).await;
    assert_eq!(beta.take("scout"), ["next"]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn at06_a_body_that_the_store_has_lost_holds_its_message_back_and_stalls_no_other() {
    let temp = tempfile::tempdir().unwrap();
    let hub: Arc<dyn Link> = Arc::new(Hub::default());
    let store = share(temp.path());
    let alpha = start_with(temp.path(), "alpha", 1, Arc::clone(&hub), Some(store.clone())).await;
    let body = long_body(20_000);
    alpha.send("lead", "scout", &body);
    let blobs = temp.path().join("share/blobs");
    let lost = std::fs::read_dir(&blobs).unwrap().next().unwrap().unwrap().path();
    std::fs::remove_file(&lost).unwrap();
    let beta = start_with(temp.path(), "beta", 1, hub, Some(store)).await;
    // Control has a lane of its own, which is never held.
    let urgent =
        Draft { control: true, from: id("lead"), to: name("scout"), ..draft(Kind::Message, "urgent") };
    alpha.node.post().send(urgent).unwrap();
    beta.stored(1).await;
    assert_eq!(beta.take("scout"), ["urgent"]);
    std::fs::write(&lost, &body).unwrap();
    beta.stored(2).await;
    let mailbox = beta.node.mailboxes().get(&id("scout")).unwrap();
    let peeked = mailbox.peek(1).unwrap();
    let blob = peeked[0].message.envelope.blob.clone().unwrap();
    assert!(beta.node.blobs().text(&blob, usize::MAX).unwrap() == body);
}
