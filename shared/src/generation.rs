//! Generations: the (term, index) of the journal entry that granted a home, a claim or a name. They only
//! rise, and no two grants share one, forks of the journal included.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

/// The journal entry that granted something, written `term.index`, compared as numbers.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Generation {
    /// The leader's term.
    pub term: u64,
    /// The entry's own index.
    pub index: u64,
}

/// An agent's or a team's first generation: a later one of the same name has another birth.
pub type Birth = Generation;

/// The text is not `term.index`.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("generation {0:?} is not written term.index, as in 1.42")]
pub struct GenerationError(String);

impl Generation {
    /// The generation of one journal entry.
    pub const fn new(term: u64, index: u64) -> Self {
        Self { term, index }
    }
}

impl fmt::Display for Generation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(&format!("{}.{}", self.term, self.index))
    }
}

impl FromStr for Generation {
    type Err = GenerationError;
    fn from_str(text: &str) -> Result<Self, GenerationError> {
        let number = |part: &str| {
            let plain = !part.is_empty() && part.bytes().all(|b| b.is_ascii_digit());
            plain.then(|| part.parse::<u64>().ok()).flatten()
        };
        text.split_once('.')
            .and_then(|(term, index)| Some(Self { term: number(term)?, index: number(index)? }))
            .ok_or_else(|| GenerationError(text.to_owned()))
    }
}

impl TryFrom<String> for Generation {
    type Error = GenerationError;
    fn try_from(text: String) -> Result<Self, GenerationError> {
        text.parse()
    }
}

impl From<Generation> for String {
    fn from(generation: Generation) -> String {
        generation.to_string()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn generations_compare_as_numbers() {
        let parse = |text: &str| text.parse::<Generation>().unwrap();
        assert!(parse("2.9") < parse("2.10"));
        assert!(parse("2.999") < parse("10.1"));
        assert_eq!(parse("3.7").to_string(), "3.7");
        for bad in ["", "3", "3.", ".7", "a.b", "1.2.3", "-1.2", "+1.2"] {
            assert!(bad.parse::<Generation>().is_err(), "{bad:?}");
        }
    }
}
