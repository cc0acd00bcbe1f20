//! What teammates last said of themselves. Not durable: after a restart it fills again from their reports;
//! what is decided stands in the journal. Every change wakes those who wait for a fact.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};

use posthouse_node::port::Report;
use posthouse_shared::clock::Stamp;
use posthouse_shared::name::AgentId;
use tokio::sync::watch;

/// One teammate's last word.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Seen {
    /// What it said.
    pub report: Report,
    /// Since when its state is that.
    pub since: Stamp,
    /// When it last said anything.
    pub last: Stamp,
}

/// The last words of all. Cheap to clone; clones share it.
#[derive(Debug, Clone)]
pub struct Live(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    seen: Mutex<BTreeMap<AgentId, Seen>>,
    changed: watch::Sender<u64>,
}

impl Default for Live {
    fn default() -> Self {
        Self(Arc::new(Inner { seen: Mutex::default(), changed: watch::Sender::new(0) }))
    }
}

impl Live {
    /// Takes a report; answers whether the state, turn or attempt is another than before. The last word of an
    /// earlier holder of the name, or from an earlier home, is dropped.
    pub fn report(&self, agent: &AgentId, report: Report, now: Stamp) -> bool {
        let mut seen = self.0.seen.lock().unwrap_or_else(PoisonError::into_inner);
        let before = seen.get(agent);
        if before.is_some_and(|before| before.report.generation > report.generation) {
            return false;
        }
        let key = |report: &Report| (report.generation, report.state, report.turn, report.attempt);
        let same = before.is_some_and(|before| key(&before.report) == key(&report));
        let since = before
            .filter(|before| {
                key(&before.report).0 == report.generation && before.report.state == report.state
            })
            .map_or(now, |before| before.since);
        seen.insert(agent.clone(), Seen { report, since, last: now });
        drop(seen);
        self.bump();
        !same
    }

    /// Forgets a teammate that has ended.
    pub fn forget(&self, agent: &AgentId) {
        self.0.seen.lock().unwrap_or_else(PoisonError::into_inner).remove(agent);
        self.bump();
    }

    /// One teammate's last word.
    pub fn get(&self, agent: &AgentId) -> Option<Seen> {
        self.0.seen.lock().unwrap_or_else(PoisonError::into_inner).get(agent).cloned()
    }

    /// Wakes those who wait: something that they may look at has changed.
    pub fn bump(&self) {
        self.0.changed.send_modify(|count| *count += 1);
    }

    /// Changes with every [`Live::bump`].
    pub fn changes(&self) -> watch::Receiver<u64> {
        self.0.changed.subscribe()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use posthouse_shared::generation::Generation;
    use posthouse_shared::team::AgentState;

    #[test]
    fn a_state_keeps_its_beginning_until_it_changes() {
        let live = Live::default();
        let agent = AgentId::try_from("a@main".to_owned()).unwrap();
        let report = |state, turn| said(1, state, turn);
        let at = Stamp::from_nanos;
        assert!(live.report(&agent, report(AgentState::Running, 1), at(10)));
        assert!(!live.report(&agent, report(AgentState::Running, 1), at(20)));
        let seen = live.get(&agent).unwrap();
        assert_eq!((seen.since, seen.last), (at(10), at(20)));
        assert!(live.report(&agent, report(AgentState::Idle, 1), at(30)));
        assert_eq!(live.get(&agent).unwrap().since, at(30));
    }

    #[test]
    fn the_last_word_of_an_earlier_holder_of_the_name_is_dropped() {
        let live = Live::default();
        let agent = AgentId::try_from("a@main".to_owned()).unwrap();
        let at = Stamp::from_nanos;
        assert!(live.report(&agent, said(1, AgentState::Idle, 7), at(10)));
        assert!(live.report(&agent, said(2, AgentState::Idle, 0), at(20)));
        assert!(!live.report(&agent, said(1, AgentState::Shutdown, 8), at(30)));
        let seen = live.get(&agent).unwrap();
        assert_eq!((seen.report.state, seen.since), (AgentState::Idle, at(20)));
    }

    fn said(index: u64, state: AgentState, turn: u64) -> Report {
        let generation = Generation::new(1, index);
        Report { generation, state, turn, attempt: 1, task: None, doing: String::new() }
    }
}
