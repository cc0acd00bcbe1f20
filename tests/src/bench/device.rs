//! The device under a directory: how many flushes it completed, and what it is.

use std::path::Path;
use std::process::Command;

/// Where the device of a directory counts.
#[derive(Debug, Clone)]
pub struct Device {
    stat: Option<String>,
}

impl Device {
    /// The device that `dir` lies on.
    pub fn of(dir: &Path) -> Self {
        use std::os::unix::fs::MetadataExt;
        let stat = std::fs::metadata(dir).ok().map(|metadata| {
            let device = metadata.dev();
            format!("/sys/dev/block/{}:{}/stat", rustix::fs::major(device), rustix::fs::minor(device))
        });
        Self { stat: stat.filter(|path| Path::new(path).exists()) }
    }

    /// Flushes completed since the device is there, where it tells (field 16 of its `stat`).
    pub fn flushes(&self) -> Option<u64> {
        let text = std::fs::read_to_string(self.stat.as_ref()?).ok()?;
        text.split_whitespace().nth(15)?.parse().ok()
    }
}

/// File system, mount options, processor and kernel, for the report.
pub fn describe(dir: &Path) -> String {
    let output = |program: &str, arguments: &[&str]| {
        let output = Command::new(program).args(arguments).output().ok()?;
        let text = String::from_utf8_lossy(&output.stdout).trim().to_owned();
        (output.status.success() && !text.is_empty()).then_some(text)
    };
    let dir = dir.display().to_string();
    let mounted = output("findmnt", &["-n", "-o", "SOURCE,FSTYPE,OPTIONS", "-T", &dir]);
    let kernel = output("uname", &["-sr"]);
    let cpu = std::fs::read_to_string("/proc/cpuinfo").ok().and_then(|text| {
        let name = text.lines().find(|line| line.starts_with("model name"))?;
        Some(name.split_once(':')?.1.trim().to_owned())
    });
    let cores = std::thread::available_parallelism().map_or(0, usize::from);
    format!(
        "{}\n{} cores, {}, {}",
        mounted.unwrap_or_else(|| "unknown file system".to_owned()),
        cores,
        cpu.unwrap_or_else(|| "unknown processor".to_owned()),
        kernel.unwrap_or_else(|| "unknown kernel".to_owned())
    )
}
