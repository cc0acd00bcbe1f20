//! Keys on disk: this host's own (`DATA/host.seed`), and those of other hosts under which mail is stored here
//! (`DATA/host-keys.json`), so that stored mail is still known to be theirs when the authority is not there.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

use posthouse_shared::durable::{DurableError, Files};
use posthouse_shared::identity::{HostKey, HostKeyError, HostKeys, HostPublicKey};
use posthouse_shared::name::HostName;
use serde::{Deserialize, Serialize};

/// The own key's file, below DATA.
pub const HOST_SEED: &str = "host.seed";
const KEPT: &str = "host-keys.json";
const BYTES_MAX: u64 = 16 << 20;

/// Keys cannot be read or written.
#[derive(Debug, thiserror::Error)]
pub enum KeysError {
    /// The own key.
    #[error("read {path}")]
    Seed {
        /// Its file.
        path: PathBuf,
        /// What is wrong.
        source: HostKeyError,
    },
    /// The keys of others.
    #[error("read {path}")]
    Kept {
        /// Their file.
        path: PathBuf,
        /// What is wrong.
        source: serde_json::Error,
    },
    /// The disk.
    #[error(transparent)]
    Durable(#[from] DurableError),
}

/// This host's key: the one of `DATA/host.seed`, which is made where it is not there. Durable at return.
pub fn open_host_key(files: &Files, data: &Path) -> Result<HostKey, KeysError> {
    let path = data.join(HOST_SEED);
    let seed = |source| KeysError::Seed { path: path.clone(), source };
    if let Some(bytes) = files.read_if_there(&path, 1024)? {
        return HostKey::from_seed(&String::from_utf8_lossy(&bytes)).map_err(seed);
    }
    let key = HostKey::generate();
    files.replace(&path, key.seed().map_err(seed)?.as_bytes())?;
    Ok(key)
}

#[derive(Debug, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct File {
    v: u8,
    hosts: BTreeMap<HostName, Vec<HostPublicKey>>,
}

/// The kept keys of other hosts.
pub struct KeptKeys {
    files: Files,
    path: PathBuf,
    kept: Mutex<BTreeMap<HostName, Vec<HostPublicKey>>>,
}

impl KeptKeys {
    /// Reads the keys below `data` and makes `hosts` remember them.
    pub fn open(files: &Files, data: &Path, hosts: &HostKeys) -> Result<Self, KeysError> {
        let path = data.join(KEPT);
        let kept = match files.read_if_there(&path, BYTES_MAX)? {
            Some(bytes) => {
                let file: File = serde_json::from_slice(&bytes)
                    .map_err(|source| KeysError::Kept { path: path.clone(), source })?;
                file.hosts
            }
            None => BTreeMap::new(),
        };
        for (name, keys) in &kept {
            keys.iter().for_each(|key| hosts.remember(name.clone(), key.clone()));
        }
        Ok(Self { files: files.clone(), path, kept: Mutex::new(kept) })
    }

    /// Makes sure that a key is kept. Durable at return; call it before the first message that rests on it.
    pub fn keep(&self, name: &HostName, key: &HostPublicKey) -> Result<(), KeysError> {
        let mut kept = self.kept.lock().unwrap_or_else(PoisonError::into_inner);
        if kept.get(name).is_some_and(|keys| keys.contains(key)) {
            return Ok(());
        }
        let mut hosts = kept.clone();
        hosts.entry(name.clone()).or_default().push(key.clone());
        let file = File { v: 1, hosts };
        let bytes = serde_json::to_vec(&file)
            .map_err(|source| KeysError::Kept { path: self.path.clone(), source })?;
        self.files.replace(&self.path, &bytes)?;
        *kept = file.hosts;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_stay_the_same_and_the_own_one_is_for_its_owner_only() {
        use std::os::unix::fs::PermissionsExt;
        let dir = tempfile::tempdir().unwrap();
        let files = Files::real();
        let key = open_host_key(&files, dir.path()).unwrap();
        assert_eq!(open_host_key(&files, dir.path()).unwrap().public(), key.public());
        let mode = std::fs::metadata(dir.path().join(HOST_SEED)).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o600);
        let (hosts, beta) = (HostKeys::default(), HostName::new("beta").unwrap());
        let kept = KeptKeys::open(&files, dir.path(), &hosts).unwrap();
        kept.keep(&beta, &key.public()).unwrap();
        let (sig, hosts) = (key.sign(b"x"), HostKeys::default());
        KeptKeys::open(&files, dir.path(), &hosts).unwrap();
        assert!(hosts.ever_signed(&beta, b"x", &sig) && hosts.get(&beta).is_none());
    }
}
