//! When each outgoing message is due. Pure: knows no disk, no bus, no clock.
//!
//! A message is *waiting* until the other host says `stored`: at most [`WINDOW`] of a lane are in flight, sent
//! again with a growing pause; `stored`, it is asked about now and then until it is done.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::time::Duration;

use posthouse_shared::lane::{LaneHash, LaneKey};
use posthouse_shared::name::{HostName, MessageId};

/// Messages of one lane that may be in flight.
pub const WINDOW: usize = 64;

/// Tries that follow a busy mailbox as fast as it asks for; then the growing pause counts.
const BUSY_TRIES: u64 = 4;

/// How often things are tried again.
#[derive(Debug, Clone, Copy)]
pub struct Pace {
    /// First pause until a message that is not stored is sent again; doubles up to `resend_max`.
    pub resend_min: Duration,
    /// The longest such pause.
    pub resend_max: Duration,
    /// First pause until the state of a stored message is asked; doubles up to `ask_max`.
    pub ask_min: Duration,
    /// The longest such pause.
    pub ask_max: Duration,
}

impl Default for Pace {
    fn default() -> Self {
        Self {
            resend_min: Duration::from_secs(1),
            resend_max: Duration::from_secs(30),
            ask_min: Duration::from_secs(5),
            ask_max: Duration::from_secs(60),
        }
    }
}

/// One message in the outbox.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Item {
    /// The message.
    pub id: MessageId,
    /// Its lane and epoch.
    pub lane: LaneKey,
    /// Its number.
    pub seq: u64,
    /// Where it goes.
    pub host: HostName,
    /// An earlier home of its recipient may have handled it.
    pub handled: bool,
}

/// What is to be done about a message now.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Due {
    /// The message.
    pub item: Item,
    /// Which try it is, from 1: part of its id on the bus.
    pub attempt: u64,
    /// The highest lower number of its lane that is not done.
    pub after: Option<u64>,
    /// What to do.
    pub what: Act,
}

/// What to do about a message.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Act {
    /// Send it.
    Publish,
    /// Ask where it is.
    Ask,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Phase {
    /// Beyond the window.
    Fresh,
    /// Sent, or to be sent, when its time comes; `acked`: the bus has taken this try.
    Waiting { at: Duration, acked: bool },
    /// In the other host's mailbox; to be asked about.
    Stored { at: Duration, asked: u32 },
}

#[derive(Debug, Clone)]
struct Entry {
    item: Item,
    phase: Phase,
    attempt: u64,
    /// Whether it may have reached its host.
    sent: bool,
    since: Duration,
}

/// All that is not done, by lane.
#[derive(Debug)]
pub struct Lanes {
    lanes: HashMap<LaneKey, BTreeMap<u64, Entry>>,
    ids: HashMap<MessageId, (LaneKey, u64)>,
    timers: BTreeSet<(Duration, LaneKey, u64)>,
    pace: Pace,
}

/// How much is on its way.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct OutboxCounts {
    /// Not yet in the other host's mailbox.
    pub unstored: usize,
    /// There, and not done.
    pub undone: usize,
    /// Age of the oldest that is not stored.
    pub oldest_unstored: Duration,
    /// Age of the oldest that is stored and not done.
    pub oldest_undone: Duration,
}

impl OutboxCounts {
    fn add(&mut self, entry: &Entry, now: Duration) {
        let age = now.saturating_sub(entry.since);
        match entry.phase {
            Phase::Fresh | Phase::Waiting { .. } => {
                self.unstored += 1;
                self.oldest_unstored = self.oldest_unstored.max(age);
            }
            Phase::Stored { .. } => {
                self.undone += 1;
                self.oldest_undone = self.oldest_undone.max(age);
            }
        }
    }
}

impl Lanes {
    /// With nothing in it.
    pub fn new(pace: Pace) -> Self {
        Self { lanes: HashMap::new(), ids: HashMap::new(), timers: BTreeSet::new(), pace }
    }

    /// How many are not done.
    pub fn len(&self) -> usize {
        self.ids.len()
    }

    /// Whether all is done.
    pub fn is_empty(&self) -> bool {
        self.ids.is_empty()
    }

    /// Adds a message; answers whether it was new. `sent`: it may have been sent already, before a restart.
    pub fn add(&mut self, item: Item, sent: bool, now: Duration) -> bool {
        if self.ids.contains_key(&item.id) {
            return false;
        }
        let (key, seq) = (item.lane, item.seq);
        self.ids.insert(item.id, (key, seq));
        let entry = Entry { item, phase: Phase::Fresh, attempt: 1, sent, since: now };
        self.lanes.entry(key).or_default().insert(seq, entry);
        self.refill(key, now);
        true
    }

    /// Takes a message out: it is done, or ended for good.
    pub fn remove(&mut self, id: MessageId, now: Duration) -> Option<Item> {
        let (key, seq) = self.ids.remove(&id)?;
        let lane = self.lanes.get_mut(&key)?;
        let entry = lane.remove(&seq)?;
        if lane.is_empty() {
            self.lanes.remove(&key);
        }
        self.unset_timer(key, seq, entry.phase);
        self.refill(key, now);
        Some(entry.item)
    }

    /// The same for a message that the other host will never have: the next of its lane is seen to at once, since
    /// over there it may be held for this one.
    pub fn end(&mut self, id: MessageId, now: Duration) -> Option<Item> {
        let item = self.remove(id, now)?;
        let above = (std::ops::Bound::Excluded(item.seq), std::ops::Bound::Unbounded);
        let next = self.lanes.get(&item.lane).and_then(|lane| lane.range(above).next());
        if let Some(next) = next.map(|(_, entry)| entry.item.id) {
            self.soon(next, now);
        }
        Some(item)
    }

    /// Everything of a lane, in all its epochs, is seen to now.
    pub fn hurry(&mut self, lane: LaneHash, now: Duration) {
        let of_lane = self.lanes.iter().filter(|(key, _)| key.lane == lane);
        let ids: Vec<MessageId> = of_lane.flat_map(|(_, lane)| lane.values().map(|e| e.item.id)).collect();
        ids.into_iter().for_each(|id| self.soon(id, now));
    }

    fn soon(&mut self, id: MessageId, now: Duration) {
        self.change(id, |entry| match &mut entry.phase {
            Phase::Fresh => {}
            Phase::Waiting { at, .. } | Phase::Stored { at, .. } => *at = now.min(*at),
        });
    }

    /// Which lanes have something on its way, and to where.
    pub fn destinations(&self) -> BTreeSet<(LaneHash, HostName)> {
        let of_lane = |(key, lane): (&LaneKey, &BTreeMap<u64, Entry>)| {
            lane.values().map(|entry| (key.lane, entry.item.host.clone())).collect::<BTreeSet<_>>()
        };
        self.lanes.iter().flat_map(of_lane).collect()
    }

    /// One message.
    pub fn get(&self, id: MessageId) -> Option<&Item> {
        let (key, seq) = self.ids.get(&id)?;
        self.lanes.get(key)?.get(seq).map(|entry| &entry.item)
    }

    /// The other host has it; answers whether that is news.
    pub fn stored(&mut self, id: MessageId, now: Duration) -> bool {
        let at = now + self.pace.ask_min;
        let mut news = false;
        self.change(id, |entry| {
            if !matches!(entry.phase, Phase::Stored { .. }) {
                entry.phase = Phase::Stored { at, asked: 0 };
                news = true;
            }
        });
        self.refill_of(id, now);
        news
    }

    /// The other host cannot take it now: another try, at `at` or when it would be sent again, whichever is
    /// later after the first few.
    pub fn busy(&mut self, id: MessageId, at: Duration) {
        self.change(id, |entry| {
            if let Phase::Waiting { at: planned, acked } = entry.phase {
                let attempt = if acked { entry.attempt } else { entry.attempt + 1 };
                let at = if attempt <= BUSY_TRIES { at } else { at.max(planned) };
                entry.attempt = attempt;
                entry.phase = Phase::Waiting { at, acked: false };
            }
        });
    }

    /// The other host does not have it, or not any more: again at `at`, as another try.
    pub fn again(&mut self, id: MessageId, at: Duration) {
        self.change(id, |entry| {
            entry.attempt += 1;
            entry.phase = Phase::Waiting { at, acked: false };
        });
    }

    /// Where it would go if it went to another host: marked where it may have reached the present one.
    pub fn readdressed(&self, id: MessageId, host: HostName) -> Option<Item> {
        let (key, seq) = self.ids.get(&id)?;
        let entry = self.lanes.get(key)?.get(seq)?;
        Some(Item { host, handled: entry.item.handled || entry.sent, ..entry.item.clone() })
    }

    /// It goes to another host from now on.
    pub fn readdress(&mut self, item: Item, now: Duration) {
        self.change(item.id, |entry| {
            entry.item = item;
            entry.sent = false;
            entry.attempt += 1;
            entry.phase = Phase::Waiting { at: now, acked: false };
        });
    }

    /// What the bus said to a try. What it has taken is another try next time.
    pub fn published(&mut self, id: MessageId, taken: bool) {
        self.change(id, |entry| {
            if let Phase::Waiting { acked, .. } = &mut entry.phase
                && taken
                && !*acked
            {
                *acked = true;
                entry.attempt += 1;
            }
        });
    }

    /// The bus is back: what it has not taken goes out at once.
    pub fn reconnected(&mut self, now: Duration) {
        let waiting: Vec<MessageId> = self
            .timers
            .iter()
            .filter_map(|(_, key, seq)| self.lanes.get(key)?.get(seq))
            .filter(|entry| matches!(entry.phase, Phase::Waiting { acked: false, .. }))
            .map(|entry| entry.item.id)
            .collect();
        for id in waiting {
            self.change(id, |entry| entry.phase = Phase::Waiting { at: now, acked: false });
        }
    }

    /// What is due, at most `max`, in lane order, and its next time set. `jitter` is between 0 and 1.
    pub fn due(&mut self, now: Duration, max: usize, jitter: &mut dyn FnMut() -> f64) -> Vec<Due> {
        let mut due = Vec::new();
        while due.len() < max
            && let Some(&(at, key, seq)) = self.timers.first()
            && at <= now
        {
            self.timers.pop_first();
            let Some(lane) = self.lanes.get_mut(&key) else { continue };
            let after = lane.range(..seq).next_back().map(|(seq, _)| *seq);
            let Some(entry) = lane.get_mut(&seq) else { continue };
            let spread = 0.75 + jitter() / 2.0;
            let what = match entry.phase {
                Phase::Fresh => continue,
                Phase::Waiting { .. } => {
                    let doublings = u32::try_from(entry.attempt.saturating_sub(1)).unwrap_or(16).min(16);
                    let pause = (self.pace.resend_min * 2u32.pow(doublings)).min(self.pace.resend_max);
                    entry.phase = Phase::Waiting { at: now + pause.mul_f64(spread), acked: false };
                    entry.sent = true;
                    Act::Publish
                }
                Phase::Stored { asked, .. } => {
                    let pause = (self.pace.ask_min * 2u32.pow(asked.min(16))).min(self.pace.ask_max);
                    entry.phase = Phase::Stored { at: now + pause.mul_f64(spread), asked: asked + 1 };
                    Act::Ask
                }
            };
            due.push(Due { item: entry.item.clone(), attempt: entry.attempt, after, what });
            let phase = entry.phase;
            self.set_timer(key, seq, phase);
        }
        due.sort_by_key(|due| (due.item.lane, due.item.seq));
        due
    }

    /// When something is due next.
    pub fn next(&self) -> Option<Duration> {
        self.timers.first().map(|(at, _, _)| *at)
    }

    /// How many the bus has never taken since the start.
    pub fn unpublished(&self) -> usize {
        let entries = self.lanes.values().flat_map(BTreeMap::values);
        let waits = |entry: &&Entry| match entry.phase {
            Phase::Fresh => true,
            Phase::Waiting { acked, .. } => !acked && entry.attempt == 1,
            Phase::Stored { .. } => false,
        };
        entries.filter(waits).count()
    }

    /// How much is on its way. Looks at everything.
    pub fn counts(&self, now: Duration) -> OutboxCounts {
        let mut counts = OutboxCounts::default();
        self.lanes.values().flat_map(BTreeMap::values).for_each(|entry| counts.add(entry, now));
        counts
    }

    /// The same by destination. Looks at everything.
    pub fn by_host(&self, now: Duration) -> BTreeMap<HostName, OutboxCounts> {
        let mut hosts: BTreeMap<HostName, OutboxCounts> = BTreeMap::new();
        for entry in self.lanes.values().flat_map(BTreeMap::values) {
            match hosts.get_mut(&entry.item.host) {
                Some(counts) => counts.add(entry, now),
                None => hosts.entry(entry.item.host.clone()).or_default().add(entry, now),
            }
        }
        hosts
    }

    /// How many of each lane, all its epochs together, are on their way.
    pub fn by_lane(&self) -> HashMap<LaneHash, usize> {
        let mut lanes: HashMap<LaneHash, usize> = HashMap::new();
        self.lanes.iter().for_each(|(key, lane)| *lanes.entry(key.lane).or_default() += lane.len());
        lanes
    }

    fn change(&mut self, id: MessageId, change: impl FnOnce(&mut Entry)) {
        let Some(&(key, seq)) = self.ids.get(&id) else { return };
        let Some(entry) = self.lanes.get_mut(&key).and_then(|lane| lane.get_mut(&seq)) else { return };
        let before = entry.phase;
        change(entry);
        let after = entry.phase;
        self.unset_timer(key, seq, before);
        self.set_timer(key, seq, after);
    }

    fn set_timer(&mut self, key: LaneKey, seq: u64, phase: Phase) {
        match phase {
            Phase::Fresh => {}
            Phase::Waiting { at, .. } | Phase::Stored { at, .. } => {
                self.timers.insert((at, key, seq));
            }
        }
    }

    fn unset_timer(&mut self, key: LaneKey, seq: u64, phase: Phase) {
        match phase {
            Phase::Fresh => {}
            Phase::Waiting { at, .. } | Phase::Stored { at, .. } => {
                self.timers.remove(&(at, key, seq));
            }
        }
    }

    fn refill_of(&mut self, id: MessageId, now: Duration) {
        if let Some(&(key, _)) = self.ids.get(&id) {
            self.refill(key, now);
        }
    }

    /// Lets into the window what fits.
    fn refill(&mut self, key: LaneKey, now: Duration) {
        let Some(lane) = self.lanes.get_mut(&key) else { return };
        let unstored = lane.iter_mut().filter(|(_, entry)| !matches!(entry.phase, Phase::Stored { .. }));
        let mut begun = Vec::new();
        for (seq, entry) in unstored.take(WINDOW) {
            if entry.phase == Phase::Fresh {
                entry.phase = Phase::Waiting { at: now, acked: false };
                begun.push(*seq);
            }
        }
        self.timers.extend(begun.into_iter().map(|seq| (now, key, seq)));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use posthouse_shared::generation::Generation;

    fn item(seq: u64) -> Item {
        Item {
            id: MessageId::derived(&["item", &seq.to_string()]),
            lane: LaneKey { lane: LaneHash(1), epoch: Generation::new(1, 1) },
            seq,
            host: HostName::new("beta").unwrap(),
            handled: false,
        }
    }

    fn at(ms: u64) -> Duration {
        Duration::from_millis(ms)
    }

    fn numbers(due: &[Due]) -> Vec<u64> {
        due.iter().map(|due| due.item.seq).collect()
    }

    #[test]
    fn a_lane_has_at_most_its_window_in_flight_and_goes_on_as_it_is_stored() {
        let mut lanes = Lanes::new(Pace::default());
        (1..=100).for_each(|seq| assert!(lanes.add(item(seq), false, at(0))));
        assert!(!lanes.add(item(1), false, at(0)));
        let due = lanes.due(at(0), 1_000, &mut || 0.5);
        assert_eq!(numbers(&due), (1..=64).collect::<Vec<_>>());
        assert_eq!((due[0].after, due[5].after), (None, Some(5)));
        assert!(lanes.due(at(0), 1_000, &mut || 0.5).is_empty());
        lanes.stored(item(1).id, at(1));
        lanes.remove(item(2).id, at(1));
        let due = lanes.due(at(1), 1_000, &mut || 0.5);
        assert_eq!(numbers(&due), [65, 66]);
        assert_eq!(lanes.counts(at(10)).unstored, 98);
    }

    #[test]
    fn an_unknown_outcome_keeps_its_try_and_a_taken_one_becomes_another() {
        let mut lanes = Lanes::new(Pace::default());
        lanes.add(item(1), false, at(0));
        let tries = |lanes: &mut Lanes, now| {
            lanes.due(now, 10, &mut || 0.5).iter().map(|due| (due.attempt, due.what)).collect::<Vec<_>>()
        };
        assert_eq!(tries(&mut lanes, at(0)), [(1, Act::Publish)]);
        assert_eq!(lanes.next(), Some(at(1_000)));
        assert_eq!(tries(&mut lanes, at(1_000)), [(1, Act::Publish)]);
        lanes.published(item(1).id, true);
        lanes.reconnected(at(1_500));
        assert!(tries(&mut lanes, at(1_500)).is_empty());
        assert_eq!(tries(&mut lanes, at(2_000)), [(2, Act::Publish)]);
        lanes.reconnected(at(2_100));
        assert_eq!(tries(&mut lanes, at(2_100)), [(2, Act::Publish)]);
        lanes.stored(item(1).id, at(2_200));
        assert_eq!(tries(&mut lanes, at(7_200)), [(2, Act::Ask)]);
        lanes.again(item(1).id, at(7_300));
        assert_eq!(tries(&mut lanes, at(7_300)), [(3, Act::Publish)]);
        assert!(lanes.remove(item(1).id, at(7_400)).is_some());
        assert!(lanes.is_empty() && lanes.next().is_none());
    }

    #[test]
    fn what_the_other_host_will_never_have_hurries_the_next_of_its_lane() {
        let mut lanes = Lanes::new(Pace::default());
        (1..=3).for_each(|seq| assert!(lanes.add(item(seq), false, at(0))));
        lanes.due(at(0), 10, &mut || 0.5);
        lanes.stored(item(2).id, at(1));
        assert!(lanes.due(at(2), 10, &mut || 0.5).is_empty());
        lanes.end(item(1).id, at(2));
        let due = lanes.due(at(2), 10, &mut || 0.5);
        assert_eq!(
            due.iter().map(|due| (due.item.seq, due.after, due.what)).collect::<Vec<_>>(),
            [(2, None, Act::Ask)]
        );
    }

    #[test]
    fn only_what_may_have_arrived_is_marked_when_it_goes_elsewhere() {
        let mut lanes = Lanes::new(Pace::default());
        let gamma = || HostName::new("gamma").unwrap();
        lanes.add(item(1), false, at(0));
        lanes.add(item(2), true, at(0));
        assert!(!lanes.readdressed(item(1).id, gamma()).unwrap().handled);
        assert!(lanes.readdressed(item(2).id, gamma()).unwrap().handled);
        lanes.due(at(0), 1, &mut || 0.5);
        let moved = lanes.readdressed(item(1).id, gamma()).unwrap();
        assert!(moved.handled);
        lanes.readdress(moved, at(1));
        let again = lanes.readdressed(item(1).id, HostName::new("delta").unwrap()).unwrap();
        assert!(again.handled && lanes.by_host(at(2)).contains_key(&gamma()));
    }
}
