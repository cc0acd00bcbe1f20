//! Events: what happened, one JSON object each, with a sequence of their own within one boot of the
//! coordinator.

use serde::{Deserialize, Serialize};

use crate::clock::Stamp;
use crate::generation::Generation;
use crate::message::Kind;
use crate::name::{AgentName, HostName, MessageId, ScheduleId, TaskId, TeamName};
use crate::task::TaskStatus;
use crate::team::AgentState;

/// One event.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Event {
    /// Always 1.
    pub v: u8,
    /// Rises by one within a boot, and from boot to boot.
    pub seq: u64,
    /// The boot that counts `seq`.
    pub boot: String,
    /// When.
    pub at: Stamp,
    /// What.
    #[serde(flatten)]
    pub what: What,
}

/// What happened.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "event", rename_all = "snake_case")]
#[expect(missing_docs, reason = "fields are the words of the design")]
pub enum What {
    /// Events were dropped for this follower: `from` to `to` are gone.
    Gap { from: u64, to: u64 },
    /// A team was made.
    TeamCreated { team: TeamName },
    /// A team was ended.
    TeamDeleted { team: TeamName },
    /// A teammate was made.
    AgentSpawned { team: TeamName, agent: AgentName, host: HostName, generation: Generation },
    /// A teammate's state changed.
    AgentState {
        team: TeamName,
        agent: AgentName,
        state: AgentState,
        turn: u64,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        why: Option<String>,
    },
    /// A task was made or changed.
    TaskChanged {
        team: TeamName,
        task: TaskId,
        status: TaskStatus,
        owner: Option<AgentName>,
        generation: Option<Generation>,
    },
    /// A message for another host is synced on its sender's.
    MessageAccepted { team: TeamName, id: MessageId, kind: Kind, from: String, to: AgentName, host: HostName },
    /// A message is stored in its mailbox.
    MessageStored { team: TeamName, id: MessageId, kind: Kind, from: String, to: AgentName, host: HostName },
    /// A message entered a turn.
    MessageClaimed { team: TeamName, id: MessageId, to: AgentName, turn: u64, attempt: u32 },
    /// A message's turn has ended.
    MessageDone { team: TeamName, id: MessageId, to: AgentName },
    /// A message went back to ready after an interrupted turn.
    MessageReleased { team: TeamName, id: MessageId, to: AgentName, attempt: u32 },
    /// A message lies in quarantine.
    MessageQuarantined { team: TeamName, id: Option<MessageId>, to: AgentName, why: String },
    /// A schedule ticked.
    ScheduleTicked { team: TeamName, schedule: ScheduleId, at: Stamp },
    /// A host's state changed.
    HostState { host: HostName, state: crate::team::HostState },
}
