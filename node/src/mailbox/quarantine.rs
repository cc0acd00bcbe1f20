//! What cannot be delivered or was not survived: put aside with a reason beside it, until a person redelivers
//! or drops it.
//!
//! Order of steps: reason file synced -> message renamed -> `quarantine/` synced. A crash in between leaves a
//! reason without a file, which means nothing.

use std::ffi::{OsStr, OsString};
use std::path::Path;

use posthouse_shared::clock::Stamp;
use posthouse_shared::durable::{DurableError, file_name};
use posthouse_shared::identity::sha256_hex;
use posthouse_shared::message::DecodeError;
use posthouse_shared::name::{AgentId, MessageId};
use posthouse_shared::wire::replies::Stage;
use serde::{Deserialize, Serialize};

use super::content::Content;
use super::dedup::Seen;
use super::error::MailboxError;
use super::lease::Lease;
use super::name::{FileName, Marks};
use super::{Inner, Loaded, Mailbox, PROCESSING, QUARANTINE, READY};

/// A reason's file is named as its message, and this.
pub const REASON_SUFFIX: &str = ".reason.json";
const REASON_BYTES_MAX: u64 = 64 * 1024;
const NAME_BYTES_MAX: usize = 200;
const CONTENT_SHOWN_BYTES_MAX: u64 = 1024 * 1024;

/// Why something is in quarantine.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Reason {
    /// In short: `turn_failed`, `max_attempts`, `unreadable`, `mismatch`, `unknown_kind`, `duplicate` ...
    pub code: String,
    /// For people.
    pub text: String,
    /// The turn that failed on it, where one did.
    pub turn: Option<u64>,
}

impl Reason {
    pub(super) fn of(code: &str, text: String) -> Self {
        Self { code: code.to_owned(), text, turn: None }
    }

    pub(super) fn foreign(why: &str) -> Self {
        Self::of("foreign", why.to_owned())
    }

    pub(super) fn duplicate() -> Self {
        Self::of("duplicate", "this message was taken before; it is not injected twice".to_owned())
    }

    pub(super) fn unreadable(error: &DecodeError) -> Self {
        let code = match error {
            DecodeError::TooLarge { .. } => "too_large",
            DecodeError::Empty => "empty",
            DecodeError::UnknownVersion(_) => "unknown_version",
            DecodeError::UnknownKind(_) => "unknown_kind",
            DecodeError::Json(_) | DecodeError::Content => "unreadable",
        };
        Self::of(code, error.to_string())
    }
}

/// A reason as it stands on disk, version 1.
#[derive(Debug, Serialize, Deserialize)]
struct ReasonFile {
    v: u8,
    code: String,
    text: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    turn: Option<u64>,
    since: Stamp,
    /// The file's name before, as far as it is text.
    name: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    id: Option<MessageId>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    from: Option<String>,
}

/// A file in quarantine.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Quarantined {
    /// The message's id, or one made of the file's name where it has none.
    pub id: MessageId,
    /// Its name in `quarantine/`.
    pub file: String,
    /// Why.
    pub reason: Reason,
    /// Since when; the epoch where the reason file is lost.
    pub since: Stamp,
    /// The sender, where it could be read.
    pub from: Option<String>,
    pub(super) name: Option<FileName>,
}

/// The id of a file of another program, made of its name and content: the same file dropped twice is one
/// message.
pub(super) fn id_of_foreign(agent: &AgentId, name: &str, bytes: &[u8]) -> MessageId {
    MessageId::derived(&["external", &agent.to_string(), name, &sha256_hex(bytes)])
}

impl Mailbox {
    /// Puts held messages aside as one batch. Durable at return. What is not held any more is passed over.
    pub fn quarantine(&self, leases: &[Lease], reason: &Reason) -> Result<(), MailboxError> {
        let inner = &self.0;
        inner.with(|loaded| {
            for lease in leases {
                let path = inner.path(PROCESSING, &lease.name);
                if inner.files().exists(&path) {
                    let name = lease.name.free().to_string();
                    inner.put_in_quarantine(&path, &name, Some(lease.id()), reason)?;
                    loaded.quarantined.insert(lease.id());
                }
                loaded.held.remove(&lease.id());
            }
            Ok(())
        })?;
        inner.files().sync_dir(&inner.dir.join(QUARANTINE))?;
        inner.files().point("mailbox.quarantine.synced");
        inner.tell_settled(leases.iter().map(Lease::id), Stage::Quarantined);
        Ok(())
    }

    /// What lies in quarantine, newest first.
    pub fn quarantined(&self) -> Result<Vec<Quarantined>, MailboxError> {
        let inner = &self.0;
        inner.with(|_| Ok(()))?;
        let dir = inner.dir.join(QUARANTINE);
        let mut files = Vec::new();
        inner.files().visit(&dir, &mut |name| files.push(name.to_owned()))?;
        let shown = |name: &OsString| !name.as_encoded_bytes().ends_with(REASON_SUFFIX.as_bytes());
        let mut list: Vec<Quarantined> =
            files.into_iter().filter(shown).map(|name| inner.view_quarantined(&name)).collect();
        list.sort_by(|a, b| (b.since, &a.file).cmp(&(a.since, &b.file)));
        Ok(list)
    }

    /// One file in quarantine and its content, as far as it is text, at most 1 MiB.
    pub fn show(&self, id: MessageId) -> Result<(Quarantined, String), MailboxError> {
        let found = self.in_quarantine(id)?;
        let path = self.0.dir.join(QUARANTINE).join(&found.file);
        let content = match self.0.files().read(&path, CONTENT_SHOWN_BYTES_MAX) {
            Ok(bytes) => String::from_utf8_lossy(&bytes).into_owned(),
            Err(DurableError::Io { source, .. }) => format!("({source})"),
            Err(error) => return Err(error.into()),
        };
        Ok((found, content))
    }

    /// A person gives one message another delivery: `quarantine/` -> `ready/`, marked, outside its lane's
    /// order. Durable at return. What cannot be read is refused and stays.
    pub fn redeliver(&self, id: MessageId) -> Result<Quarantined, MailboxError> {
        let found = self.in_quarantine(id)?;
        self.0.redeliver(&found)?;
        self.0.landed_in_ready()?;
        Ok(found)
    }

    /// The same for all that a failed turn left, in the order in which it was claimed. An answer that is empty:
    /// nothing of that turn is there.
    pub fn redeliver_turn(&self, turn: u64) -> Result<Vec<Quarantined>, MailboxError> {
        let mut batch = self.quarantined()?;
        batch.retain(|found| found.reason.turn == Some(turn));
        batch.sort_by_key(|found| found.name.map(|name| (super::index::Rank::of(&name), name.place)));
        for found in &batch {
            self.0.redeliver(found)?;
        }
        if !batch.is_empty() {
            self.0.landed_in_ready()?;
        }
        Ok(batch)
    }

    /// A person drops a file for good. Its number stays settled: the message will not come again. Durable at
    /// return.
    pub fn drop_quarantined(&self, id: MessageId) -> Result<Quarantined, MailboxError> {
        let found = self.in_quarantine(id)?;
        let inner = &self.0;
        let path = inner.dir.join(QUARANTINE).join(&found.file);
        inner.with(|loaded| {
            if let Some(name) = &found.name {
                let mut settled = Seen::default();
                settled.insert(name);
                settled.settle(inner.files(), &inner.dir)?;
                loaded.quarantined.remove(&id);
            } else {
                loaded.quarantined_foreign = loaded.quarantined_foreign.saturating_sub(1);
            }
            inner.files().remove_unsynced(&path)?;
            inner.files().remove_unsynced(&reason_path(&path))?;
            Ok(())
        })?;
        inner.files().sync_dir(&inner.dir.join(QUARANTINE))?;
        inner.files().point("mailbox.drop.synced");
        inner.tell_settled(std::iter::once(id), Stage::Done);
        Ok(found)
    }

    fn in_quarantine(&self, id: MessageId) -> Result<Quarantined, MailboxError> {
        let found = self.quarantined()?.into_iter().find(|found| found.id == id);
        found.ok_or(MailboxError::NotQuarantined { id })
    }
}

impl Inner {
    fn landed_in_ready(&self) -> Result<(), MailboxError> {
        self.files().sync_dir(&self.dir.join(READY))?;
        self.files().point("mailbox.redeliver.synced");
        self.bump();
        Ok(())
    }

    fn redeliver(&self, found: &Quarantined) -> Result<(), MailboxError> {
        let path = self.dir.join(QUARANTINE).join(&found.file);
        let unreadable = |why: String| MailboxError::Unreadable { file: found.file.clone(), why };
        let Some(mut name) = found.name else {
            return Err(unreadable(format!("{} ({})", found.reason.text, found.reason.code)));
        };
        match self.read_content(&path, &name)? {
            Content::Good(..) => {}
            Content::Bad(reason) => return Err(unreadable(format!("{} ({})", reason.text, reason.code))),
        }
        name.after = None;
        name.attempt = 1;
        name.delivery = name.delivery.saturating_add(1);
        name.marks = name.marks.and(Marks::REDELIVERED);
        self.with(|loaded| {
            self.files().rename_unsynced(&path, &self.path(READY, &name))?;
            self.files().point("mailbox.redeliver.renamed");
            loaded.quarantined.remove(&name.id);
            loaded.came(&name);
            Ok(())
        })?;
        self.files().remove_unsynced(&reason_path(&path))?;
        Ok(())
    }

    /// Moves a file that was found to be wrong. Synced, so that its reason lasts.
    pub(super) fn quarantine_file(
        &self,
        loaded: &mut Loaded,
        path: &Path,
        shown: &str,
        id: Option<MessageId>,
        reason: &Reason,
    ) -> Result<(), MailboxError> {
        tracing::warn!(agent = %self.agent, file = shown, code = %reason.code, reason = %reason.text, "file put in quarantine");
        self.put_in_quarantine(path, shown, id, reason)?;
        self.files().sync_dir(&self.dir.join(QUARANTINE))?;
        match id {
            Some(id) => {
                loaded.quarantined.insert(id);
            }
            None => loaded.quarantined_foreign += 1,
        }
        Ok(())
    }

    /// For repairs: moves a file of any state. Synced.
    pub(super) fn put_aside(&self, path: &Path, reason: &Reason) -> Result<(), MailboxError> {
        let shown = file_name(path).to_string_lossy().into_owned();
        let name = FileName::parse(file_name(path)).map(|name| name.free());
        let shown = name.map_or(shown, |name| name.to_string());
        self.put_in_quarantine(path, &shown, name.map(|name| name.id), reason)?;
        self.files().sync_dir(&self.dir.join(QUARANTINE))?;
        Ok(())
    }

    /// For repairs: a reason for a file in quarantine that has none. Synced.
    pub(super) fn give_reason(&self, path: &Path, reason: &Reason) -> Result<(), MailboxError> {
        let bytes = self.reason_file(path, FileName::parse(file_name(path)).map(|name| name.id), reason);
        self.files().place(&self.tmp_path(), &reason_path(path), &bytes)?;
        Ok(())
    }

    fn reason_file(&self, path: &Path, id: Option<MessageId>, reason: &Reason) -> Vec<u8> {
        let content = self.files().read(path, self.limits().envelope_bytes).ok();
        let file = ReasonFile {
            v: 1,
            code: reason.code.clone(),
            text: reason.text.clone(),
            turn: reason.turn,
            since: self.core.setup.clock.now(),
            name: file_name(path).to_string_lossy().into_owned(),
            id,
            from: content.and_then(|bytes| sender_of(&bytes)),
        };
        serde_json::to_vec(&file).unwrap_or_default()
    }

    /// Writes the reason and moves the file; the caller syncs `quarantine/`.
    pub(super) fn put_in_quarantine(
        &self,
        path: &Path,
        shown: &str,
        id: Option<MessageId>,
        reason: &Reason,
    ) -> Result<(), MailboxError> {
        let files = self.files();
        let to = self.dir.join(QUARANTINE).join(self.quarantine_name(file_name(path), shown));
        let bytes = self.reason_file(path, id, reason);
        match files.place_unsynced(&self.tmp_path(), &reason_path(&to), &bytes) {
            // A full disk must not leave a bad file at the head of the queue.
            Err(error @ DurableError::NoSpace { .. }) => {
                tracing::warn!(agent = %self.agent, file = shown, %error, code = %reason.code, "quarantined without its reason");
            }
            placed => placed?,
        }
        files.point("mailbox.quarantine.reason");
        match files.rename_unsynced(path, &to) {
            Ok(()) | Err(DurableError::NotFound { .. }) => {}
            Err(error) => return Err(error.into()),
        }
        files.point("mailbox.quarantine.renamed");
        Ok(())
    }

    /// A name that is free in `quarantine/`: the file's own where it can be, else one made of it.
    fn quarantine_name(&self, raw: &OsStr, shown: &str) -> String {
        let plain = shown.len() <= NAME_BYTES_MAX
            && !shown.ends_with(REASON_SUFFIX)
            && !shown.contains(['/', '\0', char::REPLACEMENT_CHARACTER]);
        let base = if plain {
            shown.to_owned()
        } else {
            let digest = sha256_hex(raw.as_encoded_bytes());
            format!("foreign-{}", digest.get(..16).unwrap_or_default())
        };
        let dir = self.dir.join(QUARANTINE);
        let free = |name: &String| !self.files().exists(&dir.join(name));
        // A message's own name is its identity; a second file under it is foreign.
        let numbered = (1..1_000_000u32).map(|n| format!("{n}-{base}"));
        std::iter::once(base.clone()).chain(numbered).find(free).unwrap_or(base)
    }

    fn view_quarantined(&self, file: &OsStr) -> Quarantined {
        let path = self.dir.join(QUARANTINE).join(file);
        let reason = self.files().read(&reason_path(&path), REASON_BYTES_MAX).ok();
        let reason: Option<ReasonFile> = reason.and_then(|bytes| serde_json::from_slice(&bytes).ok());
        let name = FileName::parse(file);
        let id = name.map_or_else(|| self.id_of_file(file), |name| name.id);
        let (reason, since, from) = match reason {
            Some(r) => (Reason { code: r.code, text: r.text, turn: r.turn }, r.since, r.from),
            None => (Reason::of("unknown", "its reason file is lost".to_owned()), Stamp::default(), None),
        };
        Quarantined { id, file: file.to_string_lossy().into_owned(), reason, since, from, name }
    }
}

fn reason_path(path: &Path) -> std::path::PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(REASON_SUFFIX);
    name.into()
}

/// The sender that a file claims, where it can be read.
fn sender_of(bytes: &[u8]) -> Option<String> {
    #[derive(Deserialize)]
    struct From {
        agent: String,
    }
    #[derive(Deserialize)]
    struct Claims {
        from: From,
    }
    serde_json::from_slice::<Claims>(bytes).ok().map(|claims| claims.from.agent)
}
