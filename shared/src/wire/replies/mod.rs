//! All replies. Keys are only ever added. Those about messages are in `messages`.

mod messages;

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

pub use messages::*;

use crate::clock::Stamp;
use crate::generation::{Birth, Generation};
use crate::name::{AgentName, HostName, TaskId, TeamName};
use crate::task::Task;
use crate::team::{AgentState, HostState, Schedule, TeamConfig};

/// Nothing more to say.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Done {
    /// What was done, for people.
    pub done: String,
}

/// Who answers.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Status {
    /// Version of the program.
    pub version: String,
    /// Its host.
    pub host: HostName,
    /// Its HTTP address.
    pub url: String,
    /// Its data directory.
    pub data: String,
    /// Id of the data directory.
    pub data_id: String,
    /// How often it was started.
    pub boot: u64,
}

/// One setting.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Setting {
    /// Its name.
    pub name: String,
    /// Its value.
    pub value: String,
    /// Its unit, where it has one.
    #[serde(default)]
    pub unit: String,
    /// Where it came from: `default`, a file, an environment variable, a flag.
    pub origin: String,
}

/// All settings.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ConfigReply {
    /// In the order of the table.
    pub settings: Vec<Setting>,
}

/// How many tasks are where.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct TaskCounts {
    /// Waiting.
    pub pending: u64,
    /// Claimed.
    pub in_progress: u64,
    /// Done.
    pub completed: u64,
    /// Given up.
    pub cancelled: u64,
}

/// How many messages of a team are where, over all its mailboxes.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct MessageCounts {
    /// All that were accepted and are still known: the sum of the others.
    pub accepted: u64,
    /// Waiting.
    pub ready: u64,
    /// In a turn.
    pub processing: u64,
    /// Their turn has ended.
    pub done: u64,
    /// In quarantine.
    pub quarantined: u64,
}

/// A team.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct TeamView {
    /// Its name.
    pub name: TeamName,
    /// The entry that made it.
    pub birth: Birth,
    /// When.
    pub created_at: Stamp,
    /// How it works.
    pub config: TeamConfig,
    /// Its members, the lead first.
    pub members: Vec<AgentName>,
    /// Its board in numbers.
    pub tasks: TaskCounts,
    /// Its mail in numbers.
    #[serde(default)]
    pub messages: MessageCounts,
}

/// One team.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct TeamReply {
    /// The team.
    pub team: TeamView,
}

/// All teams.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct TeamsReply {
    /// By name.
    pub teams: Vec<TeamView>,
}

/// A teammate as people see it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct AgentView {
    /// Its name.
    pub name: AgentName,
    /// Its team.
    pub team: TeamName,
    /// Its home.
    pub host: HostName,
    /// What it does.
    pub state: AgentState,
    /// Whether its host is seen.
    pub host_state: HostState,
    /// Since when it does that.
    pub since: Stamp,
    /// For how many seconds.
    pub for_s: u64,
    /// What it is at, one line.
    pub doing: String,
    /// Its last sign of activity, seconds ago.
    pub last_s: u64,
    /// In a turn without a sign for so many seconds; 0 otherwise.
    pub quiet_s: u64,
    /// Ready messages.
    pub mail: u64,
    /// Messages in quarantine.
    pub quarantined: u64,
    /// The attempt that its turn is.
    #[serde(rename = "try")]
    pub attempt: u32,
    /// Number of its present or last turn.
    pub turn: u64,
    /// The task it holds.
    #[serde(default)]
    pub task: Option<TaskId>,
    /// What it is for.
    #[serde(default)]
    pub role: Option<String>,
    /// Its model.
    #[serde(default)]
    pub model: Option<String>,
    /// Its colour.
    #[serde(default)]
    pub color: Option<String>,
    /// Its working directory.
    #[serde(default)]
    pub cwd: Option<String>,
    /// Its runner; absent for a lead that is a person.
    #[serde(default)]
    pub runner: Option<String>,
    /// Its first entry.
    pub birth: Birth,
    /// Its grant.
    pub generation: Generation,
    /// Its runner's session.
    #[serde(default)]
    pub session: Option<String>,
    /// What a person should do about it, where there is something.
    #[serde(default)]
    pub needs: Option<String>,
}

/// One teammate.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct AgentReply {
    /// The teammate.
    pub agent: AgentView,
}

/// Teammates.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct AgentsReply {
    /// Those that need a person first, then the most recently active.
    pub agents: Vec<AgentView>,
}

/// The end of a log.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct LogReply {
    /// Text from `after` on, bounded.
    pub text: String,
    /// Give this as `after` to go on.
    pub next: u64,
}

/// One task.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct TaskReply {
    /// The task.
    pub task: Task,
}

/// A board.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct TasksReply {
    /// In the order they were made.
    pub tasks: Vec<Task>,
}

/// One schedule.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ScheduleReply {
    /// The schedule.
    pub schedule: ScheduleView,
}

/// Schedules.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SchedulesReply {
    /// By id.
    pub schedules: Vec<ScheduleView>,
}

/// A schedule with its next tick.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ScheduleView {
    /// The schedule.
    #[serde(flatten)]
    pub schedule: Schedule,
    /// When it ticks next.
    #[serde(default)]
    pub next: Option<Stamp>,
}

/// A host as people see it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct HostView {
    /// Its name.
    pub name: HostName,
    /// Whether it is seen.
    pub state: HostState,
    /// Since when it is in that state.
    pub since: Stamp,
    /// Id of its data directory.
    pub data_id: String,
    /// How often it was started.
    pub boot: u64,
    /// Its grant.
    pub generation: Generation,
    /// Teammates that live there.
    pub agents: u64,
    /// Ready messages there.
    pub mail: u64,
    /// Its labels.
    #[serde(default)]
    pub labels: BTreeMap<String, String>,
}

/// All hosts.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct HostsReply {
    /// By name.
    pub hosts: Vec<HostView>,
}

/// A join token. Shown once, and kept nowhere.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct HostTokenReply {
    /// The token.
    pub token: String,
    /// The host whose place it takes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub replace: Option<String>,
    /// The NATS servers that the host is to be given.
    pub nats: String,
}

/// Something that waits for a person.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Attention {
    /// Which thing: `agent/NAME`, `task/ID`, `message/ID`, `host/NAME`.
    pub thing: String,
    /// Its team, where it has one.
    #[serde(default)]
    pub team: Option<TeamName>,
    /// What sort: `failed`, `quarantine`, `on_hold`, `host`.
    pub sort: String,
    /// What, for people.
    pub what: String,
    /// Since when.
    pub since: Stamp,
    /// How much waits behind it: messages and tasks.
    pub behind: u64,
    /// Commands that deal with it.
    pub next: Vec<String>,
}

/// All that waits for a person.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct AttentionReply {
    /// Most behind it first, then oldest.
    pub attention: Vec<Attention>,
}

/// Why something does not move.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct WhyReply {
    /// Which thing: `agent/NAME`, `task/ID`, `message/ID`, `host/NAME`.
    pub thing: String,
    /// Where it stands, one word.
    pub state: String,
    /// Cause, short and stable: `idle`, `in_turn`, `behind_turn`, `stopped`, `failed`, `blocked`, `on_hold` ...
    pub code: String,
    /// Cause, for people.
    pub why: String,
    /// Since when.
    #[serde(default)]
    pub since: Option<Stamp>,
    /// What happens next, and when.
    pub then: String,
    /// Commands that help.
    #[serde(default)]
    pub next: Vec<String>,
}

/// How a wait ended.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct WaitReply {
    /// Whether the condition holds.
    pub holds: bool,
    /// Where the thing stands, for people.
    pub state: String,
}

/// What a fresh lead needs.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct BriefReply {
    /// Text to paste.
    pub brief: String,
}
