//! What the authority hears of a teammate: its standing, where it changed by itself, and its state.

use posthouse_shared::team::{AgentState, Standing};
use posthouse_shared::wire::event::What;

use super::agent::{Current, Teammate, retryable};
use super::life::{Life, Mind, Rest};
use crate::port::Report;

impl Teammate {
    const fn standing(&self) -> Option<Standing> {
        match self.mind.life {
            Life::Resting(Rest::Idle | Rest::Pausing) => Some(Standing::Active),
            Life::Resting(Rest::Stopped { .. }) => Some(Standing::Stopped),
            Life::Resting(Rest::Failed { .. }) => Some(Standing::Failed),
            Life::Resting(Rest::Shutdown) => Some(Standing::Shutdown),
            Life::Running { .. } => None,
        }
    }

    pub(super) fn owes_standing(&self) -> bool {
        self.standing().is_some_and(|standing| standing != self.believed)
            && self.refused_at != Some(self.mind.commanded)
    }

    /// The authority decided on what the command says when it gave it.
    pub(super) const fn believe(&mut self, standing: Standing) {
        self.believed = standing;
    }

    pub(super) async fn tell_standing(&mut self) {
        let Some(standing) = self.standing() else { return };
        let (agent, generation) = (&self.setup.id, self.setup.generation);
        let command = self.mind.commanded;
        let turn = self.fold(|fold| fold.turn);
        let request = self.request_id(&format!("standing.{turn}.{command}.{standing:?}"));
        let told = self.deps.port.standing(agent, generation, command, standing, &request).await;
        match told {
            Ok(()) => self.believed = standing,
            Err(refusal) if retryable(&refusal) => self.trouble("tell the authority", &refusal),
            Err(refusal) => {
                // A newer command is on its way; what it says goes.
                tracing::info!(agent = %self.setup.id, ?standing, %refusal, "standing was not taken");
                self.refused_at = Some(command);
                if standing == Standing::Shutdown {
                    self.mind = Mind::new(Rest::Idle, command);
                    self.believed = Standing::Active;
                }
            }
        }
    }

    /// Reports the state where it changed. `why` goes into the event. An end is reported only after the authority
    /// has taken it: who sees it is then also refused when he writes to this teammate.
    pub(super) fn announce(&mut self, why: Option<String>) {
        let state = self.mind.state();
        if state == AgentState::Shutdown && self.owes_standing() {
            return;
        }
        let turn = self.current.as_ref().map_or_else(|| self.fold(|fold| fold.turn), |current| current.turn);
        if self.announced == Some((state, turn)) {
            return;
        }
        self.announced = Some((state, turn));
        let (team, agent) = (self.setup.id.team.clone(), self.setup.id.agent.clone());
        let doing = match &self.current {
            Some(current) => doing(current),
            None => why.clone().unwrap_or_default(),
        };
        self.deps.port.report(
            &self.setup.id,
            Report {
                generation: self.setup.generation,
                state,
                turn,
                attempt: self.current.as_ref().map_or(0, |current| current.attempt),
                task: self.current.as_ref().and_then(|current| Some(current.task.as_ref()?.id.clone())),
                doing,
            },
        );
        self.deps.port.event(What::AgentState { team, agent, state, turn, why });
    }
}

fn doing(current: &Current) -> String {
    let mail = match current.mail.len() {
        0 => None,
        1 => Some("1 message".to_owned()),
        n => Some(format!("{n} messages")),
    };
    let task = current.task.as_ref().map(|task| format!("{} {}", task.id, task.subject));
    [task, mail].into_iter().flatten().collect::<Vec<_>>().join(", ")
}
