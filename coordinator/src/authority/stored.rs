//! The state as a snapshot keeps it: plain lists, the indexes left out.

use std::sync::Arc;

use posthouse_shared::clock::Stamp;
use posthouse_shared::generation::Birth;
use posthouse_shared::limits::Limits;
use posthouse_shared::name::{TaskId, TeamName};
use posthouse_shared::task::Task;
use posthouse_shared::team::{Member, Schedule, TeamConfig};
use rpds::RedBlackTreeMapSync;
use serde::{Deserialize, Serialize};

use super::board::Board;
use super::mail::Outgoing;
use super::requests::Remembered;
use super::state::{Host, JoinToken, Leader, State, Team};
use crate::journal::{Head, Snapshot};

#[derive(Serialize, Deserialize)]
struct StoredState {
    at: Stamp,
    cluster: Option<String>,
    leader: Option<Leader>,
    hosts: Vec<Host>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    tokens: Vec<(String, JoinToken)>,
    teams: Vec<StoredTeam>,
    unsent: Vec<(u64, Vec<Outgoing>)>,
    notified_through: u64,
    requests: Vec<Remembered>,
}

#[derive(Serialize, Deserialize)]
struct StoredTeam {
    name: TeamName,
    birth: Birth,
    created_at: Stamp,
    config: TeamConfig,
    members: Vec<Member>,
    /// In the order they were made.
    tasks: Vec<Task>,
    schedules: Vec<Schedule>,
}

impl State {
    /// The state as JSON. Two states with the same past give the same bytes.
    pub fn snapshot(&self) -> Result<Snapshot, serde_json::Error> {
        let stored = StoredState {
            at: self.at,
            cluster: self.cluster.clone(),
            leader: self.leader.clone(),
            hosts: self.hosts.values().cloned().collect(),
            tokens: self.tokens.iter().map(|(hash, token)| (hash.clone(), token.clone())).collect(),
            teams: self.teams.values().map(|team| store(team)).collect(),
            unsent: self.unsent.iter().map(|(index, mail)| (*index, mail.to_vec())).collect(),
            notified_through: self.notified_through,
            requests: self.requests.iter().cloned().collect(),
        };
        Ok(Snapshot { head: self.head.clone(), state: serde_json::to_vec(&stored)? })
    }

    /// The state that a snapshot holds.
    pub fn restore(snapshot: &Snapshot, limits: Arc<Limits>) -> Result<Self, serde_json::Error> {
        let stored: StoredState = serde_json::from_slice(&snapshot.state)?;
        let mut state = Self::new(limits);
        state.head = snapshot.head.clone();
        state.at = stored.at;
        state.cluster = stored.cluster;
        state.leader = stored.leader;
        state.hosts = stored.hosts.into_iter().map(|host| (host.name.clone(), host)).collect();
        state.tokens = stored.tokens.into_iter().collect();
        state.teams =
            stored.teams.into_iter().map(|team| (team.name.clone(), Arc::new(restore(team)))).collect();
        state.unsent = stored.unsent.into_iter().map(|(index, mail)| (index, Arc::new(mail))).collect();
        state.notified_through = stored.notified_through;
        for remembered in stored.requests {
            state.requests.insert(remembered);
        }
        Ok(state)
    }

    /// The journal's end that this state is of.
    pub const fn head(&self) -> &Head {
        &self.head
    }
}

fn store(team: &Team) -> StoredTeam {
    StoredTeam {
        name: team.name.clone(),
        birth: team.birth,
        created_at: team.created_at,
        config: team.config.clone(),
        members: team.members.values().cloned().collect(),
        tasks: team.board.tasks().map(|task| (**task).clone()).collect(),
        schedules: team.schedules.values().cloned().collect(),
    }
}

fn restore(stored: StoredTeam) -> Team {
    let mut board = Board::default();
    let ids: Vec<TaskId> = stored.tasks.iter().map(|task| task.id.clone()).collect();
    for task in stored.tasks {
        board.insert(Arc::new(task));
    }
    // A task may wait on one that was made after it.
    for id in &ids {
        board.reindex(id);
    }
    let members: RedBlackTreeMapSync<_, _> =
        stored.members.into_iter().map(|member| (member.name.clone(), member)).collect();
    let schedules: RedBlackTreeMapSync<_, _> =
        stored.schedules.into_iter().map(|schedule| (schedule.id.clone(), schedule)).collect();
    Team {
        name: stored.name,
        birth: stored.birth,
        created_at: stored.created_at,
        config: stored.config,
        members,
        board,
        schedules,
    }
}
