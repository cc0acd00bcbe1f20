//! A task of the board, as data. What may happen to it is decided by the coordinator's board.

use serde::{Deserialize, Serialize};

use crate::clock::Stamp;
use crate::generation::Generation;
use crate::name::{AgentName, RoleName, TaskId};

/// Where a task stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum TaskStatus {
    /// Waits for somebody to claim it (or for what blocks it).
    Pending,
    /// Claimed.
    InProgress,
    /// Done, with its result.
    Completed,
    /// Given up by a person or the lead.
    Cancelled,
}

impl TaskStatus {
    /// Whether nothing more happens to it.
    pub const fn is_ended(self) -> bool {
        matches!(self, Self::Completed | Self::Cancelled)
    }

    /// As in JSON.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Pending => "pending",
            Self::InProgress => "in_progress",
            Self::Completed => "completed",
            Self::Cancelled => "cancelled",
        }
    }
}

/// What a person or an agent writes of a task.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct TaskSpec {
    /// Its id; one is made up where absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub id: Option<TaskId>,
    /// One line.
    pub subject: String,
    /// All that the one who does it must know.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub description: String,
    /// What is shown while it is done ("Counting files").
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub active_form: Option<String>,
    /// Tasks that must be completed first.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub blocked_by: Vec<TaskId>,
    /// Who may claim it; absent: anybody.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub role: Option<RoleName>,
    /// Free for the team's own use.
    #[serde(default, skip_serializing_if = "serde_json::Map::is_empty")]
    pub metadata: serde_json::Map<String, serde_json::Value>,
}

/// A change of a task's text; absent fields stay.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct TaskChange {
    /// New subject.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub subject: Option<String>,
    /// New description.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub description: Option<String>,
    /// New active form.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub active_form: Option<String>,
    /// New list of blockers.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub blocked_by: Option<Vec<TaskId>>,
    /// New role.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub role: Option<RoleName>,
    /// Assigns the task to this teammate, who gets a `task_assignment`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub owner: Option<AgentName>,
    /// Keys to set; `null` removes a key.
    #[serde(default, skip_serializing_if = "serde_json::Map::is_empty")]
    pub metadata: serde_json::Map<String, serde_json::Value>,
}

/// A task.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Task {
    /// Its id, unique on its board for ever.
    pub id: TaskId,
    /// One line.
    pub subject: String,
    /// All that the one who does it must know.
    #[serde(default)]
    pub description: String,
    /// What is shown while it is done.
    #[serde(default)]
    pub active_form: Option<String>,
    /// Where it stands.
    pub status: TaskStatus,
    /// Who has claimed or completed it, or to whom a pending one is assigned.
    #[serde(default)]
    pub owner: Option<AgentName>,
    /// The grant of the last claim; a completion must name it.
    #[serde(default)]
    pub generation: Option<Generation>,
    /// Tasks that must be completed first.
    #[serde(default)]
    pub blocked_by: Vec<TaskId>,
    /// Tasks that wait on this one.
    #[serde(default)]
    pub blocks: Vec<TaskId>,
    /// Who may claim it.
    #[serde(default)]
    pub role: Option<RoleName>,
    /// What came of it.
    #[serde(default)]
    pub result: Option<String>,
    /// Turns that failed on it since it was last released by a person.
    #[serde(default)]
    pub attempts: u32,
    /// Why nobody may claim it until a person releases it.
    #[serde(default)]
    pub hold: Option<String>,
    /// Free for the team's own use.
    #[serde(default)]
    pub metadata: serde_json::Map<String, serde_json::Value>,
    /// When it was made.
    pub created_at: Stamp,
    /// When it last changed.
    pub updated_at: Stamp,
}

/// A claim that is alive: what a turn carries and a completion names.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Claim {
    /// The task.
    pub task: TaskId,
    /// The grant.
    pub generation: Generation,
}

/// A claimed task as a turn gets it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ClaimedTask {
    /// Its id.
    pub id: TaskId,
    /// One line.
    pub subject: String,
    /// The whole brief.
    pub description: String,
    /// The grant.
    pub generation: Generation,
    /// What the tasks that blocked it came to.
    pub blocked_by: Vec<BlockerResult>,
}

/// The result of a task that another one waited on.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct BlockerResult {
    /// The task that blocked.
    pub id: TaskId,
    /// Its result.
    pub result: Option<String>,
}
