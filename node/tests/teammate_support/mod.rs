//! A node on a real directory with an authority in memory, for tests of teammates.
#![allow(dead_code, reason = "each test file uses its part")]

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, OnceLock};
use std::time::Duration;

use async_trait::async_trait;
use posthouse_node::directory::{Directory, Residence};
use posthouse_node::mailbox::{Batch, Claimed, Incarnation, Mailbox, Which};
use posthouse_node::node::{Node, NodeHandle, NodeOptions};
use posthouse_node::port::{AuthorityPort, GaveUp, Report};
use posthouse_node::post::{Draft, DraftId, Posted};
use posthouse_node::teammate::AgentSetup;
use posthouse_shared::clock::{Clock, Stamp, SystemClock};
use posthouse_shared::codes::Code;
use posthouse_shared::durable::Files;
use posthouse_shared::generation::Generation;
use posthouse_shared::identity::NodeKey;
use posthouse_shared::limits::Limits;
use posthouse_shared::message::Kind;
use posthouse_shared::name::{AgentId, AgentName, MessageId, TeamName};
use posthouse_shared::refusal::Refusal;
use posthouse_shared::task::{Claim, ClaimedTask};
use posthouse_shared::team::{AgentState, MemberSpec, RunnerSpec, Standing};
use posthouse_shared::wire::Caller;
use posthouse_shared::wire::event::What;
use posthouse_shared::wire::requests::Request;
use tokio::sync::watch;

pub fn team() -> TeamName {
    TeamName::new("main").unwrap()
}

pub fn name(text: &str) -> AgentName {
    AgentName::new(text).unwrap()
}

pub fn id(text: &str) -> AgentId {
    AgentId::new(name(text), team())
}

pub fn generation(index: u64) -> Generation {
    Generation::new(1, index)
}

/// What the authority was told.
#[derive(Debug, Default, Clone)]
pub struct Told {
    pub tasks: Vec<ClaimedTask>,
    pub held: Option<ClaimedTask>,
    pub completed: Vec<(Claim, String)>,
    pub gave_up: Vec<(Claim, GaveUp)>,
    pub standings: Vec<Standing>,
    pub commanded: Generation,
    pub states: Vec<AgentState>,
    /// Idle notices in the lead's mailbox, each time that the end of a turn was reported.
    pub notices_at_idle: Vec<usize>,
    /// Ends that were reported before the authority had taken them.
    pub ends_too_early: u32,
    pub events: Vec<What>,
    pub requests: Vec<(Caller, Request)>,
    pub answered: BTreeMap<String, String>,
    pub fail_completions: u32,
    /// Completions are kept here too, so that they survive the process.
    pub ledger: Option<PathBuf>,
}

#[derive(Debug, Default)]
pub struct FakePort {
    told: Mutex<Told>,
    /// The node's data directory.
    data: OnceLock<PathBuf>,
    changed: watch::Sender<u64>,
}

impl FakePort {
    pub fn with<T>(&self, work: impl FnOnce(&mut Told) -> T) -> T {
        let done = work(&mut self.told.lock().unwrap());
        self.changed.send_modify(|count| *count += 1);
        done
    }

    pub fn told(&self) -> Told {
        self.told.lock().unwrap().clone()
    }

    /// Waits until the authority was told what makes this true.
    pub async fn until(&self, what: &str, holds: impl Fn(&Told) -> bool) -> Told {
        let mut changed = self.changed.subscribe();
        let wait = async {
            loop {
                if holds(&self.told.lock().unwrap()) {
                    return;
                }
                changed.changed().await.unwrap();
            }
        };
        let came = tokio::time::timeout(Duration::from_secs(30), wait).await;
        assert!(came.is_ok(), "{what} did not come: {:#?}", self.told());
        self.told()
    }
}

#[async_trait]
impl AuthorityPort for FakePort {
    async fn request(&self, caller: Caller, request: Request) -> Result<serde_json::Value, Refusal> {
        self.with(|told| told.requests.push((caller, request)));
        Ok(serde_json::json!({ "done": "heard" }))
    }

    async fn claim_next(
        &self,
        _agent: &AgentId,
        _generation: Generation,
        _request: &str,
    ) -> Result<Option<ClaimedTask>, Refusal> {
        Ok(self.with(|told| {
            if told.held.is_none() && !told.tasks.is_empty() {
                told.held = Some(told.tasks.remove(0));
            }
            told.held.clone()
        }))
    }

    async fn complete(&self, _: &AgentId, claim: &Claim, result: &str, request: &str) -> Result<(), Refusal> {
        self.with(|told| {
            if told.fail_completions > 0 {
                told.fail_completions -= 1;
                return Err(Refusal::new(Code::CoordinatorUnreachable, "away"));
            }
            let first = told.answered.insert(request.to_owned(), result.to_owned()).is_none();
            if first && let Some(ledger) = &told.ledger {
                let mut kept = std::fs::read_to_string(ledger).unwrap_or_default();
                kept.push_str(&format!("{request}\t{result}\n"));
                Files::real().replace(ledger, kept.as_bytes()).unwrap();
            }
            if first {
                told.completed.push((claim.clone(), result.to_owned()));
            }
            told.held = None;
            told.tasks.retain(|task| task.id != claim.task);
            Ok(())
        })
    }

    async fn give_up(&self, _: &AgentId, claim: &Claim, how: &GaveUp, _request: &str) -> Result<(), Refusal> {
        self.with(|told| {
            told.gave_up.push((claim.clone(), how.clone()));
            told.held = None;
        });
        Ok(())
    }

    async fn standing(
        &self,
        _: &AgentId,
        _: Generation,
        command: Generation,
        standing: Standing,
        _: &str,
    ) -> Result<(), Refusal> {
        // Others have their turn first, as over a network.
        tokio::task::yield_now().await;
        self.with(|told| {
            if command < told.commanded {
                return Err(Refusal::new(Code::WrongGeneration, "an older command"));
            }
            told.standings.push(standing);
            Ok(())
        })
    }

    fn report(&self, _agent: &AgentId, report: Report) {
        self.with(|told| {
            let taken = told.standings.last() == Some(&Standing::Shutdown);
            told.ends_too_early += u32::from(report.state == AgentState::Shutdown && !taken);
            if report.state == AgentState::Idle && told.states.last() == Some(&AgentState::Running) {
                told.notices_at_idle.push(self.idle_notices());
            }
            told.states.push(report.state);
        });
    }

    fn event(&self, what: What) {
        self.with(|told| told.events.push(what));
    }
}

pub struct Bench {
    pub dir: PathBuf,
    pub port: Arc<FakePort>,
    pub node: NodeHandle,
    pub directory: Directory,
    _temp: Option<tempfile::TempDir>,
}

pub fn limits() -> Limits {
    Limits { retry_ms_min: 5, retry_ms_max: 20, shutdown_grace_ms: 300, max_attempts: 3, ..Limits::default() }
}

pub fn residence(host: &str, birth: u64) -> Residence {
    Residence {
        birth: generation(birth),
        generation: generation(birth),
        host: host.parse().unwrap(),
        standing: Standing::Active,
    }
}

impl FakePort {
    fn idle_notices(&self) -> usize {
        let ready = self.data.get().unwrap().join("mailboxes").join(team().as_str()).join("lead/ready");
        let files = std::fs::read_dir(ready).unwrap();
        files
            .filter(|file| {
                let text = std::fs::read_to_string(file.as_ref().unwrap().path()).unwrap();
                text.contains("\"kind\":\"idle\"")
            })
            .count()
    }

    /// An authority that remembers completions in a file, with one task that is not completed yet.
    pub fn with_ledger(ledger: PathBuf) -> Arc<Self> {
        let port = Arc::<Self>::default();
        let kept = std::fs::read_to_string(&ledger).unwrap_or_default();
        port.with(|told| {
            let entry =
                |line: &str| line.split_once('\t').map(|(id, result)| (id.to_owned(), result.to_owned()));
            told.answered = kept.lines().filter_map(entry).collect();
            told.tasks = if told.answered.is_empty() { vec![task(1)] } else { Vec::new() };
            told.ledger = Some(ledger);
        });
        port
    }
}

impl Bench {
    pub async fn new(limits: Limits) -> Self {
        let temp = tempfile::tempdir().unwrap();
        let mut bench = Self::at(temp.path(), limits, Files::real(), 1, Arc::default()).await;
        bench._temp = Some(temp);
        bench
    }

    /// A start of the node on a directory.
    pub async fn at(dir: &Path, limits: Limits, files: Files, incarnation: u64, port: Arc<FakePort>) -> Self {
        let _set_by_an_earlier_start = port.data.set(dir.to_owned());
        let directory = Directory::default();
        let members = [("lead", 1), ("scout", 2), ("other", 3)];
        let members = members.map(|(agent, birth)| (name(agent), residence("here", birth)));
        directory.set_team(team(), members.into());
        let authority: Arc<dyn AuthorityPort> = Arc::clone(&port) as Arc<dyn AuthorityPort>;
        let node = Node::start(NodeOptions {
            data: dir.to_owned(),
            temp: std::env::temp_dir(),
            files,
            key: NodeKey::from_bytes([7; NodeKey::BYTES]),
            limits: Arc::new(limits),
            clock: Arc::new(SystemClock),
            host: "here".parse().unwrap(),
            incarnation: Incarnation(incarnation),
            bin_dir: PathBuf::from("/nonexistent"),
            environment: std::env::vars_os().collect(),
            directory: directory.clone(),
            port: authority,
            link: None,
            blob_store: None,
        })
        .await
        .unwrap();
        node.mailboxes().create(&id("lead"), generation(1)).unwrap();
        node.mailboxes().create(&id("scout"), generation(2)).unwrap();
        Self { dir: dir.to_owned(), port, node, directory, _temp: None }
    }

    pub fn setup(&self, script: &str, standing: Standing) -> AgentSetup {
        AgentSetup {
            id: id("scout"),
            birth: generation(2),
            generation: generation(2),
            spec: MemberSpec {
                name: name("scout"),
                role: None,
                model: None,
                color: None,
                cwd: self.dir.clone(),
                runner: RunnerSpec::Command { command: vec!["sh".into(), "-c".into(), script.into()] },
                prompt: String::new(),
                self_claim: true,
                host: None,
                labels: BTreeMap::new(),
            },
            standing,
            command: generation(0),
            since: Stamp::default(),
        }
    }

    /// Starts `scout` with this script as its program.
    pub async fn scout(&self, script: &str) -> Mailbox {
        self.node.ensure_agent(self.setup(script, Standing::Active)).await.unwrap()
    }

    pub fn send_kind(&self, kind: Kind, body: &str) -> Posted {
        self.node.post().send(draft(kind, body)).unwrap()
    }

    pub fn send(&self, body: &str) -> MessageId {
        self.send_kind(Kind::Message, body).id
    }

    /// A lifecycle command of the lead, whose entry has this index.
    pub fn command(&self, kind: Kind, index: u64, force: bool) {
        self.port.with(|told| told.commanded = generation(index));
        self.send_kind(kind, &format!(r#"{{"command":"1.{index}","force":{force}}}"#));
    }

    /// All that the lead has got and not read.
    pub fn inbox(&self) -> Vec<(Kind, String)> {
        let batch = Batch { messages_max: 1_000, bytes_max: u64::MAX, only: Which::All };
        let mailbox = self.node.mailboxes().get(&id("lead")).unwrap();
        let claimed: Vec<Claimed> = mailbox.claim(batch).unwrap();
        mailbox.ack(&claimed.iter().map(|c| c.lease).collect::<Vec<_>>()).unwrap();
        let content = |c: &Claimed| {
            let envelope = &c.message.envelope;
            (envelope.kind, envelope.body.clone().unwrap_or_default())
        };
        claimed.iter().map(content).collect()
    }

    pub fn file(&self, name: &str) -> String {
        std::fs::read_to_string(self.dir.join(name)).unwrap_or_default()
    }

    /// Waits until a program has written a whole line into this file.
    pub async fn appears(&self, name: &str) -> String {
        let wait = async {
            loop {
                let text = self.file(name);
                if text.ends_with('\n') {
                    return text;
                }
                tokio::time::sleep(Duration::from_millis(2)).await;
            }
        };
        tokio::time::timeout(Duration::from_secs(30), wait).await.unwrap()
    }

    pub fn history(&self) -> String {
        self.file("history/main/scout.1.2.jsonl")
    }

    pub async fn states(&self, what: &str, states: &[AgentState]) -> Told {
        let wanted = states.to_vec();
        self.port.until(what, move |told| told.states.ends_with(&wanted)).await
    }

    /// Waits until an idle notice or result (any message of this kind) is stored for the lead, `n` in all.
    pub async fn told_lead(&self, kind: Kind, n: usize) {
        let stored = move |what: &&What| matches!(what, What::MessageStored { kind: k, to, .. } if *k == kind && to.is_lead());
        self.port.until(&format!("{kind}"), move |told| told.events.iter().filter(stored).count() >= n).await;
    }
}

pub fn draft(kind: Kind, body: &str) -> Draft {
    Draft {
        from: id("lead"),
        to: name("scout"),
        kind,
        body: body.to_owned(),
        summary: None,
        in_reply_to: None,
        control: false,
        id: DraftId::Fresh,
        trace: None,
    }
}

pub fn task(n: u64) -> ClaimedTask {
    ClaimedTask {
        id: format!("T-{n}").parse().unwrap(),
        subject: format!("task {n}"),
        description: "all of it".to_owned(),
        generation: generation(100 + n),
        blocked_by: Vec::new(),
    }
}

pub fn now() -> Stamp {
    SystemClock.now()
}

impl Bench {
    pub fn send_from_other(&self, body: &str) {
        let draft = Draft { from: id("other"), ..draft(Kind::Message, body) };
        self.node.post().send(draft).unwrap();
    }
}

impl Bench {
    /// What the lead has got, without taking it.
    pub fn lead_bodies(&self) -> Vec<(Kind, String)> {
        let mailbox = self.node.mailboxes().get(&id("lead")).unwrap();
        let content = |seen: posthouse_node::mailbox::Peeked| {
            let envelope = seen.message.envelope;
            (envelope.kind, envelope.body.unwrap_or_default())
        };
        mailbox.peek(1_000).unwrap().into_iter().map(content).collect()
    }
}
