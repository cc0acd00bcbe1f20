//! What the authority can be asked, what it decides, and what it answers.
//!
//! A command that changes something becomes exactly one journal entry, so that no crash can leave half of it.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use posthouse_node::port::GaveUp;
use posthouse_shared::clock::Stamp;
use posthouse_shared::generation::Generation;
use posthouse_shared::name::{AgentName, HostName, ScheduleId, TaskId, TeamName};
use posthouse_shared::task::{ClaimedTask, Task, TaskChange, TaskSpec};
use posthouse_shared::team::{Member, MemberSpec, Missed, Schedule, ScheduleSpec, Standing, TeamConfig};
use serde::{Deserialize, Serialize};

/// A data directory that starts.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct HostStart {
    /// Its name.
    pub host: HostName,
    /// The random id of its data directory.
    pub data_id: String,
    /// How often that was started; rises.
    pub boot: u64,
    /// What placement can ask for.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub labels: BTreeMap<String, String>,
    /// Runners that it has.
    #[serde(default, skip_serializing_if = "BTreeSet::is_empty")]
    pub runners: BTreeSet<String>,
}

/// A lifecycle command of the lead.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "do", rename_all = "snake_case")]
pub enum Lifecycle {
    /// Cancel the turn; claim nothing until resumed.
    Stop,
    /// End a stop or a failure.
    Resume,
    /// End. The teammate may refuse, unless forced.
    Shutdown {
        /// Does not ask.
        force: bool,
    },
}

/// A command. Names are text as the user gave them: an unknown one is answered with the nearest.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "command", rename_all = "snake_case")]
#[expect(missing_docs, reason = "fields are the words of the design; the variants say what they do")]
pub enum Command {
    /// A data directory starts. `adopt` takes one in that would be refused. -> `Reply::Nothing`
    HostStart { start: HostStart, adopt: bool },
    /// A data directory starts elsewhere, and proved to hold `key`. `token` is the hash of the join token that
    /// it showed; needed for none but the first start, and for one with another key. -> `Reply::Nothing`
    HostJoin { start: HostStart, key: String, token: Option<String> },
    /// A join token, as its hash; `replace` names the host whose place is taken by it. -> `Reply::Nothing`
    HostToken { hash: String, replace: Option<String> },
    /// The next start of this host is taken as it is, with new grants. -> `Reply::Nothing`
    HostAdopt { host: String },
    /// A host is forgotten; refused while teammates live on it. -> `Reply::Nothing`
    HostRemove { host: String },
    /// A host was silent for too long, or is heard again. -> `Reply::Nothing`
    HostSeen { host: HostName, lost: bool },
    /// Makes a team with its lead, who lives on `host`. -> `Reply::Team`
    TeamCreate { name: String, config: TeamConfig, host: HostName },
    /// Ends a team with all that is in it. -> `Reply::Team`
    TeamDelete { team: String },
    /// Makes a teammate, or gives an agent to the lead. -> `Reply::Member`
    Spawn { team: String, spec: Box<MemberSpec> },
    /// Stops, resumes or ends a teammate. -> `Reply::Member`
    Lifecycle { team: String, name: String, what: Lifecycle },
    /// A teammate's own change of standing, by its node. `applied` is the newest lifecycle command that it
    /// has applied. The caller is the teammate. -> `Reply::Nothing`
    Standing { applied: Generation, standing: Standing },
    /// Something about a task.
    Board {
        team: String,
        /// The agent that acts, where it is not the caller: the operator's privilege.
        as_agent: Option<String>,
        what: BoardCommand,
    },
    /// Adds a schedule. -> `Reply::Schedule`
    ScheduleAdd { team: String, spec: ScheduleSpec },
    /// Ends a schedule. -> `Reply::Schedule`
    ScheduleDelete { team: String, id: String },
    /// Ticks of a schedule up to `through` are dealt with. -> `Reply::Nothing`
    ScheduleTicked { team: TeamName, id: ScheduleId, through: Stamp },
    /// The mail that entries up to `through` cause is stored. -> `Reply::Nothing`
    Notified { through: u64 },
}

/// A command about a task.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "do", rename_all = "snake_case")]
#[expect(missing_docs, reason = "fields are the words of the design; the variants say what they do")]
pub enum BoardCommand {
    /// -> `Reply::Task`
    Add { spec: Box<TaskSpec> },
    /// -> `Reply::Task`
    Update { id: String, change: Box<TaskChange> },
    /// -> `Reply::Task`
    Claim { id: String },
    /// The task that the agent holds, else one assigned to it, else (where it claims by itself) the oldest
    /// that it may claim. -> `Reply::Claimed`
    ClaimNext,
    /// Gives a claim back, or lifts a hold. -> `Reply::Task`
    Release { id: String, generation: Option<Generation> },
    /// -> `Reply::Task`
    Complete { id: String, generation: Option<Generation>, result: Option<String> },
    /// A turn on the task ended otherwise. -> `Reply::Nothing`
    GiveUp { id: TaskId, generation: Generation, how: GaveUp },
    /// -> `Reply::Task`
    Cancel { id: String },
    /// Whether the agent's claim is the present one. Changes nothing. -> `Reply::Task`
    Check { id: String, generation: Option<Generation> },
}

/// What a command that changes nothing durable, or something durable, comes to.
#[derive(Debug, Clone, PartialEq)]
pub enum Decided {
    /// Nothing to journal.
    Answer(Reply),
    /// One entry; the reply follows from the state after it.
    Journal(Decision),
}

/// What stands in the journal.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "decided", rename_all = "snake_case")]
#[expect(missing_docs, reason = "fields are the words of the design; the variants say what they do")]
pub enum Decision {
    /// The first entry: the cluster's id, kept by every node.
    Cluster {
        id: String,
    },
    /// Who leads from here on.
    Leader {
        id: String,
        host: HostName,
    },
    /// A data directory started. With `renewed` it got a new grant, and its agents too.
    HostStarted {
        start: HostStart,
        renewed: bool,
        /// Its public key; absent for the leader's own host.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        key: Option<String>,
        /// Hash of the join token that is used up by it.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        token: Option<String>,
    },
    /// Something else about hosts.
    Host {
        what: HostChange,
    },
    /// A team with its lead.
    TeamCreated {
        team: TeamName,
        config: TeamConfig,
        host: HostName,
    },
    /// A team is gone.
    TeamDeleted {
        team: TeamName,
    },
    /// A member, placed.
    Spawned {
        team: TeamName,
        spec: Box<MemberSpec>,
        host: HostName,
    },
    /// The lead's lifecycle command; the entry's generation is its number.
    Commanded {
        team: TeamName,
        agent: AgentName,
        what: Lifecycle,
    },
    /// A teammate's own change of standing. Its claims that ended with it are named.
    Stood {
        team: TeamName,
        agent: AgentName,
        standing: Standing,
        released: Vec<TaskId>,
    },
    TaskAdded {
        team: TeamName,
        id: TaskId,
        spec: Box<TaskSpec>,
        by: AgentName,
    },
    TaskUpdated {
        team: TeamName,
        id: TaskId,
        change: Box<TaskChange>,
        by: AgentName,
    },
    TaskClaimed {
        team: TeamName,
        id: TaskId,
        agent: AgentName,
    },
    TaskReleased {
        team: TeamName,
        id: TaskId,
        by: AgentName,
    },
    TaskCompleted {
        team: TeamName,
        id: TaskId,
        agent: AgentName,
        result: Option<String>,
    },
    /// With `hold` nobody may claim it until a person releases it.
    TaskGivenUp {
        team: TeamName,
        id: TaskId,
        agent: AgentName,
        how: GaveUp,
        hold: Option<String>,
    },
    TaskCancelled {
        team: TeamName,
        id: TaskId,
        by: AgentName,
    },
    ScheduleAdded {
        team: TeamName,
        id: ScheduleId,
        cron: String,
        to: AgentName,
        message: String,
        missed: Missed,
    },
    ScheduleDeleted {
        team: TeamName,
        id: ScheduleId,
    },
    ScheduleTicked {
        team: TeamName,
        id: ScheduleId,
        through: Stamp,
    },
    Notified {
        through: u64,
    },
}

/// What can be decided of hosts, beside their starts.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "change", rename_all = "snake_case")]
#[expect(missing_docs, reason = "fields are the words of the design; the variants say what they do")]
pub enum HostChange {
    /// A join token was made; its hash.
    Token { hash: String, replace: Option<HostName> },
    /// Its next start is taken as it is.
    Adopted { host: HostName },
    /// It is none any more.
    Removed { host: HostName },
    /// It was silent for too long; claims of its teammates ended with it.
    Lost { host: HostName, released: Vec<(TeamName, TaskId)> },
    /// It is heard again.
    Heard { host: HostName },
}

/// The answer to a command.
#[derive(Debug, Clone, PartialEq)]
pub enum Reply {
    /// Done, and nothing more to say.
    Nothing,
    /// The team.
    Team(TeamName),
    /// The member as it is now.
    Member(TeamName, Box<Member>),
    /// The task as it is now.
    Task(Arc<Task>),
    /// A task to work on, or none.
    Claimed(Option<Box<ClaimedTask>>),
    /// The schedule.
    Schedule(Box<Schedule>),
}
