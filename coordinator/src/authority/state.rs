//! The state: a fold over the journal's entries, and nothing else. It knows no clock and no disk.
//!
//! All maps are persistent, so that a clone costs nothing and shares all that has not changed: the loop
//! decides on its own copy, and publishes it once it is durable.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use posthouse_shared::clock::Stamp;
use posthouse_shared::generation::{Birth, Generation};
use posthouse_shared::limits::Limits;
use posthouse_shared::name::{AgentName, HostName, ScheduleId, TeamName};
use posthouse_shared::team::{Member, Schedule, Standing, TeamConfig};
use rpds::RedBlackTreeMapSync;
use serde::{Deserialize, Serialize};

use super::board::Board;
use super::command::{Decision, HostChange, Reply};
use super::mail::{self, Outgoing};
use super::requests::Requests;
use crate::journal::{Entry, Head, Record};

/// A host as the journal has it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Host {
    /// Its name.
    pub name: HostName,
    /// Id of its data directory.
    pub data_id: String,
    /// How often that was started.
    pub boot: u64,
    /// Its grant.
    pub generation: Generation,
    /// Since when it runs.
    pub since: Stamp,
    /// What placement can ask for.
    pub labels: BTreeMap<String, String>,
    /// Runners that it has.
    pub runners: BTreeSet<String>,
    /// Its public key; absent for the leader's own host.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub key: Option<String>,
    /// Since when it is lost, where it is.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub lost: Option<Stamp>,
    /// Whether its next start is taken as it is.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub adopt: bool,
}

/// A join token; known by its hash.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct JoinToken {
    /// Whose place is taken by it.
    pub replace: Option<HostName>,
    /// Who has used it.
    pub used_by: Option<HostName>,
}

/// A team with its board.
#[derive(Debug, Clone)]
pub struct Team {
    /// Its name.
    pub name: TeamName,
    /// The entry that made it.
    pub birth: Birth,
    /// When.
    pub created_at: Stamp,
    /// How it works.
    pub config: TeamConfig,
    /// Its members, the lead among them, those that were shut down too.
    pub members: RedBlackTreeMapSync<AgentName, Member>,
    /// Its tasks.
    pub board: Board,
    /// Its schedules.
    pub schedules: RedBlackTreeMapSync<ScheduleId, Schedule>,
}

/// Who leads.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Leader {
    /// Id of its data directory.
    pub id: String,
    /// Its host.
    pub host: HostName,
    /// The entry in which it took the lead; starting again keeps it.
    pub generation: Generation,
}

/// All that was decided.
#[derive(Debug, Clone)]
pub struct State {
    /// The journal's end.
    pub head: Head,
    /// Time of the last entry.
    pub at: Stamp,
    /// The cluster's id.
    pub cluster: Option<String>,
    /// Who leads.
    pub leader: Option<Leader>,
    /// All hosts.
    pub hosts: RedBlackTreeMapSync<HostName, Host>,
    /// Join tokens by their hash, the used ones too.
    pub tokens: RedBlackTreeMapSync<String, JoinToken>,
    /// All teams.
    pub teams: RedBlackTreeMapSync<TeamName, Arc<Team>>,
    /// Mail that entries caused and that is not known to be stored, by the entry's index.
    pub unsent: RedBlackTreeMapSync<u64, Arc<Vec<Outgoing>>>,
    /// Mail of entries up to here is stored.
    pub notified_through: u64,
    pub(super) requests: Requests,
    pub(super) limits: Arc<Limits>,
}

impl State {
    /// Before the first entry.
    pub fn new(limits: Arc<Limits>) -> Self {
        Self {
            head: Head::default(),
            at: Stamp::default(),
            cluster: None,
            leader: None,
            hosts: RedBlackTreeMapSync::default(),
            tokens: RedBlackTreeMapSync::default(),
            teams: RedBlackTreeMapSync::default(),
            unsent: RedBlackTreeMapSync::default(),
            notified_through: 0,
            requests: Requests::default(),
            limits,
        }
    }

    /// One team.
    pub fn team(&self, name: &TeamName) -> Option<&Arc<Team>> {
        self.teams.get(name)
    }

    /// One member.
    pub fn member(&self, team: &TeamName, name: &AgentName) -> Option<&Member> {
        self.team(team)?.members.get(name)
    }

    /// Mail that is not known to be stored, in the order of the entries that caused it. Send it in this
    /// order (ids come out the same each time), then decide `Command::Notified`.
    pub fn unsent(&self) -> impl Iterator<Item = &Outgoing> {
        self.unsent.values().flat_map(|mail| mail.iter())
    }

    /// The state after one more entry.
    pub fn apply(&mut self, record: &Record) {
        let entry = &record.entry;
        self.at = entry.at;
        self.change(entry);
        self.head = record.head();
        let mail = mail::mail_of(self, entry);
        if !mail.is_empty() {
            self.unsent.insert_mut(entry.index, Arc::new(mail));
        }
        if let Some(mark) = &entry.request {
            let memory = self.limits.request_memory_ms;
            self.requests.remember(mark, entry, memory);
        }
    }

    fn change(&mut self, entry: &Entry) {
        let generation = entry.generation();
        match &entry.decision {
            Decision::Cluster { id } => self.cluster = Some(id.clone()),
            Decision::Leader { id, host } => self.lead(id, host, generation),
            Decision::HostStarted { start, renewed, key, token } => {
                self.host_started(start, *renewed, key.as_ref(), entry);
                if let Some(token) = token.as_ref().and_then(|hash| self.tokens.get_mut(hash)) {
                    token.used_by = Some(start.host.clone());
                }
            }
            Decision::Host { what } => self.host_change(what, entry.at),
            Decision::TeamCreated { team, config, host } => {
                let lead = AgentName::lead();
                let member = Member {
                    spec: None,
                    name: lead.clone(),
                    birth: generation,
                    generation,
                    host: host.clone(),
                    session: None,
                    standing: Standing::Active,
                    commanded: generation,
                    since: entry.at,
                };
                let made = Team {
                    name: team.clone(),
                    birth: generation,
                    created_at: entry.at,
                    config: config.clone(),
                    members: RedBlackTreeMapSync::default().insert(lead, member),
                    board: Board::default(),
                    schedules: RedBlackTreeMapSync::default(),
                };
                self.teams.insert_mut(team.clone(), Arc::new(made));
            }
            Decision::TeamDeleted { team } => {
                self.teams.remove_mut(team);
            }
            Decision::Spawned { team, .. }
            | Decision::Commanded { team, .. }
            | Decision::Stood { team, .. }
            | Decision::TaskAdded { team, .. }
            | Decision::TaskUpdated { team, .. }
            | Decision::TaskClaimed { team, .. }
            | Decision::TaskReleased { team, .. }
            | Decision::TaskCompleted { team, .. }
            | Decision::TaskGivenUp { team, .. }
            | Decision::TaskCancelled { team, .. }
            | Decision::ScheduleAdded { team, .. }
            | Decision::ScheduleDeleted { team, .. }
            | Decision::ScheduleTicked { team, .. } => {
                if let Some(team) = self.teams.get_mut(team) {
                    Arc::make_mut(team).change(entry);
                }
            }
            Decision::Notified { through } => {
                self.notified_through = self.notified_through.max(*through);
                let sent: Vec<u64> = self.unsent.range(..=*through).map(|(index, _)| *index).collect();
                for index in sent {
                    self.unsent.remove_mut(&index);
                }
            }
        }
    }

    /// The same data id keeps its grant; another one is a new lead's home.
    fn lead(&mut self, id: &str, host: &HostName, generation: Generation) {
        let kept = self.leader.as_ref().filter(|leader| leader.id == id && leader.host == *host);
        if kept.is_some() {
            return;
        }
        self.leader = Some(Leader { id: id.to_owned(), host: host.clone(), generation });
        self.each_team(|team| {
            if let Some(lead) = team.members.get_mut(&AgentName::lead()) {
                lead.generation = generation;
                lead.host = host.clone();
            }
        });
    }

    fn host_change(&mut self, what: &HostChange, at: Stamp) {
        match what {
            HostChange::Token { hash, replace } => {
                let token = JoinToken { replace: replace.clone(), used_by: None };
                self.tokens.insert_mut(hash.clone(), token);
            }
            HostChange::Adopted { host } => self.edit_host(host, |host| host.adopt = true),
            HostChange::Removed { host } => {
                self.hosts.remove_mut(host);
            }
            HostChange::Heard { host } => self.edit_host(host, |host| host.lost = None),
            HostChange::Lost { host, released } => {
                self.edit_host(host, |host| host.lost = Some(at));
                for (team, task) in released {
                    if let Some(team) = self.teams.get_mut(team) {
                        Arc::make_mut(team).board.lost(task, at);
                    }
                }
            }
        }
    }

    fn edit_host(&mut self, name: &HostName, edit: impl FnOnce(&mut Host)) {
        if let Some(host) = self.hosts.get_mut(name) {
            edit(host);
        }
    }

    fn host_started(
        &mut self,
        start: &super::command::HostStart,
        renewed: bool,
        key: Option<&String>,
        entry: &Entry,
    ) {
        let grant = entry.generation();
        let before = self.hosts.get(&start.host).map(|host| host.generation);
        let host = Host {
            name: start.host.clone(),
            data_id: start.data_id.clone(),
            boot: start.boot,
            generation: before.filter(|_| !renewed).unwrap_or(grant),
            since: entry.at,
            labels: start.labels.clone(),
            runners: start.runners.clone(),
            key: key.cloned(),
            lost: None,
            adopt: false,
        };
        self.hosts.insert_mut(start.host.clone(), host);
        if renewed && before.is_some() {
            self.each_team(|team| {
                let here: Vec<AgentName> =
                    team.members.values().filter(|m| m.host == start.host).map(|m| m.name.clone()).collect();
                for name in here {
                    if let Some(member) = team.members.get_mut(&name) {
                        member.generation = grant;
                    }
                }
            });
        }
    }

    fn each_team(&mut self, mut change: impl FnMut(&mut Team)) {
        let names: Vec<TeamName> = self.teams.keys().cloned().collect();
        for name in names {
            if let Some(team) = self.teams.get_mut(&name) {
                change(Arc::make_mut(team));
            }
        }
    }

    /// The reply to the command that this entry, the last one applied, was decided for.
    pub fn reply_to(&self, entry: &Entry) -> Reply {
        let task = |team: &TeamName, id| {
            self.team(team)
                .and_then(|team| team.board.get(id))
                .map_or(Reply::Nothing, |task| Reply::Task(task.clone()))
        };
        let member = |team: &TeamName, name: &AgentName| {
            self.member(team, name)
                .map_or(Reply::Nothing, |member| Reply::Member(team.clone(), Box::new(member.clone())))
        };
        match &entry.decision {
            Decision::TeamCreated { team, .. } | Decision::TeamDeleted { team } => Reply::Team(team.clone()),
            Decision::Spawned { team, spec, .. } => member(team, &spec.name),
            Decision::Commanded { team, agent, .. } => member(team, agent),
            Decision::TaskAdded { team, id, .. }
            | Decision::TaskUpdated { team, id, .. }
            | Decision::TaskClaimed { team, id, .. }
            | Decision::TaskReleased { team, id, .. }
            | Decision::TaskCompleted { team, id, .. }
            | Decision::TaskCancelled { team, id, .. } => task(team, id),
            Decision::ScheduleAdded { team, id, .. } => self
                .team(team)
                .and_then(|team| team.schedules.get(id))
                .map_or(Reply::Nothing, |schedule| Reply::Schedule(Box::new(schedule.clone()))),
            Decision::Cluster { .. }
            | Decision::Leader { .. }
            | Decision::HostStarted { .. }
            | Decision::Host { .. }
            | Decision::Stood { .. }
            | Decision::TaskGivenUp { .. }
            | Decision::ScheduleDeleted { .. }
            | Decision::ScheduleTicked { .. }
            | Decision::Notified { .. } => Reply::Nothing,
        }
    }
}

impl Team {
    fn change(&mut self, entry: &Entry) {
        let (generation, at) = (entry.generation(), entry.at);
        match &entry.decision {
            Decision::Spawned { spec, host, .. } => {
                let name = spec.name.clone();
                let before = self.members.get(&name).filter(|_| name.is_lead());
                // A lead that gets an agent is the same member, with the same mailbox and lanes.
                let (birth, grant) = before.map_or((generation, generation), |m| (m.birth, m.generation));
                let member = Member {
                    spec: Some((**spec).clone()),
                    name: name.clone(),
                    birth,
                    generation: grant,
                    host: host.clone(),
                    session: None,
                    standing: Standing::Active,
                    commanded: generation,
                    since: at,
                };
                self.members.insert_mut(name, member);
            }
            Decision::Commanded { agent, what, .. } => {
                if let Some(member) = self.members.get_mut(agent) {
                    member.commanded = generation;
                    match what {
                        super::command::Lifecycle::Stop => member.stand(Standing::Stopped, at),
                        super::command::Lifecycle::Resume => member.stand(Standing::Active, at),
                        // It stands as it did until it has ended.
                        super::command::Lifecycle::Shutdown { .. } => {}
                    }
                }
            }
            Decision::Stood { agent, standing, .. } => {
                if let Some(member) = self.members.get_mut(agent) {
                    member.stand(*standing, at);
                }
                self.board.change(entry);
            }
            Decision::ScheduleAdded { team, id, cron, to, message, missed } => {
                let schedule = Schedule {
                    id: id.clone(),
                    team: team.clone(),
                    cron: cron.clone(),
                    to: to.clone(),
                    message: message.clone(),
                    missed: *missed,
                    birth: generation,
                    through: at,
                };
                self.schedules.insert_mut(id.clone(), schedule);
            }
            Decision::ScheduleDeleted { id, .. } => {
                self.schedules.remove_mut(id);
            }
            Decision::ScheduleTicked { id, through, .. } => {
                if let Some(schedule) = self.schedules.get_mut(id) {
                    schedule.through = schedule.through.max(*through);
                }
            }
            Decision::TaskAdded { .. }
            | Decision::TaskUpdated { .. }
            | Decision::TaskClaimed { .. }
            | Decision::TaskReleased { .. }
            | Decision::TaskCompleted { .. }
            | Decision::TaskGivenUp { .. }
            | Decision::TaskCancelled { .. } => self.board.change(entry),
            Decision::Cluster { .. }
            | Decision::Leader { .. }
            | Decision::HostStarted { .. }
            | Decision::Host { .. }
            | Decision::TeamCreated { .. }
            | Decision::TeamDeleted { .. }
            | Decision::Notified { .. } => {}
        }
    }
}

trait Stand {
    fn stand(&mut self, standing: Standing, at: Stamp);
}

impl Stand for Member {
    /// `since` moves only when something changes.
    fn stand(&mut self, standing: Standing, at: Stamp) {
        if self.standing != standing {
            self.standing = standing;
            self.since = at;
        }
    }
}
