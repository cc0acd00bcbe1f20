//! Files that the mailbox put aside by itself: unreadable, foreign, of an unknown kind or version. Nobody's
//! turn failed on them, so nobody else would say it: the lead gets a notice, followers an event.
//!
//! The notice's id is made of the file's name, so that it is told once, across restarts too.

use std::collections::BTreeSet;

use posthouse_shared::message::Kind;
use posthouse_shared::wire::event::What;

use super::agent::{Teammate, retryable};
use super::plan::Letter;
use super::{TeammateError, in_mailbox};
use crate::mailbox::{Mailbox, Quarantined};

/// What was told in this life, and how much lay in quarantine when it was looked at last.
#[derive(Debug, Default)]
pub(super) struct Strays {
    looked: usize,
    told: BTreeSet<String>,
}

/// Reasons that a turn or the loop has told of already.
fn is_told_elsewhere(entry: &Quarantined) -> bool {
    entry.reason.turn.is_some() || entry.reason.code == "max_attempts"
}

impl Teammate {
    /// Tells of what came to lie in quarantine since the last look. Looks at names only when their number has
    /// risen.
    pub(super) async fn tell_of_strays(&mut self) -> Result<(), TeammateError> {
        let now = in_mailbox(&self.mailbox, Mailbox::counts).await?.quarantined;
        if now <= std::mem::replace(&mut self.strays.looked, now) {
            return Ok(());
        }
        let entries = in_mailbox(&self.mailbox, Mailbox::quarantined).await?;
        self.strays.told.retain(|file| entries.iter().any(|entry| entry.file == *file));
        for entry in entries.into_iter().filter(|entry| !is_told_elsewhere(entry)) {
            if self.strays.told.contains(&entry.file) {
                continue;
            }
            let text = format!("{} has a file in quarantine: {}", self.setup.id.agent, entry.reason.text);
            let body = format!("{text}\nfile: {}\nposthouse quarantine show {}", entry.file, entry.id);
            let letter = Letter { kind: Kind::Notice, summary: super::plan::line("", &text), body };
            match self.tell(letter, "stray", &entry.file).await {
                Err(refusal) if retryable(&refusal) => {
                    // Looked at again at the next wake.
                    self.strays.looked = 0;
                    self.trouble("tell the lead", &refusal);
                    return Ok(());
                }
                Err(refusal) => tracing::warn!(agent = %self.setup.id, %refusal, "the lead is not told"),
                Ok(()) => {}
            }
            self.deps.port.event(What::MessageQuarantined {
                team: self.setup.id.team.clone(),
                id: Some(entry.id),
                to: self.setup.id.agent.clone(),
                why: entry.reason.text.clone(),
            });
            self.strays.told.insert(entry.file);
        }
        Ok(())
    }
}
