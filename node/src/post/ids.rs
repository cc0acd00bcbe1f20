//! Ids that callers choose: the first content under an id is the one, for ever. What is needed to make the
//! identical envelope again is synced before the message is delivered, so that a retry after a crash fills
//! the same place.

use std::collections::HashMap;
use std::path::Path;
use std::sync::{Condvar, Mutex, PoisonError};

use posthouse_shared::clock::Stamp;
use posthouse_shared::durable::Files;
use posthouse_shared::generation::{Birth, Generation};
use posthouse_shared::message::TraceParent;
use posthouse_shared::name::MessageId;
use serde::{Deserialize, Serialize};

use super::group::{GroupError, GroupLog};

/// What the first use of an id fixed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Chosen {
    pub id: MessageId,
    /// SHA-256 of sender, recipient, kind, body, summary and in_reply_to, in hex.
    pub content: String,
    pub birth: Birth,
    pub generation: Generation,
    pub created_at: Stamp,
    pub seq: u64,
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub control: bool,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub trace: Option<TraceParent>,
}

/// What an id stands for.
pub(super) enum Known {
    /// It was used with this content; here is how.
    Same(Box<Chosen>),
    /// It was used with other content.
    Other,
    /// It is new; whoever got this answer must call [`ChosenIds::settle`].
    New,
}

enum Entry {
    /// Somebody is making the first use at this moment.
    Begun,
    Known(Box<Chosen>),
}

/// All chosen ids of this host.
pub(super) struct ChosenIds {
    ids: Mutex<HashMap<MessageId, Entry>>,
    settled: Condvar,
    log: GroupLog,
}

impl ChosenIds {
    /// Opens the log at `path`.
    pub(super) fn open(files: &Files, path: &Path) -> Result<Self, GroupError> {
        let (log, records) = GroupLog::open::<Chosen>(files, path)?;
        let ids = records.into_iter().map(|chosen| (chosen.id, Entry::Known(Box::new(chosen)))).collect();
        Ok(Self { ids: Mutex::new(ids), settled: Condvar::new(), log })
    }

    /// What an id stands for; waits where its first use is under way.
    pub(super) fn look(&self, id: MessageId, content: &str) -> Known {
        let mut ids = self.ids.lock().unwrap_or_else(PoisonError::into_inner);
        loop {
            match ids.get(&id) {
                None => {
                    ids.insert(id, Entry::Begun);
                    return Known::New;
                }
                Some(Entry::Known(chosen)) if chosen.content == content => {
                    return Known::Same(chosen.clone());
                }
                Some(Entry::Known(_)) => return Known::Other,
                Some(Entry::Begun) => {
                    ids = self.settled.wait(ids).unwrap_or_else(PoisonError::into_inner);
                }
            }
        }
    }

    /// Ends a first use: with the record, which is synced at return, or without one, so that the id is free.
    pub(super) fn settle(&self, id: MessageId, chosen: Option<&Chosen>) -> Result<(), GroupError> {
        let written = match chosen {
            Some(chosen) => self.log.append(chosen),
            None => Ok(()),
        };
        let mut ids = self.ids.lock().unwrap_or_else(PoisonError::into_inner);
        match chosen.filter(|_| written.is_ok()) {
            Some(chosen) => ids.insert(id, Entry::Known(Box::new(chosen.clone()))),
            None => ids.remove(&id),
        };
        drop(ids);
        self.settled.notify_all();
        written
    }
}
