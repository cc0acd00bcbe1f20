//! What a mailbox refuses, and why.

use posthouse_shared::codes::Code;
use posthouse_shared::durable::DurableError;
use posthouse_shared::generation::Birth;
use posthouse_shared::name::{AgentId, MessageId};
use posthouse_shared::refusal::Refusal;

/// A mailbox's refusal or failure.
#[derive(Debug, thiserror::Error)]
pub enum MailboxError {
    /// There is no mailbox of this agent.
    #[error("no mailbox of {agent}")]
    NotFound {
        /// Whose.
        agent: AgentId,
    },
    /// As many ready messages as there may be, or a lower number of the lane was answered so before.
    #[error("mailbox of {agent} is full ({ready} ready messages, the limit is {limit})")]
    Full {
        /// Whose.
        agent: AgentId,
        /// How many are ready.
        ready: usize,
        /// How many may be.
        limit: usize,
    },
    /// As many mailboxes as a host may have.
    #[error("this host has {limit} mailboxes, which is the limit")]
    TooMany {
        /// The limit.
        limit: u32,
    },
    /// The message is for another agent.
    #[error("message {id} is for {wanted}, not for {agent}")]
    WrongRecipient {
        /// The message.
        id: MessageId,
        /// For whom it is.
        wanted: AgentId,
        /// Whose mailbox this is.
        agent: AgentId,
    },
    /// The message is for an earlier or later agent of the same name.
    #[error("message {id} is for the {agent} born at {wanted}; this one was born at {birth}")]
    WrongBirth {
        /// The message.
        id: MessageId,
        /// Whose mailbox this is.
        agent: AgentId,
        /// The birth in the message.
        wanted: Birth,
        /// The birth of the mailbox.
        birth: Birth,
    },
    /// The message is not held under this lease any more.
    #[error("message {id} is not held under this lease")]
    LeaseLost {
        /// The message.
        id: MessageId,
    },
    /// It is not in quarantine.
    #[error("message {id} is not in quarantine")]
    NotQuarantined {
        /// The message.
        id: MessageId,
    },
    /// It is in quarantine because it cannot be read, so it cannot be delivered.
    #[error("file {file:?} cannot be delivered: {why}")]
    Unreadable {
        /// Its name.
        file: String,
        /// What is wrong with it.
        why: String,
    },
    /// A file of the mailbox that only we write does not make sense.
    #[error("read {file}: {why}")]
    Broken {
        /// The file.
        file: String,
        /// What is wrong with it.
        why: String,
    },
    /// The disk.
    #[error(transparent)]
    Durable(#[from] DurableError),
}

impl MailboxError {
    /// As a refusal for users.
    pub fn refusal(&self) -> Refusal {
        let code = match self {
            Self::NotFound { .. } | Self::WrongBirth { .. } => Code::UnknownAgent,
            Self::Full { .. } => Code::MailboxFull,
            Self::TooMany { .. } => Code::LimitReached,
            Self::WrongRecipient { .. } | Self::Broken { .. } => Code::Internal,
            Self::LeaseLost { .. } => Code::UnknownMessage,
            Self::NotQuarantined { .. } => Code::NotQuarantined,
            Self::Unreadable { .. } => Code::BadRequest,
            Self::Durable(error) => return error.refusal(),
        };
        let refusal = Refusal::new(code, self.to_string());
        match self {
            Self::Full { .. } => refusal.effect("nothing was stored").retry_after_ms(1_000),
            Self::NotQuarantined { .. } => refusal.next("posthouse quarantine ls"),
            Self::NotFound { .. }
            | Self::TooMany { .. }
            | Self::WrongRecipient { .. }
            | Self::WrongBirth { .. }
            | Self::LeaseLost { .. }
            | Self::Unreadable { .. }
            | Self::Broken { .. }
            | Self::Durable(_) => refusal,
        }
    }
}
