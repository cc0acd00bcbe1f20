//! Who asks, and which room decides. Pure: state, command, caller and time in; a decision, an answer or a
//! refusal out. A refusal changes nothing and says so.

use posthouse_shared::clock::Stamp;
use posthouse_shared::codes::Code;
use posthouse_shared::generation::Generation;
use posthouse_shared::identity::sha256_hex;
use posthouse_shared::name::{AgentName, TeamName};
use posthouse_shared::refusal::Refusal;
use posthouse_shared::team::Member;
use posthouse_shared::wire::Caller;

use super::claims::Desk;
use super::command::{BoardCommand, Command, Decided, Decision, Reply};
use super::requests::Known;
use super::state::{State, Team};
use crate::journal::RequestMark;

/// A refusal, with what was not done.
pub(super) fn refuse(code: Code, text: impl Into<String>) -> Refusal {
    Refusal::new(code, text).effect("nothing was changed")
}

/// Who acts within a team.
#[derive(Debug, Clone)]
pub(super) struct Actor {
    pub(super) name: AgentName,
    /// Whether it is the operator or the lead.
    pub(super) leads: bool,
}

impl Actor {
    pub(super) fn must_lead(&self, to_do: &str) -> Result<(), Refusal> {
        if self.leads {
            return Ok(());
        }
        let text = format!("{} is a teammate; only the lead may {to_do}", self.name);
        Err(refuse(Code::OperatorOnly, text).next("posthouse send lead \"...\""))
    }
}

/// The member that a user named, or a refusal with the nearest names.
pub(super) fn find_member<'a>(team: &'a Team, name: &str) -> Result<&'a Member, Refusal> {
    team.members.get(name).ok_or_else(|| {
        let known = team.members.values().map(|m| (m.name.as_str(), Some(m.host.to_string())));
        refuse(Code::UnknownAgent, format!("no teammate {name:?} in team \"{}\"", team.name))
            .closest_to(name, known)
            .next("posthouse ps -o name")
    })
}

impl State {
    /// The team that a user named, or a refusal with the nearest names.
    pub fn find_team(&self, name: &str) -> Result<&Team, Refusal> {
        self.teams.get(name).map(AsRef::as_ref).ok_or_else(|| {
            let known = self.teams.keys().map(|name| (name.as_str(), None));
            refuse(Code::UnknownTeam, format!("no team {name:?}"))
                .closest_to(name, known)
                .next("posthouse team ls")
        })
    }

    /// The member that a user named, or a refusal with the nearest names.
    pub fn find_member(&self, team: &str, name: &str) -> Result<&Member, Refusal> {
        find_member(self.find_team(team)?, name)
    }

    /// Decides a command. Never panics, whatever the command is.
    pub fn decide(&self, command: &Command, caller: &Caller, now: Stamp) -> Result<Decided, Refusal> {
        match command {
            Command::HostStart { start, adopt } => {
                operator(caller, "take hosts in")?;
                self.host_start(start, *adopt)
            }
            Command::HostJoin { start, key, token } => {
                operator(caller, "take hosts in")?;
                self.host_join(start, key, token.as_deref())
            }
            Command::HostToken { hash, replace } => {
                operator(caller, "make join tokens")?;
                self.host_token(hash, replace.as_deref())
            }
            Command::HostAdopt { host } => {
                operator(caller, "adopt hosts")?;
                self.host_adopt(host)
            }
            Command::HostRemove { host } => {
                operator(caller, "remove hosts")?;
                self.host_remove(host)
            }
            Command::HostSeen { host, lost } => {
                operator(caller, "tell of hosts")?;
                Ok(self.host_seen(host, *lost))
            }
            Command::TeamCreate { name, config, host } => {
                operator(caller, "make teams")?;
                self.team_create(name, config, host)
            }
            Command::TeamDelete { team } => {
                operator(caller, "end teams")?;
                let team = self.find_team(team)?.name.clone();
                Ok(Decided::Journal(Decision::TeamDeleted { team }))
            }
            Command::Spawn { team, spec } => {
                let team = self.find_team(team)?;
                actor(team, caller, None)?.must_lead("spawn teammates")?;
                self.spawn(team, spec)
            }
            Command::Lifecycle { team, name, what } => {
                let team = self.find_team(team)?;
                actor(team, caller, None)?.must_lead("stop, resume or end teammates")?;
                self.lifecycle(team, name, *what)
            }
            Command::Standing { applied, standing } => self.standing(caller, *applied, *standing),
            Command::Board { team, as_agent, what } => {
                let team = self.find_team(team)?;
                let actor = actor(team, caller, as_agent.as_deref())?;
                Desk { team, actor, limits: &self.limits }.decide(what)
            }
            Command::ScheduleAdd { team, spec } => {
                let team = self.find_team(team)?;
                actor(team, caller, None)?.must_lead("make schedules")?;
                self.schedule_add(team, spec)
            }
            Command::ScheduleDelete { team, id } => {
                let team = self.find_team(team)?;
                actor(team, caller, None)?.must_lead("end schedules")?;
                self.schedule_delete(team, id)
            }
            Command::ScheduleTicked { team, id, through } => {
                operator(caller, "tick schedules")?;
                Ok(self.schedule_ticked(team, id, *through, now))
            }
            Command::Notified { through } => {
                operator(caller, "tell of mail")?;
                let through = (*through).min(self.head.index);
                if self.unsent.range(..=through).next().is_none() {
                    return Ok(Decided::Answer(Reply::Nothing));
                }
                Ok(Decided::Journal(Decision::Notified { through }))
            }
        }
    }

    /// The first answer to a repeated request, where there was one.
    pub(super) fn repeated(&self, mark: Option<&RequestMark>) -> Result<Option<Reply>, Refusal> {
        let Some(mark) = mark else { return Ok(None) };
        match self.requests.known(mark, self) {
            Known::New => Ok(None),
            Known::Again(reply) => Ok(Some(reply)),
            Known::Superseded(why) => {
                Err(refuse(Code::Superseded, format!("the request was superseded: {why}"))
                    .next("use a new request id"))
            }
        }
    }

    /// A task as the command's caller gets it: whole, or as a turn gets it.
    pub(super) fn shape(&self, command: &Command, reply: Reply) -> Reply {
        match (command, reply) {
            (Command::Board { team, what: BoardCommand::ClaimNext, .. }, Reply::Task(task)) => {
                let team = self.teams.get(team.as_str());
                Reply::Claimed(team.and_then(|team| team.board.claimed(&task.id)).map(Box::new))
            }
            (_, reply) => reply,
        }
    }
}

/// How a request is remembered: ids of one caller are not those of another.
pub(super) fn mark(caller: &Caller, command: &Command, id: &str) -> RequestMark {
    let who = match caller {
        Caller::Operator => "operator".to_owned(),
        Caller::Agent { id, .. } => id.to_string(),
    };
    let content = serde_json::to_vec(command).unwrap_or_default();
    RequestMark { key: format!("{who} {id}"), digest: sha256_hex(&content) }
}

fn operator(caller: &Caller, to_do: &str) -> Result<(), Refusal> {
    match caller {
        Caller::Operator => Ok(()),
        Caller::Agent { id, .. } => {
            let text = format!("{id} is an agent; only the operator may {to_do}");
            Err(refuse(Code::OperatorOnly, text).next("posthouse send lead \"...\""))
        }
    }
}

/// Who acts: from the credential. Only the operator may name another.
pub(super) fn actor(team: &Team, caller: &Caller, named: Option<&str>) -> Result<Actor, Refusal> {
    match caller {
        Caller::Operator => {
            let name = match named {
                Some(name) => find_member(team, name)?.name.clone(),
                None => AgentName::lead(),
            };
            Ok(Actor { name, leads: true })
        }
        Caller::Agent { id, generation } => {
            if named.is_some_and(|named| named != id.agent.as_str()) {
                let text = format!("{id} cannot act as {:?}", named.unwrap_or_default());
                return Err(refuse(Code::NotYourself, text).next("leave --as away"));
            }
            let member = own_member(team, &id.team, &id.agent, *generation)?;
            Ok(Actor { name: member.name.clone(), leads: member.name.is_lead() })
        }
    }
}

pub(super) fn own_member<'a>(
    team: &'a Team,
    of: &TeamName,
    agent: &AgentName,
    generation: Generation,
) -> Result<&'a Member, Refusal> {
    if *of != team.name {
        let text = format!("{agent} is of team \"{of}\" and cannot act in team \"{}\"", team.name);
        return Err(refuse(Code::OperatorOnly, text));
    }
    let member = find_member(team, agent.as_str())?;
    if member.generation != generation {
        let text = format!("{agent} has a newer grant, {}; {generation} no longer counts", member.generation);
        return Err(refuse(Code::WrongGeneration, text));
    }
    Ok(member)
}
