//! Keeps `done/` bounded: from time to time every mailbox of the host is pruned by age and number. What is
//! pruned stays settled (the mailbox's cursors are synced first), so it is never taken again.

use std::sync::Arc;
use std::time::Duration;

use posthouse_shared::clock::Clock;
use posthouse_shared::supervise::Closing;

use crate::mailbox::Mailboxes;

/// Between two rounds. Done messages are kept for days; nothing hurries.
const EVERY: Duration = Duration::from_secs(600);

/// Prunes round after round until the node closes.
pub async fn upkeep(mailboxes: Mailboxes, clock: Arc<dyn Clock>, mut closing: Closing) {
    loop {
        tokio::select! {
            () = tokio::time::sleep(EVERY) => {}
            () = closing.wait() => return,
        }
        let (mailboxes, clock, ending) = (mailboxes.clone(), Arc::clone(&clock), closing.clone());
        let round = tokio::task::spawn_blocking(move || {
            let agents = mailboxes.list()?;
            for agent in agents.into_iter().take_while(|_| !ending.begun()) {
                let pruned = mailboxes.get(&agent).and_then(|mailbox| mailbox.prune(clock.now()));
                if let Err(error) = pruned {
                    tracing::warn!(%agent, %error, "prune mailbox");
                }
            }
            Ok::<(), crate::mailbox::MailboxError>(())
        });
        if let Ok(Err(error)) = round.await {
            tracing::warn!(%error, "list mailboxes");
        }
    }
}
