//! The authority as teammates of this host see it: asked over the bus. What needs no authority is done here:
//! mail is accepted on this host, so that sending goes on while the coordinator is away.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::time::Duration;

use async_trait::async_trait;
use posthouse_shared::clock::Stamp;
use posthouse_shared::codes::Code;
use posthouse_shared::generation::{Birth, Generation};
use posthouse_shared::message::Kind;
use posthouse_shared::name::{AgentId, AgentName, ScheduleId, TeamName};
use posthouse_shared::refusal::Refusal;
use posthouse_shared::supervise::Closing;
use posthouse_shared::task::{Claim, ClaimedTask};
use posthouse_shared::team::Standing;
use posthouse_shared::wire::Caller;
use posthouse_shared::wire::event::What;
use posthouse_shared::wire::replies::SendReply;
use posthouse_shared::wire::requests::Request;
use serde::de::DeserializeOwned;
use serde_json::Value;
use tokio::sync::{Notify, mpsc};

use super::ask::{Asker, NoAnswer};
use super::wire::{ASK, Ask, Said};
use crate::node::NodeHandle;
use crate::port::{AuthorityPort, GaveUp, Report};
use crate::post::{Draft, DraftId};

/// An answer takes at most so long, beside the time that a request asks to wait.
const ANSWER: Duration = Duration::from_secs(5);
/// How often one call is tried; its caller decides about more.
const TRIES: u32 = 4;
/// Pause before the second try; doubles.
const AGAIN: Duration = Duration::from_millis(250);
/// What waits to be told; more is dropped, the next beat has the state.
const SAID: usize = 4_096;
/// Most in one telling.
const TELLING: usize = 128;

/// The port. Clones share it.
#[derive(Clone)]
pub struct BusPort(Arc<Inner>);

struct Inner {
    asker: Asker,
    node: OnceLock<NodeHandle>,
    said: mpsc::Sender<Said>,
    reports: Mutex<BTreeMap<AgentId, Report>>,
    told: Notify,
}

/// What waits to be told; for [`BusPort::tell`].
pub struct ToTell(mpsc::Receiver<Said>);

impl BusPort {
    /// A port, and what must be given to [`BusPort::tell`].
    pub fn new(asker: Asker) -> (Self, ToTell) {
        let (said, to_tell) = mpsc::channel(SAID);
        let inner =
            Inner { asker, node: OnceLock::new(), said, reports: Mutex::default(), told: Notify::new() };
        (Self(Arc::new(inner)), ToTell(to_tell))
    }

    /// Gives it the node whose port it is.
    pub fn serve(&self, node: NodeHandle) {
        if self.0.node.set(node).is_err() {
            tracing::error!("the port has a node already");
        }
    }

    /// What each teammate last said of itself.
    pub fn reports(&self) -> BTreeMap<AgentId, Report> {
        self.0.reports.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Forgets a teammate that no longer lives here.
    pub fn forget(&self, agent: &AgentId) {
        self.0.reports.lock().unwrap_or_else(PoisonError::into_inner).remove(agent);
    }

    /// Until something was told that makes the last beat an old one. Cancel-safe.
    pub async fn told(&self) {
        self.0.told.notified().await;
    }

    /// Tells the coordinator what happens, in order, until closing begins and nothing waits. What cannot be
    /// told is dropped.
    pub async fn tell(self, mut to_tell: ToTell, mut closing: Closing) {
        let mut said = Vec::new();
        loop {
            tokio::select! {
                biased;
                _some = to_tell.0.recv_many(&mut said, TELLING) => {}
                () = closing.wait() => return,
            }
            let reports = said.iter().any(|said| matches!(said, Said::Report { .. }));
            let count = said.len();
            let telling = Ask::Tell { said: std::mem::take(&mut said) };
            if let Err(error) = self.0.asker.ask::<Value>(ASK, &telling, ANSWER).await {
                tracing::debug!(%error, count, "not told");
            }
            if reports {
                self.0.told.notify_one();
            }
        }
    }

    /// Asks again where nobody heard it, and where asking twice does no harm.
    async fn asked<T: DeserializeOwned>(&self, ask: Ask, wait: Duration, twice: bool) -> Result<T, Refusal> {
        let (mut pause, mut left) = (AGAIN, TRIES);
        loop {
            left = left.saturating_sub(1);
            match self.0.asker.ask(ASK, &ask, wait).await {
                Ok(reply) => return Ok(reply),
                Err(NoAnswer::NotHeard) if left > 0 => {}
                Err(NoAnswer::Unknown) if left > 0 && twice => {}
                Err(error) => return Err(error.refusal()),
            }
            tokio::time::sleep(pause).await;
            pause = pause.saturating_mul(2);
        }
    }

    fn say(&self, said: Said) {
        if self.0.said.try_send(said).is_err() {
            tracing::debug!("too much waits to be told");
        }
    }

    /// A turn sends: accepted on this host, whether the coordinator is there or not.
    fn send(&self, caller: &Caller, request: Request) -> Result<Value, Refusal> {
        let Request::Send { team, to, body, id, summary, in_reply_to, urgent, as_agent } = request else {
            return Err(Refusal::new(Code::Internal, "not a message"));
        };
        let Caller::Agent { id: from, .. } = caller else {
            return Err(Refusal::new(Code::OperatorOnly, "the operator sends at the coordinator"));
        };
        let other = as_agent.filter(|name| name != from.agent.as_str());
        if team != from.team.as_str() || other.is_some() {
            let text = format!("{from} sends as itself, in its own team");
            return Err(Refusal::new(Code::NotYourself, text).effect("nothing was sent"));
        }
        if urgent && !from.agent.is_lead() {
            return Err(Refusal::new(Code::OperatorOnly, "only the lead marks mail as urgent")
                .effect("nothing was sent")
                .next("leave --urgent away"));
        }
        let node =
            self.0.node.get().ok_or_else(|| {
                Refusal::new(Code::ShuttingDown, "the node is starting").retry_after_ms(500)
            })?;
        let (to, residence): (AgentName, _) = node.directory().recipient(&from.team, &to)?;
        let posted = node.post().send(Draft {
            from: from.clone(),
            to: to.clone(),
            kind: Kind::Message,
            body,
            summary,
            in_reply_to,
            control: urgent,
            id: id.map_or(DraftId::Fresh, DraftId::Chosen),
            trace: None,
        })?;
        if let Some(what) = posted.event(node.post().host()) {
            self.event(what);
        }
        let reads = format!("{to} lives on {}, reads it next turn", residence.host);
        let reply = SendReply { id: posted.id, state: posted.state, reads, duplicate: posted.duplicate };
        serde_json::to_value(reply).map_err(|e| Refusal::new(Code::Internal, "encode the answer").because(&e))
    }
}

/// How long a request asks to wait by itself.
fn asks_to_wait(request: &Request) -> Duration {
    let fields = serde_json::to_value(request).unwrap_or_default();
    Duration::from_millis(fields.get("timeout_ms").and_then(Value::as_u64).unwrap_or(0))
}

#[async_trait]
impl AuthorityPort for BusPort {
    async fn request(&self, caller: Caller, request: Request) -> Result<Value, Refusal> {
        if matches!(request, Request::Send { .. }) {
            let port = self.clone();
            return tokio::task::spawn_blocking(move || port.send(&caller, request))
                .await
                .map_err(|error| Refusal::new(Code::Internal, "work on files").because(&error))?;
        }
        let wait = ANSWER + asks_to_wait(&request);
        self.asked(Ask::Request { caller, request }, wait, false).await
    }

    async fn claim_next(
        &self,
        agent: &AgentId,
        generation: Generation,
        request_id: &str,
    ) -> Result<Option<ClaimedTask>, Refusal> {
        let (agent, request_id) = (agent.clone(), request_id.to_owned());
        self.asked(Ask::ClaimNext { agent, generation, request_id }, ANSWER, true).await
    }

    async fn complete(
        &self,
        agent: &AgentId,
        claim: &Claim,
        result: &str,
        request_id: &str,
    ) -> Result<(), Refusal> {
        let (agent, claim) = (agent.clone(), claim.clone());
        let (result, request_id) = (result.to_owned(), request_id.to_owned());
        self.asked(Ask::Complete { agent, claim, result, request_id }, ANSWER, true).await
    }

    async fn give_up(
        &self,
        agent: &AgentId,
        claim: &Claim,
        how: &GaveUp,
        request_id: &str,
    ) -> Result<(), Refusal> {
        let (agent, claim) = (agent.clone(), claim.clone());
        let (how, request_id) = (how.clone(), request_id.to_owned());
        self.asked(Ask::GiveUp { agent, claim, how, request_id }, ANSWER, true).await
    }

    async fn standing(
        &self,
        agent: &AgentId,
        generation: Generation,
        command: Generation,
        standing: Standing,
        request_id: &str,
    ) -> Result<(), Refusal> {
        let (agent, request_id) = (agent.clone(), request_id.to_owned());
        let ask = Ask::Standing { agent, generation, command, standing, request_id };
        self.asked(ask, ANSWER, true).await
    }

    async fn ticked(&self, team: &TeamName, schedule: &ScheduleId, birth: Birth, through: Stamp) {
        let (team, schedule) = (team.clone(), schedule.clone());
        let ask = Ask::Ticked { team, schedule, birth, through };
        if let Err(error) = self.asked::<Value>(ask, ANSWER, true).await {
            tracing::warn!(%error, "tell of a schedule's tick");
        }
    }

    fn report(&self, agent: &AgentId, report: Report) {
        self.0.reports.lock().unwrap_or_else(PoisonError::into_inner).insert(agent.clone(), report.clone());
        self.say(Said::Report { agent: agent.clone(), report });
    }

    fn reports(&self) -> Vec<(AgentId, Report)> {
        BusPort::reports(self).into_iter().collect()
    }

    fn event(&self, what: What) {
        self.say(Said::Event { what: Box::new(what) });
    }
}
