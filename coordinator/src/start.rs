//! A coordinator with its embedded node, started and closed together.
//!
//! Order at the start: data directory (lock, boot counter) -> authority (journal) -> node (left-over processes,
//! mailboxes, post) -> what the journal asks for (mail, teammates) -> HTTP. It answers *ready* only after all
//! of it. Closing goes the other way.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use posthouse_node::directory::Directory;
use posthouse_node::host_keys::open_host_key;
use posthouse_node::link::HostLink;
use posthouse_node::mailbox::Incarnation;
use posthouse_node::node::{Node, NodeHandle, NodeOptions};
use posthouse_shared::clock::{Clock, SystemClock};
use posthouse_shared::codes::Code;
use posthouse_shared::durable::{CrashPoints, Files, RealDisk};
use posthouse_shared::limits::Limits;
use posthouse_shared::name::HostName;
use posthouse_shared::refusal::Refusal;
use posthouse_shared::supervise::Supervisor;
use posthouse_shared::wire::replies::{Setting, Status};
use tokio::net::TcpListener;

use crate::authority::{self, Authority, HostStart};
use crate::bus::{self, Bus};
use crate::config::{Config, Environment};
use crate::data::DataDir;
use crate::events::Events;
use crate::http::{Bounds, serve};
use crate::journal::FilesJournal;
use crate::service::{Service, Setup};

/// Requests under way get so long to be answered when the coordinator closes.
const HTTP_GRACE: Duration = Duration::from_secs(5);

/// What a coordinator is started with.
#[derive(Debug)]
pub struct StartOptions {
    /// The data directory.
    pub data: PathBuf,
    /// The host's name; needed for none but the first start.
    pub name: Option<HostName>,
    /// Address and port; port 0 takes a free one.
    pub listen: String,
    /// The limits in force.
    pub limits: Limits,
    /// All settings with their origins, for `config`.
    pub settings: Vec<Setting>,
    /// The process's environment: teammates get an allow-list of it.
    pub environment: Vec<(OsString, OsString)>,
    /// The NATS servers, where other hosts may join.
    pub nats: Option<String>,
    /// What placement can ask of this host.
    pub labels: BTreeMap<String, String>,
    /// A crash point to abort at, for tests.
    pub crash_at: Option<String>,
}

impl StartOptions {
    /// From the settings of a command.
    pub fn of(config: &Config, environment: &Environment, name: Option<HostName>, listen: &str) -> Self {
        let all = environment.all().map(|(name, value)| (name.into(), value.into()));
        Self {
            data: config.data.value.clone(),
            name,
            listen: listen.to_owned(),
            limits: config.limits.clone(),
            settings: config.settings(),
            nats: None,
            labels: BTreeMap::new(),
            environment: all.collect(),
            crash_at: environment.get("POSTHOUSE_CRASH_AT").map(str::to_owned),
        }
    }
}

/// A coordinator that runs.
pub struct Running {
    url: String,
    token: String,
    authority: Authority,
    node: NodeHandle,
    supervisor: Supervisor,
    /// Held until the end.
    _data: DataDir,
}

impl Running {
    /// Starts a coordinator. Ready to take requests at return.
    pub async fn start(options: StartOptions) -> Result<Self, Refusal> {
        let crash = options.crash_at.as_deref().map_or_else(CrashPoints::none, CrashPoints::abort_at);
        let files = Files::new(Arc::new(RealDisk), crash);
        let clock: Arc<dyn Clock> = Arc::new(SystemClock);
        let listener = bind(&options.listen).await?;
        let url = format!("http://{}", listener.local_addr().map_err(|e| internal("listen", &e))?);
        let limits = Arc::new(options.limits);
        let mut data = DataDir::open(&options.data, options.name, &files, clock.as_ref())?;
        let journal =
            FilesJournal::open(files.clone(), data.root().join("journal")).map_err(|e| e.refusal())?;
        let authority = Authority::open(authority::Options {
            journal: Box::new(journal),
            adopt: false,
            snapshot_every: authority::SNAPSHOT_EVERY,
            clock: Arc::clone(&clock),
            limits: Arc::clone(&limits),
            start: HostStart {
                host: data.host.host.clone(),
                data_id: data.host.data_id.clone(),
                boot: data.host.boot,
                labels: options.labels,
                runners: std::iter::once("command".to_owned()).collect(),
            },
        })
        .map_err(|error| error.refusal())?;
        let key = match options.nats {
            Some(_) => {
                Some(open_host_key(&files, data.root()).map_err(|e| internal("open the host's key", &e))?)
            }
            None => None,
        };
        let host_key = key.clone();
        let bus = match &options.nats {
            Some(url) => Some(Bus::connect(url, &data.host.host).await?),
            None => None,
        };
        let link = match (&bus, key.clone()) {
            (Some(bus), Some(key)) => {
                let known = authority.state().hosts.get(&data.host.host).map(|host| host.generation);
                let generation = known.ok_or_else(|| {
                    Refusal::new(Code::Internal, "this host is not in its own journal")
                        .effect("nothing was started")
                })?;
                // Before the node: it opens its inbound side at once.
                bus.consumer(&data.host.host, generation).await?;
                Some(HostLink { link: Arc::new(bus.link().clone()), key, generation })
            }
            (None, _) | (_, None) => None,
        };
        let supervisor = Supervisor::new();
        let status = Status {
            version: env!("CARGO_PKG_VERSION").to_owned(),
            host: data.host.host.clone(),
            url: url.clone(),
            data: data.root().display().to_string(),
            data_id: data.host.data_id.clone(),
            boot: data.host.boot,
        };
        let boot = format!("{}-{}", data.host.data_id, data.host.boot);
        let service = Service::new(Setup {
            authority: authority.clone(),
            files: files.clone(),
            clock: Arc::clone(&clock),
            limits: Arc::clone(&limits),
            token: data.token.clone(),
            status,
            settings: options.settings,
            data: data.root().to_owned(),
            events: Events::new(boot, data.host.boot, usize::try_from(limits.events).unwrap_or(usize::MAX)),
            nats: options.nats,
            key: key.as_ref().map(|key| key.public()),
            supervisor: supervisor.clone(),
        });
        let binary = std::env::current_exe().map_err(|e| internal("find the running binary", &e))?;
        let node = Node::start(NodeOptions {
            data: data.root().to_owned(),
            temp: std::env::temp_dir(),
            files,
            key: data.key.clone(),
            limits: Arc::clone(&limits),
            clock: Arc::clone(&clock),
            host: data.host.host.clone(),
            incarnation: Incarnation(data.host.boot),
            bin_dir: binary.parent().map(PathBuf::from).unwrap_or_default(),
            environment: options.environment,
            directory: Directory::default(),
            port: Arc::new(service.clone()),
            link,
        })
        .await
        .map_err(|error| internal("start the node", &error))?;
        service.start(node.clone()).await?;
        if let Some((bus, key)) = bus.zip(host_key) {
            bus::start(&service, bus, key, clock, limits.max_skew()).await?;
        }
        let bounds = Bounds { request_bytes: limits.request_bytes };
        let api = Arc::new(service);
        supervisor.start("http", serve(listener, api, supervisor.clone(), bounds));
        data.tell(&url).map_err(|e| internal("write DATA/lock", &e))?;
        Ok(Self { url, token: data.token.clone(), authority, node, supervisor, _data: data })
    }

    /// What decides, for tests and for commands that run beside it.
    pub fn authority(&self) -> &Authority {
        &self.authority
    }

    /// Its address.
    pub fn url(&self) -> &str {
        &self.url
    }

    /// The operator's token.
    pub fn token(&self) -> &str {
        &self.token
    }

    /// Closes in order: teammates (running turns may end by themselves for `grace`), schedules, requests,
    /// journal. Answers whether everything ended by itself.
    pub async fn close(self, grace: Duration) -> bool {
        let node = self.node.close(grace).await;
        let requests = self.supervisor.close(HTTP_GRACE).await;
        let authority = self.authority;
        let closed = tokio::task::spawn_blocking(move || authority.close()).await;
        node && requests && closed.is_ok()
    }

    /// The node, to end its turns at once while [`Running::close`] waits.
    pub fn node(&self) -> NodeHandle {
        self.node.clone()
    }
}

fn internal(what: &str, error: &(dyn std::error::Error + 'static)) -> Refusal {
    Refusal::new(Code::Internal, what).because(error).effect("nothing was started")
}

async fn bind(listen: &str) -> Result<TcpListener, Refusal> {
    TcpListener::bind(listen).await.map_err(|error| {
        Refusal::new(Code::BadConfig, format!("cannot listen on {listen}"))
            .because(&error)
            .effect("nothing was started")
            .next("posthouse up --listen 127.0.0.1:0      (takes a free port)")
    })
}
