//! Signs of life: every two seconds, and soon after something was told that makes the last one old.

use std::time::Duration;

use posthouse_shared::supervise::Closing;
use tokio::sync::watch;

use super::ask::{Asker, NoAnswer};
use super::port::BusPort;
use super::wire::{BEAT, Beat, News};
use crate::node::NodeHandle;

/// So often a host beats.
pub const EVERY: Duration = Duration::from_secs(2);
/// Between two beats that something told asks for.
const SOON: Duration = Duration::from_millis(200);

/// Beats until closing begins; news go to `news`, a refusal for good to `refused`.
pub async fn beat(
    asker: Asker,
    node: NodeHandle,
    port: BusPort,
    boot: u64,
    heard: watch::Sender<Heard>,
    mut closing: Closing,
) {
    loop {
        let draining = closing.begun();
        let beat = take(&node, &port, boot, draining).await;
        match asker.ask::<News>(BEAT, &beat, EVERY).await {
            Ok(news) => {
                heard.send_replace(Heard::News(news));
            }
            Err(NoAnswer::Refused(refusal)) => {
                tracing::warn!(error = %refusal, cause = ?refusal.cause, "the coordinator refuses the beat");
                if refusal.retry_after_ms.is_none() {
                    heard.send_replace(Heard::Refused(refusal));
                }
            }
            Err(error) => tracing::debug!(%error, "a beat is not answered"),
        }
        if draining {
            return;
        }
        let soon = async {
            tokio::time::sleep(SOON).await;
            port.told().await;
        };
        tokio::select! {
            () = tokio::time::sleep(EVERY) => {}
            () = soon => {}
            () = closing.wait() => {}
        }
    }
}

/// What the last beat brought.
#[derive(Debug, Clone)]
pub enum Heard {
    /// Nothing yet.
    Nothing,
    /// It is known, and this is new.
    News(News),
    /// The coordinator does not know this start any more.
    Refused(Box<posthouse_shared::refusal::Refusal>),
}

async fn take(node: &NodeHandle, port: &BusPort, boot: u64, draining: bool) -> Beat {
    let counting = node.clone();
    let mail = tokio::task::spawn_blocking(move || counting.mail_counts(None)).await.unwrap_or_default();
    Beat { boot, mail, reports: port.reports().into_iter().collect(), outgoing: node.outgoing(), draining }
}
