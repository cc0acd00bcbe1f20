//! A coordinator's service with its node on one data directory, in this process and without HTTP, on a disk that
//! a test can hinder.

#![allow(dead_code, missing_docs, reason = "each test binary uses a part of it")]
#![allow(clippy::unwrap_used, clippy::indexing_slicing, reason = "tests")]

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use posthouse_coordinator::authority::{self, Authority, HostStart, State};
use posthouse_coordinator::events::Events;
use posthouse_coordinator::http::Api;
use posthouse_coordinator::journal::FilesJournal;
use posthouse_coordinator::service::{Service, Setup};
use posthouse_node::directory::Directory;
use posthouse_node::mailbox::Incarnation;
use posthouse_node::node::{Node, NodeHandle, NodeOptions};
use posthouse_shared::clock::{Clock, SystemClock};
use posthouse_shared::durable::hindered::HinderedDisk;
use posthouse_shared::durable::{CrashPoints, Files};
use posthouse_shared::identity::NodeKey;
use posthouse_shared::limits::Limits;
use posthouse_shared::name::{AgentId, HostName};
use posthouse_shared::refusal::Refusal;
use posthouse_shared::supervise::Supervisor;
use posthouse_shared::team::{MemberSpec, RunnerSpec, TeamConfig};
use posthouse_shared::wire::Caller;
use posthouse_shared::wire::replies::Status;
use posthouse_shared::wire::requests::Request;
use serde_json::Value;

/// Longer than anything takes, shorter than a test may.
pub const PATIENCE: Duration = Duration::from_secs(30);

pub struct Bench {
    pub disk: HinderedDisk,
    pub service: Service,
    pub node: NodeHandle,
    pub authority: Authority,
    dir: tempfile::TempDir,
}

impl Bench {
    /// A first start, with team `main`.
    pub async fn new() -> Self {
        let dir = tempfile::tempdir().unwrap();
        let disk = HinderedDisk::default();
        let files = Files::new(Arc::new(disk.clone()), CrashPoints::none());
        let clock: Arc<dyn Clock> = Arc::new(SystemClock);
        let limits = Arc::new(Limits::default());
        let host = HostName::new("alpha").unwrap();
        let authority = Authority::open(authority::Options {
            journal: Box::new(FilesJournal::open(Files::real(), dir.path().join("journal")).unwrap()),
            adopt: false,
            snapshot_every: authority::SNAPSHOT_EVERY,
            clock: Arc::clone(&clock),
            limits: Arc::clone(&limits),
            start: HostStart {
                host: host.clone(),
                data_id: "data-1".to_owned(),
                boot: 1,
                labels: std::collections::BTreeMap::new(),
                runners: ["command".to_owned()].into(),
            },
        })
        .unwrap();
        let service = Service::new(Setup {
            authority: authority.clone(),
            files: files.clone(),
            clock: Arc::clone(&clock),
            limits: Arc::clone(&limits),
            token: "secret".to_owned(),
            status: Status {
                version: "0".to_owned(),
                host: host.clone(),
                url: String::new(),
                data: dir.path().display().to_string(),
                data_id: "data-1".to_owned(),
                boot: 1,
            },
            settings: Vec::new(),
            data: dir.path().to_owned(),
            nats: None,
            key: None,
            events: Events::new("data-1-1".to_owned(), 1, 10_000),
            supervisor: Supervisor::new(),
        });
        let node = Node::start(NodeOptions {
            data: dir.path().to_owned(),
            temp: std::env::temp_dir(),
            files,
            key: NodeKey::from_bytes([7; NodeKey::BYTES]),
            limits,
            clock,
            host,
            incarnation: Incarnation(1),
            bin_dir: PathBuf::from("/nonexistent"),
            environment: std::env::vars_os().collect(),
            directory: Directory::default(),
            port: Arc::new(service.clone()),
            link: None,
        })
        .await
        .unwrap();
        service.start(node.clone()).await.unwrap();
        let bench = Self { disk, service, node, authority, dir };
        bench.ask(bench.making()).await.unwrap();
        bench
    }

    /// The request that makes team `main`.
    pub fn making(&self) -> Request {
        Request::TeamCreate { name: "main".to_owned(), config: TeamConfig::default() }
    }

    /// Waits until the authority has decided what makes this true.
    pub async fn until(&self, holds: impl Fn(&State) -> bool) {
        let mut entries = self.authority.entries();
        let decided = async {
            while !holds(&self.authority.state()) {
                entries.recv().await.unwrap();
            }
        };
        tokio::time::timeout(PATIENCE, decided).await.unwrap();
    }

    pub async fn ask(&self, request: Request) -> Result<Value, Refusal> {
        self.service.answer(Caller::Operator, request).await
    }

    /// The same in the background.
    pub fn asking(&self, request: Request) -> tokio::task::JoinHandle<Result<Value, Refusal>> {
        let service = self.service.clone();
        let runtime = tokio::runtime::Handle::current();
        tokio::task::spawn_blocking(move || runtime.block_on(service.answer(Caller::Operator, request)))
    }

    pub async fn spawn(&self, name: &str) -> Value {
        self.ask(self.spawning(name)).await.unwrap()["agent"].clone()
    }

    /// The request that makes a teammate which answers `done`.
    pub fn spawning(&self, name: &str) -> Request {
        let command = ["sh", "-c", "cat > /dev/null; echo done"].map(str::to_owned).to_vec();
        let spec = MemberSpec {
            name: name.parse().unwrap(),
            role: None,
            model: None,
            color: None,
            cwd: self.dir.path().to_owned(),
            runner: RunnerSpec::Command { command },
            prompt: "begin".to_owned(),
            self_claim: true,
            host: None,
            labels: std::collections::BTreeMap::new(),
        };
        Request::Spawn { team: "main".to_owned(), spec }
    }

    pub async fn wait(&self, condition: &str) {
        let answer = self.ask(waiting(condition, 20_000)).await.unwrap();
        assert_eq!(answer["holds"], true, "{condition}: {answer}");
    }

    /// Waits until a step is held by the disk.
    pub async fn held(&self) {
        let disk = self.disk.clone();
        assert!(tokio::task::spawn_blocking(move || disk.is_holding()).await.unwrap(), "nothing came");
    }

    pub async fn close(self) {
        self.disk.let_go();
        assert!(self.node.close(Duration::from_secs(5)).await);
        assert!(self.service.supervisor().close(PATIENCE).await);
    }
}

pub fn id(name: &str) -> AgentId {
    AgentId::new(name.parse().unwrap(), "main".parse().unwrap())
}

pub fn waiting(condition: &str, timeout_ms: u64) -> Request {
    Request::Wait { team: "main".to_owned(), condition: condition.to_owned(), timeout_ms }
}

pub fn sending(to: &str, body: &str) -> Request {
    Request::Send {
        team: "main".to_owned(),
        to: to.to_owned(),
        body: body.to_owned(),
        id: None,
        summary: None,
        in_reply_to: None,
        urgent: false,
        as_agent: None,
    }
}

pub fn named(name: &str) -> (String, String) {
    ("main".to_owned(), name.to_owned())
}
