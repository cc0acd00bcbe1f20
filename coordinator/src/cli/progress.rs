//! One line on stderr that tells what is waited for. Quiet where stderr is not a terminal: nothing moves there.

use std::io::Write;

use super::terminal::Terminal;

/// The line. Gone when dropped.
#[derive(Debug)]
pub struct Progress {
    active: bool,
    width: usize,
    shown: String,
}

impl Progress {
    /// Says nothing yet.
    pub fn new(terminal: &Terminal) -> Self {
        let width = terminal.size.map_or(80, |(columns, _)| columns);
        Self { active: terminal.stderr, width, shown: String::new() }
    }

    /// Replaces the line.
    pub fn say(&mut self, text: &str) {
        let line: String = text.replace('\n', " ").chars().take(self.width.saturating_sub(1)).collect();
        if self.active && line != self.shown {
            let _only_comfort = write!(std::io::stderr(), "\r\u{1b}[K{line}");
            self.shown = line;
        }
    }

    /// Takes the line away, before something else is printed.
    pub fn clear(&mut self) {
        if self.active && !self.shown.is_empty() {
            let _only_comfort = write!(std::io::stderr(), "\r\u{1b}[K");
            self.shown.clear();
        }
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        self.clear();
    }
}
