//! `posthouse up` and `posthouse serve`: a coordinator with its host, until a signal ends it.
//!
//! The first SIGINT or SIGTERM closes in order and the exit code is 0; a second one ends running turns at once,
//! and the exit code is 130 or 143.

use std::io::Write;
use std::time::Duration;

use posthouse_shared::codes::Code;
use posthouse_shared::refusal::Refusal;
use posthouse_shared::telemetry;

use crate::cli::Up;
use crate::start::{Running, StartOptions};
use posthouse_node::signals::{Asked, Signals};

/// Runs until a signal comes. Prints `ready http://...` on stdout when requests are taken.
pub fn up(up: Up) -> Result<u8, Refusal> {
    telemetry::start(&up.config.log.value, up.config.log_format.value);
    runtime()?.block_on(async {
        let mut signals = listen()?;
        let grace = up.config.limits.shutdown_grace();
        let listen = &up.config.listen.value;
        let options = StartOptions {
            nats: up.nats.clone(),
            labels: up.labels.iter().cloned().collect(),
            ..StartOptions::of(&up.config, &up.environment, up.name.clone(), listen)
        };
        let running = Running::start(options).await?;
        announce(&running, up.json).map_err(|e| Refusal::new(Code::Internal, "print").because(&e))?;
        let first = signals.next().await;
        tracing::info!(signal = ?first, "closing");
        Ok(match close(running, grace, &mut signals).await {
            None => 0,
            Some(second) => second.exit_code(),
        })
    })
}

/// Closes in order; a second signal meanwhile ends running turns at once and is the answer.
pub async fn close(running: Running, grace: Duration, signals: &mut Signals) -> Option<Asked> {
    let node = running.node();
    let mut closing = std::pin::pin!(running.close(grace));
    tokio::select! {
        _well = &mut closing => None,
        second = signals.next() => {
            tracing::warn!(signal = ?second, "second signal: running turns are ended now");
            node.kill_now();
            closing.await;
            Some(second)
        }
    }
}

/// The runtime of a command that runs a coordinator.
pub fn runtime() -> Result<tokio::runtime::Runtime, Refusal> {
    tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .build()
        .map_err(|e| Refusal::new(Code::Internal, "start the runtime").because(&e))
}

/// Both signals, from now on ours.
pub fn listen() -> Result<Signals, Refusal> {
    Signals::new().map_err(|e| Refusal::new(Code::Internal, "listen for signals").because(&e))
}

fn announce(running: &Running, json: bool) -> std::io::Result<()> {
    let mut stdout = std::io::stdout().lock();
    if json {
        writeln!(stdout, "{}", serde_json::json!({ "v": 1, "ready": running.url() }))?;
    } else {
        writeln!(stdout, "ready {}", running.url())?;
    }
    stdout.flush()
}
