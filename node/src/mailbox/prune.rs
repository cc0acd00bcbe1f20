//! `done/` stays bounded: by age and by count. Order of steps: `done/` synced (an ack may still be on its way)
//! -> cursors written and synced -> files removed. A crash in between removes nothing that is not remembered.

use std::time::Duration;

use posthouse_shared::clock::Stamp;

use super::dedup::Seen;
use super::error::MailboxError;
use super::name::FileName;
use super::{DONE, Mailbox};

/// What pruning did.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Pruned {
    /// Files that were removed.
    pub removed: usize,
    /// Files that stay in `done/`.
    pub left: usize,
}

impl Mailbox {
    /// Removes from `done/` what is older than `done_days` (by the time it was sorted by) or beyond
    /// `done_messages`, oldest first. What is removed stays known for ever.
    pub fn prune(&self, now: Stamp) -> Result<Pruned, MailboxError> {
        let inner = &self.0;
        let limits = inner.limits();
        let age = Duration::from_secs(u64::from(limits.done_days).saturating_mul(86_400));
        let keep = usize::try_from(limits.done_messages).unwrap_or(usize::MAX);
        inner.with(|_| Ok(()))?;
        let dir = inner.dir.join(DONE);
        let mut names: Vec<FileName> = Vec::new();
        inner.files().visit(&dir, &mut |name| names.extend(FileName::parse(name)))?;
        names.sort_unstable_by_key(|name| (name.order_at, name.id));
        let beyond = names.len().saturating_sub(keep);
        let old = names.partition_point(|name| now.since(name.order_at) > age);
        let gone = names.get(..beyond.max(old)).unwrap_or_default();
        if gone.is_empty() {
            return Ok(Pruned { removed: 0, left: names.len() });
        }
        inner.files().sync_dir(&dir)?;
        let mut settled = Seen::default();
        settled.insert_all(gone);
        // Under the lock: a person's drop writes cursors too.
        inner.with(|_| settled.settle(inner.files(), &inner.dir))?;
        for name in gone {
            inner.files().remove_unsynced(&dir.join(name.to_string()))?;
            inner.files().point("mailbox.prune.removed");
        }
        inner.with(|loaded| {
            loaded.done = loaded.done.saturating_sub(gone.len());
            Ok(())
        })?;
        Ok(Pruned { removed: gone.len(), left: names.len() - gone.len() })
    }
}
