//! Hosts with nodes of their own: what they ask, what they must know, how they are. Who they are has been
//! checked by the bus.

use posthouse_node::bus::wire::{AgentOrder, Ask, Beat, Joined, News, Orders, Part, Said, Start};
use posthouse_node::directory::Residence;
use posthouse_node::port::{AuthorityPort, Report};
use posthouse_shared::codes::Code;
use posthouse_shared::generation::Generation;
use posthouse_shared::identity::{HostIdentity, HostPublicKey, sha256_hex};
use posthouse_shared::name::{AgentId, AgentName, HostName};
use posthouse_shared::refusal::Refusal;
use posthouse_shared::team::{Member, Standing};
use posthouse_shared::wire::Caller;
use posthouse_shared::wire::replies::{Done, HostTokenReply};
use serde::Serialize;
use serde_json::Value;

use super::Service;
use crate::authority::{Command, HostStart, State};
use crate::beats::Beats;

/// Bytes of orders in one answer; below what NATS carries in one message by default.
const PART_BYTES: usize = 256 * 1024;

impl Service {
    /// What hosts last said.
    pub fn beats(&self) -> &Beats {
        &self.0.beats
    }

    /// All that is decided.
    pub fn state(&self) -> std::sync::Arc<State> {
        self.authority().state()
    }

    /// The coordinator's own host.
    pub fn own_host(&self) -> &HostName {
        self.host()
    }

    /// How far the authority is.
    pub fn news(&self) -> News {
        News { orders: *self.0.orders.borrow(), board: self.authority().state().head.index }
    }

    /// Takes a start of a host elsewhere in, or refuses it. Journaled at return.
    pub async fn host_joins(
        &self,
        host: &HostName,
        key: &str,
        start: Start,
        token: Option<String>,
    ) -> Result<Joined, Refusal> {
        let Start { data_id, boot, process, labels, runners } = start;
        // By the process, not by its boot counter: an old backup starts under counters that were used.
        let request_id = format!("join {host} {process}");
        let start = HostStart { host: host.clone(), data_id, boot, labels, runners };
        let token = token.map(|token| sha256_hex(token.trim().as_bytes()));
        let command = Command::HostJoin { start, key: key.to_owned(), token };
        self.decide_and_carry_out(Caller::Operator, command, Some(request_id)).await?;
        let generation = self.authority().state().hosts.get(host).map(|host| host.generation);
        generation
            .map(|generation| Joined { generation })
            .ok_or_else(|| Refusal::new(Code::Internal, "the host was taken in and is not there"))
    }

    /// Makes a join token. Its hash is journaled at return; the token itself is kept nowhere.
    pub(super) async fn host_token(&self, caller: Caller, replace: Option<String>) -> Result<Value, Refusal> {
        let Some(nats) = self.0.setup.nats.clone() else {
            return Err(Refusal::new(Code::NoOtherHosts, "this coordinator takes no other hosts")
                .cause("it was started with posthouse up, without NATS")
                .effect("no token was made")
                .next("posthouse serve --nats nats://127.0.0.1:4222"));
        };
        let token: String = (0..2).map(|_| uuid::Uuid::new_v4().simple().to_string()).collect();
        let command = Command::HostToken { hash: sha256_hex(token.as_bytes()), replace: replace.clone() };
        self.authority().decide(caller, command, None).await?;
        self.answer_with(HostTokenReply { token, replace, nats })
    }

    /// Adopts a host as it is. Journaled at return.
    pub(super) async fn host_adopt(&self, caller: Caller, host: String) -> Result<Value, Refusal> {
        let done = format!("adopted {host}; its next start is taken as it is");
        self.decide_and_carry_out(caller, Command::HostAdopt { host }, None).await?;
        self.answer_with(Done { done })
    }

    /// Journals that a host is lost, or heard again.
    pub async fn host_seen(&self, host: &HostName, lost: bool) -> Result<(), Refusal> {
        let command = Command::HostSeen { host: host.clone(), lost };
        self.authority().decide(Caller::Operator, command, None).await.map(|_| ())
    }

    /// A beat: answered with how far the authority is, refused for a start that is no longer the present one.
    pub fn host_beats(&self, host: &HostName, beat: Beat) -> Result<News, Refusal> {
        let state = self.authority().state();
        let known = state.hosts.get(host).ok_or_else(|| unknown(host))?;
        if beat.boot != known.boot {
            let text = format!("host \"{host}\" is at its start {}, not {}", known.boot, beat.boot);
            return Err(Refusal::new(Code::DataForeign, text)
                .cause("a second process with a copy of the data directory looks like this")
                .effect("its beats do not count"));
        }
        for (agent, report) in &beat.reports {
            self.hear(&state, host, agent, report);
        }
        self.beats().beat(host, beat, self.0.setup.clock.boot());
        self.live().bump();
        Ok(self.news())
    }

    /// What a host repeats of its teammates. Only what is new counts as a sign of them.
    pub(super) fn hear(&self, state: &State, host: &HostName, agent: &AgentId, report: &Report) {
        let known = self.live().get(agent).is_some_and(|seen| seen.report == *report);
        if lives_on(state, agent, host) && !known {
            self.report(agent, report.clone());
        }
    }

    /// Forgets a host. Journaled at return; its consumer and what is on its way to it go soon after.
    pub(super) async fn host_remove(&self, caller: Caller, host: String) -> Result<Value, Refusal> {
        let done = format!("removed {host}");
        self.decide_and_carry_out(caller, Command::HostRemove { host: host.clone() }, None).await?;
        if let Ok(host) = HostName::new(host.as_str()) {
            self.beats().forget(&host);
        }
        self.answer_with(Done { done })
    }

    /// What a host asks, beside joining.
    pub async fn host_asks(&self, host: &HostName, ask: Ask) -> Result<Value, Refusal> {
        let state = self.authority().state();
        let own = |agent: &AgentId| match lives_on(&state, agent, host) {
            true => Ok(()),
            false => {
                Err(Refusal::new(Code::NotYourself, format!("{agent} does not live on host \"{host}\""))
                    .effect("nothing was done"))
            }
        };
        match ask {
            Ask::Join { .. } => Err(Refusal::new(Code::Internal, "a join is answered elsewhere")),
            Ask::Orders { offset } => value(&self.part(&state, host, offset)?),
            Ask::Request { caller, request } => {
                let Caller::Agent { id, generation } = &caller else {
                    return Err(Refusal::new(
                        Code::NotYourself,
                        format!("host \"{host}\" is not the operator"),
                    ));
                };
                own(id)?;
                if self.generation_of(id) != *generation {
                    return Err(Refusal::new(Code::WrongGeneration, format!("{id} has a newer grant")));
                }
                self.request(caller, request).await
            }
            Ask::ClaimNext { agent, generation, request_id } => {
                own(&agent)?;
                value(&self.claim_next(&agent, generation, &request_id).await?)
            }
            Ask::Complete { agent, claim, result, request_id } => {
                own(&agent)?;
                value(&self.complete(&agent, &claim, &result, &request_id).await?)
            }
            Ask::GiveUp { agent, claim, how, request_id } => {
                own(&agent)?;
                value(&self.give_up(&agent, &claim, &how, &request_id).await?)
            }
            Ask::Standing { agent, generation, command, standing, request_id } => {
                own(&agent)?;
                value(&self.standing(&agent, generation, command, standing, &request_id).await?)
            }
            Ask::Ticked { team, schedule, birth, through } => {
                self.ticked(&team, &schedule, birth, through).await;
                Ok(Value::Null)
            }
            Ask::Tell { said } => {
                for said in said {
                    match said {
                        Said::Report { agent, report } if lives_on(&state, &agent, host) => {
                            self.report(&agent, report);
                        }
                        Said::Report { agent, .. } => {
                            tracing::debug!(%host, %agent, "a report of a teammate that lives elsewhere");
                        }
                        Said::Event { what } => self.event(*what),
                    }
                }
                Ok(Value::Null)
            }
        }
    }

    fn part(&self, state: &State, host: &HostName, offset: usize) -> Result<Part, Refusal> {
        let text = serde_json::to_string(&self.orders(state, host))
            .map_err(|error| Refusal::new(Code::Internal, "encode orders").because(&error))?;
        let end = (offset + PART_BYTES..=offset + PART_BYTES + 4)
            .find(|end| text.is_char_boundary(*end))
            .unwrap_or(text.len())
            .min(text.len());
        let part = text.get(offset..end).unwrap_or_default().to_owned();
        Ok(Part { digest: sha256_hex(text.as_bytes()), total: text.len(), text: part })
    }

    /// All that one host must know. Made of the state alone: the same state gives the same bytes.
    fn orders(&self, state: &State, host: &HostName) -> Orders {
        let hosts = self.identities(state);
        let teams = state
            .teams
            .iter()
            .map(|(name, team)| (name.clone(), self.residences(state, team).into_iter().collect()))
            .collect();
        let (mut agents, mut schedules) = (Vec::new(), Vec::new());
        for (name, team) in state.teams.iter() {
            let here = |member: &AgentName| team.members.get(member).is_some_and(|m| m.host == *host);
            for member in team.members.values().filter(|member| here(&member.name)) {
                let Some(spec) = member.spec.clone().filter(|_| member.standing != Standing::Shutdown) else {
                    continue;
                };
                agents.push(AgentOrder {
                    id: AgentId::new(member.name.clone(), name.clone()),
                    birth: member.birth,
                    generation: member.generation,
                    spec: posthouse_shared::team::MemberSpec { prompt: String::new(), ..spec },
                    standing: member.standing,
                    command: member.commanded,
                    since: member.since,
                });
            }
            schedules.extend(team.schedules.values().filter(|one| here(&one.to)).cloned());
        }
        let hosts =
            hosts.into_iter().map(|(name, host)| (name, host.generation, host.key.to_string())).collect();
        let through = Generation::new(state.head.term, state.head.index);
        let leader = self.host().clone();
        Orders { news: self.news(), leader, through, hosts, teams, agents, schedules }
    }

    /// All hosts whose keys are known, this one among them where it has one.
    pub(super) fn identities(&self, state: &State) -> Vec<(HostName, HostIdentity)> {
        let own = |host: &crate::authority::Host| {
            let own = (host.name == *self.host()).then(|| self.0.setup.key.clone()).flatten();
            own.or_else(|| host.key.as_ref()?.parse::<HostPublicKey>().ok())
        };
        let known = |host: &crate::authority::Host| {
            let key = own(host)?;
            Some((host.name.clone(), HostIdentity { generation: host.generation, key }))
        };
        state.hosts.values().filter_map(known).collect()
    }

    /// The members of a team as the directory has them, the system among them.
    pub(super) fn residences(
        &self,
        state: &State,
        team: &crate::authority::Team,
    ) -> std::collections::BTreeMap<AgentName, Residence> {
        let mut members: std::collections::BTreeMap<AgentName, Residence> =
            team.members.values().map(|member| (member.name.clone(), residence(member))).collect();
        // The system sends notices and receives nothing.
        let generation = state.leader.as_ref().map_or(team.birth, |leader| leader.generation);
        let system = Residence {
            birth: team.birth,
            generation,
            host: self.host().clone(),
            standing: Standing::Shutdown,
        };
        members.insert(crate::authority::system_name(), system);
        members
    }
}

/// A member as the directory has it.
pub(super) fn residence(member: &Member) -> Residence {
    Residence {
        birth: member.birth,
        generation: member.generation,
        host: member.host.clone(),
        standing: member.standing,
    }
}

fn lives_on(state: &State, agent: &AgentId, host: &HostName) -> bool {
    state.member(&agent.team, &agent.agent).is_some_and(|member| member.host == *host)
}

fn unknown(host: &HostName) -> Refusal {
    Refusal::new(Code::UnknownHost, format!("no host \"{host}\"")).next("posthouse hosts token")
}

fn value(reply: &impl Serialize) -> Result<Value, Refusal> {
    serde_json::to_value(reply).map_err(|e| Refusal::new(Code::Internal, "encode the answer").because(&e))
}
