//! Claims and what ends them. A claim is an atomic rename from `ready/` to `processing/`, unsynced: lost in a
//! crash, the message is simply ready again. Whoever loses the race for a file takes the next one, without
//! reading the directory anew.

use std::path::Path;

use posthouse_shared::clock::Stamp;
use posthouse_shared::durable::DurableError;
use posthouse_shared::message::{Sealed, Vouched};
use posthouse_shared::name::MessageId;
use posthouse_shared::wire::replies::Stage;

use super::content::Content;
use super::error::MailboxError;
use super::index::Which;
use super::name::{FileName, Incarnation, Marks};
use super::quarantine::Reason;
use super::{DONE, Inner, LOCK, Loaded, Mailbox, News, PROCESSING, READY};

/// How much a claim takes at most. At least one message, however large, where one is ready.
#[derive(Debug, Clone, Copy)]
pub struct Batch {
    /// Messages.
    pub messages_max: usize,
    /// Bytes of their encoded envelopes.
    pub bytes_max: u64,
    /// Which ones.
    pub only: Which,
}

impl Batch {
    /// One message of any class.
    pub const ONE: Self = Self { messages_max: 1, bytes_max: 0, only: Which::All };
}

/// The right to end one message: names its entry in `processing/`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Lease {
    pub(super) name: FileName,
}

impl Lease {
    /// The message.
    pub const fn id(&self) -> MessageId {
        self.name.id
    }

    /// Which attempt its turn is, from 1.
    pub fn attempt(&self) -> u32 {
        self.name.attempt.into()
    }

    /// Who took it.
    pub fn holder(&self) -> Incarnation {
        self.name.holder.unwrap_or_default()
    }

    /// The entry in `processing/`.
    pub fn file(&self) -> String {
        self.name.to_string()
    }
}

/// A message with the lease on it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Claimed {
    /// What ends it.
    pub lease: Lease,
    /// The message. Where nobody vouches for it, the sender is `external` and the kind is `message`, whatever
    /// the file says.
    pub message: Sealed,
    /// Who vouches for it.
    pub vouched: Vouched,
    /// What it was sorted by.
    pub order_at: Stamp,
    /// Which attempt its turn is, from 1.
    pub attempt: u32,
    /// How often it was delivered by a person's will, from 1.
    pub delivery: u32,
    /// Its marks.
    pub marks: Marks,
}

impl Claimed {
    fn new(name: FileName, (message, vouched): (Sealed, Vouched)) -> Self {
        Self {
            lease: Lease { name },
            message,
            vouched,
            order_at: name.order_at,
            attempt: name.attempt.into(),
            delivery: name.delivery.into(),
            marks: name.marks,
        }
    }
}

/// Why messages go back to `ready/`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Release {
    /// The turn was cut short: the next one is another attempt.
    Interrupted,
    /// A stop or a planned end: does not count.
    Planned,
}

impl Mailbox {
    /// Claims what is ready, in order (P3). Nothing is synced. A file whose content is not what its name says
    /// goes to quarantine and is not among the answer.
    pub fn claim(&self, batch: Batch) -> Result<Vec<Claimed>, MailboxError> {
        let inner = &self.0;
        inner.with(|loaded| {
            if loaded.news == News::Unwatchable && loaded.index.first(batch.only).is_none() {
                inner.rescan(loaded)?;
            }
            if loaded.index.first(batch.only).is_none() {
                return Ok(Vec::new());
            }
            // Opened anew each time: ten thousand mailboxes must not hold ten thousand files open. Without it
            // (no room for the file, say) the renames are still atomic.
            let lock = inner.files().open_lock(&inner.dir.join(LOCK)).ok();
            let lock = lock.filter(|lock| lock.lock().is_ok());
            let claimed = inner.claim(loaded, batch);
            drop(lock);
            claimed
        })
    }

    /// Ends messages well: `processing/` -> `done/`. One sync for all of them; durable at return. A message that
    /// is in `done/` already is fine.
    pub fn ack(&self, leases: &[Lease]) -> Result<(), MailboxError> {
        if leases.is_empty() {
            return Ok(());
        }
        let inner = &self.0;
        inner.with(|loaded| {
            for lease in leases {
                let from = inner.path(PROCESSING, &lease.name);
                let to = inner.path(DONE, &lease.name.free());
                match inner.files().rename_unsynced(&from, &to) {
                    Ok(()) => loaded.done += 1,
                    Err(DurableError::NotFound { .. }) if inner.files().exists(&to) => {}
                    Err(DurableError::NotFound { .. }) => {
                        return Err(MailboxError::LeaseLost { id: lease.id() });
                    }
                    Err(error) => return Err(error.into()),
                }
                loaded.held.remove(&lease.id());
                inner.files().point("mailbox.ack.renamed");
            }
            Ok(())
        })?;
        // Without the lock: threads that end turns at the same time share the commit.
        inner.files().sync_dir(&inner.dir.join(DONE))?;
        inner.files().point("mailbox.ack.synced");
        inner.tell_settled(leases.iter().map(Lease::id), Stage::Done);
        Ok(())
    }

    /// Gives messages back. Those that were interrupted `max_attempts` times go to quarantine; their ids are the
    /// answer. Durable at return. What is not held any more is passed over.
    pub fn release(&self, leases: &[Lease], how: Release) -> Result<Vec<MessageId>, MailboxError> {
        if leases.is_empty() {
            return Ok(Vec::new());
        }
        let inner = &self.0;
        let max = inner.limits().max_attempts;
        let spent = |lease: &&Lease| how == Release::Interrupted && u32::from(lease.name.attempt) >= max;
        let (spent, again): (Vec<&Lease>, Vec<&Lease>) = leases.iter().partition(spent);
        inner.with(|loaded| {
            for lease in &again {
                let mut name = lease.name.free();
                if how == Release::Interrupted {
                    name.attempt = name.attempt.saturating_add(1);
                }
                let from = inner.path(PROCESSING, &lease.name);
                match inner.files().rename_unsynced(&from, &inner.path(READY, &name)) {
                    Ok(()) => {
                        loaded.index.insert(&name);
                    }
                    Err(DurableError::NotFound { .. }) => {}
                    Err(error) => return Err(error.into()),
                }
                loaded.held.remove(&lease.id());
                inner.files().point("mailbox.release.renamed");
            }
            Ok(())
        })?;
        inner.files().sync_dir(&inner.dir.join(READY))?;
        inner.files().point("mailbox.release.synced");
        inner.bump();
        let spent: Vec<Lease> = spent.into_iter().copied().collect();
        if !spent.is_empty() {
            let text = format!("interrupted {max} times, which is the limit (max_attempts)");
            self.quarantine(&spent, &Reason { code: "max_attempts".to_owned(), text, turn: None })?;
        }
        Ok(spent.iter().map(Lease::id).collect())
    }

    /// What lies in `processing/` under an earlier incarnation: left by a crash. The teammate folds its history
    /// over it and acks, releases or quarantines it.
    pub fn orphans(&self) -> Result<Vec<Claimed>, MailboxError> {
        let inner = &self.0;
        let own = inner.core.setup.incarnation;
        inner.with(|loaded| {
            let mut names: Vec<FileName> =
                loaded.held.values().filter(|name| name.holder != Some(own)).copied().collect();
            names.sort_by_key(|name| (super::index::Rank::of(name), name.place));
            let mut orphans = Vec::with_capacity(names.len());
            for name in names {
                let path = inner.path(PROCESSING, &name);
                if let Some(content) = inner.checked(loaded, &path, &name)? {
                    orphans.push(Claimed::new(name, content));
                }
            }
            Ok(orphans)
        })
    }
}

impl Inner {
    fn claim(&self, loaded: &mut Loaded, batch: Batch) -> Result<Vec<Claimed>, MailboxError> {
        let mut claimed: Vec<Claimed> = Vec::new();
        let mut bytes = 0u64;
        while claimed.len() < batch.messages_max.max(1)
            && let Some(name) = loaded.index.first(batch.only)
        {
            let held = name.held(self.core.setup.incarnation);
            let (ready, processing) = (self.path(READY, &name), self.path(PROCESSING, &held));
            match self.files().rename_unsynced(&ready, &processing) {
                Ok(()) => {}
                Err(DurableError::NotFound { .. }) => {
                    loaded.index.remove(&name);
                    continue;
                }
                Err(error) if claimed.is_empty() => return Err(error.into()),
                Err(_) => break,
            }
            self.files().point("mailbox.claim.renamed");
            loaded.index.remove(&name);
            loaded.held.insert(held.id, held);
            let content = match self.checked(loaded, &processing, &held) {
                Ok(Some(content)) => content,
                Ok(None) => continue,
                Err(error) => {
                    self.put_back(loaded, &name, &held)?;
                    if claimed.is_empty() {
                        return Err(error);
                    }
                    break;
                }
            };
            let size = u64::try_from(content.0.bytes.len()).unwrap_or(u64::MAX);
            if !claimed.is_empty() && bytes.saturating_add(size) > batch.bytes_max {
                self.put_back(loaded, &name, &held)?;
                break;
            }
            bytes = bytes.saturating_add(size);
            claimed.push(Claimed::new(held, content));
        }
        Ok(claimed)
    }

    fn put_back(&self, loaded: &mut Loaded, name: &FileName, held: &FileName) -> Result<(), MailboxError> {
        let name = FileName { after: None, ..*name };
        self.files().rename_unsynced(&self.path(PROCESSING, held), &self.path(READY, &name))?;
        loaded.held.remove(&held.id);
        loaded.index.insert(&name);
        Ok(())
    }

    /// The content of a held file, checked against its name; nothing where it had to go to quarantine.
    fn checked(
        &self,
        loaded: &mut Loaded,
        path: &Path,
        held: &FileName,
    ) -> Result<Option<(Sealed, Vouched)>, MailboxError> {
        match self.read_content(path, held)? {
            Content::Good(message, vouched) => Ok(Some((*message, vouched))),
            Content::Bad(reason) => {
                loaded.held.remove(&held.id);
                self.quarantine_file(loaded, path, &held.free().to_string(), Some(held.id), &reason)?;
                Ok(None)
            }
        }
    }
}
