//! All requests, typed. `op` names them in JSON; `routes` maps them to HTTP.
//!
//! Names that a user types are kept as text here, so that an unknown or malformed one is answered by whoever
//! knows the names, with the nearest ones.

use serde::{Deserialize, Serialize};

use crate::generation::Generation;
use crate::name::MessageId;
use crate::task::{TaskChange, TaskSpec};
use crate::team::{MemberSpec, ScheduleSpec, TeamConfig};

/// One request.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "op", rename_all = "snake_case")]
#[expect(missing_docs, reason = "fields are named as in the CLI; the variants say what they do")]
pub enum Request {
    /// Version, address, data directory, who is asked. -> `Status`
    Status {},
    /// All limits and settings in force. -> `ConfigReply`
    Config {},
    /// Makes a team with its lead. -> `TeamReply`
    TeamCreate {
        name: String,
        #[serde(default)]
        config: TeamConfig,
    },
    /// All teams. -> `TeamsReply`
    TeamList {},
    /// One team with its members. -> `TeamReply`
    TeamShow { team: String },
    /// Ends a team: its agents are shut down, its mailboxes go to the attic. -> `Done`
    TeamDelete { team: String },
    /// Makes a teammate; its prompt is durable before it starts. -> `AgentReply`
    Spawn { team: String, spec: MemberSpec },
    /// Teammates of one team, or of all. -> `AgentsReply`
    AgentList {
        #[serde(default, skip_serializing_if = "Option::is_none")]
        team: Option<String>,
    },
    /// One teammate. -> `AgentReply`
    AgentShow { team: String, name: String },
    /// Cancels its turn; it claims nothing until resumed. -> `AgentReply`
    Stop { team: String, name: String },
    /// Ends a stop or a failure. -> `AgentReply`
    Resume { team: String, name: String },
    /// Asks it to end; `force` does not ask. -> `AgentReply`
    Shutdown {
        team: String,
        name: String,
        #[serde(default)]
        force: bool,
    },
    /// The end of an agent's log. -> `LogReply`
    Log {
        team: String,
        name: String,
        #[serde(default)]
        after: u64,
        #[serde(default)]
        timeout_ms: u64,
    },
    /// Sends a message; the sender is the caller. -> `SendReply`
    Send {
        team: String,
        to: String,
        body: String,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        id: Option<MessageId>,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        summary: Option<String>,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        in_reply_to: Option<MessageId>,
        #[serde(default)]
        urgent: bool,
        #[serde(default, skip_serializing_if = "Option::is_none", rename = "as")]
        as_agent: Option<String>,
    },
    /// Reads an inbox. `seen` acknowledges what earlier answers handed out; what is not named comes again.
    /// A peek hands out nothing; another agent's inbox is always a peek. -> `InboxReply`
    Inbox {
        team: String,
        #[serde(default = "lead")]
        name: String,
        #[serde(default)]
        peek: bool,
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        seen: Vec<MessageId>,
        #[serde(default)]
        limit: u32,
        #[serde(default)]
        timeout_ms: u64,
    },
    /// Adds a task. -> `TaskReply`
    TaskAdd {
        team: String,
        spec: TaskSpec,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        request_id: Option<String>,
    },
    /// All tasks of a board. -> `TasksReply`
    TaskList { team: String },
    /// One task. -> `TaskReply`
    TaskShow { team: String, id: String },
    /// Changes a task's text, blockers, role or owner. -> `TaskReply`
    TaskUpdate {
        team: String,
        id: String,
        change: TaskChange,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        request_id: Option<String>,
    },
    /// Claims a task for the caller, or for `as`. -> `TaskReply`
    TaskClaim {
        team: String,
        id: String,
        #[serde(default, skip_serializing_if = "Option::is_none", rename = "as")]
        as_agent: Option<String>,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        request_id: Option<String>,
    },
    /// Gives a claim back, or lifts a hold. -> `TaskReply`
    TaskRelease {
        team: String,
        id: String,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        generation: Option<Generation>,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        request_id: Option<String>,
    },
    /// Completes a task. Without `generation` the caller's own live claim is meant. -> `TaskReply`
    TaskComplete {
        team: String,
        id: String,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        generation: Option<Generation>,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        result: Option<String>,
        #[serde(default, skip_serializing_if = "Option::is_none", rename = "as")]
        as_agent: Option<String>,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        request_id: Option<String>,
    },
    /// Gives a task up. -> `TaskReply`
    TaskCancel {
        team: String,
        id: String,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        request_id: Option<String>,
    },
    /// Whether the caller's claim is the present one; refused with `WrongGeneration` and the like if not.
    /// -> `TaskReply`
    TaskCheck {
        team: String,
        id: String,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        generation: Option<Generation>,
        #[serde(default, skip_serializing_if = "Option::is_none", rename = "as")]
        as_agent: Option<String>,
    },
    /// Adds a schedule. -> `ScheduleReply`
    ScheduleAdd { team: String, spec: ScheduleSpec },
    /// All schedules of a team. -> `SchedulesReply`
    ScheduleList { team: String },
    /// Ends a schedule. -> `Done`
    ScheduleDelete { team: String, id: String },
    /// One message, stage by stage. `id` may be a prefix of 8 characters. -> `TraceReply`
    Trace { id: String },
    /// What lies in quarantine, of one team or all. -> `QuarantineReply`
    QuarantineList {
        #[serde(default, skip_serializing_if = "Option::is_none")]
        team: Option<String>,
    },
    /// One quarantined file, with reason and content. -> `QuarantinedReply`
    QuarantineShow { id: String },
    /// Brings a message back, or with `turn` the whole batch of its turn, in order. -> `QuarantineReply`
    QuarantineRedeliver {
        id: String,
        #[serde(default)]
        turn: bool,
    },
    /// Drops a message; its sender is told. -> `QuarantineReply`
    QuarantineDrop { id: String },
    /// All hosts. -> `HostsReply`
    HostList {},
    /// Makes a token with which one host can join, once; with `replace` in the place of that host.
    /// -> `HostTokenReply`
    HostToken {
        #[serde(default, skip_serializing_if = "Option::is_none")]
        replace: Option<String>,
    },
    /// Takes a host that was refused as it is. -> `Done`
    HostAdopt { host: String },
    /// Forgets a host that nobody lives on. -> `Done`
    HostRemove { host: String },
    /// What waits for a person. -> `AttentionReply`
    Attention {
        #[serde(default, skip_serializing_if = "Option::is_none")]
        team: Option<String>,
    },
    /// Why something does not move. `thing` is the name of an agent or host, or the id of a task or message.
    /// -> `WhyReply`
    Why { team: String, thing: String },
    /// Waits for a condition, at most `timeout_ms` (bounded by `wait_ms_max`). `condition` is written
    /// `task/ID=completed`, `agent/NAME=idle`, `message/ID=done` or `team=settled` (every task ended, every
    /// teammate idle, no mail waiting). -> `WaitReply`
    Wait {
        team: String,
        condition: String,
        #[serde(default)]
        timeout_ms: u64,
    },
    /// What a fresh lead needs to go on. -> `BriefReply`
    Brief { team: String },
}

fn lead() -> String {
    crate::name::LEAD.to_owned()
}
