//! Which function a request goes to.

use posthouse_shared::refusal::Refusal;
use posthouse_shared::wire::Caller;
use posthouse_shared::wire::replies::ConfigReply;
use posthouse_shared::wire::requests::Request;
use serde_json::Value;

use super::{Service, permission};
use crate::authority::BoardCommand;

impl Service {
    /// Answers one request with the whole JSON of its answer.
    pub(super) async fn dispatch(&self, caller: Caller, request: Request) -> Result<Value, Refusal> {
        permission::check(&caller, &request)?;
        match request {
            Request::Status {} => self.answer_with(&self.0.setup.status),
            Request::Config {} => self.answer_with(ConfigReply { settings: self.0.setup.settings.clone() }),
            Request::TeamCreate { name, config } => self.team_create(caller, name, config).await,
            Request::TeamList {} => self.blocking(Self::team_list).await,
            Request::TeamShow { team } => self.blocking(move |s| s.team_show(&team)).await,
            Request::TeamDelete { team } => self.team_delete(caller, team).await,
            Request::Spawn { team, spec } => self.spawn(caller, team, spec).await,
            Request::AgentList { team } => {
                let team = own_team(&caller, team);
                self.blocking(move |s| s.agent_list(team.as_deref())).await
            }
            Request::AgentShow { team, name } => self.blocking(move |s| s.agent_show(&team, &name)).await,
            Request::Stop { team, name } => self.stop(caller, team, name).await,
            Request::Resume { team, name } => self.resume(caller, team, name).await,
            Request::Shutdown { team, name, force } => self.shutdown(caller, team, name, force).await,
            Request::Log { team, name, after, timeout_ms } => self.log(team, name, after, timeout_ms).await,
            send @ Request::Send { .. } => self.blocking(move |s| s.send(&caller, send)).await,
            Request::Inbox { team, name, peek, seen, limit, timeout_ms } => {
                self.inbox(caller, team, name, peek, seen, limit, timeout_ms).await
            }
            Request::TaskAdd { team, spec, request_id } => {
                let what = BoardCommand::Add { spec: Box::new(spec) };
                self.board(caller, team, None, what, request_id).await
            }
            Request::TaskList { team } => self.task_list(&team),
            Request::TaskShow { team, id } => self.task_show(&team, &id),
            Request::TaskUpdate { team, id, change, request_id } => {
                let what = BoardCommand::Update { id, change: Box::new(change) };
                self.board(caller, team, None, what, request_id).await
            }
            Request::TaskClaim { team, id, as_agent, request_id } => {
                self.board(caller, team, as_agent, BoardCommand::Claim { id }, request_id).await
            }
            Request::TaskRelease { team, id, generation, request_id } => {
                self.board(caller, team, None, BoardCommand::Release { id, generation }, request_id).await
            }
            Request::TaskComplete { team, id, generation, result, as_agent, request_id } => {
                let what = BoardCommand::Complete { id, generation, result };
                self.board(caller, team, as_agent, what, request_id).await
            }
            Request::TaskCancel { team, id, request_id } => {
                self.board(caller, team, None, BoardCommand::Cancel { id }, request_id).await
            }
            Request::TaskCheck { team, id, generation, as_agent } => {
                self.board(caller, team, as_agent, BoardCommand::Check { id, generation }, None).await
            }
            Request::ScheduleAdd { team, spec } => self.schedule_add(caller, team, spec).await,
            Request::ScheduleList { team } => self.schedule_list(&team),
            Request::ScheduleDelete { team, id } => self.schedule_delete(caller, team, id).await,
            Request::Trace { id } => self.blocking(move |s| s.trace(&caller, &id)).await,
            Request::QuarantineList { team } => {
                self.blocking(move |s| s.quarantine_list(team.as_deref())).await
            }
            Request::QuarantineShow { id } => self.blocking(move |s| s.quarantine_show(&id)).await,
            Request::QuarantineRedeliver { id, turn } => {
                self.blocking(move |s| s.quarantine_redeliver(&id, turn)).await
            }
            Request::QuarantineDrop { id } => self.blocking(move |s| s.quarantine_drop(&id)).await,
            Request::HostList {} => self.blocking(Self::host_list).await,
            Request::HostToken { replace } => self.host_token(caller, replace).await,
            Request::HostAdopt { host } => self.host_adopt(caller, host).await,
            Request::HostRemove { host } => self.host_remove(caller, host).await,
            Request::Attention { team } => {
                let team = own_team(&caller, team);
                self.blocking(move |s| s.attention(team.as_deref())).await
            }
            Request::Why { team, thing } => self.blocking(move |s| s.why(&caller, &team, &thing)).await,
            Request::Wait { team, condition, timeout_ms } => {
                self.wait(caller, team, condition, timeout_ms).await
            }
            Request::Brief { team } => self.blocking(move |s| s.brief(&team)).await,
        }
    }
}

/// An agent sees its own team, whatever it asks for.
fn own_team(caller: &Caller, asked: Option<String>) -> Option<String> {
    match caller {
        Caller::Operator => asked,
        Caller::Agent { id, .. } => Some(id.team.to_string()),
    }
}
