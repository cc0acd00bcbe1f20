//! What follows from a change of the directory. A recipient that moved or is gone: what waits for it is looked at
//! at once. A sender that was replaced or is gone: its epoch has ended, so the gaps in its lanes will not be filled,
//! and what was held for them goes on in its order.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use posthouse_shared::lane::LaneKey;
use posthouse_shared::name::AgentId;
use posthouse_shared::supervise::Closing;

use super::Shared;
use super::judge::epoch_ended;
use crate::mailbox::MailboxError;

/// Mailboxes that were read since the last change are looked at too.
const LOOK: Duration = Duration::from_secs(5);
/// Changes that come together are followed together.
const TOGETHER: Duration = Duration::from_millis(20);

pub(super) async fn run(shared: Arc<Shared>, mut closing: Closing) {
    let mut changes = shared.options.directory.changes();
    loop {
        let looking = Arc::clone(&shared);
        let looked = tokio::task::spawn_blocking(move || {
            let directory = &looking.options.directory;
            looking.options.outbox.moved(|to| directory.get(to).map(|home| home.host));
            end_epochs(&looking);
        });
        if looked.await.is_err() {
            tracing::error!("following the directory was cut off");
        }
        tokio::select! {
            () = closing.wait() => return,
            _ = changes.changed() => tokio::time::sleep(TOGETHER).await,
            () = tokio::time::sleep(LOOK) => {}
        }
        changes.mark_unchanged();
    }
}

fn end_epochs(shared: &Shared) {
    let directory = &shared.options.directory;
    let mut senders: HashMap<LaneKey, AgentId> = HashMap::new();
    for mailbox in shared.options.mailboxes.used() {
        for gap in mailbox.gaps_in_memory() {
            let sender = match senders.get(&gap.key) {
                Some(known) => Ok(Some(known.clone())),
                None => mailbox.read(gap.id).map(|read| read.map(|(sealed, _)| sealed.envelope.sender())),
            };
            let ended = sender.and_then(|sender| {
                let Some(sender) = sender else { return Ok(()) };
                if epoch_ended(directory, &sender, gap.key.epoch) {
                    tracing::info!(agent = %mailbox.agent(), from = %sender, waited_for = gap.waits_for, "a lane's epoch has ended");
                    mailbox.end_epoch(gap.key)?;
                }
                senders.insert(gap.key, sender);
                Ok::<(), MailboxError>(())
            });
            if let Err(error) = ended {
                tracing::warn!(agent = %mailbox.agent(), %error, "cannot look at a lane that waits");
            }
        }
    }
}
