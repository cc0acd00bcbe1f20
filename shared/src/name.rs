//! Names, parsed once at the edge. A value of these types is safe as a file name and as a subject token:
//! lower-case letters, digits and dashes, 1 to 63 characters, so that a path made of it can never leave its
//! directory. Task ids may also hold upper-case letters, `_` and `.` (never as the first character).

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};
use uuid::Uuid;

/// Longest name, in characters.
pub const NAME_CHARS_MAX: usize = 63;

/// Why a text is not a name.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum NameError {
    /// Nothing was given.
    #[error("{what} name is empty")]
    Empty {
        /// The kind of name: `team`, `agent`, ...
        what: &'static str,
    },
    /// Longer than [`NAME_CHARS_MAX`].
    #[error("{what} name has {chars} characters, the limit is {NAME_CHARS_MAX}")]
    TooLong {
        /// The kind of name.
        what: &'static str,
        /// How long it is.
        chars: usize,
    },
    /// A character that a name cannot hold.
    #[error("{what} name {name:?} holds {found:?} at position {at}; {allowed}")]
    Character {
        /// The kind of name.
        what: &'static str,
        /// What was given.
        name: String,
        /// The first character that does not fit.
        found: char,
        /// Its position, counted in characters from 0.
        at: usize,
        /// What is allowed, as a sentence.
        allowed: &'static str,
    },
}

const PLAIN: &str = "use a-z, 0-9 and -, beginning with a letter or digit";
const TASK: &str = "use letters, digits, - _ and ., beginning with a letter or digit";

fn check(
    what: &'static str,
    text: &str,
    allowed: &'static str,
    fits: fn(usize, char) -> bool,
) -> Result<(), NameError> {
    if text.is_empty() {
        return Err(NameError::Empty { what });
    }
    let chars = text.chars().count();
    if chars > NAME_CHARS_MAX {
        return Err(NameError::TooLong { what, chars });
    }
    match text.chars().enumerate().find(|(at, c)| !fits(*at, *c)) {
        Some((at, found)) => Err(NameError::Character { what, name: text.to_owned(), found, at, allowed }),
        None => Ok(()),
    }
}

fn plain(at: usize, c: char) -> bool {
    c.is_ascii_lowercase() || c.is_ascii_digit() || (at > 0 && c == '-')
}

fn task(at: usize, c: char) -> bool {
    c.is_ascii_alphanumeric() || (at > 0 && matches!(c, '-' | '_' | '.'))
}

macro_rules! name {
    ($(#[$doc:meta])* $type:ident, $what:literal, $allowed:expr, $fits:expr) => {
        $(#[$doc])*
        #[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
        #[serde(try_from = "String", into = "String")]
        pub struct $type(String);

        impl $type {
            /// Parses a name; see the module for what is allowed.
            pub fn new(text: impl Into<String>) -> Result<Self, NameError> {
                let text = text.into();
                check($what, &text, $allowed, $fits)?;
                Ok(Self(text))
            }

            /// The name as text.
            pub fn as_str(&self) -> &str {
                &self.0
            }
        }

        impl fmt::Display for $type {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.pad(&self.0)
            }
        }

        impl FromStr for $type {
            type Err = NameError;
            fn from_str(text: &str) -> Result<Self, NameError> {
                Self::new(text)
            }
        }

        impl TryFrom<String> for $type {
            type Error = NameError;
            fn try_from(text: String) -> Result<Self, NameError> {
                Self::new(text)
            }
        }

        impl From<$type> for String {
            fn from(name: $type) -> String {
                name.0
            }
        }

        impl AsRef<str> for $type {
            fn as_ref(&self) -> &str {
                &self.0
            }
        }

        impl std::borrow::Borrow<str> for $type {
            fn borrow(&self) -> &str {
                &self.0
            }
        }
    };
}

name!(
    /// A team: the name space of a lead, members, a board and mailboxes.
    TeamName, "team", PLAIN, plain
);
name!(
    /// A teammate within its team, or `lead`.
    AgentName, "agent", PLAIN, plain
);
name!(
    /// A host, one node agent each.
    HostName, "host", PLAIN, plain
);
name!(
    /// What a teammate is for; tasks can ask for one.
    RoleName, "role", PLAIN, plain
);
name!(
    /// A task of a team's board.
    TaskId, "task", TASK, task
);
name!(
    /// A schedule of a team.
    ScheduleId, "schedule", TASK, task
);

/// The reserved name of the lead.
pub const LEAD: &str = "lead";

impl AgentName {
    /// The lead of a team.
    pub fn lead() -> Self {
        Self(LEAD.to_owned())
    }

    /// Whether this is the reserved name of the lead.
    pub fn is_lead(&self) -> bool {
        self.0 == LEAD
    }
}

/// An agent with its team, written `name@team`.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct AgentId {
    /// The agent's name.
    pub agent: AgentName,
    /// Its team.
    pub team: TeamName,
}

impl AgentId {
    /// Joins the two parts.
    pub fn new(agent: AgentName, team: TeamName) -> Self {
        Self { agent, team }
    }
}

impl fmt::Display for AgentId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(&format!("{}@{}", self.agent, self.team))
    }
}

impl TryFrom<String> for AgentId {
    type Error = NameError;
    fn try_from(text: String) -> Result<Self, NameError> {
        let (agent, team) = text.split_once('@').ok_or(NameError::Empty { what: "team" })?;
        Ok(Self { agent: AgentName::new(agent)?, team: TeamName::new(team)? })
    }
}

impl From<AgentId> for String {
    fn from(id: AgentId) -> String {
        id.to_string()
    }
}

/// A message's id: UUIDv7 for new ones, UUIDv5 where the same id must come out twice.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct MessageId(pub Uuid);

/// Name space of the ids that are derived (UUIDv5).
const DERIVED: Uuid = Uuid::from_u128(0x2f1f_6f0e_93c4_5c1b_8f0d_5a0c_70e5_7a11);

impl MessageId {
    /// A new id: time-ordered and random.
    pub fn fresh() -> Self {
        Self(Uuid::now_v7())
    }

    /// The id that these parts give, always the same one. Parts are joined with a NUL, so that
    /// `["ab", "c"]` and `["a", "bc"]` differ.
    pub fn derived(parts: &[&str]) -> Self {
        Self(Uuid::new_v5(&DERIVED, parts.join("\0").as_bytes()))
    }
}

impl fmt::Display for MessageId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(&self.0.hyphenated(), f)
    }
}

impl FromStr for MessageId {
    type Err = uuid::Error;
    fn from_str(text: &str) -> Result<Self, uuid::Error> {
        Uuid::parse_str(text).map(Self)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_never_leave_their_directory() {
        for bad in ["", ".", "..", "../x", "a/b", "A", "-a", "a b", "ä", "a\0", &"x".repeat(64)] {
            assert!(AgentName::new(bad).is_err(), "{bad:?}");
        }
        for bad in ["", ".", "..", ".hidden", "a/b", "-x"] {
            assert!(TaskId::new(bad).is_err(), "{bad:?}");
        }
        for good in ["a", "0", "scout-07", &"x".repeat(63)] {
            assert_eq!(AgentName::new(good).unwrap().as_str(), good);
        }
        assert!(TaskId::new("T-112.a_b").is_ok());
    }

    #[test]
    fn derived_ids_come_out_the_same_and_keep_their_parts_apart() {
        assert_eq!(MessageId::derived(&["a", "b"]), MessageId::derived(&["a", "b"]));
        assert_ne!(MessageId::derived(&["ab", "c"]), MessageId::derived(&["a", "bc"]));
    }
}
