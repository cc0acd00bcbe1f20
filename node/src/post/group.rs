//! A log of JSON lines that many threads append to at once: whoever finds nobody writing writes all that waits,
//! in one append and one sync; the others wait for just that. Each is answered after its own line is synced.

use std::path::{Path, PathBuf};
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};

use posthouse_shared::durable::{DurableError, Files, Log};
use serde::Serialize;
use serde::de::DeserializeOwned;

/// Largest log that is read at a start.
const LOG_BYTES_MAX: u64 = 8 << 30;

/// The log.
pub(super) struct GroupLog {
    state: Mutex<State>,
    written: Condvar,
    path: PathBuf,
}

struct State {
    /// Lines of the group that is being gathered.
    waiting: Vec<u8>,
    /// Number of that group.
    group: u64,
    /// All groups below are written, or failed.
    ended: u64,
    /// Groups that failed, for those who wait for them. A failure is rare and ends the process or the disk's
    /// trouble, so the list stays short.
    failed: Vec<u64>,
    /// The log, where nobody is writing at the moment.
    log: Option<Log>,
}

impl GroupLog {
    /// Opens the log and reads its records. A torn last line is cut off; a line before it that cannot be read
    /// is an error.
    pub(super) fn open<R: DeserializeOwned>(
        files: &Files,
        path: &Path,
    ) -> Result<(Self, Vec<R>), GroupError> {
        let bytes = files.read_if_there(path, LOG_BYTES_MAX)?.unwrap_or_default();
        let whole = bytes.iter().rposition(|byte| *byte == b'\n').map_or(0, |at| at + 1);
        let mut records = Vec::new();
        for (at, line) in bytes.get(..whole).unwrap_or_default().split(|byte| *byte == b'\n').enumerate() {
            if !line.is_empty() {
                let record = serde_json::from_slice(line).map_err(|source| GroupError::Line {
                    path: path.to_owned(),
                    line: at + 1,
                    source,
                })?;
                records.push(record);
            }
        }
        let mut log = files.open_log(path)?;
        if whole < bytes.len() {
            tracing::warn!(path = %path.display(), bytes = bytes.len() - whole, "torn last line cut off");
            log.truncate(u64::try_from(whole).unwrap_or(u64::MAX))?;
        }
        let state = State { waiting: Vec::new(), group: 0, ended: 0, failed: Vec::new(), log: Some(log) };
        Ok((Self { state: Mutex::new(state), written: Condvar::new(), path: path.to_owned() }, records))
    }

    /// Appends a record. Synced at return.
    pub(super) fn append(&self, record: &impl Serialize) -> Result<(), GroupError> {
        let mut line = serde_json::to_vec(record).map_err(|source| GroupError::Line {
            path: self.path.clone(),
            line: 0,
            source,
        })?;
        line.push(b'\n');
        let mut state = self.lock();
        let own = state.group;
        state.waiting.extend_from_slice(&line);
        loop {
            if state.ended > own {
                if !state.failed.contains(&own) {
                    return Ok(());
                }
                // The group failed as one; each of it gets one try by itself.
                drop(state);
                return self.append_alone(&line);
            }
            if let Some(log) = state.log.take() {
                let lines = std::mem::take(&mut state.waiting);
                state.group += 1;
                let (log, result) = Self::write(log, &lines, state);
                state = self.lock();
                state.log = Some(log);
                state.ended = own + 1;
                if result.is_err() {
                    state.failed.push(own);
                }
                self.written.notify_all();
                return result.map_err(GroupError::from);
            }
            state = self.written.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
    }

    fn write(mut log: Log, lines: &[u8], unlocked: MutexGuard<'_, State>) -> (Log, Result<(), DurableError>) {
        drop(unlocked);
        let result = log.append(lines);
        (log, result)
    }

    fn append_alone(&self, line: &[u8]) -> Result<(), GroupError> {
        let mut state = self.lock();
        loop {
            if let Some(mut log) = state.log.take() {
                let result = log.append(line);
                state.log = Some(log);
                self.written.notify_all();
                return result.map_err(GroupError::from);
            }
            state = self.written.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A log could not be read or written.
#[derive(Debug, thiserror::Error)]
pub enum GroupError {
    /// A line that is not a record.
    #[error("read line {line} of {path}")]
    Line {
        /// The log.
        path: PathBuf,
        /// Which line, from 1; 0 for one that was to be written.
        line: usize,
        /// What is wrong.
        source: serde_json::Error,
    },
    /// The disk.
    #[error(transparent)]
    Durable(#[from] DurableError),
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Arc;

    #[test]
    fn lines_of_many_threads_are_all_there_and_a_torn_one_is_cut_off() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("log");
        let files = Files::real();
        let (log, records) = GroupLog::open::<u32>(&files, &path).unwrap();
        assert!(records.is_empty());
        let log = Arc::new(log);
        std::thread::scope(|scope| {
            for thread in 0..8u32 {
                let log = Arc::clone(&log);
                scope.spawn(move || (0..50).for_each(|n| log.append(&(thread * 100 + n)).unwrap()));
            }
        });
        drop(log);
        let mut whole = files.read(&path, 1 << 20).unwrap();
        whole.extend_from_slice(b"12");
        files.replace(&path, &whole).unwrap();
        let (log, mut records) = GroupLog::open::<u32>(&files, &path).unwrap();
        records.sort_unstable();
        let expected: Vec<u32> = (0..8).flat_map(|thread| (0..50).map(move |n| thread * 100 + n)).collect();
        assert_eq!(records, expected);
        log.append(&7u32).unwrap();
        let (_, records) = GroupLog::open::<u32>(&files, &path).unwrap();
        assert_eq!((records.len(), records.last()), (401, Some(&7)));
    }
}
