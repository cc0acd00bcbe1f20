//! What hosts and the coordinator say to each other over core NATS. All of it is JSON; each message of a host
//! is signed with the host's key, names its time and a nonce, and is answered.

use std::collections::{BTreeMap, BTreeSet};

use posthouse_shared::clock::Stamp;
use posthouse_shared::generation::{Birth, Generation};
use posthouse_shared::name::{AgentId, AgentName, HostName, ScheduleId, TeamName};
use posthouse_shared::refusal::Refusal;
use posthouse_shared::task::Claim;
use posthouse_shared::team::{MemberSpec, Schedule, Standing};
use posthouse_shared::wire::Caller;
use posthouse_shared::wire::event::What;
use posthouse_shared::wire::requests::Request;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::directory::Residence;
use crate::port::{GaveUp, Report};
use crate::teammate::AgentSetup;

/// Where hosts ask the coordinator.
pub const ASK: &str = "ph.ask";
/// Where hosts beat.
pub const BEAT: &str = "ph.beat";

/// Where a host hears that something has changed.
pub fn nudges(host: &HostName) -> String {
    format!("ph.orders.{host}")
}

/// Where a host answers the coordinator's questions.
pub fn looks(host: &HostName) -> String {
    format!("ph.look.{host}")
}

/// One signed message of a host.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Signed {
    /// Who says so.
    pub host: HostName,
    /// Its public key.
    pub key: String,
    /// When, by its own clock.
    pub at: Stamp,
    /// Never used twice.
    pub nonce: String,
    /// What it says, JSON.
    pub body: String,
    /// The key's signature of all before it and the subject.
    pub sig: String,
}

impl Signed {
    /// The bytes that are signed.
    pub fn covered(&self, subject: &str) -> Vec<u8> {
        let Self { host, key, at, nonce, body, sig: _ } = self;
        format!("{subject}\n{host}\n{key}\n{at}\n{nonce}\n{body}").into_bytes()
    }
}

/// The answer to anything that was asked.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Answered {
    /// The reply's JSON.
    Reply(Value),
    /// Refused, with the reason.
    Refused(Refusal),
}

/// What a host asks.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "ask", rename_all = "snake_case")]
#[expect(missing_docs, reason = "fields are those of the calls of `AuthorityPort`")]
pub enum Ask {
    /// This data directory starts. -> `Joined`
    Join { start: Start, token: Option<String> },
    /// A part of this host's orders, from byte `offset` on. -> `Part`
    Orders { offset: usize },
    /// A request of a turn. -> its reply
    Request { caller: Caller, request: Request },
    /// -> `Option<ClaimedTask>`
    ClaimNext { agent: AgentId, generation: Generation, request_id: String },
    /// -> null
    Complete { agent: AgentId, claim: Claim, result: String, request_id: String },
    /// -> null
    GiveUp { agent: AgentId, claim: Claim, how: GaveUp, request_id: String },
    /// -> null
    Standing {
        agent: AgentId,
        generation: Generation,
        command: Generation,
        standing: Standing,
        request_id: String,
    },
    /// -> null
    Ticked { team: TeamName, schedule: ScheduleId, birth: Birth, through: Stamp },
    /// -> null
    Tell { said: Vec<Said> },
}

/// A start of a data directory.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Start {
    /// The random id of its data directory.
    pub data_id: String,
    /// How often that was started; rises.
    pub boot: u64,
    /// Random, made by the starting process: its question repeated is known from a copy's.
    pub process: String,
    /// What placement can ask for.
    pub labels: BTreeMap<String, String>,
    /// Runners that it has.
    pub runners: BTreeSet<String>,
}

/// A host was taken in.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Joined {
    /// Its grant.
    pub generation: Generation,
}

/// What a host tells as it happens; the best that can be done, no more.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "said", rename_all = "snake_case")]
#[expect(missing_docs, reason = "fields are those of the calls of `AuthorityPort`")]
pub enum Said {
    /// What a teammate is at.
    Report { agent: AgentId, report: Report },
    /// Something happened.
    Event { what: Box<What> },
}

/// Where the messages of one mailbox are.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct MailCounts {
    /// Waiting.
    pub ready: u64,
    /// In a turn.
    pub processing: u64,
    /// Their turn has ended.
    pub done: u64,
    /// In quarantine.
    pub quarantined: u64,
}

/// What is in an outbox.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Outgoing {
    /// Not known to be stored by the other host.
    pub unstored: u64,
    /// Stored there, and not done.
    pub undone: u64,
    /// Age of the oldest that is not stored.
    pub oldest_unstored_ms: u64,
}

/// A sign of life.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Beat {
    /// The start that beats.
    pub boot: u64,
    /// Its mailboxes.
    pub mail: Vec<(AgentId, MailCounts)>,
    /// What its teammates are at.
    pub reports: Vec<(AgentId, Report)>,
    /// What is on its way to other hosts.
    pub outgoing: Outgoing,
    /// Whether it closes.
    pub draining: bool,
}

/// How far the authority is; tells a host whether to ask for its orders, and its teammates whether to ask for
/// work.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct News {
    /// The journal entry that last changed what hosts must know.
    pub orders: u64,
    /// The journal's end.
    pub board: u64,
}

/// A part of the orders of one host, which may be larger than a message.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Part {
    /// SHA-256 of the whole: parts of different wholes are not put together.
    pub digest: String,
    /// Bytes in the whole.
    pub total: usize,
    /// The part, from the offset on.
    pub text: String,
}

/// All that one host must know. A host acts on the whole only, so that it can be sent again.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Orders {
    /// How far the authority was.
    pub news: News,
    /// The host that leads.
    pub leader: HostName,
    /// The journal's end when they were made: all grants up to it are in them.
    #[serde(default)]
    pub through: Generation,
    /// All hosts: grant and public key.
    pub hosts: Vec<(HostName, Generation, String)>,
    /// All teams, with all their members.
    pub teams: Vec<(TeamName, Vec<(AgentName, Residence)>)>,
    /// Teammates that live on this host. Their prompts are left out: they come as mail.
    pub agents: Vec<AgentOrder>,
    /// Schedules whose recipients live on this host.
    pub schedules: Vec<Schedule>,
}

/// One teammate of this host.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[expect(missing_docs, reason = "fields are those of `AgentSetup`")]
pub struct AgentOrder {
    pub id: AgentId,
    pub birth: Birth,
    pub generation: Generation,
    pub spec: MemberSpec,
    pub standing: Standing,
    pub command: Generation,
    pub since: Stamp,
}

impl From<AgentOrder> for AgentSetup {
    fn from(order: AgentOrder) -> Self {
        let AgentOrder { id, birth, generation, spec, standing, command, since } = order;
        Self { id, birth, generation, spec, standing, command, since }
    }
}
