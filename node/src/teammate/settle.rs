//! Carries out what a `turn_end` says: messages, the task, the mail. Each step has the same ids each time, so
//! all of it may be done again; each is tried alone until it is done, without a second append or turn. Only a
//! closing node gives up, and its next start begins here again.
//!
//! 1. messages delivered (`turn.effects.messages`)
//! 2. the task completed or given back (`turn.effects.completion`)
//! 3. the mail acknowledged, released or quarantined (`turn.acked`)

use posthouse_shared::message::{Kind, Sealed};
use posthouse_shared::name::MessageId;
use posthouse_shared::wire::event::What;
use posthouse_shared::wire::replies::Stage;

use super::agent::{Teammate, Untold, retryable};
use super::life::About;
use super::plan::{Facts, Letter, cut_off};
use super::recover::{Fate, fate, fates, unknown};
use super::turn::in_turn;
use super::{TeammateError, blocking, in_mailbox};
use crate::history::{Disposition, End, InTurn, TaskEnd};
use crate::mailbox::{Lease, Reason, Release};

/// What becomes of which leases.
#[derive(Debug, Default)]
pub(super) struct Moves {
    ack: Vec<Lease>,
    interrupted: Vec<Lease>,
    planned: Vec<Lease>,
    quarantine: Vec<(u64, String, Vec<Lease>)>,
}

impl Moves {
    /// All of a turn's leases, by its disposition.
    pub fn of(end: &End, leases: Vec<Lease>) -> Self {
        let mut moves = Self::default();
        for lease in leases {
            moves.add(fate(end), lease);
        }
        moves
    }

    fn add(&mut self, fate: Fate, lease: Lease) {
        match fate {
            Fate::Ack => self.ack.push(lease),
            Fate::Planned => self.planned.push(lease),
            Fate::Interrupted => self.interrupted.push(lease),
            Fate::Quarantine { turn, why } => {
                match self.quarantine.iter_mut().find(|(other, _, _)| *other == turn) {
                    Some((_, _, leases)) => leases.push(lease),
                    None => self.quarantine.push((turn, why, vec![lease])),
                }
            }
        }
    }
}

impl Teammate {
    /// The one recovery routine: folds the history over what lies in `processing/` of dead incarnations, and
    /// redoes the effects of the last `turn_end`.
    pub(super) async fn recover(&mut self) -> Result<(), TeammateError> {
        let begun = self.fold(|fold| fold.begun.clone());
        if let Some(begun) = begun {
            let tries = self.fold(|fold| fold.tries.clone());
            let plan = cut_off(&Facts {
                turn: begun.turn,
                about: About::Work,
                ending: None,
                claim: begun.task.as_ref(),
                tries: tries.as_ref(),
                attempts_max: self.deps.limits.max_attempts,
            });
            self.write_end(begun.turn, begun.inputs, plan).await;
        }
        let orphans = in_mailbox(&self.mailbox, crate::mailbox::Mailbox::orphans).await?;
        let in_turns: Vec<InTurn> = orphans.iter().map(in_turn).collect();
        let unknown = self.fold(|fold| unknown(fold, &in_turns));
        let older = if unknown.is_empty() {
            std::collections::BTreeMap::new()
        } else {
            self.in_history(move |history| history.ended(&unknown)).await??
        };
        let fates = self.fold(|fold| fates(fold, &older, &in_turns));
        let mut moves = Moves::default();
        for (orphan, fate) in orphans.iter().zip(fates) {
            tracing::info!(agent = %self.setup.id, message = %orphan.lease.id(), ?fate, "recover lease");
            moves.add(fate, orphan.lease);
        }
        let last = self.fold(|fold| fold.last.clone());
        match last {
            Some(end) => {
                if end.disposition == Disposition::Done && end.shutdown.is_none() {
                    let on_board = end.task.is_some();
                    self.untold = Some(Untold { turn: end.turn, result: end.result.clone(), on_board });
                }
                self.settle(&end, moves).await;
            }
            None => self.settle_mail(&moves).await,
        }
        Ok(())
    }

    /// Carries out a `turn_end`.
    pub(super) async fn settle(&mut self, end: &End, moves: Moves) {
        for message in &end.messages {
            self.settle_message(message).await;
        }
        self.deps.files.point("turn.effects.messages");
        if let Some(task) = &end.task {
            self.settle_task(end, task).await;
        }
        self.deps.files.point("turn.effects.completion");
        self.settle_mail(&moves).await;
        self.deps.files.point("turn.acked");
    }

    async fn settle_message(&mut self, encoded: &str) {
        let bytes = encoded.as_bytes().to_vec();
        let sealed = match Sealed::decode(bytes, &self.deps.key, &self.deps.limits) {
            Ok((sealed, _)) => sealed,
            Err(error) => {
                tracing::error!(agent = %self.setup.id, %error, "a message of turn_end cannot be read");
                return;
            }
        };
        loop {
            let (post, message) = (self.deps.post.clone(), sealed.clone());
            let delivered = blocking(move || post.deliver(&message)).await;
            match delivered {
                Ok(Ok(posted)) => {
                    self.posted(&posted);
                    return;
                }
                Ok(Err(refusal)) if retryable(&refusal) => {
                    if !self.keep_trying("deliver a message", &refusal).await {
                        return;
                    }
                }
                Ok(Err(refusal)) => {
                    tracing::warn!(agent = %self.setup.id, %refusal, "a message of the turn was refused");
                    return;
                }
                Err(_) => return,
            }
        }
    }

    async fn settle_task(&mut self, end: &End, task: &TaskEnd) {
        loop {
            let (port, agent) = (&self.deps.port, &self.setup.id);
            let request = self.request_id(&format!("turn.{}.task", end.turn));
            let told = match task {
                TaskEnd::Kept { .. } => return,
                TaskEnd::Completed { claim } => port.complete(agent, claim, &end.result, &request).await,
                TaskEnd::GaveUp { claim, reason } => port.give_up(agent, claim, reason, &request).await,
            };
            match told {
                Ok(()) => return,
                Err(refusal) if retryable(&refusal) => {
                    if !self.keep_trying("tell the authority of the task", &refusal).await {
                        return;
                    }
                }
                // Somebody else has it now, or the agent ended it itself: what was decided there counts.
                Err(refusal) => {
                    tracing::info!(agent = %self.setup.id, task = %task.claim().task, %refusal, "task not settled");
                    return;
                }
            }
        }
    }

    async fn settle_mail(&mut self, moves: &Moves) {
        let acked = moves.ack.clone();
        if self.move_mail(move |mailbox| mailbox.ack(&acked)).await.is_some() {
            for lease in &moves.ack {
                self.done(lease.id());
            }
        }
        for (leases, how) in [(&moves.planned, Release::Planned), (&moves.interrupted, Release::Interrupted)]
        {
            let released = leases.clone();
            let Some(spent) = self.move_mail(move |mailbox| mailbox.release(&released, how)).await else {
                continue;
            };
            for lease in leases.iter().filter(|lease| !spent.contains(&lease.id())) {
                let attempt = lease.attempt() + u32::from(how == Release::Interrupted);
                self.trace(lease.id(), Stage::Released, format!("attempt {attempt} next"));
                let (team, to) = (self.setup.id.team.clone(), self.setup.id.agent.clone());
                self.deps.port.event(What::MessageReleased { team, id: lease.id(), to, attempt });
            }
            for id in spent {
                let why = format!("interrupted {} times", self.deps.limits.max_attempts);
                self.quarantined(id, &why);
                self.tell_quarantined(id, &why).await;
            }
        }
        for (turn, why, leases) in &moves.quarantine {
            let reason = Reason {
                code: "turn_failed".to_owned(),
                text: format!("turn {turn} failed: {why}"),
                turn: Some(*turn),
            };
            let batch = leases.clone();
            if self.move_mail(move |mailbox| mailbox.quarantine(&batch, &reason)).await.is_some() {
                for lease in leases {
                    self.quarantined(lease.id(), &format!("turn {turn} failed: {why}"));
                }
            }
        }
    }

    /// Says that a message was dealt with.
    pub(super) fn done(&self, id: MessageId) {
        self.trace(id, Stage::Done, String::new());
        let (team, to) = (self.setup.id.team.clone(), self.setup.id.agent.clone());
        self.deps.port.event(What::MessageDone { team, id, to });
    }

    fn quarantined(&self, id: MessageId, why: &str) {
        self.trace(id, Stage::Quarantined, why.to_owned());
        let (team, to) = (self.setup.id.team.clone(), self.setup.id.agent.clone());
        self.deps.port.event(What::MessageQuarantined { team, id: Some(id), to, why: why.to_owned() });
    }

    async fn tell_quarantined(&mut self, id: MessageId, why: &str) {
        let letter = Letter {
            kind: Kind::Notice,
            summary: format!("quarantined: message {id}"),
            body: format!(
                "Message {id} to {} lies in quarantine: {why}.\nposthouse quarantine redeliver {id}",
                self.setup.id.agent
            ),
        };
        if let Err(refusal) = self.tell(letter, "quarantined", &id.to_string()).await {
            tracing::warn!(agent = %self.setup.id, %refusal, "the lead is not told");
        }
    }

    async fn move_mail<T: Send + 'static>(
        &mut self,
        work: impl Fn(&crate::mailbox::Mailbox) -> Result<T, crate::mailbox::MailboxError>
        + Send
        + Clone
        + 'static,
    ) -> Option<T> {
        loop {
            match in_mailbox(&self.mailbox, work.clone()).await {
                Ok(done) => return Some(done),
                Err(TeammateError::Mailbox(error)) if !retryable(&error.refusal()) => {
                    tracing::warn!(agent = %self.setup.id, %error, "mail was not moved");
                    return None;
                }
                Err(error) => {
                    if !self.keep_trying("move mail", &error).await {
                        return None;
                    }
                }
            }
        }
    }

    /// Waits before the same step is tried again. Answers whether to try: a closing node does not.
    pub(super) async fn keep_trying(
        &mut self,
        what: &'static str,
        error: &(dyn std::error::Error + Send + Sync),
    ) -> bool {
        if self.close.borrow().is_some() {
            tracing::warn!(agent = %self.setup.id, %error, "cannot {what}; left for the next start");
            return false;
        }
        let pause = self.pauses.pause();
        tracing::warn!(agent = %self.setup.id, %error, ?pause, "cannot {what}, trying again");
        let mut close = self.close.clone();
        tokio::select! {
            () = tokio::time::sleep(pause) => true,
            _ = close.changed() => true,
        }
    }
}
