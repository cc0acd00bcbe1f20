//! What happened, for followers: a ring with its own sequence. Publishing never blocks; a follower that is
//! too slow, or comes back too late, is told which events are gone.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, PoisonError};

use posthouse_shared::clock::Stamp;
use posthouse_shared::wire::event::{Event, What};
use tokio::sync::watch;

/// The ring. Cheap to clone; clones share it.
#[derive(Clone, Debug)]
pub struct Events(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    boot: String,
    capacity: usize,
    ring: Mutex<VecDeque<Arc<Event>>>,
    newest: watch::Sender<u64>,
}

impl Events {
    /// An empty ring of one boot, for at most `capacity` events.
    pub fn new(boot: String, capacity: usize) -> Self {
        let capacity = capacity.max(1);
        Self(Arc::new(Inner { boot, capacity, ring: Mutex::default(), newest: watch::Sender::new(0) }))
    }

    /// The boot that counts the sequence.
    pub fn boot(&self) -> &str {
        &self.0.boot
    }

    /// Adds an event.
    pub fn publish(&self, at: Stamp, what: What) {
        let mut ring = self.0.ring.lock().unwrap_or_else(PoisonError::into_inner);
        let seq = *self.0.newest.borrow() + 1;
        if ring.len() >= self.0.capacity {
            ring.pop_front();
        }
        ring.push_back(Arc::new(Event { v: 1, seq, boot: self.0.boot.clone(), at, what }));
        // Still under the lock: who is woken by `seq` finds the event.
        self.0.newest.send_replace(seq);
    }

    /// Sequence of the newest event; changes wake followers.
    pub fn newest(&self) -> watch::Receiver<u64> {
        self.0.newest.subscribe()
    }

    /// Events after `after`, at most `limit`, oldest first. Where some are gone, a `gap` comes first.
    pub fn after(&self, after: u64, limit: usize) -> Vec<Arc<Event>> {
        let ring = self.0.ring.lock().unwrap_or_else(PoisonError::into_inner);
        let newest = *self.0.newest.borrow();
        let Some(oldest) = ring.front() else { return Vec::new() };
        // A sequence of an earlier boot, or from the future: all that is here is new to the follower.
        let after = if after > newest { 0 } else { after };
        let mut events = Vec::new();
        if oldest.seq > after + 1 {
            let what = What::Gap { from: after + 1, to: oldest.seq - 1 };
            events.push(Arc::new(Event {
                v: 1,
                seq: oldest.seq - 1,
                boot: self.0.boot.clone(),
                at: oldest.at,
                what,
            }));
        }
        let skip = usize::try_from((after + 1).saturating_sub(oldest.seq)).unwrap_or(usize::MAX);
        events.extend(ring.iter().skip(skip).take(limit).cloned());
        events
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use posthouse_shared::name::TeamName;

    fn seqs(events: &[Arc<Event>]) -> Vec<u64> {
        events.iter().map(|e| e.seq).collect()
    }

    #[test]
    fn a_follower_goes_on_where_it_stood_and_is_told_what_is_gone() {
        let events = Events::new("b1".to_owned(), 3);
        for n in 1..=5 {
            events.publish(Stamp::from_nanos(n), What::TeamCreated { team: TeamName::new("a").unwrap() });
        }
        assert_eq!(seqs(&events.after(3, 10)), [4, 5]);
        assert_eq!(seqs(&events.after(5, 10)), Vec::<u64>::new());
        let late = events.after(0, 10);
        assert_eq!(late[0].what, What::Gap { from: 1, to: 2 });
        assert_eq!(seqs(&late), [2, 3, 4, 5]);
        assert_eq!(seqs(&events.after(99, 2)), [2, 3, 4], "a sequence of another boot begins anew");
    }
}
