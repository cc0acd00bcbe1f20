//! What must be reached, and whether it was.

use super::median;

/// How a figure is held against its target.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Better {
    /// Reached at 0.95 of the target or more.
    More,
    /// Reached at the target over 0.95 or less.
    Less,
}

/// One figure of a row.
#[derive(Debug, Clone)]
pub struct Figure {
    /// What it is of: `raw`, `flushes`, `of 64 threads` ...
    pub unit: &'static str,
    /// What was measured, round by round.
    pub values: Vec<f64>,
    /// What must be reached; infinite where it is only told.
    pub target: f64,
    /// In which direction.
    pub better: Better,
}

impl Figure {
    /// The median.
    pub fn value(&self) -> Option<f64> {
        median(self.values.clone())
    }

    /// Whether it was reached; nothing where it could not be measured.
    pub fn reached(&self) -> Option<bool> {
        let value = self.value()?;
        Some(match self.better {
            Better::More => value >= self.target * 0.95,
            Better::Less => value <= self.target / 0.95,
        })
    }
}

/// One row of the table.
#[derive(Debug, Clone)]
pub struct Row {
    /// The work.
    pub work: String,
    /// Messages a second, round by round; empty where there is no rate.
    pub rates: Vec<f64>,
    /// What is held against targets.
    pub figures: Vec<Figure>,
}

/// Prints the table and answers whether all was reached.
pub fn print(rows: &[Row]) -> bool {
    println!("{:<52} {:>10}  measured (must reach)", "work, 1 KiB messages", "per s");
    let mut all = true;
    for row in rows {
        let rate = median(row.rates.clone()).map_or(String::new(), |rate| format!("{rate:.0}"));
        let figures: Vec<String> = row
            .figures
            .iter()
            .map(|figure| {
                let sign = if figure.better == Better::More { "≥" } else { "≤" };
                let target = if figure.target.is_finite() {
                    format!("({sign} {} {})", figure.target, figure.unit)
                } else {
                    format!("({})", figure.unit)
                };
                match (figure.value(), figure.reached()) {
                    (Some(value), Some(true)) => format!("{value:.2} {target} ok"),
                    (Some(value), _) => {
                        all = false;
                        format!("{value:.2} {target} SHORT")
                    }
                    (None, _) => format!("not measured {target}"),
                }
            })
            .collect();
        println!("{:<52} {rate:>10}  {}", row.work, figures.join("; "));
    }
    all
}
