//! The real disk, hindered on purpose, for tests: operations on some paths wait until they are let through, or
//! fail as on a full disk. What is held back can be awaited, so that a test needs no sleep to stand between two
//! steps.

use std::ffi::{OsStr, OsString};
use std::io;
use std::path::Path;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use super::{AppendFile, Disk, FileLock, RealDisk};

/// Nothing waits longer: a test that forgot to let go fails by what it then sees, and ends.
const PATIENCE: Duration = Duration::from_secs(30);

/// What an operation does to its path.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Step {
    /// Creates a file or directory, writes, renames to, removes.
    Change,
    /// Lists a directory.
    List,
}

/// A real disk with hindrances. Clones share them.
#[derive(Debug, Clone, Default)]
pub struct HinderedDisk(Arc<(Mutex<Hindrances>, Condvar)>);

#[derive(Debug, Default)]
struct Hindrances {
    held: Option<(Step, &'static str)>,
    waiting: u32,
    full: Option<(&'static str, u32)>,
}

impl HinderedDisk {
    /// From now on such steps on paths that contain `part` wait for [`HinderedDisk::let_go`].
    pub fn hold(&self, step: Step, part: &'static str) {
        self.lock().held = Some((step, part));
    }

    /// Waits until a step is held; answers whether one is.
    pub fn is_holding(&self) -> bool {
        let (_, changed) = &*self.0;
        let waited = changed.wait_timeout_while(self.lock(), PATIENCE, |now| now.waiting == 0);
        waited.unwrap_or_else(PoisonError::into_inner).0.waiting > 0
    }

    /// Lets through what is held, and all that follows.
    pub fn let_go(&self) {
        self.lock().held = None;
        self.0.1.notify_all();
    }

    /// The next `n` changes of paths that contain `part` fail as on a full disk.
    pub fn fill(&self, part: &'static str, n: u32) {
        self.lock().full = Some((part, n));
    }

    fn lock(&self) -> MutexGuard<'_, Hindrances> {
        self.0.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn pass(&self, step: Step, path: &Path) -> io::Result<()> {
        let path = path.to_string_lossy();
        let mut now = self.lock();
        let held = |now: &mut Hindrances| now.held.is_some_and(|(s, part)| s == step && path.contains(part));
        if held(&mut now) {
            now.waiting += 1;
            self.0.1.notify_all();
            let waited = self.0.1.wait_timeout_while(now, PATIENCE, held);
            now = waited.unwrap_or_else(PoisonError::into_inner).0;
            now.waiting -= 1;
        }
        match &mut now.full {
            Some((part, left)) if step == Step::Change && *left > 0 && path.contains(*part) => {
                *left -= 1;
                Err(io::ErrorKind::StorageFull.into())
            }
            Some(_) | None => Ok(()),
        }
    }
}

impl Disk for HinderedDisk {
    fn write(&self, path: &Path, bytes: &[u8]) -> io::Result<()> {
        self.pass(Step::Change, path)?;
        RealDisk.write(path, bytes)
    }

    fn sync_file(&self, path: &Path) -> io::Result<()> {
        RealDisk.sync_file(path)
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        self.pass(Step::Change, to)?;
        RealDisk.rename(from, to)
    }

    fn remove(&self, path: &Path) -> io::Result<()> {
        self.pass(Step::Change, path)?;
        RealDisk.remove(path)
    }

    fn sync_dir(&self, dir: &Path) -> io::Result<()> {
        RealDisk.sync_dir(dir)
    }

    fn sync_file_system(&self, dir: &Path) -> io::Result<()> {
        RealDisk.sync_file_system(dir)
    }

    fn create_dir(&self, dir: &Path) -> io::Result<()> {
        self.pass(Step::Change, dir)?;
        RealDisk.create_dir(dir)
    }

    fn exists(&self, path: &Path) -> bool {
        RealDisk.exists(path)
    }

    fn read(&self, path: &Path, bytes_max: u64) -> io::Result<Vec<u8>> {
        RealDisk.read(path, bytes_max)
    }

    fn list(&self, dir: &Path) -> io::Result<Vec<OsString>> {
        self.pass(Step::List, dir)?;
        RealDisk.list(dir)
    }

    fn visit(&self, dir: &Path, each: &mut dyn FnMut(&OsStr)) -> io::Result<()> {
        self.pass(Step::List, dir)?;
        RealDisk.visit(dir, each)
    }

    fn open_lock(&self, path: &Path) -> io::Result<Box<dyn FileLock>> {
        RealDisk.open_lock(path)
    }

    fn open_append(&self, path: &Path) -> io::Result<Box<dyn AppendFile>> {
        self.pass(Step::Change, path)?;
        RealDisk.open_append(path)
    }
}
