//! The coordinator at work: requests come in, decisions go to the authority, mail to the post, and answers are
//! made from the one read model.
//!
//! | file | what it answers |
//! |---|---|
//! | `dispatch` | which function a request goes to |
//! | [`permission`] | who may ask for what |
//! | `sight` | all that is known of a team at one moment |
//! | `teams`, `agents`, `tasks`, `schedules` | decisions, and what they decided on |
//! | `mail`, `quarantine`, `trace` | messages |
//! | `wait` | conditions and reasons |
//! | `effects` | what decisions cause: homes, mail, events; each once |
//! | `elsewhere` | what lies on other hosts' disks, asked there |
//! | `hosts` | what other hosts ask, and must know |
//! | `port` | what the node asks of the authority |

mod agents;
mod dispatch;
mod effects;
mod elsewhere;
mod hosts;
mod mail;
pub mod permission;
mod port;
mod quarantine;
mod schedules;
mod sight;
mod tasks;
mod teams;
mod trace;
mod wait;

use std::path::PathBuf;
use std::sync::{Arc, OnceLock};

use async_trait::async_trait;
use posthouse_node::bus::ask::Asker;
use posthouse_node::node::NodeHandle;
use posthouse_shared::clock::{Clock, Stamp};
use posthouse_shared::codes::Code;
use posthouse_shared::durable::Files;
use posthouse_shared::identity::HostPublicKey;
use posthouse_shared::limits::Limits;
use posthouse_shared::name::HostName;
use posthouse_shared::refusal::Refusal;
use posthouse_shared::supervise::Supervisor;
use posthouse_shared::wire::replies::{Setting, Status};
use posthouse_shared::wire::requests::Request;
use posthouse_shared::wire::{Answer, AsOf, Caller};
use serde::Serialize;
use serde_json::Value;
use tokio::sync::watch;

use crate::authority::{Authority, State};
use crate::beats::Beats;
use crate::events::Events;
use crate::http::Api;
use crate::lead::Inboxes;
use crate::live::Live;

/// What a service is made from.
pub struct Setup {
    /// The authority, open.
    pub authority: Authority,
    /// The durable layer.
    pub files: Files,
    /// Time.
    pub clock: Arc<dyn Clock>,
    /// The limits in force.
    pub limits: Arc<Limits>,
    /// The operator's token.
    pub token: String,
    /// Who answers, as `status` tells it.
    pub status: Status,
    /// All settings in force, as `config` tells them.
    pub settings: Vec<Setting>,
    /// The data directory.
    pub data: PathBuf,
    /// The NATS servers, where other hosts may join.
    pub nats: Option<String>,
    /// This host's public key, where it has one.
    pub key: Option<HostPublicKey>,
    /// What happened.
    pub events: Events,
    /// Joins what the service starts.
    pub supervisor: Supervisor,
}

/// The service. Clones share it.
#[derive(Clone)]
pub struct Service(Arc<Inner>);

struct Inner {
    setup: Setup,
    node: OnceLock<NodeHandle>,
    live: Live,
    inboxes: Inboxes,
    /// Index of the newest journal entry whose effects have been carried out.
    carried_out: watch::Sender<u64>,
    beats: Beats,
    /// The line to other hosts, where there may be any.
    hosts: OnceLock<Asker>,
    /// Index of the newest entry that changed what hosts must know.
    orders: watch::Sender<u64>,
}

impl std::fmt::Debug for Service {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Service")
    }
}

impl Service {
    /// A service whose node is not there yet: it answers what needs none.
    pub fn new(setup: Setup) -> Self {
        let live = Live::default();
        let beats = Beats::new(&setup.limits);
        let inboxes = Inboxes::new(setup.files.clone(), setup.data.clone(), Arc::clone(&setup.clock));
        Self(Arc::new(Inner {
            setup,
            node: OnceLock::new(),
            live,
            inboxes,
            carried_out: watch::Sender::new(0),
            beats,
            hosts: OnceLock::new(),
            orders: watch::Sender::new(0),
        }))
    }

    /// Gives the service its node, and carries out what the journal still asks for; from then on effects
    /// follow decisions.
    pub async fn start(&self, node: NodeHandle) -> Result<(), Refusal> {
        if self.0.node.set(node).is_err() {
            return Err(Refusal::new(Code::Internal, "the service has a node already"));
        }
        effects::start(self).await
    }

    /// The supervisor that joins what the service starts.
    pub fn supervisor(&self) -> &Supervisor {
        &self.0.setup.supervisor
    }

    /// Wakes whenever something was decided.
    pub fn changes(&self) -> watch::Receiver<Arc<State>> {
        self.authority().changes()
    }

    fn node(&self) -> Result<&NodeHandle, Refusal> {
        self.0
            .node
            .get()
            .ok_or_else(|| Refusal::new(Code::ShuttingDown, "the node is starting").retry_after_ms(500))
    }

    fn authority(&self) -> &Authority {
        &self.0.setup.authority
    }

    fn limits(&self) -> &Limits {
        &self.0.setup.limits
    }

    fn now(&self) -> Stamp {
        self.0.setup.clock.now()
    }

    fn live(&self) -> &Live {
        &self.0.live
    }

    fn host(&self) -> &HostName {
        &self.0.setup.status.host
    }

    fn as_of(&self) -> AsOf {
        let state = self.authority().state();
        let age = self.now().since(state.at);
        AsOf { seq: state.head.index, age_ms: u64::try_from(age.as_millis()).unwrap_or(u64::MAX) }
    }

    /// The whole answer around a reply.
    fn answer_with<T: Serialize>(&self, reply: T) -> Result<Value, Refusal> {
        serde_json::to_value(Answer { v: 1, as_of: self.as_of(), reply })
            .map_err(|error| Refusal::new(Code::Internal, "encode the answer").because(&error))
    }

    /// Runs file work away from the threads that answer.
    async fn blocking<T: Send + 'static>(
        &self,
        work: impl FnOnce(&Self) -> Result<T, Refusal> + Send + 'static,
    ) -> Result<T, Refusal> {
        let service = self.clone();
        tokio::task::spawn_blocking(move || work(&service))
            .await
            .map_err(|error| Refusal::new(Code::Internal, "work on files").because(&error))?
    }
}

#[async_trait]
impl Api for Service {
    fn caller(&self, token: &str) -> Option<Caller> {
        // Compared whole, without an early end, so that timing tells nothing.
        let own = self.0.setup.token.as_bytes();
        let same =
            own.len() == token.len() && own.iter().zip(token.bytes()).fold(0, |d, (a, b)| d | (a ^ b)) == 0;
        same.then_some(Caller::Operator)
    }

    async fn answer(&self, caller: Caller, request: Request) -> Result<Value, Refusal> {
        self.dispatch(caller, request).await
    }

    fn events(&self) -> &Events {
        &self.0.setup.events
    }

    async fn ready(&self) -> Result<(), String> {
        match self.supervisor().closing().begun() {
            true => Err("the coordinator is closing".to_owned()),
            false => self.node().map(|_| ()).map_err(|refusal| refusal.message),
        }
    }
}
