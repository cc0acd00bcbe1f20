//! What is wrong with a team file, shown at its place in the file.

use std::fmt::{self, Write};
use std::ops::Range;

use posthouse_shared::codes::Code;
use posthouse_shared::refusal::Refusal;

/// One thing that is wrong.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Diagnostic {
    /// `BadTeamFile`, or `NotInThisBuild` for what a later build does.
    pub code: Code,
    /// What is wrong.
    pub message: String,
    /// Where, in bytes of the file.
    pub span: Range<usize>,
    /// What to say at the caret.
    pub label: String,
    /// What to know beside it, the names that there are for instance.
    pub note: Option<String>,
}

/// All that is wrong with one file, in the file's order.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Diagnostics {
    /// The file as it was named.
    pub file: String,
    /// Its text.
    pub source: String,
    /// What is wrong; never empty.
    pub list: Vec<Diagnostic>,
}

/// Glyphs of a snippet.
struct Glyphs {
    corner: &'static str,
    bar: &'static str,
    end: &'static str,
}

const UNICODE: Glyphs = Glyphs { corner: "╭─", bar: "│", end: "╰─" };
const ASCII: Glyphs = Glyphs { corner: "-->", bar: "|", end: "=" };

impl Diagnostics {
    /// Line and column of a byte, both from 1, counted in characters.
    fn place(&self, at: usize) -> (usize, usize) {
        let before = self.source.get(..at).unwrap_or(&self.source);
        let line = before.matches('\n').count() + 1;
        let column = before.rsplit('\n').next().unwrap_or("").chars().count() + 1;
        (line, column)
    }

    /// The code that the whole fails with: that of a broken file where one thing is broken.
    pub fn code(&self) -> Code {
        let all_later = self.list.iter().all(|one| one.code == Code::NotInThisBuild);
        if all_later { Code::NotInThisBuild } else { Code::BadTeamFile }
    }

    /// As one refusal: the first as its message, all of them as causes with their places.
    pub fn refusal(&self) -> Refusal {
        let mut refusal = Refusal::new(self.code(), self.headline());
        for one in &self.list {
            let (line, column) = self.place(one.span.start);
            let mut cause = format!("{}:{line}:{column}: {}", self.file, one.message);
            for more in [Some(&one.label), one.note.as_ref()].into_iter().flatten() {
                if !more.is_empty() {
                    let _strings_take_all = write!(cause, "; {more}");
                }
            }
            refusal = refusal.cause(cause);
        }
        refusal.effect("nothing was started").next(format!("posthouse team check {}", self.file))
    }

    fn headline(&self) -> String {
        match self.list.as_slice() {
            [only] => format!("team file {}: {}", self.file, only.message),
            all => format!("team file {} has {} errors", self.file, all.len()),
        }
    }

    /// As text with snippets, one block an error. `unicode` chooses the glyphs.
    pub fn render(&self, unicode: bool) -> String {
        let glyphs = if unicode { UNICODE } else { ASCII };
        let mut out = String::new();
        for one in &self.list {
            let _strings_take_all = self.block(&mut out, one, &glyphs);
        }
        let _strings_take_all = writeln!(out, "help: posthouse team check {}", self.file);
        out
    }

    fn block(&self, out: &mut String, one: &Diagnostic, glyphs: &Glyphs) -> fmt::Result {
        let Glyphs { corner, bar, end } = glyphs;
        let (line, column) = self.place(one.span.start);
        let number = line.to_string();
        let indent = " ".repeat(number.len() + 1);
        writeln!(out, "error[{}]: team file {}: {}", one.code, self.file, one.message)?;
        writeln!(out, "{indent}{corner} {}:{line}:{column}", self.file)?;
        let text = self.source.lines().nth(line.saturating_sub(1)).unwrap_or("");
        writeln!(out, "{number} {bar} {}", text.replace('\t', " "))?;
        let marked = self.source.get(one.span.clone()).unwrap_or("");
        let width = marked.lines().next().unwrap_or("").chars().count().max(1);
        let carets = "^".repeat(width.min(text.chars().count().max(1)));
        let space = " ".repeat(column.saturating_sub(1));
        writeln!(out, "{}", format!("{indent}{bar} {space}{carets} {}", one.label).trim_end())?;
        match &one.note {
            Some(note) => writeln!(out, "{indent}{end} {note}")?,
            None => writeln!(out, "{indent}{end}")?,
        }
        Ok(())
    }
}

impl fmt::Display for Diagnostics {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.headline())
    }
}
