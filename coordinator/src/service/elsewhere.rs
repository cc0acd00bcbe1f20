//! Questions about what lies on the disk of another host: asked there. One that cannot be reached is refused with
//! what was last known of it and how old that is.

use std::time::Duration;

use posthouse_node::bus::ask::{Asker, NoAnswer};
use posthouse_node::bus::wire::{Outgoing, looks};
use posthouse_node::inspect::{Look, Rest};
use posthouse_shared::codes::Code;
use posthouse_shared::name::{AgentId, HostName, TeamName};
use posthouse_shared::refusal::Refusal;
use posthouse_shared::team::HostState;
use serde::de::DeserializeOwned;
use tokio::runtime::Handle;

use super::Service;
use crate::authority::State;
use crate::view::ago;

/// A host that is there answers within this.
const ANSWER: Duration = Duration::from_secs(5);

impl Service {
    /// Gives the service its line to other hosts.
    pub fn reach_hosts(&self, asker: Asker) {
        if self.0.hosts.set(asker).is_err() {
            tracing::error!("the service has a line to hosts already");
        }
    }

    /// The host that a member lives on.
    pub(super) fn home_of(&self, state: &State, agent: &AgentId) -> HostName {
        state.member(&agent.team, &agent.agent).map_or_else(|| self.host().clone(), |m| m.host.clone())
    }

    /// Asks a host, this one too. For threads that may block.
    pub(super) fn ask_host<T: DeserializeOwned>(&self, host: &HostName, look: Look) -> Result<T, Refusal> {
        let broken = |error: serde_json::Error| {
            Refusal::new(Code::Internal, format!("host \"{host}\" answers what cannot be read"))
                .because(&error)
        };
        if host == self.host() {
            return serde_json::from_value(self.node()?.inspect(look)?).map_err(broken);
        }
        let Some(asker) = self.0.hosts.get() else { return Err(self.unreachable(host, &look, None)) };
        // Not tried where it is known to be in vain: the answer would only come later.
        match self.seen(host) {
            HostState::Up | HostState::Draining => {}
            HostState::Unreachable | HostState::Lost | HostState::Unknown => {
                return Err(self.unreachable(host, &look, None));
            }
        }
        match Handle::current().block_on(asker.ask::<T>(&looks(host), &look, ANSWER)) {
            Ok(reply) => Ok(reply),
            Err(NoAnswer::Refused(refusal)) => Err(*refusal),
            Err(error @ (NoAnswer::NotHeard | NoAnswer::Unknown)) => {
                Err(self.unreachable(host, &look, Some(&error)))
            }
        }
    }

    /// How a host is.
    pub(super) fn seen(&self, host: &HostName) -> HostState {
        let lost = self.authority().state().hosts.get(host).is_some_and(|host| host.lost.is_some());
        self.state_of(host, lost)
    }

    /// How a host that gave no answer is, as the end of a sentence.
    pub(super) fn how(&self, host: &HostName) -> String {
        match self.seen(host) {
            // Its last beat is younger than its end.
            HostState::Up | HostState::Draining => "does not answer".to_owned(),
            how @ (HostState::Unreachable | HostState::Lost | HostState::Unknown) => {
                format!("is {}", how.as_str())
            }
        }
    }

    /// That a host cannot be reached, with the last that is known.
    fn unreachable(&self, host: &HostName, look: &Look, error: Option<&NoAnswer>) -> Refusal {
        let mut refusal = Refusal::new(
            Code::HostUnreachable,
            format!("cannot reach host \"{host}\", which {}", self.how(host)),
        );
        if let Some(NoAnswer::Unknown) = error {
            refusal = refusal.cause(format!("no answer within {} s", ANSWER.as_secs()));
        }
        let heard = self.beats().silent_for(host, self.0.setup.clock.boot());
        refusal = refusal.cause(match heard {
            Some(silence) => format!("last heard {} ago", ago(silence)),
            None => "not heard since the coordinator started".to_owned(),
        });
        let agent = match look {
            Look::Inbox { agent, .. } | Look::Show { agent, .. } => Some(agent),
            Look::Redeliver { agent, .. } | Look::Drop { agent, .. } => Some(agent),
            Look::Log { .. } | Look::Quarantine { .. } | Look::Rest { .. } | Look::Ways { .. } => None,
        };
        if let Some((agent, counts)) = agent.and_then(|agent| Some((agent, self.beats().mail(host, agent)?)))
        {
            refusal = refusal.cause(format!(
                "at its last word {agent} had {} ready, {} in a turn, {} in quarantine",
                counts.ready, counts.processing, counts.quarantined
            ));
        }
        let effect = match look {
            Look::Redeliver { .. } | Look::Drop { .. } => match error {
                Some(NoAnswer::Unknown) => "it may have been done; nothing on its disk is lost",
                Some(NoAnswer::NotHeard | NoAnswer::Refused(_)) | None => "nothing was moved",
            },
            Look::Inbox { .. }
            | Look::Log { .. }
            | Look::Quarantine { .. }
            | Look::Rest { .. }
            | Look::Show { .. }
            | Look::Ways { .. } => "what lies on its disk stays there",
        };
        refusal.effect(effect).next("posthouse hosts ls").next(format!("posthouse why host/{host}"))
    }

    /// All hosts but this one.
    pub(super) fn other_hosts(&self, state: &State) -> Vec<HostName> {
        state.hosts.keys().filter(|host| *host != self.host()).cloned().collect()
    }

    /// Asks the hosts of a team how its teammates are now, so that what is then seen is not older than this
    /// call. Answers what is on its way from all of them, this one too; those that could not be asked are named.
    pub(super) fn refresh(
        &self,
        state: &State,
        team: &TeamName,
    ) -> Result<(Outgoing, Vec<HostName>), Refusal> {
        let own = self.node()?.outgoing();
        let (mut all, mut silent) = (own, Vec::new());
        let Some(members) = state.team(team) else { return Ok((all, silent)) };
        for host in self.other_hosts(state) {
            if !members.members.values().any(|member| member.host == host) {
                continue;
            }
            match self.ask_host::<Rest>(&host, Look::Rest { team: team.clone() }) {
                Ok(rest) => {
                    all.unstored += rest.outgoing.unstored;
                    all.undone += rest.outgoing.undone;
                    for (agent, report) in &rest.reports {
                        self.hear(state, &host, agent, report);
                    }
                    self.beats().rest(&host, rest);
                }
                Err(refusal) if refusal.code == Code::HostUnreachable => silent.push(host),
                Err(refusal) => return Err(refusal),
            }
        }
        Ok((all, silent))
    }
}
