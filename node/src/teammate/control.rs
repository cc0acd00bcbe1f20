//! Lifecycle commands as they lie in a mailbox: control messages of the lead whose body names the journal
//! entry of the command, `{"command":"1.42","force":false}`.

use posthouse_shared::clock::Stamp;
use posthouse_shared::generation::Generation;
use posthouse_shared::message::{Kind, Sealed, Vouched};
use serde::{Deserialize, Serialize};

use super::life::Command;

/// The body of a lifecycle command.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct CommandBody {
    /// Its journal entry.
    pub command: Generation,
    /// For a shutdown: do not ask.
    #[serde(default)]
    pub force: bool,
}

/// What a claimed message is to the teammate.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Sort {
    /// For the teammate itself.
    Lifecycle {
        /// What to do.
        command: Command,
        /// Its journal entry.
        generation: Generation,
        /// When it was given.
        at: Stamp,
    },
    /// For the agent: goes into a turn.
    Mail,
    /// A lifecycle kind that is none: not from the lead, or not readable.
    Broken(String),
}

/// Sorts a claimed message.
pub fn sort(message: &Sealed, vouched: Vouched) -> Sort {
    let envelope = &message.envelope;
    let command = match envelope.kind {
        Kind::Stop => Command::Stop,
        Kind::Resume => Command::Resume,
        Kind::ShutdownRequest => Command::Shutdown,
        Kind::Task
        | Kind::Message
        | Kind::Result
        | Kind::Idle
        | Kind::PlanApprovalRequest
        | Kind::PermissionRequest
        | Kind::TaskAssignment
        | Kind::TaskNotification
        | Kind::Notice
        | Kind::ShutdownResponse
        | Kind::PermissionResponse
        | Kind::PlanApprovalResponse => return Sort::Mail,
    };
    if !envelope.from.agent.is_lead() || vouched == Vouched::Nobody {
        return Sort::Broken(format!("{} is not from the lead", envelope.kind));
    }
    match serde_json::from_str::<CommandBody>(envelope.body.as_deref().unwrap_or_default()) {
        Ok(body) => {
            let command =
                if body.force && command == Command::Shutdown { Command::ForceShutdown } else { command };
            Sort::Lifecycle { command, generation: body.command, at: envelope.created_at }
        }
        Err(error) => Sort::Broken(format!("the body of {} is not a command: {error}", envelope.kind)),
    }
}
