//! The journal of a cluster: the stream `PH_JOURNAL`, and a synced copy of it in the data directory.
//!
//! A message of the stream carries the entries of one append, one a line, so an append is there whole or not at
//! all. Entries have their own index and chain by hash; a message that does not chain to what stands before it
//! is void. The stream's sequence is used for one thing only: to append at the end that was read.
//!
//! # Steps of an append, and what a crash after each leaves
//!
//! | after | stream | copy | who starts next |
//! |---|---|---|---|
//! | nothing | - | - | nothing happened; the asker got no answer |
//! | 1. the server has it | entry | - | reads the entry, brings the copy along: it counts, the asker asks again with its request id and gets the first answer |
//! | 2. the copy is synced | entry | entry | as above |
//! | 3. it is answered | entry | entry | as above |
//! | 1, then the stream loses its tail | - | - | nothing happened; nobody was answered |
//! | 3, then the stream loses its tail | - | entry | the copy is the better one: its entries are appended again before anyone leads |
//! | 3, then stream and copy are gone | - | - | hosts' beats carry the highest entry; below it nobody leads, but for an explicit accept-loss |
//!
//! The copy never runs ahead of the stream by itself, so two copies can differ only where a stream that had lost
//! its tail was led without the best copy. Such a fork is an error that names both; nothing is thrown away.
//!
//! # Unknown outcomes
//!
//! Where the server does not answer, or says that the end is another, the message at expected + 1 is read: the
//! same bytes, it landed; others, another leader is there and this one is fenced for good; none, it is tried
//! again, at the same place, for [`GIVE_UP`]. After that the append is [`JournalError::Unknown`] and stays
//! *pending*: it may land yet, so nothing else is appended in its stead unless the place is free, and
//! [`Journal::catch_up`] tells whether it did.

use std::path::PathBuf;
use std::time::{Duration, Instant};

use bytes::Bytes;
use posthouse_shared::generation::Generation;
use tokio::runtime::Handle;

use super::entry::{Head, Record};
use super::files::FilesJournal;
use super::snapshot::Snapshot;
use super::stream::{Appended, BLOCK, Stream, StreamError};
use super::{Journal, JournalError, Loaded};

/// So long an append is tried before its outcome is left unknown.
const GIVE_UP: Duration = Duration::from_secs(6);
/// Between two tries.
const PAUSE: Duration = Duration::from_millis(100);
/// Most bytes of one message; a NATS server takes 1 MiB by default.
const MESSAGE_BYTES_MAX: usize = 960 * 1024;
/// An append is closed once it is so long, which leaves room for one more decision of any size.
const GROUP_BYTES: usize = 512 * 1024;

/// What a cluster's journal is made of.
#[derive(Debug)]
pub struct ClusterOptions {
    /// The stream.
    pub stream: Stream,
    /// The copy.
    pub local: FilesJournal,
    /// Drives the connection. The journal itself is used from a thread outside of it.
    pub runtime: Handle,
    /// Whether an empty stream may be begun without a copy.
    pub init: bool,
    /// The highest entry that hosts' beats carry.
    pub seen: Generation,
    /// Leads below `seen` all the same: those decisions are lost.
    pub accept_loss: bool,
    /// Copies of the stream, where it is made.
    pub replicas: usize,
}

/// See the module.
#[derive(Debug)]
pub struct ClusterJournal {
    options: ClusterOptions,
    head: Head,
    /// The stream's last sequence, as this journal knows it.
    last: u64,
    /// The last sequence of the subject of a term.
    of_term: Option<(u64, u64)>,
    pending: Option<Pending>,
    ended: bool,
}

#[derive(Debug, Clone)]
struct Pending {
    records: Vec<Record>,
    text: Bytes,
}

enum Place {
    Ours,
    Free,
    Other,
    Lost,
}

/// The stream as it was found.
struct Found {
    /// What its first entry follows.
    base: Head,
    records: Vec<Record>,
    last: u64,
}

impl Found {
    fn head(&self) -> Head {
        self.records.last().map_or_else(|| self.base.clone(), Record::head)
    }
}

fn text_of(records: &[Record]) -> Bytes {
    let lines: Vec<&[u8]> = records.iter().map(|record| record.line.as_slice()).collect();
    lines.join(&b'\n').into()
}

/// The entries of a message that chain to each other; nothing where it is void by itself.
fn parse(text: &[u8]) -> Option<Vec<Record>> {
    let mut records: Vec<Record> = Vec::new();
    for line in text.split(|byte| *byte == b'\n') {
        let record = Record::read(line).ok()?;
        if records.last().is_some_and(|before| record.follows(&before.head()).is_err()) {
            return None;
        }
        records.push(record);
    }
    Some(records)
}

/// Whether a message holds the entry at `head`, or the one right after it.
fn touches(records: &[Record], head: &Head) -> bool {
    records.first().is_some_and(|first| first.follows(head).is_ok())
        || records.iter().any(|record| record.hash == head.hash)
}

/// Messages in order, folded into one chain that begins at `base`; what does not chain is void.
fn chain(base: Head, messages: Vec<Vec<Record>>) -> Vec<Record> {
    let (mut head, mut chained) = (base, Vec::new());
    for records in messages {
        let rest: Vec<Record> = match records.iter().position(|record| record.hash == head.hash) {
            Some(at) if chained.is_empty() => records.into_iter().skip(at + 1).collect(),
            _other => records,
        };
        let Some((first, last)) = rest.first().zip(rest.last()) else { continue };
        if let Err(what) = first.follows(&head) {
            tracing::warn!(entry = %first.entry.generation(), what, "void entries in the stream of the journal");
            continue;
        }
        head = last.head();
        chained.extend(rest);
    }
    chained
}

/// Consecutive entries of one term each, none longer than a message may be.
fn messages_of(records: &[Record]) -> Vec<&[Record]> {
    let mut bytes = 0;
    let parts = records.chunk_by(move |before, after| {
        bytes += before.line.len() + 1;
        let goes_on = before.entry.term == after.entry.term && bytes + after.line.len() <= GROUP_BYTES;
        if !goes_on {
            bytes = 0;
        }
        goes_on
    });
    parts.collect()
}

impl ClusterJournal {
    /// Over a stream and a copy. Reads nothing yet.
    pub fn new(options: ClusterOptions) -> Self {
        Self { options, head: Head::default(), last: 0, of_term: None, pending: None, ended: false }
    }

    fn wait<T>(&self, work: impl Future<Output = T>) -> T {
        self.options.runtime.block_on(work)
    }

    /// Reads the stream from its end back to the entry that the copy ends with, or to its begin.
    fn survey(&self, local: &Head) -> Result<Found, JournalError> {
        let stream = &self.options.stream;
        let (first, last) = match self.wait(stream.bounds()) {
            Err(StreamError::Missing) => {
                self.may_begin(local)?;
                self.wait(stream.make(self.options.replicas))?;
                (1, 0)
            }
            other => other?,
        };
        let mut blocks: Vec<Vec<Vec<Record>>> = Vec::new();
        let (mut to, mut met) = (last, false);
        while to >= first && !met {
            let from = to.saturating_sub(BLOCK - 1).max(first);
            let read = self.wait(stream.read_block(from, to))?;
            let mut block: Vec<Vec<Record>> = Vec::new();
            for (sequence, text) in read {
                match parse(&text) {
                    Some(records) => block.push(records),
                    None => tracing::warn!(sequence, "void message in the stream of the journal"),
                }
            }
            if local.index > 0
                && let Some(at) = block.iter().position(|records| touches(records, local))
            {
                block.drain(..at);
                met = true;
            }
            blocks.push(block);
            to = from - 1;
        }
        let messages: Vec<Vec<Record>> = blocks.into_iter().rev().flatten().collect();
        let base = match messages.first().and_then(|records| records.first()) {
            _ if met => local.clone(),
            None => Head::default(),
            Some(first) => {
                Head { index: first.entry.index.saturating_sub(1), term: 0, hash: first.entry.prev.clone() }
            }
        };
        Ok(Found { records: chain(base.clone(), messages), base, last })
    }

    fn may_begin(&self, local: &Head) -> Result<(), JournalError> {
        if local.index == 0 && !self.options.init { Err(JournalError::NotBegun) } else { Ok(()) }
    }

    /// What the stream has and the copy lacks; the other way round the stream is mended.
    fn reconcile(&mut self, local: &Head, found: Found) -> Result<Vec<Record>, JournalError> {
        let stream = found.head();
        let follows = found.base == *local;
        if found.last == 0 || stream.index == 0 {
            self.may_begin(local)?;
        }
        if follows && stream.index >= local.index {
            return Ok(found.records);
        }
        let fork = || JournalError::Fork {
            local: Generation::new(local.term, local.index),
            stream: Generation::new(stream.term, stream.index),
        };
        if local.index < stream.index {
            return Err(if found.base.index > local.index {
                JournalError::TooOld { local: local.index, first: found.base.index + 1 }
            } else {
                fork()
            });
        }
        // The copy goes further, or the stream is empty: does it go through the stream's end?
        let ours = self.options.local.read_after(stream.index.saturating_sub(1))?;
        let same = stream.index == 0 || ours.iter().any(|record| record.hash == stream.hash);
        if !same {
            return Err(fork());
        }
        let missing: Vec<Record> =
            ours.into_iter().filter(|record| record.entry.index > stream.index).collect();
        tracing::warn!(
            entries = missing.len(),
            from = stream.index + 1,
            to = local.index,
            "the stream of the journal lacks what the copy here has; it is appended again"
        );
        for part in messages_of(&missing) {
            let pending = Pending { text: text_of(part), records: part.to_vec() };
            self.publish(&pending)?;
        }
        Ok(Vec::new())
    }

    /// Step 1, until its outcome is known or [`GIVE_UP`] has passed.
    fn publish(&mut self, pending: &Pending) -> Result<(), JournalError> {
        let began = Instant::now();
        loop {
            let why = match self.publish_once(pending)? {
                None => return Ok(()),
                Some(why) => why,
            };
            if began.elapsed() >= GIVE_UP {
                return Err(JournalError::Unknown(why));
            }
            std::thread::sleep(PAUSE);
        }
    }

    /// `None` where it landed; otherwise why that is not known.
    fn publish_once(&mut self, pending: &Pending) -> Result<Option<String>, JournalError> {
        let term = pending.records.last().map_or(0, |record| record.entry.term);
        let of_term = match self.of_term {
            Some((known, sequence)) if known == term => sequence,
            _other => match self.wait(self.options.stream.last_of_term(term)) {
                Ok(sequence) => sequence,
                Err(error) => return Ok(Some(error.to_string())),
            },
        };
        let text = pending.text.clone();
        let why = match self.wait(self.options.stream.append(term, text, self.last, of_term)) {
            Appended::Landed(sequence) => {
                self.landed(term, sequence);
                return Ok(None);
            }
            Appended::Gone => return self.end(JournalError::TailLost),
            Appended::Conflict => "the end is another".to_owned(),
            Appended::Unknown(why) => why,
        };
        match self.place(&pending.text) {
            Ok(Place::Ours) => {
                self.landed(term, self.last + 1);
                Ok(None)
            }
            Ok(Place::Other) => self.end(JournalError::Fenced),
            Ok(Place::Lost) => self.end(JournalError::TailLost),
            Ok(Place::Free) => Ok(Some(why)),
            Err(error) => Ok(Some(error.to_string())),
        }
    }

    fn landed(&mut self, term: u64, sequence: u64) {
        self.last = sequence;
        self.of_term = Some((term, sequence));
    }

    fn end<T>(&mut self, error: JournalError) -> Result<T, JournalError> {
        self.ended = true;
        Err(error)
    }

    /// What stands right after the end that this journal knows.
    fn place(&self, text: &Bytes) -> Result<Place, StreamError> {
        let stream = &self.options.stream;
        let read = match self.wait(stream.read(self.last + 1)) {
            Err(StreamError::Missing) => return Ok(Place::Lost),
            other => other?,
        };
        match read {
            Some(there) if there == *text => return Ok(Place::Ours),
            Some(_other) => return Ok(Place::Other),
            None => {}
        }
        match self.wait(stream.bounds()) {
            Err(StreamError::Missing) => Ok(Place::Lost),
            Ok((_, last)) if last < self.last => Ok(Place::Lost),
            Ok(_) => Ok(Place::Free),
            Err(error) => Err(error),
        }
    }

    /// Step 2.
    fn copy(&mut self, records: &[Record]) -> Result<(), JournalError> {
        self.options.local.append(records)?;
        if let Some(last) = records.last() {
            self.head = last.head();
        }
        Ok(())
    }
}

impl Journal for ClusterJournal {
    fn load(&mut self) -> Result<Loaded, JournalError> {
        let mut loaded = self.options.local.load()?;
        let local = loaded.head();
        let found = self.survey(&local)?;
        self.last = found.last;
        // Nothing is written for somebody who may not lead.
        let best = std::cmp::max_by_key(found.head(), local.clone(), |head| (head.term, head.index));
        let best = Generation::new(best.term, best.index);
        if best < self.options.seen && !self.options.accept_loss {
            return Err(JournalError::Behind { best, seen: self.options.seen });
        }
        self.head = local.clone();
        let more = self.reconcile(&local, found)?;
        self.copy(&more)?;
        loaded.records.extend(more);
        Ok(loaded)
    }

    fn append(&mut self, records: &[Record]) -> Result<(), JournalError> {
        let Some(first) = records.first() else { return Ok(()) };
        if self.ended {
            return Err(JournalError::Fenced);
        }
        if first.follows(&self.head).is_err() {
            return Err(JournalError::OutOfOrder { index: first.entry.index, end: self.head.index });
        }
        let text = text_of(records);
        if text.len() > MESSAGE_BYTES_MAX {
            return Err(JournalError::TooLarge { bytes: text.len(), max: MESSAGE_BYTES_MAX });
        }
        if self.pending.is_some() {
            return Err(JournalError::Unknown("an earlier append is not settled".to_owned()));
        }
        let pending = Pending { records: records.to_vec(), text };
        let done = self.publish(&pending);
        if let Err(JournalError::Unknown(why)) = done {
            self.pending = Some(pending);
            return Err(JournalError::Unknown(why));
        }
        done?;
        if let Err(error) = self.copy(records) {
            // It landed, so it counts, but must not be answered before the copy has it.
            self.pending = Some(pending);
            return Err(JournalError::Unknown(error.to_string()));
        }
        Ok(())
    }

    /// An append whose outcome was unknown is settled by putting it there: the place is either its own already,
    /// or free, or somebody else's.
    fn catch_up(&mut self) -> Result<Vec<Record>, JournalError> {
        if self.ended {
            return Err(JournalError::Fenced);
        }
        let Some(pending) = self.pending.clone() else { return Ok(Vec::new()) };
        let (term, last) =
            pending.records.last().map_or((0, 0), |record| (record.entry.term, record.entry.index));
        let ours = self.of_term.is_some_and(|(known, sequence)| known == term && sequence == self.last)
            && matches!(self.wait(self.options.stream.read(self.last)), Ok(Some(there)) if there == pending.text);
        if !ours && let Some(why) = self.publish_once(&pending)? {
            return Err(JournalError::Unknown(why));
        }
        self.copy(&pending.records)?;
        self.pending = None;
        tracing::info!(entry = last, "an append of unknown outcome is settled: it counts");
        Ok(pending.records)
    }

    fn group_bytes(&self) -> usize {
        GROUP_BYTES
    }

    fn snapshot(&mut self, snapshot: &Snapshot) -> Result<(), JournalError> {
        self.options.local.snapshot(snapshot)
    }
}

impl JournalError {
    /// Whether who gets this must stop leading: nothing more can be appended here.
    pub const fn ends_leading(&self) -> bool {
        matches!(self, Self::Fenced | Self::TailLost)
    }

    pub(super) fn missing(file: PathBuf, index: u64) -> Self {
        Self::Broken { file, index, what: "entries before are not kept".to_owned() }
    }
}
