//! The real disk. The only file that may call the writing half of `std::fs`. Files are made for their user
//! alone (0600, directories 0700): mail and keys are nobody else's business.

#![expect(clippy::disallowed_methods, reason = "this is the durable layer that the others must use")]

use std::ffi::{OsStr, OsString};
use std::fs::{File, OpenOptions, TryLockError};
use std::io::{self, Read, Write};
use std::mem::MaybeUninit;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::Path;

use rustix::fs::RawDir;

use super::{AppendFile, Disk, FileLock};

/// The file system of the machine.
#[derive(Debug, Clone, Copy, Default)]
pub struct RealDisk;

impl Disk for RealDisk {
    fn write(&self, path: &Path, bytes: &[u8]) -> io::Result<()> {
        create(path)?.write_all(bytes)
    }

    fn sync_file(&self, path: &Path) -> io::Result<()> {
        File::open(path)?.sync_all()
    }

    fn write_synced(&self, path: &Path, bytes: &[u8]) -> io::Result<()> {
        let mut file = create(path)?;
        file.write_all(bytes)?;
        file.sync_all()
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        std::fs::rename(from, to)
    }

    fn remove(&self, path: &Path) -> io::Result<()> {
        std::fs::remove_file(path)
    }

    fn sync_dir(&self, dir: &Path) -> io::Result<()> {
        File::open(if dir.as_os_str().is_empty() { Path::new(".") } else { dir })?.sync_all()
    }

    fn sync_file_system(&self, dir: &Path) -> io::Result<()> {
        rustix::fs::syncfs(File::open(dir)?).map_err(io::Error::from)
    }

    fn create_dir(&self, dir: &Path) -> io::Result<()> {
        match std::fs::DirBuilder::new().mode(0o700).create(dir) {
            Err(e) if e.kind() == io::ErrorKind::AlreadyExists && dir.is_dir() => Ok(()),
            created => created,
        }
    }

    fn exists(&self, path: &Path) -> bool {
        std::fs::symlink_metadata(path).is_ok()
    }

    fn read(&self, path: &Path, bytes_max: u64) -> io::Result<Vec<u8>> {
        // A pipe would wait for its writer, a device never end.
        let metadata = std::fs::metadata(path)?;
        if !metadata.is_file() && !metadata.is_dir() {
            return Err(io::Error::new(io::ErrorKind::InvalidInput, "not a regular file"));
        }
        // In one piece, where it does not grow meanwhile.
        let size = metadata.len().min(bytes_max).saturating_add(1);
        let mut bytes = Vec::with_capacity(usize::try_from(size).unwrap_or_default());
        File::open(path)?.take(bytes_max.saturating_add(1)).read_to_end(&mut bytes)?;
        if u64::try_from(bytes.len()).unwrap_or(u64::MAX) > bytes_max {
            return Err(io::Error::new(
                io::ErrorKind::FileTooLarge,
                format!("longer than {bytes_max} bytes"),
            ));
        }
        Ok(bytes)
    }

    fn list(&self, dir: &Path) -> io::Result<Vec<OsString>> {
        std::fs::read_dir(dir)?.map(|entry| entry.map(|entry| entry.file_name())).collect()
    }

    fn visit(&self, dir: &Path, each: &mut dyn FnMut(&OsStr)) -> io::Result<()> {
        let dir = File::open(dir)?;
        let mut buffer = vec![MaybeUninit::uninit(); 128 * 1024];
        let mut entries = RawDir::new(dir, &mut buffer);
        while let Some(entry) = entries.next() {
            let entry = entry?;
            let name = entry.file_name().to_bytes();
            if name != b"." && name != b".." {
                each(OsStr::from_bytes(name));
            }
        }
        Ok(())
    }

    fn open_lock(&self, path: &Path) -> io::Result<Box<dyn FileLock>> {
        let file = OpenOptions::new().create(true).truncate(false).write(true).open(path)?;
        Ok(Box::new(RealLock(file)))
    }

    fn open_append(&self, path: &Path) -> io::Result<Box<dyn AppendFile>> {
        Ok(Box::new(RealAppend(OpenOptions::new().create(true).append(true).mode(0o600).open(path)?)))
    }
}

fn create(path: &Path) -> io::Result<File> {
    OpenOptions::new().write(true).create(true).truncate(true).mode(0o600).open(path)
}

struct RealLock(File);

impl FileLock for RealLock {
    fn lock(&self) -> io::Result<()> {
        self.0.lock()
    }

    fn unlock(&self) {
        let _let_go_with_the_handle_at_the_latest = self.0.unlock();
    }

    fn try_lock(&self) -> io::Result<bool> {
        match self.0.try_lock() {
            Ok(()) => Ok(true),
            Err(TryLockError::WouldBlock) => Ok(false),
            Err(TryLockError::Error(error)) => Err(error),
        }
    }
}

struct RealAppend(File);

impl AppendFile for RealAppend {
    fn len(&self) -> io::Result<u64> {
        self.0.metadata().map(|metadata| metadata.len())
    }

    fn append(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.0.write_all(bytes)
    }

    fn sync(&mut self) -> io::Result<()> {
        self.0.sync_data()
    }

    fn truncate(&mut self, len: u64) -> io::Result<()> {
        self.0.set_len(len)
    }
}
