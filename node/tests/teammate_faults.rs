//! Teammates on a disk that fails: full, or failing at one place for a while.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing, reason = "tests")]

mod teammate_support;

use std::ffi::{OsStr, OsString};
use std::io;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use posthouse_shared::durable::hindered::{HinderedDisk, Step};
use posthouse_shared::durable::{AppendFile, CrashPoints, Disk, FileLock, Files, RealDisk};
use posthouse_shared::limits::Limits;
use posthouse_shared::message::Kind;
use posthouse_shared::team::AgentState;
use teammate_support::*;

/// The real disk, but the next `n` operations of one sort on paths that end like this fail as full.
#[derive(Clone)]
struct Failing {
    operation: &'static str,
    end: &'static str,
    left: Arc<AtomicU32>,
}

impl Failing {
    fn next(operation: &'static str, end: &'static str) -> Self {
        Self { operation, end, left: Arc::default() }
    }

    fn check(&self, operation: &'static str, path: &Path) -> io::Result<()> {
        let hit = operation == self.operation && path.to_string_lossy().contains(self.end);
        let take = |left: u32| left.checked_sub(1);
        if hit && self.left.fetch_update(Ordering::SeqCst, Ordering::SeqCst, take).is_ok() {
            return Err(io::Error::from(io::ErrorKind::StorageFull));
        }
        Ok(())
    }
}

impl Disk for Failing {
    fn write(&self, path: &Path, bytes: &[u8]) -> io::Result<()> {
        RealDisk.write(path, bytes)
    }
    fn sync_file(&self, path: &Path) -> io::Result<()> {
        RealDisk.sync_file(path)
    }
    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        self.check("rename", to)?;
        RealDisk.rename(from, to)
    }
    fn remove(&self, path: &Path) -> io::Result<()> {
        RealDisk.remove(path)
    }
    fn sync_dir(&self, dir: &Path) -> io::Result<()> {
        self.check("sync_dir", dir)?;
        RealDisk.sync_dir(dir)
    }
    fn sync_file_system(&self, dir: &Path) -> io::Result<()> {
        RealDisk.sync_file_system(dir)
    }
    fn create_dir(&self, dir: &Path) -> io::Result<()> {
        RealDisk.create_dir(dir)
    }
    fn exists(&self, path: &Path) -> bool {
        RealDisk.exists(path)
    }
    fn read(&self, path: &Path, bytes_max: u64) -> io::Result<Vec<u8>> {
        RealDisk.read(path, bytes_max)
    }
    fn list(&self, dir: &Path) -> io::Result<Vec<OsString>> {
        RealDisk.list(dir)
    }
    fn visit(&self, dir: &Path, each: &mut dyn FnMut(&OsStr)) -> io::Result<()> {
        RealDisk.visit(dir, each)
    }
    fn open_lock(&self, path: &Path) -> io::Result<Box<dyn FileLock>> {
        RealDisk.open_lock(path)
    }
    fn open_append(&self, path: &Path) -> io::Result<Box<dyn AppendFile>> {
        let file = RealDisk.open_append(path)?;
        let path = path.to_string_lossy().into_owned();
        Ok(Box::new(FailingAppend { file, path, disk: self.clone() }))
    }
}

struct FailingAppend {
    file: Box<dyn AppendFile>,
    path: String,
    disk: Failing,
}

impl AppendFile for FailingAppend {
    fn len(&self) -> io::Result<u64> {
        self.file.len()
    }
    fn append(&mut self, bytes: &[u8]) -> io::Result<()> {
        if let Err(error) = self.disk.check("append", Path::new(&self.path)) {
            // A full disk may take the first half.
            self.file.append(bytes.get(..bytes.len() / 2).unwrap())?;
            return Err(error);
        }
        self.file.append(bytes)
    }
    fn sync(&mut self) -> io::Result<()> {
        self.file.sync()
    }
    fn truncate(&mut self, len: u64) -> io::Result<()> {
        self.file.truncate(len)
    }
}

async fn one_turn_despite(operation: &'static str, end: &'static str) {
    let temp = tempfile::tempdir().unwrap();
    let disk = Failing::next(operation, end);
    let left = Arc::clone(&disk.left);
    let files = Files::new(Arc::new(disk), CrashPoints::none());
    let bench = Bench::at(temp.path(), limits(), files, 1, Arc::default()).await;
    let mailbox = bench.scout("echo ran >> runs; until test -e go; do sleep 0.01; done; echo done").await;
    bench.send("go");
    bench.appears("runs").await;
    left.store(3, Ordering::SeqCst);
    std::os::unix::fs::symlink("/dev/null", bench.dir.join("go")).unwrap();
    bench.told_lead(Kind::Idle, 1).await;
    assert_eq!(left.load(Ordering::SeqCst), 0, "the fault was met");
    assert_eq!(bench.inbox(), [(Kind::Idle, "done".to_owned())]);
    assert_eq!(bench.file("runs"), "ran\n", "one turn");
    let counts = mailbox.counts().unwrap();
    assert_eq!((counts.ready, counts.processing, counts.done), (0, 0, 1));
    for line in bench.history().lines() {
        assert!(serde_json::from_str::<serde_json::Value>(line).is_ok(), "{line}");
    }
    assert_eq!(bench.history().matches(r#""record":"turn_end""#).count(), 1);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn at05_an_ack_that_fails_is_retried_alone() {
    one_turn_despite("rename", "scout/done/").await;
    one_turn_despite("sync_dir", "scout/done").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_full_disk_at_the_end_of_a_turn_is_waited_out() {
    one_turn_despite("append", "history/main/scout").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_full_disk_at_the_beginning_of_a_turn_costs_no_attempt() {
    let temp = tempfile::tempdir().unwrap();
    let disk = Failing::next("append", "history/main/scout");
    disk.left.store(4, Ordering::SeqCst);
    let left = Arc::clone(&disk.left);
    let files = Files::new(Arc::new(disk), CrashPoints::none());
    let bench = Bench::at(temp.path(), limits(), files, 1, Arc::default()).await;
    bench.send("go");
    bench.scout("jq -r '.messages[0].attempt'").await;
    bench.told_lead(Kind::Idle, 1).await;
    assert_eq!(left.load(Ordering::SeqCst), 0, "the fault was met");
    assert_eq!(bench.inbox(), [(Kind::Idle, "1".to_owned())]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn idle_is_reported_only_after_the_idle_notice_is_stored() {
    let temp = tempfile::tempdir().unwrap();
    let disk = HinderedDisk::default();
    let files = Files::new(Arc::new(disk.clone()), CrashPoints::none());
    let bench = Bench::at(temp.path(), Limits::default(), files, 1, Arc::default()).await;
    bench.scout("cat > /dev/null; echo done").await;
    bench.states("at rest", &[AgentState::Idle]).await;
    disk.hold(Step::Change, "mailboxes/main/lead/tmp");
    bench.send("work");
    let at_it = disk.clone();
    assert!(tokio::task::spawn_blocking(move || at_it.is_holding()).await.unwrap(), "the notice is written");
    assert_eq!(bench.port.told().states, [AgentState::Idle, AgentState::Running]);
    disk.let_go();
    bench.states("idle", &[AgentState::Running, AgentState::Idle]).await;
    assert_eq!(bench.lead_bodies(), [(Kind::Idle, "done".to_owned())]);
}
