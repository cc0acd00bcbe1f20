//! The loops of the bus: questions and beats of hosts are answered, hosts are nudged when something changes
//! that they must know, and silence is judged. Every question is answered, the refused ones too.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use async_nats::connection::State as Connection;
use futures_util::StreamExt;
use posthouse_node::bus::ask::Asker;
use posthouse_node::bus::connect;
use posthouse_node::bus::guard::Guard;
use posthouse_node::bus::wire::{ASK, Answered, Ask, BEAT, Signed, nudges};
use posthouse_node::link::jetstream::NatsLink;
use posthouse_node::port::AuthorityPort as _;
use posthouse_shared::clock::Clock;
use posthouse_shared::codes::Code;
use posthouse_shared::generation::Generation;
use posthouse_shared::identity::HostKey;
use posthouse_shared::name::HostName;
use posthouse_shared::refusal::Refusal;
use posthouse_shared::supervise::Closing;
use posthouse_shared::team::HostState;
use posthouse_shared::wire::event::What;
use posthouse_shared::wire::subjects::{host_of_consumer, relay_consumer};
use serde::de::DeserializeOwned;
use serde_json::Value;
use tokio::sync::Semaphore;

use crate::service::Service;

/// Questions that are answered at once; more wait in the subscription.
const AT_ONCE: usize = 1_024;
/// So often silence is judged.
const LOOK: Duration = Duration::from_millis(500);
/// So often it is looked whether the stream and the consumers are still there.
const KEEP: Duration = Duration::from_secs(3);
/// Copies of the stream.
const REPLICAS: usize = 1;

/// A connection to the bus, with the relay's stream as it must be.
#[derive(Clone)]
pub struct Bus {
    link: NatsLink,
}

impl Bus {
    /// Connects; refuses a server that cannot do what is needed.
    pub async fn connect(url: &str, host: &HostName) -> Result<Self, Refusal> {
        let link = connect::connect(url, host, false).await?;
        connect::jetstream(&link).await?;
        let bus = Self { link };
        bus.stream().await?;
        Ok(bus)
    }

    /// The link of the coordinator's own node.
    pub fn link(&self) -> &NatsLink {
        &self.link
    }

    fn client(&self) -> &async_nats::Client {
        self.link.client()
    }

    async fn stream(&self) -> Result<(), Refusal> {
        self.link.prepare_stream(REPLICAS).await.map_err(|e| unfit("make the relay's stream", &e))
    }

    /// Makes sure that a host has its consumer, and no other.
    pub async fn consumer(&self, host: &HostName, generation: Generation) -> Result<(), Refusal> {
        let made = self.link.prepare_consumer(host, generation).await;
        made.map_err(|e| unfit("make the consumer of a host", &e))
    }
}

/// Starts to serve; hosts are answered at return.
pub async fn start(
    service: &Service,
    bus: Bus,
    key: HostKey,
    clock: Arc<dyn Clock>,
    skew: Duration,
) -> Result<(), Refusal> {
    service.reach_hosts(Asker::new(
        bus.client().clone(),
        service.own_host().clone(),
        key,
        Arc::clone(&clock),
    ));
    for host in service.state().hosts.values() {
        bus.consumer(&host.name, host.generation).await?;
    }
    let listen = |error: &(dyn std::error::Error + 'static)| {
        Refusal::new(Code::BusUnreachable, "listen on the bus").because(error)
    };
    let asks = bus.client().subscribe(ASK).await.map_err(|e| listen(&e))?;
    let beats = bus.client().subscribe(BEAT).await.map_err(|e| listen(&e))?;
    let desk = Desk {
        service: service.clone(),
        bus,
        clock,
        guard: Arc::new(Mutex::new(Guard::new(skew))),
        room: Arc::new(Semaphore::new(AT_ONCE)),
    };
    let supervisor = service.supervisor();
    supervisor.start("bus questions", desk.clone().serve(asks, ASK, supervisor.closing()));
    supervisor.start("bus beats", desk.clone().serve(beats, BEAT, supervisor.closing()));
    supervisor.start("nudges", desk.clone().nudge(supervisor.closing()));
    supervisor.start("streams", desk.clone().keep(supervisor.closing()));
    supervisor.start("silence", desk.watch(supervisor.closing()));
    Ok(())
}

#[derive(Clone)]
struct Desk {
    service: Service,
    bus: Bus,
    clock: Arc<dyn Clock>,
    guard: Arc<Mutex<Guard>>,
    room: Arc<Semaphore>,
}

impl Desk {
    async fn serve(self, mut from: async_nats::Subscriber, subject: &'static str, mut closing: Closing) {
        loop {
            let message = tokio::select! {
                message = from.next() => message,
                () = closing.wait() => return,
            };
            let Some(message) = message else { return };
            let Ok(permit) = Arc::clone(&self.room).acquire_owned().await else { return };
            let desk = self.clone();
            self.service.supervisor().start("bus question", async move {
                let answer = match desk.answer(subject, &message.payload).await {
                    Ok(reply) => Answered::Reply(reply),
                    Err(refusal) => {
                        tracing::debug!(subject, error = %refusal, "a host is refused");
                        Answered::Refused(refusal)
                    }
                };
                drop(permit);
                let Some(to) = message.reply else { return };
                let bytes = serde_json::to_vec(&answer).unwrap_or_default();
                if let Err(error) = desk.bus.client().publish(to, bytes.into()).await {
                    tracing::warn!(%error, "answer a host");
                }
            });
        }
    }

    async fn answer(&self, subject: &'static str, payload: &[u8]) -> Result<Value, Refusal> {
        let signed: Signed = read(payload)?;
        let host = &signed.host;
        if subject == BEAT {
            self.check(&signed, subject, false)?;
            let news = self.service.host_beats(host, read(signed.body.as_bytes())?)?;
            return serde_json::to_value(news)
                .map_err(|e| Refusal::new(Code::Internal, "encode").because(&e));
        }
        match read::<Ask>(signed.body.as_bytes())? {
            Ask::Join { start, token } => {
                self.check(&signed, subject, true)?;
                let joined = self.service.host_joins(host, &signed.key, start, token).await?;
                self.bus.consumer(host, joined.generation).await?;
                self.service.beats().heard(host, self.clock.boot());
                tracing::info!(%host, generation = %joined.generation, "host joined");
                serde_json::to_value(joined).map_err(|e| Refusal::new(Code::Internal, "encode").because(&e))
            }
            ask => {
                self.check(&signed, subject, false)?;
                self.service.beats().heard(host, self.clock.boot());
                self.service.host_asks(host, ask).await
            }
        }
    }

    fn check(&self, signed: &Signed, subject: &str, joins: bool) -> Result<(), Refusal> {
        let state = self.service.state();
        let registered = state.hosts.get(&signed.host).and_then(|host| host.key.as_deref());
        let registered = match (joins, registered) {
            // Whether its key may take the name is the authority's decision.
            (true, _) => None,
            (false, Some(key)) => Some(key),
            (false, None) => {
                let text = format!("host \"{}\" has not joined", signed.host);
                return Err(Refusal::new(Code::Unauthorized, text).next("posthouse hosts token"));
            }
        };
        let mut guard = self.guard.lock().unwrap_or_else(PoisonError::into_inner);
        guard.check(signed, subject, registered, self.clock.now())
    }

    /// Tells hosts that something has changed. A nudge may be lost: the next beat's answer says the same.
    async fn nudge(self, mut closing: Closing) {
        let mut changes = self.service.changes();
        loop {
            tokio::select! {
                changed = changes.changed() => if changed.is_err() { return },
                () = closing.wait() => return,
            }
            changes.mark_unchanged();
            let news = self.service.news();
            let bytes: bytes::Bytes = serde_json::to_vec(&news).unwrap_or_default().into();
            for host in self.service.state().hosts.keys().filter(|host| *host != self.service.own_host()) {
                if let Err(error) = self.bus.client().publish(nudges(host), bytes.clone()).await {
                    tracing::debug!(%host, %error, "nudge a host");
                }
            }
        }
    }

    /// Makes anew what the bus has forgotten: the stream, and the consumers. What was in it is on the senders'
    /// disks, and comes again.
    async fn keep(self, mut closing: Closing) {
        loop {
            tokio::select! {
                () = tokio::time::sleep(KEEP) => {}
                () = closing.wait() => return,
            }
            if let Err(error) = self.look_after().await {
                tracing::debug!(%error, cause = ?error.cause, "the relay's stream is not as it must be; again soon");
            }
        }
    }

    async fn look_after(&self) -> Result<(), Refusal> {
        let known = match self.bus.link.consumers().await {
            Ok(known) => known,
            Err(error) if error.is_missing() => {
                tracing::warn!("the relay's stream is gone; it is made anew");
                self.bus.stream().await?;
                Vec::new()
            }
            Err(error) => return Err(unfit("look at the relay's stream", &error)),
        };
        let hosts = &self.service.state().hosts;
        for host in known.iter().filter_map(|consumer| host_of_consumer(consumer)) {
            if !hosts.contains_key(&host) {
                tracing::info!(%host, "the mail of a removed host is taken off the bus");
                self.bus.link.remove_host(&host).await.map_err(|e| unfit("remove a host", &e))?;
            }
        }
        for host in hosts.values() {
            if !known.contains(&relay_consumer(&host.name, host.generation)) {
                self.bus.consumer(&host.name, host.generation).await?;
            }
        }
        Ok(())
    }

    /// Judges silence. That a host is lost, or heard again, is journaled once.
    async fn watch(self, mut closing: Closing) {
        let mut told: BTreeMap<HostName, HostState> = BTreeMap::new();
        loop {
            tokio::select! {
                () = tokio::time::sleep(LOOK) => {}
                () = closing.wait() => return,
            }
            let now = self.clock.boot();
            let beats = self.service.beats();
            beats.bus(self.bus.client().connection_state() == Connection::Connected, now);
            let state = self.service.state();
            for host in state.hosts.values().filter(|host| host.name != *self.service.own_host()) {
                let seen = match host.lost.is_some() {
                    false if beats.is_lost(&host.name, now) => Some(true),
                    true if beats.is_heard(&host.name, now) => Some(false),
                    true | false => None,
                };
                if let Some(lost) = seen
                    && let Err(error) = self.service.host_seen(&host.name, lost).await
                {
                    tracing::warn!(host = %host.name, %error, "journal how a host is");
                }
                let how = beats.state(&host.name, host.lost.is_some(), now);
                if told.insert(host.name.clone(), how) != Some(how) {
                    tracing::info!(host = %host.name, state = how.as_str(), "host");
                    self.service.event(What::HostState { host: host.name.clone(), state: how });
                }
            }
        }
    }
}

fn unfit(what: &str, error: &(dyn std::error::Error + 'static)) -> Refusal {
    // The link keeps no more of the server's answer than its text.
    let text = error.to_string();
    let code = match text.contains("resources") || text.contains("maximum bytes") {
        true => Code::BusFull,
        false if text.contains("timed out") => Code::BusForbidden,
        false => Code::BusUnfit,
    };
    Refusal::new(code, what).because(error).next("nats-server --jetstream")
}

fn read<T: DeserializeOwned>(bytes: &[u8]) -> Result<T, Refusal> {
    serde_json::from_slice(bytes)
        .map_err(|error| Refusal::new(Code::BadRequest, "a message of a host cannot be read").because(&error))
}
