//! Errors as users see them: a stable code, a kind that fixes the exit code, what was not done, the closest
//! names, and the next command. The same value is printed as text, as JSON, and sent over HTTP.

use serde::{Deserialize, Serialize};

use crate::codes::Code;

/// What sort of failure it is; fixes exit code and HTTP status.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum FailureKind {
    /// Something went wrong: exit 1.
    Failed,
    /// The request makes no sense as written: exit 2.
    Usage,
    /// Understood and refused: exit 3.
    Refused,
    /// The other side cannot be reached: exit 4.
    Unreachable,
    /// The time was over: exit 5.
    TimedOut,
}

impl FailureKind {
    /// The exit code of a command that ends with it.
    pub const fn exit_code(self) -> u8 {
        match self {
            Self::Failed => 1,
            Self::Usage => 2,
            Self::Refused => 3,
            Self::Unreachable => 4,
            Self::TimedOut => 5,
        }
    }
}

/// A name that is near to an unknown one.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Closest {
    /// The name.
    pub name: String,
    /// What it is up to, where that helps to choose.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub state: Option<String>,
}

/// A failure, ready to be shown.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, thiserror::Error)]
#[error("{message}")]
pub struct Refusal {
    /// Stable; `posthouse explain CODE` tells more.
    pub code: Code,
    /// What sort of failure it is.
    pub kind: FailureKind,
    /// What happened, with the names in it.
    pub message: String,
    /// Why, outermost first.
    #[serde(default)]
    pub cause: Vec<String>,
    /// Names that may have been meant.
    #[serde(default)]
    pub closest: Vec<Closest>,
    /// What was, or was not, done.
    #[serde(default)]
    pub effect: Option<String>,
    /// Commands that help.
    #[serde(default)]
    pub next: Vec<String>,
    /// When to try again, where trying again helps.
    #[serde(default)]
    pub retry_after_ms: Option<u64>,
}

impl Refusal {
    /// A failure of this code; its kind comes from the table of codes.
    pub fn new(code: Code, message: impl Into<String>) -> Self {
        Self {
            code,
            kind: code.kind(),
            message: message.into(),
            cause: Vec::new(),
            closest: Vec::new(),
            effect: None,
            next: Vec::new(),
            retry_after_ms: None,
        }
    }

    /// Adds a cause and its own causes.
    #[must_use]
    pub fn because(mut self, error: &(dyn std::error::Error + '_)) -> Self {
        let mut link = Some(error);
        while let Some(error) = link {
            self.cause.push(error.to_string());
            link = error.source();
        }
        self
    }

    /// Adds a cause as text.
    #[must_use]
    pub fn cause(mut self, cause: impl Into<String>) -> Self {
        self.cause.push(cause.into());
        self
    }

    /// Says what was, or was not, done.
    #[must_use]
    pub fn effect(mut self, effect: impl Into<String>) -> Self {
        self.effect = Some(effect.into());
        self
    }

    /// Adds a command that helps.
    #[must_use]
    pub fn next(mut self, command: impl Into<String>) -> Self {
        self.next.push(command.into());
        self
    }

    /// Says when to try again.
    #[must_use]
    pub fn retry_after_ms(mut self, ms: u64) -> Self {
        self.retry_after_ms = Some(ms);
        self
    }

    /// Adds the names among `known` that are nearest to `wanted`, at most three.
    #[must_use]
    pub fn closest_to<'a>(
        mut self,
        wanted: &str,
        known: impl IntoIterator<Item = (&'a str, Option<String>)>,
    ) -> Self {
        self.closest = closest(wanted, known);
        self
    }
}

/// The names nearest to `wanted` by Damerau-Levenshtein distance (at most a third of the longer name, at
/// least 2), nearest first, at most three.
pub fn closest<'a>(wanted: &str, known: impl IntoIterator<Item = (&'a str, Option<String>)>) -> Vec<Closest> {
    let mut near: Vec<(usize, Closest)> = known
        .into_iter()
        .filter_map(|(name, state)| {
            let distance = strsim::damerau_levenshtein(wanted, name);
            let longer = wanted.chars().count().max(name.chars().count());
            let fits = distance <= (longer / 3).max(2) && distance < longer;
            fits.then(|| (distance, Closest { name: name.to_owned(), state }))
        })
        .collect();
    near.sort_by(|a, b| (a.0, &a.1.name).cmp(&(b.0, &b.1.name)));
    near.into_iter().take(3).map(|(_, closest)| closest).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_typo_finds_its_name_and_nonsense_finds_none() {
        let known = || ["scout-07", "scout-01", "lint-03"].map(|name| (name, None));
        let names = |wanted| closest(wanted, known()).into_iter().map(|c| c.name).collect::<Vec<_>>();
        assert_eq!(names("scot-07"), ["scout-07", "scout-01"]);
        assert!(names("zzzzzz").is_empty());
    }
}
