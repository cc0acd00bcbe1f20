//! Requests that can be repeated: their ids are remembered for `request_memory_ms`, with the entry that
//! answered. In the journal's state, so that a restart forgets none.

use posthouse_shared::clock::Stamp;
use posthouse_shared::generation::Generation;
use posthouse_shared::name::{AgentName, ScheduleId, TaskId, TeamName};
use posthouse_shared::task::TaskStatus;
use rpds::RedBlackTreeMapSync;
use serde::{Deserialize, Serialize};

use super::command::{Decision, Reply};
use super::state::State;
use crate::journal::{Entry, RequestMark};

/// So many are remembered at most; beyond, the oldest are forgotten first.
const REMEMBERED_MAX: usize = 262_144;

/// What a request was answered with.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", tag = "answer")]
pub(super) enum Answered {
    Nothing,
    Team {
        team: TeamName,
    },
    Member {
        team: TeamName,
        agent: AgentName,
    },
    /// A claim: good while it is alive.
    Claim {
        team: TeamName,
        task: TaskId,
    },
    Task {
        team: TeamName,
        task: TaskId,
    },
    Schedule {
        team: TeamName,
        id: ScheduleId,
    },
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(super) struct Remembered {
    pub(super) mark: RequestMark,
    pub(super) generation: Generation,
    pub(super) at: Stamp,
    pub(super) answered: Answered,
}

#[derive(Debug, Clone, Default)]
pub(super) struct Requests {
    by_key: RedBlackTreeMapSync<String, Remembered>,
    by_index: RedBlackTreeMapSync<u64, String>,
}

/// What is known of a request.
pub(super) enum Known {
    New,
    Again(Reply),
    /// With the reason.
    Superseded(&'static str),
}

impl Requests {
    pub(super) fn remember(&mut self, mark: &RequestMark, entry: &Entry, memory_ms: u64) {
        let answered = match &entry.decision {
            Decision::TeamCreated { team, .. } => Answered::Team { team: team.clone() },
            Decision::Spawned { team, spec, .. } => {
                Answered::Member { team: team.clone(), agent: spec.name.clone() }
            }
            Decision::Commanded { team, agent, .. } => {
                Answered::Member { team: team.clone(), agent: agent.clone() }
            }
            Decision::TaskClaimed { team, id, .. } => {
                Answered::Claim { team: team.clone(), task: id.clone() }
            }
            Decision::TaskAdded { team, id, .. }
            | Decision::TaskUpdated { team, id, .. }
            | Decision::TaskReleased { team, id, .. }
            | Decision::TaskCompleted { team, id, .. }
            | Decision::TaskCancelled { team, id, .. } => {
                Answered::Task { team: team.clone(), task: id.clone() }
            }
            Decision::ScheduleAdded { team, id, .. } => {
                Answered::Schedule { team: team.clone(), id: id.clone() }
            }
            Decision::Cluster { .. }
            | Decision::Leader { .. }
            | Decision::HostStarted { .. }
            | Decision::Host { .. }
            | Decision::TeamDeleted { .. }
            | Decision::Stood { .. }
            | Decision::TaskGivenUp { .. }
            | Decision::ScheduleDeleted { .. }
            | Decision::ScheduleTicked { .. }
            | Decision::Notified { .. } => Answered::Nothing,
        };
        self.insert(Remembered {
            mark: mark.clone(),
            generation: entry.generation(),
            at: entry.at,
            answered,
        });
        self.forget(entry.at, memory_ms);
    }

    pub(super) fn insert(&mut self, remembered: Remembered) {
        self.by_index.insert_mut(remembered.generation.index, remembered.mark.key.clone());
        self.by_key.insert_mut(remembered.mark.key.clone(), remembered);
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = &Remembered> {
        self.by_index.values().filter_map(|key| self.by_key.get(key))
    }

    fn forget(&mut self, now: Stamp, memory_ms: u64) {
        while let Some((index, key)) = self.by_index.first().map(|(index, key)| (*index, key.clone())) {
            let old = self
                .by_key
                .get(&key)
                .is_none_or(|remembered| now.since(remembered.at).as_millis() > u128::from(memory_ms));
            if !old && self.by_index.size() <= REMEMBERED_MAX {
                return;
            }
            self.by_index.remove_mut(&index);
            self.by_key.remove_mut(&key);
        }
    }

    /// The first answer, where this request was answered already.
    pub(super) fn known(&self, mark: &RequestMark, state: &State) -> Known {
        let Some(first) = self.by_key.get(&mark.key) else { return Known::New };
        if first.mark.digest != mark.digest {
            return Known::Superseded("the id was used for another request");
        }
        let team = |name: &TeamName| state.team(name).filter(|team| team.birth <= first.generation);
        let gone = Known::Superseded("what it was about is gone");
        match &first.answered {
            Answered::Nothing => Known::Again(Reply::Nothing),
            Answered::Team { team: name } => {
                team(name).map_or(gone, |team| Known::Again(Reply::Team(team.name.clone())))
            }
            Answered::Member { team: name, agent } => team(name)
                .and_then(|team| team.members.get(agent))
                .filter(|member| member.birth <= first.generation)
                .map_or(gone, |member| Known::Again(Reply::Member(name.clone(), Box::new(member.clone())))),
            Answered::Claim { team: name, task } => {
                let claim = team(name).and_then(|team| team.board.get(task)).filter(|task| {
                    task.status == TaskStatus::InProgress && task.generation == Some(first.generation)
                });
                let ended = Known::Superseded("the claim that it got has ended since");
                claim.map_or(ended, |task| Known::Again(Reply::Task(task.clone())))
            }
            Answered::Task { team: name, task } => team(name)
                .and_then(|team| team.board.get(task))
                .map_or(gone, |task| Known::Again(Reply::Task(task.clone()))),
            Answered::Schedule { team: name, id } => team(name)
                .and_then(|team| team.schedules.get(id))
                .map_or(gone, |schedule| Known::Again(Reply::Schedule(Box::new(schedule.clone())))),
        }
    }
}
