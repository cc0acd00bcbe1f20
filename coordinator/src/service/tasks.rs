//! The board: decisions go to the authority, looks at it come from its state.

use posthouse_shared::codes::Code;
use posthouse_shared::refusal::Refusal;
use posthouse_shared::wire::Caller;
use posthouse_shared::wire::replies::{Done, TaskReply, TasksReply};
use serde_json::Value;

use super::Service;
use crate::authority::{BoardCommand, Command, Reply};

impl Service {
    pub(super) async fn board(
        &self,
        caller: Caller,
        team: String,
        as_agent: Option<String>,
        what: BoardCommand,
        request_id: Option<String>,
    ) -> Result<Value, Refusal> {
        let reply =
            self.authority().decide(caller, Command::Board { team, as_agent, what }, request_id).await?;
        match reply {
            Reply::Task(task) => self.answer_with(TaskReply { task: task.as_ref().clone() }),
            Reply::Nothing | Reply::Team(_) | Reply::Member(..) | Reply::Claimed(_) | Reply::Schedule(_) => {
                self.answer_with(Done { done: "done".to_owned() })
            }
        }
    }

    pub(super) fn task_list(&self, team: &str) -> Result<Value, Refusal> {
        let state = self.authority().state();
        let (_, team) = self.team(&state, team)?;
        self.answer_with(TasksReply { tasks: team.board.tasks().map(|task| task.as_ref().clone()).collect() })
    }

    pub(super) fn task_show(&self, team: &str, id: &str) -> Result<Value, Refusal> {
        let state = self.authority().state();
        let (name, team) = self.team(&state, team)?;
        match team.board.tasks().find(|task| task.id.as_str() == id) {
            Some(task) => self.answer_with(TaskReply { task: task.as_ref().clone() }),
            None => {
                let known =
                    team.board.tasks().map(|task| (task.id.as_str(), Some(task.status.as_str().to_owned())));
                Err(Refusal::new(Code::UnknownTask, format!("no task {id:?} in team \"{name}\""))
                    .closest_to(id, known)
                    .next("posthouse task ls"))
            }
        }
    }
}
