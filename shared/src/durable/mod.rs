//! The durable file layer: the one place that knows write, sync, rename, sync. Everything that Posthouse
//! promises to keep goes to disk through [`Files`], over a [`Disk`] that can be real or simulated.
//!
//! *Written* and *durable* are two facts: a method whose name ends in nothing special makes its effect durable
//! before it returns; those ending in `_unsynced` do not.
//!
//! Each step of each sequence passes a named crash point. A test arms one, and the process aborts there (or,
//! on a simulated disk, the disk loses power there).

mod crash;
mod disk;
#[cfg(any(test, feature = "simulated"))]
pub mod hindered;
#[cfg(any(test, feature = "simulated"))]
pub mod simulated;

use std::ffi::{OsStr, OsString};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

pub use crash::CrashPoints;
pub use disk::RealDisk;

/// What a disk must be able to do. Nothing here is durable until the matching `sync_*` has returned.
///
/// The contract suite in `shared/tests` holds every implementation to the same behaviour.
pub trait Disk: Send + Sync + 'static {
    /// Creates a file with these bytes, or replaces its content. Neither content nor name is synced.
    fn write(&self, path: &Path, bytes: &[u8]) -> io::Result<()>;
    /// Syncs a file's content and length.
    fn sync_file(&self, path: &Path) -> io::Result<()>;
    /// [`Disk::write`] and [`Disk::sync_file`] on one open file.
    fn write_synced(&self, path: &Path, bytes: &[u8]) -> io::Result<()> {
        self.write(path, bytes)?;
        self.sync_file(path)
    }
    /// Renames a file, replacing `to` where it exists. Not synced.
    fn rename(&self, from: &Path, to: &Path) -> io::Result<()>;
    /// Removes a file. Not synced.
    fn remove(&self, path: &Path) -> io::Result<()>;
    /// Syncs the entries of a directory.
    fn sync_dir(&self, dir: &Path) -> io::Result<()>;
    /// Syncs all that was written to the file system that `dir` lies on, in one barrier.
    fn sync_file_system(&self, dir: &Path) -> io::Result<()>;
    /// Creates one directory; fine if it is there. Not synced.
    fn create_dir(&self, dir: &Path) -> io::Result<()>;
    /// Whether there is a file or directory of this name.
    fn exists(&self, path: &Path) -> bool;
    /// Reads a whole file; an error of kind `FileTooLarge` when it is longer than `bytes_max`, of kind
    /// `InvalidInput` when it is a pipe or a device.
    fn read(&self, path: &Path, bytes_max: u64) -> io::Result<Vec<u8>>;
    /// Names of all entries of a directory, in no order.
    fn list(&self, dir: &Path) -> io::Result<Vec<OsString>>;
    /// Calls `each` with the name of every entry of a directory, in no order.
    fn visit(&self, dir: &Path, each: &mut dyn FnMut(&OsStr)) -> io::Result<()> {
        self.list(dir)?.iter().for_each(|name| each(name));
        Ok(())
    }
    /// Opens a file that processes lock against each other, creating it where it is not there. Advisory, and
    /// gone with the process.
    fn open_lock(&self, path: &Path) -> io::Result<Box<dyn FileLock>>;
    /// Opens a file for appending, creating it (unsynced) where it is not there.
    fn open_append(&self, path: &Path) -> io::Result<Box<dyn AppendFile>>;
}

/// An advisory lock on a file. Held by the handle: threads that share one need a lock of their own.
pub trait FileLock: Send + Sync {
    /// Waits until no other process holds it.
    fn lock(&self) -> io::Result<()>;
    /// Lets it go.
    fn unlock(&self);
    /// Takes it unless another process holds it; answers whether it did.
    fn try_lock(&self) -> io::Result<bool>;
}

/// A file that is written at its end only.
pub trait AppendFile: Send {
    /// Its length.
    fn len(&self) -> io::Result<u64>;
    /// Whether it is empty.
    fn is_empty(&self) -> io::Result<bool> {
        Ok(self.len()? == 0)
    }
    /// Writes at the end. Not synced.
    fn append(&mut self, bytes: &[u8]) -> io::Result<()>;
    /// Syncs all that was appended.
    fn sync(&mut self) -> io::Result<()>;
    /// Cuts the file to this length. Not synced.
    fn truncate(&mut self, len: u64) -> io::Result<()>;
}

/// A failure of the durable layer, sorted by what the caller can do about it.
#[derive(Debug, thiserror::Error)]
pub enum DurableError {
    /// No blocks or no inodes, or over quota: goes on when there is room.
    #[error("no room on the disk to {action} {path}")]
    NoSpace {
        /// What was tried.
        action: &'static str,
        /// Where.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },
    /// The file system or directory cannot be written.
    #[error("not allowed to {action} {path}")]
    ReadOnly {
        /// What was tried.
        action: &'static str,
        /// Where.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },
    /// There is no such file: for a rename, somebody else was faster.
    #[error("nothing there to {action}: {path}")]
    NotFound {
        /// What was tried.
        action: &'static str,
        /// Where.
        path: PathBuf,
    },
    /// Anything else.
    #[error("{action} {path}")]
    Io {
        /// What was tried.
        action: &'static str,
        /// Where.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },
}

impl DurableError {
    /// Sorts a system error.
    pub fn sort(action: &'static str, path: &Path, source: io::Error) -> Self {
        let path = path.to_owned();
        match source.kind() {
            io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => {
                Self::NoSpace { action, path, source }
            }
            io::ErrorKind::ReadOnlyFilesystem | io::ErrorKind::PermissionDenied => {
                Self::ReadOnly { action, path, source }
            }
            io::ErrorKind::NotFound => Self::NotFound { action, path },
            _ => Self::Io { action, path, source },
        }
    }

    /// As a refusal for users.
    pub fn refusal(&self) -> crate::refusal::Refusal {
        use crate::codes::Code;
        let code = match self {
            Self::NoSpace { .. } => Code::NoSpace,
            Self::ReadOnly { .. } => Code::ReadOnly,
            Self::NotFound { .. } | Self::Io { .. } => Code::DiskFailed,
        };
        let refusal = crate::refusal::Refusal::new(code, self.to_string());
        let refusal = match std::error::Error::source(self) {
            Some(source) => refusal.cause(source.to_string()),
            None => refusal,
        };
        match self {
            Self::NoSpace { .. } => refusal.retry_after_ms(5_000),
            Self::ReadOnly { .. } | Self::NotFound { .. } | Self::Io { .. } => refusal,
        }
    }
}

/// Result of the durable layer.
pub type Result<T> = std::result::Result<T, DurableError>;

/// The durable layer over one disk: sequences of steps that leave either the old state or the new one,
/// whichever step a crash comes after. Cheap to clone.
#[derive(Clone)]
pub struct Files {
    disk: Arc<dyn Disk>,
    crash: CrashPoints,
}

impl std::fmt::Debug for Files {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Files")
    }
}

impl Files {
    /// Over any disk, with crash points.
    pub fn new(disk: Arc<dyn Disk>, crash: CrashPoints) -> Self {
        Self { disk, crash }
    }

    /// Over the real disk, with no crash point armed.
    pub fn real() -> Self {
        Self::new(Arc::new(RealDisk), CrashPoints::none())
    }

    /// The disk below.
    pub fn disk(&self) -> &dyn Disk {
        self.disk.as_ref()
    }

    /// Passes the crash point of this name.
    pub fn point(&self, name: &'static str) {
        self.crash.pass(name);
    }

    /// Places a new file: written at `tmp`, synced, renamed to `to`, its directory synced. `tmp` and `to` must
    /// be on one file system. On an error nothing is left at `to`, and `tmp` is removed as far as possible.
    ///
    /// A crash before the rename leaves at most a file in `tmp`; after it, the whole file.
    pub fn place(&self, tmp: &Path, to: &Path, bytes: &[u8]) -> Result<()> {
        self.place_unsynced(tmp, to, bytes)?;
        self.sync_dir(parent(to))?;
        self.point("place.synced");
        Ok(())
    }

    /// [`Files::place`] without the last step: the content is synced, the name is not. The caller syncs the
    /// directory before it tells anybody.
    pub fn place_unsynced(&self, tmp: &Path, to: &Path, bytes: &[u8]) -> Result<()> {
        let placed = self.write_and_rename(tmp, to, bytes);
        if placed.is_err() {
            let _leftover_is_swept_at_start = self.disk.remove(tmp);
        }
        placed
    }

    fn write_and_rename(&self, tmp: &Path, to: &Path, bytes: &[u8]) -> Result<()> {
        self.point("place.begin");
        self.disk.write_synced(tmp, bytes).map_err(|e| DurableError::sort("write", tmp, e))?;
        self.point("place.written");
        self.disk.rename(tmp, to).map_err(|e| DurableError::sort("rename", to, e))?;
        self.point("place.renamed");
        Ok(())
    }

    /// Replaces a small file whole: readers see the old content or the new, never a mixture. Uses
    /// `<name>.tmp` beside it.
    pub fn replace(&self, path: &Path, bytes: &[u8]) -> Result<()> {
        let mut tmp = path.as_os_str().to_owned();
        tmp.push(".tmp");
        self.place(Path::new(&tmp), path, bytes)
    }

    /// Moves a file and syncs both directories.
    pub fn rename(&self, from: &Path, to: &Path) -> Result<()> {
        self.rename_unsynced(from, to)?;
        self.point("rename.renamed");
        self.sync_dir(parent(to))?;
        if parent(from) != parent(to) {
            self.sync_dir(parent(from))?;
        }
        self.point("rename.synced");
        Ok(())
    }

    /// Moves a file; durable after the directories were synced.
    pub fn rename_unsynced(&self, from: &Path, to: &Path) -> Result<()> {
        self.disk.rename(from, to).map_err(|e| DurableError::sort("rename", from, e))
    }

    /// Removes a file; durable after the directory was synced. Fine if it is not there.
    pub fn remove_unsynced(&self, path: &Path) -> Result<()> {
        match self.disk.remove(path) {
            Err(e) if e.kind() == io::ErrorKind::NotFound => Ok(()),
            removed => removed.map_err(|e| DurableError::sort("remove", path, e)),
        }
    }

    /// Syncs a directory's entries.
    pub fn sync_dir(&self, dir: &Path) -> Result<()> {
        self.disk.sync_dir(dir).map_err(|e| DurableError::sort("sync directory", dir, e))
    }

    /// Writes a file. Neither content nor name is durable; on an error it is removed as far as possible.
    pub fn write_unsynced(&self, path: &Path, bytes: &[u8]) -> Result<()> {
        self.disk.write(path, bytes).map_err(|e| {
            let _leftover_is_swept_at_start = self.disk.remove(path);
            DurableError::sort("write", path, e)
        })
    }

    /// Creates one directory; durable after the one above was synced. Fine if it is there.
    pub fn create_dir_unsynced(&self, dir: &Path) -> Result<()> {
        self.disk.create_dir(dir).map_err(|e| DurableError::sort("create directory", dir, e))
    }

    /// Opens a file that processes lock against each other.
    pub fn open_lock(&self, path: &Path) -> Result<Box<dyn FileLock>> {
        self.disk.open_lock(path).map_err(|e| DurableError::sort("open", path, e))
    }

    /// Calls `each` with the name of every entry of a directory, in no order: for large ones.
    pub fn visit(&self, dir: &Path, each: &mut dyn FnMut(&OsStr)) -> Result<()> {
        self.disk.visit(dir, each).map_err(|e| DurableError::sort("list", dir, e))
    }

    /// One barrier for everything written to the file system of `dir`.
    pub fn sync_file_system(&self, dir: &Path) -> Result<()> {
        self.disk.sync_file_system(dir).map_err(|e| DurableError::sort("sync file system of", dir, e))
    }

    /// Creates a directory and those above it, each synced into its parent.
    pub fn create_dirs(&self, dir: &Path) -> Result<()> {
        if self.disk.exists(dir) {
            return Ok(());
        }
        let above = parent(dir);
        if !above.as_os_str().is_empty() {
            self.create_dirs(above)?;
        }
        self.disk.create_dir(dir).map_err(|e| DurableError::sort("create directory", dir, e))?;
        if !above.as_os_str().is_empty() {
            self.sync_dir(above)?;
        }
        Ok(())
    }

    /// Whether there is a file or directory of this name.
    pub fn exists(&self, path: &Path) -> bool {
        self.disk.exists(path)
    }

    /// Reads a whole file of at most `bytes_max` bytes.
    pub fn read(&self, path: &Path, bytes_max: u64) -> Result<Vec<u8>> {
        self.disk.read(path, bytes_max).map_err(|e| DurableError::sort("read", path, e))
    }

    /// [`Files::read`], with nothing for a file that is not there.
    pub fn read_if_there(&self, path: &Path, bytes_max: u64) -> Result<Option<Vec<u8>>> {
        match self.read(path, bytes_max) {
            Err(DurableError::NotFound { .. }) => Ok(None),
            read => read.map(Some),
        }
    }

    /// Names of all entries of a directory, in no order.
    pub fn list(&self, dir: &Path) -> Result<Vec<OsString>> {
        self.disk.list(dir).map_err(|e| DurableError::sort("list", dir, e))
    }

    /// Opens a log of lines, see [`Log`]. The file's name is durable when this returns.
    pub fn open_log(&self, path: &Path) -> Result<Log> {
        let was_there = self.disk.exists(path);
        let file = self.disk.open_append(path).map_err(|e| DurableError::sort("open", path, e))?;
        if !was_there {
            self.sync_dir(parent(path))?;
        }
        let durable = file.len().map_err(|e| DurableError::sort("measure", path, e))?;
        Ok(Log { file, path: path.to_owned(), durable, broken: false })
    }
}

/// An append-only file whose caller decides when it is synced. After a failed append it cuts itself back to
/// what was durable, so that a later append does not follow half a record.
pub struct Log {
    file: Box<dyn AppendFile>,
    path: PathBuf,
    durable: u64,
    broken: bool,
}

impl std::fmt::Debug for Log {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Log({}, {} bytes)", self.path.display(), self.durable)
    }
}

impl Log {
    /// Length of what is known to be on disk.
    pub const fn durable_len(&self) -> u64 {
        self.durable
    }

    /// Appends and syncs. On an error nothing of `bytes` counts: the file is cut back before the next append.
    pub fn append(&mut self, bytes: &[u8]) -> Result<()> {
        if self.broken {
            self.cut()?;
        }
        self.broken = true;
        self.file.append(bytes).map_err(|e| {
            let _again_before_the_next_append = self.cut();
            DurableError::sort("append to", &self.path, e)
        })?;
        self.file.sync().map_err(|e| DurableError::sort("sync", &self.path, e))?;
        self.broken = false;
        self.durable = self.durable.saturating_add(u64::try_from(bytes.len()).unwrap_or(u64::MAX));
        Ok(())
    }

    /// Cuts the log to `len` bytes and syncs: for a torn tail.
    pub fn truncate(&mut self, len: u64) -> Result<()> {
        self.durable = len;
        self.cut()
    }

    fn cut(&mut self) -> Result<()> {
        self.file.truncate(self.durable).map_err(|e| DurableError::sort("cut back", &self.path, e))?;
        self.file.sync().map_err(|e| DurableError::sort("sync", &self.path, e))?;
        self.broken = false;
        Ok(())
    }
}

/// The directory of a path; empty for a bare name.
pub fn parent(path: &Path) -> &Path {
    path.parent().unwrap_or(Path::new(""))
}

/// The last part of a path.
pub fn file_name(path: &Path) -> &OsStr {
    path.file_name().unwrap_or_default()
}
