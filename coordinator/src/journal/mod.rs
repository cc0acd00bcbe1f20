//! The journal: the log of decisions that the coordinator's state is a fold of.
//!
//! What [`Journal::append`] returned for is durable; what it failed for does not count. A torn end is healed
//! when the journal is loaded; anything else that does not chain is an error that names the place, never a
//! shorter journal.

mod cluster;
mod entry;
mod files;
mod snapshot;
mod stream;

use std::path::PathBuf;

use posthouse_shared::codes::Code;
use posthouse_shared::durable::DurableError;
use posthouse_shared::generation::Generation;
use posthouse_shared::refusal::Refusal;

pub use cluster::{ClusterJournal, ClusterOptions};
pub use entry::{Entry, Head, Record, RequestMark, VERSION};
pub use files::FilesJournal;
pub use snapshot::Snapshot;
pub use stream::{Stream, StreamError};

/// When a journal that is away is worth another try.
const RETRY_MS: u64 = 1_000;

/// Why the journal cannot be read or written.
#[derive(Debug, thiserror::Error)]
pub enum JournalError {
    /// The disk refused.
    #[error("write or read the journal")]
    Disk(#[from] DurableError),
    /// An entry that was durable is changed or missing.
    #[error("follow the journal at entry {index} in {file}: {what}")]
    Broken {
        /// Where.
        file: PathBuf,
        /// The entry that should be there.
        index: u64,
        /// What is there instead.
        what: String,
    },
    /// The caller's records do not follow the journal's end: a bug, or another writer.
    #[error("append entry {index} to a journal that ends at {end}")]
    OutOfOrder {
        /// The first of the records.
        index: u64,
        /// The journal's end.
        end: u64,
    },
    /// A decision has no JSON form.
    #[error("encode a journal entry")]
    Encode(#[source] serde_json::Error),
    /// The bus gave no answer that could be used.
    #[error("read the journal of the cluster")]
    Stream(#[from] StreamError),
    /// The append may have landed, or may land yet. [`Journal::catch_up`] tells.
    #[error("append to the journal: not known whether it landed ({0})")]
    Unknown(String),
    /// Another leader has written. Nothing more can be appended here.
    #[error("append to the journal: another coordinator leads")]
    Fenced,
    /// The stream has lost entries that were in it. Nothing is appended before it is mended.
    #[error("append to the journal: its stream has lost its end")]
    TailLost,
    /// The entries are more than one message can carry.
    #[error("append {bytes} bytes to the journal at once, {max} are the most")]
    TooLarge {
        /// Theirs.
        bytes: usize,
        /// The most.
        max: usize,
    },
    /// There is no stream, and no copy that it could be begun from.
    #[error("begin a journal: the stream is empty, and there is no copy of it here")]
    NotBegun,
    /// Hosts have seen a later entry than there is.
    #[error("lead from entry {best}: hosts have seen entry {seen}")]
    Behind {
        /// The last entry that there is.
        best: Generation,
        /// The last one that a host has seen.
        seen: Generation,
    },
    /// Copy and stream went different ways.
    #[error(
        "follow the journal: the copy here ends with {local}, the stream with {stream}, and neither continues the other"
    )]
    Fork {
        /// The copy's end.
        local: Generation,
        /// The stream's end.
        stream: Generation,
    },
    /// The stream begins after the end of the copy.
    #[error("follow the journal: the copy here ends at {local}, the stream begins with entry {first}")]
    TooOld {
        /// The copy's end.
        local: u64,
        /// The stream's first entry.
        first: u64,
    },
}

impl JournalError {
    /// As a refusal for users.
    pub fn refusal(&self) -> Refusal {
        let refusal = match self {
            Self::Disk(error) => error.refusal(),
            Self::Broken { file, .. } => Refusal::new(Code::JournalBroken, self.to_string())
                .next(format!("restore {} from a copy", file.display())),
            Self::Stream(_) | Self::Unknown(_) => {
                let refusal = Refusal::new(Code::BusUnreachable, self.to_string()).retry_after_ms(RETRY_MS);
                if matches!(self, Self::Unknown(_)) {
                    return refusal.effect("it may have been decided; ask again with the same request id");
                }
                refusal
            }
            Self::Fenced | Self::TailLost => {
                Refusal::new(Code::NotLeader, self.to_string()).retry_after_ms(RETRY_MS)
            }
            Self::NotBegun => Refusal::new(Code::JournalBroken, self.to_string())
                .cause("a new cluster looks like this, and one whose journal was wiped"),
            Self::Behind { .. } => Refusal::new(Code::JournalBroken, self.to_string())
                .cause("the stream has lost its end, and a better copy is elsewhere")
                .next("start the coordinator that led last"),
            Self::Fork { .. } | Self::TooOld { .. } => Refusal::new(Code::JournalBroken, self.to_string())
                .next("start the coordinator that led last"),
            Self::TooLarge { bytes, max } => {
                Refusal::new(Code::LimitReached, format!("a decision of {bytes} bytes, {max} are the most"))
            }
            Self::OutOfOrder { .. } | Self::Encode(_) => Refusal::new(Code::Internal, "decide").because(self),
        };
        refusal.effect("nothing was changed")
    }
}

/// What a journal holds: a snapshot, and the entries after it.
#[derive(Debug, Default)]
pub struct Loaded {
    /// The state up to some entry, where one was kept.
    pub snapshot: Option<Snapshot>,
    /// The entries after the snapshot, in order, chained.
    pub records: Vec<Record>,
}

impl Loaded {
    /// Where the journal ends.
    pub fn head(&self) -> Head {
        match (self.records.last(), &self.snapshot) {
            (Some(record), _) => record.head(),
            (None, Some(snapshot)) => snapshot.head.clone(),
            (None, None) => Head::default(),
        }
    }
}

/// A log of chained decisions. One writer; the contract suite in `tests/tests/journal_contract.rs` holds every
/// implementation to the same behaviour.
pub trait Journal: Send {
    /// Reads what is there, checks that it chains, and heals a torn end. Called once, before the first append.
    fn load(&mut self) -> Result<Loaded, JournalError>;

    /// Appends records that follow the end, as one synced write: durable at return, all of them. On an error
    /// none of them counts, and the next append begins where this one did; but for [`JournalError::Unknown`],
    /// after which nothing is appended before [`Journal::catch_up`] has told what became of them.
    fn append(&mut self, records: &[Record]) -> Result<(), JournalError>;

    /// After an append of unknown outcome: what it turned out to have appended. Durable at return.
    fn catch_up(&mut self) -> Result<Vec<Record>, JournalError> {
        Ok(Vec::new())
    }

    /// An append is closed once its lines are so long.
    fn group_bytes(&self) -> usize {
        usize::MAX
    }

    /// Keeps a snapshot of the state at the journal's end, durable at return, so that later loads begin
    /// there. Entries that an older kept snapshot covers may be dropped.
    fn snapshot(&mut self, snapshot: &Snapshot) -> Result<(), JournalError>;
}
