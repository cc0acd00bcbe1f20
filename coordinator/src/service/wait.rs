//! Waiting for conditions, and reasons why things do not move.

use std::time::Duration;

use posthouse_shared::codes::Code;
use posthouse_shared::name::{HostName, TeamName};
use posthouse_shared::refusal::Refusal;
use posthouse_shared::team::{HostState, Standing};
use posthouse_shared::wire::Caller;
use posthouse_shared::wire::replies::WaitReply;
use serde_json::Value;

use super::Service;
use crate::authority::{State, Team};
use crate::view::wait::{Condition, Look, look};
use crate::view::{Sight, count, why};

/// A condition is looked at this often even when nothing is known to have changed: a file that another program
/// drops changes a mailbox without a word.
const LOOK_AGAIN: Duration = Duration::from_secs(1);

impl Service {
    /// Answers when the condition holds, when it never can, or with *not yet* after `timeout_ms`.
    pub(super) async fn wait(
        &self,
        caller: Caller,
        team: String,
        condition: String,
        timeout_ms: u64,
    ) -> Result<Value, Refusal> {
        let condition = Condition::parse(&condition)?;
        let until =
            tokio::time::Instant::now() + Duration::from_millis(timeout_ms.min(self.limits().wait_ms_max));
        let mut changes = self.live().changes();
        let mut carried_out = self.0.carried_out.subscribe();
        let mut closing = self.supervisor().closing();
        loop {
            changes.mark_unchanged();
            carried_out.mark_unchanged();
            let (caller, team, asked) = (caller.clone(), team.clone(), condition.clone());
            let seen = self
                .blocking(move |s| {
                    let state = s.authority().state();
                    let (name, team) = s.team(&state, &team)?;
                    if matches!(asked, Condition::TeamSettled)
                        && let Some(seen) = s.settled_elsewhere(&state, name, team)?
                    {
                        return Ok(seen);
                    }
                    let sight = s.sight_of(&state, name, team, |member| match &asked {
                        Condition::TeamSettled => true,
                        Condition::Agent(name, _) => name == member,
                        Condition::Task(..) | Condition::Message(..) => false,
                    })?;
                    look(&sight, &asked, |id| s.stage_of(&caller, id))
                })
                .await?;
            let moved = changes.has_changed().unwrap_or(false) || carried_out.has_changed().unwrap_or(false);
            let state = match if moved { seen.after_moves(&condition) } else { seen } {
                Look::Holds(state) => return self.answer_with(WaitReply { holds: true, state }),
                Look::Never(why) => {
                    return Err(Refusal::new(
                        Code::WaitImpossible,
                        format!("it can no longer come true: {why}"),
                    ));
                }
                Look::NotYet(state) => state,
            };
            if tokio::time::Instant::now() >= until {
                return self.answer_with(WaitReply { holds: false, state });
            }
            if closing.begun() {
                return Err(Refusal::new(Code::ShuttingDown, "the coordinator is closing"));
            }
            tokio::select! {
                _ = changes.changed() => {}
                _ = carried_out.changed() => {}
                () = tokio::time::sleep_until(until.min(tokio::time::Instant::now() + LOOK_AGAIN)) => {}
                () = closing.wait() => {}
            }
        }
    }

    /// Whether a team that lives on several hosts has settled. Mail may pass from a host that was not asked yet to
    /// one that was: it has settled only if a second round finds all as the first did. Nothing where all of it
    /// lives here.
    fn settled_elsewhere(
        &self,
        state: &State,
        name: &TeamName,
        team: &Team,
    ) -> Result<Option<Look>, Refusal> {
        if team.members.values().all(|member| member.host == *self.host()) {
            return Ok(None);
        }
        let mut first = None;
        loop {
            let (outgoing, silent) = self.refresh(state, name)?;
            let waited = |host: &HostName| {
                let mut there = team.members.values().filter(|m| m.host == *host && Sight::is_run(m));
                there.any(|member| member.standing != Standing::Shutdown)
            };
            if let Some(host) = silent.iter().find(|host| waited(host)) {
                return Ok(Some(Look::NotYet(format!("host {host} {}", self.how(host)))));
            }
            if outgoing.unstored > 0 {
                return Ok(Some(Look::NotYet(format!("{} on the way", count(outgoing.unstored, "message")))));
            }
            let sight = self.sight(state, name, team)?;
            let seen =
                look(&sight, &Condition::TeamSettled, |_| Err(Refusal::new(Code::Internal, "no message")))?;
            let told = |sight: &Sight<'_>| -> Vec<_> {
                sight.live.iter().map(|(name, seen)| (name.clone(), seen.report.clone())).collect()
            };
            let round = (told(&sight), sight.mail.clone());
            match (&seen, &first) {
                (Look::NotYet(_), _) => return Ok(Some(seen)),
                (Look::Holds(_) | Look::Never(_), Some(first)) if *first == round => return Ok(Some(seen)),
                (Look::Holds(_) | Look::Never(_), Some(_)) => {
                    return Ok(Some(Look::NotYet("moving".to_owned())));
                }
                (Look::Holds(_) | Look::Never(_), None) => first = Some(round),
            }
        }
    }

    /// Why something does not move: a teammate, a task, a host or a message, looked for in this order.
    pub(super) fn why(&self, caller: &Caller, team: &str, thing: &str) -> Result<Value, Refusal> {
        let state = self.authority().state();
        let (name, team) = self.team(&state, team)?;
        let sight = self.sight(&state, name, team)?;
        let (sort, thing) = match thing.split_once('/') {
            Some((sort @ ("agent" | "task" | "host" | "message"), thing)) => (Some(sort), thing),
            Some(_) | None => (None, thing),
        };
        let asked = |this: &str| sort.is_none_or(|sort| sort == this);
        if let Some(member) = sight.member(thing).filter(|_| asked("agent")) {
            let told = why::agent(&sight, member);
            return self.answer_with(match self.host_state(member) {
                HostState::Up => told,
                how @ (HostState::Draining
                | HostState::Unreachable
                | HostState::Lost
                | HostState::Unknown) => why::elsewhere(told, member, how),
            });
        }
        if let Some(task) = sight.task(thing).filter(|_| asked("task")) {
            return self.answer_with(why::task(&sight, task));
        }
        if let Some(host) = self.hosts()?.iter().find(|host| host.name.as_str() == thing && asked("host")) {
            return self.answer_with(why::host(host));
        }
        match self.traced(caller, thing) {
            Ok(trace) => {
                let to = trace.to.split('@').next().unwrap_or_default();
                self.answer_with(why::message(&sight, &trace, sight.member(to)))
            }
            Err(refusal) if refusal.code != Code::UnknownMessage => Err(refusal),
            Err(_) => {
                let members =
                    sight.members.iter().map(|member| (member.name.as_str(), Some("agent".to_owned())));
                let tasks = sight.tasks.iter().map(|task| (task.id.as_str(), Some("task".to_owned())));
                Err(Refusal::new(
                    Code::UnknownAgent,
                    format!("nothing is called {thing:?} in team \"{name}\""),
                )
                .cause("a teammate, a task, a host, or a message by its id")
                .closest_to(thing, members.chain(tasks))
                .next("posthouse ps -o name")
                .next("posthouse task ls"))
            }
        }
    }
}
