//! All that is known of a team at one moment, gathered for the read model.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use posthouse_node::mailbox::MailboxError;
use posthouse_shared::codes::Code;
use posthouse_shared::name::{AgentId, AgentName, HostName, TeamName};
use posthouse_shared::refusal::Refusal;
use posthouse_shared::team::{HostState, Member, Standing};
use posthouse_shared::wire::replies::HostView;

use super::Service;
use crate::authority::{State, Team};
use crate::view::{Mail, Sight};

impl Service {
    /// The team that a user named, or a refusal with the nearest names.
    pub(super) fn team<'s>(
        &self,
        state: &'s State,
        name: &str,
    ) -> Result<(&'s TeamName, &'s Arc<Team>), Refusal> {
        state.teams.iter().find(|(team, _)| team.as_str() == name).ok_or_else(|| {
            let known = state.teams.iter().map(|(team, _)| (team.as_str(), None));
            Refusal::new(Code::UnknownTeam, format!("no team {name:?}"))
                .closest_to(name, known)
                .effect("nothing was done")
                .next("posthouse team ls")
        })
    }

    /// Looks at one team.
    pub(super) fn sight<'s>(
        &self,
        state: &'s State,
        name: &'s TeamName,
        team: &'s Team,
    ) -> Result<Sight<'s>, Refusal> {
        self.sight_of(state, name, team, |_| true)
    }

    /// Looks at one team, but into the mailboxes of those members alone: the answer is about nobody else, and
    /// a mailbox that nobody asks for stays unread.
    pub(super) fn sight_of<'s>(
        &self,
        state: &'s State,
        name: &'s TeamName,
        team: &'s Team,
        asked: impl Fn(&str) -> bool,
    ) -> Result<Sight<'s>, Refusal> {
        let members: Vec<&Member> = team.members.values().collect();
        let mut mail = BTreeMap::new();
        let mut live = BTreeMap::new();
        let mut claimable = BTreeSet::new();
        for member in &members {
            let id = AgentId::new(member.name.clone(), name.clone());
            // What an earlier holder of the name said last is nothing about this one.
            if let Some(seen) =
                self.live().get(&id).filter(|seen| seen.report.generation == member.generation)
            {
                live.insert(member.name.clone(), seen);
            }
            if !asked(member.name.as_str()) {
                continue;
            }
            mail.insert(member.name.clone(), self.mail_of(member, &id)?);
            if member.standing == Standing::Active && team.has_work_for(&member.name) {
                claimable.insert(member.name.clone());
            }
        }
        let under_way = *self.0.carried_out.borrow() < state.head.index;
        let tasks = team.board.tasks().map(AsRef::as_ref).collect();
        Ok(Sight {
            now: self.now(),
            team: name,
            config: &team.config,
            members,
            tasks,
            mail,
            live,
            claimable,
            under_way,
        })
    }

    /// How many messages of one mailbox are where; nothing where there is no mailbox (yet, or any more).
    pub(super) fn mail_counts(&self, id: &AgentId) -> Result<Mail, Refusal> {
        let count = |n: usize| u64::try_from(n).unwrap_or(u64::MAX);
        let counts = self.node()?.mailboxes().get(id).and_then(|mailbox| mailbox.counts());
        match counts {
            Ok(counts) => Ok(Mail {
                ready: count(counts.ready),
                processing: count(counts.processing),
                done: count(counts.done),
                quarantined: count(counts.quarantined),
            }),
            Err(MailboxError::NotFound { .. }) => Ok(Mail::default()),
            Err(error) => Err(error.refusal()),
        }
    }

    /// [`Service::mail_counts`] of a member; of one elsewhere as its host's last beat had them.
    fn mail_of(&self, member: &Member, id: &AgentId) -> Result<Mail, Refusal> {
        if member.host == *self.host() {
            return self.mail_counts(id);
        }
        let counts = self.beats().mail(&member.host, id).unwrap_or_default();
        Ok(Mail {
            ready: counts.ready,
            processing: counts.processing,
            done: counts.done,
            quarantined: counts.quarantined,
        })
    }

    /// Whether a member's host is seen.
    pub(super) fn host_state(&self, member: &Member) -> HostState {
        let lost = self.authority().state().hosts.get(&member.host).is_some_and(|host| host.lost.is_some());
        self.state_of(&member.host, lost)
    }

    pub(super) fn state_of(&self, host: &HostName, lost: bool) -> HostState {
        match *host == *self.host() {
            true if self.supervisor().closing().begun() => HostState::Draining,
            true => HostState::Up,
            false => self.beats().state(host, lost, self.0.setup.clock.boot()),
        }
    }

    /// All hosts.
    pub(super) fn hosts(&self) -> Result<Vec<HostView>, Refusal> {
        let state = self.authority().state();
        let mut hosts = Vec::new();
        for host in state.hosts.values() {
            let (mut agents, mut mail) = (0, 0);
            for (team, members) in state.teams.iter() {
                let here =
                    |member: &&Member| member.host == host.name && member.standing != Standing::Shutdown;
                for member in members.members.values().filter(here) {
                    agents += 1;
                    mail += self.mail_of(member, &AgentId::new(member.name.clone(), team.clone()))?.ready;
                }
            }
            hosts.push(HostView {
                name: host.name.clone(),
                state: self.state_of(&host.name, host.lost.is_some()),
                since: host.since,
                data_id: host.data_id.clone(),
                boot: host.boot,
                generation: host.generation,
                agents,
                mail,
                labels: host.labels.clone(),
            });
        }
        Ok(hosts)
    }

    /// The member that a user named, or a refusal with the nearest names.
    pub(super) fn member<'s>(&self, sight: &Sight<'s>, name: &str) -> Result<&'s Member, Refusal> {
        sight.member(name).ok_or_else(|| crate::view::wait::unknown_agent(sight, name))
    }

    /// The agent that a caller acts as: itself, or for the operator whom it names, else the lead.
    pub(super) fn acting(
        caller: &posthouse_shared::wire::Caller,
        named: Option<&str>,
    ) -> Result<AgentName, Refusal> {
        use posthouse_shared::wire::Caller;
        match (caller, named) {
            (Caller::Agent { id, .. }, _) => Ok(id.agent.clone()),
            (Caller::Operator, None) => Ok(AgentName::lead()),
            (Caller::Operator, Some(name)) => AgentName::new(name)
                .map_err(|error| Refusal::new(Code::BadName, error.to_string()).effect("nothing was done")),
        }
    }
}
