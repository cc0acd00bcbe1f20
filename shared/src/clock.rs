//! Time. Logic gets it as an argument; this module has the one reader of the system's clocks, and the
//! hybrid logical clock that stamps messages: never behind what this host has sent or received, whatever
//! the wall clock does (the idea is Kulkarni et al., "Logical Physical Clocks", 2014; here both parts share
//! one count of nanoseconds, so that a stamp stays a time that people can read).

use std::fmt;
use std::str::FromStr;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

/// A point in UTC, nanoseconds since 1970, written as RFC 3339 with nanoseconds. Good until the year 2554.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Stamp(u64);

/// The text is not an RFC 3339 time that a [`Stamp`] can hold.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0:?} is not a time of RFC 3339 after 1970")]
pub struct StampError(String);

impl Stamp {
    /// From nanoseconds since 1970.
    pub const fn from_nanos(nanos: u64) -> Self {
        Self(nanos)
    }

    /// Nanoseconds since 1970.
    pub const fn nanos(self) -> u64 {
        self.0
    }

    /// This much later.
    pub fn plus(self, by: Duration) -> Self {
        Self(self.0.saturating_add(u64::try_from(by.as_nanos()).unwrap_or(u64::MAX)))
    }

    /// How long after `earlier` this is; zero when it is not after it.
    pub fn since(self, earlier: Self) -> Duration {
        Duration::from_nanos(self.0.saturating_sub(earlier.0))
    }

    /// As a `jiff` time, for calendars and printing.
    pub fn timestamp(self) -> Timestamp {
        Timestamp::from_nanosecond(i128::from(self.0)).unwrap_or(Timestamp::MAX)
    }
}

impl fmt::Display for Stamp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:.9}", self.timestamp())
    }
}

impl FromStr for Stamp {
    type Err = StampError;
    fn from_str(text: &str) -> Result<Self, StampError> {
        let time: Timestamp = text.parse().map_err(|_| StampError(text.to_owned()))?;
        u64::try_from(time.as_nanosecond()).map(Self).map_err(|_| StampError(text.to_owned()))
    }
}

impl TryFrom<String> for Stamp {
    type Error = StampError;
    fn try_from(text: String) -> Result<Self, StampError> {
        text.parse()
    }
}

impl From<Stamp> for String {
    fn from(stamp: Stamp) -> String {
        stamp.to_string()
    }
}

/// Where a component gets the time from.
pub trait Clock: Send + Sync + 'static {
    /// Wall clock, UTC. May jump.
    fn now(&self) -> Stamp;
    /// Time since some fixed point of this boot; never goes back, counts through suspend.
    fn boot(&self) -> Duration;
}

/// The system's clocks.
#[derive(Debug, Clone, Copy, Default)]
pub struct SystemClock;

impl Clock for SystemClock {
    fn now(&self) -> Stamp {
        let time = rustix::time::clock_gettime(rustix::time::ClockId::Realtime);
        let seconds = u64::try_from(time.tv_sec).unwrap_or(0);
        let nanos = u64::try_from(time.tv_nsec).unwrap_or(0);
        Stamp(seconds.saturating_mul(1_000_000_000).saturating_add(nanos))
    }

    fn boot(&self) -> Duration {
        let time = rustix::time::clock_gettime(rustix::time::ClockId::Boottime);
        Duration::new(u64::try_from(time.tv_sec).unwrap_or(0), u32::try_from(time.tv_nsec).unwrap_or(0))
    }
}

/// A clock that tests set by hand.
#[derive(Debug, Default)]
pub struct ManualClock(Mutex<(Stamp, Duration)>);

impl ManualClock {
    /// Starts at `now`.
    pub fn at(now: Stamp) -> Self {
        Self(Mutex::new((now, Duration::ZERO)))
    }

    /// Lets time pass on both clocks.
    pub fn advance(&self, by: Duration) {
        let mut time = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        time.0 = time.0.plus(by);
        time.1 += by;
    }

    /// Sets the wall clock alone, back or forth.
    pub fn set(&self, now: Stamp) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).0 = now;
    }
}

impl Clock for ManualClock {
    fn now(&self) -> Stamp {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).0
    }

    fn boot(&self) -> Duration {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).1
    }
}

/// What a remote stamp did to the clock.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Observed {
    /// The clock is at least there now.
    Adopted,
    /// Further ahead than the allowed skew, by this much over the wall clock; the clock was left alone.
    Skewed(Duration),
}

/// The hybrid logical clock, pure: wall time comes in, stamps go out.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct HybridClock {
    last: Stamp,
}

impl HybridClock {
    /// A clock that is past `last` (the newest stamp that this host is known to have seen).
    pub const fn after(last: Stamp) -> Self {
        Self { last }
    }

    /// The newest stamp given or adopted.
    pub const fn last(&self) -> Stamp {
        self.last
    }

    /// The next stamp: the wall clock, or one nanosecond past the last stamp where that is later.
    pub fn tick(&mut self, wall: Stamp) -> Stamp {
        self.last = Stamp(wall.0.max(self.last.0.saturating_add(1)));
        self.last
    }

    /// Takes a stamp that came from elsewhere into account, unless it is more than `max_skew` ahead of
    /// the wall clock.
    pub fn observe(&mut self, remote: Stamp, wall: Stamp, max_skew: Duration) -> Observed {
        let ahead = remote.since(wall);
        if ahead > max_skew {
            return Observed::Skewed(ahead);
        }
        self.last = self.last.max(remote);
        Observed::Adopted
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn a_stamp_is_read_back_from_its_text() {
        let stamp = Stamp::from_nanos(1_764_540_245_000_000_007);
        assert_eq!(stamp.to_string(), "2025-11-30T22:04:05.000000007Z");
        assert_eq!(stamp.to_string().parse::<Stamp>().unwrap(), stamp);
        assert!("1969-01-01T00:00:00Z".parse::<Stamp>().is_err());
    }

    #[test]
    fn a_wall_clock_that_jumps_back_an_hour_does_not_take_stamps_back() {
        let mut clock = HybridClock::default();
        let before = clock.tick(Stamp::from_nanos(7_200_000_000_000));
        let after = clock.tick(Stamp::from_nanos(3_600_000_000_000));
        assert_eq!(after.nanos(), before.nanos() + 1);
    }

    proptest! {
        #[test]
        fn stamps_only_rise_and_pass_what_was_adopted(events in prop::collection::vec((any::<bool>(), 0u64..1_000_000), 1..100)) {
            let mut clock = HybridClock::default();
            let skew = Duration::from_nanos(1_000);
            let (mut last, mut wall) = (Stamp::default(), Stamp::default());
            for (remote, at) in events {
                if remote {
                    let stamp = Stamp::from_nanos(at);
                    match clock.observe(stamp, wall, skew) {
                        Observed::Adopted => prop_assert!(clock.tick(wall) > stamp),
                        Observed::Skewed(by) => prop_assert!(by > skew),
                    }
                } else {
                    wall = Stamp::from_nanos(at);
                    let stamp = clock.tick(wall);
                    prop_assert!(stamp > last && stamp >= wall);
                    last = stamp;
                }
            }
        }
    }
}
