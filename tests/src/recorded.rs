//! What the teammates of `fixtures/agents/record.sh` were given: one file a turn, whole or not there. This is the
//! agents' own word on what was injected, whatever Posthouse's history says.

use std::collections::BTreeMap;
use std::path::Path;
use std::time::Instant;

use serde_json::Value;

use crate::cluster::PATIENCE;
use crate::repository;

/// The command of a teammate that records its turns in `dir`.
pub fn recorder(dir: &Path) -> Vec<String> {
    vec![repository::agent("record.sh"), dir.display().to_string()]
}

/// All turns recorded in `dir`, in no order.
pub fn turns(dir: &Path) -> Vec<Value> {
    let entries = std::fs::read_dir(dir).expect("list the recorded turns").flatten();
    entries
        .filter(|entry| entry.file_name().to_string_lossy().starts_with("turn-"))
        .map(|entry| {
            serde_json::from_slice(&std::fs::read(entry.path()).expect("read a turn"))
                .expect("a turn is JSON")
        })
        .collect()
}

/// Each message that was injected: its attempts, one for each turn that it was part of, rising.
pub fn attempts(dir: &Path) -> BTreeMap<String, Vec<u64>> {
    let mut attempts: BTreeMap<String, Vec<u64>> = BTreeMap::new();
    for turn in turns(dir) {
        for message in turn["messages"].as_array().into_iter().flatten() {
            let id = message["id"].as_str().expect("a message has an id").to_owned();
            attempts
                .entry(id)
                .or_default()
                .push(message["attempt"].as_u64().expect("a message has an attempt"));
        }
    }
    attempts.values_mut().for_each(|attempts| attempts.sort_unstable());
    attempts
}

/// Panics if a message was injected twice under the same attempt: only an interrupted turn may show it again, and
/// then marked as the next attempt.
pub fn assert_injected_once(dir: &Path) {
    for (id, attempts) in attempts(dir) {
        assert!(
            attempts.windows(2).all(|pair| pair[0] < pair[1]),
            "message {id} was injected as attempts {attempts:?}"
        );
    }
}

/// Waits until a file is there, and gives its text.
pub fn wait_for_file(path: &Path) -> String {
    let started = Instant::now();
    loop {
        if let Ok(text) = std::fs::read_to_string(path) {
            return text;
        }
        assert!(started.elapsed() < PATIENCE, "{} did not appear", path.display());
        std::thread::park_timeout(std::time::Duration::from_millis(5));
    }
}
