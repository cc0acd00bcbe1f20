//! The journal in files, through the durable layer:
//!
//! ```text
//! DIR/<first index, 20 digits>.jsonl     a segment: one entry a line
//! DIR/snapshot-<index, 20 digits>.json   the state up to that entry
//! ```
//!
//! A snapshot ends a segment. The two newest snapshots are kept, and all segments after the older one, so that
//! a damaged snapshot costs a longer replay and nothing else.
//!
//! Crash points: `journal.appended`, `journal.snapshot.placed`, `journal.snapshot.pruned`, and those of
//! [`Files::place`].

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use posthouse_shared::durable::{Files, Log};

use super::entry::{Head, Record};
use super::snapshot::Snapshot;
use super::{Journal, JournalError, Loaded};

/// Longest segment or snapshot that is read. A segment ends at each snapshot, long before.
const FILE_BYTES_MAX: u64 = 4 * 1024 * 1024 * 1024;
/// Snapshots that are kept.
const SNAPSHOTS_KEPT: usize = 2;
/// So many zero bytes in a row come from a torn write, not from a flipped bit.
const TORN_ZEROS: usize = 8;

/// Files by the index in their name.
type ByIndex = BTreeMap<u64, PathBuf>;

/// See the module.
#[derive(Debug)]
pub struct FilesJournal {
    files: Files,
    dir: PathBuf,
    head: Head,
    log: Option<Log>,
}

enum Line {
    Whole(Box<Record>),
    /// Cut off in the write of the last group.
    Torn,
}

impl FilesJournal {
    /// A journal in `dir`, which is made where it is not there. Reads nothing yet.
    pub fn open(files: Files, dir: PathBuf) -> Result<Self, JournalError> {
        files.create_dirs(&dir)?;
        Ok(Self { files, dir, head: Head::default(), log: None })
    }

    /// Segments by their first index, and snapshots by their index.
    fn survey(&self) -> Result<(ByIndex, ByIndex), JournalError> {
        let (mut segments, mut snapshots) = (BTreeMap::new(), BTreeMap::new());
        for name in self.files.list(&self.dir)? {
            let Some(name) = name.to_str() else { continue };
            let number = |text: &str| text.parse::<u64>().ok();
            if let Some(first) = name.strip_suffix(".jsonl").and_then(number) {
                segments.insert(first, self.dir.join(name));
            } else if let Some(index) =
                name.strip_prefix("snapshot-").and_then(|rest| rest.strip_suffix(".json")).and_then(number)
            {
                snapshots.insert(index, self.dir.join(name));
            }
        }
        Ok((segments, snapshots))
    }

    /// The newest snapshot that is whole, and what is wrong with newer ones.
    fn newest(&self, snapshots: &ByIndex) -> Result<(Option<Snapshot>, Option<JournalError>), JournalError> {
        let mut wrong = None;
        for (index, path) in snapshots.iter().rev() {
            let bytes = self.files.read(path, FILE_BYTES_MAX)?;
            let read = Snapshot::decode(&bytes)
                .and_then(|s| if s.head.index == *index { Ok(s) } else { Err("another index".to_owned()) });
            match read {
                Ok(snapshot) => return Ok((Some(snapshot), wrong)),
                Err(what) => {
                    tracing::warn!(path = %path.display(), what, "snapshot cannot be used, an older one is");
                    wrong = Some(JournalError::Broken { file: path.clone(), index: *index, what });
                }
            }
        }
        Ok((None, wrong))
    }

    /// Reads one segment, which begins with entry `first`: the records after `head`. `last` says that no later segment proves it to be durable.
    fn read_segment(
        &self,
        (first, path): (u64, &PathBuf),
        last: bool,
        head: &mut Head,
        records: &mut Vec<Record>,
    ) -> Result<(), JournalError> {
        let bytes = self.files.read(path, FILE_BYTES_MAX)?;
        let (mut at, mut expected) = (0, first);
        while let Some(rest) = bytes.get(at..).filter(|rest| !rest.is_empty()) {
            let broken =
                |what: String| JournalError::Broken { file: path.clone(), index: head.index + 1, what };
            match next_line(rest, head, last).map_err(broken)? {
                Line::Whole(record) => {
                    let terminated = rest.get(record.line.len()) == Some(&b'\n');
                    at += record.line.len() + usize::from(terminated);
                    // What the snapshot covers is only counted.
                    let covered = expected <= head.index && record.entry.index == expected;
                    expected += 1;
                    if !covered {
                        record.follows(head).map_err(broken)?;
                        *head = record.head();
                        records.push(*record);
                    }
                    if !terminated {
                        self.heal(path, at, true)?;
                        return Ok(());
                    }
                }
                Line::Torn => {
                    self.heal(path, at, false)?;
                    return Ok(());
                }
            }
        }
        Ok(())
    }

    /// Cuts a torn end off, durably; puts the end of line back where only that was lost.
    fn heal(&self, path: &Path, len: usize, end_of_line: bool) -> Result<(), JournalError> {
        tracing::warn!(path = %path.display(), len, "journal's end was torn, cut back");
        let mut log = self.files.open_log(path)?;
        log.truncate(u64::try_from(len).unwrap_or(u64::MAX))?;
        if end_of_line {
            log.append(b"\n")?;
        }
        Ok(())
    }

    /// The entries after `index` that are kept, those that a snapshot covers too; after [`Journal::load`] only,
    /// which has healed the end. An error where some of them are not kept any more.
    pub(super) fn read_after(&self, index: u64) -> Result<Vec<Record>, JournalError> {
        let (segments, snapshots) = self.survey()?;
        let begin = segments.range(..=index + 1).next_back().map_or(0, |(first, _)| *first);
        let mut records: Vec<Record> = Vec::new();
        for path in segments.range(begin..).map(|(_, path)| path) {
            let bytes = self.files.read(path, FILE_BYTES_MAX)?;
            for line in bytes.split(|byte| *byte == b'\n').filter(|line| !line.is_empty()) {
                let at = records.last().map_or(index, |record| record.entry.index) + 1;
                let broken = |what| JournalError::Broken { file: path.clone(), index: at, what };
                let record = Record::read(line).map_err(broken)?;
                if record.entry.index > index {
                    if let Some(before) = records.last() {
                        record.follows(&before.head()).map_err(broken)?;
                    }
                    records.push(record);
                }
            }
        }
        let first = records.first().map_or(self.head.index + 1, |record| record.entry.index);
        // A stream that is begun anew begins with what is kept; elsewhere nothing may be missing.
        let begun_later = index == 0 && !snapshots.is_empty();
        if first > index + 1 && !begun_later {
            return Err(JournalError::missing(self.dir.clone(), index + 1));
        }
        Ok(records)
    }

    fn segment(&self, first: u64) -> PathBuf {
        self.dir.join(format!("{first:020}.jsonl"))
    }

    fn prune(&self) -> Result<(), JournalError> {
        let (segments, snapshots) = self.survey()?;
        let kept: Vec<u64> = snapshots.keys().rev().take(SNAPSHOTS_KEPT).copied().collect();
        if kept.len() < SNAPSHOTS_KEPT {
            return Ok(());
        }
        let Some(oldest) = kept.last() else { return Ok(()) };
        for (index, path) in &snapshots {
            if index < oldest {
                self.files.remove_unsynced(path)?;
            }
        }
        // A segment is covered where the next one begins at or before the entry after the snapshot.
        for ((_, path), next) in segments.iter().zip(segments.keys().skip(1)) {
            if *next <= oldest + 1 {
                self.files.remove_unsynced(path)?;
            }
        }
        self.files.sync_dir(&self.dir)?;
        self.files.point("journal.snapshot.pruned");
        Ok(())
    }
}

/// Reads the first line of `rest`. A line is torn only if nothing after it was written by a later append, and
/// it looks as a torn write does: no end of line, or blocks of zeros. All else is damage.
fn next_line(rest: &[u8], head: &Head, last: bool) -> Result<Line, String> {
    let end = rest.iter().position(|b| *b == b'\n');
    let line = rest.get(..end.unwrap_or(rest.len())).unwrap_or_default();
    let what = match Record::read(line) {
        Ok(record) => return Ok(Line::Whole(Box::new(record))),
        Err(what) => what,
    };
    if !last {
        return Err(what);
    }
    if end.is_none() {
        // The end of line itself may be what was changed: then a whole entry stands before it.
        let mut values = serde_json::Deserializer::from_slice(line).into_iter::<serde::de::IgnoredAny>();
        if let Some(Ok(_)) = values.next()
            && let Some(Ok(record)) = line.get(..values.byte_offset()).map(Record::read)
            && record.follows(head).is_ok()
        {
            return Ok(Line::Whole(Box::new(record)));
        }
        return Ok(Line::Torn);
    }
    let zeros = line.windows(TORN_ZEROS).any(|window| window.iter().all(|b| *b == 0));
    let proven = rest
        .split(|b| *b == b'\n')
        .skip(1)
        .filter_map(|line| Record::read(line).ok())
        .any(|later| later.entry.group > head.index.saturating_add(1));
    if zeros && !proven { Ok(Line::Torn) } else { Err(what) }
}

impl Journal for FilesJournal {
    fn load(&mut self) -> Result<Loaded, JournalError> {
        let (segments, snapshots) = self.survey()?;
        let (snapshot, wrong) = self.newest(&snapshots)?;
        let mut head = snapshot.as_ref().map(|s| s.head.clone()).unwrap_or_default();
        let mut records = Vec::new();
        // Begin with the segment that holds the first entry that is wanted.
        let begin = segments.range(..=head.index + 1).next_back().map_or(0, |(first, _)| *first);
        let wanted: Vec<(&u64, &PathBuf)> = segments.range(begin..).collect();
        for (n, (first, path)) in wanted.iter().enumerate() {
            if **first > head.index + 1 {
                let what = format!("the next file begins with entry {first}");
                return Err(wrong.unwrap_or(JournalError::Broken {
                    file: (*path).clone(),
                    index: head.index + 1,
                    what,
                }));
            }
            self.read_segment((**first, path), n + 1 == wanted.len(), &mut head, &mut records)?;
        }
        if let Some(newest) = snapshots.keys().next_back().filter(|newest| **newest > head.index) {
            return Err(wrong.unwrap_or(JournalError::Broken {
                file: self.dir.join(format!("snapshot-{newest:020}.json")),
                index: head.index + 1,
                what: "entries before this snapshot are missing".to_owned(),
            }));
        }
        self.head = head;
        self.log = None;
        Ok(Loaded { snapshot, records })
    }

    fn append(&mut self, records: &[Record]) -> Result<(), JournalError> {
        let Some((first, last)) = records.first().zip(records.last()) else { return Ok(()) };
        if first.follows(&self.head).is_err() {
            return Err(JournalError::OutOfOrder { index: first.entry.index, end: self.head.index });
        }
        if self.log.is_none() {
            let (segments, snapshots) = self.survey()?;
            let after_snapshot = snapshots.keys().next_back().map_or(1, |index| index + 1);
            let open = segments.keys().next_back().copied().filter(|first| *first >= after_snapshot);
            self.log = Some(self.files.open_log(&self.segment(open.unwrap_or(first.entry.index)))?);
        }
        let bytes: usize = records.iter().map(|record| record.line.len() + 1).sum();
        let mut lines = Vec::with_capacity(bytes);
        for record in records {
            lines.extend_from_slice(&record.line);
            lines.push(b'\n');
        }
        if let Some(log) = &mut self.log {
            log.append(&lines)?;
        }
        self.files.point("journal.appended");
        self.head = last.head();
        Ok(())
    }

    fn snapshot(&mut self, snapshot: &Snapshot) -> Result<(), JournalError> {
        if snapshot.head != self.head {
            return Err(JournalError::OutOfOrder { index: snapshot.head.index, end: self.head.index });
        }
        let to = self.dir.join(format!("snapshot-{:020}.json", snapshot.head.index));
        self.files.replace(&to, &snapshot.encode())?;
        self.files.point("journal.snapshot.placed");
        self.log = None;
        self.prune()
    }
}
