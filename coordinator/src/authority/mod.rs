//! The authority: decides, makes it durable, then lets it be seen.
//!
//! | room | what it holds |
//! |---|---|
//! | [`command`] | commands, decisions, replies |
//! | `decide`, `teams`, `hosts`, `claims`, `schedules` | what may be decided, pure |
//! | [`state`], [`board`], `requests`, `stored` | the fold over what was decided |
//! | [`mail`] | the messages that decisions cause |
//! | `service` | the one loop: a group of decisions, one append, then the answers |
//!
//! [`Authority`] is the handle. There is one loop, on its own thread, and nobody else writes the journal.

pub mod board;
mod claims;
pub mod command;
mod decide;
mod hosts;
pub mod mail;
mod requests;
mod schedules;
mod service;
pub mod state;
mod stored;
mod teams;

use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;

use posthouse_shared::clock::Clock;
use posthouse_shared::codes::Code;
use posthouse_shared::limits::Limits;
use posthouse_shared::refusal::Refusal;
use posthouse_shared::wire::Caller;
use tokio::sync::{broadcast, mpsc, oneshot, watch};

pub use command::{BoardCommand, Command, Decided, Decision, HostChange, HostStart, Lifecycle, Reply};
pub use mail::{From as MailFrom, Outgoing, SYSTEM, mail_of, system_name};
pub use state::{Host, JoinToken, Leader, State, Team};

use crate::journal::{Entry, Journal, JournalError};

/// Entries kept for followers that are behind; one that is further behind starts again from the state.
const FEED: usize = 8_192;
/// When a full queue is worth another try.
const BUSY_RETRY_MS: u64 = 50;

/// What an authority is made of.
pub struct Options {
    /// Where decisions are kept.
    pub journal: Box<dyn Journal>,
    /// The data directory that starts.
    pub start: HostStart,
    /// Takes the data directory in even where that would be refused.
    pub adopt: bool,
    /// The limits in force.
    pub limits: Arc<Limits>,
    /// The time.
    pub clock: Arc<dyn Clock>,
    /// Entries between two snapshots.
    pub snapshot_every: u64,
}

/// Entries between two snapshots, by default.
pub const SNAPSHOT_EVERY: u64 = 10_000;

/// Why there is no authority.
#[derive(Debug, thiserror::Error)]
pub enum AuthorityError {
    /// The journal cannot be read or written.
    #[error("open the journal")]
    Journal(#[from] JournalError),
    /// The snapshot's content is not a state, though its hash is right: another version wrote it.
    #[error("read the state from the journal's snapshot")]
    Snapshot(#[source] serde_json::Error),
    /// The data directory is not taken in.
    #[error("{0}")]
    Refused(Refusal),
    /// The system gives no thread.
    #[error("start the authority's thread")]
    Thread(#[source] std::io::Error),
}

impl AuthorityError {
    /// As a refusal for users.
    pub fn refusal(&self) -> Refusal {
        match self {
            Self::Journal(error) => error.refusal(),
            Self::Refused(refusal) => refusal.clone(),
            Self::Snapshot(error) => Refusal::new(Code::DataForeign, self.to_string()).because(error),
            Self::Thread(error) => Refusal::new(Code::Internal, self.to_string()).because(error),
        }
    }
}

pub(crate) struct Ask {
    pub(crate) caller: Caller,
    pub(crate) command: Command,
    pub(crate) request_id: Option<String>,
    pub(crate) answer: oneshot::Sender<Result<Reply, Refusal>>,
}

pub(crate) enum Job {
    Ask(Box<Ask>),
    Close,
}

/// The handle. Clones share the loop, which ends when the last one is dropped or at [`Authority::close`].
#[derive(Clone)]
pub struct Authority {
    jobs: mpsc::Sender<Job>,
    state: watch::Receiver<Arc<State>>,
    feed: broadcast::Sender<Arc<Entry>>,
    ended: watch::Receiver<bool>,
    thread: Arc<Mutex<Option<JoinHandle<()>>>>,
}

impl std::fmt::Debug for Authority {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Authority(#{})", self.state().head.index)
    }
}

impl Authority {
    /// Loads the journal, heals its end, takes the lead, and starts the loop. Blocks on the disk. When this
    /// returns, the entries `leader` and `host_started` of this start are durable.
    pub fn open(options: Options) -> Result<Self, AuthorityError> {
        let queue = usize::try_from(options.limits.decisions_queue).unwrap_or(1).max(1);
        let (told, ended) = watch::channel(false);
        let service = service::Service::open(options, told)?;
        let (jobs, waiting) = mpsc::channel(queue);
        let (publish, state) = watch::channel(Arc::new(service.state.clone()));
        let (feed, _) = broadcast::channel(FEED);
        let out = feed.clone();
        let thread = std::thread::Builder::new()
            .name("authority".to_owned())
            .spawn(move || service.run(waiting, &publish, &out))
            .map_err(AuthorityError::Thread)?;
        Ok(Self { jobs, state, feed, ended, thread: Arc::new(Mutex::new(Some(thread))) })
    }

    /// Decides. What is answered `Ok` is durable. With a request id a repetition gets the first answer, or is
    /// told that it is superseded. A full queue is refused with `Busy`.
    pub async fn decide(
        &self,
        caller: Caller,
        command: Command,
        request_id: Option<String>,
    ) -> Result<Reply, Refusal> {
        self.ask(caller, command, request_id)?.await.unwrap_or_else(|_| Err(closing()))
    }

    /// [`Authority::decide`] for callers on threads of their own; never inside a runtime.
    pub fn decide_blocking(
        &self,
        caller: Caller,
        command: Command,
        request_id: Option<String>,
    ) -> Result<Reply, Refusal> {
        self.ask(caller, command, request_id)?.blocking_recv().unwrap_or_else(|_| Err(closing()))
    }

    fn ask(
        &self,
        caller: Caller,
        command: Command,
        request_id: Option<String>,
    ) -> Result<oneshot::Receiver<Result<Reply, Refusal>>, Refusal> {
        let (answer, answered) = oneshot::channel();
        let job = Job::Ask(Box::new(Ask { caller, command, request_id, answer }));
        self.jobs.try_send(job).map_err(|error| match error {
            mpsc::error::TrySendError::Full(_) => {
                Refusal::new(Code::Busy, "too many requests wait for the journal")
                    .effect("nothing was changed")
                    .retry_after_ms(BUSY_RETRY_MS)
            }
            mpsc::error::TrySendError::Closed(_) => closing(),
        })?;
        Ok(answered)
    }

    /// All that is decided and durable. Cheap.
    pub fn state(&self) -> Arc<State> {
        self.state.borrow().clone()
    }

    /// Wakes whenever [`Authority::state`] has changed.
    pub fn changes(&self) -> watch::Receiver<Arc<State>> {
        self.state.clone()
    }

    /// Entries from now on, each after the state that holds it was published. A follower that is too far
    /// behind is told so, and starts again from the state.
    pub fn entries(&self) -> broadcast::Receiver<Arc<Entry>> {
        self.feed.subscribe()
    }

    /// Turns true when another coordinator has taken the lead: nothing is decided here any more.
    pub fn ended(&self) -> watch::Receiver<bool> {
        self.ended.clone()
    }

    /// Decides what waits, and ends the loop. Blocks until it has ended.
    pub fn close(&self) {
        let thread = self.thread.lock().unwrap_or_else(PoisonError::into_inner).take();
        let Some(thread) = thread else { return };
        while let Err(mpsc::error::TrySendError::Full(_)) = self.jobs.try_send(Job::Close) {
            std::thread::yield_now();
        }
        if thread.join().is_err() {
            tracing::error!("the authority's thread panicked");
        }
    }
}

fn closing() -> Refusal {
    Refusal::new(Code::ShuttingDown, "the coordinator is closing")
        .effect("it may have been decided; ask again with the same request id")
}
