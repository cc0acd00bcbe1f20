//! What bytes are as a message of one mailbox. Pure.

use posthouse_shared::generation::{Birth, Generation};
use posthouse_shared::identity::{HostKeys, NodeKey};
use posthouse_shared::limits::Limits;
use posthouse_shared::message::{DecodeError, Destination, Envelope, Kind, Origin, Sealed, VERSION, Vouched};
use posthouse_shared::name::{AgentId, AgentName, HostName};

use super::name::{Class, FileName, Marks};
use super::quarantine::Reason;

/// What a file holds.
pub(super) enum Content {
    /// What its name says.
    Good(Box<Sealed>, Vouched),
    /// Something else.
    Bad(Reason),
}

/// Who a file without our signature is from.
pub const EXTERNAL: &str = "external";

/// What tells a message from other bytes.
#[derive(Clone, Copy)]
pub(super) struct Reader<'a> {
    pub agent: &'a AgentId,
    pub birth: Birth,
    pub key: &'a NodeKey,
    pub hosts: &'a HostKeys,
    pub limits: &'a Limits,
}

impl Reader<'_> {
    fn decode(&self, bytes: Vec<u8>) -> Result<(Sealed, Vouched), DecodeError> {
        Sealed::decode_from_any(bytes, self.key, self.hosts, self.limits)
    }

    /// Checks content against its file's name. A name with a place must match content and keyed hash or
    /// signature; one without is from `external` unless somebody vouches for just that.
    pub(super) fn judge(&self, bytes: Vec<u8>, name: &FileName) -> Content {
        match (self.decode(bytes.clone()), name.place) {
            (Ok((sealed, by @ (Vouched::Node | Vouched::Host))), _) if self.fits(&sealed.envelope, name) => {
                Content::Good(Box::new(sealed), by)
            }
            (Ok((_, Vouched::Nobody)), Some(_)) => Content::Bad(Reason::of(
                "mismatch",
                "neither keyed hash nor signature fits its content".to_owned(),
            )),
            (Ok((_, Vouched::Node | Vouched::Host)), _) => {
                Content::Bad(Reason::of("mismatch", "its content is not what its name says".to_owned()))
            }
            (Err(error), Some(_)) => Content::Bad(Reason::unreadable(&error)),
            (Ok((_, Vouched::Nobody)) | Err(_), None) => match self.external(bytes, name) {
                Ok(sealed) => Content::Good(Box::new(sealed), Vouched::Nobody),
                Err(reason) => Content::Bad(reason),
            },
        }
    }

    /// The name of a message that this node or its host vouches for and that has a place in a lane of this mailbox.
    pub(super) fn place_of(&self, bytes: &[u8]) -> Option<FileName> {
        let (sealed, vouched) = self.decode(bytes.to_vec()).ok()?;
        let envelope = &sealed.envelope;
        let ours = vouched != Vouched::Nobody && envelope.lane.is_some() && self.is_for_us(envelope);
        ours.then(|| FileName::arriving(envelope, envelope.created_at, Marks::NONE))
    }

    fn is_for_us(&self, envelope: &Envelope) -> bool {
        envelope.recipient() == *self.agent && envelope.to.birth == self.birth
    }

    fn fits(&self, envelope: &Envelope, name: &FileName) -> bool {
        let expected = FileName::arriving(envelope, name.order_at, name.marks);
        let class = if name.place.is_none() { Class::Normal } else { Class::of(envelope) };
        self.is_for_us(envelope)
            && (expected.id, expected.place) == (name.id, name.place)
            && class == name.class
    }

    /// What another program wrote, as a message from `external`.
    pub(super) fn external(&self, bytes: Vec<u8>, name: &FileName) -> Result<Sealed, Reason> {
        let outside = AgentName::new(EXTERNAL).map_err(|e| Reason::of("internal", e.to_string()))?;
        let host = HostName::new(EXTERNAL).map_err(|e| Reason::of("internal", e.to_string()))?;
        let blank = Envelope {
            v: VERSION,
            id: name.id,
            team: self.agent.team.clone(),
            from: Origin { agent: outside, host, generation: Generation::default() },
            to: Destination { agent: self.agent.agent.clone(), birth: self.birth },
            kind: Kind::Message,
            created_at: name.order_at,
            lane: None,
            in_reply_to: None,
            summary: None,
            body: None,
            blob: None,
            trace: None,
        };
        let envelope = match self.decode(bytes.clone()) {
            Ok((sealed, _)) => {
                let said = sealed.envelope;
                let (summary, body, blob) = (said.summary, said.body, said.blob);
                Envelope { summary, body, blob, in_reply_to: said.in_reply_to, trace: said.trace, ..blank }
            }
            Err(error) => match minimal(&bytes) {
                Some((body, summary)) => Envelope { body: Some(body), summary, ..blank },
                None => return Err(Reason::unreadable(&error)),
            },
        };
        Ok(Sealed { envelope, bytes })
    }
}

/// `{"v":1,"body":"..."}` with a `summary` or not: the least that another program has to write.
fn minimal(bytes: &[u8]) -> Option<(String, Option<String>)> {
    #[derive(serde::Deserialize)]
    #[serde(deny_unknown_fields)]
    struct Drop {
        v: u8,
        body: String,
        #[serde(default)]
        summary: Option<String>,
    }
    let dropped: Drop = serde_json::from_slice(bytes).ok()?;
    (dropped.v == VERSION).then_some((dropped.body, dropped.summary))
}
