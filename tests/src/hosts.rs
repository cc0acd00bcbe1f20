//! Several hosts on one machine: a coordinator over NATS and hosts of their own, each a real process with a data
//! directory of its own below one [`Home`].

use std::fs::File;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::RecvTimeoutError;
use std::time::Instant;

use rustix::process::{Pid, Signal, kill_process};

use crate::cluster::{PATIENCE, Posthouse, lines_of};
use crate::home::{Home, exit_code, posthouse_node};

/// A running `posthouse-node`.
#[derive(Debug)]
pub struct Host {
    child: Child,
    name: String,
    log: PathBuf,
    ended: bool,
}

impl Host {
    /// The command of one below `home`, with nothing of the tester's own environment but PATH.
    pub fn command(home: &Home, nats: &str, name: &str, args: &[&str]) -> Command {
        let mut command = Command::new(posthouse_node());
        command
            .args(["--nats", nats, "--name", name, "--data"])
            .arg(home.room().join(name))
            .args(args)
            .env_clear()
            .env("PATH", std::env::var_os("PATH").unwrap_or_default())
            .env("HOME", home.room())
            .current_dir(home.room())
            .stdin(Stdio::null());
        command
    }

    /// Starts one and waits until it is ready.
    pub fn start(home: &Home, nats: &str, name: &str, args: &[&str]) -> Self {
        let log = home.next_log(name);
        let mut command = Self::command(home, nats, name, args);
        command.stdout(Stdio::piped()).stderr(File::create(&log).expect("make a log"));
        let mut child = command.spawn().unwrap_or_else(|error| panic!("start {command:?}: {error}"));
        let lines = lines_of(child.stdout.take().expect("stdout is a pipe"));
        let started = Instant::now();
        loop {
            match lines.recv_timeout(PATIENCE.saturating_sub(started.elapsed())) {
                Ok(line) if line == format!("ready {name}") => break,
                Ok(_) => {}
                Err(RecvTimeoutError::Disconnected | RecvTimeoutError::Timeout) => {
                    let _it_is_given_up = child.kill();
                    let status = exit_code(child.wait().expect("wait for the host"));
                    let log = std::fs::read_to_string(&log).unwrap_or_default();
                    panic!("host {name} ended with {status} before it was ready:\n{log}");
                }
            }
        }
        Self { child, name: name.to_owned(), log, ended: false }
    }

    /// Makes a join token and starts a host with it.
    pub fn join(home: &Home, alpha: &Posthouse<'_>, nats: &str, name: &str, args: &[&str]) -> Self {
        let token = alpha.json(&["hosts", "token"]);
        let token = token["token"].as_str().expect("a token");
        Self::start(home, nats, name, &[&["--join", token], args].concat())
    }

    /// Its name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// What it has logged.
    pub fn log(&self) -> String {
        std::fs::read_to_string(&self.log).unwrap_or_default()
    }

    /// Its process.
    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Ends it as a crash does.
    pub fn kill9(mut self) {
        self.child.kill().expect("kill the host");
        self.child.wait().expect("wait for the host");
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
        exit_code(self.child.wait().expect("wait for the host"))
    }
}

impl Drop for Host {
    fn drop(&mut self) {
        if !self.ended && std::thread::panicking() {
            eprintln!("--- log of {}\n{}", self.name, self.log());
            let _it_may_have_ended = self.child.kill();
            let _nobody_asks = self.child.wait();
        } else if !self.ended {
            self.terminate();
        }
    }
}
