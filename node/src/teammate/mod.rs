//! Teammates: long-lived agents with a mailbox, a history and a session. One loop each.
//!
//! | file | what it decides or does |
//! |---|---|
//! | [`life`] | states and commands, pure |
//! | [`plan`] | what a turn came to, pure |
//! | [`recover`] | what a crash left, pure |
//! | [`control`] | which messages are commands, pure |
//! | [`pause`] | how long to wait after a failure, pure |
//! | `agent` | the loop: hears, decides, acts |
//! | `turn` | begins a turn and ends it |
//! | `settle` | carries out what `turn_end` says, again and again until it is done |
//! | `orders` | takes commands out of the mailbox |
//! | `tell`, `standing` | what the lead and the authority hear |
//!
//! The lead hears of a teammate: one `idle` notice with the last result each time it has nothing more to do; a
//! `result` for a turn over mail that is followed by another turn at once, and for a turn that failed; nothing
//! for a task's turn (its result is on the board) until the idle notice. No result is told twice: `idle` and
//! `result` of one turn share a derived id. A lead that is run by us gets no notices to itself.

mod agent;
pub mod control;
pub mod life;
mod orders;
pub mod pause;
pub mod plan;
pub mod recover;
mod settle;
mod standing;
mod strays;
mod tell;
mod turn;

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use posthouse_shared::clock::{Clock, Stamp};
use posthouse_shared::durable::Files;
use posthouse_shared::generation::{Birth, Generation};
use posthouse_shared::identity::NodeKey;
use posthouse_shared::limits::Limits;
use posthouse_shared::name::AgentId;
use posthouse_shared::team::{MemberSpec, Standing};
use tokio::sync::watch;

use crate::blob::Blobs;
use crate::checkpoint::Checkpoints;
use crate::history::HistoryError;
use crate::local::Tokens;
use crate::mailbox::{Mailbox, MailboxError};
use crate::port::AuthorityPort;
use crate::post::Post;
use crate::runner::{Runner, RunnerError};
use crate::trace_index::TraceIndex;

pub(crate) use agent::{Teammate, retryable};

/// What the authority decided of a teammate of this node.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AgentSetup {
    /// Who.
    pub id: AgentId,
    /// Its first entry: names its mailbox and history.
    pub birth: Birth,
    /// The grant of its home.
    pub generation: Generation,
    /// What was asked for.
    pub spec: MemberSpec,
    /// What was decided of it.
    pub standing: Standing,
    /// The entry of the last lifecycle command.
    pub command: Generation,
    /// Since when its standing is what it is.
    pub since: Stamp,
}

/// How a node closes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Close {
    /// Running turns may end by themselves for this long.
    Within(Duration),
    /// Running turns are killed.
    Now,
}

/// What all teammates of a node share.
pub(crate) struct Deps {
    pub data: PathBuf,
    pub files: Files,
    pub key: NodeKey,
    pub limits: Arc<Limits>,
    pub clock: Arc<dyn Clock>,
    pub post: Post,
    pub blobs: Blobs,
    pub checkpoints: Checkpoints,
    pub trace: TraceIndex,
    pub port: Arc<dyn AuthorityPort>,
    pub runner: Arc<dyn Runner>,
    pub tokens: Tokens,
    pub socket: PathBuf,
    pub environment: Arc<BTreeMap<OsString, OsString>>,
}

/// What a teammate hears from its node, beside its mailbox.
pub(crate) struct Signals {
    pub board: watch::Receiver<u64>,
    pub setup: watch::Receiver<Arc<AgentSetup>>,
    pub close: watch::Receiver<Option<Close>>,
}

/// A teammate cannot be started.
#[derive(Debug, thiserror::Error)]
pub enum TeammateError {
    /// Its history cannot be read.
    #[error("open history")]
    History(#[from] HistoryError),
    /// Its mailbox cannot be read.
    #[error("open mailbox")]
    Mailbox(#[from] MailboxError),
    /// Its program cannot be run.
    #[error("open session")]
    Runner(#[from] RunnerError),
    /// The thread that did the file work is gone.
    #[error("file work was cut off")]
    CutOff,
}

/// Runs file work on a thread that may block.
async fn blocking<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> Result<T, TeammateError> {
    tokio::task::spawn_blocking(work).await.map_err(|_| TeammateError::CutOff)
}

/// A mailbox call on a thread that may block.
async fn in_mailbox<T: Send + 'static>(
    mailbox: &Mailbox,
    work: impl FnOnce(&Mailbox) -> Result<T, MailboxError> + Send + 'static,
) -> Result<T, TeammateError> {
    let mailbox = mailbox.clone();
    Ok(blocking(move || work(&mailbox)).await??)
}
