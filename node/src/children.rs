//! Child processes that must not outlive their node. Each child carries the mark of its data directory in its
//! environment (`POSTHOUSE_MARK`) and has a record in `DATA/run/children/` while it runs. The next start ends
//! what a crashed node left behind, and nobody else: a process counts as ours if its environment carries the
//! mark, or if a record names its pid together with its start time in this boot. Signals to single processes
//! go through a pidfd that was opened before the check, so that a pid that is used again is never hit.

use std::fs::File;
use std::io::{self, Read};
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use posthouse_shared::durable::{DurableError, Files};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{Pid, PidfdFlags, Signal, kill_process_group, pidfd_open, pidfd_send_signal};
use serde::{Deserialize, Serialize};

/// The variable that carries the mark.
pub const MARK_VARIABLE: &str = "POSTHOUSE_MARK";

/// Largest environment that is searched for the mark.
const ENVIRON_BYTES_MAX: u64 = 4 * 1024 * 1024;
/// Rounds of the sweep: a process may fork between two looks.
const SWEEP_ROUNDS: u32 = 8;
/// After SIGKILL a process needs a moment to be gone.
const KILLED_WAIT: Duration = Duration::from_secs(2);

/// The records of child processes cannot be kept.
#[derive(Debug, thiserror::Error)]
#[error("keep records of child processes")]
pub struct ChildrenError(#[from] DurableError);

/// One child, as recorded.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Record {
    /// Its process id, which is its group's too.
    pub pid: i32,
    /// When it started, in clock ticks since boot.
    pub start: u64,
    /// The machine's boot.
    pub boot_id: String,
}

/// What the sweep at a start did.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Swept {
    /// Processes that were ended.
    pub ended: u32,
    /// Processes of ours that were still there afterwards.
    pub left: u32,
}

/// The records of one data directory. Cheap to clone.
#[derive(Debug, Clone)]
pub struct Children {
    files: Files,
    dir: Arc<Path>,
    mark: Arc<str>,
    boot_id: Arc<str>,
    count: Arc<AtomicU64>,
}

impl Children {
    /// Opens (or makes) the records under `run` (`DATA/run`). The mark of the data directory is durable when
    /// this returns.
    pub fn open(files: Files, run: &Path) -> Result<Self, ChildrenError> {
        let dir = run.join("children");
        files.create_dirs(&dir)?;
        let path = run.join("mark");
        let mark = match files.read_if_there(&path, 256)? {
            Some(bytes) if !bytes.is_empty() => String::from_utf8_lossy(&bytes).trim().to_owned(),
            Some(_) | None => {
                let mark = uuid::Uuid::new_v4().simple().to_string();
                files.replace(&path, mark.as_bytes())?;
                mark
            }
        };
        let boot_id = std::fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap_or_default();
        Ok(Self {
            files,
            dir: dir.into(),
            mark: mark.into(),
            boot_id: boot_id.trim().into(),
            count: Arc::default(),
        })
    }

    /// The value of [`MARK_VARIABLE`] for the next child.
    pub fn next_mark(&self) -> String {
        format!("{}.{}", self.mark, self.count.fetch_add(1, Ordering::Relaxed))
    }

    /// Records a child that was just started and not yet given its input. Written, not synced: a record needs
    /// to survive the node, not the machine.
    pub fn record(&self, pid: Pid) -> Result<(), ChildrenError> {
        let pid = pid.as_raw_pid();
        let start = start_time(pid).unwrap_or(0);
        let record = Record { pid, start, boot_id: self.boot_id.as_ref().to_owned() };
        let bytes = serde_json::to_vec(&record).unwrap_or_default();
        let path = self.path(pid);
        self.files.disk().write(&path, &bytes).map_err(|e| DurableError::sort("write", &path, e))?;
        self.files.point("child.recorded");
        Ok(())
    }

    /// Forgets a child that has ended.
    pub fn forget(&self, pid: Pid) {
        let _swept_at_the_next_start = self.files.remove_unsynced(&self.path(pid.as_raw_pid()));
    }

    fn path(&self, pid: i32) -> PathBuf {
        self.dir.join(format!("{pid}.json"))
    }

    /// Ends all processes of this data directory: SIGTERM, `grace`, SIGKILL. Blocks for at most about
    /// `grace` and some seconds. For a start (what a crash left) and the end of a closing node.
    pub fn end_left_over(&self, grace: Duration) -> Swept {
        let mut swept = Swept::default();
        let records = self.records();
        for round in 0..SWEEP_ROUNDS {
            let found = self.ours(&records);
            if found.is_empty() {
                break;
            }
            if round == 0 {
                swept.ended = u32::try_from(found.len()).unwrap_or(u32::MAX);
                signal_all(&found, Signal::TERM);
                wait_gone(&found, grace);
            }
            signal_all(&found, Signal::KILL);
            wait_gone(&found, KILLED_WAIT);
        }
        swept.left = u32::try_from(self.ours(&records).len()).unwrap_or(u32::MAX);
        for record in records {
            let _kept_for_the_next_start = self.files.remove_unsynced(&self.path(record.pid));
        }
        swept
    }

    fn records(&self) -> Vec<Record> {
        let names = self.files.list(&self.dir).unwrap_or_default();
        let read = |name| self.files.read(&self.dir.join(name), 4096).ok();
        names.into_iter().filter_map(read).filter_map(|bytes| serde_json::from_slice(&bytes).ok()).collect()
    }

    /// Every process that is ours, this one excepted.
    fn ours(&self, records: &[Record]) -> Vec<Ours> {
        let own = rustix::process::getpid();
        let Ok(entries) = std::fs::read_dir("/proc") else { return Vec::new() };
        let pids = entries.filter_map(|entry| entry.ok()?.file_name().to_str()?.parse::<i32>().ok());
        pids.filter_map(|raw| {
            let pid = Pid::from_raw(raw).filter(|pid| *pid != own)?;
            // The pidfd first: if what the checks read is ours, then so is what the pidfd names, since a pid
            // is not given away while its process is there to be read.
            let pidfd = pidfd_open(pid, PidfdFlags::empty()).ok()?;
            if is_zombie(raw) {
                return None;
            }
            let leads = records.iter().any(|record| self.is_recorded(record, raw));
            (leads || self.is_marked(raw)).then_some(Ours { pid, pidfd, leads })
        })
        .collect()
    }

    fn is_recorded(&self, record: &Record, pid: i32) -> bool {
        record.pid == pid
            && *record.boot_id == *self.boot_id
            && record.start != 0
            && start_time(pid) == Some(record.start)
    }

    fn is_marked(&self, pid: i32) -> bool {
        let wanted = format!("{MARK_VARIABLE}={}.", self.mark);
        let Ok(file) = File::open(format!("/proc/{pid}/environ")) else { return false };
        let mut environ = Vec::new();
        let _what_could_be_read = file.take(ENVIRON_BYTES_MAX).read_to_end(&mut environ);
        environ.split(|byte| *byte == 0).any(|entry| entry.starts_with(wanted.as_bytes()))
    }
}

struct Ours {
    pid: Pid,
    pidfd: OwnedFd,
    leads: bool,
}

fn signal_all(found: &[Ours], signal: Signal) {
    for process in found {
        let _gone_is_fine = pidfd_send_signal(&process.pidfd, signal);
        if process.leads {
            // A leader that is alive under its recorded start time keeps its group's id from being reused.
            let _gone_is_fine = kill_process_group(process.pid, signal);
        }
    }
}

/// Waits until all have ended, at most `limit`. A pidfd is readable once its process has ended.
fn wait_gone(found: &[Ours], limit: Duration) {
    let until = Instant::now() + limit;
    for process in found {
        let left = until.saturating_duration_since(Instant::now());
        let timeout = Timespec::try_from(left).ok();
        let mut fds = [PollFd::new(&process.pidfd, PollFlags::IN)];
        let _time_is_over_or_gone: Result<usize, _> =
            poll(&mut fds, timeout.as_ref()).map_err(io::Error::from);
    }
}

/// Start time of a process in clock ticks since boot: field 22 of its `stat`.
pub fn start_time(pid: i32) -> Option<u64> {
    stat_fields(pid)?.get(19)?.parse().ok()
}

fn is_zombie(pid: i32) -> bool {
    stat_fields(pid).is_none_or(|fields| fields.first().is_some_and(|state| state == "Z" || state == "X"))
}

/// The fields of `stat` from the third on: the second, the program's name, may hold anything.
fn stat_fields(pid: i32) -> Option<Vec<String>> {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    Some(stat.rsplit_once(')')?.1.split_whitespace().map(str::to_owned).collect())
}
