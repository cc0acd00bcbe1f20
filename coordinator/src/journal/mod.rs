//! The journal: the log of decisions that the coordinator's state is a fold of.
//!
//! What [`Journal::append`] returned for is durable; what it failed for does not count. A torn end is healed
//! when the journal is loaded; anything else that does not chain is an error that names the place, never a
//! shorter journal.

mod entry;
mod files;
mod snapshot;

use std::path::PathBuf;

use posthouse_shared::codes::Code;
use posthouse_shared::durable::DurableError;
use posthouse_shared::refusal::Refusal;

pub use entry::{Entry, Head, Record, RequestMark, VERSION};
pub use files::FilesJournal;
pub use snapshot::Snapshot;

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
}

impl JournalError {
    /// As a refusal for users.
    pub fn refusal(&self) -> Refusal {
        let refusal = match self {
            Self::Disk(error) => error.refusal(),
            Self::Broken { file, .. } => Refusal::new(Code::JournalBroken, self.to_string())
                .next(format!("restore {} from a copy", file.display())),
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

/// A log of chained decisions. One writer; the contract suite in `tests/journal_contract.rs` holds every
/// implementation to the same behaviour.
pub trait Journal: Send {
    /// Reads what is there, checks that it chains, and heals a torn end. Called once, before the first append.
    fn load(&mut self) -> Result<Loaded, JournalError>;

    /// Appends records that follow the end, as one synced write: durable at return, all of them. On an error
    /// none of them counts, and the next append begins where this one did.
    fn append(&mut self, records: &[Record]) -> Result<(), JournalError>;

    /// Keeps a snapshot of the state at the journal's end, durable at return, so that later loads begin
    /// there. Entries that an older kept snapshot covers may be dropped.
    fn snapshot(&mut self, snapshot: &Snapshot) -> Result<(), JournalError>;
}
