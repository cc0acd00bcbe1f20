//! A data directory for one test, with the logs of all that ran on it. It is removed when the test passes and
//! kept, with a line that says where, when the test fails. A WARN or ERROR line in those logs that the test did
//! not expect fails it.

use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Mutex;
use std::sync::atomic::{AtomicU32, Ordering};

use serde_json::Value;
use tempfile::TempDir;

/// The team that commands mean when they name none.
pub const TEAM: &str = "crew";

/// One test's data directory and logs.
#[derive(Debug)]
pub struct Home {
    room: Option<TempDir>,
    data: PathBuf,
    expected: Mutex<Vec<String>>,
    logs: AtomicU32,
}

impl Default for Home {
    fn default() -> Self {
        Self::new()
    }
}

impl Home {
    /// A new, empty one. The path is short: sockets below it must fit into 108 bytes.
    pub fn new() -> Self {
        let room = tempfile::Builder::new().prefix("ph-").tempdir().expect("make a temporary directory");
        let data = room.path().join("data");
        Self { room: Some(room), data, expected: Mutex::default(), logs: AtomicU32::new(0) }
    }

    /// One whose data lies elsewhere, on a file system under test, say. Logs do not.
    pub fn on(data: &Path) -> Self {
        let mut home = Self::new();
        data.clone_into(&mut home.data);
        home
    }

    /// The data directory.
    pub fn data(&self) -> &Path {
        &self.data
    }

    /// The directory for logs and whatever else the test needs.
    pub fn room(&self) -> &Path {
        self.room.as_ref().expect("the directory is there until drop").path()
    }

    /// A new directory of this name in [`Home::room`].
    pub fn dir(&self, name: &str) -> PathBuf {
        let dir = self.room().join(name);
        std::fs::create_dir_all(&dir).expect("make a directory");
        dir
    }

    /// WARN and ERROR lines that hold `text` are part of this test.
    pub fn expect_log(&self, text: &str) {
        self.expected.lock().expect("not poisoned").push(text.to_owned());
    }

    /// The file for the next log.
    pub fn next_log(&self, what: &str) -> PathBuf {
        let number = self.logs.fetch_add(1, Ordering::Relaxed);
        self.room().join(format!("{number:04}-{what}.log"))
    }

    /// Removes the log of that number, once what it holds was expected.
    pub fn forget_log(&self, number: u64) {
        let prefix = format!("{number:04}-");
        let logs = std::fs::read_dir(self.room()).expect("list logs").flatten();
        for log in logs.filter(|entry| entry.file_name().to_string_lossy().starts_with(&prefix)) {
            std::fs::remove_file(log.path()).expect("remove a log");
        }
    }

    /// `posthouse ARGS` on this data directory, with nothing of the tester's own environment but PATH.
    pub fn command<S: AsRef<OsStr>>(&self, args: impl IntoIterator<Item = S>) -> Command {
        self.command_of(&posthouse(), args)
    }

    /// The same of another program.
    pub fn command_of<S: AsRef<OsStr>>(&self, program: &Path, args: impl IntoIterator<Item = S>) -> Command {
        let mut command = Command::new(program);
        command
            .args(args)
            .env_clear()
            .env("PATH", std::env::var_os("PATH").unwrap_or_default())
            .env("HOME", self.room())
            .env("NO_COLOR", "1")
            .env("TERM", "dumb")
            .env("POSTHOUSE_DATA", &self.data)
            .env("POSTHOUSE_TEAM", TEAM)
            .current_dir(self.room())
            .stdin(Stdio::null());
        if let Some(filter) = std::env::var_os("POSTHOUSE_LOG") {
            command.env("POSTHOUSE_LOG", filter);
        }
        command
    }

    /// Runs `posthouse ARGS` to its end.
    pub fn posthouse<S: AsRef<OsStr>>(&self, args: impl IntoIterator<Item = S>) -> Output {
        Output::of(&mut self.command(args))
    }

    fn unexpected(&self) -> Vec<String> {
        let expected = self.expected.lock().expect("not poisoned");
        let logs = std::fs::read_dir(self.room()).expect("list logs").flatten().map(|entry| entry.path());
        logs.filter(|path| path.extension().is_some_and(|extension| extension == "log"))
            .flat_map(|path| {
                let text = std::fs::read(&path).unwrap_or_default();
                String::from_utf8_lossy(&text).lines().map(str::to_owned).collect::<Vec<_>>()
            })
            .filter(|line| matches!(line.split_whitespace().nth(1), Some("WARN" | "ERROR")))
            .filter(|line| !expected.iter().any(|text| line.contains(text)))
            .collect()
    }
}

impl Drop for Home {
    fn drop(&mut self) {
        let unexpected = if std::thread::panicking() { Vec::new() } else { self.unexpected() };
        if unexpected.is_empty() && !std::thread::panicking() {
            return;
        }
        if let Some(room) = self.room.take() {
            eprintln!("kept: {} (data: {})", room.keep().display(), self.data.display());
        }
        assert!(unexpected.is_empty(), "the test did not expect these lines:\n{}", unexpected.join("\n"));
    }
}

/// What a command came to.
#[derive(Debug, Clone)]
pub struct Output {
    /// Exit code; 128 + n for signal n.
    pub status: i32,
    /// Data.
    pub stdout: String,
    /// All else.
    pub stderr: String,
}

impl Output {
    /// Runs `command` to its end.
    pub fn of(command: &mut Command) -> Self {
        let output = command.output().unwrap_or_else(|error| panic!("run {command:?}: {error}"));
        Self {
            status: exit_code(output.status),
            stdout: String::from_utf8_lossy(&output.stdout).into_owned(),
            stderr: String::from_utf8_lossy(&output.stderr).into_owned(),
        }
    }

    /// The one JSON document on stdout.
    pub fn json(&self) -> Value {
        serde_json::from_str(&self.stdout)
            .unwrap_or_else(|error| panic!("stdout is not one JSON document ({error}): {self:#?}"))
    }

    /// This output, if the command ended with `status`.
    pub fn ended(self, status: i32) -> Self {
        assert!(
            self.status == status,
            "exit {} and not {status}:\n{}\n{}",
            self.status,
            self.stdout,
            self.stderr
        );
        self
    }
}

/// Exit code, or 128 + n for signal n.
pub fn exit_code(status: std::process::ExitStatus) -> i32 {
    use std::os::unix::process::ExitStatusExt;
    status.code().or_else(|| status.signal().map(|signal| 128 + signal)).unwrap_or(-1)
}

/// The binary under test: beside the test's own executable, or POSTHOUSE_BIN.
pub fn posthouse() -> PathBuf {
    binary("posthouse", "POSTHOUSE_BIN")
}

/// `posthouse-node`: beside the test's own executable, or POSTHOUSE_NODE_BIN.
pub fn posthouse_node() -> PathBuf {
    binary("posthouse-node", "POSTHOUSE_NODE_BIN")
}

fn binary(name: &str, variable: &str) -> PathBuf {
    if let Some(path) = std::env::var_os(variable) {
        return path.into();
    }
    let own = std::env::current_exe().expect("the test's own path");
    let found = own.ancestors().skip(1).take(3).map(|dir| dir.join(name)).find(|path| path.is_file());
    found.unwrap_or_else(|| panic!("no binary {name} near {}: cargo build --workspace --bins", own.display()))
}
