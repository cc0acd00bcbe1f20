//! A snapshot: the state at one entry, as two lines, the first with the hash of both.

use posthouse_shared::identity::sha256_hex;
use serde::{Deserialize, Serialize};

use super::entry::Head;

const VERSION: u8 = 1;

/// The state up to and with the entry that `head` names.
#[derive(Debug, Clone, PartialEq)]
pub struct Snapshot {
    /// The last entry in it.
    pub head: Head,
    /// The state as JSON.
    pub state: Vec<u8>,
}

#[derive(Serialize, Deserialize)]
struct Cover {
    v: u8,
    head: Head,
    bytes: u64,
    sha256: String,
}

fn digest(head: &Head, state: &[u8]) -> String {
    let mut covered = format!("{} {} {}\n", head.index, head.term, head.hash).into_bytes();
    covered.extend_from_slice(state);
    sha256_hex(&covered)
}

impl Snapshot {
    /// As it stands on disk.
    pub fn encode(&self) -> Vec<u8> {
        let cover = Cover {
            v: VERSION,
            head: self.head.clone(),
            bytes: u64::try_from(self.state.len()).unwrap_or(u64::MAX),
            sha256: digest(&self.head, &self.state),
        };
        let mut bytes = serde_json::to_vec(&cover).unwrap_or_default();
        bytes.push(b'\n');
        bytes.extend_from_slice(&self.state);
        bytes.push(b'\n');
        bytes
    }

    /// Reads one; `Err` says what is wrong with it. A changed byte anywhere is noticed.
    pub fn decode(bytes: &[u8]) -> Result<Self, String> {
        let at = bytes.iter().position(|b| *b == b'\n').ok_or("cut off")?;
        let (cover, rest) = bytes.split_at_checked(at).ok_or("cut off")?;
        let cover: Cover = serde_json::from_slice(cover).map_err(|e| e.to_string())?;
        let state = rest.get(1..).and_then(|rest| rest.strip_suffix(b"\n")).ok_or("cut off")?;
        if cover.v != VERSION {
            return Err(format!("version {}, this build knows {VERSION}", cover.v));
        }
        if u64::try_from(state.len()) != Ok(cover.bytes) || digest(&cover.head, state) != cover.sha256 {
            return Err("its hash differs".to_owned());
        }
        Ok(Self { head: cover.head, state: state.to_vec() })
    }
}
