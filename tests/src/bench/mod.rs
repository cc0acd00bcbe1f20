//! What `mailbox-bench` measures: each row against a raw loop of one thread (write, fsync, rename, fsync of the
//! directory) that runs in the same round, rounds interleaved, medians reported.
//!
//! | file | what it holds |
//! |---|---|
//! | [`device`] | flushes that the device counted, the file system and the machine |
//! | [`ground`] | directories, messages, mailboxes to measure on |
//! | [`deliver`] | the rows of delivering, threads and processes |
//! | [`claims`] | claims of tasks, against raw synced appends |
//! | [`ends`] | claims and acks, at any backlog |
//! | [`memory`] | opening and resident memory, each in a process of its own |
//! | [`teammates`] | resident memory of teammates at rest |
//! | [`table`] | what must be reached, and whether it was |

pub mod claims;
pub mod deliver;
pub mod device;
pub mod ends;
pub mod ground;
pub mod memory;
pub mod table;
pub mod teammates;

use std::time::Duration;

/// One measurement.
#[derive(Debug, Clone, Copy)]
pub struct Sample {
    /// Messages.
    pub messages: u64,
    /// In this time.
    pub took: Duration,
    /// Flushes that the device counted meanwhile.
    pub flushes: Option<u64>,
}

impl Sample {
    /// Messages a second.
    pub fn rate(&self) -> f64 {
        self.messages as f64 / self.took.as_secs_f64().max(1e-9)
    }

    /// Flushes a message.
    pub fn flushes_a_message(&self) -> Option<f64> {
        self.flushes.map(|flushes| flushes as f64 / self.messages.max(1) as f64)
    }
}

/// The middle one; of an even count the lower.
pub fn median(mut values: Vec<f64>) -> Option<f64> {
    values.sort_by(f64::total_cmp);
    let middle = values.len().checked_sub(1)? / 2;
    values.get(middle).copied()
}
