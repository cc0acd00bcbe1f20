//! Replies about messages: sent, read, traced, quarantined.

use serde::{Deserialize, Serialize};

use crate::clock::Stamp;
use crate::message::{Kind, Vouched};
use crate::name::{AgentName, HostName, MessageId, TeamName};

/// A message was taken.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SendReply {
    /// Its id.
    pub id: MessageId,
    /// `accepted` (on the sender's disk) or `stored` (in the recipient's mailbox).
    pub state: SendState,
    /// When it will be read.
    pub reads: String,
    /// Whether the id was known already.
    #[serde(default)]
    pub duplicate: bool,
}

/// How far a message got before the answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum SendState {
    /// Synced on the sender's disk.
    Accepted,
    /// Synced in the recipient's mailbox.
    Stored,
}

/// A message as a reader gets it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct MessageView {
    /// Its id.
    pub id: MessageId,
    /// What it is for.
    pub kind: Kind,
    /// The sender, or `external`.
    pub from: String,
    /// The recipient.
    pub to: AgentName,
    /// The team.
    pub team: TeamName,
    /// When it was sent.
    pub created_at: Stamp,
    /// One line.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub summary: Option<String>,
    /// The text.
    pub body: String,
    /// What it answers.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub in_reply_to: Option<MessageId>,
    /// Which attempt this is; more than 1 after an interrupted turn.
    pub attempt: u32,
    /// Marks: `late`, `superseded`, `redelivered`, `may_have_been_handled`, `urgent`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub marks: Vec<String>,
    /// Who vouches for it.
    pub vouched: Vouched,
}

/// Mail.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct InboxReply {
    /// In order. Name their ids as `seen` in the next request.
    pub messages: Vec<MessageView>,
    /// Ready messages beyond these.
    pub more: u64,
    /// Whether these were only looked at.
    pub peek: bool,
}

/// Where a message is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Stage {
    /// On the sender's disk.
    Accepted,
    /// In the recipient's mailbox.
    Stored,
    /// In a turn.
    Processing,
    /// Back in the mailbox after an interrupted turn.
    Released,
    /// Its turn has ended.
    Done,
    /// In quarantine.
    Quarantined,
    /// Dropped from quarantine by a person.
    Dropped,
}

/// One step of a message's way.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct TraceStep {
    /// When; absent where only the fact is known (the trace index was lost, the file is there).
    #[serde(default)]
    pub at: Option<Stamp>,
    /// What.
    pub stage: Stage,
    /// Where.
    pub host: HostName,
    /// More, for people.
    #[serde(default)]
    pub detail: String,
}

/// A message's way.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct TraceReply {
    /// Its id.
    pub id: MessageId,
    /// What it is for.
    pub kind: Kind,
    /// The sender with its team, or `external`.
    pub from: String,
    /// The recipient with its team.
    pub to: String,
    /// Its number in its lane.
    #[serde(default)]
    pub lane: Option<u64>,
    /// Its size.
    pub bytes: u64,
    /// Where it is now.
    pub state: Stage,
    /// Since when, where known.
    #[serde(default)]
    pub since: Option<Stamp>,
    /// One sentence.
    pub summary: String,
    /// Its W3C trace id.
    #[serde(default)]
    pub trace_id: Option<String>,
    /// Step by step.
    pub steps: Vec<TraceStep>,
    /// Commands that may help.
    #[serde(default)]
    pub next: Vec<String>,
}

/// A file in quarantine.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Quarantined {
    /// The message's id where it could be read, else one derived from the file's name.
    pub id: MessageId,
    /// In whose mailbox.
    pub agent: AgentName,
    /// Its team.
    pub team: TeamName,
    /// On which host.
    pub host: HostName,
    /// Why, in short: `turn_failed`, `max_attempts`, `unreadable`, `mismatch`, `unknown_kind` ...
    pub code: String,
    /// Why, for people.
    pub reason: String,
    /// Since when.
    pub since: Stamp,
    /// The turn that failed on it, where one did.
    #[serde(default)]
    pub turn: Option<u64>,
    /// The sender, where it could be read.
    #[serde(default)]
    pub from: Option<String>,
    /// Its file.
    pub file: String,
}

/// What lies in quarantine, or was moved from there.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct QuarantineReply {
    /// Newest first.
    pub quarantined: Vec<Quarantined>,
    /// Hosts that could not be asked: what lies there is not in the list.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub unseen: Vec<HostName>,
}

/// One quarantined file.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct QuarantinedReply {
    /// The entry.
    pub quarantined: Quarantined,
    /// Its content, as far as it is text, bounded.
    pub content: String,
}
