//! What the teammates of `fixtures/agents/record.sh` were given: one file a turn, whole or not there. This is the
//! agents' own word on what was injected, whatever Posthouse's history says.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::time::Instant;

use serde_json::Value;

use crate::cluster::PATIENCE;
use crate::repository;

/// The command of a teammate that records its turns in `dir`.
pub fn recorder(dir: &Path) -> Vec<String> {
    vec![repository::agent("record.sh"), dir.display().to_string()]
}

/// All turns recorded in `dir`, in no order. One whose input is not whole was never begun: its node was killed while
/// it wrote it.
pub fn turns(dir: &Path) -> Vec<Value> {
    let entries = std::fs::read_dir(dir).expect("list the recorded turns").flatten();
    entries
        .filter(|entry| entry.file_name().to_string_lossy().starts_with("turn-"))
        .filter_map(|entry| serde_json::from_slice(&std::fs::read(entry.path()).expect("read a turn")).ok())
        .collect()
}

/// Each message that was injected: (delivery, attempt), one for each turn that it was part of, rising. A delivery is
/// a person's; an attempt follows an interrupted one.
pub fn attempts(dir: &Path) -> BTreeMap<String, Vec<(u64, u64)>> {
    let mut attempts: BTreeMap<String, Vec<(u64, u64)>> = BTreeMap::new();
    for turn in turns(dir) {
        for message in turn["messages"].as_array().into_iter().flatten() {
            let id = message["id"].as_str().expect("a message has an id").to_owned();
            let number = |key: &str| message[key].as_u64().expect("a message counts deliveries and attempts");
            attempts.entry(id).or_default().push((number("delivery"), number("attempt")));
        }
    }
    attempts.values_mut().for_each(|attempts| attempts.sort_unstable());
    attempts
}

/// Panics if a message was injected twice under the same delivery and attempt: only an interrupted turn may show it
/// again, and then marked as the next attempt.
pub fn assert_injected_once(dir: &Path) {
    for (id, attempts) in attempts(dir) {
        let rising = attempts.windows(2).all(|pair| pair[0] < pair[1]);
        assert!(rising, "message {id} was injected as (delivery, attempt) {attempts:?}");
    }
}

/// Panics if a history of this data directory holds an input twice. Gives how many inputs there are.
pub fn assert_histories_hold_inputs_once(data: &Path) -> usize {
    let mut inputs = BTreeSet::new();
    for team in std::fs::read_dir(data.join("history")).expect("list histories").flatten() {
        for file in std::fs::read_dir(team.path()).expect("list histories").flatten() {
            let text = std::fs::read_to_string(file.path()).expect("read a history");
            for record in text.lines().filter_map(|line| serde_json::from_str::<Value>(line).ok()) {
                if record["record"] == "input" {
                    let input = (file.path(), record["id"].to_string(), record["delivery"].to_string());
                    assert!(inputs.insert(input.clone()), "an input stands twice: {input:?}");
                }
            }
        }
    }
    inputs.len()
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

/// Waits until a file, a log say, holds this text.
pub fn wait_for_text(path: &Path, text: &str) {
    let started = Instant::now();
    while !std::fs::read_to_string(path).is_ok_and(|log| log.contains(text)) {
        assert!(started.elapsed() < PATIENCE, "{text:?} did not appear in {}", path.display());
        std::thread::park_timeout(std::time::Duration::from_millis(5));
    }
}
