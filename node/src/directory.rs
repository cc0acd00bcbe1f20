//! Who lives where, as this node was last told by the authority. Sending resolves names here, so that mail
//! goes on while the coordinator cannot be reached.

use std::collections::BTreeMap;
use std::sync::{Arc, PoisonError, RwLock};

use posthouse_shared::codes::Code;
use posthouse_shared::generation::{Birth, Generation};
use posthouse_shared::identity::HostKeys;
use posthouse_shared::name::{AgentId, AgentName, HostName, TeamName};
use posthouse_shared::refusal::Refusal;
use posthouse_shared::team::Standing;
use serde::{Deserialize, Serialize};
use tokio::sync::watch;

/// What a sender must know of a recipient.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Residence {
    /// Its birth: messages name it.
    pub birth: Birth,
    /// The grant of its home: the epoch of its own lanes.
    pub generation: Generation,
    /// Its home.
    pub host: HostName,
    /// Whether it may be written to, and when it reads.
    pub standing: Standing,
}

/// The directory. Cheap to clone; clones share it.
#[derive(Debug, Clone, Default)]
pub struct Directory {
    teams: Arc<RwLock<BTreeMap<TeamName, BTreeMap<AgentName, Residence>>>>,
    through: Arc<RwLock<Generation>>,
    changes: Arc<watch::Sender<u64>>,
    hosts: HostKeys,
}

impl Directory {
    /// The hosts and their keys; whoever keeps the directory up to date sets them too.
    pub fn hosts(&self) -> &HostKeys {
        &self.hosts
    }

    /// Replaces one team whole.
    pub fn set_team(&self, team: TeamName, members: BTreeMap<AgentName, Residence>) {
        self.teams.write().unwrap_or_else(PoisonError::into_inner).insert(team, members);
        self.changed();
    }

    /// Says that all grants up to `through` are in it: who was made before and is not in it is gone.
    pub fn set_through(&self, through: Generation) {
        {
            let mut known = self.through.write().unwrap_or_else(PoisonError::into_inner);
            *known = through.max(*known);
        }
        self.changed();
    }

    /// Whether the agent of this birth has ended, for all that is known: its team is gone, or another one bears its
    /// name.
    pub fn is_gone(&self, id: &AgentId, birth: Birth) -> bool {
        match self.get(id) {
            Some(residence) => residence.birth > birth,
            None => birth <= *self.through.read().unwrap_or_else(PoisonError::into_inner),
        }
    }

    /// A count that rises with every change.
    pub fn changes(&self) -> watch::Receiver<u64> {
        self.changes.subscribe()
    }

    fn changed(&self) {
        self.changes.send_modify(|count| *count = count.wrapping_add(1));
    }

    /// Sets one member; makes its team where it is not there.
    pub fn set_member(&self, id: AgentId, residence: Residence) {
        let mut teams = self.teams.write().unwrap_or_else(PoisonError::into_inner);
        teams.entry(id.team).or_default().insert(id.agent, residence);
        drop(teams);
        self.changed();
    }

    /// Forgets one team.
    pub fn remove_team(&self, team: &TeamName) {
        self.teams.write().unwrap_or_else(PoisonError::into_inner).remove(team);
        self.changed();
    }

    /// One agent, if it is known.
    pub fn get(&self, id: &AgentId) -> Option<Residence> {
        self.teams.read().unwrap_or_else(PoisonError::into_inner).get(&id.team)?.get(&id.agent).cloned()
    }

    /// The recipient that a user named, or a refusal with the nearest names. Creates nothing (P5).
    pub fn recipient(&self, team: &TeamName, name: &str) -> Result<(AgentName, Residence), Refusal> {
        let teams = self.teams.read().unwrap_or_else(PoisonError::into_inner);
        let Some(members) = teams.get(team) else {
            let known = teams.keys().map(|name| (name.as_str(), None));
            return Err(Refusal::new(Code::UnknownTeam, format!("no team {:?}", team.as_str()))
                .closest_to(team.as_str(), known)
                .effect("nothing was sent")
                .next("posthouse team ls"));
        };
        match members.get_key_value(name) {
            Some((name, residence)) => Ok((name.clone(), residence.clone())),
            None => {
                let known = members.iter().map(|(name, r)| (name.as_str(), Some(r.host.to_string())));
                Err(Refusal::new(Code::UnknownAgent, format!("no teammate {name:?} in team \"{team}\""))
                    .closest_to(name, known)
                    .effect("nothing was sent")
                    .next("posthouse ps -o name"))
            }
        }
    }
}
