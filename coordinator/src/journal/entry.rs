//! One entry of the journal: a decision, its place in the chain, and the line that stands for it on disk.
//!
//! The last key of a line, `sum`, is the SHA-256 of all before it, and an entry names that of the line before
//! it, so a reader notices whatever was changed, lost or put in between, at the end too. `group` is the index of the first entry of the append that wrote it: an append begins only after
//! the one before it was synced, so an entry proves all earlier groups to have been durable.

use posthouse_shared::clock::Stamp;
use posthouse_shared::generation::Generation;
use posthouse_shared::identity::sha256_hex;
use serde::{Deserialize, Serialize};

use super::JournalError;
use crate::authority::Decision;

/// The version of the entries that are written.
pub const VERSION: u8 = 1;

const SUM_KEY: &[u8] = br#","sum":""#;
const SUM_END: &[u8] = br#""}"#;

/// One decision in the journal.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Entry {
    /// Always [`VERSION`].
    pub v: u8,
    /// Its number; the first is 1.
    pub index: u64,
    /// The term of the leader that wrote it.
    pub term: u64,
    /// Index of the first entry of the same append.
    pub group: u64,
    /// `sum` of the line before; empty for the first entry.
    pub prev: String,
    /// When it was decided, by the leader's clock.
    pub at: Stamp,
    /// The request that it answers, where it can be repeated.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub request: Option<RequestMark>,
    /// What was decided.
    pub decision: Decision,
}

/// A request that can be repeated, as the journal remembers it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct RequestMark {
    /// Who made it, and the id it was given.
    pub key: String,
    /// SHA-256 of its content: the same id with another content is another request.
    pub digest: String,
}

impl Entry {
    /// What this entry grants is known by this.
    pub const fn generation(&self) -> Generation {
        Generation::new(self.term, self.index)
    }
}

/// Where a journal ends: what the next entry must follow.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Head {
    /// Index of the last entry; 0 for none.
    pub index: u64,
    /// Its term.
    pub term: u64,
    /// `sum` of its line; empty for none.
    pub hash: String,
}

/// An entry with the line that stands for it.
#[derive(Debug, Clone, PartialEq)]
pub struct Record {
    /// The entry.
    pub entry: Entry,
    /// Its JSON, without the end of line.
    pub line: Vec<u8>,
    /// Its `sum`.
    pub hash: String,
}

impl Record {
    /// Writes the entry that follows `head`.
    pub fn after(
        head: &Head,
        term: u64,
        group: u64,
        at: Stamp,
        request: Option<RequestMark>,
        decision: Decision,
    ) -> Result<Self, JournalError> {
        let index = head.index.saturating_add(1);
        let entry = Entry { v: VERSION, index, term, group, prev: head.hash.clone(), at, request, decision };
        let mut line = serde_json::to_vec(&entry).map_err(JournalError::Encode)?;
        line.pop();
        let hash = sha256_hex(&line);
        line.extend_from_slice(SUM_KEY);
        line.extend_from_slice(hash.as_bytes());
        line.extend_from_slice(SUM_END);
        Ok(Self { entry, line, hash })
    }

    /// The journal's end after this entry.
    pub fn head(&self) -> Head {
        Head { index: self.entry.index, term: self.entry.term, hash: self.hash.clone() }
    }

    /// Reads a line. `Err` says what is wrong with it.
    pub fn read(line: &[u8]) -> Result<Self, String> {
        let entry: Entry = serde_json::from_slice(line).map_err(|e| e.to_string())?;
        let at = line.len().checked_sub(SUM_KEY.len() + 64 + SUM_END.len()).ok_or("no sum")?;
        let (covered, tail) = line.split_at_checked(at).ok_or("no sum")?;
        let hash = sha256_hex(covered);
        if tail != [SUM_KEY, hash.as_bytes(), SUM_END].concat() {
            return Err("its hash differs".to_owned());
        }
        if entry.v != VERSION {
            return Err(format!("version {}, this build knows {VERSION}", entry.v));
        }
        Ok(Self { entry, line: line.to_vec(), hash })
    }

    /// Whether this record is the one after `head`; says what is wrong where it is not.
    pub fn follows(&self, head: &Head) -> Result<(), String> {
        if self.entry.index != head.index.saturating_add(1) {
            return Err(format!("entry {} stands where {} should", self.entry.index, head.index + 1));
        }
        if self.entry.prev != head.hash {
            return Err("the hash of the entry before differs".to_owned());
        }
        if self.entry.term < head.term {
            return Err(format!("term {} after term {}", self.entry.term, head.term));
        }
        Ok(())
    }
}
