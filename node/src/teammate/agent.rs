//! The loop of one teammate. It hears one thing at a time, lets the life decide, and acts; while a turn runs
//! the program runs beside it and only its events come in here.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use posthouse_shared::clock::Stamp;
use posthouse_shared::name::AgentName;
use posthouse_shared::refusal::{FailureKind, Refusal};
use posthouse_shared::task::{Claim, ClaimedTask};
use posthouse_shared::team::{AgentState, Standing};
use posthouse_shared::wire::replies::Stage;
use tokio::sync::watch;
use tokio::time::Instant;

use super::life::{Effect, Happening, Life, Mind, Rest, Wants};
use super::pause::Pauses;
use super::strays::Strays;
use super::{AgentSetup, Close, Deps, Signals, TeammateError, blocking, in_mailbox};
use crate::history::{History, history_path};
use crate::local::Token;
use crate::mailbox::{Claimed, Lease, Mailbox, Release};
use crate::runner::log::AgentLog;
use crate::runner::{Cancel, Event, Outcome, Session, SessionSpec};
use crate::trace_index::TraceNote;

/// After the grace of a close, programs get this long between SIGTERM and SIGKILL.
const CLOSE_TERM: Duration = Duration::from_secs(2);

/// A turn that runs.
pub(super) struct Current {
    pub turn: u64,
    pub mail: Vec<Claimed>,
    pub task: Option<ClaimedTask>,
    pub attempt: u32,
    /// Its programs may call us until this is dropped.
    pub token: Option<Token>,
    pub log: Arc<AgentLog>,
}

impl Current {
    pub fn claim(&self) -> Option<Claim> {
        self.task.as_ref().map(|task| Claim { task: task.id.clone(), generation: task.generation })
    }
}

/// The result of the last turn, while the lead has not been told.
pub(super) struct Untold {
    pub turn: u64,
    pub result: String,
    /// The board has it.
    pub on_board: bool,
}

#[derive(Default)]
struct Timers {
    pause: Option<Instant>,
    grace: Option<Instant>,
    too_long: Option<Instant>,
    close: Option<Instant>,
    /// After a failure of the disk or the authority nothing new is begun before this.
    trouble: Option<Instant>,
}

/// One teammate.
pub(crate) struct Teammate {
    pub(super) deps: Arc<Deps>,
    pub(super) setup: Arc<AgentSetup>,
    pub(super) mailbox: Mailbox,
    pub(super) history: Arc<Mutex<History>>,
    pub(super) mind: Mind,
    pub(super) session: Box<dyn Session>,
    pub(super) current: Option<Current>,
    pub(super) untold: Option<Untold>,
    /// Control messages for the agent that came during a turn: they go first into the next one.
    pub(super) urgent: Vec<Claimed>,
    /// The shutdown request that waits for its turn, or for the authority to know.
    pub(super) request: Option<Claimed>,
    pub(super) pauses: Pauses,
    pub(super) close: watch::Receiver<Option<Close>>,
    mail: watch::Receiver<u64>,
    board: watch::Receiver<u64>,
    setups: watch::Receiver<Arc<AgentSetup>>,
    troubles: Pauses,
    timers: Timers,
    /// What the authority holds our standing to be.
    pub(super) believed: Standing,
    /// The command after which it refused ours; asked again only after a newer one.
    pub(super) refused_at: Option<posthouse_shared::generation::Generation>,
    asks: u64,
    pub(super) strays: Strays,
    pub(super) announced: Option<(AgentState, u64)>,
}

enum Heard {
    Close(Option<Close>),
    Session(Event),
    Setup,
    Mail,
    Board,
    Timer,
}

impl Teammate {
    /// Opens history and session of a teammate. Nothing of it runs yet.
    pub async fn open(
        deps: Arc<Deps>,
        setup: Arc<AgentSetup>,
        mailbox: Mailbox,
        signals: Signals,
    ) -> Result<Self, TeammateError> {
        let path = history_path(&deps.data, &setup.id, setup.birth);
        let files = deps.files.clone();
        let watched = mailbox.clone();
        let (history, mail) =
            blocking(move || History::open(files, path).map(|history| (history, watched.changes())))
                .await??;
        let session = deps
            .runner
            .open(SessionSpec {
                agent: setup.id.clone(),
                runner: setup.spec.runner.clone(),
                cwd: setup.spec.cwd.clone(),
                environment: Arc::clone(&deps.environment),
            })
            .await?;
        let fold = history.fold();
        let agreed = fold.last.as_ref().and_then(|end| end.shutdown.as_ref()).is_some_and(|shutdown| {
            shutdown.agreed && shutdown.command >= fold.commanded && shutdown.command >= setup.command
        });
        let rest = match setup.standing {
            Standing::Active if agreed => Rest::Shutdown,
            Standing::Active => Rest::Idle,
            Standing::Stopped => Rest::Stopped { since: setup.since },
            Standing::Failed => Rest::Failed { since: setup.since },
            Standing::Shutdown => Rest::Shutdown,
        };
        // Commands from before this home count as applied; a later one still lies in the mailbox, or was noted.
        let mind = Mind::new(rest, fold.commanded.max(setup.command.min(setup.generation)));
        let pauses = Pauses::new(&deps.limits, setup.id.to_string());
        Ok(Self {
            believed: setup.standing,
            mind,
            session,
            mailbox,
            history: Arc::new(Mutex::new(history)),
            current: None,
            untold: None,
            urgent: Vec::new(),
            request: None,
            troubles: pauses.clone(),
            pauses,
            close: signals.close,
            mail,
            board: signals.board,
            setups: signals.setup,
            timers: Timers::default(),
            refused_at: None,
            asks: 0,
            strays: Strays::default(),
            announced: None,
            deps,
            setup,
        })
    }

    /// Lives: recovers what a crash left, then hears and acts until it is shut down or its node closes.
    pub async fn run(mut self: Box<Self>) {
        // What is done between two waits is boxed, so that a teammate at rest costs what it needs to hear.
        if let Err(error) = Box::pin(self.wake()).await {
            self.trouble("recover", &error);
        }
        loop {
            if let Err(error) = Box::pin(self.act()).await {
                self.trouble("go on", &error);
            }
            if self.mind.wants() == Wants::End && (self.mind.closing || !self.owes_standing()) {
                break;
            }
            let heard = self.hear().await;
            Box::pin(self.take(heard)).await;
        }
        Box::pin(self.leave()).await;
    }

    async fn wake(&mut self) -> Result<(), TeammateError> {
        self.recover().await?;
        self.take_orders().await?;
        if self.mind.asked.is_none() && self.request.is_none() {
            // The last command left nothing in the mailbox: its standing is the one we started with.
            self.mind.commanded = self.mind.commanded.max(self.setup.command);
        }
        Ok(())
    }

    /// Does what can be done now, between two things that are heard.
    async fn act(&mut self) -> Result<(), TeammateError> {
        if !self.mind.closing {
            self.take_orders().await?;
            if self.timers.trouble.is_some() {
                return Ok(());
            }
        }
        if self.mind.state() != AgentState::Running
            && let Some(newest) = self.lead_mail().await?
        {
            self.happens(Happening::LeadMail(newest)).await;
        }
        if self.owes_standing() {
            self.tell_standing().await;
        }
        match self.mind.wants() {
            Wants::AskShutdown(command) => self.ask_shutdown(command).await?,
            Wants::Work => self.work().await?,
            Wants::Nothing | Wants::End => {}
        }
        self.tell_of_strays().await?;
        self.announce(None);
        Ok(())
    }

    async fn lead_mail(&self) -> Result<Option<Stamp>, TeammateError> {
        match self.mind.life {
            Life::Resting(Rest::Stopped { .. } | Rest::Failed { .. }) => {
                in_mailbox(&self.mailbox, Mailbox::lead_newest).await
            }
            Life::Resting(_) | Life::Running { .. } => Ok(None),
        }
    }

    /// Waits for the next thing to happen. Everything awaited here is cancel-safe.
    async fn hear(&mut self) -> Heard {
        let timers = &self.timers;
        let next = [timers.pause, timers.grace, timers.too_long, timers.close, timers.trouble];
        let next = next.into_iter().flatten().min();
        let timer = async {
            match next {
                Some(at) => tokio::time::sleep_until(at).await,
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            biased;
            closing = self.close.changed() => {
                // A node that is gone waits for nobody.
                Heard::Close(if closing.is_ok() { *self.close.borrow_and_update() } else { Some(Close::Now) })
            }
            event = self.session.next() => Heard::Session(event),
            changed = self.setups.changed() => if changed.is_ok() { Heard::Setup } else { Heard::Close(Some(Close::Now)) },
            changed = self.mail.changed() => if changed.is_ok() { Heard::Mail } else { Heard::Close(Some(Close::Now)) },
            changed = self.board.changed() => if changed.is_ok() { Heard::Board } else { Heard::Close(Some(Close::Now)) },
            () = timer => Heard::Timer,
        }
    }

    async fn take(&mut self, heard: Heard) {
        match heard {
            Heard::Close(None) | Heard::Mail | Heard::Board | Heard::Session(Event::Sign) => {}
            Heard::Close(Some(Close::Within(grace))) => {
                self.timers.close = Some(Instant::now() + grace);
                self.happens(Happening::Close).await;
            }
            Heard::Close(Some(Close::Now)) => {
                self.happens(Happening::CloseNow).await;
                self.session.cancel(Cancel::Now);
            }
            Heard::Session(Event::Done(outcome)) => self.ended(outcome).await,
            Heard::Setup => self.setup = Arc::clone(&self.setups.borrow_and_update()),
            Heard::Timer => self.timers_over().await,
        }
    }

    async fn timers_over(&mut self) {
        let now = Instant::now();
        let over = |timer: &mut Option<Instant>| timer.take_if(|at| *at <= now).is_some();
        if over(&mut self.timers.trouble) {
            tracing::debug!(agent = %self.setup.id, "trying again");
        }
        if over(&mut self.timers.pause) {
            self.happens(Happening::PauseOver).await;
        }
        if over(&mut self.timers.grace) {
            self.happens(Happening::GraceOver).await;
        }
        if over(&mut self.timers.too_long) {
            self.happens(Happening::TooLong).await;
        }
        if over(&mut self.timers.close) {
            self.happens(Happening::CloseNow).await;
        }
    }

    /// Lets the life decide, and does what follows.
    pub(super) async fn happens(&mut self, happening: Happening) {
        let (mind, effects) = self.mind.decide(happening);
        self.mind = mind;
        for effect in effects {
            match effect {
                Effect::Note => self.note_command(happening).await,
                Effect::Cancel => {
                    let grace = self.deps.limits.shutdown_grace();
                    let grace = if self.mind.closing { grace.min(CLOSE_TERM) } else { grace };
                    self.session.cancel(Cancel::Within(grace));
                }
                Effect::StartGrace => {
                    self.timers.grace = Some(Instant::now() + self.deps.limits.shutdown_grace());
                }
                Effect::ForcedDown => self.tell_forced().await,
                // What is owed is seen by comparing; see `owes_standing`.
                Effect::Standing(_) => self.refused_at = None,
            }
        }
        if matches!(happening, Happening::Command(..)) {
            self.refused_at = None;
        }
    }

    pub(super) fn begun(&mut self) {
        let limit = self.deps.limits.turn_ms_max;
        self.timers.too_long = (limit > 0).then(|| Instant::now() + Duration::from_millis(limit));
    }

    pub(super) async fn over(&mut self, happening: Happening) {
        self.timers.too_long = None;
        self.happens(happening).await;
        if self.mind.life == Life::Resting(Rest::Pausing) {
            self.timers.pause = Some(Instant::now() + self.pauses.pause());
        } else {
            self.pauses.reset();
        }
        if self.mind.asked.is_none() {
            self.timers.grace = None;
        }
    }

    /// A failure of the machine: nothing is lost, nothing new is begun for a while.
    pub(super) fn trouble(&mut self, what: &'static str, error: &(dyn std::error::Error + 'static)) {
        let pause = self.troubles.pause();
        let cause = error.source().map(ToString::to_string).unwrap_or_default();
        tracing::warn!(agent = %self.setup.id, %error, cause, ?pause, "cannot {what}, trying again");
        self.timers.trouble = Some(Instant::now() + pause);
    }

    pub(super) fn fine(&mut self) {
        self.troubles.reset();
    }

    pub(super) fn request_id(&self, what: &str) -> String {
        format!("{}.{}.{}.{what}", self.setup.id, self.setup.birth, self.setup.generation)
    }

    /// An id for the next claim: the same one again after a crash, another one after an answer.
    pub(super) fn claim_id(&self) -> String {
        self.request_id(&format!("claim.{}.{}", self.fold(|fold| fold.turn) + 1, self.asks))
    }

    pub(super) const fn claim_answered(&mut self) {
        self.asks += 1;
    }

    pub(super) fn fold<T>(&self, look: impl FnOnce(&crate::history::Fold) -> T) -> T {
        look(self.history.lock().unwrap_or_else(std::sync::PoisonError::into_inner).fold())
    }

    pub(super) async fn in_history<T: Send + 'static>(
        &self,
        work: impl FnOnce(&mut History) -> T + Send + 'static,
    ) -> Result<T, TeammateError> {
        let history = Arc::clone(&self.history);
        blocking(move || work(&mut history.lock().unwrap_or_else(std::sync::PoisonError::into_inner))).await
    }

    /// Whether this is a lead that is run by us: it gets no notices to itself.
    pub(super) fn is_lead(&self) -> bool {
        self.setup.id.agent.is_lead()
    }

    pub(super) fn lead() -> AgentName {
        AgentName::lead()
    }

    pub(super) fn trace(&self, id: posthouse_shared::name::MessageId, stage: Stage, detail: String) {
        self.deps.trace.step(id, TraceNote { at: self.deps.clock.now(), stage, detail, host: None });
    }

    /// Gives back what it still holds and closes the session.
    async fn leave(mut self: Box<Self>) {
        if self.current.is_some() {
            // Only where the loop was left without hearing of the turn's end; the recovery sees to it.
            tracing::warn!(agent = %self.setup.id, "leaves in a turn");
        }
        let shut_down = self.mind.life == Life::Resting(Rest::Shutdown) && !self.owes_standing();
        let request: Vec<Lease> = self.request.take().into_iter().map(|claimed| claimed.lease).collect();
        let urgent: Vec<Lease> = self.urgent.drain(..).map(|claimed| claimed.lease).collect();
        let left = in_mailbox(&self.mailbox, move |mailbox| {
            if shut_down {
                mailbox.ack(&request)?;
            } else {
                mailbox.release(&request, Release::Planned)?;
            }
            mailbox.release(&urgent, Release::Planned)
        })
        .await;
        if let Err(error) = left {
            tracing::debug!(agent = %self.setup.id, %error, "leases are left for the next start");
        }
        let _hint_only = self.in_history(History::rest).await;
        self.session.close(CLOSE_TERM).await;
        self.announce(None);
    }

    pub(super) async fn fail_to_start(&mut self, why: String) {
        let outcome = Outcome::AgentError { why, exit: None, said: String::new(), tail: String::new() };
        self.ended(outcome).await;
    }
}

/// Whether trying again may help.
pub(crate) fn retryable(refusal: &Refusal) -> bool {
    match refusal.kind {
        FailureKind::Failed | FailureKind::Unreachable | FailureKind::TimedOut => true,
        FailureKind::Usage | FailureKind::Refused => refusal.retry_after_ms.is_some(),
    }
}
