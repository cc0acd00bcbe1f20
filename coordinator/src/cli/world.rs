//! What a command has at hand: the environment, its streams, the clock; and what all commands do with them.

use std::io::{Read, Write};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use posthouse_shared::clock::{Clock, Stamp};
use posthouse_shared::codes::Code;
use posthouse_shared::refusal::{FailureKind, Refusal};
use posthouse_shared::wire::Answer;
use posthouse_shared::wire::requests::Request;
use serde::de::DeserializeOwned;
use tokio::time::Instant;

use super::args::ListFormat;
use super::client::{Client, Reply};
use super::failure::Ended;
use super::terminal::Terminal;
use crate::config::{Config, Environment, absolute};

/// Largest text that is read from stdin or a file: more than a body may have, so that the post says so.
const TEXT_BYTES_MAX: u64 = 100 * 1024 * 1024;

/// First pause before a coordinator that went away is asked again; doubles.
const AGAIN_MIN: Duration = Duration::from_millis(250);
/// Longest such pause.
const AGAIN_MAX: Duration = Duration::from_secs(5);
/// So long a follower waits for a coordinator that went away.
pub const LOST_MAX: Duration = Duration::from_secs(60);
/// Between two questions whose answer came at once and was empty.
const UNHURRIED: Duration = Duration::from_millis(100);

/// Rests so that questions that are answered at once with nothing do not become a busy loop.
pub async fn unhurried(asked: Instant) {
    tokio::time::sleep(UNHURRIED.saturating_sub(asked.elapsed())).await;
}

/// Streams and surroundings of one command. Tests make their own.
pub struct World {
    /// Variables and directories.
    pub environment: Environment,
    /// What the streams are.
    pub terminal: Terminal,
    /// The time.
    pub clock: Arc<dyn Clock>,
    /// Where `-` is read from.
    pub stdin: Box<dyn Read>,
    /// Data.
    pub stdout: Box<dyn Write>,
    /// Everything else.
    pub stderr: Box<dyn Write>,
}

impl std::fmt::Debug for World {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "World({:?})", self.terminal)
    }
}

/// One command at work.
#[derive(Debug)]
pub struct Session<'w> {
    /// Streams and surroundings.
    pub world: &'w mut World,
    /// Settings in force.
    pub config: Config,
    /// Whether JSON is wanted.
    pub json: bool,
}

/// What a text is made for.
#[derive(Debug, Clone, Copy)]
pub struct Look {
    /// The stream it goes to.
    pub terminal: Terminal,
    /// The time.
    pub now: Stamp,
    /// Which columns.
    pub format: ListFormat,
}

impl Session<'_> {
    /// Prints to stdout and flushes. An error means that it is not known to have arrived.
    pub fn print(&mut self, text: &str) -> Result<(), Ended> {
        let out = &mut self.world.stdout;
        out.write_all(text.as_bytes()).and_then(|()| out.flush()).map_err(Ended::Output)
    }

    /// Prints a line to stdout and flushes.
    pub fn line(&mut self, text: &str) -> Result<(), Ended> {
        self.print(&format!("{text}\n"))
    }

    /// Says something beside the data, on stderr.
    pub fn note(&mut self, text: &str) {
        let err = &mut self.world.stderr;
        let _a_note_may_be_lost = writeln!(err, "{text}").and_then(|()| err.flush());
    }

    /// Prints one document or its text.
    pub fn document(&mut self, document: &serde_json::Value, text: &str) -> Result<(), Ended> {
        if self.json { self.line(&document.to_string()) } else { self.print(text) }
    }

    /// How text should look now.
    pub fn look(&self, format: ListFormat) -> Look {
        Look { terminal: self.world.terminal, now: self.world.clock.now(), format }
    }

    /// The client for these settings.
    pub fn client(&self) -> Result<Client, Refusal> {
        Client::of(&self.config)
    }

    /// The team that is meant.
    pub fn team(&self) -> String {
        self.config.team.value.clone()
    }

    /// The team where somebody named one; lists show all teams otherwise.
    pub fn team_if_set(&self) -> Option<String> {
        self.config.team_is_set().then(|| self.team())
    }

    /// Sends a request.
    pub async fn ask<T: DeserializeOwned>(&self, request: &Request) -> Result<Reply<T>, Ended> {
        Ok(self.client()?.ask(request).await?)
    }

    /// [`Session::ask`] for followers: where the coordinator was `heard` before, one that goes away is asked
    /// again for at most `lost_max`, at the address that it has then.
    pub async fn ask_on<T: DeserializeOwned>(
        &mut self,
        request: &Request,
        heard: &mut bool,
        lost_max: Duration,
    ) -> Result<Reply<T>, Ended> {
        let lost = Instant::now();
        let mut pause = AGAIN_MIN;
        loop {
            match self.ask(request).await {
                Ok(reply) => {
                    *heard = true;
                    return Ok(reply);
                }
                Err(Ended::Refused(refusal))
                    if *heard
                        && refusal.kind == FailureKind::Unreachable
                        && lost.elapsed().saturating_add(pause) < lost_max =>
                {
                    if pause == AGAIN_MIN {
                        self.note(&format!("{}; asking again", refusal.message));
                    }
                }
                Err(other) => return Err(other),
            }
            tokio::time::sleep(pause).await;
            pause = pause.saturating_mul(2).min(AGAIN_MAX);
        }
    }

    /// Sends a request and prints its answer: the document as it came, or what `view` makes of it.
    pub async fn show<T: DeserializeOwned>(
        &mut self,
        request: &Request,
        view: impl Fn(&T, &Look) -> String,
    ) -> Result<u8, Ended> {
        self.list(request, ListFormat::Table, |answer, look| view(&answer.reply, look)).await
    }

    /// [`Session::show`] for lists.
    pub async fn list<T: DeserializeOwned>(
        &mut self,
        request: &Request,
        format: ListFormat,
        view: impl Fn(&Answer<T>, &Look) -> String,
    ) -> Result<u8, Ended> {
        let reply = self.ask::<T>(request).await?;
        if self.json || format == ListFormat::Json {
            self.line(&reply.document)?;
        } else {
            let look = self.look(format);
            self.print(&view(&reply.answer, &look))?;
        }
        Ok(0)
    }

    /// A text argument; `-` reads stdin to its end.
    pub fn text(&mut self, argument: &str) -> Result<String, Ended> {
        if argument != "-" {
            return Ok(argument.to_owned());
        }
        let mut bytes = Vec::new();
        let read = (&mut self.world.stdin).take(TEXT_BYTES_MAX + 1).read_to_end(&mut bytes);
        read.map_err(|error| Refusal::new(Code::BadRequest, "read stdin").because(&error))?;
        utf8(bytes, "stdin")
    }

    /// [`Session::text`] where there may be none.
    pub fn maybe_text(&mut self, argument: Option<&str>) -> Result<Option<String>, Ended> {
        argument.map(|text| self.text(text)).transpose()
    }

    /// The text of a file.
    pub fn file_text(&self, path: &Path) -> Result<String, Ended> {
        let shown = path.display().to_string();
        let path = absolute(path, self.world.environment.cwd());
        let files = posthouse_shared::durable::Files::real();
        let bytes = files.read(&path, TEXT_BYTES_MAX).map_err(|error| {
            Refusal::new(Code::BadRequest, format!("cannot read {shown}")).because(&error)
        })?;
        utf8(bytes, &shown)
    }

    /// Asks before something is destroyed: the name must be typed. Without a terminal `--yes` must be there.
    pub fn confirm(&mut self, yes: bool, what: &str, name: &str, command: &str) -> Result<(), Ended> {
        if yes {
            return Ok(());
        }
        if !(self.world.terminal.stdin && self.world.terminal.stderr) || self.json {
            return Err(Refusal::new(
                Code::BadRequest,
                format!("{what} asks first, and nobody can answer here"),
            )
            .effect("nothing was done")
            .next(format!("{command} --yes"))
            .into());
        }
        let ask = format!("{what}. Type {name} to go on: ");
        let err = &mut self.world.stderr;
        err.write_all(ask.as_bytes()).and_then(|()| err.flush()).map_err(Ended::Output)?;
        if self.typed_line()? == name {
            return Ok(());
        }
        Err(Refusal::new(Code::BadRequest, format!("what was typed is not {name}"))
            .effect("nothing was done")
            .into())
    }

    fn typed_line(&mut self) -> Result<String, Ended> {
        let mut typed = Vec::new();
        let mut byte = [0_u8];
        while typed.len() < 1024 {
            let read = self.world.stdin.read(&mut byte);
            let read = read.map_err(|error| Refusal::new(Code::BadRequest, "read stdin").because(&error))?;
            if read == 0 || byte == *b"\n" {
                break;
            }
            typed.extend(byte);
        }
        Ok(String::from_utf8_lossy(&typed).trim().to_owned())
    }
}

fn utf8(bytes: Vec<u8>, what: &str) -> Result<String, Ended> {
    if u64::try_from(bytes.len()).unwrap_or(u64::MAX) > TEXT_BYTES_MAX {
        return Err(Refusal::new(Code::MessageTooLarge, format!("{what} holds more than 64 MiB"))
            .effect("nothing was sent")
            .into());
    }
    String::from_utf8(bytes).map_err(|error| {
        Refusal::new(Code::BadRequest, format!("{what} is not UTF-8 text"))
            .because(&error.utf8_error())
            .effect("nothing was sent")
            .into()
    })
}
