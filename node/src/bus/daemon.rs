//! A host of its own: joins, runs a node under the coordinator's orders, and closes.
//!
//! Order at the start: data directory (lock, boot counter, key) -> NATS -> join -> node -> orders. It is ready once
//! its orders are carried out. A host that was taken in before and that nobody answers starts with the orders of
//! its last life, and joins as soon as somebody does.

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::OsString;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use futures_util::StreamExt;
use posthouse_shared::clock::{Clock, SystemClock};
use posthouse_shared::codes::Code;
use posthouse_shared::durable::{CrashPoints, Files, RealDisk};
use posthouse_shared::generation::Generation;
use posthouse_shared::limits::Limits;
use posthouse_shared::name::HostName;
use posthouse_shared::refusal::Refusal;
use posthouse_shared::supervise::{Closing, Supervisor};
use tokio::sync::watch;

use super::ask::{Asker, NoAnswer};
use super::beats::{self, Heard};
use super::connect;
use super::looks::Looks;
use super::orders::{self, Follower, Saved};
use super::port::BusPort;
use super::wire::{ASK, Ask, Joined, News, Orders, Start, looks, nudges};
use crate::data::DataDir;
use crate::directory::Directory;
use crate::host_keys::open_host_key;
use crate::link::HostLink;
use crate::mailbox::Incarnation;
use crate::node::{Node, NodeHandle, NodeOptions};

/// Joining takes the coordinator one journal entry and some calls to NATS.
const JOIN: Duration = Duration::from_secs(10);
/// A host that knows its orders waits so long for the coordinator before it starts with them.
const ALONE: Duration = Duration::from_secs(4);
/// Pause before a question that nobody answered is asked again.
const AGAIN: Duration = Duration::from_millis(500);
/// Requests under way get so long when the host closes.
const BUS_GRACE: Duration = Duration::from_secs(5);

/// What a host is started with.
#[derive(Debug)]
pub struct DaemonOptions {
    /// The data directory.
    pub data: PathBuf,
    /// The host's name; needed for none but the first start.
    pub name: Option<HostName>,
    /// Address of NATS.
    pub nats: String,
    /// The join token; needed for none but the first start.
    pub join: Option<String>,
    /// What placement can ask for.
    pub labels: BTreeMap<String, String>,
    /// The limits in force.
    pub limits: Limits,
    /// The process's environment: teammates get an allow-list of it.
    pub environment: Vec<(OsString, OsString)>,
    /// A crash point to abort at, for tests.
    pub crash_at: Option<String>,
}

/// A host that runs.
pub struct Daemon {
    node: NodeHandle,
    host: HostName,
    supervisor: Supervisor,
    heard: watch::Receiver<Heard>,
    /// Held until the end.
    _data: DataDir,
}

impl Daemon {
    /// Starts the host. Its orders are carried out at return.
    pub async fn start(options: DaemonOptions) -> Result<Self, Refusal> {
        let crash = options.crash_at.as_deref().map_or_else(CrashPoints::none, CrashPoints::abort_at);
        let files = Files::new(Arc::new(RealDisk), crash);
        let clock: Arc<dyn Clock> = Arc::new(SystemClock);
        let limits = Arc::new(options.limits);
        let data = DataDir::open(&options.data, options.name, &files, clock.as_ref())?;
        let internal = |what: &str, error: &(dyn std::error::Error + 'static)| {
            Refusal::new(Code::Internal, what).because(error).effect("nothing was started")
        };
        let key = open_host_key(&files, data.root()).map_err(|e| internal("open the host's key", &e))?;
        let host = data.host.host.clone();
        let saved = Saved::at(files.clone(), data.root());
        let known = saved.read().and_then(|orders| Some((grant_in(&orders, &host)?, orders)));
        let link = connect::connect(&options.nats, &host, known.is_some()).await?;
        let client = link.client().clone();
        let asker = Asker::new(client.clone(), host.clone(), key.clone(), Arc::clone(&clock));
        let ask = Ask::Join {
            start: Start {
                data_id: data.host.data_id.clone(),
                boot: data.host.boot,
                process: uuid::Uuid::new_v4().simple().to_string(),
                labels: options.labels,
                runners: BTreeSet::from(["command".to_owned()]),
            },
            token: options.join,
        };
        let joined = match &known {
            None => Some(join(&asker, &ask).await?),
            Some(_) => match tokio::time::timeout(ALONE, join(&asker, &ask)).await {
                Ok(joined) => Some(joined?),
                Err(_) => None,
            },
        };
        let (generation, alone) = match (joined, known) {
            (Some(joined), _) => (joined.generation, None),
            (None, Some((generation, orders))) => {
                tracing::warn!("no coordinator answers; going on with the orders of the last start");
                (generation, Some(orders))
            }
            (None, None) => return Err(NoAnswer::Unknown.refusal()),
        };
        let supervisor = Supervisor::new();
        let (port, to_tell) = BusPort::new(asker.clone());
        let binary = std::env::current_exe().map_err(|e| internal("find the running binary", &e))?;
        let node = Node::start(NodeOptions {
            data: data.root().to_owned(),
            temp: std::env::temp_dir(),
            files,
            key: data.key.clone(),
            limits: Arc::clone(&limits),
            clock: Arc::clone(&clock),
            host: host.clone(),
            incarnation: Incarnation(data.host.boot),
            bin_dir: binary.parent().map(PathBuf::from).unwrap_or_default(),
            environment: options.environment,
            directory: Directory::default(),
            port: Arc::new(port.clone()),
            link: Some(HostLink { link: Arc::new(link), key, generation }),
        })
        .await
        .map_err(|error| internal("start the node", &error))?;
        port.serve(node.clone());
        supervisor.start("tell", port.clone().tell(to_tell, supervisor.closing()));
        let mut follower = Follower::new(node.clone(), port.clone(), saved);
        let subscribed = |e: &(dyn std::error::Error + 'static)| internal("listen for orders", e);
        let asked = client.subscribe(looks(&host)).await.map_err(|e| subscribed(&e))?;
        let answering = Looks {
            client: client.clone(),
            subject: looks(&host),
            node: node.clone(),
            leader: follower.leader(),
            clock,
            skew: limits.max_skew(),
            supervisor: supervisor.clone(),
        };
        supervisor.start("looks", answering.answer_all(asked, supervisor.closing()));
        // Nothing is missed between the first orders and the first nudge.
        let nudges = client.subscribe(nudges(&host)).await.map_err(|e| subscribed(&e))?;
        let (heard_sender, heard) = watch::channel(Heard::Nothing);
        let life = Life { asker, node: node.clone(), port, boot: data.host.boot, heard: heard_sender };
        match alone {
            None => {
                let first = fetch(&life.asker).await?;
                follower.carry_out(first).await?;
                life.lead(follower, nudges, &supervisor);
            }
            Some(orders) => {
                follower.carry_out(orders).await?;
                follower.begin_anew();
                supervisor
                    .start("join", life.join_later(ask, generation, follower, nudges, supervisor.clone()));
            }
        }
        Ok(Self { node, host, supervisor, heard, _data: data })
    }

    /// Its name.
    pub fn host(&self) -> &HostName {
        &self.host
    }

    /// The node, to end its turns at once while [`Daemon::close`] waits.
    pub fn node(&self) -> NodeHandle {
        self.node.clone()
    }

    /// Until the coordinator says that this start is not the host's present one. Cancel-safe.
    pub async fn refused(&mut self) -> Refusal {
        loop {
            if let Heard::Refused(refusal) = &*self.heard.borrow_and_update() {
                return (**refusal).clone();
            }
            if self.heard.changed().await.is_err() {
                std::future::pending::<()>().await;
            }
        }
    }

    /// Closes: running turns may end by themselves for `grace`. Answers whether everything ended by itself.
    pub async fn close(self, grace: Duration) -> bool {
        let node = self.node.close(grace).await;
        self.supervisor.close(BUS_GRACE).await && node
    }
}

/// The grant that a host had by its orders.
fn grant_in(orders: &Orders, host: &HostName) -> Option<Generation> {
    orders.hosts.iter().find(|(name, _, _)| name == host).map(|(_, generation, _)| *generation)
}

/// What a host that was taken in does.
struct Life {
    asker: Asker,
    node: NodeHandle,
    port: BusPort,
    boot: u64,
    heard: watch::Sender<Heard>,
}

impl Life {
    /// Beats, and follows its orders.
    fn lead(self, follower: Follower, nudges: async_nats::Subscriber, supervisor: &Supervisor) {
        let heard = self.heard.subscribe();
        let beating = beats::beat(
            self.asker.clone(),
            self.node,
            self.port,
            self.boot,
            self.heard,
            supervisor.closing(),
        );
        supervisor.start("beats", beating);
        supervisor.start("orders", follow(follower, self.asker, nudges, heard, supervisor.closing()));
    }

    /// Goes on alone until somebody answers, then does as the others. Another grant than the one that it started
    /// with needs a new start.
    async fn join_later(
        self,
        ask: Ask,
        generation: Generation,
        follower: Follower,
        nudges: async_nats::Subscriber,
        supervisor: Supervisor,
    ) {
        let mut closing = supervisor.closing();
        let joined = tokio::select! {
            joined = join(&self.asker, &ask) => joined,
            () = closing.wait() => return,
        };
        let refusal = match joined {
            Ok(joined) if joined.generation == generation => {
                tracing::info!("the coordinator is back");
                return self.lead(follower, nudges, &supervisor);
            }
            Ok(_) => Refusal::new(Code::DataForeign, "this host has got a new grant")
                .effect("it ends, and takes it with its next start")
                .next("start it again"),
            Err(refusal) => refusal,
        };
        self.heard.send_replace(Heard::Refused(Box::new(refusal)));
        // Whoever waits for it must not see the sender gone.
        closing.wait().await;
    }
}

async fn join(asker: &Asker, ask: &Ask) -> Result<Joined, Refusal> {
    let mut said = false;
    loop {
        match asker.ask::<Joined>(ASK, ask, JOIN).await {
            Ok(joined) => return Ok(joined),
            Err(NoAnswer::Refused(refusal)) if refusal.retry_after_ms.is_none() => return Err(*refusal),
            Err(error) => {
                if !std::mem::replace(&mut said, true) {
                    tracing::warn!(%error, "cannot join yet; asking again");
                }
            }
        }
        tokio::time::sleep(AGAIN).await;
    }
}

async fn fetch(asker: &Asker) -> Result<super::wire::Orders, Refusal> {
    loop {
        match orders::fetch(asker).await {
            Ok(orders) => return Ok(orders),
            Err(NoAnswer::Refused(refusal)) if refusal.retry_after_ms.is_none() => return Err(*refusal),
            Err(_) => tokio::time::sleep(AGAIN).await,
        }
    }
}

async fn follow(
    mut follower: Follower,
    asker: Asker,
    mut nudges: async_nats::Subscriber,
    mut heard: watch::Receiver<Heard>,
    mut closing: Closing,
) {
    loop {
        let news: News = tokio::select! {
            nudge = nudges.next() => match nudge.map(|nudge| serde_json::from_slice(&nudge.payload)) {
                Some(Ok(news)) => news,
                Some(Err(error)) => {
                    tracing::warn!(%error, "news cannot be read");
                    continue;
                }
                None => return,
            },
            changed = heard.changed() => match (changed, &*heard.borrow_and_update()) {
                (Ok(()), Heard::News(news)) => *news,
                (Ok(()), Heard::Nothing | Heard::Refused(_)) => continue,
                (Err(_), _) => return,
            },
            () = closing.wait() => return,
        };
        if follower.is_behind(news) {
            match orders::fetch(&asker).await {
                Ok(orders) => {
                    if let Err(refusal) = follower.carry_out(orders).await {
                        tracing::error!(error = %refusal, cause = ?refusal.cause, "carry out orders");
                    }
                }
                // The next news say so again.
                Err(error) => tracing::warn!(%error, "orders are not answered"),
            }
        } else {
            follower.hear(news);
        }
    }
}
