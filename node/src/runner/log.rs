//! An agent's log: everything that its program prints, with a line where each turn begins and ends. One file
//! `DATA/logs/<team>/<agent>.log`, turned over to `.log.1` when it reaches its limit: at most two of that
//! size are kept. For people; nothing is synced, and a failed write never fails a turn.

use std::fs::{File, OpenOptions};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

use posthouse_shared::durable::{Files, parent};
use posthouse_shared::name::AgentId;

/// Where an agent's log lies in a data directory.
pub fn log_path(data: &Path, agent: &AgentId) -> PathBuf {
    data.join("logs").join(agent.team.as_str()).join(format!("{}.log", agent.agent))
}

/// An open log.
#[derive(Debug)]
pub struct AgentLog {
    files: Files,
    path: PathBuf,
    bytes_max: u64,
    open: Mutex<Option<(File, u64)>>,
}

impl AgentLog {
    /// Opens a log, making it where it is not there. Where that fails the turn goes on without one, and the
    /// node's own log says so.
    pub fn open(files: Files, path: PathBuf, bytes_max: u64) -> Self {
        let log = Self { files, path, bytes_max, open: Mutex::new(None) };
        let opened = log.reopen();
        *log.open.lock().unwrap_or_else(PoisonError::into_inner) = opened;
        log
    }

    fn reopen(&self) -> Option<(File, u64)> {
        let open = || {
            self.files.create_dirs(parent(&self.path)).map_err(std::io::Error::other)?;
            let file = OpenOptions::new().create(true).append(true).open(&self.path)?;
            let len = file.metadata()?.len();
            Ok::<_, std::io::Error>((file, len))
        };
        open().inspect_err(|error| tracing::warn!(log = %self.path.display(), %error, "open agent log")).ok()
    }

    /// Writes as much as fits, turning the file over when it is full.
    pub fn write(&self, bytes: &[u8]) {
        let mut open = self.open.lock().unwrap_or_else(PoisonError::into_inner);
        let size = u64::try_from(bytes.len()).unwrap_or(u64::MAX);
        if open.as_ref().is_some_and(|(_, len)| *len > 0 && len.saturating_add(size) > self.bytes_max) {
            let mut older = self.path.as_os_str().to_owned();
            older.push(".1");
            let _written_on_where_it_is = self.files.rename_unsynced(&self.path, Path::new(&older));
            *open = self.reopen();
        }
        if let Some((file, len)) = open.as_mut()
            && file.write_all(bytes).is_ok()
        {
            *len = len.saturating_add(size);
        }
    }

    /// Writes a line of our own.
    pub fn line(&self, text: &str) {
        self.write(format!("--- {text}\n").as_bytes());
    }
}
