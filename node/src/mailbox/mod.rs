//! Mailboxes: one directory an agent, one file a message, in one of the states ready, processing, done and
//! quarantine. What is answered *stored* is on disk; what was taken once is never taken again; claims are
//! atomic renames. All calls are synchronous and may be made from many threads; several processes may share a
//! mailbox too (they learn of each other's files by inotify).
//!
//! ```text
//! DATA/mailboxes/<team>/<agent>/{birth,cursors,lock,tmp/,ready/,processing/,done/,quarantine/}
//! ready -> processing (claim)     processing -> done (ack)     processing -> ready (release: attempt + 1)
//! any of the three -> quarantine (reason beside it)            quarantine -> ready (a person: delivery + 1)
//! ```
//!
//! | file | what it decides |
//! |---|---|
//! | [`name`] | what a file's name says |
//! | [`index`] | the order of claims |
//! | [`dedup`] | what was ever taken |
//! | `content` | what bytes are as a message |
//! | `deliver`, `lease`, `quarantine` | the moves, each with its order of syncs |
//! | `recover` | reading a directory, healing what a crash left, adopting foreign files |
//! | `watch` | files of other programs |
//! | `look` | questions that move nothing |
//! | `prune` | how `done/` stays bounded |
//! | [`fsck`] | the same rules, checked offline |

mod content;
pub mod dedup;
mod deliver;
pub mod error;
pub mod fsck;

pub mod index;
mod lease;
mod look;
pub mod name;
mod prune;
mod quarantine;
mod recover;
mod watch;

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, OnceLock, PoisonError, Weak};
use std::time::Duration;

use posthouse_shared::clock::Clock;
use posthouse_shared::durable::Files;
use posthouse_shared::generation::Birth;
use posthouse_shared::identity::{HostKeys, NodeKey};
use posthouse_shared::lane::LaneKey;
use posthouse_shared::limits::Limits;
use posthouse_shared::name::{AgentId, AgentName, MessageId, TeamName};
use posthouse_shared::wire::replies::Stage;
use tokio::sync::{mpsc, watch as channel};

pub use deliver::{After, Delivered};
pub use error::MailboxError;
pub use index::Which;
pub use lease::{Batch, Claimed, Lease, Release};
pub use look::{Counts, Gap, Located, Peeked};
pub use name::{Incarnation, Marks};
pub use prune::Pruned;
pub use quarantine::{Quarantined, Reason};

use dedup::Seen;
use index::Index;
use name::{FileName, Place};

const READY: &str = "ready";
const PROCESSING: &str = "processing";
const DONE: &str = "done";
const QUARANTINE: &str = "quarantine";
const TMP: &str = "tmp";
const STATES: [&str; 4] = [READY, PROCESSING, QUARANTINE, DONE];
const BIRTH: &str = "birth";
const LOCK: &str = "lock";

/// An index that nobody used for so long is dropped, to be read again when needed.
const IDLE_AFTER: Duration = Duration::from_secs(60);

/// What mailboxes are made from.
#[derive(Clone)]
pub struct Setup {
    /// The durable layer.
    pub files: Files,
    /// `DATA/mailboxes`.
    pub dir: PathBuf,
    /// `DATA/attic`, for the mailboxes of deleted agents.
    pub attic: PathBuf,
    /// The node's key.
    pub key: NodeKey,
    /// The keys of other hosts.
    pub hosts: HostKeys,
    /// The limits in force.
    pub limits: Arc<Limits>,
    /// Time.
    pub clock: Arc<dyn Clock>,
    /// This start of the data directory: it owns the leases that are taken.
    pub incarnation: Incarnation,
}

/// All mailboxes of one data directory. Clones share them.
#[derive(Clone)]
pub struct Mailboxes(Arc<Shared>);

/// A message has come to its end, or to rest in quarantine.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Settled {
    /// The message.
    pub id: MessageId,
    /// `Done` or `Quarantined`.
    pub stage: Stage,
}

/// The register of what is open. Mailboxes know only the [`Core`], so that all ends with the last handle.
struct Shared {
    core: Arc<Core>,
    open: Mutex<BTreeMap<AgentId, Arc<Inner>>>,
}

struct Core {
    setup: Setup,
    settled: OnceLock<mpsc::Sender<Settled>>,
    watcher: watch::Watcher,
    tmp: AtomicU64,
}

/// One mailbox. Clones share it.
#[derive(Clone)]
pub struct Mailbox(Arc<Inner>, Arc<Shared>);

struct Inner {
    me: Weak<Inner>,
    core: Arc<Core>,
    agent: AgentId,
    birth: Birth,
    dir: PathBuf,
    state: Mutex<State>,
    landed: Condvar,
    changes: channel::Sender<u64>,
}

enum State {
    /// Nothing in memory.
    Cold,
    /// The names are in memory.
    Loaded(Box<Loaded>),
    /// The agent was deleted.
    Gone,
}

/// What is known of a mailbox in use.
struct Loaded {
    index: Index,
    seen: Seen,
    /// What lies in `processing/`.
    held: HashMap<MessageId, FileName>,
    /// Ids of messages in `quarantine/`.
    quarantined: HashSet<MessageId>,
    /// Files in `quarantine/` that are not messages.
    quarantined_foreign: usize,
    done: usize,
    /// Being written at this moment, by place or id: not in the index yet.
    in_flight: HashSet<Key>,
    /// Numbers that were answered *full* and are still to come, by lane.
    busy: HashMap<LaneKey, BTreeSet<u64>>,
    /// Boot-time clock at the last use.
    used: Duration,
    news: News,
    /// Deliveries since the names were last read, where nobody watches.
    unwatched: u32,
}

/// How files of other processes are learnt of.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum News {
    /// Not yet: so far this process only delivers.
    NotAsked,
    /// inotify tells.
    Watched,
    /// There is no watch to be had: an idle claim reads the names.
    Unwatchable,
}

/// What makes two files the same message.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
enum Key {
    Place(Place),
    Id(MessageId),
}

impl Key {
    const fn of(name: &FileName) -> Self {
        match name.place {
            Some(place) => Self::Place(place),
            None => Self::Id(name.id),
        }
    }
}

impl Mailboxes {
    /// Opens the mailboxes of one data directory: makes `dir` and `attic` where they are not there, and starts
    /// the one inotify watcher. Reads no mailbox.
    pub fn open(setup: Setup) -> Result<Self, MailboxError> {
        setup.files.create_dirs(&setup.dir)?;
        setup.files.create_dirs(&setup.attic)?;
        let shared = Arc::new_cyclic(|shared| Shared {
            core: Arc::new(Core {
                setup,
                settled: OnceLock::new(),
                watcher: watch::Watcher::start(shared.clone()),
                tmp: AtomicU64::new(0),
            }),
            open: Mutex::default(),
        });
        Ok(Self(shared))
    }

    /// Makes the mailbox of an agent, or answers the one that is there. One of another birth goes to the attic
    /// first. Durable at return.
    pub fn create(&self, agent: &AgentId, birth: Birth) -> Result<Mailbox, MailboxError> {
        match self.get(agent) {
            Ok(mailbox) if mailbox.birth() == birth => return Ok(mailbox),
            Ok(_) => self.to_attic(agent)?,
            Err(MailboxError::NotFound { .. }) => {}
            Err(error) => return Err(error),
        }
        let files = &self.0.core.setup.files;
        let limit = self.0.core.setup.limits.mailboxes_per_host;
        if lock(&self.0.open).len() >= usize::try_from(limit).unwrap_or(usize::MAX) {
            return Err(MailboxError::TooMany { limit });
        }
        let dir = self.dir(agent);
        files.create_dirs(&dir)?;
        for state in STATES.into_iter().chain([TMP]) {
            files.create_dir_unsynced(&dir.join(state))?;
        }
        files.sync_dir(&dir)?;
        files.point("mailbox.create.made");
        // Last, so that a mailbox with a birth is whole.
        files.replace(&dir.join(BIRTH), birth.to_string().as_bytes())?;
        files.point("mailbox.create.synced");
        self.get(agent)
    }

    /// The mailbox of an agent. Reads its birth; its names are read when it is first used.
    pub fn get(&self, agent: &AgentId) -> Result<Mailbox, MailboxError> {
        let mut open = lock(&self.0.open);
        if let Some(inner) = open.get(agent) {
            return Ok(Mailbox(Arc::clone(inner), Arc::clone(&self.0)));
        }
        let dir = self.dir(agent);
        let path = dir.join(BIRTH);
        let Some(bytes) = self.0.core.setup.files.read_if_there(&path, 64)? else {
            return Err(MailboxError::NotFound { agent: agent.clone() });
        };
        let birth = std::str::from_utf8(&bytes).ok().and_then(|text| text.trim().parse().ok());
        let birth = birth.ok_or_else(|| MailboxError::Broken {
            file: path.display().to_string(),
            why: "not a generation".to_owned(),
        })?;
        let inner = Arc::new_cyclic(|me| Inner {
            me: me.clone(),
            core: Arc::clone(&self.0.core),
            agent: agent.clone(),
            birth,
            dir,
            state: Mutex::new(State::Cold),
            landed: Condvar::new(),
            changes: channel::Sender::new(0),
        });
        open.insert(agent.clone(), Arc::clone(&inner));
        Ok(Mailbox(inner, Arc::clone(&self.0)))
    }

    /// Puts the mailbox of a deleted agent away, under its birth. Fine if there is none. Durable at return;
    /// handles to it answer *not found* from now on.
    pub fn to_attic(&self, agent: &AgentId) -> Result<(), MailboxError> {
        let mailbox = match self.get(agent) {
            Ok(mailbox) => mailbox,
            Err(MailboxError::NotFound { .. }) => return Ok(()),
            Err(error) => return Err(error),
        };
        let setup = &self.0.core.setup;
        let mut open = lock(&self.0.open);
        let mut state = mailbox.0.lock_state();
        while matches!(&*state, State::Loaded(loaded) if !loaded.in_flight.is_empty()) {
            state = mailbox.0.landed.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
        let above = setup.attic.join(agent.team.as_str());
        setup.files.create_dirs(&above)?;
        let name = format!("{}.{}", agent.agent, mailbox.birth());
        let free = (0..u32::MAX)
            .map(|n| above.join(if n == 0 { name.clone() } else { format!("{name}.{n}") }))
            .find(|path| !setup.files.exists(path));
        let to = free.unwrap_or_else(|| above.join(&name));
        self.0.core.watcher.forget(&mailbox.0);
        setup.files.rename(&mailbox.0.dir, &to)?;
        setup.files.point("mailbox.attic.synced");
        *state = State::Gone;
        open.remove(agent);
        mailbox.0.bump();
        Ok(())
    }

    /// The mailboxes that were used since the start.
    pub fn used(&self) -> Vec<Mailbox> {
        self.0.all().into_iter().map(|inner| Mailbox(inner, Arc::clone(&self.0))).collect()
    }

    /// Whose mailboxes are on disk, by team and name.
    pub fn list(&self) -> Result<Vec<AgentId>, MailboxError> {
        let setup = &self.0.core.setup;
        let mut agents = Vec::new();
        for team in setup.files.list(&setup.dir)? {
            let Some(team) = team.to_str().and_then(|name| TeamName::new(name).ok()) else { continue };
            for agent in setup.files.list(&setup.dir.join(team.as_str()))? {
                let Some(agent) = agent.to_str().and_then(|name| AgentName::new(name).ok()) else { continue };
                let id = AgentId::new(agent, team.clone());
                if setup.files.exists(&self.dir(&id).join(BIRTH)) {
                    agents.push(id);
                }
            }
        }
        agents.sort_by(|a, b| (&a.team, &a.agent).cmp(&(&b.team, &b.agent)));
        Ok(agents)
    }

    /// Drops the indexes that nobody used for a while and that hold no lease. The watcher does it by itself;
    /// answers how many were dropped.
    pub fn drop_idle(&self, idle: Duration) -> usize {
        self.0.drop_idle(idle)
    }

    /// Tells of every message that settles from now on, after it is durable; what finds the queue full is not
    /// told. The first caller only.
    pub fn on_settled(&self, to: mpsc::Sender<Settled>) {
        let _first_one_stays = self.0.core.settled.set(to);
    }

    fn dir(&self, agent: &AgentId) -> PathBuf {
        self.0.core.setup.dir.join(agent.team.as_str()).join(agent.agent.as_str())
    }
}

impl Shared {
    fn drop_idle(&self, idle: Duration) -> usize {
        let now = self.core.setup.clock.boot();
        self.all().iter().filter(|inner| inner.drop_if_idle(now, idle)).count()
    }

    fn all(&self) -> Vec<Arc<Inner>> {
        lock(&self.open).values().cloned().collect()
    }
}

impl Mailbox {
    /// All mailboxes of the same data directory.
    pub fn mailboxes(&self) -> Mailboxes {
        Mailboxes(Arc::clone(&self.1))
    }

    /// Whose it is.
    pub fn agent(&self) -> &AgentId {
        &self.0.agent
    }

    /// The birth of that agent.
    pub fn birth(&self) -> Birth {
        self.0.birth
    }

    /// Its directory.
    pub fn dir(&self) -> &Path {
        &self.0.dir
    }

    /// A count that rises whenever something becomes ready. Reads the names, so that new files are watched.
    pub fn changes(&self) -> channel::Receiver<u64> {
        if let Err(error) = self.0.with(|_| Ok(())) {
            tracing::warn!(agent = %self.0.agent, %error, "cannot read mailbox");
        }
        self.0.changes.subscribe()
    }
}

impl Inner {
    fn files(&self) -> &Files {
        &self.core.setup.files
    }

    fn limits(&self) -> &Limits {
        &self.core.setup.limits
    }

    fn lock_state(&self) -> MutexGuard<'_, State> {
        lock(&self.state)
    }

    fn tell_settled(&self, ids: impl Iterator<Item = MessageId>, stage: Stage) {
        if let Some(settled) = self.core.settled.get() {
            for id in ids {
                let _asked_for_later = settled.try_send(Settled { id, stage });
            }
        }
    }

    fn bump(&self) {
        self.changes.send_modify(|count| *count = count.wrapping_add(1));
    }

    /// Works on the names, which are read first where they are not in memory, and watched from then on.
    fn with<T>(&self, work: impl FnOnce(&mut Loaded) -> Result<T, MailboxError>) -> Result<T, MailboxError> {
        let mut state = self.lock_state();
        if matches!(*state, State::Cold) {
            let news = self.watch();
            *state = State::Loaded(Box::new(self.load(news)?));
        }
        let loaded = self.loaded(&mut state)?;
        if loaded.news == News::NotAsked {
            // The watch first, so that no file is missed in between.
            loaded.news = self.watch();
            self.rescan(loaded)?;
        }
        work(loaded)
    }

    fn watch(&self) -> News {
        if self.core.watcher.watch(&self.dir.join(READY), self.me.clone()) {
            News::Watched
        } else {
            News::Unwatchable
        }
    }

    /// The names, for a delivery: read where they are not in memory, but not watched.
    fn loaded<'s>(&self, state: &'s mut State) -> Result<&'s mut Loaded, MailboxError> {
        if matches!(state, State::Cold) {
            *state = State::Loaded(Box::new(self.load(News::NotAsked)?));
        }
        match state {
            State::Loaded(loaded) => {
                loaded.used = self.core.setup.clock.boot();
                Ok(loaded)
            }
            State::Cold | State::Gone => Err(MailboxError::NotFound { agent: self.agent.clone() }),
        }
    }

    fn drop_if_idle(&self, now: Duration, idle: Duration) -> bool {
        let Ok(mut state) = self.state.try_lock() else { return false };
        let State::Loaded(loaded) = &*state else { return false };
        let held = loaded.held.values().any(|name| name.holder == Some(self.core.setup.incarnation));
        let quiet = now.saturating_sub(loaded.used) >= idle;
        if held || !quiet || !loaded.in_flight.is_empty() || !loaded.busy.is_empty() {
            return false;
        }
        *state = State::Cold;
        true
    }

    /// A name in `tmp/` that nobody else uses: incarnation, process and a count.
    fn tmp_path(&self) -> PathBuf {
        let count = self.core.tmp.fetch_add(1, Ordering::Relaxed);
        let incarnation = self.core.setup.incarnation.0;
        self.dir.join(TMP).join(format!("{incarnation:x}-{}-{count}", std::process::id()))
    }

    fn path(&self, state: &str, name: &FileName) -> PathBuf {
        self.dir.join(state).join(name.to_string())
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
