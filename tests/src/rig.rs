//! A real file system on a loop device whose power can be cut: what was not synced is gone after [`Rig::cut`], as
//! after pulling the plug. Needs root and loop devices; says what it misses.

use std::path::{Path, PathBuf};
use std::process::Command;

use tempfile::TempDir;

use crate::skip::has_program;

/// Which file system.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FileSystem {
    /// With options that keep the kernel from syncing by itself.
    Ext4,
    /// As it comes.
    Xfs,
}

impl FileSystem {
    const fn name(self) -> &'static str {
        match self {
            Self::Ext4 => "ext4",
            Self::Xfs => "xfs",
        }
    }

    const fn make(self) -> &'static [&'static str] {
        match self {
            Self::Ext4 => &["mkfs.ext4", "-q", "-F"],
            Self::Xfs => &["mkfs.xfs", "-q", "-f"],
        }
    }

    const fn options(self) -> &'static str {
        match self {
            Self::Ext4 => "loop,commit=300,noauto_da_alloc",
            Self::Xfs => "loop",
        }
    }
}

/// A mounted file system. Unmounted and removed when dropped.
#[derive(Debug)]
pub struct Rig {
    kind: FileSystem,
    room: TempDir,
    mounted: bool,
}

impl Rig {
    /// Makes and mounts one, or says what is missing for it.
    pub fn new(kind: FileSystem) -> Result<Self, String> {
        let what = format!("power loss on {}", kind.name());
        if !rustix::process::geteuid().is_root() {
            return Err(format!("{what}: needs root"));
        }
        for program in [kind.make()[0], "mount", "losetup", "python3"] {
            if !has_program(program) {
                return Err(format!("{what}: {program} is missing"));
            }
        }
        let room = tempfile::Builder::new()
            .prefix("ph-rig-")
            .tempdir()
            .map_err(|error| format!("{what}: {error}"))?;
        let mut rig = Self { kind, room, mounted: false };
        std::fs::create_dir(rig.mount_point()).map_err(|error| format!("{what}: {error}"))?;
        // XFS makes nothing smaller than 300 MiB; the file is sparse.
        let image = std::fs::File::create(rig.image()).map_err(|error| format!("{what}: {error}"))?;
        image.set_len(512 << 20).map_err(|error| format!("{what}: {error}"))?;
        let image = rig.image();
        let (program, arguments) = (kind.make()[0], &kind.make()[1..]);
        run(Command::new(program).args(arguments).arg(&image)).map_err(|error| format!("{what}: {error}"))?;
        rig.mount().map_err(|error| format!("{what}: {error}"))?;
        Ok(rig)
    }

    fn image(&self) -> PathBuf {
        self.room.path().join("image")
    }

    /// Where it is mounted.
    pub fn mount_point(&self) -> PathBuf {
        self.room.path().join("disk")
    }

    fn mount(&mut self) -> Result<(), String> {
        let mut command = Command::new("mount");
        run(command
            .args(["-t", self.kind.name(), "-o", self.kind.options()])
            .arg(self.image())
            .arg(self.mount_point()))?;
        self.mounted = true;
        Ok(())
    }

    /// Cuts the power: from here on nothing reaches the disk, and what its log held in memory is lost.
    pub fn cut(&self) {
        // XFS_IOC_GOINGDOWN, which ext4 knows too, with "do not flush the log".
        let script = "import fcntl, os, struct, sys\n\
                      fd = os.open(sys.argv[1], os.O_RDONLY)\n\
                      fcntl.ioctl(fd, 0x8004587D, struct.pack('I', 2))\n";
        run(Command::new("python3").args(["-c", script]).arg(self.mount_point())).expect("cut the power");
    }

    /// Mounts again after [`Rig::cut`]; its log is replayed. All users must have ended.
    pub fn power_on(&mut self) {
        unmount(&self.mount_point()).expect("unmount after the cut");
        self.mounted = false;
        self.mount().expect("mount after the cut");
    }
}

impl Drop for Rig {
    fn drop(&mut self) {
        if self.mounted
            && let Err(error) = unmount(&self.mount_point())
        {
            eprintln!("left mounted: {}: {error}", self.mount_point().display());
        }
    }
}

fn unmount(at: &Path) -> Result<(), String> {
    let mut last = String::new();
    // Whoever was just killed may still hold files for a moment.
    for _ in 0..50 {
        match run(Command::new("umount").arg(at)) {
            Ok(()) => return Ok(()),
            Err(error) => last = error,
        }
        std::thread::park_timeout(std::time::Duration::from_millis(100));
    }
    Err(last)
}

fn run(command: &mut Command) -> Result<(), String> {
    let path = std::env::var("PATH").unwrap_or_default();
    let output = command
        .env("PATH", format!("{path}:/usr/sbin:/sbin"))
        .output()
        .map_err(|error| format!("{command:?}: {error}"))?;
    if output.status.success() {
        return Ok(());
    }
    Err(format!("{command:?}: {}", String::from_utf8_lossy(&output.stderr).trim()))
}
