//! The outbox: the sender's own copies of what is on its way to another host, one file a message, kept until
//! that host says `done` (P1). All calls are synchronous; those that write are durable at return, but removals:
//! a copy that comes back after a crash is sent again, and the receiver drops it as a duplicate.
//!
//! ```text
//! DATA/outbox/tmp/      DATA/outbox/<host>/<lane>.<term>.<index>.<seq>.<id>[.handled].json
//! ```
//! `handled`: it was re-addressed from a home that may have handled it.

pub mod lanes;

use std::collections::{BTreeMap, HashMap};
use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use posthouse_shared::clock::Clock;
use posthouse_shared::codes::Code;
use posthouse_shared::durable::{DurableError, Files};
use posthouse_shared::generation::Generation;
use posthouse_shared::lane::{LaneHash, LaneKey};
use posthouse_shared::limits::Limits;
use posthouse_shared::message::{DecodeError, Sealed};
use posthouse_shared::name::{AgentId, HostName, MessageId};
use posthouse_shared::refusal::Refusal;
use tokio::sync::watch;
use uuid::Uuid;

pub use lanes::{Act, Due, Item, OutboxCounts, Pace};

use lanes::Lanes;

const TMP: &str = "tmp";

/// What an outbox refuses, and why.
#[derive(Debug, thiserror::Error)]
pub enum OutboxError {
    /// As many messages are on their way as may be.
    #[error("the outbox is full ({limit} messages, which is the limit)")]
    Full {
        /// The limit.
        limit: usize,
    },
    /// It has no place in a lane.
    #[error("message {id} has no lane")]
    NoLane {
        /// The message.
        id: MessageId,
    },
    /// A record is not a message.
    #[error("read outbox record of {id}")]
    Broken {
        /// The message.
        id: MessageId,
        /// What is wrong.
        source: DecodeError,
    },
    /// The disk.
    #[error(transparent)]
    Durable(#[from] DurableError),
}

impl OutboxError {
    /// As a refusal for users.
    pub fn refusal(&self) -> Refusal {
        match self {
            Self::Full { .. } => {
                Refusal::new(Code::Busy, self.to_string()).effect("nothing was sent").retry_after_ms(1_000)
            }
            Self::NoLane { .. } | Self::Broken { .. } => Refusal::new(Code::Internal, self.to_string()),
            Self::Durable(error) => error.refusal(),
        }
    }
}

/// The outbox of one host. Clones share it.
#[derive(Clone)]
pub struct Outbox(Arc<Inner>);

struct Inner {
    files: Files,
    dir: PathBuf,
    limits: Arc<Limits>,
    clock: Arc<dyn Clock>,
    lanes: Mutex<Lanes>,
    /// Whose lane it is, as far as a record was seen.
    recipients: Mutex<HashMap<LaneHash, AgentId>>,
    changes: watch::Sender<u64>,
    /// Rises with what the bus takes.
    published: watch::Sender<u64>,
    tmp: AtomicU64,
}

impl Outbox {
    /// Opens `DATA/outbox` (made where it is not there) and reads its names: all that is there is due.
    pub fn open(
        files: Files,
        dir: PathBuf,
        limits: Arc<Limits>,
        clock: Arc<dyn Clock>,
        pace: Pace,
    ) -> Result<Self, OutboxError> {
        files.create_dirs(&dir.join(TMP))?;
        for name in files.list(&dir.join(TMP))? {
            files.remove_unsynced(&dir.join(TMP).join(name))?;
        }
        let mut lanes = Lanes::new(pace);
        let now = clock.boot();
        for host in files.list(&dir)? {
            let Some(host) = host.to_str().and_then(|name| HostName::new(name).ok()) else { continue };
            if host.as_str() == TMP {
                continue;
            }
            files.visit(&dir.join(host.as_str()), &mut |name| match parse(name, &host) {
                Some(item) => {
                    lanes.add(item, true, now);
                }
                None => tracing::warn!(?name, %host, "foreign file in the outbox"),
            })?;
        }
        Ok(Self(Arc::new(Inner {
            files,
            dir,
            limits,
            clock,
            lanes: Mutex::new(lanes),
            recipients: Mutex::default(),
            changes: watch::Sender::new(0),
            published: watch::Sender::new(0),
            tmp: AtomicU64::new(0),
        })))
    }

    /// Takes a message for `host`; answers whether it was new. Synced at return.
    pub fn put(&self, host: &HostName, sealed: &Sealed) -> Result<bool, OutboxError> {
        let inner = &self.0;
        let envelope = &sealed.envelope;
        let id = envelope.id;
        let (Some(lane), Some(at)) = (envelope.lane_key(), envelope.lane) else {
            return Err(OutboxError::NoLane { id });
        };
        let limit = usize::try_from(inner.limits.ready_per_mailbox).unwrap_or(usize::MAX);
        {
            let lanes = inner.lock();
            if lanes.get(id).is_some() {
                return Ok(false);
            }
            if lanes.len() >= limit {
                return Err(OutboxError::Full { limit });
            }
        }
        let item = Item { id, lane, seq: at.seq, host: host.clone(), handled: false };
        inner.files.create_dirs(&inner.dir.join(host.as_str()))?;
        let count = inner.tmp.fetch_add(1, Ordering::Relaxed);
        let tmp = inner.dir.join(TMP).join(count.to_string());
        inner.recipients().entry(lane.lane).or_insert_with(|| envelope.recipient());
        inner.files.point("outbox.put.begin");
        inner.files.place(&tmp, &inner.path(&item), &sealed.bytes)?;
        inner.files.point("outbox.put.synced");
        let new = inner.lock().add(item, false, inner.clock.boot());
        inner.bump();
        Ok(new)
    }

    /// The record of a message; nothing where it has ended meanwhile.
    pub fn read(&self, item: &Item) -> Result<Option<Sealed>, OutboxError> {
        let inner = &self.0;
        let Some(bytes) = inner.files.read_if_there(&inner.path(item), inner.limits.envelope_bytes)? else {
            return Ok(None);
        };
        let decoded = Sealed::decode_unchecked(bytes, &inner.limits);
        let sealed = decoded.map_err(|source| OutboxError::Broken { id: item.id, source })?;
        inner.recipients().entry(item.lane.lane).or_insert_with(|| sealed.envelope.recipient());
        Ok(Some(sealed))
    }

    /// Ends a message: it is done, or ended for good. Not synced: see above.
    pub fn remove(&self, id: MessageId) -> Result<Option<Item>, OutboxError> {
        let inner = &self.0;
        let item = inner.lock().remove(id, inner.clock.boot());
        if let Some(item) = &item {
            inner.files.remove_unsynced(&inner.path(item))?;
            inner.files.point("outbox.removed");
            inner.bump();
        }
        Ok(item)
    }

    /// The same for a message that the other host will never have: those above it in its lane are seen to at once.
    pub fn end(&self, id: MessageId) -> Result<Option<Item>, OutboxError> {
        let inner = &self.0;
        let item = inner.lock().end(id, inner.clock.boot());
        if let Some(item) = &item {
            inner.files.remove_unsynced(&inner.path(item))?;
            inner.files.point("outbox.ended");
            inner.bump();
        }
        Ok(item)
    }

    /// Its recipient lives elsewhere now. Durable at return.
    pub fn readdress(&self, item: &Item, host: &HostName) -> Result<(), OutboxError> {
        let inner = &self.0;
        let Some(to) = inner.lock().readdressed(item.id, host.clone()) else { return Ok(()) };
        inner.files.create_dirs(&inner.dir.join(host.as_str()))?;
        inner.files.point("outbox.readdress.begin");
        inner.files.rename(&inner.path(item), &inner.path(&to))?;
        inner.files.point("outbox.readdressed");
        inner.lock().readdress(to, inner.clock.boot());
        inner.bump();
        Ok(())
    }

    /// The homes of recipients have changed: what goes to another than `home` says is seen to at once.
    pub fn moved(&self, home: impl Fn(&AgentId) -> Option<HostName>) {
        let inner = &self.0;
        let destinations = inner.lock().destinations();
        let recipients = inner.recipients().clone();
        let mut hurried = false;
        for (lane, host) in destinations {
            if recipients.get(&lane).is_some_and(|to| home(to).as_ref() != Some(&host)) {
                inner.lock().hurry(lane, inner.clock.boot());
                hurried = true;
            }
        }
        if hurried {
            inner.bump();
        }
    }

    /// The other host has stored it; answers whether that is news.
    pub fn stored(&self, id: MessageId) -> bool {
        let news = self.0.lock().stored(id, self.0.clock.boot());
        if news {
            self.0.bump();
        }
        news
    }

    /// The other host cannot take it now: again after a pause that grows, `pause` at least.
    pub fn busy(&self, id: MessageId, pause: Duration) {
        self.0.lock().busy(id, self.0.clock.boot() + pause);
        self.0.bump();
    }

    /// The other host does not have it: again, after `pause`.
    pub fn again(&self, id: MessageId, pause: Duration) {
        self.0.lock().again(id, self.0.clock.boot() + pause);
        self.0.bump();
    }

    /// What the bus said to a try.
    pub fn published(&self, id: MessageId, taken: bool) {
        self.0.lock().published(id, taken);
        if taken {
            self.0.published.send_modify(|count| *count = count.wrapping_add(1));
        }
    }

    /// The bus is back.
    pub fn reconnected(&self) {
        self.0.lock().reconnected(self.0.clock.boot());
        self.0.bump();
    }

    /// What is due now, at most `max`.
    pub fn due(&self, max: usize) -> Vec<Due> {
        self.0.lock().due(self.0.clock.boot(), max, &mut jitter)
    }

    /// How long until something is due; nothing where nothing is on its way.
    pub fn next_in(&self) -> Option<Duration> {
        let next = self.0.lock().next();
        next.map(|at| at.saturating_sub(self.0.clock.boot()))
    }

    /// Where it goes, while it is not done.
    pub fn get(&self, id: MessageId) -> Option<Item> {
        self.0.lock().get(id).cloned()
    }

    /// How much is on its way.
    pub fn counts(&self) -> OutboxCounts {
        self.0.lock().counts(self.0.clock.boot())
    }

    /// How many messages the bus has never taken since the start.
    pub fn unpublished(&self) -> usize {
        self.0.lock().unpublished()
    }

    /// How much is on its way to each host, and since when. Looks at everything.
    pub fn by_host(&self) -> BTreeMap<HostName, OutboxCounts> {
        self.0.lock().by_host(self.0.clock.boot())
    }

    /// How many messages are on their way to each recipient. A lane of an earlier start counts once its first record
    /// was read, which is tried at the start.
    pub fn by_recipient(&self) -> BTreeMap<AgentId, usize> {
        let lanes = self.0.lock().by_lane();
        let recipients = self.0.recipients();
        let mut counts: BTreeMap<AgentId, usize> = BTreeMap::new();
        for (lane, count) in lanes {
            if let Some(to) = recipients.get(&lane) {
                *counts.entry(to.clone()).or_default() += count;
            }
        }
        counts
    }

    /// Bumps whenever something changes.
    pub fn changes(&self) -> watch::Receiver<u64> {
        self.0.changes.subscribe()
    }

    /// Until the bus has taken everything once. Cancel-safe.
    pub async fn drained(&self) {
        let (mut changes, mut published) = (self.changes(), self.0.published.subscribe());
        while self.unpublished() > 0 {
            tokio::select! {
                _ = changes.changed() => {}
                _ = published.changed() => {}
            }
        }
    }

    /// Its directory.
    pub fn dir(&self) -> &Path {
        &self.0.dir
    }
}

impl Inner {
    fn lock(&self) -> MutexGuard<'_, Lanes> {
        self.lanes.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn recipients(&self) -> MutexGuard<'_, HashMap<LaneHash, AgentId>> {
        self.recipients.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn bump(&self) {
        self.changes.send_modify(|count| *count = count.wrapping_add(1));
    }

    fn path(&self, item: &Item) -> PathBuf {
        let LaneKey { lane, epoch } = item.lane;
        let id = item.id.0.as_simple();
        let handled = if item.handled { ".handled" } else { "" };
        let name = format!("{:016x}.{}.{}.{}.{id}{handled}.json", lane.0, epoch.term, epoch.index, item.seq);
        self.dir.join(item.host.as_str()).join(name)
    }
}

fn parse(name: &OsStr, host: &HostName) -> Option<Item> {
    let mut parts = name.to_str()?.strip_suffix(".json")?.split('.');
    let lane = LaneHash(u64::from_str_radix(parts.next()?, 16).ok()?);
    let epoch = Generation::new(parts.next()?.parse().ok()?, parts.next()?.parse().ok()?);
    let seq = parts.next()?.parse().ok()?;
    let id = MessageId(Uuid::parse_str(parts.next()?).ok()?);
    let handled = match parts.next() {
        None => false,
        Some("handled") => true,
        Some(_) => return None,
    };
    Some(Item { id, lane: LaneKey { lane, epoch }, seq, host: host.clone(), handled })
}

/// Between 0 and 1; a fresh id's bits are random enough to keep hosts apart.
fn jitter() -> f64 {
    f64::from(Uuid::new_v4().as_fields().0) / f64::from(u32::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;
    use posthouse_shared::clock::{Stamp, SystemClock};
    use posthouse_shared::identity::HostKey;
    use posthouse_shared::lane::LanePosition;
    use posthouse_shared::message::{Destination, Envelope, Kind, Origin, VERSION};

    fn open(dir: &Path) -> Outbox {
        let clock = Arc::new(SystemClock);
        Outbox::open(Files::real(), dir.join("outbox"), Arc::default(), clock, Pace::default()).unwrap()
    }

    fn sealed(seq: u64) -> Sealed {
        let generation = Generation::new(1, 1);
        let host = HostName::new("alpha").unwrap();
        let envelope = Envelope {
            v: VERSION,
            id: MessageId::derived(&["m", &seq.to_string()]),
            team: "main".parse().unwrap(),
            from: Origin { agent: "lead".parse().unwrap(), host, generation },
            to: Destination { agent: "scout".parse().unwrap(), birth: generation },
            kind: Kind::Message,
            created_at: Stamp::default(),
            lane: Some(LanePosition { seq, control: false }),
            in_reply_to: None,
            summary: None,
            body: Some("x".to_owned()),
            blob: None,
            trace: None,
        };
        envelope.seal_for_others(&HostKey::generate(), &Limits::default()).unwrap()
    }

    #[test]
    fn what_was_put_is_there_after_a_restart_until_it_is_removed() {
        let dir = tempfile::tempdir().unwrap();
        let (beta, gamma) = (HostName::new("beta").unwrap(), HostName::new("gamma").unwrap());
        let outbox = open(dir.path());
        for seq in [1, 2, 3] {
            assert!(outbox.put(&beta, &sealed(seq)).unwrap());
            assert!(!outbox.put(&beta, &sealed(seq)).unwrap());
        }
        let second = outbox.get(sealed(2).envelope.id).unwrap();
        outbox.readdress(&second, &gamma).unwrap();
        outbox.remove(sealed(1).envelope.id).unwrap();
        let outbox = open(dir.path());
        let due = outbox.due(10);
        let seen: Vec<_> = due.iter().map(|due| (due.item.seq, due.item.host.as_str(), due.after)).collect();
        assert_eq!(seen, [(2, "gamma", None), (3, "beta", Some(2))]);
        assert_eq!(outbox.read(&due[0].item).unwrap().unwrap().envelope, sealed(2).envelope);
        assert_eq!(outbox.counts().unstored, 2);
        assert_eq!(outbox.by_recipient().into_values().collect::<Vec<_>>(), [2]);
        // What was in the outbox before a restart may have been sent.
        outbox.readdress(&due[1].item, &gamma).unwrap();
        let outbox = open(dir.path());
        assert!(outbox.get(sealed(3).envelope.id).unwrap().handled);
        let mut hosts = outbox.by_host();
        assert_eq!((hosts.remove(&gamma).unwrap().unstored, hosts.len()), (2, 0));
    }
}
