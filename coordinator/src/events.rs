//! What happened, for followers: a ring with its own sequence. Publishing never blocks; a follower that is
//! too slow, or comes back too late, is told which events are gone.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, PoisonError};

use posthouse_shared::clock::Stamp;
use posthouse_shared::wire::event::{Event, What};
use tokio::sync::watch;

/// Sequences of one boot: the second event of boot 7 is 7,000,000,002.
pub const SEQS_PER_BOOT: u64 = 1_000_000_000;

/// The ring. Cheap to clone; clones share it.
#[derive(Clone, Debug)]
pub struct Events(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    boot: String,
    first: u64,
    capacity: usize,
    ring: Mutex<VecDeque<Arc<Event>>>,
    newest: watch::Sender<u64>,
}

impl Events {
    /// An empty ring of the `number`-th boot, called `boot`, for at most `capacity` events. Sequences go on
    /// rising from boot to boot: each has [`SEQS_PER_BOOT`] of its own, so that a follower that comes back to
    /// another boot misses nothing of it.
    pub fn new(boot: String, number: u64, capacity: usize) -> Self {
        let capacity = capacity.max(1);
        let first = number.saturating_mul(SEQS_PER_BOOT);
        Self(Arc::new(Inner {
            boot,
            first,
            capacity,
            ring: Mutex::default(),
            newest: watch::Sender::new(first),
        }))
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
        // From the future (another data directory): all that is here is new to the follower.
        let after = if after > newest { 0 } else { after };
        let (asked, after) = (after, after.max(self.0.first));
        let mut events = Vec::new();
        // 0 asks for what there is; a follower of an earlier boot may have missed that boot's last ones.
        let of_earlier_boot = asked != 0 && asked < self.0.first;
        if oldest.seq > after + 1 || of_earlier_boot {
            let from = if of_earlier_boot { asked + 1 } else { after + 1 };
            let what = What::Gap { from, to: oldest.seq - 1 };
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
        let events = Events::new("b0".to_owned(), 0, 3);
        for n in 1..=5 {
            events.publish(Stamp::from_nanos(n), What::TeamCreated { team: TeamName::new("a").unwrap() });
        }
        assert_eq!(seqs(&events.after(3, 10)), [4, 5]);
        assert_eq!(seqs(&events.after(5, 10)), Vec::<u64>::new());
        let late = events.after(0, 10);
        assert_eq!(late[0].what, What::Gap { from: 1, to: 2 });
        assert_eq!(seqs(&late), [2, 3, 4, 5]);
        assert_eq!(seqs(&events.after(99, 2)), [2, 3, 4], "a sequence from elsewhere begins anew");
    }

    #[test]
    fn a_follower_of_an_earlier_boot_gets_all_of_the_next_one() {
        let team = || What::TeamCreated { team: TeamName::new("a").unwrap() };
        let events = Events::new("b2".to_owned(), 2, 8);
        for n in 1..=2 {
            events.publish(Stamp::from_nanos(n), team());
        }
        let begin = 2 * SEQS_PER_BOOT;
        let came_back = events.after(SEQS_PER_BOOT + 7, 10);
        assert_eq!(came_back[0].what, What::Gap { from: SEQS_PER_BOOT + 8, to: begin });
        assert_eq!(seqs(&came_back), [begin, begin + 1, begin + 2]);
        assert_eq!(seqs(&events.after(0, 10)), [begin + 1, begin + 2], "0 asks for what there is");
        assert_eq!(seqs(&events.after(begin + 1, 10)), [begin + 2]);
    }
}
