//! Hosts in one process with a link between them, and a real NATS server.
#![allow(dead_code, reason = "each test file uses its part")]

use std::collections::{BTreeMap, HashSet};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use crate::teammate_support::*;
use posthouse_node::blob::BlobStore;
use posthouse_node::directory::{Directory, Residence};
use posthouse_node::host_keys::open_host_key;
use posthouse_node::link::jetstream::NatsLink;
use posthouse_node::link::{HostLink, Link};
use posthouse_node::mailbox::{Batch, Incarnation, Which};
use posthouse_node::node::{Node, NodeHandle, NodeOptions};
use posthouse_node::port::AuthorityPort;
use posthouse_node::post::Draft;
use posthouse_shared::clock::SystemClock;
use posthouse_shared::durable::Files;
use posthouse_shared::identity::{HostIdentity, HostKey, NodeKey};
use posthouse_shared::limits::Limits;
use posthouse_shared::message::{Kind, Vouched};
use posthouse_shared::name::HostName;
use posthouse_shared::wire::event::What;
use posthouse_shared::wire::replies::SendState;

pub const HOSTS: [(&str, u64); 3] = [("alpha", 11), ("beta", 12), ("gamma", 13)];

pub fn host(name: &str) -> HostName {
    HostName::new(name).unwrap()
}

pub struct Host {
    pub node: NodeHandle,
    pub port: Arc<FakePort>,
}

/// The lead lives on alpha, scout on beta.
pub async fn start(data: &Path, at: &str, incarnation: u64, link: Arc<dyn Link>) -> Host {
    start_with(data, at, incarnation, link, None).await
}

pub async fn start_with(
    data: &Path,
    at: &str,
    incarnation: u64,
    link: Arc<dyn Link>,
    blob_store: Option<BlobStore>,
) -> Host {
    start_all(data, at, incarnation, link, Files::real(), blob_store).await
}

pub fn home(home: &str, birth: u64) -> Residence {
    Residence { host: host(home), ..residence(home, birth) }
}

pub async fn start_on(data: &Path, at: &str, incarnation: u64, link: Arc<dyn Link>, files: Files) -> Host {
    start_all(data, at, incarnation, link, files, None).await
}

async fn start_all(
    data: &Path,
    at: &str,
    incarnation: u64,
    link: Arc<dyn Link>,
    files: Files,
    blob_store: Option<BlobStore>,
) -> Host {
    let directory = Directory::default();
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
        files,
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
    let own = [("alpha", "lead", 1), ("beta", "scout", 2)].into_iter().find(|(host, ..)| *host == at);
    if let Some((_, agent, birth)) = own {
        node.mailboxes().create(&id(agent), generation(birth)).unwrap();
    }
    Host { node, port }
}

impl Host {
    pub fn send(&self, from: &str, to: &str, body: &str) -> SendState {
        let draft = Draft { from: id(from), to: name(to), ..draft(Kind::Message, body) };
        self.node.post().send(draft).unwrap().state
    }

    pub async fn stored(&self, n: usize) {
        let stored = move |told: &Told| {
            let ids = told.events.iter().filter_map(|what| match what {
                What::MessageStored { id, .. } => Some(*id),
                _ => None,
            });
            ids.collect::<HashSet<_>>().len() >= n
        };
        self.port.until("stored", stored).await;
    }

    pub async fn drained(&self) {
        let outbox = self.node.relay().unwrap().outbox();
        let mut changes = outbox.changes();
        let all = async {
            while outbox.counts().unstored + outbox.counts().undone > 0 {
                changes.changed().await.unwrap();
            }
        };
        tokio::time::timeout(Duration::from_secs(40), all)
            .await
            .unwrap_or_else(|_| panic!("outbox drained: {:?}", outbox.by_host()));
    }

    pub fn take(&self, agent: &str) -> Vec<String> {
        let mailbox = self.node.mailboxes().get(&id(agent)).unwrap();
        let all = Batch { messages_max: 10_000, bytes_max: u64::MAX, only: Which::All };
        let claimed = mailbox.claim(all).unwrap();
        assert!(claimed.iter().all(|one| one.vouched != Vouched::Nobody));
        mailbox.ack(&claimed.iter().map(|one| one.lease).collect::<Vec<_>>()).unwrap();
        claimed.iter().map(|one| one.message.envelope.body.clone().unwrap()).collect()
    }
}

pub fn numbered(n: usize) -> Vec<String> {
    (0..n).map(|i| i.to_string()).collect()
}

/// A real server with its data in a directory of its own; ended with the test.
pub struct Nats {
    child: std::process::Child,
    server: PathBuf,
    port: u16,
    pub url: String,
    dir: tempfile::TempDir,
}

impl Drop for Nats {
    fn drop(&mut self) {
        let _gone = self.child.kill();
        let _reaped = self.child.wait();
    }
}

pub fn server() -> Option<PathBuf> {
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
    pub fn start() -> Option<Self> {
        let server = server()?;
        let dir = tempfile::tempdir().unwrap();
        let port = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
        let child = spawn(&server, port, dir.path());
        Some(Self { child, server, port, url: format!("nats://127.0.0.1:{port}"), dir })
    }

    /// Ends the server at once.
    pub fn kill(&mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }

    /// Starts it again on the same port, over what is in its directory.
    pub fn again(&mut self) {
        self.child = spawn(&self.server, self.port, self.dir.path());
    }

    /// Its directory: what JetStream keeps.
    pub fn dir(&self) -> &Path {
        self.dir.path()
    }

    pub async fn link(&self, name: &str) -> NatsLink {
        let link = NatsLink::connect(&self.url, name).await.unwrap();
        link.check_server(Duration::from_secs(20)).await.unwrap();
        link
    }
}

pub async fn prepare(link: &NatsLink) {
    link.prepare_stream(1).await.unwrap();
    for (name, index) in HOSTS {
        link.prepare_consumer(&host(name), generation(index)).await.unwrap();
    }
}

pub fn spawn(server: &Path, port: u16, dir: &Path) -> std::process::Child {
    std::process::Command::new(server)
        .args(["-a", "127.0.0.1", "-p", &port.to_string(), "-js", "-sd"])
        .arg(dir)
        .stdout(std::process::Stdio::null())
        .stderr(std::process::Stdio::null())
        .spawn()
        .unwrap()
}
