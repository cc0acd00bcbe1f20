//! The loop that sends what is due. What it has dealt with is told to the authority; a tick that comes twice all
//! the same has the same id.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use posthouse_shared::clock::Stamp;
use posthouse_shared::generation::Birth;
use posthouse_shared::name::{ScheduleId, TeamName};
use posthouse_shared::supervise::Closing;
use posthouse_shared::team::Schedule;
use posthouse_shared::wire::event::What;
use tokio::sync::watch;

use super::{Due, Times, draft, due};
use crate::teammate::{Deps, retryable};

/// Schedules are looked at this often at least, whatever the clock does.
const SCHEDULES_EVERY: Duration = Duration::from_secs(30);

/// Runs until closing begins.
pub(crate) async fn tick(
    deps: Arc<Deps>,
    mut schedules: watch::Receiver<Vec<Schedule>>,
    mut closing: Closing,
) {
    // What this start has dealt with, until the authority has it in its own state.
    let mut through: HashMap<(TeamName, ScheduleId, Birth), Stamp> = HashMap::new();
    loop {
        let current = schedules.borrow_and_update().clone();
        through.retain(|(team, id, birth), _| {
            current.iter().any(|s| (&s.team, &s.id, &s.birth) == (team, id, birth))
        });
        let mut next = None;
        for schedule in &current {
            let Ok(times) = schedule.cron.parse::<Times>() else { continue };
            let key = (schedule.team.clone(), schedule.id.clone(), schedule.birth);
            let done = through.get(&key).copied().unwrap_or_default().max(schedule.through);
            let now = deps.clock.now();
            let dealt = match due(&times, schedule.missed, done, now) {
                Due::Nothing => None,
                Due::Drop(at) => Some(at),
                Due::Send(at) => send_tick(&deps, schedule, at).await,
            };
            if let Some(at) = dealt {
                through.insert(key, at);
                deps.port.ticked(&schedule.team, &schedule.id, schedule.birth, at).await;
            }
            let wait = times.next(now).map(|at| at.since(now));
            next = [next, wait].into_iter().flatten().min();
        }
        let wait = next.unwrap_or(SCHEDULES_EVERY).min(SCHEDULES_EVERY);
        tokio::select! {
            () = closing.wait() => return,
            changed = schedules.changed() => if changed.is_err() { return },
            () = tokio::time::sleep(wait) => {}
        }
    }
}

/// Sends one tick's message. Nothing where it should be tried again.
async fn send_tick(deps: &Arc<Deps>, schedule: &Schedule, at: Stamp) -> Option<Stamp> {
    let (post, message) = (deps.post.clone(), draft(schedule, at));
    let sent = tokio::task::spawn_blocking(move || post.send(message)).await.ok()?;
    match sent {
        Ok(posted) => {
            let (team, id) = (schedule.team.clone(), schedule.id.clone());
            if let Some(what) = posted.event(deps.post.host()) {
                deps.port.event(what);
            }
            deps.port.event(What::ScheduleTicked { team, schedule: id, at });
            Some(at)
        }
        Err(refusal) => {
            let again = retryable(&refusal);
            tracing::warn!(schedule = %schedule.id, %refusal, again, "schedule's message was not sent");
            (!again).then_some(at)
        }
    }
}
