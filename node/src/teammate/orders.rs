//! Takes commands out of the mailbox, also while a turn runs. A command is acknowledged once it is applied.

use posthouse_shared::clock::Stamp;
use posthouse_shared::message::Kind;
use posthouse_shared::team::Standing;

use super::agent::Teammate;
use super::control::{Sort, sort};
use super::life::{Command, Happening};
use super::plan::shutdown_letter;
use super::{TeammateError, in_mailbox};
use crate::mailbox::{Batch, Claimed, Lease, Mailbox, Reason, Which};

impl Teammate {
    /// Claims control messages and applies the commands among them. What is for the agent waits for its next
    /// turn.
    pub(super) async fn take_orders(&mut self) -> Result<(), TeammateError> {
        let max = usize::try_from(self.deps.limits.turn_messages).unwrap_or(usize::MAX);
        while self.urgent.len() < max {
            let batch = Batch {
                messages_max: max - self.urgent.len(),
                bytes_max: self.deps.limits.turn_bytes,
                only: Which::ControlOnly,
            };
            let claimed = in_mailbox(&self.mailbox, move |mailbox| mailbox.claim(batch)).await?;
            if claimed.is_empty() {
                break;
            }
            let mail = self.apply_orders(claimed).await?;
            self.urgent.extend(mail);
        }
        Ok(())
    }

    /// Applies the commands among claimed messages, and answers the rest.
    pub(super) async fn apply_orders(
        &mut self,
        claimed: Vec<Claimed>,
    ) -> Result<Vec<Claimed>, TeammateError> {
        let mut mail = Vec::new();
        for message in claimed {
            match sort(&message.message, message.vouched) {
                Sort::Mail => mail.push(message),
                Sort::Broken(text) => {
                    let reason = Reason { code: "not_a_command".to_owned(), text, turn: None };
                    let lease = message.lease;
                    in_mailbox(&self.mailbox, move |mailbox| mailbox.quarantine(&[lease], &reason)).await?;
                }
                Sort::Lifecycle { command, generation, at } => {
                    let newer = generation > self.mind.commanded;
                    self.happens(Happening::Command(command, generation, at)).await;
                    let waits = match command {
                        Command::Stop | Command::Resume => false,
                        Command::Shutdown | Command::ForceShutdown => newer,
                    };
                    let settled = if waits { self.request.replace(message) } else { Some(message) };
                    if newer && !waits {
                        self.believe(if command == Command::Stop {
                            Standing::Stopped
                        } else {
                            Standing::Active
                        });
                    }
                    self.ack_order(settled).await?;
                    // A newer command took the place of a request that still waited.
                    if !waits && newer && self.mind.asked.is_none() && !self.asks_now() {
                        let superseded = self.request.take();
                        self.ack_order(superseded).await?;
                    }
                }
            }
        }
        Ok(mail)
    }

    fn asks_now(&self) -> bool {
        let request = self.request.as_ref().map(|request| request.lease.id());
        let in_turn =
            |current: &super::agent::Current| current.mail.iter().any(|m| Some(m.lease.id()) == request);
        self.current.as_ref().is_some_and(in_turn)
    }

    async fn ack_order(&self, message: Option<Claimed>) -> Result<(), TeammateError> {
        let leases: Vec<Lease> = message.into_iter().map(|claimed| claimed.lease).collect();
        let acked = leases.clone();
        in_mailbox(&self.mailbox, move |mailbox: &Mailbox| mailbox.ack(&acked)).await?;
        for lease in leases {
            self.done(lease.id());
        }
        Ok(())
    }

    /// Notes an applied command in the history. A failure is no harm: the command is acknowledged and the
    /// authority knows what it said.
    pub(super) async fn note_command(&mut self, happening: Happening) {
        let Happening::Command(command, generation, _) = happening else { return };
        let kind = match command {
            Command::Stop => Kind::Stop,
            Command::Resume => Kind::Resume,
            Command::Shutdown | Command::ForceShutdown => Kind::ShutdownRequest,
        };
        let at: Stamp = self.deps.clock.now();
        match self.in_history(move |history| history.command(generation, kind, at)).await {
            Ok(Ok(())) => {}
            Ok(Err(error)) => tracing::warn!(agent = %self.setup.id, %error, "command not noted"),
            Err(error) => tracing::warn!(agent = %self.setup.id, %error, "command not noted"),
        }
    }

    /// Tells the lead that it was shut down without being asked.
    pub(super) async fn tell_forced(&mut self) {
        let command = self.mind.commanded.to_string();
        let letter = shutdown_letter(command.clone(), true, "it was not asked".to_owned());
        if let Err(refusal) = self.tell(letter, "forced", &command).await {
            tracing::warn!(agent = %self.setup.id, %refusal, "tell the lead of the shutdown");
        }
    }
}
