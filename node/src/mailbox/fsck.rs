//! Reads a data directory offline and reports every breach of what mailboxes, post and history promise. Looking
//! changes nothing; repairing moves what is wrong to quarantine, heals torn tails, and never deletes content.
//! The journal is the coordinator's: it checks its own chain at each start.

use std::collections::HashMap;
use std::ffi::{OsStr, OsString};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use posthouse_shared::clock::{Stamp, SystemClock};
use posthouse_shared::durable::{DurableError, Files};
use posthouse_shared::generation::Birth;
use posthouse_shared::identity::{HostKeys, NodeKey, unhex};
use posthouse_shared::limits::Limits;
use posthouse_shared::name::{AgentId, AgentName, TeamName};
use serde::Serialize;

use crate::host_keys::{KeptKeys, KeysError};

use super::content::{Content, Reader};
use super::dedup::{CURSORS, Seen};
use super::error::MailboxError;
use super::name::{FileName, Incarnation};
use super::quarantine::{REASON_SUFFIX, Reason};
use super::{BIRTH, DONE, Key, LOCK, Mailboxes, PROCESSING, QUARANTINE, READY, STATES, Setup, TMP};

const LINES_BYTES_MAX: u64 = 8 << 30;
/// Settled by opening the mailbox.
const TWICE: &str = "twice";
const BROKEN_SUFFIX: &str = ".broken";

/// What is wrong with one file.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Breach {
    /// The file, below the data directory.
    pub path: String,
    /// In short: `mismatch`, `foreign`, `twice`, `bad_cursors`, `torn_tail`, `bad_line`, `half_written` ...
    pub code: String,
    /// For people.
    pub text: String,
    /// Whether `--repair` mended it.
    pub repaired: bool,
}

/// What was looked at and found.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct Report {
    /// Version of this report.
    pub v: u8,
    /// Mailboxes that were read.
    pub mailboxes: usize,
    /// Messages that were read and checked.
    pub messages: usize,
    /// Lines of logs that were read.
    pub lines: usize,
    /// All breaches, by path.
    pub breaches: Vec<Breach>,
}

impl Report {
    /// Whether nothing is left to mend.
    pub fn is_clean(&self) -> bool {
        self.breaches.iter().all(|breach| breach.repaired)
    }
}

/// The directory could not be looked at.
#[derive(Debug, thiserror::Error)]
pub enum FsckError {
    /// A running process holds it.
    #[error("data directory {path} is held by a running process: {holder}")]
    Held {
        /// The data directory.
        path: PathBuf,
        /// What stands in its lock file.
        holder: String,
    },
    /// It is none.
    #[error("{path} is not a data directory: it has no mailboxes")]
    NotData {
        /// What was named.
        path: PathBuf,
    },
    /// The keys of other hosts cannot be read.
    #[error(transparent)]
    Keys(#[from] KeysError),
    /// The disk.
    #[error(transparent)]
    Durable(#[from] DurableError),
    /// A repair failed.
    #[error("repair mailbox")]
    Mailbox(#[from] MailboxError),
}

/// Checks the data directory `data`, and mends what can be mended when `repair` is set.
pub fn fsck(files: &Files, data: &Path, limits: &Limits, repair: bool) -> Result<Report, FsckError> {
    if !files.exists(&data.join("mailboxes")) {
        return Err(FsckError::NotData { path: data.to_owned() });
    }
    let lock_path = data.join(LOCK);
    // Held until the end, so that nobody starts meanwhile.
    let lock = if files.exists(&lock_path) { Some(files.open_lock(&lock_path)?) } else { None };
    if let Some(lock) = &lock
        && !lock.try_lock().map_err(|e| DurableError::sort("lock", &lock_path, e))?
    {
        let holder = files.read(&lock_path, 4_096).unwrap_or_default();
        let holder = String::from_utf8_lossy(&holder).trim().to_owned();
        return Err(FsckError::Held { path: data.to_owned(), holder });
    }
    let key = files.read_if_there(&data.join("node.key"), 4_096)?.and_then(|bytes| parse_key(&bytes));
    let hosts = HostKeys::default();
    KeptKeys::open(files, data, &hosts)?;
    let report = Report { v: 1, ..Report::default() };
    let mut check = Check { files, data, limits, key, hosts, repair, report };
    check.mailboxes()?;
    for log in ["lanes.jsonl", "ids.jsonl"] {
        check.lines(&data.join("sent").join(log))?;
    }
    check.histories()?;
    check.clock()?;
    check.report.breaches.sort_by(|a, b| a.path.cmp(&b.path));
    Ok(check.report)
}

/// 64 hex digits, or the 32 bytes themselves.
fn parse_key(bytes: &[u8]) -> Option<NodeKey> {
    let text = std::str::from_utf8(bytes).ok().and_then(|text| unhex(text.trim()));
    let raw = text.unwrap_or_else(|| bytes.to_vec());
    raw.try_into().ok().map(NodeKey::from_bytes)
}

struct Check<'a> {
    files: &'a Files,
    data: &'a Path,
    limits: &'a Limits,
    key: Option<NodeKey>,
    hosts: HostKeys,
    repair: bool,
    report: Report,
}

impl Check<'_> {
    fn breach(&mut self, path: &Path, code: &str, text: impl Into<String>, repaired: bool) {
        let path = path.strip_prefix(self.data).unwrap_or(path).display().to_string();
        self.report.breaches.push(Breach { path, code: code.to_owned(), text: text.into(), repaired });
    }

    fn list(&self, dir: &Path) -> Result<Vec<OsString>, FsckError> {
        let mut names = match self.files.list(dir) {
            Ok(names) => names,
            Err(DurableError::NotFound { .. }) => Vec::new(),
            Err(error) => return Err(error.into()),
        };
        names.sort();
        Ok(names)
    }

    fn mailboxes(&mut self) -> Result<(), FsckError> {
        let root = self.data.join("mailboxes");
        for team in self.list(&root)? {
            let Some(team_name) = team.to_str().and_then(|name| TeamName::new(name).ok()) else {
                self.breach(&root.join(&team), "foreign", "it is not the name of a team", false);
                continue;
            };
            for agent in self.list(&root.join(&team))? {
                let dir = root.join(&team).join(&agent);
                match agent.to_str().and_then(|name| AgentName::new(name).ok()) {
                    Some(name) => self.mailbox(&AgentId::new(name, team_name.clone()), &dir)?,
                    None => self.breach(&dir, "foreign", "it is not the name of an agent", false),
                }
            }
        }
        Ok(())
    }

    fn mailbox(&mut self, agent: &AgentId, dir: &Path) -> Result<(), FsckError> {
        self.report.mailboxes += 1;
        let birth = self.files.read_if_there(&dir.join(BIRTH), 64)?;
        let birth = birth.and_then(|bytes| String::from_utf8_lossy(&bytes).trim().parse::<Birth>().ok());
        let Some(birth) = birth else {
            self.breach(dir, "no_birth", "the birth is missing: this mailbox was never finished", false);
            return Ok(());
        };
        let known = [BIRTH, CURSORS, LOCK, TMP, READY, PROCESSING, DONE, QUARANTINE];
        for name in self.list(dir)? {
            if !known.iter().any(|known| name == *known) {
                self.breach(&dir.join(&name), "foreign", "no such file belongs into a mailbox", false);
            }
        }
        for state in STATES.into_iter().chain([TMP]) {
            if !self.files.exists(&dir.join(state)) {
                let made = self.repair && self.files.create_dirs(&dir.join(state)).is_ok();
                self.breach(&dir.join(state), "missing", "the directory is missing", made);
            }
        }
        let cursors = self.cursors(dir)?;
        let Some(key) = self.key.clone() else {
            self.breach(
                &self.data.join("node.key"),
                "no_key",
                "messages cannot be checked without it",
                false,
            );
            return Ok(());
        };
        let limits = self.limits.clone();
        let hosts = self.hosts.clone();
        let reader = Reader { agent, birth, key: &key, hosts: &hosts, limits: &limits };
        let found = self.look(&reader, dir, &cursors)?;
        if self.repair && !found.is_empty() {
            self.mend(agent, &key, &found)?;
        }
        Ok(())
    }

    fn cursors(&mut self, dir: &Path) -> Result<Seen, FsckError> {
        match Seen::read(self.files, dir) {
            Ok(cursors) => Ok(cursors),
            Err(MailboxError::Broken { why, .. }) => {
                let path = dir.join(CURSORS);
                let mut aside = path.clone().into_os_string();
                aside.push(BROKEN_SUFFIX);
                let moved = self.repair && self.files.rename(&path, Path::new(&aside)).is_ok();
                let lost = if moved {
                    "; it was put aside, so duplicates of what was pruned are not known any more"
                } else {
                    ""
                };
                self.breach(&path, "bad_cursors", format!("{why}{lost}"), moved);
                Ok(Seen::default())
            }
            Err(error) => Err(error.into()),
        }
    }

    /// Reads every file of a mailbox; answers which ones a repair has to move, and where their breach stands.
    fn look(&mut self, reader: &Reader<'_>, dir: &Path, cursors: &Seen) -> Result<Vec<Wrong>, FsckError> {
        let mut wrong = Vec::new();
        let mut places: HashMap<Key, PathBuf> = HashMap::new();
        // The last state first: of two copies the earlier one is the wrong one.
        for state in STATES.into_iter().rev() {
            let names = self.list(&dir.join(state))?;
            for name in &names {
                let path = dir.join(state).join(name);
                match self.judge(reader, state, name, &names, &path, cursors, &mut places) {
                    Ok(()) => {}
                    Err(reason) => {
                        wrong.push(Wrong { path: path.clone(), state, breach: self.report.breaches.len() });
                        self.breach(&path, &reason.code, reason.text, false);
                    }
                }
            }
        }
        for name in self.list(&dir.join(TMP))? {
            let path = dir.join(TMP).join(&name);
            let swept = self.repair && self.files.remove_unsynced(&path).is_ok();
            self.breach(&path, "half_written", "a crash left it; it was never accepted", swept);
        }
        Ok(wrong)
    }

    #[expect(clippy::too_many_arguments, reason = "one file with all that decides on it")]
    fn judge(
        &mut self,
        reader: &Reader<'_>,
        state: &'static str,
        name: &OsStr,
        siblings: &[OsString],
        path: &Path,
        cursors: &Seen,
        places: &mut HashMap<Key, PathBuf>,
    ) -> Result<(), Reason> {
        let is_reason = name.as_encoded_bytes().ends_with(REASON_SUFFIX.as_bytes());
        if state == QUARANTINE {
            let mut reason = name.to_owned();
            reason.push(REASON_SUFFIX);
            if !is_reason && siblings.binary_search(&reason).is_err() {
                return Err(Reason::of("no_reason", "it lies in quarantine without a reason".to_owned()));
            }
        }
        let parsed = FileName::parse(name).filter(|parsed| parsed.holder.is_some() == (state == PROCESSING));
        let Some(parsed) = parsed else {
            return if state == QUARANTINE {
                Ok(())
            } else {
                Err(Reason::foreign("its name is not one of ours"))
            };
        };
        if let Some(other) = places.insert(Key::of(&parsed), path.to_owned()) {
            let other = other.strip_prefix(self.data).unwrap_or(&other).display().to_string();
            return Err(Reason::of(TWICE, format!("the same message is also {other}")));
        }
        let settled = cursors.contains(&parsed);
        if settled && (state == READY || state == PROCESSING) {
            return Err(Reason::of(TWICE, "its number was settled before".to_owned()));
        }
        if state == QUARANTINE {
            return Ok(());
        }
        self.report.messages += 1;
        match self.files.read(path, self.limits.envelope_bytes) {
            Ok(bytes) => match reader.judge(bytes, &parsed) {
                Content::Good(..) => Ok(()),
                Content::Bad(reason) => Err(reason),
            },
            Err(DurableError::Io { source, .. }) if source.kind() == io::ErrorKind::FileTooLarge => {
                Err(Reason::of("too_large", source.to_string()))
            }
            Err(error) => Err(Reason::of("unreadable", error.to_string())),
        }
    }

    /// Opening the mailbox adopts or quarantines foreign files and settles what is there twice; what else is
    /// wrong is moved here.
    fn mend(&mut self, agent: &AgentId, key: &NodeKey, found: &[Wrong]) -> Result<(), FsckError> {
        let mailboxes = Mailboxes::open(Setup {
            files: self.files.clone(),
            dir: self.data.join("mailboxes"),
            attic: self.data.join("attic"),
            key: key.clone(),
            hosts: self.hosts.clone(),
            limits: Arc::new(self.limits.clone()),
            clock: Arc::new(SystemClock),
            // Above every real one, so that leases stay those of dead incarnations.
            incarnation: Incarnation(u64::MAX),
        })?;
        let mailbox = mailboxes.get(agent)?;
        mailbox.counts()?;
        for wrong in found {
            let Some(breach) = self.report.breaches.get_mut(wrong.breach) else { continue };
            let reason = Reason::of(&breach.code, breach.text.clone());
            if wrong.state == QUARANTINE {
                breach.repaired = mailbox.0.give_reason(&wrong.path, &reason).is_ok();
            } else if breach.code != TWICE && self.files.exists(&wrong.path) {
                mailbox.0.put_aside(&wrong.path, &reason)?;
                breach.repaired = true;
            } else {
                breach.repaired = true;
            }
        }
        Ok(())
    }

    fn histories(&mut self) -> Result<(), FsckError> {
        let root = self.data.join("history");
        for team in self.list(&root)? {
            for name in self.list(&root.join(&team))? {
                let path = root.join(&team).join(&name);
                if name.as_encoded_bytes().ends_with(b".jsonl") {
                    self.lines(&path)?;
                } else {
                    self.breach(&path, "foreign", "it is not a history", false);
                }
            }
        }
        Ok(())
    }

    /// A log of JSON lines: whole lines, the last one ended.
    fn lines(&mut self, path: &Path) -> Result<(), FsckError> {
        let Some(bytes) = self.files.read_if_there(path, LINES_BYTES_MAX)? else { return Ok(()) };
        let whole = bytes.iter().rposition(|byte| *byte == b'\n').map_or(0, |at| at + 1);
        for (at, line) in bytes.get(..whole).unwrap_or_default().split(|byte| *byte == b'\n').enumerate() {
            if line.is_empty() {
                continue;
            }
            self.report.lines += 1;
            if let Err(error) = serde_json::from_slice::<serde::de::IgnoredAny>(line) {
                self.breach(path, "bad_line", format!("line {}: {error}", at + 1), false);
            }
        }
        if whole < bytes.len() {
            let cut = self.repair && self.cut(path, whole).is_ok();
            let text = format!("the last line is torn ({} bytes)", bytes.len() - whole);
            self.breach(path, "torn_tail", text, cut);
        }
        Ok(())
    }

    fn cut(&self, path: &Path, len: usize) -> Result<(), DurableError> {
        self.files.open_log(path)?.truncate(u64::try_from(len).unwrap_or(u64::MAX))
    }

    fn clock(&mut self) -> Result<(), FsckError> {
        let path = self.data.join("clock");
        let Some(bytes) = self.files.read_if_there(&path, 128)? else { return Ok(()) };
        if let Err(error) = String::from_utf8_lossy(&bytes).trim().parse::<Stamp>() {
            self.breach(&path, "bad_clock", error.to_string(), false);
        }
        Ok(())
    }
}

struct Wrong {
    path: PathBuf,
    state: &'static str,
    breach: usize,
}
