//! Lane numbers: reserved on disk in blocks before one of them is used, so that no number is ever given
//! twice; after a restart the rest of a block is skipped.

use std::collections::HashMap;
use std::path::Path;
use std::sync::{Mutex, PoisonError};

use posthouse_shared::durable::Files;
use posthouse_shared::lane::LaneKey;
use serde::{Deserialize, Serialize};

use super::group::{GroupError, GroupLog};

/// One line: all numbers of this lane up to and with `upto` may have been used.
#[derive(Debug, Clone, Copy, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Reserved {
    #[serde(flatten)]
    key: KeyText,
    upto: u64,
}

#[derive(Debug, Clone, Copy, Serialize, Deserialize)]
struct KeyText {
    lane: posthouse_shared::lane::LaneHash,
    epoch: posthouse_shared::generation::Generation,
}

#[derive(Debug, Clone, Copy, Default)]
struct Block {
    next: u64,
    upto: u64,
}

/// The numbers of all lanes that begin on this host.
pub(super) struct LaneNumbers {
    blocks: Mutex<HashMap<LaneKey, Block>>,
    log: GroupLog,
    size: u64,
}

impl LaneNumbers {
    /// Opens the log `path`; writes it anew where most of it is outdated.
    pub(super) fn open(files: &Files, path: &Path, size: u64) -> Result<Self, GroupError> {
        let (mut log, records) = GroupLog::open::<Reserved>(files, path)?;
        let lines = records.len();
        let mut upto: HashMap<LaneKey, u64> = HashMap::new();
        for record in records {
            let key = LaneKey { lane: record.key.lane, epoch: record.key.epoch };
            let highest = upto.entry(key).or_default();
            *highest = (*highest).max(record.upto);
        }
        if lines > 4 * upto.len() + 1_024 {
            let mut bytes = Vec::new();
            for (key, upto) in &upto {
                let line = Reserved { key: KeyText { lane: key.lane, epoch: key.epoch }, upto: *upto };
                serde_json::to_writer(&mut bytes, &line).map_err(|source| GroupError::Line {
                    path: path.to_owned(),
                    line: 0,
                    source,
                })?;
                bytes.push(b'\n');
            }
            drop(log);
            files.replace(path, &bytes)?;
            log = GroupLog::open::<Reserved>(files, path)?.0;
        }
        let blocks = upto.into_iter().map(|(key, upto)| (key, Block { next: upto + 1, upto })).collect();
        Ok(Self { blocks: Mutex::new(blocks), log, size: size.max(1) })
    }

    /// The next number of a lane, from 1. Reserved on disk at return.
    pub(super) fn next(&self, key: LaneKey) -> Result<u64, GroupError> {
        loop {
            let reserve = {
                let mut blocks = self.blocks.lock().unwrap_or_else(PoisonError::into_inner);
                let block = blocks.entry(key).or_insert(Block { next: 1, upto: 0 });
                if block.next <= block.upto {
                    let number = block.next;
                    block.next += 1;
                    return Ok(number);
                }
                block.upto.saturating_add(self.size)
            };
            let line = Reserved { key: KeyText { lane: key.lane, epoch: key.epoch }, upto: reserve };
            self.log.append(&line)?;
            let mut blocks = self.blocks.lock().unwrap_or_else(PoisonError::into_inner);
            if let Some(block) = blocks.get_mut(&key) {
                block.upto = block.upto.max(reserve);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use posthouse_shared::generation::Generation;
    use posthouse_shared::lane::LaneHash;

    #[test]
    fn no_number_is_given_twice_also_after_a_restart() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("lanes");
        let key = |n| LaneKey { lane: LaneHash(n), epoch: Generation::new(1, n) };
        let mut given = std::collections::BTreeSet::new();
        for _ in 0..3 {
            let numbers = LaneNumbers::open(&Files::real(), &path, 4).unwrap();
            for n in 0..10 {
                for lane in 0..2 {
                    assert!(given.insert((lane, numbers.next(key(lane)).unwrap())), "{n}");
                }
            }
        }
        assert_eq!(given.iter().rfind(|(lane, _)| *lane == 0), Some(&(0, 34)));
    }
}
