//! The data directory: who holds it, whose it is, its secrets. One process at a time; a second one is told
//! who holds it.
//!
//! At return of [`DataDir::open`] the boot counter has risen on disk, so that whatever this process writes
//! with it can be told from what an earlier one wrote.

use std::fs::{File, OpenOptions, TryLockError};
use std::io::{Read, Seek, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use posthouse_shared::clock::{Clock, Stamp};
use posthouse_shared::codes::Code;
use posthouse_shared::durable::{DurableError, Files};
use posthouse_shared::identity::{NodeKey, hex, unhex};
use posthouse_shared::name::HostName;
use posthouse_shared::refusal::Refusal;
use serde::{Deserialize, Serialize};
use uuid::Uuid;

/// What `DATA/lock` tells of the process that holds it. Good only while the lock is held.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Holder {
    /// Its process id.
    pub pid: u32,
    /// Its HTTP address; empty until it listens.
    pub url: String,
    /// Since when.
    pub since: Stamp,
}

/// Whose data directory it is, `DATA/host.json`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct HostFile {
    /// Always 1.
    pub v: u8,
    /// Random, made with the directory.
    pub data_id: String,
    /// The host.
    pub host: HostName,
    /// How often it was started.
    pub boot: u64,
}

/// A data directory that this process holds.
#[derive(Debug)]
pub struct DataDir {
    root: PathBuf,
    lock: File,
    since: Stamp,
    /// Whose it is.
    pub host: HostFile,
    /// The operator's token.
    pub token: String,
    /// The node's key for same-host mail.
    pub key: NodeKey,
}

/// How often, and after which pause, a lock is tried again whose taker has ended: five seconds in all.
const LEFT_OVER_TRIES: u32 = 250;
const LEFT_OVER_PAUSE: std::time::Duration = std::time::Duration::from_millis(20);
/// Largest of the small files here, in bytes.
const SMALL: u64 = 64 * 1024;

impl DataDir {
    /// Takes the directory, making it where it is not there. `name` is the host's name: needed for none but
    /// the first start, refused when it differs from the one that the directory was made with.
    pub fn open(
        root: &Path,
        name: Option<HostName>,
        files: &Files,
        clock: &dyn Clock,
    ) -> Result<Self, Refusal> {
        let root = std::path::absolute(root)
            .map_err(|e| Refusal::new(Code::DataForeign, "find the data directory").because(&e))?;
        files.create_dirs(&root).map_err(|e| unusable(&root, &e))?;
        let since = clock.now();
        let lock = take_lock(&root)?;
        let host = open_host(&root, name, files)?;
        let token = secret(&root.join("token"), files)?;
        let key = secret(&root.join("node.key"), files)?;
        let key =
            unhex(&key).and_then(|bytes| <[u8; NodeKey::BYTES]>::try_from(bytes).ok()).ok_or_else(|| {
                Refusal::new(
                    Code::DataForeign,
                    format!("{} is not 64 hex digits", root.join("node.key").display()),
                )
            })?;
        let mut data = Self { root, lock, since, host, token, key: NodeKey::from_bytes(key) };
        data.tell("").map_err(|e| Refusal::new(Code::DiskFailed, "write DATA/lock").because(&e))?;
        Ok(data)
    }

    /// Where it is, absolute.
    pub fn root(&self) -> &Path {
        &self.root
    }

    /// Tells others the address that this process serves.
    pub fn tell(&mut self, url: &str) -> std::io::Result<()> {
        let holder = Holder { pid: std::process::id(), url: url.to_owned(), since: self.since };
        self.lock.set_len(0)?;
        self.lock.rewind()?;
        self.lock.write_all(serde_json::to_string(&holder)?.as_bytes())
    }
}

/// Who holds the directory, if anybody does just now.
pub fn holder(root: &Path) -> Option<Holder> {
    let mut file = File::open(root.join("lock")).ok()?;
    match file.try_lock_shared() {
        Err(TryLockError::WouldBlock) => {}
        Ok(()) | Err(TryLockError::Error(_)) => return None,
    }
    let mut text = String::new();
    file.read_to_string(&mut text).ok()?;
    serde_json::from_str(&text).ok()
}

fn unusable(root: &Path, error: &DurableError) -> Refusal {
    let mut refusal = error.refusal();
    refusal.message = format!("cannot use the data directory {}: {}", root.display(), refusal.message);
    refusal.effect("nothing was started").next("posthouse up --data DIR")
}

fn take_lock(root: &Path) -> Result<File, Refusal> {
    let path = root.join("lock");
    let file = OpenOptions::new().read(true).write(true).create(true).truncate(false).mode(0o600).open(&path);
    let file = file.map_err(|e| unusable(root, &DurableError::sort("open", &path, e)))?;
    let mut tries = LEFT_OVER_TRIES;
    let mut locked = file.try_lock();
    // A child that was just forked has the lock's file open until its program is executed. Where its parent was
    // killed in that moment, it alone holds the lock, and lets go of it at once.
    while tries > 0
        && matches!(locked, Err(TryLockError::WouldBlock))
        && holder(root).is_some_and(|h| is_gone(&h))
    {
        std::thread::sleep(LEFT_OVER_PAUSE);
        tries -= 1;
        locked = file.try_lock();
    }
    match locked {
        Ok(()) => Ok(file),
        Err(TryLockError::Error(e)) => Err(unusable(root, &DurableError::sort("lock", &path, e))),
        Err(TryLockError::WouldBlock) => {
            let who = match holder(root) {
                Some(Holder { pid, url, since }) if url.is_empty() => format!("process {pid}, since {since}"),
                Some(Holder { pid, url, since }) => format!("process {pid} at {url}, since {since}"),
                None => "another process".to_owned(),
            };
            Err(Refusal::new(Code::DataHeld, format!("{} is held by {who}", root.display()))
                .effect("nothing was started")
                .next("posthouse ps                 (talks to the one that runs)")
                .next("posthouse up --data DIR      (another directory)"))
        }
    }
}

/// Whether the process that took the lock has ended.
fn is_gone(holder: &Holder) -> bool {
    let pid = i32::try_from(holder.pid).ok().and_then(rustix::process::Pid::from_raw);
    pid.is_some_and(|pid| rustix::process::test_kill_process(pid) == Err(rustix::io::Errno::SRCH))
}

fn open_host(root: &Path, name: Option<HostName>, files: &Files) -> Result<HostFile, Refusal> {
    let path = root.join("host.json");
    let foreign = |text: String| Refusal::new(Code::DataForeign, text).effect("nothing was started");
    let found = files.read_if_there(&path, SMALL).map_err(|e| unusable(root, &e))?;
    let mut host = match found {
        Some(bytes) => serde_json::from_slice::<HostFile>(&bytes).map_err(|e| {
            foreign(format!("{} is not a host file of this version", path.display())).because(&e)
        })?,
        None => {
            // A directory that holds something else is not taken over.
            let others = files.list(root).map_err(|e| unusable(root, &e))?;
            if let Some(other) =
                others.iter().find(|name| !matches!(name.to_str(), Some("lock" | "host.json.tmp")))
            {
                return Err(foreign(format!(
                    "{} is not empty and not a data directory of Posthouse: it holds {}",
                    root.display(),
                    other.display()
                ))
                .next("posthouse up --data DIR"));
            }
            let host = name.clone().unwrap_or_else(machine_name);
            HostFile { v: 1, data_id: Uuid::new_v4().simple().to_string(), host, boot: 0 }
        }
    };
    if let Some(name) = name.filter(|name| *name != host.host) {
        return Err(foreign(format!("the data directory is of host \"{}\", not \"{name}\"", host.host))
            .next("leave --name away, or use another directory"));
    }
    host.boot = host.boot.saturating_add(1);
    let text = serde_json::to_vec(&host).map_err(|e| foreign("encode host.json".to_owned()).because(&e))?;
    files.replace(&path, &text).map_err(|e| unusable(root, &e))?;
    Ok(host)
}

/// The machine's own name as far as it makes a name, else `local`.
fn machine_name() -> HostName {
    let uname = rustix::system::uname();
    let text = uname.nodename().to_string_lossy().to_lowercase();
    let text: String = text.split('.').next().unwrap_or_default().replace('_', "-");
    HostName::new(text).or_else(|_| HostName::new("local")).unwrap_or_else(|_| unreachable!("a valid name"))
}

/// 64 hex digits in a file that only the user can read; made at the first start.
fn secret(path: &Path, files: &Files) -> Result<String, Refusal> {
    if let Some(bytes) = files.read_if_there(path, SMALL).map_err(|e| e.refusal())? {
        return Ok(String::from_utf8_lossy(&bytes).trim().to_owned());
    }
    let secret = hex(&[*Uuid::new_v4().as_bytes(), *Uuid::new_v4().as_bytes()].concat());
    files.replace(path, secret.as_bytes()).map_err(|e| e.refusal())?;
    Ok(secret)
}

#[cfg(test)]
mod tests {
    use super::*;
    use posthouse_shared::clock::SystemClock;

    fn open(root: &Path, name: Option<&str>) -> Result<DataDir, Refusal> {
        DataDir::open(root, name.map(|n| HostName::new(n).unwrap()), &Files::real(), &SystemClock)
    }

    #[test]
    fn a_second_process_is_told_who_holds_the_directory() {
        let dir = tempfile::tempdir().unwrap();
        let mut first = open(dir.path(), Some("alpha")).unwrap();
        first.tell("http://127.0.0.1:7").unwrap();
        let refusal = open(dir.path(), None).unwrap_err();
        assert_eq!(refusal.code, Code::DataHeld);
        assert!(refusal.message.contains(&format!("process {} at http://127.0.0.1:7", std::process::id())));
        assert_eq!(holder(dir.path()).unwrap().url, "http://127.0.0.1:7");
        drop(first);
        assert_eq!(holder(dir.path()), None);
        assert_eq!(open(dir.path(), None).unwrap().host.boot, 2);
    }

    #[test]
    fn a_lock_whose_taker_was_killed_is_waited_for() {
        let dir = tempfile::tempdir().unwrap();
        let first = open(dir.path(), Some("alpha")).unwrap();
        // As a child between fork and exec: another descriptor of the same open file, and its taker is gone.
        let left_over = first.lock.try_clone().unwrap();
        drop(first);
        let mut ended = std::process::Command::new("true").spawn().unwrap();
        ended.wait().unwrap();
        let holder = Holder { pid: ended.id(), url: String::new(), since: Stamp::default() };
        left_over.set_len(0).unwrap();
        (&left_over).rewind().unwrap();
        (&left_over).write_all(serde_json::to_string(&holder).unwrap().as_bytes()).unwrap();
        let opening = std::thread::scope(|scope| {
            let opening = scope.spawn(|| open(dir.path(), None));
            std::thread::sleep(std::time::Duration::from_millis(100));
            assert!(!opening.is_finished(), "it waits while the lock is held");
            drop(left_over);
            opening.join().unwrap()
        });
        assert_eq!(opening.unwrap().host.boot, 2);
    }

    #[test]
    fn a_directory_of_something_else_is_not_taken_over() {
        let dir = tempfile::tempdir().unwrap();
        std::fs::create_dir(dir.path().join("src")).unwrap();
        assert_eq!(open(dir.path(), None).unwrap_err().code, Code::DataForeign);
    }

    #[test]
    fn another_name_on_the_same_directory_is_refused() {
        let dir = tempfile::tempdir().unwrap();
        drop(open(dir.path(), Some("alpha")).unwrap());
        assert_eq!(open(dir.path(), Some("beta")).unwrap_err().code, Code::DataForeign);
    }

    #[test]
    fn secrets_stay_the_same_and_are_for_the_user_only() {
        use std::os::unix::fs::PermissionsExt;
        let dir = tempfile::tempdir().unwrap();
        let token = open(dir.path(), None).unwrap().token;
        assert_eq!(open(dir.path(), None).unwrap().token, token);
        let mode = std::fs::metadata(dir.path().join("token")).unwrap().permissions().mode();
        assert_eq!((token.len(), mode & 0o777), (64, 0o600));
    }
}
