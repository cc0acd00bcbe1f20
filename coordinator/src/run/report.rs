//! What `posthouse run` prints at its end: the outcome, the board, the results that nothing else waits on.

use std::fmt::Write as _;

use posthouse_shared::generation::Generation;
use posthouse_shared::name::{AgentName, TaskId, TeamName};
use posthouse_shared::task::{Task, TaskStatus};
use posthouse_shared::wire::AsOf;
use posthouse_shared::wire::replies::MessageCounts;
use serde::Serialize;

/// How a run ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Outcome {
    /// Every task is completed or cancelled and all are idle.
    Completed,
    /// Something failed or can no longer move.
    Failed,
    /// A signal came.
    Interrupted,
}

impl Outcome {
    const fn as_str(self) -> &'static str {
        match self {
            Self::Completed => "completed",
            Self::Failed => "failed",
            Self::Interrupted => "interrupted",
        }
    }
}

/// One task in the report.
#[derive(Debug, Clone, Serialize)]
pub struct TaskLine {
    id: TaskId,
    status: TaskStatus,
    owner: Option<AgentName>,
    generation: Option<Generation>,
    result: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    hold: Option<String>,
    #[serde(skip)]
    ends: bool,
}

/// A teammate that has failed.
#[derive(Debug, Clone, Serialize)]
pub struct FailureLine {
    /// Who.
    pub agent: AgentName,
    /// What, one line.
    pub what: String,
    /// The end of its log.
    pub last_lines: Vec<String>,
}

/// The report.
#[derive(Debug, Clone, Serialize)]
pub struct Report {
    /// Always 1.
    pub v: u8,
    /// How far the state was.
    pub as_of: AsOf,
    /// The team.
    pub team: TeamName,
    /// How it ended.
    pub outcome: Outcome,
    /// Why it did not complete.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub why: Option<String>,
    /// Who failed, and the last that was heard of them.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub failures: Vec<FailureLine>,
    /// The board, in order.
    pub tasks: Vec<TaskLine>,
    /// The mail in numbers.
    pub messages: MessageCounts,
    /// Commands that help.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub next: Vec<String>,
}

impl Report {
    /// From what the coordinator says.
    pub fn new(
        team: TeamName,
        as_of: AsOf,
        outcome: Outcome,
        tasks: Vec<Task>,
        messages: MessageCounts,
    ) -> Self {
        let lines = tasks.into_iter().map(|task| TaskLine {
            ends: task.blocks.is_empty(),
            id: task.id,
            status: task.status,
            owner: task.owner,
            generation: task.generation,
            result: task.result,
            hold: task.hold,
        });
        Self {
            v: 1,
            as_of,
            team,
            outcome,
            why: None,
            failures: Vec::new(),
            tasks: lines.collect(),
            messages,
            next: Vec::new(),
        }
    }

    /// For people. The results that no other task waits on come whole; the others are on the board.
    pub fn text(&self) -> String {
        let mut out = String::new();
        for task in self.tasks.iter().filter(|task| task.ends) {
            if let Some(result) = &task.result {
                let _infallible = writeln!(out, "{}\n", result.trim_end());
            }
        }
        let width = self.tasks.iter().map(|task| task.id.as_str().len()).max().unwrap_or(0).max(4);
        if !self.tasks.is_empty() {
            let _infallible = writeln!(out, "{:width$}  {:11}  OWNER", "TASK", "STATUS");
        }
        for task in &self.tasks {
            let owner = task.owner.as_ref().map_or("-", AgentName::as_str);
            let hold = task.hold.as_ref().map(|hold| format!("  on hold: {hold}")).unwrap_or_default();
            let _infallible = writeln!(out, "{:width$}  {:11}  {owner}{hold}", task.id, task.status.as_str());
        }
        let MessageCounts { accepted, done, quarantined, .. } = self.messages;
        let _infallible = writeln!(
            out,
            "\n{}: {}, {} tasks, {accepted} messages accepted, {done} done, {quarantined} quarantined",
            self.team,
            self.outcome.as_str(),
            self.tasks.len(),
        );
        if let Some(why) = &self.why {
            let _infallible = writeln!(out, "why: {why}");
        }
        for failure in &self.failures {
            let _infallible = writeln!(out, "\n{} has failed: {}", failure.agent, failure.what);
            for line in &failure.last_lines {
                let _infallible = writeln!(out, "  | {line}");
            }
        }
        for next in &self.next {
            let _infallible = writeln!(out, "next: {next}");
        }
        out
    }

    /// The exit code that goes with the outcome.
    pub const fn exit_code(&self) -> u8 {
        match self.outcome {
            Outcome::Completed => 0,
            Outcome::Failed => 1,
            Outcome::Interrupted => 130,
        }
    }
}
