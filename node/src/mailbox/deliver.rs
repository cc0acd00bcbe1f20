//! Delivering: durable at return, once for ever, bounded.
//!
//! Order of steps: the place is taken in memory (so that a concurrent duplicate waits) -> content written and
//! synced in `tmp/` -> renamed into `ready/` -> `ready/` synced -> the index learns of it -> the answer. No
//! lock is held while syncing: concurrent senders share the kernel's commits.

use std::collections::HashSet;
use std::path::PathBuf;
use std::sync::PoisonError;

use posthouse_shared::clock::Stamp;
use posthouse_shared::lane::LaneKey;
use posthouse_shared::message::Sealed;
use posthouse_shared::wire::replies::Stage;

use super::error::MailboxError;
use super::name::{Class, FileName, Marks, Place};
use super::{Inner, Key, Loaded, Mailbox, News, READY};

/// What became of a delivery.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Delivered {
    /// It is in `ready/`, synced.
    Stored,
    /// It was taken before; this is where it is now. Nothing was written.
    Duplicate(Stage),
}

/// A process that only delivers hears nothing of the others' deliveries. After this share of a full mailbox it
/// reads the names anew, so that the limit of all processes together is passed by no more than that each.
const UNWATCHED_SHARE: u32 = 16;

/// What goes before a message in its lane, as its sender says.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum After {
    /// Nothing is known, or nothing is waited for: same host, control lane.
    Nothing,
    /// The highest lower number of the lane that is not done; nothing where all lower ones are.
    Open(Option<u64>),
}

enum Took {
    Place,
    Duplicate(Stage),
}

impl Mailbox {
    /// Stores a message, sorted by its stamp. Synced at return, on `Duplicate` too.
    pub fn deliver(&self, message: &Sealed, marks: Marks) -> Result<Delivered, MailboxError> {
        self.deliver_at(message, message.envelope.created_at, marks, After::Nothing)
    }

    /// The same, sorted by `order_at` (the arrival, where the stamp of another host is skewed), and held until what
    /// goes before it in its lane is there.
    pub fn deliver_at(
        &self,
        message: &Sealed,
        order_at: Stamp,
        marks: Marks,
        after: After,
    ) -> Result<Delivered, MailboxError> {
        let inner = &self.0;
        let mut name = inner.arriving(message, order_at, marks)?;
        match inner.take_place(&mut name, after)? {
            Took::Duplicate(stage) => Ok(Delivered::Duplicate(stage)),
            Took::Place => {
                let to = inner.path(READY, &name);
                let placed = inner.files().place(&inner.tmp_path(), &to, &message.bytes);
                if placed.is_err() {
                    inner.take_back(&to);
                }
                inner.land(&[(name, placed.is_ok())]);
                placed.map_err(MailboxError::from)?;
                inner.files().point("mailbox.deliver.indexed");
                Ok(Delivered::Stored)
            }
        }
    }

    /// Stores many messages with two barriers in all: contents are written, the file system is synced, only
    /// then are they renamed into `ready/`, and that is synced. Each answer is durable at return.
    pub fn deliver_many(&self, messages: &[Sealed]) -> Vec<Result<Delivered, MailboxError>> {
        let inner = &self.0;
        let mut answers = Vec::with_capacity(messages.len());
        let mut again = Vec::new();
        let mut keys = HashSet::with_capacity(messages.len());
        let mut taken: Vec<(usize, FileName, PathBuf)> = Vec::with_capacity(messages.len());
        for (at, message) in messages.iter().enumerate() {
            let mut name = match inner.arriving(message, message.envelope.created_at, Marks::NONE) {
                Ok(name) => name,
                Err(error) => {
                    answers.push(Err(error));
                    continue;
                }
            };
            // A duplicate within the batch would wait for itself.
            if !keys.insert(Key::of(&name)) {
                again.push((at, message));
                answers.push(Ok(Delivered::Duplicate(Stage::Stored)));
                continue;
            }
            match inner.take_place(&mut name, After::Nothing) {
                Ok(Took::Duplicate(stage)) => answers.push(Ok(Delivered::Duplicate(stage))),
                Ok(Took::Place) => {
                    let tmp = inner.tmp_path();
                    let written = inner.files().write_unsynced(&tmp, &message.bytes);
                    match written {
                        Ok(()) => {
                            taken.push((at, name, tmp));
                            answers.push(Ok(Delivered::Stored));
                        }
                        Err(error) => {
                            inner.land(&[(name, false)]);
                            answers.push(Err(error.into()));
                        }
                    }
                }
                Err(error) => answers.push(Err(error)),
            }
        }
        let landed = inner.place_written(&taken, &mut answers);
        inner.land(&landed);
        for (at, message) in again {
            let answer = self.deliver(message, Marks::NONE);
            if let Some(slot) = answers.get_mut(at) {
                *slot = answer;
            }
        }
        answers
    }

    /// The sender of a lane says that below `seq`, which it sent, only numbers up to `after` are still open: what was
    /// held for others goes on.
    pub fn open_after(&self, key: LaneKey, seq: u64, after: Option<u64>) -> Result<(), MailboxError> {
        if self.0.with(|loaded| Ok(loaded.open_after(key, seq, after)))? {
            self.0.bump();
        }
        Ok(())
    }

    /// An epoch of a lane has ended: its gaps will not be filled, so what it holds goes on in its order.
    pub fn end_epoch(&self, key: LaneKey) -> Result<(), MailboxError> {
        let ended = self.0.with(|loaded| {
            loaded.busy.remove(&key);
            Ok(loaded.index.wait_anew(key, |_| None))
        })?;
        if ended {
            self.0.bump();
        }
        Ok(())
    }

    /// Says that a number which was answered *full* will not come again, so that its lane goes on.
    pub fn withdraw(&self, message: &Sealed) {
        if let (Some(key), Some(lane)) = (message.envelope.lane_key(), message.envelope.lane) {
            let _nothing_to_withdraw_when_cold = self.0.with(|loaded| {
                loaded.no_longer_busy(key, lane.seq);
                Ok(())
            });
        }
    }
}

impl Inner {
    /// The name under which a message arrives; refuses what is not for this mailbox.
    fn arriving(&self, message: &Sealed, order_at: Stamp, marks: Marks) -> Result<FileName, MailboxError> {
        let envelope = &message.envelope;
        if envelope.recipient() != self.agent {
            return Err(MailboxError::WrongRecipient {
                id: envelope.id,
                wanted: envelope.recipient(),
                agent: self.agent.clone(),
            });
        }
        if envelope.to.birth != self.birth {
            return Err(MailboxError::WrongBirth {
                id: envelope.id,
                agent: self.agent.clone(),
                wanted: envelope.to.birth,
                birth: self.birth,
            });
        }
        Ok(FileName::arriving(envelope, order_at, marks))
    }

    /// Takes the place of a message; waits where the same one is being written at this moment.
    fn take_place(&self, name: &mut FileName, after: After) -> Result<Took, MailboxError> {
        let mut state = self.lock_state();
        loop {
            let loaded = self.loaded(&mut state)?;
            if !loaded.in_flight.contains(&Key::of(name)) {
                break;
            }
            state = self.landed.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
        let loaded = self.loaded(&mut state)?;
        if loaded.goes_after(name, after) {
            self.bump();
        }
        if loaded.news == News::NotAsked {
            loaded.unwatched = loaded.unwatched.saturating_add(1);
            if loaded.unwatched > self.limits().ready_per_mailbox / UNWATCHED_SHARE {
                self.rescan(loaded)?;
            }
        }
        if loaded.seen.contains(name) {
            return Ok(Took::Duplicate(loaded.stage(name)));
        }
        loaded.admit(name, self)?;
        loaded.in_flight.insert(Key::of(name));
        Ok(Took::Place)
    }

    /// What was being written is there, or is not.
    fn land(&self, names: &[(FileName, bool)]) {
        let mut state = self.lock_state();
        if let Ok(loaded) = self.loaded(&mut state) {
            for (name, stored) in names {
                loaded.in_flight.remove(&Key::of(name));
                if *stored {
                    loaded.came(name);
                    if let Some(place) = name.place {
                        loaded.no_longer_busy(place.key, place.seq);
                    }
                }
            }
        }
        drop(state);
        self.landed.notify_all();
        self.bump();
    }

    fn place_written(
        &self,
        taken: &[(usize, FileName, PathBuf)],
        answers: &mut [Result<Delivered, MailboxError>],
    ) -> Vec<(FileName, bool)> {
        let files = self.files();
        let ready = self.dir.join(READY);
        let mut landed = Vec::with_capacity(taken.len());
        if taken.is_empty() {
            return landed;
        }
        let mut fail = |at: usize, error: MailboxError| {
            if let Some(answer) = answers.get_mut(at) {
                *answer = Err(error);
            }
        };
        files.point("mailbox.deliver_many.written");
        let synced = files.sync_file_system(&self.dir);
        files.point("mailbox.deliver_many.contents_synced");
        for (at, name, tmp) in taken {
            let to = ready.join(name.to_string());
            let renamed = match &synced {
                Ok(()) => files.rename_unsynced(tmp, &to),
                Err(_) => files.sync_file_system(&self.dir).and_then(|()| files.rename_unsynced(tmp, &to)),
            };
            if let Err(error) = renamed {
                self.take_back(tmp);
                fail(*at, error.into());
                landed.push((*name, false));
            } else {
                landed.push((*name, true));
            }
        }
        files.point("mailbox.deliver_many.renamed");
        if files.sync_dir(&ready).is_err() {
            for ((at, name, _), (_, stored)) in taken.iter().zip(&mut landed) {
                if *stored && let Err(error) = files.sync_dir(&ready) {
                    self.take_back(&ready.join(name.to_string()));
                    fail(*at, error.into());
                    *stored = false;
                }
            }
        }
        files.point("mailbox.deliver_many.synced");
        landed
    }

    /// After a failure nothing of the message may stay.
    fn take_back(&self, path: &std::path::Path) {
        if let Err(error) = self.files().remove_unsynced(path) {
            tracing::warn!(agent = %self.agent, path = %path.display(), %error, "cannot take back a file after a failed delivery");
        }
    }
}

impl Loaded {
    /// A message is in `ready/`: what waited for it goes on. Answers whether it was new there.
    pub(super) fn came(&mut self, name: &FileName) -> bool {
        self.seen.insert(name);
        let new = self.index.insert(name);
        if let Some(Place { key, .. }) = name.place {
            let seen = &self.seen;
            self.index.wait_anew(key, |on| Some(on).filter(|on| !seen.has(key, *on)));
        }
        new
    }

    /// Minds what the sender says goes before a message that arrives, and names it where it is still to come.
    /// Answers whether something that was held goes on.
    fn goes_after(&mut self, name: &mut FileName, after: After) -> bool {
        let (After::Open(after), Some(place)) = (after, name.place) else { return false };
        if name.class == Class::Control {
            return false;
        }
        let before = after.filter(|after| (1..place.seq).contains(after));
        name.after = before.filter(|after| !name.outside() && !self.seen.has(place.key, *after));
        self.open_after(place.key, place.seq, before)
    }

    /// The sender says that of all numbers below `seq` `after` is the highest that is not over. Nobody waits for
    /// those in between any more, neither held mail nor back-pressure.
    pub(super) fn open_after(&mut self, key: LaneKey, seq: u64, after: Option<u64>) -> bool {
        let over = |number: u64| number < seq && after.is_none_or(|after| number > after);
        if let Some(numbers) = self.busy.get_mut(&key) {
            numbers.retain(|number| !over(*number));
            if numbers.is_empty() {
                self.busy.remove(&key);
            }
        }
        let open = after.filter(|after| !self.seen.has(key, *after));
        self.index.wait_anew(key, |on| if over(on) { open } else { Some(on) })
    }

    /// Back-pressure: refuses when full, and what is above a number of its lane that was refused so. What fills a
    /// gap in front of held mail is let in all the same.
    fn admit(&mut self, name: &FileName, inner: &Inner) -> Result<(), MailboxError> {
        let limits = inner.limits();
        let size = |limit: u32| usize::try_from(limit).unwrap_or(usize::MAX);
        let mut limit = size(limits.ready_per_mailbox);
        if name.class == Class::Control {
            limit = limit.saturating_add(size(limits.control_reserve));
        }
        let ready = self.index.len().saturating_add(self.in_flight.len());
        let below_is_busy = name.place.is_some_and(|place| {
            let lowest = self.busy.get(&place.key).and_then(|numbers| numbers.first());
            lowest.is_some_and(|lowest| *lowest < place.seq)
        });
        let fills = name.place.is_some_and(|place| self.index.fills_gap(place.key, place.seq));
        if (ready < limit || fills) && !below_is_busy {
            return Ok(());
        }
        if let Some(place) = name.place {
            self.busy.entry(place.key).or_default().insert(place.seq);
        }
        Err(MailboxError::Full { agent: inner.agent.clone(), ready, limit })
    }

    fn no_longer_busy(&mut self, key: LaneKey, seq: u64) {
        if let Some(numbers) = self.busy.get_mut(&key) {
            numbers.remove(&seq);
            if numbers.is_empty() {
                self.busy.remove(&key);
            }
        }
    }

    /// Where a message is that was taken before.
    pub(super) fn stage(&self, name: &FileName) -> Stage {
        if self.index.get(name).is_some() {
            Stage::Stored
        } else if self.held.contains_key(&name.id) {
            Stage::Processing
        } else if self.quarantined.contains(&name.id) {
            Stage::Quarantined
        } else {
            Stage::Done
        }
    }
}
