//! What a node needs of the authority. In one process the coordinator implements it directly; between hosts
//! it goes over the bus. A node never decides any of this by itself.

use async_trait::async_trait;
use posthouse_shared::clock::Stamp;
use posthouse_shared::generation::{Birth, Generation};
use posthouse_shared::name::{AgentId, ScheduleId, TaskId, TeamName};
use posthouse_shared::refusal::Refusal;
use posthouse_shared::task::{Claim, ClaimedTask};
use posthouse_shared::team::{AgentState, Standing};
use posthouse_shared::wire::Caller;
use posthouse_shared::wire::event::What;
use posthouse_shared::wire::requests::Request;
use serde::{Deserialize, Serialize};

/// What a teammate says of itself. Not durable: the read model and the events are made of it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Report {
    /// The generation of the teammate that says it.
    pub generation: Generation,
    /// What it does.
    pub state: AgentState,
    /// Number of its present or last turn.
    pub turn: u64,
    /// The attempt that the turn is; 0 outside a turn.
    pub attempt: u32,
    /// The task of the turn.
    pub task: Option<TaskId>,
    /// One line: what it is at (`T-101 Counting files`, `2 messages`, `exit 101`).
    pub doing: String,
}

/// How a claimed task's turn came out, other than completed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum GaveUp {
    /// The turn failed; counts as an attempt of the task.
    Failed {
        /// What went wrong, one line.
        why: String,
    },
    /// The turn was stopped or the teammate ended; does not count.
    Stopped,
}

/// The authority as a node sees it. Every call is answered; `request_id` makes a repeated call get the first
/// answer.
#[async_trait]
pub trait AuthorityPort: Send + Sync + 'static {
    /// A request that came over the node's local socket, with the caller that its token stands for. The
    /// answer is the reply's JSON, without `v` and `as_of`.
    async fn request(&self, caller: Caller, request: Request) -> Result<serde_json::Value, Refusal>;

    /// A task for an idle teammate: the one it holds already, else one assigned to it, else (where it claims
    /// by itself) the oldest that it may claim. `None`: nothing to do.
    async fn claim_next(
        &self,
        agent: &AgentId,
        generation: Generation,
        request_id: &str,
    ) -> Result<Option<ClaimedTask>, Refusal>;

    /// Completes a claimed task with the turn's result. Fine if the agent completed it itself under the same
    /// claim.
    async fn complete(
        &self,
        agent: &AgentId,
        claim: &Claim,
        result: &str,
        request_id: &str,
    ) -> Result<(), Refusal>;

    /// Gives a claimed task back.
    async fn give_up(
        &self,
        agent: &AgentId,
        claim: &Claim,
        how: &GaveUp,
        request_id: &str,
    ) -> Result<(), Refusal>;

    /// A teammate's own change of standing: its turn failed, it agreed to shut down, mail of the lead resumed
    /// it. `command` is the entry of the last lifecycle command that it has applied; an older one than the
    /// authority has is refused with `WrongGeneration`.
    async fn standing(
        &self,
        agent: &AgentId,
        generation: Generation,
        command: Generation,
        standing: Standing,
        request_id: &str,
    ) -> Result<(), Refusal>;

    /// A schedule's ticks are dealt with up to `through`. Calling it late or never does no harm: a tick's
    /// message has the same id each time.
    async fn ticked(&self, _team: &TeamName, _schedule: &ScheduleId, _birth: Birth, _through: Stamp) {}

    /// What a teammate is at. Never blocks.
    fn report(&self, agent: &AgentId, report: Report);

    /// What each teammate of this node last said of itself, where the port remembers it.
    fn reports(&self) -> Vec<(AgentId, Report)> {
        Vec::new()
    }

    /// Something happened on this node. Never blocks.
    fn event(&self, what: What);
}
