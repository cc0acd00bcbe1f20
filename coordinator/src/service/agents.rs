//! Teammates: made, listed, stopped, resumed, ended; and the end of their logs.

use std::time::Duration;

use posthouse_node::inspect::Look;
use posthouse_shared::codes::Code;
use posthouse_shared::refusal::Refusal;
use posthouse_shared::team::MemberSpec;
use posthouse_shared::wire::Caller;
use posthouse_shared::wire::replies::{AgentReply, AgentsReply, LogReply};
use serde_json::Value;

use super::Service;
use crate::authority::{Command, Lifecycle};
use crate::view::agents;

/// How often a log that is followed is looked at.
const LOG_LOOK: Duration = Duration::from_millis(200);
/// The same, on another host.
const LOG_LOOK_ELSEWHERE: Duration = Duration::from_millis(500);

impl Service {
    pub(super) async fn spawn(
        &self,
        caller: Caller,
        team: String,
        spec: MemberSpec,
    ) -> Result<Value, Refusal> {
        let name = spec.name.to_string();
        let command = Command::Spawn { team: team.clone(), spec: Box::new(spec) };
        self.decide_and_carry_out(caller, command, None).await?;
        self.blocking(move |s| s.agent_show(&team, &name)).await
    }

    pub(super) async fn stop(&self, caller: Caller, team: String, name: String) -> Result<Value, Refusal> {
        self.lifecycle(caller, team, name, Lifecycle::Stop).await
    }

    pub(super) async fn resume(&self, caller: Caller, team: String, name: String) -> Result<Value, Refusal> {
        self.lifecycle(caller, team, name, Lifecycle::Resume).await
    }

    pub(super) async fn shutdown(
        &self,
        caller: Caller,
        team: String,
        name: String,
        force: bool,
    ) -> Result<Value, Refusal> {
        self.lifecycle(caller, team, name, Lifecycle::Shutdown { force }).await
    }

    async fn lifecycle(
        &self,
        caller: Caller,
        team: String,
        name: String,
        what: Lifecycle,
    ) -> Result<Value, Refusal> {
        let command = Command::Lifecycle { team: team.clone(), name: name.clone(), what };
        self.decide_and_carry_out(caller, command, None).await?;
        self.blocking(move |s| s.agent_show(&team, &name)).await
    }

    pub(super) fn agent_list(&self, only: Option<&str>) -> Result<Value, Refusal> {
        let state = self.authority().state();
        let mut found = Vec::new();
        match only {
            Some(name) => found.push(self.team(&state, name)?),
            None => found.extend(state.teams.iter()),
        }
        let mut views = Vec::new();
        for (name, team) in found {
            views.extend(agents::list(&self.sight(&state, name, team)?, |member| self.host_state(member)));
        }
        agents::sort(&mut views);
        self.answer_with(AgentsReply { agents: views })
    }

    pub(super) fn agent_show(&self, team: &str, name: &str) -> Result<Value, Refusal> {
        let state = self.authority().state();
        let (team_name, team) = self.team(&state, team)?;
        let sight = self.sight_of(&state, team_name, team, |member| member == name)?;
        let member = self.member(&sight, name)?;
        self.answer_with(AgentReply { agent: agents::view(&sight, member, self.host_state(member)) })
    }

    /// The log from byte `after` on, with 0 its end; where there is nothing new, waits for it at most
    /// `timeout_ms`. A log that was turned over is shorter than `after` and is given from its beginning.
    pub(super) async fn log(
        &self,
        team: String,
        name: String,
        after: u64,
        timeout_ms: u64,
    ) -> Result<Value, Refusal> {
        let host = {
            let state = self.authority().state();
            let (_, team) = self.team(&state, &team)?;
            let member = team.members.values().find(|member| member.name.as_str() == name);
            let known = || team.members.values().map(|member| (member.name.as_str(), None));
            let unknown = || {
                Refusal::new(Code::UnknownAgent, format!("no teammate {name:?} in this team"))
                    .closest_to(&name, known())
                    .next("posthouse ps -o name")
            };
            member.map(|member| member.host.clone()).ok_or_else(unknown)?
        };
        let pause = if host == *self.host() { LOG_LOOK } else { LOG_LOOK_ELSEWHERE };
        let until =
            tokio::time::Instant::now() + Duration::from_millis(timeout_ms.min(self.limits().wait_ms_max));
        let mut closing = self.supervisor().closing();
        loop {
            let (host, look) = (host.clone(), Look::Log { team: team.clone(), name: name.clone(), after });
            let reply: LogReply = self.blocking(move |s| s.ask_host(&host, look)).await?;
            let over = tokio::time::Instant::now() >= until || closing.begun();
            if !reply.text.is_empty() || over {
                return self.answer_with(reply);
            }
            tokio::select! {
                () = tokio::time::sleep(pause) => {}
                () = closing.wait() => {}
            }
        }
    }
}
