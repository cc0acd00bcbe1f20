//! What a history comes to: a pure fold over its records, as large as one turn.

use std::collections::BTreeSet;

use posthouse_shared::generation::Generation;
use posthouse_shared::task::Claim;
use serde::{Deserialize, Serialize};

use super::record::{Begin, Disposition, End, InputKey, Record, TaskEnd};

/// How often a held task was tried in vain.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Tries {
    /// The claim.
    pub claim: Claim,
    /// Turns over it that were interrupted and count.
    pub interrupted: u32,
}

/// The state that a history's records give.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Fold {
    /// Number of the last turn; 0 before the first.
    pub turn: u64,
    /// The turn that has begun and not ended.
    pub begun: Option<Begin>,
    /// The last turn that has ended.
    pub last: Option<End>,
    /// Inputs whose last turn was interrupted or has not ended: they come again.
    #[serde(default)]
    pub open: BTreeSet<InputKey>,
    /// The last lifecycle command that was applied.
    pub commanded: Generation,
    /// Tries of the task that is held.
    pub tries: Option<Tries>,
}

impl Fold {
    /// Takes one more record in.
    pub fn apply(&mut self, record: Record) {
        match record {
            Record::Input(input) => {
                self.open.insert(input.key());
            }
            Record::Turn(begin) => {
                self.turn = self.turn.max(begin.turn);
                self.begun = Some(begin);
            }
            Record::TurnEnd(end) => self.end(*end),
            Record::Command { generation, .. } => self.commanded = self.commanded.max(generation),
        }
    }

    fn end(&mut self, end: End) {
        self.turn = self.turn.max(end.turn);
        self.begun = None;
        if let Some(shutdown) = &end.shutdown {
            self.commanded = self.commanded.max(shutdown.command);
        }
        match end.disposition {
            Disposition::Done | Disposition::Failed { .. } => {
                for input in &end.inputs {
                    self.open.remove(&input.key);
                }
            }
            Disposition::Released { .. } => {}
        }
        self.tries = match &end.task {
            Some(TaskEnd::Kept { claim }) => {
                let before = self.tries.take().filter(|tries| tries.claim == *claim);
                let counts = matches!(end.disposition, Disposition::Released { counts: true, .. });
                let interrupted = before.map_or(0, |tries| tries.interrupted) + u32::from(counts);
                Some(Tries { claim: claim.clone(), interrupted })
            }
            Some(TaskEnd::Completed { .. } | TaskEnd::GaveUp { .. }) => None,
            None => self.tries.take(),
        };
        self.last = Some(end);
    }
}
