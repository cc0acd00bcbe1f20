//! The message: one JSON object, version 1, readable with `cat`. Its bytes are stored as received, since the
//! signature covers them: everything before the last key, `sig`.
//!
//! Marks (attempt, late, superseded ...) are not in here: they live in the file's name and in the history.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

use crate::clock::Stamp;
use crate::generation::{Birth, Generation};
use crate::identity::{HostKey, HostKeys, NodeKey, hex};
use crate::lane::{LaneHash, LaneKey, LanePosition};
use crate::limits::Limits;
use crate::name::{AgentId, AgentName, HostName, MessageId, TeamName};

/// The version of the envelope that is written.
pub const VERSION: u8 = 1;

/// What a message is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Kind {
    /// The first prompt of a teammate.
    Task,
    /// Mail between agents.
    Message,
    /// What a teammate's turn came to, for the lead.
    Result,
    /// A teammate has nothing to do; carries its last result.
    Idle,
    /// A teammate asks the lead to approve its plan.
    PlanApprovalRequest,
    /// A teammate's runner asks for permission.
    PermissionRequest,
    /// A task was given to a teammate.
    TaskAssignment,
    /// A subagent's end.
    TaskNotification,
    /// The system's own word. A notice never causes a notice.
    Notice,
    /// Asks a teammate to end.
    ShutdownRequest,
    /// A teammate's answer to that.
    ShutdownResponse,
    /// The lead's answer to a permission request.
    PermissionResponse,
    /// The lead's answer to a plan.
    PlanApprovalResponse,
    /// Cancels the turn; nothing is claimed until `resume`.
    Stop,
    /// Ends a stop.
    Resume,
}

impl Kind {
    /// Control kinds go in the pair's second lane and overtake all others.
    pub const fn is_control(self) -> bool {
        match self {
            Self::ShutdownRequest
            | Self::ShutdownResponse
            | Self::PermissionResponse
            | Self::PlanApprovalResponse
            | Self::Stop
            | Self::Resume => true,
            Self::Task
            | Self::Message
            | Self::Result
            | Self::Idle
            | Self::PlanApprovalRequest
            | Self::PermissionRequest
            | Self::TaskAssignment
            | Self::TaskNotification
            | Self::Notice => false,
        }
    }

    /// The kind as it stands in the envelope.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Task => "task",
            Self::Message => "message",
            Self::Result => "result",
            Self::Idle => "idle",
            Self::PlanApprovalRequest => "plan_approval_request",
            Self::PermissionRequest => "permission_request",
            Self::TaskAssignment => "task_assignment",
            Self::TaskNotification => "task_notification",
            Self::Notice => "notice",
            Self::ShutdownRequest => "shutdown_request",
            Self::ShutdownResponse => "shutdown_response",
            Self::PermissionResponse => "permission_response",
            Self::PlanApprovalResponse => "plan_approval_response",
            Self::Stop => "stop",
            Self::Resume => "resume",
        }
    }
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.as_str())
    }
}

/// Who sent a message, from where, under which grant.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Origin {
    /// The sender.
    pub agent: AgentName,
    /// Its home when it sent.
    pub host: HostName,
    /// Its generation when it sent: the lane's epoch.
    pub generation: Generation,
}

/// For whom a message is.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Destination {
    /// The recipient.
    pub agent: AgentName,
    /// Its birth: a later agent of the same name does not get this message.
    pub birth: Birth,
}

/// A body that was too large for the envelope and lies in the blob store under its SHA-256.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct BlobRef {
    /// SHA-256 of the content, lower-case hex.
    pub sha256: String,
    /// Its length.
    pub bytes: u64,
}

/// The W3C trace context of a message: `00-<32 hex>-<16 hex>-<2 hex>`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct TraceParent(String);

/// The text is not a W3C `traceparent`.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0:?} is not a W3C traceparent (00-<32 hex>-<16 hex>-<2 hex>)")]
pub struct TraceParentError(String);

impl TraceParent {
    /// A new trace that begins with this message.
    pub fn begin(id: MessageId) -> Self {
        let digest = Sha256::digest(id.0.as_bytes());
        let bytes = digest.get(..24).unwrap_or_default();
        let (trace, span) = bytes.split_at(bytes.len().min(16));
        Self(format!("00-{}-{}-01", hex(trace), hex(span)))
    }

    /// The same trace, carried on by another message.
    pub fn carried_by(&self, id: MessageId) -> Self {
        let own = Self::begin(id);
        let span = own.0.get(36..52).unwrap_or_default();
        Self(format!("00-{}-{span}-01", self.trace_id()))
    }

    /// The trace's id, 32 hex digits.
    pub fn trace_id(&self) -> &str {
        self.0.get(3..35).unwrap_or_default()
    }

    /// As it goes over the wire.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl FromStr for TraceParent {
    type Err = TraceParentError;
    fn from_str(text: &str) -> Result<Self, TraceParentError> {
        let parts: Vec<&str> = text.split('-').collect();
        let hex = |part: &str| part.bytes().all(|b| b.is_ascii_digit() || (b'a'..=b'f').contains(&b));
        let sizes: Vec<usize> = parts.iter().map(|part| part.len()).collect();
        let fits =
            sizes == [2, 32, 16, 2] && parts.iter().all(|part| hex(part)) && parts.first() != Some(&"ff");
        if fits { Ok(Self(text.to_owned())) } else { Err(TraceParentError(text.to_owned())) }
    }
}

impl TryFrom<String> for TraceParent {
    type Error = TraceParentError;
    fn try_from(text: String) -> Result<Self, TraceParentError> {
        text.parse()
    }
}

impl From<TraceParent> for String {
    fn from(trace: TraceParent) -> String {
        trace.0
    }
}

/// The envelope, version 1. Field order is the order on disk; `sig` is not a field here: it is appended to
/// the encoded rest by [`Envelope::seal`].
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Envelope {
    /// Always [`VERSION`].
    pub v: u8,
    /// The message's id, unique for ever.
    pub id: MessageId,
    /// The team of both ends.
    pub team: TeamName,
    /// Who sent it.
    pub from: Origin,
    /// For whom it is.
    pub to: Destination,
    /// What it is for.
    pub kind: Kind,
    /// When it was sent, by the sender's hybrid clock.
    pub created_at: Stamp,
    /// Its place in its lane.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub lane: Option<LanePosition>,
    /// The message that this one answers.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub in_reply_to: Option<MessageId>,
    /// One line for lists.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub summary: Option<String>,
    /// The text. Absent where `blob` is there.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub body: Option<String>,
    /// Where a larger body lies.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub blob: Option<BlobRef>,
    /// The trace that this message belongs to.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub trace: Option<TraceParent>,
}

/// An envelope with the bytes that stand for it on disk and on the wire.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Sealed {
    /// The content.
    pub envelope: Envelope,
    /// The encoded envelope with its `sig`.
    pub bytes: Vec<u8>,
}

/// Who vouches for what was read.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Vouched {
    /// The keyed hash of this node.
    Node,
    /// The signature of the host that the message comes from.
    Host,
    /// Nobody: the file came from another program. Whatever it claims, its sender is `external`.
    Nobody,
}

/// Why bytes are not a message.
#[derive(Debug, thiserror::Error)]
pub enum DecodeError {
    /// Larger than the limit; not even looked at.
    #[error("message has {bytes} bytes, the limit is {limit}")]
    TooLarge {
        /// Its length.
        bytes: u64,
        /// The limit.
        limit: u64,
    },
    /// The file is empty.
    #[error("message is empty")]
    Empty,
    /// A version that this build does not know.
    #[error("message has version {0}, this build knows version {VERSION}")]
    UnknownVersion(u64),
    /// A kind that this build does not know.
    #[error("message has the unknown kind {0:?}")]
    UnknownKind(String),
    /// Anything else: cut off, foreign, a bad name ...
    #[error("read message as JSON: {0}")]
    Json(#[from] serde_json::Error),
    /// Neither or both of body and blob.
    #[error("message needs exactly one of body and blob")]
    Content,
}

/// The envelope cannot be sent as it is.
#[derive(Debug, thiserror::Error)]
pub enum SealError {
    /// The encoded envelope is over the limit.
    #[error("encoded message has {bytes} bytes, the limit is {limit}")]
    TooLarge {
        /// Its encoded length.
        bytes: u64,
        /// The limit.
        limit: u64,
    },
    /// The encoder failed.
    #[error("encode message: {0}")]
    Json(#[from] serde_json::Error),
}

const SIG_KEY: &[u8] = br#","sig":""#;

impl Envelope {
    /// Encodes the envelope and vouches for it with the node's key. Refuses what is over
    /// `limits.envelope_bytes`, counted over the encoded whole.
    pub fn seal(self, key: &NodeKey, limits: &Limits) -> Result<Sealed, SealError> {
        self.sealed_by(|bytes| key.sign(bytes), limits)
    }

    /// The same with the host's signature, for mail that goes to another host.
    pub fn seal_for_others(self, key: &HostKey, limits: &Limits) -> Result<Sealed, SealError> {
        self.sealed_by(|bytes| key.sign(bytes), limits)
    }

    fn sealed_by(self, sign: impl FnOnce(&[u8]) -> String, limits: &Limits) -> Result<Sealed, SealError> {
        let mut bytes = serde_json::to_vec(&self)?;
        bytes.pop();
        let sig = sign(&bytes);
        bytes.extend_from_slice(SIG_KEY);
        bytes.extend_from_slice(sig.as_bytes());
        bytes.extend_from_slice(br#""}"#);
        let limit = limits.envelope_bytes;
        let size = u64::try_from(bytes.len()).unwrap_or(u64::MAX);
        if size > limit {
            return Err(SealError::TooLarge { bytes: size, limit });
        }
        Ok(Sealed { envelope: self, bytes })
    }

    /// The sender with its team.
    pub fn sender(&self) -> AgentId {
        AgentId::new(self.from.agent.clone(), self.team.clone())
    }

    /// The recipient with its team.
    pub fn recipient(&self) -> AgentId {
        AgentId::new(self.to.agent.clone(), self.team.clone())
    }

    /// The lane and epoch that this message is numbered in, where it is numbered.
    pub fn lane_key(&self) -> Option<LaneKey> {
        let control = self.lane?.control;
        let lane = LaneHash::of(&self.sender(), &self.recipient(), self.to.birth, control);
        Some(LaneKey { lane, epoch: self.from.generation })
    }

    /// What must be equal for a repeated id to get the first answer: sender, recipient, kind, body, summary
    /// and in_reply_to, as SHA-256 in hex.
    pub fn content_digest(&self) -> String {
        let content = (
            self.sender().to_string(),
            self.recipient().to_string(),
            self.kind,
            &self.body,
            self.blob.as_ref().map(|blob| &blob.sha256),
            &self.summary,
            self.in_reply_to,
        );
        let encoded = serde_json::to_vec(&content).unwrap_or_default();
        crate::identity::sha256_hex(&encoded)
    }
}

impl Sealed {
    /// Reads an envelope, and tells who vouches for it. Never panics, whatever the bytes are.
    pub fn decode(bytes: Vec<u8>, key: &NodeKey, limits: &Limits) -> Result<(Self, Vouched), DecodeError> {
        let sealed = Self::decode_unchecked(bytes, limits)?;
        let vouched = if sealed.is_by_node(key) { Vouched::Node } else { Vouched::Nobody };
        Ok((sealed, vouched))
    }

    /// The same where other hosts may vouch too: with a key that is, or was, that of the host it names.
    pub fn decode_from_any(
        bytes: Vec<u8>,
        key: &NodeKey,
        hosts: &HostKeys,
        limits: &Limits,
    ) -> Result<(Self, Vouched), DecodeError> {
        let sealed = Self::decode_unchecked(bytes, limits)?;
        let vouched = if sealed.is_by_node(key) {
            Vouched::Node
        } else if sealed
            .signed_part()
            .is_some_and(|(covered, sig)| hosts.ever_signed(&sealed.envelope.from.host, covered, sig))
        {
            Vouched::Host
        } else {
            Vouched::Nobody
        };
        Ok((sealed, vouched))
    }

    /// Its size: the encoded envelope, and the body that lies beside it.
    pub fn size(&self) -> u64 {
        let blob = self.envelope.blob.as_ref().map_or(0, |blob| blob.bytes);
        u64::try_from(self.bytes.len()).unwrap_or(u64::MAX).saturating_add(blob)
    }

    /// The bytes that its signature covers, and the signature; nothing where it carries none.
    pub fn signed_part(&self) -> Option<(&[u8], &str)> {
        split_sig(&self.bytes)
    }

    fn is_by_node(&self, key: &NodeKey) -> bool {
        self.signed_part().is_some_and(|(covered, sig)| key.verify(covered, sig))
    }

    /// Reads an envelope without asking who vouches for it: for bytes that we wrote, or that are checked next.
    pub fn decode_unchecked(bytes: Vec<u8>, limits: &Limits) -> Result<Self, DecodeError> {
        let size = u64::try_from(bytes.len()).unwrap_or(u64::MAX);
        if size > limits.envelope_bytes {
            return Err(DecodeError::TooLarge { bytes: size, limit: limits.envelope_bytes });
        }
        if bytes.iter().all(u8::is_ascii_whitespace) {
            return Err(DecodeError::Empty);
        }
        let envelope = parse(&bytes)?;
        if envelope.body.is_some() == envelope.blob.is_some() {
            return Err(DecodeError::Content);
        }
        Ok(Self { envelope, bytes })
    }
}

/// Version and kind first, so that what a newer build wrote is named as such and not as broken JSON.
fn parse(bytes: &[u8]) -> Result<Envelope, DecodeError> {
    #[derive(Deserialize)]
    struct Head {
        v: u64,
        kind: String,
    }
    #[derive(Deserialize)]
    struct WithSig {
        #[serde(flatten)]
        rest: serde_json::Map<String, serde_json::Value>,
    }
    let head: Head = serde_json::from_slice(bytes)?;
    if head.v != u64::from(VERSION) {
        return Err(DecodeError::UnknownVersion(head.v));
    }
    if serde_json::from_value::<Kind>(head.kind.clone().into()).is_err() {
        return Err(DecodeError::UnknownKind(head.kind));
    }
    let mut whole: WithSig = serde_json::from_slice(bytes)?;
    whole.rest.remove("sig");
    Ok(serde_json::from_value(serde_json::Value::Object(whole.rest))?)
}

/// The bytes that a signature covers, and the signature. `sig` is the last key, and its value holds neither
/// quotes nor backslashes, so the last occurrence of the key is it.
fn split_sig(bytes: &[u8]) -> Option<(&[u8], &str)> {
    let at = bytes.windows(SIG_KEY.len()).rposition(|window| window == SIG_KEY)?;
    let (covered, rest) = bytes.split_at_checked(at)?;
    let sig = rest.strip_prefix(SIG_KEY)?.strip_suffix(br#""}"#)?;
    let sig = std::str::from_utf8(sig).ok()?;
    (!sig.contains(['"', '\\'])).then_some((covered, sig))
}
