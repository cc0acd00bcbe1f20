//! Runners: the programs that are the agents. One trait for all kinds: open a session, start a turn, hear its
//! events until it is done, cancel it, close.
//!
//! | kind | what it is |
//! |---|---|
//! | [`command`] | any program, one process a turn |

pub mod command;
pub mod environment;
pub mod log;
pub mod process;

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use posthouse_shared::clock::Stamp;
use posthouse_shared::message::Kind;
use posthouse_shared::name::{AgentId, MessageId};
use posthouse_shared::task::ClaimedTask;
use posthouse_shared::team::RunnerSpec;
use serde::Serialize;

use crate::runner::log::AgentLog;

/// A message as an agent's turn gets it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct TurnMessage {
    /// Its id.
    pub id: MessageId,
    /// What it is for.
    pub kind: Kind,
    /// The sender, or `external`.
    pub from: String,
    /// The text.
    pub body: String,
    /// One line.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub summary: Option<String>,
    /// What it answers.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub in_reply_to: Option<MessageId>,
    /// When it was sent.
    pub created_at: Stamp,
    /// More than 1 after an interrupted turn.
    pub attempt: u32,
    /// Rises when a person redelivers it from quarantine.
    pub delivery: u32,
    /// `late`, `superseded`, `redelivered`, `may_have_been_handled`, `urgent`.
    pub marks: Vec<String>,
}

/// What a turn is about. As JSON it is what the `command` runner writes to its program.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct TurnInput {
    /// Its number.
    pub turn: u64,
    /// The agent's name.
    pub agent: posthouse_shared::name::AgentName,
    /// Its team.
    pub team: posthouse_shared::name::TeamName,
    /// The claimed task, where there is one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub task: Option<ClaimedTask>,
    /// The mail.
    pub messages: Vec<TurnMessage>,
}

/// What a session is opened with.
#[derive(Debug, Clone)]
pub struct SessionSpec {
    /// Whose it is.
    pub agent: AgentId,
    /// Its program.
    pub runner: RunnerSpec,
    /// Where it works.
    pub cwd: PathBuf,
    /// Its environment, whole: children get nothing else. Sessions share it.
    pub environment: Arc<BTreeMap<OsString, OsString>>,
}

/// One turn to be run.
#[derive(Debug, Clone)]
pub struct Turn {
    /// What it is about.
    pub input: TurnInput,
    /// Variables of this turn alone: socket, token, task.
    pub environment: BTreeMap<OsString, OsString>,
    /// Where its output goes.
    pub log: Arc<AgentLog>,
}

/// What a session says during a turn.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Event {
    /// It showed a sign of activity.
    Sign,
    /// The turn is over. Nothing follows it.
    Done(Outcome),
}

/// How a turn came out.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Outcome {
    /// The agent is through, and this is what it said.
    Completed {
        /// Its answer, bounded; a cut is said in it.
        result: String,
    },
    /// The turn itself failed: running it again would fail again.
    AgentError {
        /// One line: `exit 3`, `the working directory /x is not there`.
        why: String,
        /// Its exit code; none where it could not even be started.
        exit: Option<i32>,
        /// What it had said until then.
        said: String,
        /// The end of its error output.
        tail: String,
    },
    /// We asked for its end, and it ended.
    Cancelled,
    /// It was ended by somebody else, or could not be started now: worth another attempt.
    Lost {
        /// One line.
        why: String,
    },
}

/// How hard a turn is asked to end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Cancel {
    /// SIGTERM now, SIGKILL after this.
    Within(Duration),
    /// SIGKILL at once.
    Now,
}

/// A session cannot be opened or a turn not begun.
#[derive(Debug, thiserror::Error)]
pub enum RunnerError {
    /// The specification cannot be run at all.
    #[error("{0}")]
    Unusable(String),
    /// A turn is running already.
    #[error("a turn is running already")]
    InTurn,
}

/// A kind of agent program.
#[async_trait]
pub trait Runner: Send + Sync + 'static {
    /// Opens a session for one agent.
    async fn open(&self, spec: SessionSpec) -> Result<Box<dyn Session>, RunnerError>;
}

/// A conversation with one agent.
#[async_trait]
pub trait Session: Send + Sync {
    /// Begins a turn. Its events follow by [`Session::next`].
    async fn start_turn(&mut self, turn: Turn) -> Result<(), RunnerError>;
    /// The next event of the running turn; waits for ever where none runs. Cancel-safe.
    async fn next(&mut self) -> Event;
    /// Asks the running turn to end; [`Event::Done`] still follows. May be repeated, and sharpened.
    fn cancel(&mut self, how: Cancel);
    /// Ends the session and every process that belongs to it.
    async fn close(&mut self, grace: Duration);
}
