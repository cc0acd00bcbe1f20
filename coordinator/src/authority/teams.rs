//! Teams, members, placement, and what becomes of a member.

use posthouse_shared::codes::Code;
use posthouse_shared::generation::Generation;
use posthouse_shared::name::{AgentName, HostName, LEAD, TeamName};
use posthouse_shared::refusal::Refusal;
use posthouse_shared::team::{Member, MemberSpec, Standing, TeamConfig};
use posthouse_shared::wire::Caller;

use super::command::{Decided, Decision, Lifecycle, Reply};
use super::decide::{find_member, own_member, refuse};
use super::mail::SYSTEM;
use super::state::{Host, State, Team};

/// Stands for programs that drop files into a mailbox.
const EXTERNAL: &str = "external";

impl State {
    pub(super) fn team_create(
        &self,
        name: &str,
        config: &TeamConfig,
        host: &HostName,
    ) -> Result<Decided, Refusal> {
        let team = TeamName::new(name)
            .map_err(|e| refuse(Code::BadName, format!("make team {name:?}")).because(&e))?;
        if self.teams.contains_key(&team) {
            return Err(refuse(Code::NameTaken, format!("there is a team \"{team}\""))
                .next(format!("posthouse team show {team}")));
        }
        let limit = self.limits.teams as usize;
        if self.teams.size() >= limit {
            return Err(refuse(Code::LimitReached, format!("there are {limit} teams, the limit"))
                .next("posthouse team ls"));
        }
        self.host(host)?;
        Ok(Decided::Journal(Decision::TeamCreated { team, config: config.clone(), host: host.clone() }))
    }

    fn host(&self, name: &HostName) -> Result<&Host, Refusal> {
        self.hosts.get(name).ok_or_else(|| {
            let known = self.hosts.keys().map(|name| (name.as_str(), None));
            refuse(Code::UnknownHost, format!("no host \"{name}\""))
                .closest_to(name.as_str(), known)
                .next("posthouse hosts ls")
        })
    }

    pub(super) fn spawn(&self, team: &Team, spec: &MemberSpec) -> Result<Decided, Refusal> {
        let name = &spec.name;
        if [EXTERNAL, SYSTEM].contains(&name.as_str()) {
            return Err(refuse(Code::ReservedName, format!("\"{name}\" is a reserved name")));
        }
        if let Some(member) = team.members.get(name).filter(|member| holds_its_name(member)) {
            let text = format!("there is a teammate \"{name}\" in team \"{}\"", team.name);
            let refusal = refuse(Code::NameTaken, text).next(format!("posthouse shutdown {name}"));
            let same = member.spec.as_ref() == Some(spec);
            return Err(if same { refusal.cause("it was made of the same request") } else { refusal });
        }
        let limit = u64::from(self.limits.envelope_bytes as u32) / 2;
        if spec.prompt.len() as u64 > limit {
            let text = format!("the prompt has {} bytes, the limit is {limit}", spec.prompt.len());
            return Err(refuse(Code::LimitReached, text).next("put it in a file and name its path"));
        }
        let host = self.place(team, spec)?;
        Ok(Decided::Journal(Decision::Spawned {
            team: team.name.clone(),
            spec: Box::new(spec.clone()),
            host,
        }))
    }

    /// The host that a new member lives on: the named one, or the least loaded that fits. Never a fallback.
    fn place(&self, team: &Team, spec: &MemberSpec) -> Result<HostName, Refusal> {
        // The lead's home is the leader.
        let fixed = if spec.name.is_lead() {
            team.members.get(LEAD).map(|member| &member.host)
        } else {
            spec.host.as_ref()
        };
        let candidates: Vec<&Host> = match fixed {
            Some(name) => vec![self.host(name)?],
            None => self.hosts.values().collect(),
        };
        let limit = u64::from(self.limits.mailboxes_per_host);
        let lacks: Vec<(&Host, Option<String>)> = candidates
            .into_iter()
            .map(|host| {
                let lack = lacks(host, spec);
                let full = self.agents_on(&host.name) >= limit;
                (host, lack.or_else(|| full.then(|| format!("it has {limit} mailboxes, the limit"))))
            })
            .collect();
        let fits = lacks.iter().filter(|(_, lack)| lack.is_none()).map(|(host, _)| &host.name);
        if let Some(host) = fits.min_by_key(|host| (self.agents_on(host), (*host).clone())) {
            return Ok(host.clone());
        }
        let refusal = refuse(Code::NoHostFits, format!("no host can take \"{}\"", spec.name));
        let because = |(host, lack): (&Host, Option<String>)| {
            lack.map(|lack| format!("{}: {lack}", host.name)).unwrap_or_default()
        };
        Ok(lacks.into_iter().map(because).fold(refusal, Refusal::cause).next("posthouse hosts ls"))
            .and_then(Err)
    }

    /// Members that live on a host and have not ended.
    pub fn agents_on(&self, host: &HostName) -> u64 {
        let here = |member: &&Member| member.host == *host && member.standing != Standing::Shutdown;
        let count = self.teams.values().flat_map(|team| team.members.values()).filter(here).count();
        u64::try_from(count).unwrap_or(u64::MAX)
    }

    pub(super) fn lifecycle(&self, team: &Team, name: &str, what: Lifecycle) -> Result<Decided, Refusal> {
        let member = find_member(team, name)?;
        if member.spec.is_none() {
            let text = format!("\"{name}\" is led by a person: there is no agent to stop, resume or end");
            return Err(refuse(Code::BadRequest, text).next("posthouse ps"));
        }
        if member.standing == Standing::Shutdown {
            if matches!(what, Lifecycle::Shutdown { .. }) {
                return Ok(Decided::Answer(Reply::Member(team.name.clone(), Box::new(member.clone()))));
            }
            let text = format!("\"{name}\" has been shut down");
            return Err(refuse(Code::AgentShutdown, text).next(format!("posthouse spawn {name} ...")));
        }
        Ok(Decided::Journal(Decision::Commanded {
            team: team.name.clone(),
            agent: member.name.clone(),
            what,
        }))
    }

    /// A teammate's own word on its standing. What it says counts only under its present grant, and if it has
    /// applied the newest command.
    pub(super) fn standing(
        &self,
        caller: &Caller,
        applied: Generation,
        standing: Standing,
    ) -> Result<Decided, Refusal> {
        let Caller::Agent { id, generation } = caller else {
            return Err(refuse(Code::BadRequest, "only a teammate reports its own standing"));
        };
        let team = self.find_team(id.team.as_str())?;
        let member = own_member(team, &id.team, &id.agent, *generation)?;
        if applied < member.commanded {
            let text = format!("{} has not applied command {} yet", id.agent, member.commanded);
            return Err(refuse(Code::WrongGeneration, text));
        }
        if member.standing == standing {
            return Ok(Decided::Answer(Reply::Nothing));
        }
        if member.standing == Standing::Shutdown {
            return Err(refuse(Code::AgentShutdown, format!("\"{}\" has been shut down", id.agent)));
        }
        let released = match standing {
            Standing::Failed | Standing::Shutdown => team
                .board
                .held_by(&id.agent)
                .chain(assigned_to_ended(team, &id.agent, standing))
                .map(|task| task.id.clone())
                .collect(),
            Standing::Active | Standing::Stopped => Vec::new(),
        };
        let (team, agent) = (id.team.clone(), id.agent.clone());
        Ok(Decided::Journal(Decision::Stood { team, agent, standing, released }))
    }
}

/// What was assigned to a teammate that has ended is for anybody again.
fn assigned_to_ended<'a>(
    team: &'a Team,
    agent: &'a AgentName,
    standing: Standing,
) -> impl Iterator<Item = &'a std::sync::Arc<posthouse_shared::task::Task>> {
    team.board.assigned_to(agent).filter(move |_| standing == Standing::Shutdown)
}

/// A name is free again after a shutdown; the lead's while a person has it.
fn holds_its_name(member: &Member) -> bool {
    member.standing != Standing::Shutdown && !(member.name.is_lead() && member.spec.is_none())
}

fn lacks(host: &Host, spec: &MemberSpec) -> Option<String> {
    if host.lost.is_some() {
        return Some("it is lost".to_owned());
    }
    let runner = spec.runner.name();
    if !host.runners.contains(runner) {
        return Some(format!("it has no runner \"{runner}\""));
    }
    spec.labels.iter().find_map(|(key, wanted)| match host.labels.get(key) {
        Some(value) if value == wanted => None,
        Some(value) => Some(format!("its label {key} is \"{value}\", not \"{wanted}\"")),
        None => Some(format!("it has no label {key}")),
    })
}
