//! Schedules: which there are, and up to when their ticks are dealt with. When they tick is the node's matter.

use posthouse_shared::clock::Stamp;
use posthouse_shared::codes::Code;
use posthouse_shared::name::{ScheduleId, TeamName};
use posthouse_shared::refusal::Refusal;
use posthouse_shared::team::ScheduleSpec;

use super::command::{Decided, Decision, Reply};
use super::decide::{find_member, refuse};
use super::state::{State, Team};

impl State {
    /// The cron expression is checked by whoever parses it; here it is text.
    pub(super) fn schedule_add(&self, team: &Team, spec: &ScheduleSpec) -> Result<Decided, Refusal> {
        let limit = self.limits.schedules_per_team as usize;
        if team.schedules.size() >= limit {
            let text = format!("team \"{}\" has {limit} schedules, the limit", team.name);
            return Err(refuse(Code::LimitReached, text).next("posthouse schedule ls"));
        }
        let to = find_member(team, spec.to.as_str())?.name.clone();
        let size = (spec.message.len() + spec.cron.len()) as u64;
        if size > self.limits.envelope_bytes / 2 {
            return Err(refuse(Code::LimitReached, format!("the schedule has {size} bytes of text")));
        }
        let id = match &spec.id {
            Some(id) if team.schedules.contains_key(id) => {
                let text = format!("there is a schedule {id} in team \"{}\"", team.name);
                return Err(refuse(Code::NameTaken, text).next("posthouse schedule ls"));
            }
            Some(id) => id.clone(),
            None => free_id(team).ok_or_else(|| refuse(Code::Internal, "no schedule id is free"))?,
        };
        Ok(Decided::Journal(Decision::ScheduleAdded {
            team: team.name.clone(),
            id,
            cron: spec.cron.clone(),
            to,
            message: spec.message.clone(),
            missed: spec.missed,
        }))
    }

    pub(super) fn schedule_delete(&self, team: &Team, id: &str) -> Result<Decided, Refusal> {
        match team.schedules.get_key_value(id) {
            Some((id, _)) => {
                Ok(Decided::Journal(Decision::ScheduleDeleted { team: team.name.clone(), id: id.clone() }))
            }
            None => {
                let known = team.schedules.keys().map(|id| (id.as_str(), None));
                Err(refuse(Code::UnknownSchedule, format!("no schedule {id:?} in team \"{}\"", team.name))
                    .closest_to(id, known)
                    .next("posthouse schedule ls"))
            }
        }
    }

    /// A schedule that is gone has no ticks to deal with; time already dealt with does not go back.
    pub(super) fn schedule_ticked(
        &self,
        team: &TeamName,
        id: &ScheduleId,
        through: Stamp,
        now: Stamp,
    ) -> Decided {
        let through = through.min(now);
        let known = self.team(team).and_then(|team| team.schedules.get(id));
        if known.is_none_or(|schedule| through <= schedule.through) {
            return Decided::Answer(Reply::Nothing);
        }
        Decided::Journal(Decision::ScheduleTicked { team: team.clone(), id: id.clone(), through })
    }
}

fn free_id(team: &Team) -> Option<ScheduleId> {
    (team.schedules.size() + 1..).find_map(|n| {
        let id = ScheduleId::new(format!("S-{n}")).ok()?;
        (!team.schedules.contains_key(&id)).then_some(id)
    })
}
