//! What goes between the CLI, the coordinator and a node's local socket: typed requests and replies, and the
//! one table that maps requests to HTTP.

pub mod event;
pub mod receipts;
pub mod replies;
pub mod requests;
pub mod routes;
pub mod subjects;

use serde::{Deserialize, Serialize};

use crate::generation::Generation;
use crate::name::AgentId;

/// Who makes a request. It comes from the credential, never from an argument (P8).
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", tag = "caller")]
pub enum Caller {
    /// Holds the operator's token: the lead of each team, and the only one who may name another agent.
    Operator,
    /// A teammate (or a lead that is run by us), by the token of its turn.
    Agent {
        /// Who.
        id: AgentId,
        /// Its grant.
        generation: Generation,
    },
}

/// How far the state was that an answer was made from.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct AsOf {
    /// Index of the newest journal entry in it.
    pub seq: u64,
    /// Its age in milliseconds.
    pub age_ms: u64,
}

/// Every successful answer: version, how far the state was, and the reply's own keys.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Answer<T> {
    /// Always 1.
    pub v: u8,
    /// How far the state was.
    pub as_of: AsOf,
    /// The reply.
    #[serde(flatten)]
    pub reply: T,
}

/// Every failed answer.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Failure {
    /// Always 1.
    pub v: u8,
    /// What went wrong.
    pub error: crate::refusal::Refusal,
}
