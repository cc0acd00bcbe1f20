//! The link over NATS: mail through the stream `PH_RELAY`, notes through core NATS. Nothing here rests on a
//! publish acknowledgement or on redelivery; both only save time.
//!
//! Traps of async-nats 0.51 that are minded here: an acknowledgement in flight at a disconnect waits out its
//! whole timeout (so timeouts are explicit and short), `MissingHeartbeat` is not the end of a consumer, and a
//! reconnect has no jitter of its own.

use std::time::Duration;

use async_nats::connection::State;
use async_nats::jetstream::ErrorCode;
use async_nats::jetstream::consumer::pull::{Config as ConsumerConfig, MessagesErrorKind, Stream as Pulled};
use async_nats::jetstream::consumer::{AckPolicy, PullConsumer};
use async_nats::jetstream::context::{ConsumerInfoErrorKind, Context, ContextBuilder, GetStreamErrorKind};
use async_nats::jetstream::message::PublishMessage;
use async_nats::jetstream::stream::{Config as StreamConfig, DiscardPolicy, RetentionPolicy, StorageType};
use async_nats::{Client, ConnectOptions, Event, Subscriber, jetstream};
use async_trait::async_trait;
use futures_util::future::{FutureExt, join_all};
use futures_util::stream::{StreamExt, TryStreamExt};
use posthouse_shared::generation::Generation;
use posthouse_shared::name::HostName;
use posthouse_shared::wire::subjects;
use tokio::sync::watch;
use uuid::Uuid;

use super::{AckToken, Arrival, Inbound, Link, LinkError, LinkState, Parcel};

/// A publish without an answer for so long is unknown.
const PUBLISH_TIMEOUT: Duration = Duration::from_secs(3);
const REQUEST_TIMEOUT: Duration = Duration::from_secs(3);
const RECONNECT_MAX: Duration = Duration::from_secs(2);
const BATCH: usize = 256;
const HEARTBEAT: Duration = Duration::from_secs(5);
const PULL_EXPIRES: Duration = Duration::from_secs(30);
/// Heartbeats in a row that may be missing before the consumer is looked for.
const HEARTBEATS_MISSING_MAX: u32 = 2;
/// An unacknowledged delivery comes again after this: the receiver died.
const ACK_WAIT: Duration = Duration::from_secs(30);
/// Messages of one subject (a pair of hosts) in the stream: beyond, publishing is refused and tried again.
const SUBJECT_MESSAGES_MAX: i64 = 65_536;
const CONSUMERS_MAX: i32 = 2_000;
const DUPLICATE_WINDOW: Duration = Duration::from_secs(120);

const AFTER: &str = "Ph-After";
const HANDLED: &str = "Ph-Handled";
/// The oldest server that will do.
const SERVER: (u64, u64) = (2, 14);

/// The link of one process. Clones share the connection.
#[derive(Clone)]
pub struct NatsLink {
    client: Client,
    context: Context,
    state: watch::Receiver<LinkState>,
}

impl NatsLink {
    /// Connects to `url` as `name`. Goes on trying in the background where no server answers yet; see
    /// [`NatsLink::state`].
    pub async fn connect(url: &str, name: &str) -> Result<Self, LinkError> {
        let (told, state) = watch::channel(LinkState::default());
        let on_event = move |event: Event| {
            match event {
                Event::Connected => told.send_modify(|state| {
                    *state = LinkState { up: true, connects: state.connects + 1 };
                }),
                Event::Disconnected | Event::Closed => told.send_modify(|state| state.up = false),
                Event::ServerError(error) => tracing::warn!(%error, "bus"),
                Event::ClientError(error) => tracing::warn!(%error, "bus"),
                Event::SlowConsumer(_) | Event::LameDuckMode | Event::Draining => {
                    tracing::warn!(%event, "bus");
                }
            }
            std::future::ready(())
        };
        let options = ConnectOptions::new()
            .name(name)
            .retry_on_initial_connect()
            .max_reconnects(None)
            .connection_timeout(REQUEST_TIMEOUT)
            .request_timeout(Some(REQUEST_TIMEOUT))
            .reconnect_delay_callback(reconnect_delay)
            .event_callback(on_event);
        let client = options.connect(url).await.map_err(refused)?;
        Ok(Self::over(client, state))
    }

    /// A link over a connection that was made elsewhere; `state` must follow it (up or not, how often connected).
    pub fn over(client: Client, state: watch::Receiver<LinkState>) -> Self {
        let context = ContextBuilder::new().timeout(PUBLISH_TIMEOUT).ack_timeout(PUBLISH_TIMEOUT);
        let context = context.build(client.clone());
        Self { client, context, state }
    }

    /// The connection, for whoever speaks to the coordinator.
    pub fn client(&self) -> &Client {
        &self.client
    }

    /// The JetStream API over it.
    pub fn context(&self) -> &Context {
        &self.context
    }

    /// Refuses a server that is too old. Connected at return, or an error within `wait`.
    pub async fn check_server(&self, wait: Duration) -> Result<(), LinkError> {
        let mut state = self.state.clone();
        let up = tokio::time::timeout(wait, state.wait_for(|state| state.up)).await;
        if up.is_err() && self.client.connection_state() != State::Connected {
            return Err(LinkError::Unknown);
        }
        let version = self.client.server_info().version;
        let mut parts = version.split('.').map(|part| part.parse::<u64>().unwrap_or(0));
        let found = (parts.next().unwrap_or(0), parts.next().unwrap_or(0));
        if found < SERVER {
            let (major, minor) = SERVER;
            return Err(LinkError::Refused(format!(
                "the NATS server has version {version}; {major}.{minor} or newer is needed"
            )));
        }
        Ok(())
    }

    /// Makes the stream, or brings its settings up to date. For the coordinator only. Fine if it is there.
    pub async fn prepare_stream(&self, replicas: usize) -> Result<(), LinkError> {
        let config = StreamConfig {
            name: subjects::RELAY_STREAM.to_owned(),
            subjects: subjects::RELAY_STREAM_SUBJECTS.map(str::to_owned).to_vec(),
            retention: RetentionPolicy::WorkQueue,
            storage: StorageType::File,
            discard: DiscardPolicy::New,
            discard_new_per_subject: true,
            max_messages_per_subject: SUBJECT_MESSAGES_MAX,
            max_consumers: CONSUMERS_MAX,
            num_replicas: replicas,
            duplicate_window: DUPLICATE_WINDOW,
            ..StreamConfig::default()
        };
        self.context.create_or_update_stream(config).await.map_err(refused)?;
        Ok(())
    }

    /// Makes the consumer of a host's generation and ends those of earlier ones. For the coordinator only. Fine
    /// if it is there.
    pub async fn prepare_consumer(&self, host: &HostName, generation: Generation) -> Result<(), LinkError> {
        let name = subjects::relay_consumer(host, generation);
        let stream = self.context.get_stream_no_info(subjects::RELAY_STREAM).await.map_err(refused)?;
        let names: Vec<String> = stream.consumer_names().try_collect().await.map_err(refused)?;
        for old in names.iter().filter(|other| **other != name && is_consumer_of(other, host)) {
            stream.delete_consumer(old).await.map_err(refused)?;
        }
        if names.contains(&name) {
            return Ok(());
        }
        let config = ConsumerConfig {
            durable_name: Some(name),
            ack_policy: AckPolicy::Explicit,
            ack_wait: ACK_WAIT,
            max_deliver: -1,
            max_ack_pending: 10_000,
            filter_subjects: subjects::relay_filters(host).to_vec(),
            ..ConsumerConfig::default()
        };
        stream.create_consumer(config).await.map_err(refused)?;
        Ok(())
    }

    /// The names of the stream's consumers; [`LinkError::is_missing`] where there is no stream.
    pub async fn consumers(&self) -> Result<Vec<String>, LinkError> {
        let stream = match self.context.get_stream(subjects::RELAY_STREAM).await {
            Ok(stream) => stream,
            Err(error) => {
                return Err(match error.kind() {
                    GetStreamErrorKind::JetStream(error)
                        if error.error_code() == ErrorCode::STREAM_NOT_FOUND =>
                    {
                        LinkError::Missing(subjects::RELAY_STREAM.to_owned())
                    }
                    _other => refused(error),
                });
            }
        };
        stream.consumer_names().try_collect().await.map_err(refused)
    }

    /// Takes a removed host's consumer and mail off the bus. For the coordinator only.
    pub async fn remove_host(&self, host: &HostName) -> Result<(), LinkError> {
        let stream = self.context.get_stream_no_info(subjects::RELAY_STREAM).await.map_err(refused)?;
        let names: Vec<String> = stream.consumer_names().try_collect().await.map_err(refused)?;
        for name in names.iter().filter(|name| is_consumer_of(name, host)) {
            stream.delete_consumer(name).await.map_err(refused)?;
        }
        for filter in subjects::relay_filters(host) {
            stream.purge().filter(filter).await.map_err(refused)?;
        }
        Ok(())
    }
}

fn is_consumer_of(name: &str, host: &HostName) -> bool {
    let rest = name.strip_prefix("relay-").and_then(|rest| rest.strip_prefix(host.as_str()));
    let numbers = rest.and_then(|rest| rest.strip_prefix('-')).and_then(|rest| rest.split_once('-'));
    let number = |text: &str| !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    numbers.is_some_and(|(term, index)| number(term) && number(index))
}

fn reconnect_delay(attempts: usize) -> Duration {
    let doublings = u32::try_from(attempts).unwrap_or(8).min(8);
    let pause = (Duration::from_millis(25) * 2u32.pow(doublings)).min(RECONNECT_MAX);
    let jitter = f64::from(Uuid::new_v4().as_fields().0) / f64::from(u32::MAX);
    pause.mul_f64(0.5 + jitter / 2.0)
}

fn refused(error: impl std::fmt::Display) -> LinkError {
    LinkError::Refused(error.to_string())
}

#[async_trait]
impl Link for NatsLink {
    async fn publish(&self, parcels: Vec<Parcel>) -> Vec<Result<(), LinkError>> {
        let mut waiting = Vec::with_capacity(parcels.len());
        for parcel in parcels {
            let subject = subjects::relay(&parcel.to, &parcel.from, parcel.control);
            let mut message = PublishMessage::build().message_id(&parcel.msg_id).payload(parcel.bytes.into());
            if let Some(after) = parcel.after {
                message = message.header(AFTER, after.to_string().as_str());
            }
            if parcel.handled {
                message = message.header(HANDLED, "maybe");
            }
            // In this order; only the answers are awaited together.
            waiting.push(self.context.send_publish(subject, message).await);
        }
        let answers = waiting.into_iter().map(|sent| async {
            let taken = sent.map_err(refused)?;
            match tokio::time::timeout(PUBLISH_TIMEOUT, taken).await {
                Ok(Ok(_)) => Ok(()),
                Ok(Err(error)) => Err(refused(error)),
                Err(_) => Err(LinkError::Unknown),
            }
        });
        join_all(answers).await
    }

    async fn tell(&self, to: &HostName, from: &HostName, note: Vec<u8>) -> Result<(), LinkError> {
        let sent = self.client.publish(subjects::receipts(to, from), note.into());
        match tokio::time::timeout(REQUEST_TIMEOUT, sent).await {
            Ok(sent) => sent.map_err(refused),
            Err(_) => Err(LinkError::Unknown),
        }
    }

    async fn open(&self, host: &HostName, generation: Generation) -> Result<Box<dyn Inbound>, LinkError> {
        let name = subjects::relay_consumer(host, generation);
        let consumer: PullConsumer = self
            .context
            .get_consumer_from_stream(name, subjects::RELAY_STREAM)
            .await
            .map_err(|error| LinkError::Ended(error.to_string()))?;
        let pulled = consumer
            .stream()
            .max_messages_per_batch(BATCH)
            .expires(PULL_EXPIRES)
            .heartbeat(HEARTBEAT)
            .messages()
            .await
            .map_err(|error| LinkError::Ended(error.to_string()))?;
        let notes = self.client.subscribe(subjects::receipts_filter(host)).await.map_err(refused)?;
        let (client, host) = (self.client.clone(), host.clone());
        Ok(Box::new(Side { client, consumer, pulled, notes, host, missing: 0 }))
    }

    fn state(&self) -> watch::Receiver<LinkState> {
        self.state.clone()
    }
}

struct Side {
    client: Client,
    consumer: PullConsumer,
    pulled: Pulled,
    notes: Subscriber,
    host: HostName,
    missing: u32,
}

impl Side {
    async fn pulled(
        &mut self,
        next: Option<Result<jetstream::Message, async_nats::jetstream::consumer::pull::MessagesError>>,
    ) -> Result<Option<Arrival>, LinkError> {
        match next {
            None => Err(LinkError::Ended("no more messages".to_owned())),
            Some(Ok(message)) => {
                self.missing = 0;
                Ok(arrival(&self.host, message))
            }
            Some(Err(error)) if error.kind() == MessagesErrorKind::MissingHeartbeat => {
                self.missing += 1;
                if self.client.connection_state() != State::Connected {
                    return Ok(None);
                }
                match self.consumer.get_info().await {
                    Ok(_) => Ok(None),
                    // Just after a restart of the server its API may be silent for a while.
                    Err(error)
                        if matches!(
                            error.kind(),
                            ConsumerInfoErrorKind::NotFound | ConsumerInfoErrorKind::StreamNotFound
                        ) =>
                    {
                        Err(LinkError::Ended(error.to_string()))
                    }
                    Err(error) if self.missing > HEARTBEATS_MISSING_MAX => {
                        Err(LinkError::Ended(error.to_string()))
                    }
                    Err(_) => Ok(None),
                }
            }
            Some(Err(error)) => Err(LinkError::Ended(error.to_string())),
        }
    }
}

#[async_trait]
impl Inbound for Side {
    async fn next(&mut self, max: usize) -> Result<Vec<Arrival>, LinkError> {
        let mut arrivals = Vec::new();
        while arrivals.is_empty() {
            tokio::select! {
                note = self.notes.next() => match note {
                    Some(note) => arrivals.push(Arrival::Note(note.payload.to_vec())),
                    None => return Err(LinkError::Ended("no more notes".to_owned())),
                },
                next = self.pulled.next() => arrivals.extend(self.pulled(next).await?),
            }
        }
        while arrivals.len() < max
            && let Some(Some(note)) = self.notes.next().now_or_never()
        {
            arrivals.push(Arrival::Note(note.payload.to_vec()));
        }
        while arrivals.len() < max
            && let Some(Some(Ok(message))) = self.pulled.next().now_or_never()
        {
            arrivals.extend(arrival(&self.host, message));
        }
        Ok(arrivals)
    }

    async fn ack(&mut self, tokens: &[AckToken]) {
        for token in tokens {
            if let Err(error) = self.client.publish(token.0.clone(), "+ACK".into()).await {
                tracing::debug!(%error, "cannot acknowledge; it will come again");
            }
        }
    }
}

/// Nothing where the message is none of ours: its subject or header is foreign.
fn arrival(to: &HostName, message: jetstream::Message) -> Option<Arrival> {
    let mut parts = message.subject.split('.');
    let control = parts.nth(1)? == "relay_control";
    let from = HostName::new(parts.nth(1)?).ok()?;
    let header = |name: &str| message.headers.as_ref()?.get(name).map(|value| value.as_str().to_owned());
    let parcel = Parcel {
        from,
        to: to.clone(),
        control,
        msg_id: header("Nats-Msg-Id").unwrap_or_default(),
        after: header(AFTER).and_then(|text| text.parse().ok()),
        handled: header(HANDLED).is_some(),
        bytes: message.payload.to_vec(),
    };
    let token = AckToken(message.reply.as_ref()?.to_string());
    Some(Arrival::Parcel(parcel, token))
}
