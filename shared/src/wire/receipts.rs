//! What hosts tell each other about mail: receipts and questions, batched into signed notes. A note may be
//! lost, come twice or late; nothing rests on one note.

use serde::{Deserialize, Serialize};

use crate::generation::Birth;
use crate::identity::{HostKey, HostKeys};
use crate::lane::LaneKey;
use crate::name::{AgentId, HostName, MessageId};

/// The receiving host's word on one message.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Receipt {
    /// The message.
    pub id: MessageId,
    /// The word.
    #[serde(flatten)]
    pub word: Word,
}

/// What became of a message.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", tag = "word")]
pub enum Word {
    /// It is in the recipient's mailbox, synced.
    Stored,
    /// Not now: the mailbox is full, or the host is not (yet) the home. Try again.
    Busy {
        /// Not before this.
        retry_ms: u64,
    },
    /// Never: wrong birth, forged, too large. Settles its number.
    Refused {
        /// In short.
        code: String,
        /// For people.
        text: String,
    },
    /// The turn that carried it has ended.
    Done,
    /// It lies in quarantine.
    Quarantined,
    /// This host never had it.
    Unknown,
}

/// Where is this message? Asked now and then about what is stored and not done.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Question {
    /// The message.
    pub id: MessageId,
    /// Its recipient.
    pub to: AgentId,
    /// The recipient's birth.
    pub birth: Birth,
    /// Its lane and epoch.
    pub lane: LaneKey,
    /// Its number.
    pub seq: u64,
    /// The highest lower number of the lane that is not done.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub after: Option<u64>,
}

/// One note.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Note {
    /// Always 1.
    pub v: u8,
    /// Who says it.
    pub from: HostName,
    /// To whom.
    pub to: HostName,
    /// Words on messages that `to` sent.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub receipts: Vec<Receipt>,
    /// `from` has begun to listen anew: what it had not answered is to be asked and sent again.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub hello: bool,
    /// Questions about messages that `from` sent.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub questions: Vec<Question>,
}

/// Why bytes are not a note for us.
#[derive(Debug, thiserror::Error)]
pub enum NoteError {
    /// No signature in front of it, not JSON, or another version.
    #[error("note is not readable")]
    Unreadable,
    /// It is for another host.
    #[error("note is for {0}")]
    Elsewhere(HostName),
    /// Not signed with the present key of the host that it names.
    #[error("note is not signed by {0}")]
    Forged(HostName),
}

impl Note {
    /// The signature, a line break, the note as JSON.
    pub fn seal(&self, key: &HostKey) -> Vec<u8> {
        let json = serde_json::to_vec(self).unwrap_or_default();
        let mut bytes = key.sign(&json).into_bytes();
        bytes.push(b'\n');
        bytes.extend_from_slice(&json);
        bytes
    }

    /// Reads a note for `to`, checked against the key of the host that it names.
    pub fn open(bytes: &[u8], to: &HostName, hosts: &HostKeys) -> Result<Self, NoteError> {
        let at = bytes.iter().position(|byte| *byte == b'\n').ok_or(NoteError::Unreadable)?;
        let (sig, json) = (bytes.get(..at).unwrap_or_default(), bytes.get(at + 1..).unwrap_or_default());
        let sig = std::str::from_utf8(sig).map_err(|_| NoteError::Unreadable)?;
        let note: Self = serde_json::from_slice(json).map_err(|_| NoteError::Unreadable)?;
        if note.v != 1 {
            return Err(NoteError::Unreadable);
        }
        if note.to != *to {
            return Err(NoteError::Elsewhere(note.to));
        }
        match hosts.get(&note.from) {
            Some(host) if host.key.verify(json, sig) => Ok(note),
            Some(_) | None => Err(NoteError::Forged(note.from)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::generation::Generation;
    use crate::identity::HostIdentity;

    #[test]
    fn a_note_is_read_by_its_addressee_and_only_if_it_is_signed() {
        let host = |name| HostName::new(name).unwrap();
        let (key, hosts) = (HostKey::generate(), HostKeys::default());
        let identity = HostIdentity { generation: Generation::new(1, 1), key: key.public() };
        hosts.set(host("beta"), identity);
        let receipts = vec![Receipt { id: MessageId::fresh(), word: Word::Busy { retry_ms: 5 } }];
        let note = Note {
            v: 1,
            from: host("beta"),
            to: host("alpha"),
            receipts,
            hello: false,
            questions: Vec::new(),
        };
        let bytes = note.seal(&key);
        assert_eq!(Note::open(&bytes, &host("alpha"), &hosts).unwrap(), note);
        assert!(matches!(Note::open(&bytes, &host("gamma"), &hosts), Err(NoteError::Elsewhere(_))));
        let forged = note.seal(&HostKey::generate());
        assert!(matches!(Note::open(&forged, &host("alpha"), &hosts), Err(NoteError::Forged(_))));
        for bad in [&b""[..], b"\n{}", b"x"] {
            assert!(matches!(Note::open(bad, &host("alpha"), &hosts), Err(NoteError::Unreadable)));
        }
    }
}
