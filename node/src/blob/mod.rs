//! Bodies that are too large for an envelope, under their SHA-256. What a message of this host refers to lies in
//! `DATA/blobs`, synced before the message is; what goes to another host lies in the blob store that both share as
//! well, and is brought, checked and synced there before that host says `stored`.
//!
//! ```text
//! DATA/blobs/tmp/      DATA/blobs/<first two digits>/<sha256>
//! ```
//!
//! Nothing here is ever removed: a blob belongs to the histories that it entered, which are kept for ever, and the
//! text of an old message must not vanish before the rest of it. What a refused or unsent message left is what a
//! crash may leave: a blob that nobody names, bounded by what was sent.

mod store;

use std::collections::HashSet;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use posthouse_shared::codes::Code;
use posthouse_shared::durable::{DurableError, Files};
use posthouse_shared::identity::sha256_hex;
use posthouse_shared::limits::Limits;
use posthouse_shared::message::BlobRef;
use posthouse_shared::refusal::Refusal;
use uuid::Uuid;

pub use store::{BlobStore, StoreError};

const TMP: &str = "tmp";
/// Blobs that are brought at the same time; each may be as large as a blob may be.
const COMING_MAX: usize = 4;

/// What cannot be put or had, and why.
#[derive(Debug, thiserror::Error)]
pub enum BlobError {
    /// Larger than a blob may be.
    #[error("body has {bytes} bytes, the limit is {limit}")]
    TooLarge {
        /// Its length.
        bytes: u64,
        /// The limit.
        limit: u64,
    },
    /// The reference names no SHA-256.
    #[error("{sha256:?} is not a SHA-256")]
    BadName {
        /// What it names.
        sha256: String,
    },
    /// Another host should have it, and no store is shared with it.
    #[error("a body of {bytes} bytes cannot go to another host: there is no blob store that both share")]
    NoStore {
        /// Its length.
        bytes: u64,
    },
    /// What is there under this name is something else.
    #[error("blob {sha256} is not what its name says")]
    Corrupt {
        /// Its name.
        sha256: String,
    },
    /// It is not on this host.
    #[error("blob {sha256} is not there")]
    Missing {
        /// Its name.
        sha256: String,
    },
    /// The shared store.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// The disk.
    #[error(transparent)]
    Durable(#[from] DurableError),
}

impl BlobError {
    /// As a refusal for users.
    pub fn refusal(&self) -> Refusal {
        match self {
            Self::TooLarge { .. } => {
                Refusal::new(Code::MessageTooLarge, self.to_string()).effect("nothing was sent")
            }
            Self::NoStore { .. } => Refusal::new(Code::NoBlobStore, self.to_string())
                .effect("nothing was sent")
                .next("posthouse explain PH0308"),
            Self::BadName { .. } | Self::Corrupt { .. } | Self::Missing { .. } => {
                Refusal::new(Code::BlobMissing, self.to_string())
            }
            Self::Store(error) => error.refusal(),
            Self::Durable(error) => error.refusal(),
        }
    }
}

/// Whether a blob of another host's mail is here.
#[derive(Debug)]
pub enum Brought {
    /// It is, synced and checked.
    Here,
    /// It is on its way: ask again.
    Coming,
    /// It cannot be had, now or ever.
    Failed(BlobError),
}

/// The blobs of one host. Clones share them; all calls are synchronous.
#[derive(Clone)]
pub struct Blobs(Arc<Inner>);

struct Inner {
    files: Files,
    dir: PathBuf,
    bytes_max: u64,
    store: Option<BlobStore>,
    coming: Mutex<Coming>,
}

#[derive(Default)]
struct Coming {
    under_way: HashSet<String>,
    failed: Vec<(String, BlobError)>,
}

impl Blobs {
    /// Over `DATA/blobs`, and the store that is shared with other hosts where one is configured. Writes nothing.
    pub fn open(files: Files, dir: PathBuf, limits: &Limits, store: Option<BlobStore>) -> Self {
        Self(Arc::new(Inner { files, dir, bytes_max: limits.blob_bytes, store, coming: Mutex::default() }))
    }

    /// The store that is shared with other hosts.
    pub fn store(&self) -> Option<&BlobStore> {
        self.0.store.as_ref()
    }

    /// Where a blob lies on this host, or would.
    pub fn path(&self, blob: &BlobRef) -> Result<PathBuf, BlobError> {
        let name = checked(blob)?;
        let (first, _) = name.split_at_checked(2).unwrap_or_default();
        Ok(self.0.dir.join(first).join(name))
    }

    /// Keeps a body. On this host's disk at return, once however often it is put.
    pub fn put(&self, bytes: &[u8]) -> Result<BlobRef, BlobError> {
        let length = u64::try_from(bytes.len()).unwrap_or(u64::MAX);
        if length > self.0.bytes_max {
            return Err(BlobError::TooLarge { bytes: length, limit: self.0.bytes_max });
        }
        let blob = BlobRef { sha256: sha256_hex(bytes), bytes: length };
        self.keep(&blob, bytes)?;
        Ok(blob)
    }

    /// Makes sure that other hosts can have it too: in the shared store at return.
    pub fn share(&self, blob: &BlobRef) -> Result<(), BlobError> {
        let Some(store) = &self.0.store else { return Err(BlobError::NoStore { bytes: blob.bytes }) };
        let bytes = self.read(blob)?;
        Ok(store.put_once(&object(checked(blob)?), bytes)?)
    }

    /// Reads a blob of this host; its length and hash are those of the reference.
    pub fn read(&self, blob: &BlobRef) -> Result<Vec<u8>, BlobError> {
        let path = self.path(blob)?;
        let bytes = self.0.files.read_if_there(&path, self.0.bytes_max)?;
        let bytes = bytes.ok_or_else(|| BlobError::Missing { sha256: blob.sha256.clone() })?;
        verified(blob, bytes)
    }

    /// The text of a blob of this host, at most its first `bytes_max` bytes, cut between two characters. A body is
    /// UTF-8; what is not is replaced.
    pub fn text(&self, blob: &BlobRef, bytes_max: usize) -> Result<String, BlobError> {
        let mut bytes = self.read(blob)?;
        if bytes.len() > bytes_max {
            let begins = |byte: &u8| byte & 0b1100_0000 != 0b1000_0000;
            let end = (0..=bytes_max).rev().find(|at| bytes.get(*at).is_some_and(begins)).unwrap_or(0);
            bytes.truncate(end);
        }
        Ok(String::from_utf8_lossy(&bytes).into_owned())
    }

    /// Whether a blob of arriving mail is on this host; begins to bring it where it is not. Waits for no network,
    /// so that one large body holds nobody else up.
    pub fn bring(&self, blob: &BlobRef) -> Brought {
        match self.read(blob) {
            Ok(_) => return Brought::Here,
            Err(BlobError::Missing { .. } | BlobError::Corrupt { .. }) => {}
            Err(error) => return Brought::Failed(error),
        }
        if blob.bytes > self.0.bytes_max {
            return Brought::Failed(BlobError::TooLarge { bytes: blob.bytes, limit: self.0.bytes_max });
        }
        if self.0.store.is_none() {
            return Brought::Failed(BlobError::NoStore { bytes: blob.bytes });
        }
        let mut coming = self.0.coming.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(at) = coming.failed.iter().position(|(name, _)| *name == blob.sha256) {
            return Brought::Failed(coming.failed.swap_remove(at).1);
        }
        if coming.under_way.len() < COMING_MAX && coming.under_way.insert(blob.sha256.clone()) {
            let (blobs, wanted) = (self.clone(), blob.clone());
            let begun = std::thread::Builder::new().name("bring blob".to_owned()).spawn(move || {
                let fetched = blobs.fetch(&wanted);
                let mut coming = blobs.0.coming.lock().unwrap_or_else(PoisonError::into_inner);
                coming.under_way.remove(&wanted.sha256);
                if let Err(error) = fetched {
                    // Told once to whoever asks next; nobody may, so they are few.
                    coming.failed.truncate(COMING_MAX);
                    coming.failed.push((wanted.sha256, error));
                }
            });
            if begun.is_err() {
                coming.under_way.remove(&blob.sha256);
            }
        }
        Brought::Coming
    }

    /// From the shared store to this host's disk.
    fn fetch(&self, blob: &BlobRef) -> Result<(), BlobError> {
        let Some(store) = &self.0.store else { return Err(BlobError::NoStore { bytes: blob.bytes }) };
        let bytes = verified(blob, store.get(&object(checked(blob)?), self.0.bytes_max)?)?;
        self.keep(blob, &bytes)
    }

    /// Synced at return. A file of that name that is not what its name says is replaced.
    fn keep(&self, blob: &BlobRef, bytes: &[u8]) -> Result<(), BlobError> {
        let path = self.path(blob)?;
        let inner = &self.0;
        let above = posthouse_shared::durable::parent(&path);
        if self.read(blob).is_ok() {
            // Another thread may have renamed it and not yet synced its name.
            return Ok(inner.files.sync_dir(above)?);
        }
        let tmp = inner.dir.join(TMP);
        inner.files.create_dirs(&tmp)?;
        inner.files.create_dirs(above)?;
        inner.files.place(&tmp.join(Uuid::new_v4().simple().to_string()), &path, bytes)?;
        inner.files.point("blob.synced");
        Ok(())
    }
}

/// Removes what was being written when an earlier process ended.
pub fn sweep(files: &Files, dir: &Path) -> Result<(), DurableError> {
    let tmp = dir.join(TMP);
    if files.exists(&tmp) {
        for name in files.list(&tmp)? {
            files.remove_unsynced(&tmp.join(name))?;
        }
    }
    Ok(())
}

/// Its name in a store.
fn object(sha256: &str) -> String {
    format!("blobs/{sha256}")
}

/// A reference comes from another host or program: only a hash becomes a path.
fn checked(blob: &BlobRef) -> Result<&str, BlobError> {
    let digit = |byte: u8| byte.is_ascii_digit() || (b'a'..=b'f').contains(&byte);
    if blob.sha256.len() == 64 && blob.sha256.bytes().all(digit) {
        Ok(&blob.sha256)
    } else {
        Err(BlobError::BadName { sha256: blob.sha256.clone() })
    }
}

fn verified(blob: &BlobRef, bytes: Vec<u8>) -> Result<Vec<u8>, BlobError> {
    let length = u64::try_from(bytes.len()).unwrap_or(u64::MAX);
    if length == blob.bytes && sha256_hex(&bytes) == blob.sha256 {
        Ok(bytes)
    } else {
        Err(BlobError::Corrupt { sha256: blob.sha256.clone() })
    }
}

#[cfg(test)]
mod tests;
