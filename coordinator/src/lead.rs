//! The mailbox of a lead that is a person or another program: messages are handed out under a lease and
//! acknowledged by naming them (`seen`) in the next request; what is not named comes again. A restart gives
//! the leases back without counting an attempt: looking is not trying.
//!
//! On disk at return of [`Inboxes::read`] and [`Inboxes::acknowledge`]: what was named in `seen` is in `done/`.

use std::collections::BTreeMap;
use std::sync::{Mutex, PoisonError};

use posthouse_node::mailbox::{Batch, Claimed, Mailbox, MailboxError, Release, Which};
use posthouse_shared::name::{AgentId, MessageId};

/// What was handed out and not acknowledged yet, by mailbox.
#[derive(Default)]
pub struct Inboxes {
    handed: Mutex<BTreeMap<AgentId, Vec<Claimed>>>,
}

impl std::fmt::Debug for Inboxes {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Inboxes")
    }
}

impl Inboxes {
    /// Gives back what an earlier process had handed out. Called once for each such mailbox at the start.
    pub fn recover(&self, mailbox: &Mailbox) -> Result<(), MailboxError> {
        let leases: Vec<_> = mailbox.orphans()?.into_iter().map(|claimed| claimed.lease).collect();
        mailbox.release(&leases, Release::Planned).map(|_| ())
    }

    /// Acknowledges `seen`, then hands out at most `limit` messages: first what was handed out before and not
    /// named, then what is ready.
    pub fn read(
        &self,
        mailbox: &Mailbox,
        seen: &[MessageId],
        limit: usize,
    ) -> Result<Vec<Claimed>, MailboxError> {
        let mut handed = self.handed.lock().unwrap_or_else(PoisonError::into_inner);
        let held = handed.entry(mailbox.agent().clone()).or_default();
        acknowledge(mailbox, held, seen)?;
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

    /// Acknowledges `seen` and hands out nothing.
    pub fn acknowledge(&self, mailbox: &Mailbox, seen: &[MessageId]) -> Result<(), MailboxError> {
        let mut handed = self.handed.lock().unwrap_or_else(PoisonError::into_inner);
        acknowledge(mailbox, handed.entry(mailbox.agent().clone()).or_default(), seen)
    }

    /// What is handed out just now, without change.
    pub fn handed(&self, agent: &AgentId) -> Vec<Claimed> {
        self.handed.lock().unwrap_or_else(PoisonError::into_inner).get(agent).cloned().unwrap_or_default()
    }

    /// Forgets a mailbox that went to the attic.
    pub fn forget(&self, agent: &AgentId) {
        self.handed.lock().unwrap_or_else(PoisonError::into_inner).remove(agent);
    }
}

fn acknowledge(mailbox: &Mailbox, held: &mut Vec<Claimed>, seen: &[MessageId]) -> Result<(), MailboxError> {
    let named: Vec<_> = held
        .iter()
        .filter(|claimed| seen.contains(&claimed.lease.id()))
        .map(|claimed| claimed.lease)
        .collect();
    if !named.is_empty() {
        mailbox.ack(&named)?;
        held.retain(|claimed| !seen.contains(&claimed.lease.id()));
    }
    Ok(())
}
