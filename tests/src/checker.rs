//! Judges a recorded history: which of the promises P1 to P6 it breaks. Pure: it knows nothing of how the history came
//! about. It expects one that is whole: everything has healed and settled, and every host's word is in it.
//!
//! Records of one host stand in that host's order; nothing is concluded from the order of two hosts' records, since
//! their clocks are their own.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use posthouse_shared::generation::Generation;
use serde::{Deserialize, Serialize};

/// One line of a history.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Record {
    /// Who saw it.
    pub host: String,
    /// What.
    #[serde(flatten)]
    pub fact: Fact,
}

/// What happened.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "fact", rename_all = "snake_case")]
#[expect(missing_docs, reason = "names of the design")]
pub enum Fact {
    /// The sender was told that it is on disk.
    Accept { id: String, from: String, to: String },
    /// It entered an agent's history.
    Inject { id: String, agent: String, delivery: u32, late: bool },
    /// A turn that carried it ended well.
    Done { id: String, agent: String },
    /// It ended otherwise, and its sender or a person was told.
    Told { id: String },
    /// A task was given to an agent.
    Claim { task: String, agent: String, generation: Generation },
    /// A completion was taken.
    Complete { task: String, agent: String, generation: Generation },
}

/// A promise that was broken, and by what.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
#[expect(missing_docs, reason = "names of the design")]
pub enum Breach {
    /// P1: accepted, and in nobody's history.
    Lost { id: String },
    /// P2: twice in a history under one delivery, or in the histories of two agents.
    InjectedTwice { id: String, agent: String },
    /// P3: of one sender to one recipient, claimed in another order than sent.
    OutOfOrder { earlier: String, later: String },
    /// P4: one grant of a claim for two agents.
    TwoWinners { task: String, generation: Generation },
    /// P4: completed twice.
    CompletedTwice { task: String },
    /// P4: completed under a claim that its agent did not have, or that a newer one had replaced.
    CompletedByOther { task: String, agent: String },
    /// P5: *done* is said of what its agent has not seen.
    DoneUnseen { id: String },
    /// P6: it entered a history and nothing ever came of it: no *done*, no word to anybody.
    DroppedSilently { id: String },
    /// P8: it entered a history and nobody was told that it was accepted.
    Foreign { id: String },
}

impl fmt::Display for Breach {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Lost { id } => write!(f, "P1: {id} was accepted and is lost"),
            Self::InjectedTwice { id, agent } => write!(f, "P2: {id} was injected twice, into {agent} last"),
            Self::OutOfOrder { earlier, later } => write!(f, "P3: {later} was claimed before {earlier}"),
            Self::TwoWinners { task, generation } => write!(f, "P4: {task} has two winners at {generation}"),
            Self::CompletedTwice { task } => write!(f, "P4: {task} was completed twice"),
            Self::CompletedByOther { task, agent } => {
                write!(f, "P4: {agent} completed {task} without the claim")
            }
            Self::DoneUnseen { id } => write!(f, "P5: {id} is done and was never seen"),
            Self::DroppedSilently { id } => write!(f, "P6: {id} was injected and nothing came of it"),
            Self::Foreign { id } => write!(f, "P8: {id} was injected and never accepted"),
        }
    }
}

/// All breaches, each once.
pub fn check(history: &[Record]) -> BTreeSet<Breach> {
    let mut breaches = mail(history);
    breaches.extend(tasks(history));
    breaches
}

fn mail(history: &[Record]) -> BTreeSet<Breach> {
    let mut breaches = BTreeSet::new();
    // Position in its lane, by the order in which its sender was answered.
    let mut sent: BTreeMap<&str, (&str, &str, usize)> = BTreeMap::new();
    let mut lanes: BTreeMap<(&str, &str), usize> = BTreeMap::new();
    for record in history {
        if let Fact::Accept { id, from, to } = &record.fact {
            let next = lanes.entry((from, to)).or_default();
            // The same id again is the first answer again.
            sent.entry(id).or_insert_with(|| {
                *next += 1;
                (from, to, *next)
            });
        }
    }
    let mut seen: BTreeMap<&str, &str> = BTreeMap::new();
    let mut keys: BTreeSet<(&str, u32)> = BTreeSet::new();
    let mut newest: BTreeMap<(&str, &str), (usize, &str)> = BTreeMap::new();
    let mut ended: BTreeSet<&str> = BTreeSet::new();
    let mut done: BTreeSet<(&str, &str)> = BTreeSet::new();
    for record in history {
        match &record.fact {
            Fact::Inject { id, agent, delivery, late } => {
                let elsewhere = seen.insert(id, agent).is_some_and(|before| before != agent);
                if !keys.insert((id, *delivery)) || elsewhere {
                    breaches.insert(Breach::InjectedTwice { id: id.clone(), agent: agent.clone() });
                }
                let Some(&(from, to, position)) = sent.get(id.as_str()) else {
                    breaches.insert(Breach::Foreign { id: id.clone() });
                    continue;
                };
                // What a person redelivers and what comes late stands outside the order.
                if *delivery > 0 || *late {
                    continue;
                }
                let (last, last_id) = newest.entry((from, to)).or_insert((position, id));
                if position < *last {
                    let (earlier, later) = (id.clone(), (*last_id).to_owned());
                    breaches.insert(Breach::OutOfOrder { earlier, later });
                } else {
                    (*last, *last_id) = (position, id);
                }
            }
            Fact::Done { id, agent } => {
                ended.insert(id);
                done.insert((id, agent));
            }
            Fact::Told { id } => {
                ended.insert(id);
            }
            Fact::Accept { .. } | Fact::Claim { .. } | Fact::Complete { .. } => {}
        }
    }
    for id in sent.keys() {
        match (seen.contains_key(id), ended.contains(id)) {
            (true, true) | (false, true) => {}
            (true, false) => drop(breaches.insert(Breach::DroppedSilently { id: (*id).to_owned() })),
            (false, false) => drop(breaches.insert(Breach::Lost { id: (*id).to_owned() })),
        }
    }
    for (id, agent) in done {
        if seen.get(id) != Some(&agent) {
            breaches.insert(Breach::DoneUnseen { id: id.to_owned() });
        }
    }
    breaches
}

fn tasks(history: &[Record]) -> BTreeSet<Breach> {
    let mut breaches = BTreeSet::new();
    let mut winners: BTreeMap<(&str, Generation), &str> = BTreeMap::new();
    for record in history {
        if let Fact::Claim { task, agent, generation } = &record.fact
            && winners.insert((task, *generation), agent).is_some_and(|before| before != agent)
        {
            breaches.insert(Breach::TwoWinners { task: task.clone(), generation: *generation });
        }
    }
    let mut completed: BTreeSet<&str> = BTreeSet::new();
    for record in history {
        if let Fact::Complete { task, agent, generation } = &record.fact {
            if !completed.insert(task) {
                breaches.insert(Breach::CompletedTwice { task: task.clone() });
            }
            let last = winners.keys().filter(|(other, _)| other == task).map(|(_, at)| *at).max();
            let holds = winners.get(&(task.as_str(), *generation)) == Some(&agent.as_str());
            if !holds || last != Some(*generation) {
                breaches.insert(Breach::CompletedByOther { task: task.clone(), agent: agent.clone() });
            }
        }
    }
    breaches
}
