//! Aligned columns. Never cut when piped; on a terminal the one flexible column gives way.

use super::terminal::{Paint, Terminal};

/// Between two columns.
const GAP: usize = 2;
/// A flexible column never gets narrower.
const NARROWEST: usize = 12;

/// One field.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Cell {
    text: String,
    paint: Option<Paint>,
}

impl Cell {
    /// In a colour.
    pub fn painted(text: impl Into<String>, paint: Option<Paint>) -> Self {
        Self { text: text.into().replace(['\n', '\r', '\t'], " "), paint }
    }
}

impl<T: Into<String>> From<T> for Cell {
    fn from(text: T) -> Self {
        Self::painted(text, None)
    }
}

/// Rows below titles.
#[derive(Debug, Clone)]
pub struct Table {
    titles: Vec<&'static str>,
    flexible: Option<usize>,
    rows: Vec<Vec<Cell>>,
}

impl Table {
    /// With these titles; the one named `flexible` is cut where the terminal is too narrow.
    pub fn new(titles: Vec<&'static str>, flexible: &str) -> Self {
        let flexible = titles.iter().position(|title| *title == flexible);
        Self { titles, flexible, rows: Vec::new() }
    }

    /// Adds a row.
    pub fn row(&mut self, cells: Vec<Cell>) {
        self.rows.push(cells);
    }

    /// As text, one line a row.
    pub fn render(&self, terminal: &Terminal) -> String {
        let widths = self.widths(terminal);
        let titles: Vec<Cell> =
            self.titles.iter().map(|title| Cell::painted(*title, Some(Paint::Faint))).collect();
        let mut out = String::new();
        for row in std::iter::once(&titles).chain(&self.rows) {
            let mut line = String::new();
            let mut pending = 0;
            for (cell, width) in row.iter().zip(&widths) {
                let text = cut(&cell.text, *width, terminal);
                let used = text.chars().count();
                if used > 0 {
                    line.push_str(&" ".repeat(pending));
                    line.push_str(&terminal.paint(&text, cell.paint));
                    pending = 0;
                }
                pending += width.saturating_sub(used) + GAP;
            }
            out.push_str(&line);
            out.push('\n');
        }
        out
    }

    fn widths(&self, terminal: &Terminal) -> Vec<usize> {
        let mut widths: Vec<usize> = self.titles.iter().map(|title| title.chars().count()).collect();
        for row in &self.rows {
            for (width, cell) in widths.iter_mut().zip(row) {
                *width = (*width).max(cell.text.chars().count());
            }
        }
        if let (Some((columns, _)), Some(flexible)) = (terminal.size, self.flexible) {
            let gaps = GAP * widths.len().saturating_sub(1);
            let whole: usize = widths.iter().sum::<usize>() + gaps;
            if let Some(width) = widths.get_mut(flexible) {
                let over = whole.saturating_sub(columns);
                *width = width.saturating_sub(over).max(NARROWEST.min(*width));
            }
        }
        widths
    }
}

fn cut(text: &str, width: usize, terminal: &Terminal) -> String {
    if text.chars().count() <= width {
        return text.to_owned();
    }
    let mark = terminal.glyph("…", "~");
    let mut kept: String = text.chars().take(width.saturating_sub(1)).collect();
    kept.push_str(mark);
    kept
}

#[cfg(test)]
mod tests {
    use super::*;

    fn table() -> Table {
        let mut table = Table::new(vec!["NAME", "DOING", "TRY"], "DOING");
        table.row(vec!["scout-07".into(), "T-112 permission: Bash".into(), "1".into()]);
        table.row(vec!["a".into(), "".into(), "2".into()]);
        table
    }

    #[test]
    fn columns_are_aligned_and_a_pipe_gets_all_of_them() {
        let text = table().render(&Terminal::piped());
        assert_eq!(
            text,
            "NAME      DOING                   TRY\n\
             scout-07  T-112 permission: Bash  1\n\
             a                                 2\n"
        );
    }

    #[test]
    fn a_narrow_terminal_cuts_the_flexible_column() {
        let terminal = Terminal { stdout: true, size: Some((28, 40)), unicode: true, ..Terminal::piped() };
        let text = table().render(&terminal);
        assert!(text.lines().all(|line| line.chars().count() <= 28), "{text}");
        assert!(text.contains("T-112 permi…") || text.contains('…'), "{text}");
    }
}
