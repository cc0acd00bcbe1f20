//! The relay: outbox -> link -> mailbox of the other host, and what that host says back. Nothing is believed of
//! the link; a message leaves the outbox only when the other host has said `done` under its own signature.
//!
//! | file | what it does |
//! |---|---|
//! | `send` | publishes what is due, asks about what is not done, hears receipts |
//! | `receive` | stores what arrives, always acknowledges, answers questions |
//! | `judge` | whose message it is, and whether it is for here |
//! | `follow` | what a change of the directory means for what waits |

mod follow;
mod judge;
mod receive;
mod send;

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use posthouse_shared::clock::Clock;
use posthouse_shared::durable::Files;
use posthouse_shared::limits::Limits;
use posthouse_shared::name::{HostName, MessageId};
use posthouse_shared::supervise::Supervisor;
use posthouse_shared::wire::receipts::{Note, Question, Receipt};
use tokio::sync::mpsc;

use crate::directory::Directory;
use crate::host_keys::{KeptKeys, KeysError};
use crate::link::{HostLink, Link};
use crate::mailbox::{Mailboxes, Settled};
use crate::outbox::Outbox;
use crate::port::AuthorityPort;
use crate::post::Post;
use crate::trace_index::TraceIndex;

/// Settled messages that wait to be told; what finds it full is asked for later.
const SETTLED_QUEUE: usize = 65_536;
/// Messages whose source host is remembered, so that `done` can be told without being asked.
const SOURCES_MAX: usize = 200_000;
/// Receipts and questions in one note: it stays well below a server's `max_payload`.
const NOTE_ENTRIES: usize = 500;

/// What a relay is started with.
pub struct RelayOptions {
    /// The bus, this host's key and generation.
    pub link: HostLink,
    /// What is on its way.
    pub outbox: Outbox,
    /// Where arrivals go.
    pub mailboxes: Mailboxes,
    /// Delivers what turns out to be for here, and keeps the clock.
    pub post: Post,
    /// Who lives where, and the hosts' keys.
    pub directory: Directory,
    /// This host.
    pub host: HostName,
    /// The durable layer.
    pub files: Files,
    /// The data directory: kept keys lie in it.
    pub data: PathBuf,
    /// The limits in force.
    pub limits: Arc<Limits>,
    /// Time.
    pub clock: Arc<dyn Clock>,
    /// Where messages are traced.
    pub trace: TraceIndex,
    /// Who is told of events.
    pub port: Arc<dyn AuthorityPort>,
}

/// The relay.
pub struct Relay;

/// A started relay.
#[derive(Clone)]
pub struct RelayHandle {
    tasks: Supervisor,
    outbox: Outbox,
    link: Arc<dyn Link>,
}

pub(super) struct Shared {
    options: RelayOptions,
    keys: KeptKeys,
    sources: Mutex<Sources>,
}

/// Where stored messages came from; the oldest are forgotten first.
#[derive(Default)]
struct Sources {
    of: HashMap<MessageId, HostName>,
    order: VecDeque<MessageId>,
}

impl Relay {
    /// Starts it: all that is in the outbox goes out, and what arrives is stored. The keys of hosts whose mail is
    /// stored here are remembered by the directory at return.
    pub fn start(options: RelayOptions) -> Result<RelayHandle, KeysError> {
        let keys = KeptKeys::open(&options.files, &options.data, options.directory.hosts())?;
        let (to, settled) = mpsc::channel(SETTLED_QUEUE);
        options.mailboxes.on_settled(to);
        let (outbox, link) = (options.outbox.clone(), Arc::clone(&options.link.link));
        let shared = Arc::new(Shared { options, keys, sources: Mutex::default() });
        let tasks = Supervisor::new();
        tasks.start("relay send", send::run(Arc::clone(&shared), tasks.closing()));
        tasks.start("relay receive", receive::run(Arc::clone(&shared), tasks.closing()));
        tasks.start("relay follow", follow::run(Arc::clone(&shared), tasks.closing()));
        tasks.start("relay settled", tell_settled(shared, settled, tasks.closing()));
        Ok(RelayHandle { tasks, outbox, link })
    }
}

impl RelayHandle {
    /// Ends it: for `drain` it goes on, until the bus has taken all that it never took; the rest waits on disk, as
    /// does all until it is done. Then `grace` to end. Where the bus is away nothing is waited for. Answers whether it
    /// ended by itself.
    pub async fn close(&self, drain: Duration, grace: Duration) -> bool {
        if self.link.state().borrow().up {
            let _rest_waits_on_disk = tokio::time::timeout(drain, self.outbox.drained()).await;
        }
        self.tasks.close(grace).await
    }

    /// What is on its way.
    pub fn outbox(&self) -> &Outbox {
        &self.outbox
    }
}

impl Shared {
    fn came_from(&self, id: MessageId, host: &HostName) {
        let mut sources = self.sources.lock().unwrap_or_else(PoisonError::into_inner);
        if sources.of.insert(id, host.clone()).is_none() {
            sources.order.push_back(id);
        }
        if sources.order.len() > SOURCES_MAX
            && let Some(oldest) = sources.order.pop_front()
        {
            sources.of.remove(&oldest);
        }
    }

    fn source(&self, id: MessageId) -> Option<HostName> {
        self.sources.lock().unwrap_or_else(PoisonError::into_inner).of.get(&id).cloned()
    }

    /// Sends words and questions, in signed notes. They may be lost.
    async fn tell(&self, to: &HostName, receipts: Vec<Receipt>, questions: Vec<Question>) {
        let HostLink { link, key, .. } = &self.options.link;
        let (mut receipts, mut questions) = (receipts.into_iter(), questions.into_iter());
        loop {
            let note = Note {
                v: 1,
                from: self.options.host.clone(),
                to: to.clone(),
                receipts: receipts.by_ref().take(NOTE_ENTRIES).collect(),
                questions: questions.by_ref().take(NOTE_ENTRIES).collect(),
            };
            if note.receipts.is_empty() && note.questions.is_empty() {
                return;
            }
            if let Err(error) = link.tell(to, &self.options.host, note.seal(key)).await {
                tracing::debug!(%to, %error, "note is lost");
            }
        }
    }
}

/// Tells senders what became of their mail, as it settles.
async fn tell_settled(
    shared: Arc<Shared>,
    mut settled: mpsc::Receiver<Settled>,
    mut closing: posthouse_shared::supervise::Closing,
) {
    let mut batch = Vec::new();
    loop {
        tokio::select! {
            () = closing.wait() => return,
            got = settled.recv_many(&mut batch, NOTE_ENTRIES) => if got == 0 { return },
        }
        let mut by_host: BTreeMap<HostName, Vec<Receipt>> = BTreeMap::new();
        for Settled { id, stage } in batch.drain(..) {
            if let Some(host) = shared.source(id) {
                by_host.entry(host).or_default().push(Receipt { id, word: receive::word(stage) });
            }
        }
        for (host, receipts) in by_host {
            shared.tell(&host, receipts, Vec::new()).await;
        }
    }
}
