//! The layers of the configuration, the weakest read first, so that the strongest is left.

use std::path::{Path, PathBuf};

use posthouse_shared::limits::Limits;
use posthouse_shared::quantity::quantity;
use posthouse_shared::telemetry::LogFormat;
use toml::Spanned;
use toml::de::{DeTable, DeValue};

use super::{Config, ConfigError, Environment, Flags, Origin, Sourced, absolute};

const KEYS: &[&str] = &["data", "url", "listen", "nats", "blob_store", "team", "log", "log_format"];
const FILE_BYTES_MAX: u64 = 1024 * 1024;

pub(super) fn load(environment: &Environment, flags: &Flags) -> Result<Config, ConfigError> {
    let data = environment.default_data();
    let mut config = Config {
        data: Sourced::default_of(data.unwrap_or_default()),
        url: None,
        blob_store: None,
        listen: Sourced::default_of("127.0.0.1:7420".to_owned()),
        nats: None,
        team: Sourced::default_of("main".to_owned()),
        log: Sourced::default_of("info".to_owned()),
        log_format: Sourced::default_of(LogFormat::Text),
        limits: Limits::default(),
        limit_origins: Vec::new(),
        token: environment.get("POSTHOUSE_TOKEN").map(str::to_owned),
        socket: environment.get("POSTHOUSE_SOCKET").map(PathBuf::from),
    };
    for path in environment.config_files().iter().rev() {
        read_file(&mut config, path)?;
    }
    read_variables(&mut config, environment)?;
    read_flags(&mut config, environment, flags);
    // A turn, whose environment may hold no HOME, is told its socket and needs no data directory.
    let needs_data = config.socket.is_none() && config.url.is_none();
    if needs_data && config.data.value.as_os_str().is_empty() {
        return Err(ConfigError::NoData);
    }
    Ok(config)
}

fn read_file(config: &mut Config, path: &Path) -> Result<(), ConfigError> {
    let read = |source| ConfigError::Read { path: path.to_owned(), source };
    let text = match std::fs::metadata(path) {
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(()),
        Err(source) => return Err(read(source)),
        Ok(metadata) if metadata.len() > FILE_BYTES_MAX => {
            return Err(read(std::io::ErrorKind::FileTooLarge.into()));
        }
        Ok(_) => std::fs::read_to_string(path).map_err(read)?,
    };
    let line_of = |at: usize| text.get(..at).map_or(1, |before| before.matches('\n').count() + 1);
    let document = DeTable::parse(&text).map_err(|error| ConfigError::Syntax {
        path: path.to_owned(),
        line: line_of(error.span().map_or(0, |span| span.start)),
        message: error.message().to_owned(),
    })?;
    let layer = Layer { path, dir: path.parent().unwrap_or(Path::new("/")), line_of: &line_of };
    for (key, value) in document.get_ref() {
        if key.get_ref() == "limits" {
            let Some(limits) = value.get_ref().as_table() else {
                return Err(layer.value(key, "is a table: [limits]".to_owned()));
            };
            for (name, value) in limits {
                layer.limit(config, name, value)?;
            }
        } else {
            layer.set(config, key, value)?;
        }
    }
    Ok(())
}

/// One file while it is read.
struct Layer<'a> {
    path: &'a Path,
    dir: &'a Path,
    line_of: &'a dyn Fn(usize) -> usize,
}

type Key<'i> = Spanned<std::borrow::Cow<'i, str>>;

impl Layer<'_> {
    fn line(&self, key: &Key<'_>) -> usize {
        (self.line_of)(key.span().start)
    }

    fn origin(&self, key: &Key<'_>) -> Origin {
        Origin::File { path: self.path.to_owned(), line: self.line(key) }
    }

    fn place(&self, key: &Key<'_>) -> String {
        format!("{}:{}", self.path.display(), self.line(key))
    }

    fn value(&self, key: &Key<'_>, message: String) -> ConfigError {
        ConfigError::Value { place: self.place(key), key: key.get_ref().to_string(), message }
    }

    fn set(
        &self,
        config: &mut Config,
        key: &Key<'_>,
        value: &Spanned<DeValue<'_>>,
    ) -> Result<(), ConfigError> {
        if !KEYS.contains(&key.get_ref().as_ref()) {
            let mut known: Vec<String> = KEYS.iter().map(|name| (*name).to_owned()).collect();
            known.push("limits".to_owned());
            let key_text = key.get_ref().to_string();
            return Err(ConfigError::UnknownKey { place: self.place(key), key: key_text, known });
        }
        let Some(text) = value.get_ref().as_str() else {
            let found = value.get_ref().type_str();
            return Err(self.value(key, format!("is text in quotes, not {found}")));
        };
        set(config, key.get_ref(), text, &self.origin(key), self.dir).map_err(|m| self.value(key, m))
    }

    fn limit(
        &self,
        config: &mut Config,
        key: &Key<'_>,
        value: &Spanned<DeValue<'_>>,
    ) -> Result<(), ConfigError> {
        let text = match value.get_ref() {
            DeValue::Integer(number) => number.to_string(),
            DeValue::String(text) => text.to_string(),
            DeValue::Float(_)
            | DeValue::Boolean(_)
            | DeValue::Datetime(_)
            | DeValue::Array(_)
            | DeValue::Table(_) => {
                let found = value.get_ref().type_str();
                return Err(self.value(key, format!("is a number, a duration or a size, not {found}")));
            }
        };
        set_limit(config, key.get_ref(), &text, self.origin(key), &self.place(key))
    }
}

fn read_variables(config: &mut Config, environment: &Environment) -> Result<(), ConfigError> {
    for key in KEYS {
        let name = format!("POSTHOUSE_{}", key.to_ascii_uppercase());
        if let Some(text) = environment.get(&name) {
            let origin = Origin::Variable(name.clone());
            set(config, key, text, &origin, environment.cwd()).map_err(|message| ConfigError::Value {
                place: name,
                key: (*key).to_owned(),
                message,
            })?;
        }
    }
    for (name, text) in environment.all() {
        if let Some(limit) = name.strip_prefix("POSTHOUSE_LIMITS_") {
            let origin = Origin::Variable(name.to_owned());
            set_limit(config, &limit.to_ascii_lowercase(), text, origin, name)?;
        }
    }
    Ok(())
}

fn read_flags(config: &mut Config, environment: &Environment, flags: &Flags) {
    if let Some(data) = &flags.data {
        let value = absolute(data, environment.cwd());
        config.data = Sourced { value, origin: Origin::Flag("--data") };
    }
    if let Some(listen) = &flags.listen {
        config.listen = Sourced { value: listen.clone(), origin: Origin::Flag("--listen") };
    }
    if let Some(nats) = &flags.nats {
        config.nats = Some(Sourced { value: nats.clone(), origin: Origin::Flag("--nats") });
    }
    if let Some(team) = &flags.team {
        config.team = Sourced { value: team.clone(), origin: Origin::Flag("--team") };
    }
}

fn set(config: &mut Config, key: &str, text: &str, origin: &Origin, dir: &Path) -> Result<(), String> {
    let sourced = || Sourced { value: text.to_owned(), origin: origin.clone() };
    match key {
        "data" => config.data = Sourced { value: absolute(Path::new(text), dir), origin: origin.clone() },
        "url" => config.url = Some(sourced()),
        "listen" => config.listen = sourced(),
        "nats" => config.nats = Some(sourced()),
        "blob_store" => config.blob_store = Some(sourced()),
        "team" => config.team = sourced(),
        "log" => config.log = sourced(),
        "log_format" => {
            let value = match text {
                "text" => LogFormat::Text,
                "json" => LogFormat::Json,
                other => return Err(format!("{other:?} is not a log format; use text or json")),
            };
            config.log_format = Sourced { value, origin: origin.clone() };
        }
        other => return Err(format!("{other:?} is not a setting")),
    }
    Ok(())
}

fn set_limit(
    config: &mut Config,
    name: &str,
    text: &str,
    origin: Origin,
    place: &str,
) -> Result<(), ConfigError> {
    let table = config.limits.table();
    let Some((limit, _, unit)) = table.iter().find(|(limit, _, _)| *limit == name) else {
        return Err(ConfigError::UnknownKey {
            place: place.to_owned(),
            key: name.to_owned(),
            known: table.iter().map(|(limit, _, _)| (*limit).to_owned()).collect(),
        });
    };
    let broken = |message: String| ConfigError::Value {
        place: place.to_owned(),
        key: format!("limits.{name}"),
        message,
    };
    let value = quantity(text, unit).map_err(|error| broken(error.to_string()))?;
    if !config.limits.set(name, value) {
        return Err(broken(format!("{value} is too large")));
    }
    config.limit_origins.push((limit, origin));
    Ok(())
}
