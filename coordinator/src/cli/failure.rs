//! How a command ends that does not end well: as text on stderr, or as one JSON document on stdout.

use std::fmt::Write;

use posthouse_shared::refusal::{FailureKind, Refusal};
use posthouse_shared::wire::Failure;

use super::terminal::{Paint, Terminal};
use crate::team_file::{Diagnostics, TeamFileError};

/// Why a command ended early.
#[derive(Debug, thiserror::Error)]
pub enum Ended {
    /// It was refused, or failed.
    #[error(transparent)]
    Refused(Box<Refusal>),
    /// The team file has errors.
    #[error("{0}")]
    TeamFile(Box<Diagnostics>),
    /// Nobody takes what is printed.
    #[error("print")]
    Output(#[source] std::io::Error),
}

impl From<Refusal> for Ended {
    fn from(refusal: Refusal) -> Self {
        Self::Refused(Box::new(refusal))
    }
}

impl From<TeamFileError> for Ended {
    fn from(error: TeamFileError) -> Self {
        match error {
            TeamFileError::Wrong(diagnostics) => Self::TeamFile(Box::new(diagnostics)),
            TeamFileError::Read { .. } => Refusal::from(&error).into(),
        }
    }
}

impl Ended {
    /// The exit code.
    pub fn exit_code(&self) -> u8 {
        match self {
            Self::Refused(refusal) => refusal.kind.exit_code(),
            Self::TeamFile(diagnostics) => diagnostics.code().kind().exit_code(),
            Self::Output(_) => FailureKind::Failed.exit_code(),
        }
    }

    /// As one JSON document.
    pub fn to_json(&self) -> String {
        let error = match self {
            Self::Refused(refusal) => refusal.as_ref().clone(),
            Self::TeamFile(diagnostics) => diagnostics.refusal(),
            Self::Output(error) => {
                Refusal::new(posthouse_shared::codes::Code::Internal, "print").because(error)
            }
        };
        serde_json::to_string(&Failure { v: 1, error }).unwrap_or_default()
    }

    /// As text; nothing where the reader of a pipe has simply gone.
    pub fn to_text(&self, terminal: &Terminal) -> String {
        match self {
            Self::Refused(refusal) => text(refusal, terminal),
            Self::TeamFile(diagnostics) => diagnostics.render(terminal.unicode),
            Self::Output(error) if error.kind() == std::io::ErrorKind::BrokenPipe => String::new(),
            Self::Output(error) => format!("error: print: {error}\n"),
        }
    }
}

/// A refusal as people read it.
pub fn text(refusal: &Refusal, terminal: &Terminal) -> String {
    let mut out = String::new();
    let error = terminal.paint(&format!("error[{}]", refusal.code), Some(Paint::Bad));
    line(&mut out, &format!("{error}: {}", terminal.safe(&refusal.message)));
    if let Some((last, others)) = refusal.cause.split_last() {
        for cause in others {
            line(&mut out, &format!("  {} {}", terminal.glyph("├─▶", "|->"), terminal.safe(cause)));
        }
        line(&mut out, &format!("  {} {}", terminal.glyph("╰─▶", "`->"), terminal.safe(last)));
    }
    if !refusal.closest.is_empty() {
        let names: Vec<String> = refusal
            .closest
            .iter()
            .map(|one| match &one.state {
                Some(state) => format!("{} ({state})", one.name),
                None => one.name.clone(),
            })
            .collect();
        line(&mut out, &format!("  closest: {}", names.join(", ")));
    }
    if let Some(effect) = &refusal.effect {
        line(&mut out, &format!("  {}", terminal.safe(effect)));
    }
    if let Some(ms) = refusal.retry_after_ms {
        line(&mut out, &format!("  try again in {}", super::text::age(ms)));
    }
    if !refusal.next.is_empty() {
        line(&mut out, &format!("help: {}", refusal.next.join("        ")));
    }
    out
}

fn line(out: &mut String, text: &str) {
    let _strings_take_all = writeln!(out, "{text}");
}
