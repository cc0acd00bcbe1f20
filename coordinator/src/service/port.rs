//! What the node asks of the authority, answered in the same process.

use async_trait::async_trait;
use posthouse_node::port::{AuthorityPort, GaveUp, Report};
use posthouse_shared::clock::Stamp;
use posthouse_shared::generation::{Birth, Generation};
use posthouse_shared::name::{AgentId, ScheduleId, TeamName};
use posthouse_shared::refusal::Refusal;
use posthouse_shared::task::{Claim, ClaimedTask};
use posthouse_shared::team::Standing;
use posthouse_shared::wire::Caller;
use posthouse_shared::wire::event::What;
use posthouse_shared::wire::requests::Request;
use serde_json::Value;

use super::Service;
use crate::authority::{BoardCommand, Command, Reply};

impl Service {
    async fn board_of(
        &self,
        agent: &AgentId,
        generation: Generation,
        what: BoardCommand,
        request_id: &str,
    ) -> Result<Reply, Refusal> {
        let caller = Caller::Agent { id: agent.clone(), generation };
        let command = Command::Board { team: agent.team.to_string(), as_agent: None, what };
        self.authority().decide(caller, command, Some(request_id.to_owned())).await
    }

    fn birth_of(&self, agent: &AgentId) -> Option<Birth> {
        self.authority().state().member(&agent.team, &agent.agent).map(|member| member.birth)
    }

    pub(super) fn generation_of(&self, agent: &AgentId) -> Generation {
        self.authority()
            .state()
            .member(&agent.team, &agent.agent)
            .map_or(Generation::default(), |m| m.generation)
    }
}

#[async_trait]
impl AuthorityPort for Service {
    async fn request(&self, caller: Caller, request: Request) -> Result<Value, Refusal> {
        self.dispatch(caller, request).await
    }

    async fn claim_next(
        &self,
        agent: &AgentId,
        generation: Generation,
        request_id: &str,
    ) -> Result<Option<ClaimedTask>, Refusal> {
        match self.board_of(agent, generation, BoardCommand::ClaimNext, request_id).await? {
            Reply::Claimed(claimed) => Ok(claimed.map(|claimed| *claimed)),
            Reply::Nothing | Reply::Team(_) | Reply::Member(..) | Reply::Task(_) | Reply::Schedule(_) => {
                Ok(None)
            }
        }
    }

    async fn complete(
        &self,
        agent: &AgentId,
        claim: &Claim,
        result: &str,
        request_id: &str,
    ) -> Result<(), Refusal> {
        let what = BoardCommand::Complete {
            id: claim.task.to_string(),
            generation: Some(claim.generation),
            result: Some(result.to_owned()),
        };
        self.board_of(agent, self.generation_of(agent), what, request_id).await.map(|_| ())
    }

    async fn give_up(
        &self,
        agent: &AgentId,
        claim: &Claim,
        how: &GaveUp,
        request_id: &str,
    ) -> Result<(), Refusal> {
        let what =
            BoardCommand::GiveUp { id: claim.task.clone(), generation: claim.generation, how: how.clone() };
        self.board_of(agent, self.generation_of(agent), what, request_id).await.map(|_| ())
    }

    async fn standing(
        &self,
        agent: &AgentId,
        generation: Generation,
        command: Generation,
        standing: Standing,
        request_id: &str,
    ) -> Result<(), Refusal> {
        let caller = Caller::Agent { id: agent.clone(), generation };
        let command = Command::Standing { applied: command, standing };
        let request_id = Some(request_id.to_owned());
        match standing {
            // Who is then seen to be shut down gets no more mail.
            Standing::Shutdown => {
                let birth = self.birth_of(agent);
                self.authority().decide(caller, command, request_id).await?;
                if let Some(birth) = birth {
                    self.end_is_known(agent, birth).await;
                }
                Ok(())
            }
            Standing::Active | Standing::Stopped | Standing::Failed => {
                self.authority().decide(caller, command, request_id).await.map(|_| ())
            }
        }
    }

    async fn ticked(&self, team: &TeamName, schedule: &ScheduleId, birth: Birth, through: Stamp) {
        let state = self.authority().state();
        let present = state.team(team).and_then(|team| team.schedules.get(schedule)).map(|known| known.birth);
        if present != Some(birth) {
            return;
        }
        let command = Command::ScheduleTicked { team: team.clone(), id: schedule.clone(), through };
        if let Err(error) = self.authority().decide(Caller::Operator, command, None).await {
            tracing::warn!(%team, %schedule, %error, "journal a schedule's tick");
        }
    }

    fn report(&self, agent: &AgentId, report: Report) {
        let (state, turn, why) = (report.state, report.turn, report.doing.clone());
        if self.live().report(agent, report, self.now()) {
            let why = (!why.is_empty()).then_some(why);
            let what =
                What::AgentState { team: agent.team.clone(), agent: agent.agent.clone(), state, turn, why };
            self.0.setup.events.publish(self.now(), what);
        }
    }

    fn event(&self, what: What) {
        self.0.setup.events.publish(self.now(), what);
        self.live().bump();
    }
}
