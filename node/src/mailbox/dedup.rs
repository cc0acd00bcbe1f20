//! Which messages a mailbox has ever taken: for ever, and small. In memory one set of numbers a lane and
//! epoch; on disk the names that are there, and for what was pruned the file `cursors`, written through the
//! durable layer before a name disappears. Ids are remembered one by one only where there is no lane.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::path::Path;

use posthouse_shared::durable::Files;
use posthouse_shared::generation::Generation;
use posthouse_shared::lane::{LaneHash, LaneKey, Numbers};
use posthouse_shared::name::MessageId;
use serde::{Deserialize, Serialize};

use super::error::MailboxError;
use super::name::FileName;

/// Name of the file of cursors.
pub const CURSORS: &str = "cursors";
const CURSORS_BYTES_MAX: u64 = 1 << 30;

/// What was taken, by lane, or by id where there is no lane.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Seen {
    lanes: HashMap<LaneKey, Numbers>,
    ids: HashSet<MessageId>,
}

impl Seen {
    /// Whether this message was taken.
    pub fn contains(&self, name: &FileName) -> bool {
        match name.place {
            Some(place) => self.lanes.get(&place.key).is_some_and(|numbers| numbers.contains(place.seq)),
            None => self.ids.contains(&name.id),
        }
    }

    /// Whether this number of a lane was taken.
    pub fn has(&self, key: LaneKey, seq: u64) -> bool {
        self.lanes.get(&key).is_some_and(|numbers| numbers.contains(seq))
    }

    /// Takes a message; answers whether it was new.
    pub fn insert(&mut self, name: &FileName) -> bool {
        match name.place {
            Some(place) => self.lanes.entry(place.key).or_default().insert(place.seq),
            None => self.ids.insert(name.id),
        }
    }

    /// Adds many names at once, in no order, and answers whether some place or id came twice.
    pub fn insert_all<'a>(&mut self, names: impl IntoIterator<Item = &'a FileName>) -> bool {
        let mut lanes: HashMap<LaneKey, Vec<u64>> = HashMap::new();
        let mut twice = false;
        for name in names {
            match name.place {
                Some(place) => lanes.entry(place.key).or_default().push(place.seq),
                None => twice |= !self.ids.insert(name.id),
            }
        }
        for (key, mut numbers) in lanes {
            numbers.sort_unstable();
            twice |= self.insert_sorted(key, numbers);
        }
        twice
    }

    /// Adds the rising numbers of one lane; answers whether one came twice.
    pub fn insert_sorted(&mut self, key: LaneKey, numbers: impl IntoIterator<Item = u64>) -> bool {
        let set = self.lanes.entry(key).or_default();
        let fresh = set.ranges() == 0;
        let (mut twice, mut run) = (false, None);
        for number in numbers {
            twice |= !fresh && set.contains(number);
            run = match run {
                Some((first, last)) if last == number => {
                    twice = true;
                    Some((first, last))
                }
                Some((first, last)) if u64::checked_add(last, 1) == Some(number) => Some((first, number)),
                Some((first, last)) => {
                    set.insert_range(first, last);
                    Some((number, number))
                }
                None => Some((number, number)),
            };
        }
        if let Some((first, last)) = run {
            set.insert_range(first, last);
        }
        twice
    }

    /// Adds all of `other`.
    pub fn merge(&mut self, other: &Self) {
        for (key, numbers) in &other.lanes {
            self.lanes.entry(*key).or_default().merge(numbers);
        }
        self.ids.extend(&other.ids);
    }

    /// Whether it is empty.
    pub fn is_empty(&self) -> bool {
        self.lanes.is_empty() && self.ids.is_empty()
    }
}

/// `cursors`, version 1.
#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct CursorsFile {
    v: u8,
    /// Lane as 16 hex digits and epoch, joined by `@`: what is settled and no longer has a file.
    lanes: BTreeMap<String, Numbers>,
    /// The same for messages without a lane.
    ids: Vec<MessageId>,
}

impl Seen {
    /// As it stands on disk.
    pub fn encode(&self) -> Vec<u8> {
        let lanes = self
            .lanes
            .iter()
            .map(|(key, numbers)| (format!("{:016x}@{}", key.lane.0, key.epoch), numbers.clone()))
            .collect();
        let mut ids: Vec<MessageId> = self.ids.iter().copied().collect();
        ids.sort_unstable();
        serde_json::to_vec(&CursorsFile { v: 1, lanes, ids }).unwrap_or_default()
    }

    /// Reads what [`Seen::encode`] wrote, or says what is wrong with it.
    pub fn decode(bytes: &[u8]) -> Result<Self, String> {
        let file: CursorsFile = serde_json::from_slice(bytes).map_err(|e| e.to_string())?;
        if file.v != 1 {
            return Err(format!("version {} is not known", file.v));
        }
        let lanes = file.lanes.into_iter().map(|(text, numbers)| {
            let (lane, epoch) = text.split_once('@').ok_or_else(|| format!("{text:?} is not a lane"))?;
            let lane = u64::from_str_radix(lane, 16).map_err(|e| format!("{text:?}: {e}"))?;
            let epoch: Generation = epoch.parse().map_err(|e| format!("{text:?}: {e}"))?;
            Ok((LaneKey { lane: LaneHash(lane), epoch }, numbers))
        });
        Ok(Self { lanes: lanes.collect::<Result<_, String>>()?, ids: file.ids.into_iter().collect() })
    }

    /// The cursors of the mailbox in `dir`; nothing where there is no file yet.
    pub fn read(files: &Files, dir: &Path) -> Result<Self, MailboxError> {
        let path = dir.join(CURSORS);
        let Some(bytes) = files.read_if_there(&path, CURSORS_BYTES_MAX)? else { return Ok(Self::default()) };
        Self::decode(&bytes).map_err(|why| MailboxError::Broken { file: path.display().to_string(), why })
    }

    /// Adds what is about to lose its file. Durable at return.
    pub fn settle(&self, files: &Files, dir: &Path) -> Result<(), MailboxError> {
        let mut cursors = Self::read(files, dir)?;
        cursors.merge(self);
        files.point("mailbox.cursors.begin");
        files.replace(&dir.join(CURSORS), &cursors.encode())?;
        files.point("mailbox.cursors.synced");
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::mailbox::name::{Marks, Place};
    use posthouse_shared::clock::Stamp;
    use uuid::Uuid;

    fn name(lane: Option<u64>, seq: u64) -> FileName {
        let mut name =
            FileName::external(MessageId(Uuid::from_u64_pair(lane.unwrap_or(7), seq)), Stamp::default());
        name.marks = Marks::NONE;
        name.place = lane
            .map(|lane| Place { key: LaneKey { lane: LaneHash(lane), epoch: Generation::new(1, 2) }, seq });
        name
    }

    #[test]
    fn what_was_settled_is_known_after_it_was_written_and_read() {
        let mut seen = Seen::default();
        let names =
            [name(Some(u64::MAX), 3), name(Some(u64::MAX), 1), name(Some(u64::MAX), 2), name(None, 1)];
        assert!(!seen.insert_all(&names));
        assert!(seen.insert_all(&names[..1]) && seen.clone().insert_all([&names[0], &names[0]]));
        let read = Seen::decode(&seen.encode()).unwrap();
        assert_eq!(read, seen);
        assert!(names.iter().all(|name| read.contains(name)));
        assert!(!read.contains(&name(Some(u64::MAX), 4)) && !read.contains(&name(None, 2)));
        assert!(Seen::decode(b"").is_err() && Seen::decode(br#"{"v":2,"lanes":{},"ids":[]}"#).is_err());
    }
}
