//! Configuration: flag > `POSTHOUSE_*` > `./posthouse.toml` > the user's file > the system's > default. Each
//! value keeps where it came from. The only place that reads the environment of the process; everything else
//! gets an [`Environment`] or a [`Config`] as an argument.
//!
//! An unknown key is an error that names file, line and the nearest key.

mod environment;
mod layers;

use std::fmt;
use std::path::{Path, PathBuf};

use posthouse_shared::limits::Limits;
use posthouse_shared::telemetry::LogFormat;
use posthouse_shared::wire::replies::Setting;

pub use environment::Environment;

/// Where a value came from.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Origin {
    /// Nobody said anything.
    Default,
    /// A configuration file.
    File {
        /// Which.
        path: PathBuf,
        /// Where in it, from 1.
        line: usize,
    },
    /// An environment variable.
    Variable(String),
    /// A flag of the command line.
    Flag(&'static str),
    /// The file that the process on the data directory keeps.
    Lock(PathBuf),
}

impl fmt::Display for Origin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Default => f.write_str("default"),
            Self::File { path, line } => write!(f, "{}:{line}", path.display()),
            Self::Variable(name) => f.write_str(name),
            Self::Flag(name) => f.write_str(name),
            Self::Lock(path) => f.write_str(&path.display().to_string()),
        }
    }
}

/// A value with its origin.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Sourced<T> {
    /// The value.
    pub value: T,
    /// Where it came from.
    pub origin: Origin,
}

impl<T> Sourced<T> {
    fn default_of(value: T) -> Self {
        Self { value, origin: Origin::Default }
    }

    /// Whether somebody set it.
    pub fn is_set(&self) -> bool {
        self.origin != Origin::Default
    }
}

/// What the command line says of settings.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Flags {
    /// `--data`
    pub data: Option<PathBuf>,
    /// `--listen`
    pub listen: Option<String>,
    /// `--nats`
    pub nats: Option<String>,
    /// `--team`
    pub team: Option<String>,
}

/// All settings in force.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Config {
    /// The data directory, absolute.
    pub data: Sourced<PathBuf>,
    /// The coordinator's address, where somebody set one; else whoever holds the data directory is asked.
    pub url: Option<Sourced<String>>,
    /// The blob store that all hosts share, where somebody named one.
    pub blob_store: Option<Sourced<String>>,
    /// Where `up` and `serve` listen.
    pub listen: Sourced<String>,
    /// The NATS servers of `serve`, where somebody named them.
    pub nats: Option<Sourced<String>>,
    /// The team that is meant.
    pub team: Sourced<String>,
    /// Filter of the log, in the syntax of `RUST_LOG`.
    pub log: Sourced<String>,
    /// How log lines look.
    pub log_format: Sourced<LogFormat>,
    /// All limits.
    pub limits: Limits,
    /// Which limits somebody set, and where.
    pub limit_origins: Vec<(&'static str, Origin)>,
    /// The credential, where the environment has one.
    pub token: Option<String>,
    /// The socket of a teammate's turn.
    pub socket: Option<PathBuf>,
}

/// Why there is no configuration.
#[derive(Debug, thiserror::Error)]
pub enum ConfigError {
    /// A file that is there cannot be read.
    #[error("read {}", path.display())]
    Read {
        /// Which.
        path: PathBuf,
        /// What the system said.
        source: std::io::Error,
    },
    /// A file is not TOML.
    #[error("{}:{line}: {message}", path.display())]
    Syntax {
        /// Which.
        path: PathBuf,
        /// Where, from 1.
        line: usize,
        /// What is wrong.
        message: String,
    },
    /// Nobody knows this key.
    #[error("{place}: unknown key {key:?}")]
    UnknownKey {
        /// File and line, or the variable.
        place: String,
        /// What was written.
        key: String,
        /// All keys that could have been meant.
        known: Vec<String>,
    },
    /// The value does not fit its key.
    #[error("{place}: {key}: {message}")]
    Value {
        /// File and line, or variable, or flag.
        place: String,
        /// Whose value.
        key: String,
        /// What is wrong with it.
        message: String,
    },
    /// There is no place for data.
    #[error("no data directory: neither POSTHOUSE_DATA nor XDG_DATA_HOME nor HOME is set")]
    NoData,
}

impl From<&ConfigError> for posthouse_shared::refusal::Refusal {
    fn from(error: &ConfigError) -> Self {
        let refusal = Self::new(posthouse_shared::codes::Code::BadConfig, error.to_string());
        match error {
            ConfigError::UnknownKey { key, known, .. } => {
                refusal.closest_to(key, known.iter().map(|name| (name.as_str(), None)))
            }
            ConfigError::Read { source, .. } => refusal.because(source),
            ConfigError::Syntax { .. } | ConfigError::Value { .. } => refusal,
            ConfigError::NoData => refusal.next("posthouse up --data DIR"),
        }
    }
}

impl Config {
    /// Reads all layers. Reads files; writes nothing.
    pub fn load(environment: &Environment, flags: &Flags) -> Result<Self, ConfigError> {
        layers::load(environment, flags)
    }

    /// All settings with origin, as `posthouse config` prints them.
    pub fn settings(&self) -> Vec<Setting> {
        let setting = |name: &str, value: String, unit: &str, origin: &Origin| Setting {
            name: name.to_owned(),
            value,
            unit: unit.to_owned(),
            origin: origin.to_string(),
        };
        let log_format = match self.log_format.value {
            LogFormat::Text => "text",
            LogFormat::Json => "json",
        };
        let (url, url_origin) = match &self.url {
            Some(url) => (url.value.clone(), &url.origin),
            None => ("whoever holds the data directory".to_owned(), &Origin::Default),
        };
        let (blob_store, blob_store_origin) = match &self.blob_store {
            Some(store) => (store.value.clone(), &store.origin),
            None => ("none: large bodies stay on their host".to_owned(), &Origin::Default),
        };
        let (nats, nats_origin) = match &self.nats {
            Some(nats) => (nats.value.clone(), &nats.origin),
            None => ("none".to_owned(), &Origin::Default),
        };
        let mut all = vec![
            setting("data", self.data.value.display().to_string(), "", &self.data.origin),
            setting("url", url, "", url_origin),
            setting("listen", self.listen.value.clone(), "", &self.listen.origin),
            setting("nats", nats, "", nats_origin),
            setting("blob_store", blob_store, "", blob_store_origin),
            setting("team", self.team.value.clone(), "", &self.team.origin),
            setting("log", self.log.value.clone(), "", &self.log.origin),
            setting("log_format", log_format.to_owned(), "", &self.log_format.origin),
        ];
        all.extend(self.limits.table().into_iter().map(|(name, value, unit)| {
            let set = self.limit_origins.iter().rev().find(|(limit, _)| *limit == name);
            setting(
                &format!("limits.{name}"),
                value.to_string(),
                unit,
                set.map_or(&Origin::Default, |(_, at)| at),
            )
        }));
        all
    }

    /// Whether the team was named by somebody.
    pub fn team_is_set(&self) -> bool {
        self.team.is_set()
    }

    /// The file of whoever holds the data directory.
    pub fn lock_file(&self) -> PathBuf {
        self.data.value.join("lock")
    }

    /// The operator's token of the data directory.
    pub fn token_file(&self) -> PathBuf {
        self.data.value.join("token")
    }
}

/// A path made absolute against a directory, without touching the disk.
pub fn absolute(path: &Path, against: &Path) -> PathBuf {
    let joined = against.join(path);
    let mut clean = PathBuf::new();
    for part in joined.components() {
        match part {
            std::path::Component::CurDir => {}
            std::path::Component::ParentDir => {
                clean.pop();
            }
            std::path::Component::Prefix(_)
            | std::path::Component::RootDir
            | std::path::Component::Normal(_) => clean.push(part),
        }
    }
    clean
}
