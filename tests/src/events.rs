//! `posthouse events --follow` as an iterator that gives up after a while. What was skipped over is kept for the
//! message that says what did not come.

use std::process::{Child, Command, Stdio};
use std::sync::mpsc::Receiver;
use std::time::Instant;

use serde_json::Value;

use crate::cluster::{PATIENCE, lines_of};

/// A follower of events. Ends its process when dropped.
#[derive(Debug)]
pub struct Events {
    child: Child,
    lines: Receiver<String>,
    seen: Vec<Value>,
}

impl Events {
    pub(crate) fn of(mut command: Command) -> Self {
        let mut child = command.stdout(Stdio::piped()).spawn().expect("follow events");
        let lines = lines_of(child.stdout.take().expect("stdout is a pipe"));
        Self { child, lines, seen: Vec::new() }
    }

    /// The next event of this name for which `fits` holds.
    pub fn until(&mut self, name: &str, fits: impl Fn(&Value) -> bool) -> Value {
        let started = Instant::now();
        loop {
            let Ok(line) = self.lines.recv_timeout(PATIENCE.saturating_sub(started.elapsed())) else {
                panic!("no event {name} that fits; seen:\n{}", self.told());
            };
            let event: Value = serde_json::from_str(&line).unwrap_or_else(|error| panic!("{error}: {line}"));
            self.seen.push(event.clone());
            if event["event"] == name && fits(&event) {
                return event;
            }
        }
    }

    /// An event of this name for which `fits` holds, among those that were skipped over or to come.
    pub fn by_now(&mut self, name: &str, fits: impl Fn(&Value) -> bool) -> Value {
        match self.seen.iter().find(|event| event["event"] == name && fits(event)) {
            Some(event) => event.clone(),
            None => self.until(name, fits),
        }
    }

    /// Waits until `agent` is in `state`.
    pub fn until_state(&mut self, agent: &str, state: &str) -> Value {
        self.until("agent_state", |event| event["agent"] == agent && event["state"] == state)
    }

    /// All events so far, one a line.
    pub fn told(&self) -> String {
        self.seen.iter().map(|event| format!("{event}\n")).collect()
    }
}

impl Drop for Events {
    fn drop(&mut self) {
        let _it_may_have_ended = self.child.kill();
        let _nobody_asks = self.child.wait();
    }
}
