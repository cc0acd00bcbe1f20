//! Reading a mailbox: names only. What a crash left is healed: half-written files in `tmp/` are swept, a file
//! that a lost rename left in two states stays in one, files that are not ours are adopted or quarantined.

use std::collections::{HashMap, HashSet};
use std::ffi::{OsStr, OsString};
use std::io;
use std::path::Path;

use posthouse_shared::durable::{DurableError, file_name};
use posthouse_shared::identity::sha256_hex;
use posthouse_shared::name::MessageId;

use super::content::{Content, Reader};
use super::dedup::Seen;
use super::error::MailboxError;
use super::index::Builder;
use super::name::FileName;
use super::quarantine::{REASON_SUFFIX, Reason, id_of_foreign};
use super::{DONE, Inner, Key, Loaded, News, PROCESSING, QUARANTINE, READY, TMP};

impl Inner {
    /// Reads the names of all states. A watch is set before, so that no file is missed in between.
    pub(super) fn load(&self, news: News) -> Result<Loaded, MailboxError> {
        self.sweep_tmp()?;
        let cursors = Seen::read(self.files(), &self.dir)?;
        let mut foreign: Vec<(&'static str, OsString)> = Vec::new();
        let (mut done, mut quarantine, mut held) = (Vec::new(), Vec::new(), Vec::new());
        let mut quarantined_foreign = 0;
        self.files().visit(&self.dir.join(DONE), &mut |name| match FileName::parse(name) {
            Some(parsed) if parsed.holder.is_none() => done.push(parsed),
            Some(_) | None => foreign.push((DONE, name.to_owned())),
        })?;
        self.files().visit(&self.dir.join(QUARANTINE), &mut |name| match FileName::parse(name) {
            Some(parsed) => quarantine.push(parsed),
            None if name.as_encoded_bytes().ends_with(REASON_SUFFIX.as_bytes()) => {}
            None => quarantined_foreign += 1,
        })?;
        self.files().visit(&self.dir.join(PROCESSING), &mut |name| match FileName::parse(name) {
            Some(parsed) if parsed.holder.is_some() => held.push(parsed),
            Some(_) | None => foreign.push((PROCESSING, name.to_owned())),
        })?;
        let mut ready = Builder::default();
        self.files().visit(&self.dir.join(READY), &mut |name| match FileName::parse(name) {
            Some(parsed) if parsed.holder.is_none() => ready.push(&parsed),
            Some(_) | None => foreign.push((READY, name.to_owned())),
        })?;
        let (mut index, mut twice) = ready.finish();
        let mut seen = Seen::default();
        for names in [&done, &quarantine, &held] {
            twice |= seen.insert_all(names);
        }
        twice |= index.add_to(&mut seen);
        twice |= held.iter().any(|name| cursors.contains(name));
        twice |= !cursors.is_empty() && index.all().any(|name| cursors.contains(&name));
        if twice && self.settle_twins(&cursors)? {
            return self.load(news);
        }
        seen.merge(&cursors);
        index.unhold(&seen);
        let mut loaded = Loaded {
            index,
            seen,
            done: done.len(),
            quarantined: quarantine.iter().map(|name| name.id).collect(),
            quarantined_foreign,
            held: held.into_iter().map(|name| (name.id, name)).collect(),
            in_flight: HashSet::new(),
            busy: HashMap::new(),
            used: self.core.setup.clock.boot(),
            news,
            unwatched: 0,
        };
        for (state, name) in foreign {
            // On a full or read-only disk they stay where they are: the messages beside them can be read.
            if let Err(error) = self.take_in(&mut loaded, state, &name) {
                tracing::warn!(agent = %self.agent, state, ?name, %error, "cannot take in a foreign file");
            }
        }
        Ok(loaded)
    }

    /// Removes what earlier incarnations left half-written. The present one may be writing.
    fn sweep_tmp(&self) -> Result<(), MailboxError> {
        let tmp = self.dir.join(TMP);
        let own = self.core.setup.incarnation.0;
        let alive = |name: &OsStr| {
            let incarnation = name.to_str().and_then(|name| name.split_once('-'));
            incarnation.and_then(|(number, _)| u64::from_str_radix(number, 16).ok()).is_some_and(|n| n >= own)
        };
        for name in self.files().list(&tmp)?.into_iter().filter(|name| !alive(name)) {
            if let Err(error) = self.files().remove_unsynced(&tmp.join(&name)) {
                tracing::warn!(agent = %self.agent, ?name, %error, "cannot sweep tmp");
            }
        }
        Ok(())
    }

    /// A message that is in two states after a crash (a file system may keep one half of a rename) stays in
    /// the later one; a copy that is not the same is quarantined. Answers whether anything was moved.
    fn settle_twins(&self, cursors: &Seen) -> Result<bool, MailboxError> {
        let mut groups: HashMap<Key, Vec<(usize, FileName)>> = HashMap::new();
        for (rank, state) in [READY, PROCESSING, QUARANTINE, DONE].into_iter().enumerate() {
            self.files().visit(&self.dir.join(state), &mut |name| {
                if let Some(name) = FileName::parse(name) {
                    groups.entry(Key::of(&name)).or_default().push((rank, name));
                }
            })?;
        }
        let state_of = |rank: usize| [READY, PROCESSING, QUARANTINE, DONE].get(rank).copied().unwrap_or(DONE);
        let mut moved = false;
        for group in groups.into_values() {
            let settled = group.iter().any(|(rank, name)| *rank < 2 && cursors.contains(name));
            if group.len() < 2 && !settled {
                continue;
            }
            // A later delivery beats all; then an ended state; between ready and processing the later attempt.
            let order = |(rank, name): &(usize, FileName)| {
                let ended = if *rank >= 2 { *rank } else { 0 };
                (name.delivery, ended, name.attempt, *rank)
            };
            let winner = group.iter().copied().max_by_key(order).filter(|_| !settled || group.len() > 1);
            for (rank, name) in group {
                if winner == Some((rank, name)) && !(settled && rank < 2) {
                    continue;
                }
                let path = self.path(state_of(rank), &name);
                let kept = winner.filter(|w| *w != (rank, name)).map(|(r, n)| self.path(state_of(r), &n));
                self.drop_twin(&path, kept.as_deref(), &name)?;
                moved = true;
            }
        }
        Ok(moved)
    }

    fn drop_twin(&self, path: &Path, kept: Option<&Path>, name: &FileName) -> Result<(), MailboxError> {
        let limit = self.limits().envelope_bytes;
        let same = match kept {
            Some(kept) => match (self.files().read(path, limit), self.files().read(kept, limit)) {
                (Ok(one), Ok(other)) => one == other,
                (Ok(_) | Err(_), Ok(_) | Err(_)) => false,
            },
            None => false,
        };
        if same {
            self.files().remove_unsynced(path)?;
        } else {
            // Its key must not count as taken twice at the next reading: it gets a name that is not ours.
            let shown = format!("twin-{name}");
            self.put_in_quarantine(path, &shown, Some(name.id), &Reason::duplicate())?;
        }
        Ok(())
    }

    /// Looks through `ready/` for files that were missed.
    pub(super) fn rescan(&self, loaded: &mut Loaded) -> Result<(), MailboxError> {
        let mut names = Vec::new();
        self.files().visit(&self.dir.join(READY), &mut |name| {
            let known = FileName::parse(name).is_some_and(|name| loaded.index.get(&name) == Some(name));
            if !known {
                names.push(name.to_owned());
            }
        })?;
        for name in names {
            self.noticed(loaded, &name)?;
        }
        loaded.unwatched = 0;
        Ok(())
    }

    /// A file was seen in `ready/`. Our own renames are known and cost a look-up; answers whether something
    /// became ready.
    pub(super) fn noticed(&self, loaded: &mut Loaded, raw: &OsStr) -> Result<bool, MailboxError> {
        let Some(name) = FileName::parse(raw).filter(|name| name.holder.is_none()) else {
            return self.take_in(loaded, READY, raw);
        };
        let indexed = loaded.index.get(&name).is_some_and(|known| known.outside() == name.outside());
        let known = loaded.in_flight.contains(&Key::of(&name)) || indexed;
        let path = self.dir.join(READY).join(raw);
        if known || !self.files().exists(&path) {
            return Ok(false);
        }
        if loaded.seen.contains(&name) && self.is_elsewhere(loaded, &name) {
            self.quarantine_file(loaded, &path, &format!("twin-{name}"), None, &Reason::duplicate())?;
            return Ok(false);
        }
        loaded.quarantined.remove(&name.id);
        Ok(loaded.came(&name))
    }

    /// Whether a message that was taken before is settled or held: if not, another process gave it back.
    fn is_elsewhere(&self, loaded: &Loaded, name: &FileName) -> bool {
        let held =
            loaded.held.get(&name.id).is_some_and(|held| self.files().exists(&self.path(PROCESSING, held)));
        let first = name.attempt == 1 && name.delivery == 1;
        held || [DONE, QUARANTINE].into_iter().any(|state| self.files().exists(&self.path(state, name)))
            || (first
                && loaded.stage(name) == posthouse_shared::wire::replies::Stage::Done
                && self.pruned(name))
    }

    fn pruned(&self, name: &FileName) -> bool {
        Seen::read(self.files(), &self.dir).is_ok_and(|cursors| cursors.contains(name))
    }

    /// A file whose name is not ours: adopted where it is a message, else quarantined. Answers whether something
    /// became ready.
    fn take_in(&self, loaded: &mut Loaded, state: &'static str, raw: &OsStr) -> Result<bool, MailboxError> {
        let path = self.dir.join(state).join(raw);
        if !self.files().exists(&path) {
            return Ok(false);
        }
        let shown = raw.to_string_lossy().into_owned();
        let adopted = if state == READY {
            self.adopt(&path)?
        } else {
            Err(Reason::foreign("its name is not one of ours"))
        };
        let name = match adopted {
            Ok(name) if loaded.seen.contains(&name) => {
                self.quarantine_file(loaded, &path, &shown, None, &Reason::duplicate())?;
                return Ok(false);
            }
            Ok(name) => name,
            Err(reason) => {
                self.quarantine_file(loaded, &path, &shown, None, &reason)?;
                return Ok(false);
            }
        };
        match self.files().rename_unsynced(&path, &self.path(READY, &name)) {
            Ok(()) => {}
            Err(DurableError::NotFound { .. }) => return Ok(false),
            Err(error) => return Err(error.into()),
        }
        self.files().point("mailbox.adopt.renamed");
        Ok(loaded.came(&name))
    }

    /// The name under which a foreign file is delivered. What carries our own hash gets its own place back;
    /// all else is external, with an id made of its name and content.
    fn adopt(&self, path: &Path) -> Result<Result<FileName, Reason>, MailboxError> {
        let setup = &self.core.setup;
        let Some(shown) = file_name(path).to_str().filter(|name| name.ends_with(".json")) else {
            return Ok(Err(Reason::foreign("its name does not end in .json, or is not UTF-8")));
        };
        let bytes = match self.read_bounded(path)? {
            Ok(bytes) => bytes,
            Err(reason) => return Ok(Err(reason)),
        };
        let id = id_of_foreign(&self.agent, shown, &bytes);
        let now = setup.clock.now();
        let external = FileName::external(id, now);
        Ok(match self.reader().place_of(&bytes) {
            Some(name) => Ok(name),
            None => self.reader().external(bytes, &external).map(|_| external),
        })
    }

    /// Reads a file of at most an envelope's size; what cannot be a message is a reason.
    fn read_bounded(&self, path: &Path) -> Result<Result<Vec<u8>, Reason>, MailboxError> {
        match self.files().read(path, self.limits().envelope_bytes) {
            Ok(bytes) => Ok(Ok(bytes)),
            Err(DurableError::Io { source, .. }) if source.kind() == io::ErrorKind::FileTooLarge => {
                Ok(Err(Reason::of("too_large", format!("it is {source}"))))
            }
            Err(DurableError::Io { source, .. }) if source.kind() == io::ErrorKind::InvalidInput => {
                Ok(Err(Reason::foreign(&format!("it is {source}"))))
            }
            Err(DurableError::Io { source, .. }) if source.kind() == io::ErrorKind::IsADirectory => {
                Ok(Err(Reason::foreign("it is a directory")))
            }
            Err(DurableError::NotFound { .. }) => Ok(Err(Reason::foreign("it leads nowhere"))),
            Err(DurableError::ReadOnly { source, .. }) => {
                Ok(Err(Reason::foreign(&format!("it cannot be read: {source}"))))
            }
            Err(error) => Err(error.into()),
        }
    }
}

impl Inner {
    /// Reads the file at `path` and checks it against its name.
    pub(super) fn read_content(&self, path: &Path, name: &FileName) -> Result<Content, MailboxError> {
        Ok(match self.read_bounded(path)? {
            Ok(bytes) => self.reader().judge(bytes, name),
            Err(reason) => Content::Bad(reason),
        })
    }

    /// What tells a message from other bytes in this mailbox.
    pub(super) fn reader(&self) -> Reader<'_> {
        let setup = &self.core.setup;
        let (key, hosts, limits) = (&setup.key, &setup.hosts, setup.limits.as_ref());
        Reader { agent: &self.agent, birth: self.birth, key, hosts, limits }
    }

    /// The id that a file stands for, whatever is in it.
    pub(super) fn id_of_file(&self, name: &OsStr) -> MessageId {
        FileName::parse(name).map_or_else(
            || MessageId::derived(&["file", &self.agent.to_string(), &sha256_hex(name.as_encoded_bytes())]),
            |name| name.id,
        )
    }
}
