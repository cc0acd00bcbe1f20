//! Pauses between attempts: doubling from `retry_ms_min` up to `retry_ms_max`, each shortened by up to a
//! quarter so that many teammates do not try again at the same moment. Pure: the jitter comes from a seed.

use std::time::Duration;

use posthouse_shared::limits::Limits;
use sha2::{Digest, Sha256};

/// The pauses of one series of failures. Never ends.
#[derive(Debug, Clone)]
pub struct Pauses {
    seed: String,
    min_ms: u64,
    max_ms: u64,
    count: u32,
}

impl Pauses {
    /// A series; `seed` makes its jitter.
    pub fn new(limits: &Limits, seed: impl Into<String>) -> Self {
        let max_ms = limits.retry_ms_max.max(limits.retry_ms_min);
        Self { seed: seed.into(), min_ms: limits.retry_ms_min, max_ms, count: 0 }
    }

    /// Begins the series anew, after a success.
    pub const fn reset(&mut self) {
        self.count = 0;
    }

    /// The next pause.
    pub fn pause(&mut self) -> Duration {
        let doubled = 1u64.checked_shl(self.count).unwrap_or(u64::MAX).saturating_mul(self.min_ms);
        let whole = doubled.min(self.max_ms);
        self.count = self.count.saturating_add(1).min(63);
        let digest = Sha256::digest(format!("{}\0{}", self.seed, self.count));
        let random = u64::from(digest.first().copied().unwrap_or(0));
        Duration::from_millis(whole - whole / 4 * random / 255)
    }
}

impl Iterator for Pauses {
    type Item = Duration;
    fn next(&mut self) -> Option<Duration> {
        Some(self.pause())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pauses_double_up_to_the_limit_and_never_pass_it() {
        let limits = Limits { retry_ms_min: 100, retry_ms_max: 1_000, ..Limits::default() };
        let pauses: Vec<u128> = Pauses::new(&limits, "a").take(100).map(|pause| pause.as_millis()).collect();
        assert!((75..=100).contains(&pauses[0]) && (150..=200).contains(&pauses[1]), "{pauses:?}");
        assert!(pauses[4..].iter().all(|ms| (750..=1_000).contains(ms)), "{pauses:?}");
        let other: Vec<u128> = Pauses::new(&limits, "b").take(100).map(|pause| pause.as_millis()).collect();
        assert_ne!(pauses, other);
    }
}
