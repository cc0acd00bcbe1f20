//! Whether a process lives: what tests of clean-up ask. Signals nobody.

use std::time::{Duration, Instant};

use crate::cluster::PATIENCE;

/// Whether a process of this id lives; one that has ended and was not waited for does not.
pub fn alive(pid: u32) -> bool {
    let Ok(stat) = std::fs::read_to_string(format!("/proc/{pid}/stat")) else { return false };
    let state = stat.rsplit_once(')').and_then(|(_, rest)| rest.split_whitespace().next());
    !matches!(state, None | Some("Z" | "X"))
}

/// Waits until a process has ended.
pub fn wait_until_ended(pid: u32) {
    let started = Instant::now();
    while alive(pid) {
        assert!(started.elapsed() < PATIENCE, "process {pid} lives on");
        std::thread::park_timeout(Duration::from_millis(10));
    }
}
