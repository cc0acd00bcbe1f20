//! The mailbox of a lead that is a person or another program: messages are handed out under a lease and
//! acknowledged by naming them (`seen`) in a later request; what is not named comes again. A restart gives
//! the leases back without counting an attempt: looking is not trying.
//!
//! Order of an acknowledgement: history synced -> ack. A crash in between is mended at the next start: what the
//! history holds as done is acknowledged, and does not come again.

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use posthouse_node::history::{
    Begin, Disposition, End, History, HistoryError, InTurn, Input, InputKey, history_path,
};
use posthouse_node::mailbox::{Batch, Claimed, Mailbox, MailboxError, Release, Which};
use posthouse_shared::clock::Clock;
use posthouse_shared::durable::Files;
use posthouse_shared::name::{AgentId, MessageId};
use posthouse_shared::refusal::Refusal;

/// Why an inbox cannot be read.
#[derive(Debug, thiserror::Error)]
pub enum InboxError {
    /// The mailbox.
    #[error(transparent)]
    Mailbox(#[from] MailboxError),
    /// The history.
    #[error("write the lead's history")]
    History(#[from] HistoryError),
}

impl InboxError {
    /// As a refusal for users.
    pub fn refusal(&self) -> Refusal {
        match self {
            Self::Mailbox(error) => error.refusal(),
            Self::History(error) => Refusal::new(posthouse_shared::codes::Code::DiskFailed, self.to_string())
                .because(error)
                .effect("nothing was acknowledged; it comes again"),
        }
    }
}

/// What was handed out and not acknowledged yet, by mailbox.
pub struct Inboxes {
    files: Files,
    data: PathBuf,
    clock: Arc<dyn Clock>,
    handed: Mutex<BTreeMap<AgentId, Vec<Claimed>>>,
}

impl Inboxes {
    /// None handed out yet. Histories lie in the data directory `data`.
    pub fn new(files: Files, data: PathBuf, clock: Arc<dyn Clock>) -> Self {
        Self { files, data, clock, handed: Mutex::default() }
    }

    /// Gives back what an earlier process had handed out, but for what the history holds as done. Called once
    /// for each such mailbox at the start.
    pub fn recover(&self, mailbox: &Mailbox) -> Result<(), InboxError> {
        let orphans = mailbox.orphans()?;
        if orphans.is_empty() {
            return Ok(());
        }
        let keys: BTreeSet<InputKey> = orphans.iter().map(InputKey::of).collect();
        let ended = self.history(mailbox)?.ended(&keys)?;
        let (done, open): (Vec<_>, Vec<_>) =
            orphans.iter().partition(|claimed| ended.contains_key(&InputKey::of(claimed)));
        mailbox.ack(&done.iter().map(|claimed| claimed.lease).collect::<Vec<_>>())?;
        mailbox.release(&open.iter().map(|claimed| claimed.lease).collect::<Vec<_>>(), Release::Planned)?;
        Ok(())
    }

    /// Acknowledges those of `seen` that were handed out; the others are passed over. At return they are in the
    /// lead's history and in `done/`, on disk.
    pub fn acknowledge(&self, mailbox: &Mailbox, seen: &[MessageId]) -> Result<(), InboxError> {
        let mut handed = self.lock();
        let Some(held) = handed.get_mut(mailbox.agent()) else { return Ok(()) };
        let named: Vec<&Claimed> = held.iter().filter(|claimed| seen.contains(&claimed.lease.id())).collect();
        if named.is_empty() {
            return Ok(());
        }
        self.write_down(mailbox, &named)?;
        self.files.point("inbox.history.synced");
        mailbox.ack(&named.iter().map(|claimed| claimed.lease).collect::<Vec<_>>())?;
        held.retain(|claimed| !seen.contains(&claimed.lease.id()));
        Ok(())
    }

    /// Hands out at most `limit` messages: first what was handed out before and not acknowledged, then what is
    /// ready.
    pub fn read(&self, mailbox: &Mailbox, limit: usize) -> Result<Vec<Claimed>, InboxError> {
        let mut handed = self.lock();
        let held = handed.entry(mailbox.agent().clone()).or_default();
        let room = limit.saturating_sub(held.len());
        if room > 0 {
            held.extend(mailbox.claim(Batch {
                messages_max: room,
                bytes_max: u64::MAX,
                only: Which::All,
            })?);
        }
        Ok(held.iter().take(limit).cloned().collect())
    }

    /// What is handed out just now, without change.
    pub fn handed(&self, agent: &AgentId) -> Vec<Claimed> {
        self.lock().get(agent).cloned().unwrap_or_default()
    }

    /// Gives back what is handed out of one mailbox: an agent is about to read it, or it goes to the attic.
    pub fn give_back(&self, agent: &AgentId, mailbox: Option<&Mailbox>) -> Result<(), InboxError> {
        let held = self.lock().remove(agent).unwrap_or_default();
        if let Some(mailbox) = mailbox.filter(|_| !held.is_empty()) {
            mailbox
                .release(&held.iter().map(|claimed| claimed.lease).collect::<Vec<_>>(), Release::Planned)?;
        }
        Ok(())
    }

    fn write_down(&self, mailbox: &Mailbox, named: &[&Claimed]) -> Result<(), InboxError> {
        let mut history = self.history(mailbox)?;
        let (turn, at) = (history.fold().turn + 1, self.clock.now());
        let inputs: Vec<InTurn> = named
            .iter()
            .map(|claimed| InTurn { key: InputKey::of(claimed), attempt: claimed.attempt })
            .collect();
        let read = named.iter().map(|claimed| Input::of(turn, claimed, at)).collect();
        history.begin(read, Begin { turn, inputs: inputs.clone(), task: None, at })?;
        history.end(End {
            turn,
            disposition: Disposition::Done,
            inputs,
            result: String::new(),
            messages: Vec::new(),
            task: None,
            shutdown: None,
            at,
        })?;
        Ok(())
    }

    fn history(&self, mailbox: &Mailbox) -> Result<History, HistoryError> {
        History::open(self.files.clone(), history_path(&self.data, mailbox.agent(), mailbox.birth()))
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<AgentId, Vec<Claimed>>> {
        self.handed.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
