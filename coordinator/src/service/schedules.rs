//! Schedules.

use posthouse_node::schedule::Times;
use posthouse_shared::codes::Code;
use posthouse_shared::refusal::Refusal;
use posthouse_shared::team::{Schedule, ScheduleSpec};
use posthouse_shared::wire::Caller;
use posthouse_shared::wire::replies::{Done, ScheduleReply, ScheduleView, SchedulesReply};
use serde_json::Value;

use super::Service;
use crate::authority::{Command, Reply};

impl Service {
    pub(super) async fn schedule_add(
        &self,
        caller: Caller,
        team: String,
        spec: ScheduleSpec,
    ) -> Result<Value, Refusal> {
        spec.cron.parse::<Times>().map_err(|error| {
            Refusal::new(Code::BadRequest, format!("cron text {:?} is not understood", spec.cron))
                .because(&error)
                .effect("nothing was changed")
        })?;
        let reply = self.decide_and_carry_out(caller, Command::ScheduleAdd { team, spec }, None).await?;
        match reply {
            Reply::Schedule(schedule) => {
                self.answer_with(ScheduleReply { schedule: self.schedule_view(*schedule) })
            }
            Reply::Nothing | Reply::Team(_) | Reply::Member(..) | Reply::Task(_) | Reply::Claimed(_) => {
                self.answer_with(Done { done: "schedule added".to_owned() })
            }
        }
    }

    pub(super) fn schedule_list(&self, team: &str) -> Result<Value, Refusal> {
        let state = self.authority().state();
        let (_, team) = self.team(&state, team)?;
        let schedules =
            team.schedules.values().map(|schedule| self.schedule_view(schedule.clone())).collect();
        self.answer_with(SchedulesReply { schedules })
    }

    pub(super) async fn schedule_delete(
        &self,
        caller: Caller,
        team: String,
        id: String,
    ) -> Result<Value, Refusal> {
        self.decide_and_carry_out(caller, Command::ScheduleDelete { team, id: id.clone() }, None).await?;
        self.answer_with(Done { done: format!("schedule {id} is deleted") })
    }

    fn schedule_view(&self, schedule: Schedule) -> ScheduleView {
        let next = schedule.cron.parse::<Times>().ok().and_then(|times| times.next(self.now()));
        ScheduleView { schedule, next }
    }
}
