//! Questions that move nothing.

use posthouse_shared::clock::Stamp;
use posthouse_shared::lane::LaneKey;
use posthouse_shared::message::{Sealed, Vouched};
use posthouse_shared::name::MessageId;
use posthouse_shared::wire::replies::Stage;

use super::content::Content;
use super::error::MailboxError;
use super::name::{Class, FileName, Marks, Place};
use super::{DONE, Inner, Loaded, Mailbox, PROCESSING, QUARANTINE, READY, State};

/// How many messages are where.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Counts {
    /// To be claimed, now or once what goes before it is there.
    pub ready: usize,
    /// Those of them that are held for a lower number of their lane.
    pub held: usize,
    /// Held.
    pub processing: usize,
    /// Ended and not pruned.
    pub done: usize,
    /// In quarantine, foreign files among them.
    pub quarantined: usize,
}

/// A ready message that was only looked at.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Peeked {
    /// The message.
    pub message: Sealed,
    /// Who vouches for it.
    pub vouched: Vouched,
    /// What it is sorted by.
    pub order_at: Stamp,
    /// Which attempt its turn will be.
    pub attempt: u32,
    /// How often it was delivered by a person's will.
    pub delivery: u32,
    /// Its marks.
    pub marks: Marks,
    /// What it overtakes.
    pub class: Class,
}

/// Where a message is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Located {
    /// The message.
    pub id: MessageId,
    /// Its state. `Released`: ready again after an interrupted attempt.
    pub state: Stage,
    /// What it was sorted by.
    pub order_at: Stamp,
    /// Its number in its lane.
    pub lane: Option<u64>,
    /// The attempt that its present or next turn is.
    pub attempt: u32,
    /// How often it was delivered by a person's will.
    pub delivery: u32,
    /// Its marks.
    pub marks: Marks,
}

/// A lane that holds mail.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Gap {
    /// The lowest message that is held.
    pub id: MessageId,
    /// Its lane and epoch.
    pub key: LaneKey,
    /// Its number.
    pub seq: u64,
    /// The number that has not come.
    pub waits_for: u64,
}

impl Mailbox {
    /// How many messages are where.
    pub fn counts(&self) -> Result<Counts, MailboxError> {
        self.0.with(|loaded| {
            Ok(Counts {
                ready: loaded.index.len(),
                held: loaded.index.held(),
                processing: loaded.held.len(),
                done: loaded.done,
                quarantined: loaded.quarantined.len() + loaded.quarantined_foreign,
            })
        })
    }

    /// The first ready messages in the order of claims. What cannot be read is left out: the claim will
    /// quarantine it.
    pub fn peek(&self, limit: usize) -> Result<Vec<Peeked>, MailboxError> {
        let names = self.0.with(|loaded| Ok(loaded.index.in_order(limit)))?;
        let mut seen = Vec::with_capacity(names.len());
        for name in names {
            if let Content::Good(message, vouched) = self.0.read_content(&self.0.path(READY, &name), &name)? {
                seen.push(Peeked {
                    message: *message,
                    vouched,
                    order_at: name.order_at,
                    attempt: name.attempt.into(),
                    delivery: name.delivery.into(),
                    marks: name.marks,
                    class: name.class,
                });
            }
        }
        Ok(seen)
    }

    /// Where a message is; nothing where it never came or was pruned. Looks through the names, so it costs what
    /// the mailbox holds.
    pub fn find(&self, id: MessageId) -> Result<Option<Located>, MailboxError> {
        Ok(self.search(|other| other == id, 1)?.pop())
    }

    /// The messages whose id begins with these hex digits (dashes may be left away), at most `limit`.
    pub fn find_prefix(&self, prefix: &str, limit: usize) -> Result<Vec<Located>, MailboxError> {
        let prefix = prefix.replace('-', "").to_ascii_lowercase();
        self.search(|id| id.0.as_simple().to_string().starts_with(&prefix), limit)
    }

    /// Where a numbered message is that was ever taken; nothing where it was not. Costs a look-up: what was
    /// pruned, or dropped by a person, counts as done.
    pub fn stage_of(&self, id: MessageId, key: LaneKey, seq: u64) -> Result<Option<Stage>, MailboxError> {
        let name = FileName { place: Some(Place { key, seq }), ..FileName::external(id, Stamp::default()) };
        self.0.with(|loaded| Ok(loaded.seen.contains(&name).then(|| loaded.stage(&name))))
    }

    /// The content of a message, wherever it is in this mailbox.
    pub fn read(&self, id: MessageId) -> Result<Option<(Sealed, Vouched)>, MailboxError> {
        let inner = &self.0;
        let found = self.names(|other| other == id, 1)?;
        let Some((state, name)) = found.first() else { return Ok(None) };
        match inner.read_content(&inner.path(state, name), name)? {
            Content::Good(message, vouched) => Ok(Some((*message, vouched))),
            Content::Bad(_) => Ok(None),
        }
    }

    /// The lowest held message of each lane that holds mail.
    pub fn gaps(&self) -> Result<Vec<Gap>, MailboxError> {
        self.0.with(|loaded| Ok(gaps(loaded)))
    }

    /// The same where the names are in memory; nothing where they are not.
    pub fn gaps_in_memory(&self) -> Vec<Gap> {
        match &*self.0.lock_state() {
            State::Loaded(loaded) => gaps(loaded),
            State::Cold | State::Gone => Vec::new(),
        }
    }

    /// When the newest mail of the lead was sent that is ready; control and what a person redelivered do not
    /// count. Mail newer than a stop ends the stop.
    pub fn lead_newest(&self) -> Result<Option<Stamp>, MailboxError> {
        self.0.with(|loaded| Ok(loaded.index.lead_newest()))
    }

    fn search(&self, wanted: impl Fn(MessageId) -> bool, limit: usize) -> Result<Vec<Located>, MailboxError> {
        Ok(self.names(wanted, limit)?.into_iter().map(|(state, name)| located(state, &name)).collect())
    }

    fn names(
        &self,
        wanted: impl Fn(MessageId) -> bool,
        limit: usize,
    ) -> Result<Vec<(&'static str, FileName)>, MailboxError> {
        let inner = &self.0;
        let mut found = inner.with(|loaded| Ok(in_memory(loaded, &wanted, limit)))?;
        for state in [QUARANTINE, DONE] {
            if found.len() < limit {
                inner.scan(state, &wanted, limit, &mut found)?;
            }
        }
        Ok(found)
    }
}

impl Inner {
    fn scan(
        &self,
        state: &'static str,
        wanted: &impl Fn(MessageId) -> bool,
        limit: usize,
        found: &mut Vec<(&'static str, FileName)>,
    ) -> Result<(), MailboxError> {
        self.files().visit(&self.dir.join(state), &mut |name| {
            if let Some(name) = FileName::parse(name)
                && found.len() < limit
                && wanted(name.id)
            {
                found.push((state, name));
            }
        })?;
        Ok(())
    }
}

fn gaps(loaded: &Loaded) -> Vec<Gap> {
    let gaps = loaded.index.gaps().into_iter().filter_map(|name| {
        let place = name.place?;
        let waits_for = loaded.index.waits_for(place.key, place.seq)?;
        Some(Gap { id: name.id, key: place.key, seq: place.seq, waits_for })
    });
    gaps.collect()
}

fn in_memory(
    loaded: &Loaded,
    wanted: &impl Fn(MessageId) -> bool,
    limit: usize,
) -> Vec<(&'static str, FileName)> {
    let held = loaded.held.values().map(|name| (PROCESSING, *name));
    let ready = loaded.index.all().map(|name| (READY, name));
    held.chain(ready).filter(|(_, name)| wanted(name.id)).take(limit).collect()
}

fn located(state: &str, name: &FileName) -> Located {
    let state = match state {
        PROCESSING => Stage::Processing,
        QUARANTINE => Stage::Quarantined,
        DONE => Stage::Done,
        _ if name.attempt > 1 => Stage::Released,
        _ => Stage::Stored,
    };
    Located {
        id: name.id,
        state,
        order_at: name.order_at,
        lane: name.place.map(|place| place.seq),
        attempt: name.attempt.into(),
        delivery: name.delivery.into(),
        marks: name.marks,
    }
}
