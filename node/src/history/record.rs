//! The records of a history, one JSON line each. The format is version 1; keys are only ever added.

use posthouse_shared::clock::Stamp;
use posthouse_shared::generation::Generation;
use posthouse_shared::message::{BlobRef, Kind};
use posthouse_shared::name::MessageId;
use posthouse_shared::task::Claim;
use serde::{Deserialize, Serialize};

use crate::mailbox::Claimed;
use crate::port::GaveUp;

/// One line.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "record", rename_all = "snake_case")]
pub enum Record {
    /// A message enters the agent's history: once an id and delivery.
    Input(Box<Input>),
    /// A turn begins over these inputs. On disk before its program starts.
    Turn(Begin),
    /// A turn is over. On disk before any of its effects.
    TurnEnd(Box<End>),
    /// A lifecycle command was applied.
    Command {
        /// The journal entry of the command.
        generation: Generation,
        /// Which.
        kind: Kind,
        /// When.
        at: Stamp,
    },
}

/// A message as it entered the history. With it the history keeps what was said, also after the mailbox has
/// pruned its file.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Input {
    /// The turn that it entered first.
    pub turn: u64,
    /// The message.
    pub id: MessageId,
    /// Rises when a person redelivers it.
    pub delivery: u32,
    /// The attempt at that time.
    pub attempt: u32,
    /// Its marks.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub marks: Vec<String>,
    /// The sender, or `external`.
    pub from: String,
    /// What it is for.
    pub kind: Kind,
    /// One line.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub summary: Option<String>,
    /// What it says; empty where `blob` is there.
    pub body: String,
    /// Where a large body lies.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub blob: Option<BlobRef>,
    /// When it entered.
    pub at: Stamp,
}

impl Input {
    /// A claimed message as it enters the history at `at` with this turn.
    pub fn of(turn: u64, message: &Claimed, at: Stamp) -> Self {
        let envelope = &message.message.envelope;
        Self {
            turn,
            id: envelope.id,
            delivery: message.delivery,
            attempt: message.attempt,
            marks: message.marks.names(),
            // The mailbox says `external` where nobody vouches for it.
            from: envelope.from.agent.to_string(),
            kind: envelope.kind,
            summary: envelope.summary.clone(),
            body: envelope.body.clone().filter(|_| envelope.blob.is_none()).unwrap_or_default(),
            blob: envelope.blob.clone(),
            at,
        }
    }

    /// What makes it the same input.
    pub const fn key(&self) -> InputKey {
        InputKey { id: self.id, delivery: self.delivery }
    }
}

/// What makes an input the same: a redelivery by a person is another one.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct InputKey {
    /// The message.
    pub id: MessageId,
    /// The delivery.
    pub delivery: u32,
}

impl InputKey {
    /// Of a claimed message.
    pub const fn of(message: &Claimed) -> Self {
        Self { id: message.lease.id(), delivery: message.delivery }
    }
}

/// One input of one turn.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct InTurn {
    /// Which input.
    #[serde(flatten)]
    pub key: InputKey,
    /// Which attempt.
    pub attempt: u32,
}

/// A turn's beginning.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Begin {
    /// Its number.
    pub turn: u64,
    /// Its mail, in order.
    pub inputs: Vec<InTurn>,
    /// Its task.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub task: Option<Claim>,
    /// When.
    pub at: Stamp,
}

/// What becomes of a turn's input.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "disposition", rename_all = "snake_case")]
pub enum Disposition {
    /// Done: it is acknowledged.
    Done,
    /// The turn failed: it is quarantined as one batch.
    Failed {
        /// One line.
        why: String,
    },
    /// It was interrupted: it becomes ready again.
    Released {
        /// Whether the attempt counts: it does not where we wanted the end.
        counts: bool,
        /// One line.
        why: String,
    },
}

/// What becomes of a turn's task.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "how", rename_all = "snake_case")]
pub enum TaskEnd {
    /// Completed with the turn's result.
    Completed {
        /// The claim.
        claim: Claim,
    },
    /// Given back.
    GaveUp {
        /// The claim.
        claim: Claim,
        /// Why.
        reason: GaveUp,
    },
    /// Still held: the turn is run again.
    Kept {
        /// The claim.
        claim: Claim,
    },
}

impl TaskEnd {
    /// The claim it is about.
    pub const fn claim(&self) -> &Claim {
        match self {
            Self::Completed { claim } | Self::GaveUp { claim, .. } | Self::Kept { claim } => claim,
        }
    }
}

/// A turn's end, with all that is needed to redo its effects with the same ids.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct End {
    /// Its number.
    pub turn: u64,
    /// What becomes of its mail.
    #[serde(flatten)]
    pub disposition: Disposition,
    /// Its mail, in order.
    pub inputs: Vec<InTurn>,
    /// What the agent said, bounded.
    pub result: String,
    /// Messages that it causes: encoded envelopes, numbered and sealed.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub messages: Vec<String>,
    /// What becomes of its task.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub task: Option<TaskEnd>,
    /// A shutdown that it was asked for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub shutdown: Option<Shutdown>,
    /// When.
    pub at: Stamp,
}

/// What a turn over a shutdown request came to.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Shutdown {
    /// The journal entry of the request.
    pub command: Generation,
    /// Whether the agent agreed, or was not asked.
    pub agreed: bool,
}
