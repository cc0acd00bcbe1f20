//! Lanes: the numbering of messages between one sender and one recipient, and the compact memory of which
//! numbers are settled, which makes dedup for ever affordable.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

use crate::generation::{Birth, Generation};
use crate::name::AgentId;

/// A message's place in its lane. Control messages have a second numbered lane of the same pair.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct LanePosition {
    /// Rising within the lane's epoch; numbers may skip.
    pub seq: u64,
    /// Whether this is the pair's control lane.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub control: bool,
}

/// A lane in short: 64 bits of SHA-256 over sender, recipient, the recipient's birth and whether it is the
/// control lane. It stands in file names.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct LaneHash(pub u64);

impl LaneHash {
    /// The hash of the lane of one pair.
    pub fn of(from: &AgentId, to: &AgentId, birth: Birth, control: bool) -> Self {
        let text = format!("{from}\0{to}\0{birth}\0{}", if control { "control" } else { "mail" });
        let digest = Sha256::digest(text.as_bytes());
        Self(digest.iter().take(8).fold(0, |hash, byte| (hash << 8) | u64::from(*byte)))
    }
}

/// A lane within one epoch, the sender's generation.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct LaneKey {
    /// Which lane.
    pub lane: LaneHash,
    /// The sender's generation when it sent.
    pub epoch: Generation,
}

/// A set of numbers kept as closed ranges that touch nowhere; dense use stays at one range.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Numbers {
    /// First number of a range -> its last.
    ranges: BTreeMap<u64, u64>,
}

impl Numbers {
    /// Whether `number` is in the set.
    pub fn contains(&self, number: u64) -> bool {
        self.ranges.range(..=number).next_back().is_some_and(|(_, last)| *last >= number)
    }

    /// Adds one number; answers whether it was new.
    pub fn insert(&mut self, number: u64) -> bool {
        if self.contains(number) {
            return false;
        }
        self.insert_range(number, number);
        true
    }

    /// Adds all numbers from `first` to `last`, both included.
    pub fn insert_range(&mut self, first: u64, last: u64) {
        if first > last {
            return;
        }
        let (mut first, mut last) = (first, last);
        while let Some((&start, &end)) = self.ranges.range(..=last.saturating_add(1)).next_back() {
            if end.saturating_add(1) < first {
                break;
            }
            first = first.min(start);
            last = last.max(end);
            self.ranges.remove(&start);
        }
        self.ranges.insert(first, last);
    }

    /// Adds all of `other`.
    pub fn merge(&mut self, other: &Self) {
        for (first, last) in &other.ranges {
            self.insert_range(*first, *last);
        }
    }

    /// The highest number, if any.
    pub fn highest(&self) -> Option<u64> {
        self.ranges.values().next_back().copied()
    }

    /// How many ranges it takes, a measure of its size.
    pub fn ranges(&self) -> usize {
        self.ranges.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeSet;

    #[test]
    fn dense_numbers_stay_one_range() {
        let mut numbers = Numbers::default();
        for n in [3, 1, 2, 5, 4] {
            assert!(numbers.insert(n));
        }
        assert_eq!((numbers.ranges(), numbers.highest()), (1, Some(5)));
        assert!(!numbers.insert(4));
        assert!(numbers.insert(u64::MAX) && numbers.contains(u64::MAX));
    }

    proptest! {
        #[test]
        fn numbers_are_a_set(steps in prop::collection::vec((0u64..200, 0u64..6), 0..100)) {
            let (mut numbers, mut model) = (Numbers::default(), BTreeSet::new());
            for (first, more) in steps {
                numbers.insert_range(first, first + more);
                model.extend(first..=first + more);
                for n in 0..210 {
                    prop_assert_eq!(numbers.contains(n), model.contains(&n), "{}", n);
                }
            }
            let gaps = model.iter().filter(|n| !model.contains(&(*n + 1))).count();
            prop_assert_eq!(numbers.ranges(), gaps);
        }
    }
}
