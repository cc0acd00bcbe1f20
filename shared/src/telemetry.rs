//! Logs: `tracing` to stderr as text or JSON lines.

use std::io::IsTerminal;

use serde::{Deserialize, Serialize};
use tracing_subscriber::EnvFilter;

/// How log lines look.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum LogFormat {
    /// For people.
    #[default]
    Text,
    /// One JSON object a line.
    Json,
}

/// Starts logging to stderr. `filter` is in the syntax of `RUST_LOG`; one that is not valid is said and
/// `info` used instead. A second call does nothing.
pub fn start(filter: &str, format: LogFormat) {
    let parsed = EnvFilter::try_new(filter);
    let broken = parsed.as_ref().err().map(ToString::to_string);
    let builder = tracing_subscriber::fmt()
        .with_env_filter(parsed.unwrap_or_else(|_| EnvFilter::new("info")))
        .with_ansi(std::io::stderr().is_terminal())
        .with_writer(std::io::stderr);
    let _second_start_is_fine = match format {
        LogFormat::Text => builder.with_target(false).try_init(),
        LogFormat::Json => builder.json().try_init(),
    };
    if let Some(error) = broken {
        tracing::warn!(%filter, %error, "log filter is not valid, using info");
    }
}
