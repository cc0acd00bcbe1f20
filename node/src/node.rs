//! One node: mailboxes, post, teammates, schedules and the local socket of one data directory, started and
//! closed together. The caller holds the lock of the data directory.
//!
//! Closing order: teammates, schedules, the local socket, the relay, runners, left-over processes; each bounded, one
//! that fails does not stop the rest.

use std::collections::{BTreeMap, HashMap};
use std::ffi::OsString;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use posthouse_shared::clock::Clock;
use posthouse_shared::durable::{DurableError, Files};
use posthouse_shared::identity::NodeKey;
use posthouse_shared::limits::Limits;
use posthouse_shared::name::{AgentId, HostName, MessageId, TeamName};
use posthouse_shared::supervise::Supervisor;
use posthouse_shared::team::{Schedule, Standing};
use posthouse_shared::wire::replies::Stage;
use tokio::sync::watch;

use crate::children::{Children, ChildrenError, Swept};
use crate::directory::Directory;
use crate::host_keys::KeysError;
use crate::link::HostLink;
use crate::local::{LocalError, Tokens, serve};
use crate::mailbox::{Incarnation, Mailbox, MailboxError, Mailboxes, Setup};
use crate::outbox::{Outbox, OutboxCounts, OutboxError, Pace};
use crate::port::AuthorityPort;
use crate::post::{Away, GroupError, Post, PostSetup};
use crate::relay::{Relay, RelayHandle, RelayOptions};
use crate::runner::command::CommandRunner;
use crate::runner::environment::child_environment;
use crate::schedule::tick;
use crate::teammate::pause::Pauses;
use crate::teammate::{AgentSetup, Close, Deps, Signals, Teammate};
use crate::trace_index::{TraceIndex, TraceIndexError, TraceNote};
use crate::upkeep::upkeep;

/// What left-over processes get between SIGTERM and SIGKILL.
const LEFT_OVER_GRACE: Duration = Duration::from_secs(1);
/// After the grace of a close: for SIGTERM, SIGKILL and the last file work.
const CLOSE_MARGIN: Duration = Duration::from_secs(10);

/// What a node is started with.
pub struct NodeOptions {
    /// The data directory, absolute; its lock is held by the caller.
    pub data: PathBuf,
    /// For the socket, where the data directory's path is too long.
    pub temp: PathBuf,
    /// The durable layer.
    pub files: Files,
    /// The node's key.
    pub key: NodeKey,
    /// The limits in force.
    pub limits: Arc<Limits>,
    /// Time.
    pub clock: Arc<dyn Clock>,
    /// This host.
    pub host: HostName,
    /// This start of the data directory.
    pub incarnation: Incarnation,
    /// Where the `posthouse` binary lies: goes first in the children's PATH.
    pub bin_dir: PathBuf,
    /// The node's own environment; the children get an allow-list of it.
    pub environment: Vec<(OsString, OsString)>,
    /// Who lives where; the caller keeps it up to date.
    pub directory: Directory,
    /// The authority.
    pub port: Arc<dyn AuthorityPort>,
    /// The way to other hosts; without one this host is the only one.
    pub link: Option<HostLink>,
}

/// A node cannot be started.
#[derive(Debug, thiserror::Error)]
pub enum NodeError {
    /// The data directory cannot be written.
    #[error("prepare the data directory")]
    Files(#[from] DurableError),
    /// Child processes cannot be recorded.
    #[error("prepare for child processes")]
    Children(#[from] ChildrenError),
    /// The mailboxes cannot be opened.
    #[error("open mailboxes")]
    Mailboxes(#[from] MailboxError),
    /// The trace index cannot be opened.
    #[error("open trace index")]
    Trace(#[from] TraceIndexError),
    /// The post cannot be opened.
    #[error("open post")]
    Post(#[from] GroupError),
    /// The outbox cannot be opened.
    #[error("open outbox")]
    Outbox(#[from] OutboxError),
    /// The keys of other hosts cannot be read.
    #[error("open host keys")]
    Keys(#[from] KeysError),
    /// The local socket cannot be opened.
    #[error("open local socket")]
    Local(#[from] LocalError),
    /// The thread that did the file work is gone.
    #[error("file work was cut off")]
    CutOff,
}

/// The node.
pub struct Node;

/// A started node. Clones share it.
#[derive(Clone)]
pub struct NodeHandle(Arc<Inner>);

struct Inner {
    host: HostName,
    deps: Arc<Deps>,
    mailboxes: Mailboxes,
    directory: Directory,
    children: Children,
    agents: Mutex<HashMap<AgentId, Agent>>,
    boards: Mutex<BTreeMap<TeamName, watch::Sender<u64>>>,
    schedules: watch::Sender<Vec<Schedule>>,
    closing: watch::Sender<Option<Close>>,
    teammates: Supervisor,
    ticking: Supervisor,
    serving: Supervisor,
    runners: Supervisor,
    relay: Option<RelayHandle>,
    swept: Swept,
}

struct Agent {
    setup: watch::Sender<Arc<AgentSetup>>,
    close: watch::Sender<Option<Close>>,
    ended: watch::Receiver<bool>,
}

impl Node {
    /// Starts a node: ends processes that an earlier start left, opens mailboxes, post and socket. Teammates
    /// follow by [`NodeHandle::ensure_agent`].
    pub async fn start(options: NodeOptions) -> Result<NodeHandle, NodeError> {
        let run = options.data.join("run");
        let children = Children::open(options.files.clone(), &run)?;
        let sweeping = children.clone();
        let swept = tokio::task::spawn_blocking(move || sweeping.end_left_over(LEFT_OVER_GRACE))
            .await
            .map_err(|_| NodeError::CutOff)?;
        if swept.ended > 0 {
            tracing::warn!(
                ended = swept.ended,
                left = swept.left,
                "ended processes that an earlier start left"
            );
        }
        let mailboxes = Mailboxes::open(Setup {
            files: options.files.clone(),
            dir: options.data.join("mailboxes"),
            attic: options.data.join("attic"),
            key: options.key.clone(),
            hosts: options.directory.hosts().clone(),
            limits: Arc::clone(&options.limits),
            clock: Arc::clone(&options.clock),
            incarnation: options.incarnation,
        })?;
        let trace = TraceIndex::open(&options.data.join("trace.sled"))?;
        let away = match &options.link {
            Some(link) => {
                let (files, dir) = (options.files.clone(), options.data.join("outbox"));
                let (limits, clock) = (Arc::clone(&options.limits), Arc::clone(&options.clock));
                let outbox = Outbox::open(files, dir, limits, clock, Pace::default())?;
                Some(Away { outbox, key: link.key.clone() })
            }
            None => None,
        };
        let outbox = away.as_ref().map(|away| away.outbox.clone());
        let post = Post::open(
            PostSetup {
                files: options.files.clone(),
                host: options.host.clone(),
                key: options.key.clone(),
                limits: Arc::clone(&options.limits),
                clock: Arc::clone(&options.clock),
                mailboxes: mailboxes.clone(),
                directory: options.directory.clone(),
                trace: trace.clone(),
                away,
            },
            &options.data.join("sent"),
            &options.data.join("clock"),
        )?;
        let relay = match options.link.zip(outbox) {
            Some((link, outbox)) => Some(Relay::start(RelayOptions {
                link,
                outbox,
                mailboxes: mailboxes.clone(),
                post: post.clone(),
                directory: options.directory.clone(),
                host: options.host.clone(),
                files: options.files.clone(),
                data: options.data.clone(),
                limits: Arc::clone(&options.limits),
                clock: Arc::clone(&options.clock),
                trace: trace.clone(),
                port: Arc::clone(&options.port),
            })?),
            None => None,
        };
        let (teammates, ticking) = (Supervisor::new(), Supervisor::new());
        let (serving, runners) = (Supervisor::new(), Supervisor::new());
        let tokens = Tokens::default();
        let socket = serve(
            &run,
            &options.temp,
            &options.files,
            Arc::clone(&options.port),
            tokens.clone(),
            options.limits.request_bytes,
            &serving,
        )?;
        let runner = CommandRunner::new(Arc::clone(&options.limits), children.clone(), runners.clone());
        let deps = Arc::new(Deps {
            environment: Arc::new(child_environment(options.environment, &options.bin_dir)),
            data: options.data,
            files: options.files,
            key: options.key,
            limits: options.limits,
            clock: options.clock,
            post,
            trace,
            port: options.port,
            runner: Arc::new(runner),
            tokens,
            socket,
        });
        let handle = NodeHandle(Arc::new(Inner {
            host: options.host,
            deps,
            mailboxes,
            directory: options.directory,
            children,
            agents: Mutex::default(),
            boards: Mutex::default(),
            schedules: watch::Sender::new(Vec::new()),
            closing: watch::Sender::new(None),
            teammates,
            ticking,
            serving,
            runners,
            relay,
            swept,
        }));
        let tick =
            tick(Arc::clone(&handle.0.deps), handle.0.schedules.subscribe(), handle.0.ticking.closing());
        handle.0.ticking.start("schedules", tick);
        let deps = &handle.0.deps;
        let closing = handle.0.ticking.closing();
        let upkeep = upkeep(handle.0.mailboxes.clone(), Arc::clone(&deps.clock), closing);
        handle.0.ticking.start("upkeep", upkeep);
        Ok(handle)
    }
}

impl NodeHandle {
    /// The mailboxes of this host.
    pub fn mailboxes(&self) -> &Mailboxes {
        &self.0.mailboxes
    }

    /// The post of this host.
    pub fn post(&self) -> &Post {
        &self.0.deps.post
    }

    /// What its teammates last said of themselves, where they live on a host of its own.
    pub fn reports(&self) -> Vec<(AgentId, crate::port::Report)> {
        self.0.deps.port.reports()
    }

    /// This host's name.
    pub fn host(&self) -> &HostName {
        &self.0.host
    }

    /// The data directory.
    pub fn data(&self) -> &std::path::Path {
        &self.0.deps.data
    }

    /// Adds a step to a message's way.
    pub fn note_step(&self, id: MessageId, stage: Stage) {
        let note = TraceNote { at: self.0.deps.clock.now(), stage, detail: String::new(), host: None };
        self.trace().step(id, note);
    }

    /// Where messages were.
    pub fn trace(&self) -> &TraceIndex {
        &self.0.deps.trace
    }

    /// Who lives where.
    pub fn directory(&self) -> &Directory {
        &self.0.directory
    }

    /// The tokens of running turns.
    pub fn tokens(&self) -> &Tokens {
        &self.0.deps.tokens
    }

    /// The local socket.
    pub fn socket(&self) -> &std::path::Path {
        &self.0.deps.socket
    }

    /// The relay, where there are other hosts.
    pub fn relay(&self) -> Option<&RelayHandle> {
        self.0.relay.as_ref()
    }

    /// What is on its way to each other host, and since when; nothing where this host is the only one.
    pub fn on_the_way(&self) -> BTreeMap<HostName, OutboxCounts> {
        self.0.relay.as_ref().map(|relay| relay.outbox().by_host()).unwrap_or_default()
    }

    /// How many messages of this host are on their way to each recipient on another: accepted, and not done.
    pub fn on_the_way_to(&self) -> BTreeMap<AgentId, usize> {
        self.0.relay.as_ref().map(|relay| relay.outbox().by_recipient()).unwrap_or_default()
    }

    /// What the start found left over.
    pub fn swept(&self) -> Swept {
        self.0.swept
    }

    /// Makes sure that a teammate of this node is as the authority says: its mailbox is there (durable at
    /// return), its loop runs, and it knows of changes. One of an earlier birth or grant is ended first. One
    /// that was shut down keeps its mailbox and has no loop.
    pub async fn ensure_agent(&self, setup: AgentSetup) -> Result<Mailbox, MailboxError> {
        let same = |other: &AgentSetup| {
            (other.birth, other.generation) == (setup.birth, setup.generation) && other.spec == setup.spec
        };
        let known = self.lock_agents().get(&setup.id).map(|agent| {
            let same = same(&agent.setup.borrow());
            (same && !*agent.ended.borrow(), same)
        });
        match known {
            Some((true, _)) => {
                if let Some(agent) = self.lock_agents().get(&setup.id) {
                    agent.setup.send_replace(Arc::new(setup.clone()));
                }
                return self.0.mailboxes.get(&setup.id);
            }
            Some((false, _)) => self.end_agent(&setup.id).await,
            None => {}
        }
        let (mailboxes, id, birth) = (self.0.mailboxes.clone(), setup.id.clone(), setup.birth);
        let mailbox = match tokio::task::spawn_blocking(move || mailboxes.create(&id, birth)).await {
            Ok(created) => created?,
            Err(_) => return Err(MailboxError::NotFound { agent: setup.id }),
        };
        if setup.standing != Standing::Shutdown && self.0.closing.borrow().is_none() {
            self.start_agent(setup, mailbox.clone());
        }
        Ok(mailbox)
    }

    fn start_agent(&self, setup: AgentSetup, mailbox: Mailbox) {
        let id = setup.id.clone();
        let (setup_sender, setups) = watch::channel(Arc::new(setup));
        let close = watch::Sender::new(*self.0.closing.borrow());
        let (ended, has_ended) = watch::channel(false);
        let signals =
            Signals { board: self.board(&id.team).subscribe(), setup: setups, close: close.subscribe() };
        let deps = Arc::clone(&self.0.deps);
        self.lock_agents().insert(id, Agent { setup: setup_sender, close, ended: has_ended });
        // Boxed step by step: a teammate at rest is the future of its loop and nothing else.
        let living = Box::pin(async move {
            if let Some(teammate) = Box::pin(open(deps, mailbox, signals)).await {
                Box::pin(teammate.run()).await;
            }
            ended.send_replace(true);
        });
        self.0.teammates.start("teammate", living);
    }

    /// Ends a teammate's loop, its turn at once, and waits for it. Its mailbox stays.
    pub async fn end_agent(&self, id: &AgentId) {
        let Some(agent) = self.lock_agents().remove(id) else { return };
        agent.close.send_replace(Some(Close::Now));
        let mut ended = agent.ended;
        let _gone_is_ended = ended.wait_for(|ended| *ended).await;
    }

    /// Ends a teammate and puts its mailbox into the attic; its history and log stay.
    pub async fn remove_agent(&self, id: &AgentId) -> Result<(), MailboxError> {
        self.end_agent(id).await;
        let (mailboxes, agent) = (self.0.mailboxes.clone(), id.clone());
        match tokio::task::spawn_blocking(move || mailboxes.to_attic(&agent)).await {
            Ok(moved) => moved,
            Err(_) => Err(MailboxError::NotFound { agent: id.clone() }),
        }
    }

    /// Says that a team's board has changed: idle teammates ask for a task.
    pub fn board_changed(&self, team: &TeamName) {
        self.board(team).send_modify(|count| *count = count.wrapping_add(1));
    }

    /// Puts these schedules in force, all others out of it.
    pub fn set_schedules(&self, schedules: Vec<Schedule>) {
        self.0.schedules.send_replace(schedules);
    }

    /// Closes the node: running turns may end by themselves for `grace`, then they are ended and their input is
    /// released. Answers whether everything ended by itself.
    pub async fn close(&self, grace: Duration) -> bool {
        self.0.closing.send_if_modified(|closing| {
            let begins = closing.is_none();
            if begins {
                *closing = Some(Close::Within(grace));
            }
            begins
        });
        self.tell_closing();
        let (begun, within) = (self.0.deps.clock.boot(), grace + CLOSE_MARGIN);
        let mut well = self.0.teammates.close(within).await;
        well &= self.0.ticking.close(CLOSE_MARGIN).await;
        well &= self.0.serving.close(CLOSE_MARGIN).await;
        if let Some(relay) = &self.0.relay {
            // What the turns have left of the grace.
            let drain = grace.saturating_sub(self.0.deps.clock.boot().saturating_sub(begun));
            well &= relay.close(drain, CLOSE_MARGIN).await;
        }
        well &= self.0.runners.close(CLOSE_MARGIN).await;
        let children = self.0.children.clone();
        let swept = tokio::task::spawn_blocking(move || children.end_left_over(LEFT_OVER_GRACE)).await;
        if let Ok(swept) = swept
            && swept.ended > 0
        {
            tracing::warn!(ended = swept.ended, left = swept.left, "ended processes that left their group");
        }
        well
    }

    /// Ends all turns at once; for a second signal while [`NodeHandle::close`] waits. Their input is released
    /// and does not count as an attempt.
    pub fn kill_now(&self) {
        self.0.closing.send_replace(Some(Close::Now));
        self.tell_closing();
    }

    fn tell_closing(&self) {
        let closing = *self.0.closing.borrow();
        for agent in self.lock_agents().values() {
            agent.close.send_replace(closing);
        }
    }

    fn board(&self, team: &TeamName) -> watch::Sender<u64> {
        let mut boards = self.0.boards.lock().unwrap_or_else(PoisonError::into_inner);
        boards.entry(team.clone()).or_insert_with(|| watch::Sender::new(0)).clone()
    }

    fn lock_agents(&self) -> std::sync::MutexGuard<'_, HashMap<AgentId, Agent>> {
        self.0.agents.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Opens a teammate, trying again while the disk does not let it. Nothing where the node closes first.
async fn open(deps: Arc<Deps>, mailbox: Mailbox, signals: Signals) -> Option<Box<Teammate>> {
    let mut pauses = Pauses::new(&deps.limits, mailbox.agent().to_string());
    let Signals { board, setup, mut close } = signals;
    loop {
        if close.borrow().is_some() {
            return None;
        }
        let now = Arc::clone(&setup.borrow());
        let again = Signals { board: board.clone(), setup: setup.clone(), close: close.clone() };
        match Teammate::open(Arc::clone(&deps), now, mailbox.clone(), again).await {
            Ok(teammate) => return Some(Box::new(teammate)),
            Err(error) => {
                let pause = pauses.pause();
                tracing::error!(agent = %mailbox.agent(), %error, ?pause, "cannot start teammate, trying again");
                tokio::select! {
                    () = tokio::time::sleep(pause) => {}
                    _ = close.changed() => {}
                }
            }
        }
    }
}
