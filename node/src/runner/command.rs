//! The `command` runner: any program, one process a turn. It reads one JSON object ([`super::TurnInput`]) on stdin;
//! what it prints on stdout is the result; exit code 0 is success, any other is a failure of the turn. A
//! program that somebody else killed has not failed: the turn is lost and may be tried again.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use posthouse_shared::limits::Limits;
use posthouse_shared::supervise::Supervisor;
use posthouse_shared::team::RunnerSpec;
use tokio::sync::{mpsc, watch};

use super::process::{Ended, Launch, LaunchError, run};
use super::{Cancel, Event, Outcome, Runner, RunnerError, Session, SessionSpec, Turn};
use crate::children::Children;

/// Events of one turn that wait to be heard; signs beyond that are dropped.
const EVENTS: usize = 8;

/// Starts programs.
#[derive(Debug, Clone)]
pub struct CommandRunner {
    limits: Arc<Limits>,
    children: Children,
    supervisor: Supervisor,
}

impl CommandRunner {
    /// `supervisor` joins the tasks that watch over the programs.
    pub const fn new(limits: Arc<Limits>, children: Children, supervisor: Supervisor) -> Self {
        Self { limits, children, supervisor }
    }
}

#[async_trait]
impl Runner for CommandRunner {
    async fn open(&self, spec: SessionSpec) -> Result<Box<dyn Session>, RunnerError> {
        let RunnerSpec::Command { command } = &spec.runner;
        if command.is_empty() {
            return Err(RunnerError::Unusable("the command is empty".to_owned()));
        }
        Ok(Box::new(CommandSession { runner: self.clone(), spec, running: None }))
    }
}

struct CommandSession {
    runner: CommandRunner,
    spec: SessionSpec,
    running: Option<Running>,
}

struct Running {
    events: mpsc::Receiver<Event>,
    wish: watch::Sender<Option<Cancel>>,
}

#[async_trait]
impl Session for CommandSession {
    async fn start_turn(&mut self, turn: Turn) -> Result<(), RunnerError> {
        if self.running.is_some() {
            return Err(RunnerError::InTurn);
        }
        let RunnerSpec::Command { command } = self.spec.runner.clone();
        let mut environment = self.spec.environment.as_ref().clone();
        environment.extend(turn.environment.clone());
        let launch = Launch {
            command,
            cwd: self.spec.cwd.clone(),
            environment,
            stdin: serde_json::to_vec(&turn.input).unwrap_or_default(),
            stdout_bytes_max: self.runner.limits.result_bytes,
            stderr_bytes_max: self.runner.limits.stderr_tail_bytes,
        };
        let (said, events) = mpsc::channel(EVENTS);
        let wish = watch::Sender::new(None);
        let wished = wish.subscribe();
        let children = self.runner.children.clone();
        self.runner.supervisor.start("turn", async move {
            let sign = || {
                let _signs_may_be_dropped = said.try_send(Event::Sign);
            };
            let outcome = outcome(run(launch, &children, &turn.log, wished, sign).await);
            let _nobody_listens_any_more = said.send(Event::Done(outcome)).await;
        });
        self.running = Some(Running { events, wish });
        Ok(())
    }

    async fn next(&mut self) -> Event {
        let Some(running) = &mut self.running else { return std::future::pending().await };
        let lost = || Event::Done(Outcome::Lost { why: "the turn's task ended".to_owned() });
        let event = running.events.recv().await.unwrap_or_else(lost);
        if matches!(event, Event::Done(_)) {
            self.running = None;
        }
        event
    }

    fn cancel(&mut self, how: Cancel) {
        if let Some(running) = &self.running {
            running.wish.send_replace(Some(how));
        }
    }

    async fn close(&mut self, grace: Duration) {
        self.cancel(Cancel::Within(grace));
        while self.running.is_some() {
            self.next().await;
        }
    }
}

fn outcome(ended: Result<Ended, LaunchError>) -> Outcome {
    match ended {
        Err(LaunchError::Unusable(why)) => {
            Outcome::AgentError { why, exit: None, said: String::new(), tail: String::new() }
        }
        Err(error @ LaunchError::NotNow { .. }) => Outcome::Lost { why: error.to_string() },
        Ok(ended) if ended.signalled => Outcome::Cancelled,
        Ok(ended) => match (ended.status.code(), ended.signal()) {
            (Some(0), _) => Outcome::Completed { result: ended.stdout },
            (Some(code), _) => Outcome::AgentError {
                why: format!("exit {code}"),
                exit: Some(code),
                said: ended.stdout,
                tail: ended.stderr,
            },
            (None, signal) => Outcome::Lost { why: format!("killed by signal {}", signal.unwrap_or(0)) },
        },
    }
}
