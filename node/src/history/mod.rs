//! An agent's history: what entered its turns and what came of them, one JSON line a record, in
//! `DATA/history/<team>/<agent>.<birth>.jsonl`. Appended and synced; a torn last line is healed when it is
//! opened. What a teammate must remember is the fold of it; a hint file beside it lets a start skip what lies
//! behind, and may be lost.
//!
//! Order of a turn: `input`s and `turn` (one append) -> the program runs -> `turn_end` -> its effects.

mod fold;
mod record;

use std::collections::{BTreeMap, BTreeSet};
use std::fs::File;
use std::io::{self, BufRead, BufReader, Seek, SeekFrom};
use std::path::{Path, PathBuf};

use posthouse_shared::clock::Stamp;
use posthouse_shared::durable::{DurableError, Files, Log, parent};
use posthouse_shared::generation::{Birth, Generation};
use posthouse_shared::message::Kind;
use posthouse_shared::name::AgentId;
use serde::{Deserialize, Serialize};

pub use fold::{Fold, Tries};
pub use record::{Begin, Disposition, End, InTurn, Input, InputKey, Record, Shutdown, TaskEnd};

/// A new hint is written when this much has been appended since the last one.
const HINT_EVERY_BYTES: u64 = 256 * 1024;
/// A hint is small: the fold holds one turn.
const HINT_BYTES_MAX: u64 = 16 * 1024 * 1024;

/// A history cannot be read or written.
#[derive(Debug, thiserror::Error)]
pub enum HistoryError {
    /// The durable layer failed; nothing of the record counts.
    #[error("write history")]
    Write(#[from] DurableError),
    /// It cannot be read.
    #[error("read history {path}")]
    Read {
        /// The file.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },
    /// A record does not become JSON.
    #[error("encode history record")]
    Encode(#[from] serde_json::Error),
}

/// Where an agent's history lies in a data directory.
pub fn history_path(data: &Path, agent: &AgentId, birth: Birth) -> PathBuf {
    data.join("history").join(agent.team.as_str()).join(format!("{}.{birth}.jsonl", agent.agent))
}

#[derive(Serialize, Deserialize)]
struct Hint {
    v: u8,
    bytes: u64,
    fold: Fold,
}

/// One agent's history. The agent's teammate owns it; nobody else writes.
#[derive(Debug)]
pub struct History {
    files: Files,
    path: PathBuf,
    fold: Fold,
    bytes: u64,
    hinted: u64,
    log: Option<Log>,
}

impl History {
    /// Reads a history, and heals its torn last line. Makes nothing where there is none yet.
    pub fn open(files: Files, path: PathBuf) -> Result<Self, HistoryError> {
        let (fold, hinted) = hint(&files, &path);
        let mut history = Self { files, path, fold, bytes: hinted, hinted, log: None };
        let (bytes, on_disk) = history.replay()?;
        history.bytes = bytes;
        if on_disk > bytes {
            tracing::warn!(history = %history.path.display(), torn = on_disk - bytes, "heal torn last line");
            history.log()?.truncate(bytes)?;
            history.files.point("history.healed");
        }
        Ok(history)
    }

    /// What it comes to.
    pub const fn fold(&self) -> &Fold {
        &self.fold
    }

    /// Where it lies.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Begins a turn: inputs that are not in the history yet, then the turn, in one append. On disk at return.
    pub fn begin(&mut self, inputs: Vec<Input>, begin: Begin) -> Result<(), HistoryError> {
        let new = inputs.into_iter().filter(|input| !self.fold.open.contains(&input.key()));
        let records = new.map(|input| Record::Input(Box::new(input))).chain([Record::Turn(begin)]);
        self.append(records.collect())?;
        self.files.point("turn.input.synced");
        Ok(())
    }

    /// Ends a turn. On disk at return; its effects follow.
    pub fn end(&mut self, end: End) -> Result<(), HistoryError> {
        self.append(vec![Record::TurnEnd(Box::new(end))])?;
        self.files.point("turn.ended");
        Ok(())
    }

    /// Notes a lifecycle command as applied. On disk at return.
    pub fn command(&mut self, generation: Generation, kind: Kind, at: Stamp) -> Result<(), HistoryError> {
        self.append(vec![Record::Command { generation, kind, at }])?;
        self.files.point("command.synced");
        Ok(())
    }

    /// Gives the open file back while there is nothing to do, and writes a hint if one is due.
    ///
    /// The last turn's end must be carried out: what it said is dropped from memory.
    pub fn rest(&mut self) {
        self.log = None;
        if self.bytes.saturating_sub(self.hinted) >= HINT_EVERY_BYTES {
            self.hint();
        }
        if let Some(last) = &mut self.fold.last {
            last.result = String::new();
            last.messages = Vec::new();
        }
    }

    fn hint(&mut self) {
        let hint = Hint { v: 1, bytes: self.bytes, fold: self.fold.clone() };
        let written =
            serde_json::to_vec(&hint).map(|bytes| self.files.replace(&hint_path(&self.path), &bytes));
        if matches!(written, Ok(Ok(()))) {
            self.hinted = self.bytes;
        }
    }

    /// How inputs ended that the fold no longer holds: reads the whole file. Those without an end are absent.
    pub fn ended(&self, keys: &BTreeSet<InputKey>) -> Result<BTreeMap<InputKey, End>, HistoryError> {
        let mut ends = BTreeMap::new();
        self.read_from(0, |record| match record {
            Record::Turn(begin) => ends.retain(|key, _| !begin.inputs.iter().any(|input| input.key == *key)),
            Record::TurnEnd(end) => {
                for input in end.inputs.iter().filter(|input| keys.contains(&input.key)) {
                    ends.insert(input.key, end.as_ref().clone());
                }
            }
            Record::Input(_) | Record::Command { .. } => {}
        })?;
        Ok(ends)
    }

    fn append(&mut self, records: Vec<Record>) -> Result<(), HistoryError> {
        let mut lines = Vec::new();
        for record in &records {
            serde_json::to_writer(&mut lines, record)?;
            lines.push(b'\n');
        }
        self.log()?.append(&lines)?;
        self.bytes = self.bytes.saturating_add(u64::try_from(lines.len()).unwrap_or(u64::MAX));
        for record in records {
            self.fold.apply(record);
        }
        Ok(())
    }

    fn log(&mut self) -> Result<&mut Log, HistoryError> {
        let log = match self.log.take() {
            Some(log) => log,
            None => {
                self.files.create_dirs(parent(&self.path))?;
                self.files.open_log(&self.path)?
            }
        };
        Ok(self.log.insert(log))
    }

    /// Folds what follows the hint. Answers the length of what counts and the length of the file.
    fn replay(&mut self) -> Result<(u64, u64), HistoryError> {
        let mut fold = std::mem::take(&mut self.fold);
        let read = self.read_from(self.bytes, |record| fold.apply(record));
        self.fold = fold;
        read
    }

    fn read_from(&self, from: u64, mut each: impl FnMut(Record)) -> Result<(u64, u64), HistoryError> {
        let failed = |source| HistoryError::Read { path: self.path.clone(), source };
        let mut file = match File::open(&self.path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok((0, 0)),
            opened => opened.map_err(failed)?,
        };
        file.seek(SeekFrom::Start(from)).map_err(failed)?;
        let mut lines = BufReader::new(file);
        let (mut counted, mut at, mut line) = (from, from, Vec::new());
        loop {
            line.clear();
            let read = lines.read_until(b'\n', &mut line).map_err(failed)?;
            if read == 0 {
                return Ok((counted, at));
            }
            at = at.saturating_add(u64::try_from(read).unwrap_or(u64::MAX));
            // Only whole lines that are records count; what is torn is at the end, since each append is
            // synced before the next one is made.
            match line.strip_suffix(b"\n").map(serde_json::from_slice) {
                Some(Ok(record)) => {
                    each(record);
                    counted = at;
                }
                Some(Err(error)) => {
                    tracing::warn!(history = %self.path.display(), at, %error, "skip unreadable line");
                }
                None => {}
            }
        }
    }
}

fn hint_path(path: &Path) -> PathBuf {
    path.with_extension("hint")
}

/// The fold up to some length of the file, where a hint tells it and the file is at least that long.
fn hint(files: &Files, path: &Path) -> (Fold, u64) {
    let read = || {
        let bytes = files.read_if_there(&hint_path(path), HINT_BYTES_MAX).ok()??;
        let hint: Hint = serde_json::from_slice(&bytes).ok()?;
        let len = std::fs::metadata(path).ok()?.len();
        (hint.v == 1 && hint.bytes <= len).then_some((hint.fold, hint.bytes))
    };
    read().unwrap_or_default()
}

#[cfg(test)]
mod tests;
