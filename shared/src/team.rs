//! Teams, members, hosts and schedules, as data.

use std::collections::BTreeMap;
use std::path::PathBuf;

use serde::{Deserialize, Serialize};

use crate::clock::Stamp;
use crate::generation::{Birth, Generation};
use crate::name::{AgentName, HostName, RoleName, ScheduleId, TeamName};

/// What a teammate does. Never mixed with the state of its host.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum AgentState {
    /// Nothing to do.
    Idle,
    /// In a turn.
    Running,
    /// In a turn that waits for a permission or a plan's approval.
    Waiting,
    /// Stopped by the lead; claims nothing.
    Stopped,
    /// Its last turn failed; claims nothing until resumed.
    Failed,
    /// Ended.
    Shutdown,
}

impl AgentState {
    /// As in JSON.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Idle => "idle",
            Self::Running => "running",
            Self::Waiting => "waiting",
            Self::Stopped => "stopped",
            Self::Failed => "failed",
            Self::Shutdown => "shutdown",
        }
    }
}

/// What the coordinator sees of a host.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum HostState {
    /// Beats arrive.
    Up,
    /// It takes no new turns.
    Draining,
    /// Silent for 10 s.
    Unreachable,
    /// Silent for 30 s while others were heard.
    Lost,
    /// The bus is away: nothing can be said.
    Unknown,
}

impl HostState {
    /// As in JSON.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Up => "up",
            Self::Draining => "draining",
            Self::Unreachable => "unreachable",
            Self::Lost => "lost",
            Self::Unknown => "unknown",
        }
    }
}

/// Which program is the agent.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "runner", rename_all = "snake_case")]
pub enum RunnerSpec {
    /// Any program, one process a turn.
    Command {
        /// Program and arguments. The program is looked up in PATH unless it holds a slash.
        command: Vec<String>,
    },
}

impl RunnerSpec {
    /// The runner's name.
    pub const fn name(&self) -> &'static str {
        match self {
            Self::Command { .. } => "command",
        }
    }
}

/// What is asked for when a teammate is spawned.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct MemberSpec {
    /// Its name, unique in its team.
    pub name: AgentName,
    /// What it is for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub role: Option<RoleName>,
    /// The model it asks for, where its runner knows models.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub model: Option<String>,
    /// Its colour in lists.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub color: Option<String>,
    /// Its working directory, absolute.
    pub cwd: PathBuf,
    /// Its program.
    #[serde(flatten)]
    pub runner: RunnerSpec,
    /// Its first prompt, which becomes a durable `task` message.
    pub prompt: String,
    /// Whether it takes tasks of its role from the board when idle.
    #[serde(default)]
    pub self_claim: bool,
    /// The host that it must live on.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub host: Option<HostName>,
    /// Labels that its host must have.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub labels: BTreeMap<String, String>,
}

/// What the lead has decided of a teammate; what it does beside that is [`AgentState`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Standing {
    /// It works.
    Active,
    /// It was stopped.
    Stopped,
    /// Its last turn failed.
    Failed,
    /// It has ended; its name can be taken again.
    Shutdown,
}

/// A member of a team. The lead is one too.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Member {
    /// What was asked for; absent for a lead that is a person or an MCP client.
    #[serde(default)]
    pub spec: Option<MemberSpec>,
    /// Its name.
    pub name: AgentName,
    /// The entry that made it.
    pub birth: Birth,
    /// The entry that granted its present home.
    pub generation: Generation,
    /// Its home.
    pub host: HostName,
    /// The session of its runner, where it has one.
    #[serde(default)]
    pub session: Option<String>,
    /// What was decided of it.
    pub standing: Standing,
    /// The entry of the last lifecycle command; a node applies newer ones only.
    pub commanded: Generation,
    /// Since when its standing is what it is.
    pub since: Stamp,
}

/// How a team works.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct TeamConfig {
    /// What the team is for.
    #[serde(default)]
    pub goal: Option<String>,
    /// How long a silent host keeps its teammates, in ms; absent: for ever.
    #[serde(default)]
    pub rehome_after_ms: Option<u64>,
    /// Whether a teammate that holds a task may not claim another.
    #[serde(default = "yes")]
    pub busy_check: bool,
    /// SHA-256 of the team file that made the team, where one did.
    #[serde(default)]
    pub file_digest: Option<String>,
}

const fn yes() -> bool {
    true
}

impl Default for TeamConfig {
    fn default() -> Self {
        Self { goal: None, rehome_after_ms: None, busy_check: true, file_digest: None }
    }
}

/// What happens to ticks that passed while nobody was there to act on them.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Missed {
    /// They are dropped.
    #[default]
    Skip,
    /// The latest of them is sent once.
    Once,
}

/// A message that is sent at times.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ScheduleSpec {
    /// Its id; one is made up where absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub id: Option<ScheduleId>,
    /// When: five fields, in UTC.
    pub cron: String,
    /// To whom.
    pub to: AgentName,
    /// What.
    pub message: String,
    /// What to do with missed ticks.
    #[serde(default)]
    pub missed: Missed,
}

/// A schedule that is in force.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Schedule {
    /// Its id.
    pub id: ScheduleId,
    /// Its team.
    pub team: TeamName,
    /// When: five fields, in UTC.
    pub cron: String,
    /// To whom.
    pub to: AgentName,
    /// What.
    pub message: String,
    /// What to do with missed ticks.
    pub missed: Missed,
    /// The entry that made it.
    pub birth: Birth,
    /// Ticks up to here are dealt with.
    pub through: Stamp,
}
