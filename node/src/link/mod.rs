//! The link between hosts: what the relay needs of a bus, and no more. A link may drop, repeat, delay and
//! reorder whatever it carries, and may forget what it has acknowledged; the relay is right on top of all that.
//! Over NATS it is [`jetstream`], in one process [`in_process`]; the relay's tests run over both.
//!
//! How a daemon uses it over NATS:
//!
//! ```text
//! every host    let link = NatsLink::connect(url, name).await?;      connected again for ever, see Link::state
//!               or NatsLink::over(client, state)                     where somebody else made the connection
//! coordinator   link.prepare_stream(replicas)                        PH_RELAY, at the start and whenever it is gone
//!               link.prepare_consumer(host, generation)              at each grant of a host's name; ends older ones
//!               link.remove_host(host)                               a removed host's consumer and mail
//! every host    NodeOptions { link: Some(HostLink { link: Arc::new(link), key, generation }), .. }
//! ```
//!
//! `generation` is the grant of the host's *name* (the answer to its join), not that of an agent: consumer names carry
//! it. The relay opens the inbound side by itself, and again, after 0.1 to 5 s, whenever it ends: the consumer deleted
//! or made anew, the stream deleted, a newer process of the host. So the coordinator may make stream and consumers
//! before or after the hosts start. A host never makes either.

pub mod in_process;
pub mod jetstream;

use std::sync::Arc;

use async_trait::async_trait;
use posthouse_shared::generation::Generation;
use posthouse_shared::identity::HostKey;
use posthouse_shared::name::HostName;
use tokio::sync::watch;

/// A message on its way.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Parcel {
    /// The host that it comes from.
    pub from: HostName,
    /// The host that it goes to.
    pub to: HostName,
    /// Whether it goes on the control subject.
    pub control: bool,
    /// What the bus may drop repetitions by: `<id>:<to>:<generation>:<try>`.
    pub msg_id: String,
    /// The highest lower number of its lane that is not done.
    pub after: Option<u64>,
    /// An earlier home of the recipient may have handled it.
    pub handled: bool,
    /// The sealed envelope.
    pub bytes: Vec<u8>,
}

/// What comes out of a link.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Arrival {
    /// A message; it is to be acknowledged with this token, whatever became of it.
    Parcel(Parcel, AckToken),
    /// A note, see `shared::wire::receipts`.
    Note(Vec<u8>),
}

/// Names one delivery to its link.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AckToken(pub String);

/// What a link could not do. Each is worth another try.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum LinkError {
    /// Not known whether it was done: no answer in time.
    #[error("no answer from the bus in time")]
    Unknown,
    /// The bus said no, or is not there.
    #[error("the bus refused: {0}")]
    Refused(String),
    /// The bus has nothing of this name.
    #[error("the bus has no {0}")]
    Missing(String),
    /// The inbound side has ended (consumer deleted, stream gone): open it again.
    #[error("the inbound side has ended: {0}")]
    Ended(String),
}

impl LinkError {
    /// Whether the bus has forgotten what was asked for.
    pub const fn is_missing(&self) -> bool {
        matches!(self, Self::Missing(_))
    }
}

/// How the link is.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct LinkState {
    /// Whether it is connected.
    pub up: bool,
    /// How often it was connected anew.
    pub connects: u64,
}

/// A bus between hosts.
#[async_trait]
pub trait Link: Send + Sync + 'static {
    /// Hands parcels over in this order; answers for each whether the bus has taken it. Bounded in time.
    async fn publish(&self, parcels: Vec<Parcel>) -> Vec<Result<(), LinkError>>;

    /// Sends a note. It may be lost without a word.
    async fn tell(&self, to: &HostName, from: &HostName, note: Vec<u8>) -> Result<(), LinkError>;

    /// Opens the inbound side of a host: its durable consumer, and its notes.
    async fn open(&self, host: &HostName, generation: Generation) -> Result<Box<dyn Inbound>, LinkError>;

    /// Whether it is connected, and how often it was.
    fn state(&self) -> watch::Receiver<LinkState>;
}

/// The inbound side of a link.
#[async_trait]
pub trait Inbound: Send {
    /// Waits for something and answers what is there, at most `max`. Cancel-safe. An error means that this side
    /// has ended.
    async fn next(&mut self, max: usize) -> Result<Vec<Arrival>, LinkError>;

    /// Tells the bus that these need not be delivered again. May be lost.
    async fn ack(&mut self, tokens: &[AckToken]);
}

/// How a node takes part in the relay.
#[derive(Clone)]
pub struct HostLink {
    /// The bus.
    pub link: Arc<dyn Link>,
    /// This host's key: it signs what goes to other hosts.
    pub key: HostKey,
    /// The grant of this host's name.
    pub generation: Generation,
}
