//! What the streams are: terminals or not, how wide, with colour and with more than ASCII or without. Asked
//! once; everything that prints gets it as an argument.

use std::io::IsTerminal;

use crate::config::Environment;

/// The streams of a command.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Terminal {
    /// Whether somebody types.
    pub stdin: bool,
    /// Whether somebody reads stdout.
    pub stdout: bool,
    /// Whether somebody reads stderr.
    pub stderr: bool,
    /// Columns and rows of stdout, where it is a terminal.
    pub size: Option<(usize, usize)>,
    /// Whether colours may be used.
    pub colour: bool,
    /// Whether glyphs beyond ASCII may be used.
    pub unicode: bool,
}

/// A colour with a meaning.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Paint {
    /// Goes on.
    Good,
    /// Waits for a person.
    Warning,
    /// Went wrong.
    Bad,
    /// Beside the point.
    Faint,
}

impl Terminal {
    /// Of this process.
    pub fn of_process(environment: &Environment) -> Self {
        let stdout = std::io::stdout().is_terminal();
        let size = rustix::termios::tcgetwinsize(std::io::stdout())
            .ok()
            .filter(|size| stdout && size.ws_col > 0 && size.ws_row > 0)
            .map(|size| (usize::from(size.ws_col), usize::from(size.ws_row)));
        Self {
            stdin: std::io::stdin().is_terminal(),
            stdout,
            stderr: std::io::stderr().is_terminal(),
            size,
            colour: stdout && !environment.is_plain(),
            unicode: environment.is_utf8(),
        }
    }

    /// Neither terminal nor colour nor glyphs: what a pipe gets.
    pub fn piped() -> Self {
        Self::default()
    }

    /// A text in a colour, where colours may be used.
    pub fn paint(&self, text: &str, paint: Option<Paint>) -> String {
        let code = match paint {
            Some(Paint::Good) => "32",
            Some(Paint::Warning) => "33",
            Some(Paint::Bad) => "31",
            Some(Paint::Faint) => "2",
            None => "",
        };
        if self.colour && !code.is_empty() {
            format!("\u{1b}[{code}m{text}\u{1b}[0m")
        } else {
            text.to_owned()
        }
    }

    /// The glyph, or what stands for it in ASCII.
    pub const fn glyph(&self, glyph: &'static str, ascii: &'static str) -> &'static str {
        if self.unicode { glyph } else { ascii }
    }

    /// Foreign text (mail, logs, what agents say of themselves) without the control characters that could
    /// move a terminal's cursor or change its title. A pipe gets it as it is.
    pub fn safe(&self, text: &str) -> String {
        if !self.stdout {
            return text.to_owned();
        }
        text.chars().map(|c| if c.is_control() && c != '\n' && c != '\t' { '\u{fffd}' } else { c }).collect()
    }
}
