//! Where each message has been, and when: id -> steps, in sled. A convenience: it may be lost, and then the
//! mailboxes still tell where a message is. Nothing promised rests on it, and its failures stop nothing.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use posthouse_shared::clock::Stamp;
use posthouse_shared::message::{Kind, Sealed};
use posthouse_shared::name::{HostName, MessageId};
use posthouse_shared::wire::replies::Stage;
use serde::{Deserialize, Serialize};
use uuid::Uuid;

/// Messages that are remembered; the oldest ids go first.
const MESSAGES_MAX: u64 = 200_000;
const DROPPED_AT_ONCE: usize = 20_000;
/// Steps of one message: a poison message goes round a few times only.
const STEPS_MAX: usize = 64;
const CACHE_BYTES: u64 = 16 * 1024 * 1024;

/// The index. Clones share it.
#[derive(Clone)]
pub struct TraceIndex(Option<Arc<Inner>>);

struct Inner {
    db: sled::Db,
    messages: AtomicU64,
}

/// One step of a message.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct TraceNote {
    /// When.
    pub at: Stamp,
    /// What.
    pub stage: Stage,
    /// More, for people.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub detail: String,
    /// Where, if it was on another host.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub host: Option<HostName>,
}

/// What is remembered of a message.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Traced {
    /// Its id.
    pub id: MessageId,
    /// What it is for.
    pub kind: Kind,
    /// The sender with its team.
    pub from: String,
    /// The recipient with its team.
    pub to: String,
    /// Its number in its lane.
    pub lane: Option<u64>,
    /// Its encoded size.
    pub bytes: u64,
    /// Its W3C trace id.
    pub trace_id: Option<String>,
    /// Step by step.
    pub steps: Vec<TraceNote>,
}

/// The index cannot be opened, not even an empty one.
#[derive(Debug, thiserror::Error)]
#[error("open trace index {path}")]
pub struct TraceIndexError {
    path: PathBuf,
    source: sled::Error,
}

impl TraceIndex {
    /// Opens the index in `path`. One that cannot be read is put aside (`<path>.broken`) and begun anew.
    pub fn open(path: &Path) -> Result<Self, TraceIndexError> {
        let open = || sled::Config::new().path(path).cache_capacity(CACHE_BYTES).open();
        let db = match open() {
            Ok(db) => db,
            Err(error) => {
                tracing::warn!(path = %path.display(), %error, "trace index is not readable; it begins anew");
                put_aside(path);
                open().map_err(|source| TraceIndexError { path: path.to_owned(), source })?
            }
        };
        let messages = AtomicU64::new(u64::try_from(db.len()).unwrap_or(u64::MAX));
        Ok(Self(Some(Arc::new(Inner { db, messages }))))
    }

    /// An index that remembers nothing, for tests and benchmarks.
    pub const fn none() -> Self {
        Self(None)
    }

    /// Adds a step to a message, which is remembered from its first step on.
    pub fn note(&self, sealed: &Sealed, note: TraceNote) {
        let envelope = &sealed.envelope;
        self.change(envelope.id, |known| {
            let mut traced = known.unwrap_or_else(|| Traced {
                id: envelope.id,
                kind: envelope.kind,
                from: envelope.sender().to_string(),
                to: envelope.recipient().to_string(),
                lane: envelope.lane.map(|lane| lane.seq),
                bytes: u64::try_from(sealed.bytes.len()).unwrap_or(u64::MAX),
                trace_id: envelope.trace.as_ref().map(|trace| trace.trace_id().to_owned()),
                steps: Vec::new(),
            });
            traced.steps.push(note.clone());
            Some(traced)
        });
    }

    /// Adds a step to a message that is remembered; nothing for one that is not.
    pub fn step(&self, id: MessageId, note: TraceNote) {
        self.change(id, |known| {
            known.map(|mut traced| {
                traced.steps.push(note.clone());
                traced
            })
        });
    }

    /// What is remembered of one message.
    pub fn get(&self, id: MessageId) -> Option<Traced> {
        decode(&self.0.as_ref()?.db.get(id.0.as_bytes()).ok()??)
    }

    /// The messages whose id begins with these hex digits (dashes may be left away), at most `limit`.
    pub fn find(&self, prefix: &str, limit: usize) -> Vec<Traced> {
        let Some(inner) = &self.0 else { return Vec::new() };
        let prefix = prefix.replace('-', "").to_ascii_lowercase();
        if prefix.is_empty() || prefix.len() > 32 || !prefix.bytes().all(|byte| byte.is_ascii_hexdigit()) {
            return Vec::new();
        }
        let bound = |fill: &str| {
            let text = format!("{prefix}{}", fill.repeat(32 - prefix.len()));
            Uuid::parse_str(&text).unwrap_or_default().into_bytes()
        };
        let range = inner.db.range(bound("0")..=bound("f"));
        range.filter_map(|entry| decode(&entry.ok()?.1)).take(limit).collect()
    }

    fn change(&self, id: MessageId, change: impl Fn(Option<Traced>) -> Option<Traced>) {
        let Some(inner) = &self.0 else { return };
        let key = id.0.as_bytes();
        let changed = inner.db.fetch_and_update(key, |old| {
            let mut traced = change(old.and_then(decode))?;
            if traced.steps.len() > STEPS_MAX {
                traced.steps.remove(1);
            }
            serde_json::to_vec(&traced).ok()
        });
        match changed {
            Ok(None) => {
                if inner.messages.fetch_add(1, Ordering::Relaxed) >= MESSAGES_MAX {
                    self.drop_oldest();
                }
            }
            Ok(Some(_)) => {}
            Err(error) => tracing::warn!(message = %id, %error, "cannot note a step in the trace index"),
        }
    }

    fn drop_oldest(&self) {
        let Some(inner) = &self.0 else { return };
        for key in inner.db.iter().keys().take(DROPPED_AT_ONCE).filter_map(Result::ok) {
            if inner.db.remove(key).is_ok() {
                inner.messages.fetch_sub(1, Ordering::Relaxed);
            }
        }
    }
}

fn decode(bytes: impl AsRef<[u8]>) -> Option<Traced> {
    serde_json::from_slice(bytes.as_ref()).ok()
}

#[expect(clippy::disallowed_methods, reason = "what is moved may be lost: nothing needs to be synced")]
fn put_aside(path: &Path) {
    let mut aside = path.as_os_str().to_owned();
    aside.push(".broken");
    let _an_older_one = std::fs::remove_dir_all(&aside);
    if let Err(error) = std::fs::rename(path, &aside) {
        tracing::warn!(path = %path.display(), %error, "cannot put the broken trace index aside");
    }
}
