//! A real NATS server for one test: a free port, JetStream in a directory of its own, killed at the end.

use std::io::{BufRead, BufReader};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};

use crate::skip::skip;

/// A running server.
#[derive(Debug)]
pub struct Nats {
    child: Child,
    url: String,
    dir: tempfile::TempDir,
}

/// The server's binary: POSTHOUSE_NATS_SERVER, else in PATH, else where `tests/run --install` puts it.
fn binary() -> Option<PathBuf> {
    if let Some(named) = std::env::var_os("POSTHOUSE_NATS_SERVER") {
        return Some(named.into());
    }
    let path = std::env::var_os("PATH").unwrap_or_default();
    let tools = crate::repository::top().join("target/tools");
    std::env::split_paths(&path)
        .chain([tools])
        .map(|directory| directory.join("nats-server"))
        .find(|file| file.is_file())
}

impl Nats {
    /// Starts one; where there is none the test is skipped, and says so.
    pub fn start() -> Option<Self> {
        let dir = tempfile::tempdir().expect("a directory for NATS");
        let store = dir.path().display().to_string();
        let (child, url) = run(&["--port", "-1", "--jetstream", "--store_dir", &store])?;
        Some(Self { child, url, dir })
    }

    /// Starts one without JetStream.
    pub fn without_jetstream() -> Option<Self> {
        let dir = tempfile::tempdir().expect("a directory for NATS");
        let (child, url) = run(&["--port", "-1"])?;
        Some(Self { child, url, dir })
    }

    /// Starts one with the configuration in `directory/server.conf`.
    pub fn configured(directory: tempfile::TempDir) -> Option<Self> {
        let config = directory.path().join("server.conf").display().to_string();
        let store = directory.path().join("store").display().to_string();
        let (child, url) = run(&["--config", &config, "--port", "-1", "--store_dir", &store])?;
        Some(Self { child, url, dir: directory })
    }

    /// Its address.
    pub fn url(&self) -> &str {
        &self.url
    }

    /// Ends it as a crash does. What it has stored stays.
    pub fn kill9(&mut self) {
        self.child.kill().expect("kill nats-server");
        self.child.wait().expect("wait for nats-server");
    }

    /// Starts it again at the same address, after [`Nats::kill9`].
    pub fn again(&mut self) {
        let port = self.url.rsplit(':').next().expect("an address has a port").to_owned();
        let store = self.dir.path().display().to_string();
        let again = run(&["--port", &port, "--jetstream", "--store_dir", &store]);
        (self.child, _) = again.expect("nats-server was there before");
    }

    /// The same, with nothing of what it had stored.
    pub fn again_blank(&mut self) {
        std::fs::remove_dir_all(self.dir.path()).expect("remove what NATS stored");
        self.again();
    }
}

/// Starts a server and waits until it is ready; nothing, and a word, where there is no binary.
fn run(args: &[&str]) -> Option<(Child, String)> {
    let Some(binary) = binary() else {
        skip("nats-server is missing (tests/run --install)");
        return None;
    };
    let mut child = Command::new(binary)
        .args(["--addr", "127.0.0.1"])
        .args(args)
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()
        .expect("start nats-server");
    let log = child.stderr.take().expect("its log");
    let mut lines = BufReader::new(log).lines();
    let mut port = None;
    for line in lines.by_ref() {
        let line = line.expect("its log");
        if let Some((_, address)) = line.split_once("Listening for client connections on ") {
            port = address.rsplit(':').next().map(str::to_owned);
        }
        if line.contains("Server is ready") {
            break;
        }
    }
    let url = format!("nats://127.0.0.1:{}", port.expect("nats-server tells its port"));
    // The pipe is read to its end, so that the server never waits for it.
    std::thread::spawn(move || lines.for_each(drop));
    Some((child, url))
}

impl Drop for Nats {
    fn drop(&mut self) {
        let _gone = self.child.kill();
        let _reaped = self.child.wait();
    }
}
