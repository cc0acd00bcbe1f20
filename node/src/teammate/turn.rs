//! Begins a turn and ends it. Order of steps:
//!
//! 1. mail claimed, task granted
//! 2. history: `input`s and `turn`, synced (`turn.input.synced`)
//! 3. the program runs
//! 4. what it causes is numbered and sealed
//! 5. history: `turn_end`, synced (`turn.ended`)
//! 6. effects, see `settle`

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::sync::Arc;

use posthouse_shared::generation::Generation;
use posthouse_shared::message::Kind;
use posthouse_shared::task::ClaimedTask;
use posthouse_shared::wire::Caller;
use posthouse_shared::wire::event::What;
use posthouse_shared::wire::replies::Stage;

use super::agent::{Current, Teammate, Untold, retryable};
use super::life::{About, Happening, Life, Verdict, Wants};
use super::plan::{Facts, Plan, plan};
use super::settle::Moves;
use super::{TeammateError, blocking, in_mailbox};
use crate::checkpoint::Grown;
use crate::history::{Begin, End, History, InTurn, Input, InputKey};
use crate::mailbox::{Batch, Claimed, Lease, Reason, Release, Which};
use crate::runner::log::{AgentLog, log_path};
use crate::runner::{Outcome, Turn, TurnInput, TurnMessage};

impl Teammate {
    /// Takes what there is to do; where there is nothing, tells the lead and rests.
    pub(super) async fn work(&mut self) -> Result<(), TeammateError> {
        let mail = self.claim_mail().await?;
        if self.mind.wants() != Wants::Work {
            return self.give_back(mail).await;
        }
        let assigned = mail.iter().any(|m| m.message.envelope.kind == Kind::TaskAssignment);
        let task = if mail.is_empty() || assigned { self.claim_task().await } else { None };
        if mail.is_empty() && task.is_none() {
            self.tell_idle().await;
            self.fine();
            return self.in_history(History::rest).await;
        }
        self.begin(About::Work, mail, task).await
    }

    /// Runs the turn over the shutdown request that waits.
    pub(super) async fn ask_shutdown(&mut self, command: Generation) -> Result<(), TeammateError> {
        match self.request.take() {
            Some(request) => self.begin(About::Shutdown(command), vec![request], None).await,
            None => {
                self.mind.asked = None;
                Ok(())
            }
        }
    }

    /// Mail for the next turn, with the whole of what it says. What cannot be had goes to quarantine, and other mail
    /// is taken in its place.
    async fn claim_mail(&mut self) -> Result<Vec<Claimed>, TeammateError> {
        loop {
            let claimed = self.claim_once().await?;
            if claimed.is_empty() {
                return Ok(claimed);
            }
            let mail = self.with_bodies(claimed).await?;
            if !mail.is_empty() {
                return Ok(mail);
            }
        }
    }

    async fn with_bodies(&self, claimed: Vec<Claimed>) -> Result<Vec<Claimed>, TeammateError> {
        let mut mail = Vec::with_capacity(claimed.len());
        for mut message in claimed {
            let Some(blob) = message.message.envelope.blob.clone() else {
                mail.push(message);
                continue;
            };
            let blobs = self.deps.blobs.clone();
            match blocking(move || blobs.text(&blob, usize::MAX)).await? {
                Ok(text) => {
                    message.message.envelope.body = Some(text);
                    mail.push(message);
                }
                Err(error) => {
                    let (lease, text) = (message.lease, error.to_string());
                    tracing::warn!(agent = %self.setup.id, message = %lease.id(), %error, "cannot read a body");
                    let reason = Reason { code: "no_body".to_owned(), text, turn: None };
                    in_mailbox(&self.mailbox, move |mailbox| mailbox.quarantine(&[lease], &reason)).await?;
                }
            }
        }
        Ok(mail)
    }

    async fn claim_once(&mut self) -> Result<Vec<Claimed>, TeammateError> {
        let mut mail = std::mem::take(&mut self.urgent);
        let max = usize::try_from(self.deps.limits.turn_messages).unwrap_or(usize::MAX);
        let room = max.saturating_sub(mail.len());
        if room > 0 {
            let batch =
                Batch { messages_max: room, bytes_max: self.deps.limits.turn_bytes, only: Which::All };
            let claimed = in_mailbox(&self.mailbox, move |mailbox| mailbox.claim(batch)).await;
            match claimed {
                Ok(claimed) => mail.extend(self.apply_orders(claimed).await?),
                Err(error) => {
                    self.urgent = mail;
                    return Err(error);
                }
            }
        }
        Ok(mail)
    }

    async fn give_back(&mut self, mail: Vec<Claimed>) -> Result<(), TeammateError> {
        let leases: Vec<Lease> = mail.into_iter().map(|claimed| claimed.lease).collect();
        in_mailbox(&self.mailbox, move |mailbox| mailbox.release(&leases, Release::Planned)).await?;
        Ok(())
    }

    async fn claim_task(&mut self) -> Option<ClaimedTask> {
        let request = self.claim_id();
        let (agent, generation) = (&self.setup.id, self.setup.generation);
        let claimed = self.deps.port.claim_next(agent, generation, &request).await;
        match claimed {
            Ok(Some(task)) => return Some(task),
            Ok(None) => self.claim_answered(),
            Err(refusal) if retryable(&refusal) => self.trouble("ask for a task", &refusal),
            Err(refusal) => {
                self.claim_answered();
                tracing::debug!(agent = %self.setup.id, %refusal, "no task");
            }
        }
        None
    }

    async fn begin(
        &mut self,
        about: About,
        mail: Vec<Claimed>,
        task: Option<ClaimedTask>,
    ) -> Result<(), TeammateError> {
        self.tell_result().await;
        let turn = self.fold(|fold| fold.turn) + 1;
        let tries = self.fold(|fold| fold.tries.clone());
        let attempt = mail.iter().map(|m| m.attempt).max().unwrap_or(1);
        let now = self.deps.clock.now();
        let log = AgentLog::open(
            self.deps.files.clone(),
            log_path(&self.deps.data, &self.setup.id),
            self.deps.limits.log_bytes,
        );
        let current = Current { turn, mail, task, attempt, token: None, log: Arc::new(log) };
        let tried = current.claim().and_then(|claim| tries.filter(|tries| tries.claim == claim));
        let attempt = attempt.max(tried.map_or(1, |tries| tries.interrupted + 1));
        let current = Current { attempt, ..current };
        let inputs: Vec<Input> = current.mail.iter().map(|m| Input::of(turn, m, now)).collect();
        let begin = Begin {
            turn,
            inputs: current.mail.iter().map(in_turn).collect(),
            task: current.claim(),
            at: now,
        };
        let begun = self.in_history(move |history| history.begin(inputs, begin)).await;
        if let Err(error) = begun.and_then(|begun| Ok(begun?)) {
            // Nothing of the turn counts: what was claimed is as it was.
            self.give_back(current.mail).await?;
            return Err(error);
        }
        self.start(about, current).await;
        Ok(())
    }

    async fn start(&mut self, about: About, mut current: Current) {
        let caller = Caller::Agent { id: self.setup.id.clone(), generation: self.setup.generation };
        let token = self.deps.tokens.issue(caller);
        let environment = self.turn_environment(token.as_str(), current.task.as_ref());
        current.token = Some(token);
        let (team, to) = (&self.setup.id.team, &self.setup.id.agent);
        for message in &current.mail {
            let id = message.lease.id();
            self.trace(id, Stage::Processing, format!("turn {}, attempt {}", current.turn, message.attempt));
            let (turn, attempt) = (current.turn, message.attempt);
            self.deps.port.event(What::MessageClaimed {
                team: team.clone(),
                id,
                to: to.clone(),
                turn,
                attempt,
            });
        }
        let task = current.task.as_ref().map_or_else(String::new, |task| format!(", task {}", task.id));
        let (turn, attempt, mail) = (current.turn, current.attempt, current.mail.len());
        current.log.line(&format!(
            "{} turn {turn} begins: {mail} messages{task}, attempt {attempt}",
            self.deps.clock.now()
        ));
        let input = TurnInput {
            turn,
            agent: to.clone(),
            team: team.clone(),
            task: current.task.clone(),
            messages: current.mail.iter().map(turn_message).collect(),
        };
        for message in &mut current.mail {
            // Large bodies are not held while the turn runs.
            let envelope = &mut message.message.envelope;
            envelope.body = envelope.body.take().filter(|_| envelope.blob.is_none());
        }
        let turn = Turn { input, environment, log: Arc::clone(&current.log) };
        self.happens(Happening::Begun(current.turn, about)).await;
        self.begun();
        self.current = Some(current);
        self.announce(None);
        self.deps.files.point("turn.starting");
        if let Err(error) = self.session.start_turn(turn).await {
            self.fail_to_start(error.to_string()).await;
        }
    }

    fn history_path(&self) -> std::path::PathBuf {
        self.history.lock().unwrap_or_else(std::sync::PoisonError::into_inner).path().to_owned()
    }

    fn turn_environment(&self, token: &str, task: Option<&ClaimedTask>) -> BTreeMap<OsString, OsString> {
        let history = self.history_path();
        let mut environment: BTreeMap<OsString, OsString> = BTreeMap::new();
        let mut set = |name: &str, value: OsString| environment.insert(name.into(), value);
        set("POSTHOUSE_TEAM", self.setup.id.team.as_str().into());
        set("POSTHOUSE_AGENT", self.setup.id.agent.as_str().into());
        set("POSTHOUSE_SOCKET", self.deps.socket.clone().into());
        set("POSTHOUSE_TOKEN", token.into());
        set("POSTHOUSE_HISTORY", history.into());
        if let Some(task) = task {
            set("POSTHOUSE_TASK", task.id.as_str().into());
            set("POSTHOUSE_TASK_GENERATION", task.generation.to_string().into());
        }
        environment
    }

    /// The program is through: writes `turn_end` and carries it out.
    pub(super) async fn ended(&mut self, outcome: Outcome) {
        let Some(mut current) = self.current.take() else { return };
        let Life::Running { about, ending, .. } = self.mind.life else { return };
        // From here on its programs, if any are left, are nobody.
        current.token = None;
        let claim = current.claim();
        let tries = self.fold(|fold| fold.tries.clone());
        let facts = Facts {
            turn: current.turn,
            about,
            ending,
            claim: claim.as_ref(),
            tries: tries.as_ref(),
            attempts_max: self.deps.limits.max_attempts,
        };
        let plan = plan(&facts, outcome);
        let verdict = plan.verdict;
        let why = match &plan.disposition {
            crate::history::Disposition::Done => None,
            crate::history::Disposition::Failed { why }
            | crate::history::Disposition::Released { why, .. } => Some(why.clone()),
        };
        current.log.line(&format!(
            "{} turn {} ends: {}",
            self.deps.clock.now(),
            current.turn,
            why.as_deref().unwrap_or("done")
        ));
        let inputs: Vec<InTurn> = current.mail.iter().map(in_turn).collect();
        let Some(end) = self.write_end(current.turn, inputs, plan).await else {
            // The node closes and the disk will not take it: the next start runs the turn again.
            self.mind.life = Life::Resting(super::life::Rest::Idle);
            return;
        };
        if verdict == Verdict::Done {
            let on_board = end.task.is_some();
            self.untold = Some(Untold { turn: end.turn, result: end.result.clone(), on_board });
        }
        let leases = current.mail.iter().map(|claimed| claimed.lease).collect();
        self.settle(&end, Moves::of(&end, leases)).await;
        let (birth, generation) = (self.setup.birth, self.setup.generation);
        let history = self.history_path();
        self.deps.checkpoints.grown(&self.setup.id, Grown { birth, generation, history });
        self.fine();
        self.over(Happening::Over(verdict, self.deps.clock.now())).await;
        // Idle is said only after the idle notice is stored: who sees it finds the notice in the lead's mailbox.
        if self.untold.is_none() {
            self.announce(why);
        }
    }

    /// Seals what a turn causes and writes its end, trying again until it is on disk. Nothing only where the
    /// node closes and it cannot be done.
    pub(super) async fn write_end(&mut self, turn: u64, inputs: Vec<InTurn>, plan: Plan) -> Option<End> {
        let letters = if self.is_lead() { Vec::new() } else { plan.letters };
        let mut messages = Vec::new();
        for (n, letter) in letters.into_iter().enumerate() {
            let id = self.derived(turn, letter.kind.as_str(), &n.to_string());
            let sealed = loop {
                match self.prepare(&letter, id).await {
                    Ok(sealed) => break Some(sealed),
                    Err(refusal)
                        if retryable(&refusal) && self.keep_trying("seal a message", &refusal).await => {}
                    Err(refusal) => {
                        tracing::warn!(agent = %self.setup.id, %refusal, "the lead is not told");
                        break None;
                    }
                }
            };
            messages.extend(sealed.map(|sealed| String::from_utf8_lossy(&sealed.bytes).into_owned()));
        }
        let end = End {
            turn,
            disposition: plan.disposition,
            inputs,
            result: plan.result,
            messages,
            task: plan.task,
            shutdown: plan.shutdown,
            at: self.deps.clock.now(),
        };
        loop {
            let record = end.clone();
            match self.in_history(move |history| history.end(record)).await.and_then(|ended| Ok(ended?)) {
                Ok(()) => return Some(end),
                Err(error) if self.keep_trying("write turn_end", &error).await => {}
                Err(_) => return None,
            }
        }
    }
}

/// The sender; the mailbox says `external` where nobody vouches for it.
fn from(message: &Claimed) -> String {
    message.message.envelope.from.agent.to_string()
}

pub(super) fn in_turn(message: &Claimed) -> InTurn {
    let key = InputKey { id: message.lease.id(), delivery: message.delivery };
    InTurn { key, attempt: message.attempt }
}

fn turn_message(message: &Claimed) -> TurnMessage {
    let envelope = &message.message.envelope;
    TurnMessage {
        id: envelope.id,
        kind: envelope.kind,
        from: from(message),
        body: envelope.body.clone().unwrap_or_default(),
        summary: envelope.summary.clone(),
        in_reply_to: envelope.in_reply_to,
        created_at: envelope.created_at,
        attempt: message.attempt,
        delivery: message.delivery,
        marks: message.marks.names(),
    }
}
