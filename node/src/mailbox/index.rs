//! What is ready, in the order in which it is claimed. Pure: knows names, no disk.
//!
//! Each lane and epoch is a queue sorted by number; the heads of all lanes are sorted by (class, `order_at`,
//! id), together with what stands outside the lanes. A claim takes the least; its cost grows with the number
//! of lanes (logarithmically), never with the backlog. A ready message takes 40 bytes and the queue's slack.
//!
//! A message whose name says that a lower number goes before it, which has not come, is *held*, and all of its
//! lane above it with it: a lane whose head waits so is not among the heads. Few wait at a time (the window of the
//! sender), so what they wait for is kept beside the queues.

use std::collections::{BTreeMap, BTreeSet, HashMap, VecDeque};

use posthouse_shared::clock::Stamp;
use posthouse_shared::lane::LaneKey;
use posthouse_shared::name::MessageId;
use uuid::Uuid;

use super::dedup::Seen;
use super::name::{Class, FileName, Marks, Place};

/// The order across lanes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Rank {
    class: Class,
    order_at: u64,
    id: [u8; 16],
}

impl Rank {
    /// Where a name stands.
    pub const fn of(name: &FileName) -> Self {
        Self { class: name.class, order_at: name.order_at.nanos(), id: name.id.0.into_bytes() }
    }
}

#[derive(Debug, Clone, Copy)]
struct Entry {
    seq: u64,
    order_at: u64,
    id: [u8; 16],
    attempt: u16,
    delivery: u16,
    marks: Marks,
    class: Class,
}

impl Entry {
    fn of(name: &FileName, seq: u64) -> Self {
        Self {
            seq,
            order_at: name.order_at.nanos(),
            id: name.id.0.into_bytes(),
            attempt: name.attempt,
            delivery: name.delivery,
            marks: name.marks,
            class: name.class,
        }
    }

    const fn rank(&self) -> Rank {
        Rank { class: self.class, order_at: self.order_at, id: self.id }
    }

    fn name(&self, key: LaneKey, after: Option<u64>) -> FileName {
        FileName {
            class: self.class,
            order_at: Stamp::from_nanos(self.order_at),
            place: Some(Place { key, seq: self.seq }),
            id: MessageId(Uuid::from_bytes(self.id)),
            attempt: self.attempt,
            delivery: self.delivery,
            marks: self.marks,
            after,
            holder: None,
        }
    }
}

/// The ready messages of one mailbox.
#[derive(Debug, Default)]
pub struct Index {
    lanes: HashMap<LaneKey, VecDeque<Entry>>,
    heads: BTreeSet<(Rank, LaneKey)>,
    outside: BTreeMap<Rank, FileName>,
    /// Where in `outside` an id is.
    outside_ids: HashMap<MessageId, Rank>,
    /// What the names say of what arrived before a lower number of its lane: number -> that lower number.
    named: HashMap<LaneKey, BTreeMap<u64, u64>>,
    /// What still waits: number -> the number that it waits for. At most the sender's window a lane.
    waits: HashMap<LaneKey, BTreeMap<u64, u64>>,
    in_lanes: usize,
}

/// Makes an index of many names, in any order, faster than one by one.
#[derive(Debug, Default)]
pub struct Builder {
    queues: Vec<(LaneKey, Vec<Entry>)>,
    /// Where in `queues` a lane is.
    at: HashMap<LaneKey, usize>,
    /// The lane of the name before: mostly the same again.
    last: usize,
    outside: BTreeMap<Rank, FileName>,
    named: HashMap<LaneKey, BTreeMap<u64, u64>>,
    twice: bool,
}

impl Builder {
    /// Adds a name.
    pub fn push(&mut self, name: &FileName) {
        match name.place {
            Some(place) if !name.outside() => {
                if let Some(queue) = self.queue(place.key) {
                    queue.push(Entry::of(name, place.seq));
                }
                if let Some(after) = name.after {
                    self.named.entry(place.key).or_default().insert(place.seq, after);
                }
            }
            Some(_) | None => self.twice |= self.outside.insert(Rank::of(name), *name).is_some(),
        }
    }

    fn queue(&mut self, key: LaneKey) -> Option<&mut Vec<Entry>> {
        if self.queues.get(self.last).is_none_or(|(last, _)| *last != key) {
            let next = self.queues.len();
            self.last = *self.at.entry(key).or_insert(next);
            if self.last == next {
                self.queues.push((key, Vec::new()));
            }
        }
        self.queues.get_mut(self.last).map(|(_, queue)| queue)
    }

    /// The index, and whether some place or id came twice (one of the two is left out). All whose names say so
    /// wait, until [`Index::unhold`].
    pub fn finish(self) -> (Index, bool) {
        let mut twice = self.twice;
        let outside_ids = self.outside.iter().map(|(rank, name)| (name.id, *rank)).collect();
        let (outside, named, waits) = (self.outside, self.named.clone(), self.named);
        let mut index = Index { outside, outside_ids, named, waits, ..Index::default() };
        for (key, mut queue) in self.queues {
            let pushed = queue.len();
            queue.sort_unstable_by_key(|entry| entry.seq);
            queue.dedup_by_key(|entry| entry.seq);
            twice |= queue.len() < pushed;
            queue.shrink_to_fit();
            index.in_lanes += queue.len();
            index.lanes.insert(key, queue.into());
            index.set_head(key);
        }
        (index, twice)
    }
}

/// Which messages a claim takes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Which {
    /// All, in order.
    All,
    /// Control only: for a teammate in a turn, or stopped.
    ControlOnly,
}

impl Index {
    /// How many are ready.
    pub fn len(&self) -> usize {
        self.in_lanes + self.outside.len()
    }

    /// Whether none is.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// How many of the control class are ready. They sort first, so it costs only what it counts.
    pub fn control(&self) -> usize {
        let heads = self.heads.iter().take_while(|(rank, _)| rank.class == Class::Control);
        let queued = heads.filter_map(|(_, key)| self.lanes.get(key)).map(VecDeque::len).sum::<usize>();
        queued + self.outside.keys().take_while(|rank| rank.class == Class::Control).count()
    }

    /// Adds a name; answers whether it was new. What its name says goes before it is waited for.
    pub fn insert(&mut self, name: &FileName) -> bool {
        let Some(place) = name.place.filter(|_| !name.outside()) else {
            self.outside_ids.insert(name.id, Rank::of(name));
            return self.outside.insert(Rank::of(name), name.free()).is_none();
        };
        let queue = self.lanes.entry(place.key).or_default();
        let entry = Entry::of(name, place.seq);
        let at = match queue.back() {
            Some(last) if last.seq >= place.seq => queue.partition_point(|other| other.seq < place.seq),
            Some(_) | None => queue.len(),
        };
        if queue.get(at).is_some_and(|other| other.seq == place.seq) {
            return false;
        }
        if at == 0
            && let Some(head) = queue.front()
        {
            self.heads.remove(&(head.rank(), place.key));
        }
        queue.insert(at, entry);
        self.in_lanes += 1;
        if let Some(after) = name.after {
            self.named.entry(place.key).or_default().insert(place.seq, after);
            self.waits.entry(place.key).or_default().insert(place.seq, after);
        }
        if at == 0 {
            self.set_head(place.key);
        }
        true
    }

    /// The name that is kept for this place or id, where it is ready.
    pub fn get(&self, name: &FileName) -> Option<FileName> {
        let outside = || self.outside.get(self.outside_ids.get(&name.id)?).copied();
        let in_lane = name.place.and_then(|place| {
            let queue = self.lanes.get(&place.key)?;
            let at = queue.binary_search_by_key(&place.seq, |entry| entry.seq).ok()?;
            queue.get(at).map(|entry| self.name(place.key, entry))
        });
        in_lane.or_else(outside)
    }

    /// Takes a name out; answers whether it was there.
    pub fn remove(&mut self, name: &FileName) -> bool {
        let Some(place) = name.place.filter(|_| !name.outside()) else {
            self.outside_ids.remove(&name.id);
            return self.outside.remove(&Rank::of(name)).is_some();
        };
        let Some(queue) = self.lanes.get_mut(&place.key) else { return false };
        let Ok(at) = queue.binary_search_by_key(&place.seq, |entry| entry.seq) else { return false };
        let Some(entry) = queue.remove(at) else { return false };
        self.in_lanes -= 1;
        if queue.is_empty() {
            self.lanes.remove(&place.key);
        } else if queue.capacity() > 4 * queue.len() + 64 {
            queue.shrink_to(2 * queue.len());
        }
        for numbers in [&mut self.named, &mut self.waits] {
            if let Some(of_lane) = numbers.get_mut(&place.key) {
                of_lane.remove(&place.seq);
                if of_lane.is_empty() {
                    numbers.remove(&place.key);
                }
            }
        }
        if at == 0 {
            self.heads.remove(&(entry.rank(), place.key));
            self.set_head(place.key);
        }
        true
    }

    /// The number that a ready message of a lane waits for.
    pub fn waits_for(&self, key: LaneKey, seq: u64) -> Option<u64> {
        self.waits.get(&key)?.range(..=seq).next().map(|(_, on)| *on)
    }

    /// How many are held.
    pub fn held(&self) -> usize {
        let held = self.waits.iter().filter_map(|(key, waits)| {
            let (first, _) = waits.first_key_value()?;
            let queue = self.lanes.get(key)?;
            Some(queue.len() - queue.partition_point(|entry| entry.seq < *first))
        });
        held.sum()
    }

    /// The lowest that is held of each lane that holds mail.
    pub fn gaps(&self) -> Vec<FileName> {
        let gaps = self.waits.iter().filter_map(|(key, waits)| {
            let (first, _) = waits.first_key_value()?;
            let queue = self.lanes.get(key)?;
            let at = queue.binary_search_by_key(first, |entry| entry.seq).ok()?;
            queue.get(at).map(|entry| self.name(*key, entry))
        });
        gaps.collect()
    }

    /// Whether this number of a lane goes before something that is held.
    pub fn fills_gap(&self, key: LaneKey, seq: u64) -> bool {
        self.waits.get(&key).and_then(BTreeMap::last_key_value).is_some_and(|(held, _)| seq < *held)
    }

    /// Decides anew for everything of a lane that waits, by the number it waits for: which number from now on, or
    /// none any more. Answers whether the lane goes on.
    pub fn wait_anew(&mut self, key: LaneKey, on: impl Fn(u64) -> Option<u64>) -> bool {
        let Some(waits) = self.waits.get_mut(&key) else { return false };
        let before = waits.len();
        waits.retain(|_, waited| match on(*waited) {
            Some(number) => {
                *waited = number;
                true
            }
            None => false,
        });
        let ended = waits.len() < before;
        if waits.is_empty() {
            self.waits.remove(&key);
        }
        if ended {
            self.set_head(key);
        }
        ended
    }

    /// Ends the waits for what was seen.
    pub fn unhold(&mut self, seen: &Seen) {
        let keys: Vec<LaneKey> = self.waits.keys().copied().collect();
        for key in keys {
            self.wait_anew(key, |on| Some(on).filter(|on| !seen.has(key, *on)));
        }
    }

    /// Puts the head of a lane among the heads, unless it waits.
    fn set_head(&mut self, key: LaneKey) {
        let Some(head) = self.lanes.get(&key).and_then(VecDeque::front) else { return };
        if self.waits_for(key, head.seq).is_none() {
            self.heads.insert((head.rank(), key));
        }
    }

    fn name(&self, key: LaneKey, entry: &Entry) -> FileName {
        let after = self.named.get(&key).and_then(|named| named.get(&entry.seq));
        entry.name(key, after.copied())
    }

    /// What a claim takes next.
    pub fn first(&self, which: Which) -> Option<FileName> {
        let head = self.heads.first();
        let outside = self.outside.first_key_value();
        let first = match (head, outside) {
            (Some((rank, key)), Some((other, name))) => {
                if rank <= other {
                    self.head(key)
                } else {
                    Some(*name)
                }
            }
            (Some((_, key)), None) => self.head(key),
            (None, Some((_, name))) => Some(*name),
            (None, None) => None,
        }?;
        match which {
            Which::All => Some(first),
            Which::ControlOnly => Some(first).filter(|name| name.class == Class::Control),
        }
    }

    fn head(&self, key: &LaneKey) -> Option<FileName> {
        self.lanes.get(key)?.front().map(|entry| self.name(*key, entry))
    }

    /// The first `limit` in the order of claims, which takes nothing out. What is held is left out.
    pub fn in_order(&self, limit: usize) -> Vec<FileName> {
        let mut waiting: BTreeMap<(Rank, Option<LaneKey>), (FileName, usize)> = BTreeMap::new();
        waiting.extend(self.outside.iter().take(limit).map(|(rank, name)| ((*rank, None), (*name, 0))));
        let heads = self.heads.iter().take(limit);
        waiting.extend(
            heads.filter_map(|(rank, key)| self.head(key).map(|name| ((*rank, Some(*key)), (name, 0)))),
        );
        let mut names = Vec::with_capacity(limit.min(self.len()));
        while names.len() < limit
            && let Some(((_, key), (name, at))) = waiting.pop_first()
        {
            names.push(name);
            let next = key.and_then(|key| Some((key, self.lanes.get(&key)?.get(at + 1)?)));
            if let Some((key, entry)) = next
                && self.waits_for(key, entry.seq).is_none()
            {
                waiting.insert((entry.rank(), Some(key)), (self.name(key, entry), at + 1));
            }
        }
        names
    }

    /// All names, in no order.
    pub fn all(&self) -> impl Iterator<Item = FileName> + '_ {
        let queued =
            self.lanes.iter().flat_map(|(key, queue)| queue.iter().map(|entry| self.name(*key, entry)));
        queued.chain(self.outside.values().copied())
    }

    /// Adds all to what was seen; answers whether something was there already.
    pub fn add_to(&self, seen: &mut Seen) -> bool {
        let mut twice = seen.insert_all(self.outside.values());
        for (key, queue) in &self.lanes {
            twice |= seen.insert_sorted(*key, queue.iter().map(|entry| entry.seq));
        }
        twice
    }

    /// `order_at` of the newest mail of the lead that is ready, without what a person brought back.
    pub fn lead_newest(&self) -> Option<Stamp> {
        let heads = self.heads.iter().filter(|(rank, _)| rank.class == Class::Lead);
        let last = heads.filter_map(|(_, key)| self.lanes.get(key)?.back()).map(|entry| entry.order_at);
        last.max().map(Stamp::from_nanos)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use posthouse_shared::generation::Generation;
    use posthouse_shared::lane::LaneHash;
    use proptest::prelude::*;

    fn name(class: u8, lane: u64, seq: u64, at: u64, outside: bool) -> FileName {
        let class = [Class::Control, Class::Lead, Class::Normal][usize::from(class)];
        let key = LaneKey { lane: LaneHash(lane * 3 + class as u64), epoch: Generation::new(1, 1) };
        FileName {
            class,
            order_at: Stamp::from_nanos(at),
            place: Some(Place { key, seq }),
            id: MessageId(Uuid::from_u64_pair(lane * 3 + class as u64, seq)),
            attempt: 1,
            delivery: if outside { 2 } else { 1 },
            marks: Marks::NONE,
            after: None,
            holder: None,
        }
    }

    /// The order of section P3, written down the slow way.
    fn slow(names: &[FileName]) -> Vec<FileName> {
        let mut left: Vec<FileName> = names.to_vec();
        let mut order = Vec::new();
        while !left.is_empty() {
            let head = |a: &FileName| {
                a.outside()
                    || !left.iter().any(|b| {
                        !b.outside()
                            && b.place.map(|p| p.key) == a.place.map(|p| p.key)
                            && b.place.map(|p| p.seq) < a.place.map(|p| p.seq)
                    })
            };
            let next =
                (0..left.len()).filter(|i| head(&left[*i])).min_by_key(|i| Rank::of(&left[*i])).unwrap();
            order.push(left.remove(next));
        }
        order
    }

    #[test]
    fn a_ready_message_takes_forty_bytes() {
        assert_eq!(size_of::<Entry>(), 40);
    }

    proptest! {
        #[test]
        fn claims_come_in_the_order_of_p3(steps in prop::collection::vec((0u8..3, 0u64..3, 0u64..12, 0u64..6, prop::bool::weighted(0.1)), 0..40)) {
            let mut names: Vec<FileName> = Vec::new();
            let mut index = Index::default();
            for (class, lane, seq, at, outside) in steps {
                let name = name(class, lane, seq, at, outside);
                if names.iter().all(|other| other.place != name.place) {
                    prop_assert!(index.insert(&name));
                    names.push(name);
                }
            }
            let order = slow(&names);
            prop_assert_eq!(index.in_order(100), order.clone());
            let mut builder = Builder::default();
            names.iter().for_each(|name| builder.push(name));
            let (built, twice) = builder.finish();
            prop_assert!(!twice);
            prop_assert_eq!(built.in_order(100), order.clone());
            prop_assert_eq!(index.control(), names.iter().filter(|n| n.class == Class::Control).count());
            let mut claimed = Vec::new();
            while let Some(first) = index.first(Which::All) {
                prop_assert!(index.remove(&first));
                claimed.push(first);
            }
            prop_assert_eq!(claimed, order);
            prop_assert!(index.is_empty());
        }
    }
}
