//! Resident memory of a node whose teammates all rest. Measured in a process of its own, the node's own rooms
//! counted too.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use posthouse_node::directory::{Directory, Residence};
use posthouse_node::mailbox::Incarnation;
use posthouse_node::node::{Node, NodeHandle, NodeOptions};
use posthouse_node::port::{AuthorityPort, GaveUp, Report};
use posthouse_node::teammate::AgentSetup;
use posthouse_shared::clock::{Stamp, SystemClock};
use posthouse_shared::codes::Code;
use posthouse_shared::durable::Files;
use posthouse_shared::generation::Generation;
use posthouse_shared::identity::NodeKey;
use posthouse_shared::limits::Limits;
use posthouse_shared::name::{AgentId, HostName};
use posthouse_shared::refusal::Refusal;
use posthouse_shared::task::{Claim, ClaimedTask};
use posthouse_shared::team::{AgentState, MemberSpec, RunnerSpec, Standing};
use posthouse_shared::wire::Caller;
use posthouse_shared::wire::event::What;
use posthouse_shared::wire::requests::Request;
use tokio::sync::watch;

use super::ground::agent;
use super::memory::{ask, resident};

/// Resident megabytes of a node with `count` teammates that wait for work.
pub fn idle(data: &Path, count: u64) -> f64 {
    ask(data, &format!("teammates {count}"))[0]
}

/// The other side. It is the growth of the process from before the node was started until all teammates have
/// said that they rest and their indexes are dropped, as the watcher does it after a minute; the second number
/// is the growth before that.
pub fn child(data: &Path, count: u64) {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
    runtime.block_on(async {
        let before = resident();
        let port = Arc::new(Quiet::default());
        let node = start(&data.join("teammates"), Arc::clone(&port), count).await;
        for n in 0..count {
            node.ensure_agent(setup(n, data)).await.unwrap();
        }
        let mut resting = port.resting.subscribe();
        resting.wait_for(|resting| *resting >= count).await.unwrap();
        let with_indexes = resident() - before;
        // Who rests has nothing to do any more but to end its file work.
        while node.mailboxes().drop_idle(Duration::ZERO) > 0 {
            tokio::time::sleep(Duration::from_millis(500)).await;
        }
        println!("{} {}", (resident() - before) / 1e6, with_indexes / 1e6);
        node.close(Duration::ZERO).await;
    });
}

async fn start(data: &Path, port: Arc<Quiet>, count: u64) -> NodeHandle {
    Files::real().create_dirs(data).unwrap();
    let directory = Directory::default();
    for n in 0..count {
        directory.set_member(id(n), residence());
    }
    Node::start(NodeOptions {
        data: data.to_owned(),
        temp: std::env::temp_dir(),
        files: Files::real(),
        key: NodeKey::from_bytes([7; NodeKey::BYTES]),
        limits: Arc::new(Limits { mailboxes_per_host: 20_000, ..Limits::default() }),
        clock: Arc::new(SystemClock),
        host: HostName::new("alpha").unwrap(),
        incarnation: Incarnation(1),
        bin_dir: PathBuf::from("/nonexistent"),
        environment: std::env::vars_os().collect(),
        directory,
        port,
        link: None,
        blob_store: None,
    })
    .await
    .unwrap()
}

fn id(n: u64) -> AgentId {
    agent(&format!("mate-{n}"))
}

fn residence() -> Residence {
    let birth = Generation::new(1, 1);
    Residence { birth, generation: birth, host: HostName::new("alpha").unwrap(), standing: Standing::Active }
}

fn setup(n: u64, cwd: &Path) -> AgentSetup {
    let id = id(n);
    AgentSetup {
        birth: Generation::new(1, 1),
        generation: Generation::new(1, 1),
        spec: MemberSpec {
            name: id.agent.clone(),
            role: None,
            model: None,
            color: None,
            cwd: cwd.to_owned(),
            runner: RunnerSpec::Command { command: vec!["true".to_owned()] },
            prompt: String::new(),
            self_claim: true,
            host: None,
            labels: Default::default(),
        },
        id,
        standing: Standing::Active,
        command: Generation::new(0, 0),
        since: Stamp::default(),
    }
}

/// An authority that has nothing to do for anybody and counts who rests.
#[derive(Default)]
struct Quiet {
    resting: watch::Sender<u64>,
}

fn unasked<T>() -> Result<T, Refusal> {
    Err(Refusal::new(Code::CoordinatorUnreachable, "a benchmark"))
}

#[async_trait]
impl AuthorityPort for Quiet {
    async fn request(&self, _: Caller, _: Request) -> Result<serde_json::Value, Refusal> {
        unasked()
    }

    async fn claim_next(&self, _: &AgentId, _: Generation, _: &str) -> Result<Option<ClaimedTask>, Refusal> {
        Ok(None)
    }

    async fn complete(&self, _: &AgentId, _: &Claim, _: &str, _: &str) -> Result<(), Refusal> {
        unasked()
    }

    async fn give_up(&self, _: &AgentId, _: &Claim, _: &GaveUp, _: &str) -> Result<(), Refusal> {
        unasked()
    }

    async fn standing(
        &self,
        _: &AgentId,
        _: Generation,
        _: Generation,
        _: Standing,
        _: &str,
    ) -> Result<(), Refusal> {
        unasked()
    }

    fn report(&self, _: &AgentId, report: Report) {
        if report.state == AgentState::Idle {
            self.resting.send_modify(|resting| *resting += 1);
        }
    }

    fn event(&self, _: What) {}
}
