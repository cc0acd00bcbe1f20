//! A running `posthouse up` or `posthouse serve`, and hosts beside it. Starting waits for its own word that it is ready; ending is by kill -9, by SIGTERM,
//! or by itself. Only processes that were started here are ever signalled.

use std::fs::File;
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, sync_channel};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;

use crate::api::Api;
use crate::events::Events;
use crate::home::{Home, Output, TEAM, exit_code, posthouse_node};

/// Within what everything that a test waits for must happen. Generous: other builds share the machine.
pub const PATIENCE: Duration = Duration::from_secs(60);

/// A running coordinator.
#[derive(Debug)]
pub struct Posthouse<'h> {
    home: &'h Home,
    child: Child,
    log: PathBuf,
    url: String,
    token: String,
    ended: bool,
}

/// A start that came to nothing.
#[derive(Debug, Clone)]
pub struct NotReady {
    /// Its exit code; 128 + n for signal n.
    pub status: i32,
    /// Its log.
    pub log: String,
}

impl<'h> Posthouse<'h> {
    /// Starts one on `home` and waits until it is ready.
    pub fn up(home: &'h Home) -> Self {
        Self::up_with(home, &[])
    }

    /// [`Posthouse::up`] with more in its environment.
    pub fn up_with(home: &'h Home, env: &[(&str, &str)]) -> Self {
        Self::try_up(home, env)
            .unwrap_or_else(|not| panic!("exit {} before it was ready:\n{}", not.status, not.log))
    }

    /// [`Posthouse::up_with`], where not getting ready is one of the answers.
    pub fn try_up(home: &'h Home, env: &[(&str, &str)]) -> Result<Self, NotReady> {
        Self::start(home, &["up"], env)
    }

    /// Starts a coordinator of several hosts and waits until it is ready.
    pub fn serve(home: &'h Home, nats: &str, env: &[(&str, &str)]) -> Self {
        Self::try_serve(home, nats, env)
            .unwrap_or_else(|not| panic!("exit {} before it was ready:\n{}", not.status, not.log))
    }

    /// [`Posthouse::serve`], where not getting ready is one of the answers.
    pub fn try_serve(home: &'h Home, nats: &str, env: &[(&str, &str)]) -> Result<Self, NotReady> {
        Self::start(home, &["serve", "--nats", nats], env)
    }

    fn start(home: &'h Home, args: &[&str], env: &[(&str, &str)]) -> Result<Self, NotReady> {
        let log = home.next_log("up");
        let mut command = home.command(args.iter().chain(&["--listen", "127.0.0.1:0", "--name", "alpha"]));
        command.envs(env.iter().copied()).stdout(Stdio::piped());
        let mut child = command
            .stderr(File::create(&log).expect("make a log"))
            .spawn()
            .unwrap_or_else(|error| panic!("start {command:?}: {error}"));
        let url = ready(&mut child, &log)?;
        let token = std::fs::read_to_string(home.data().join("token")).unwrap_or_default().trim().to_owned();
        Ok(Self { home, child, log, url, token, ended: false })
    }

    /// Its address.
    pub fn url(&self) -> &str {
        &self.url
    }

    /// The file of its log.
    pub fn log(&self) -> &Path {
        &self.log
    }

    /// Its process.
    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// The same requests without the command line.
    pub fn api(&self) -> Api {
        Api::new(&self.url, &self.token)
    }

    /// Everything that has happened in this boot and happens from now on.
    pub fn events(&self) -> Events {
        let mut command = self.home.command(["events", "-f", "--after", "0"]);
        command.env("POSTHOUSE_URL", &self.url);
        Events::of(command)
    }

    /// `posthouse ARGS` against this one.
    pub fn cli(&self, args: &[&str]) -> Output {
        Output::of(self.home.command(args).env("POSTHOUSE_URL", &self.url))
    }

    /// [`Posthouse::cli`], which must succeed.
    pub fn ok(&self, args: &[&str]) -> Output {
        self.cli(args).ended(0)
    }

    /// [`Posthouse::ok`] with `--json`: its document.
    pub fn json(&self, args: &[&str]) -> Value {
        let separator = args.iter().position(|arg| *arg == "--").unwrap_or(args.len());
        let (before, after) = args.split_at(separator);
        self.ok(&[before, &["--json"], after].concat()).json()
    }

    /// Makes the team that commands mean when they name none.
    pub fn team(&self) {
        self.ok(&["team", "create", TEAM]);
    }

    /// Makes a teammate that is the program `command`.
    pub fn spawn(&self, name: &str, command: &[&str]) {
        let start = ["spawn", name, "--prompt", "hello", "--runner", "command", "--"];
        self.ok(&[&start, command].concat());
    }

    /// Sends, and gives the id.
    pub fn send(&self, to: &str, text: &str) -> String {
        self.json(&["send", to, text])["id"].as_str().expect("an id").to_owned()
    }

    /// Waits for a fact, as `task/ID=completed`.
    pub fn wait(&self, condition: &str) {
        self.ok(&["wait", condition, "--timeout", &format!("{}s", PATIENCE.as_secs())]);
    }

    /// Ends it as a crash does: nothing is flushed, nobody is told.
    pub fn kill9(mut self) {
        self.child.kill().expect("kill the coordinator");
        self.child.wait().expect("wait for the coordinator");
        self.ended = true;
    }

    /// Asks it to end, and gives its exit code.
    pub fn term(mut self) -> i32 {
        self.terminate()
    }

    fn terminate(&mut self) -> i32 {
        let pid = i32::try_from(self.child.id()).ok().and_then(Pid::from_raw).expect("a pid");
        let _it_may_have_ended = kill_process(pid, Signal::TERM);
        self.ended = true;
        exit_code(self.child.wait().expect("wait for the coordinator"))
    }

    /// Whether it has ended by itself.
    pub fn has_died(&mut self) -> bool {
        self.ended = self.ended || self.child.try_wait().expect("look at the coordinator").is_some();
        self.ended
    }
}

impl Drop for Posthouse<'_> {
    fn drop(&mut self) {
        if !self.ended && std::thread::panicking() {
            let _it_may_have_ended = self.child.kill();
            let _nobody_asks = self.child.wait();
        } else if !self.ended {
            self.terminate();
        }
    }
}

/// A running `posthouse-node`: a host beside the coordinator's, with a data directory of its own.
#[derive(Debug)]
pub struct Host {
    name: String,
    child: Child,
    log: PathBuf,
    ended: bool,
}

impl Host {
    /// Starts one and waits until it takes mail. The first start needs a token.
    pub fn up(home: &Home, nats: &str, name: &str, more: &[&str]) -> Self {
        Self::try_up(home, nats, name, more)
            .unwrap_or_else(|not| panic!("{name}: exit {} before it was ready:\n{}", not.status, not.log))
    }

    /// Makes a token and starts a host with it.
    pub fn join(posthouse: &Posthouse<'_>, nats: &str, name: &str, more: &[&str]) -> Self {
        let token = posthouse.ok(&["hosts", "token"]).stdout.trim().to_owned();
        Self::up(posthouse.home, nats, name, &[&["--join", &token], more].concat())
    }

    /// [`Host::join`] with more in its environment.
    pub fn join_with(
        posthouse: &Posthouse<'_>,
        nats: &str,
        name: &str,
        more: &[&str],
        env: &[(&str, &str)],
    ) -> Self {
        let token = posthouse.ok(&["hosts", "token"]).stdout.trim().to_owned();
        let more = [&["--join", &token], more].concat();
        Self::start(posthouse.home, nats, name, &more, env)
            .unwrap_or_else(|not| panic!("{name}: exit {} before it was ready:\n{}", not.status, not.log))
    }

    /// [`Host::up`], where not getting ready is one of the answers.
    pub fn try_up(home: &Home, nats: &str, name: &str, more: &[&str]) -> Result<Self, NotReady> {
        Self::start(home, nats, name, more, &[])
    }

    fn start(
        home: &Home,
        nats: &str,
        name: &str,
        more: &[&str],
        env: &[(&str, &str)],
    ) -> Result<Self, NotReady> {
        let log = home.next_log(name);
        let mut command = home.command_of(&posthouse_node(), ["--nats", nats, "--name", name, "--data"]);
        let mut child = command
            .arg(Self::data(home, name))
            .args(more)
            .env_remove("POSTHOUSE_DATA")
            .envs(env.iter().copied())
            .stdout(Stdio::piped())
            .stderr(File::create(&log).expect("make a log"))
            .spawn()
            .unwrap_or_else(|error| panic!("start {command:?}: {error}"));
        ready(&mut child, &log)?;
        Ok(Self { name: name.to_owned(), child, log, ended: false })
    }

    /// Where the data of a host of this name is.
    pub fn data(home: &Home, name: &str) -> PathBuf {
        home.room().join(format!("data-{name}"))
    }

    /// Its name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The file of its log.
    pub fn log(&self) -> &Path {
        &self.log
    }

    /// Ends it as a crash does.
    pub fn kill9(mut self) {
        self.child.kill().expect("kill a host");
        self.child.wait().expect("wait for a host");
        self.ended = true;
    }

    /// Waits until it ends by itself, and gives its exit code.
    pub fn ended(mut self) -> i32 {
        let started = Instant::now();
        while started.elapsed() < PATIENCE {
            if let Some(status) = self.child.try_wait().expect("look at a host") {
                self.ended = true;
                return exit_code(status);
            }
            std::thread::park_timeout(Duration::from_millis(20));
        }
        panic!("host {} did not end", self.name)
    }

    /// Ends it in order, and gives its exit code.
    pub fn term(mut self) -> i32 {
        let pid = Pid::from_raw(i32::try_from(self.child.id()).expect("a pid")).expect("a pid");
        kill_process(pid, Signal::TERM).expect("signal a host");
        self.ended = true;
        exit_code(self.child.wait().expect("wait for a host"))
    }
}

impl Drop for Host {
    fn drop(&mut self) {
        if !self.ended {
            let _gone = self.child.kill();
            let _reaped = self.child.wait();
        }
    }
}

/// Waits for the line `ready WHAT` of a child whose stdout is a pipe, and gives WHAT.
fn ready(child: &mut Child, log: &Path) -> Result<String, NotReady> {
    let lines = lines_of(child.stdout.take().expect("stdout is a pipe"));
    let started = Instant::now();
    let what = loop {
        match lines.recv_timeout(PATIENCE.saturating_sub(started.elapsed())) {
            Ok(line) => {
                if let Some(what) = line.strip_prefix("ready ") {
                    break Some(what.trim().to_owned());
                }
            }
            Err(RecvTimeoutError::Disconnected) => break None,
            Err(RecvTimeoutError::Timeout) => {
                let _it_is_given_up = child.kill();
                break None;
            }
        }
    };
    what.ok_or_else(|| {
        let status = exit_code(child.wait().expect("wait for a process that did not get ready"));
        NotReady { status, log: std::fs::read_to_string(log).unwrap_or_default() }
    })
}

/// The lines of a pipe, read on a thread so that waiting for one can end.
pub(crate) fn lines_of(pipe: impl std::io::Read + Send + 'static) -> Receiver<String> {
    let (lines, receiver) = sync_channel(1024);
    std::thread::spawn(move || {
        let mut listening = true;
        for line in BufReader::new(pipe).lines() {
            let Ok(line) = line else { return };
            // Goes on reading when nobody listens any more: the writer must not get a broken pipe.
            listening = listening && lines.send(line).is_ok();
        }
    });
    receiver
}
