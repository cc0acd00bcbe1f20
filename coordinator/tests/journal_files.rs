//! The journal in files: what chains is read back, what is torn is healed, what is damaged is reported, and
//! nothing durable is lost silently.

#![allow(
    clippy::unwrap_used,
    clippy::panic,
    clippy::indexing_slicing,
    clippy::disallowed_methods,
    reason = "tests damage files on purpose"
)]

#[path = "../../tests/src/journal.rs"]
mod contract;

use std::path::{Path, PathBuf};
use std::sync::Arc;

use posthouse_coordinator::authority::Decision;
use posthouse_coordinator::journal::{FilesJournal, Head, Journal, JournalError, Record, Snapshot};
use posthouse_shared::clock::Stamp;
use posthouse_shared::durable::simulated::SimulatedDisk;
use posthouse_shared::durable::{CrashPoints, Files};
use proptest::prelude::*;

fn records(head: &Head, count: u64, tag: &str) -> Vec<Record> {
    let (mut head, group) = (head.clone(), head.index + 1);
    (0..count)
        .map(|n| {
            let decision = Decision::Cluster { id: format!("{tag}-{n} {}", "x".repeat(40)) };
            let record = Record::after(&head, 1, group, Stamp::from_nanos(n), None, decision).unwrap();
            head = record.head();
            record
        })
        .collect()
}

fn open(files: &Files, dir: &Path) -> FilesJournal {
    FilesJournal::open(files.clone(), dir.to_owned()).unwrap()
}

#[test]
fn files_on_a_simulated_disk_keep_the_contract_of_a_journal() {
    let files = Files::new(Arc::new(SimulatedDisk::new()), CrashPoints::none());
    contract::contract(|| Box::new(open(&files, Path::new("/journal"))));
}

/// A journal of groups of 1, 2, 3 ... entries, and its one segment.
fn written(dir: &Path, groups: u64) -> (Vec<Record>, PathBuf) {
    let mut journal = open(&Files::real(), dir);
    let mut all: Vec<Record> = journal.load().unwrap().records;
    for n in 1..=groups {
        let head = all.last().map(Record::head).unwrap_or_default();
        let group = records(&head, n, "g");
        journal.append(&group).unwrap();
        all.extend(group);
    }
    (all, dir.join(format!("{:020}.jsonl", 1)))
}

#[test]
fn an_entry_that_was_changed_is_named_with_its_file() {
    let dir = tempfile::tempdir().unwrap();
    let (_, segment) = written(dir.path(), 4);
    let text = std::fs::read_to_string(&segment).unwrap();
    std::fs::write(&segment, text.replacen("g-1", "g-7", 1)).unwrap();
    let error = open(&Files::real(), dir.path()).load().unwrap_err();
    match &error {
        JournalError::Broken { file, index, .. } => assert_eq!((file, *index), (&segment, 3)),
        other => panic!("{other}"),
    }
    assert_eq!(error.refusal().code, posthouse_shared::codes::Code::JournalBroken);
}

#[test]
fn a_damaged_snapshot_costs_a_longer_replay_and_nothing_else() {
    let dir = tempfile::tempdir().unwrap();
    let mut journal = open(&Files::real(), dir.path());
    let mut head = journal.load().unwrap().head();
    for n in 0..4 {
        let group = records(&head, 5, "s");
        journal.append(&group).unwrap();
        head = group[4].head();
        journal.snapshot(&Snapshot { head: head.clone(), state: format!("{n}").into_bytes() }).unwrap();
    }
    let mut names: Vec<_> = std::fs::read_dir(dir.path())
        .unwrap()
        .map(|e| e.unwrap().file_name().into_string().unwrap())
        .collect();
    names.sort();
    let name = |n: u64| format!("snapshot-{n:020}.json");
    assert_eq!(names, [format!("{:020}.jsonl", 16), name(15), name(20)], "what is covered twice is pruned");
    let newest = dir.path().join(name(20));
    let mut bytes = std::fs::read(&newest).unwrap();
    let at = bytes.len() - 2;
    bytes[at] ^= 1;
    std::fs::write(&newest, bytes).unwrap();
    let loaded = open(&Files::real(), dir.path()).load().unwrap();
    assert_eq!(loaded.snapshot.as_ref().map(|s| s.head.index), Some(15));
    assert_eq!((loaded.records.len(), loaded.head()), (5, head));
    std::fs::remove_file(dir.path().join(format!("{:020}.jsonl", 16))).unwrap();
    assert!(open(&Files::real(), dir.path()).load().is_err(), "lost entries are reported");
}

#[test]
fn a_full_disk_refuses_and_goes_on_when_there_is_room() {
    let disk = SimulatedDisk::new();
    let files = Files::new(Arc::new(disk.clone()), CrashPoints::none());
    let mut journal = open(&files, Path::new("/journal"));
    let first = records(&journal.load().unwrap().head(), 2, "a");
    journal.append(&first).unwrap();
    let second = records(&first[1].head(), 3, "b");
    disk.set_room(Some(150));
    assert!(matches!(journal.append(&second), Err(JournalError::Disk(_))));
    disk.set_room(None);
    journal.append(&second).unwrap();
    assert_eq!(open(&files, Path::new("/journal")).load().unwrap().records, [first, second].concat());
}

proptest! {
    #[test]
    fn a_journal_that_was_cut_anywhere_keeps_all_whole_entries(cut in any::<prop::sample::Index>()) {
        let dir = tempfile::tempdir().unwrap();
        let (all, segment) = written(dir.path(), 4);
        let bytes = std::fs::read(&segment).unwrap();
        let cut = cut.index(bytes.len() + 1);
        std::fs::write(&segment, &bytes[..cut]).unwrap();
        let mut journal = open(&Files::real(), dir.path());
        let loaded = journal.load().unwrap();
        let mut ends = all.iter().scan(0, |end, record| { *end += record.line.len() + 1; Some(*end) });
        let whole = ends.by_ref().take_while(|end| end - 1 <= cut).count();
        prop_assert_eq!(&loaded.records[..], &all[..whole]);
        let more = records(&loaded.head(), 2, "z");
        journal.append(&more).unwrap();
        let again = open(&Files::real(), dir.path()).load().unwrap();
        prop_assert_eq!(again.records.len(), whole + 2);
    }

    #[test]
    fn a_flipped_bit_is_healed_or_reported_and_loses_nothing(at in any::<prop::sample::Index>(), bit in 0u8..8) {
        let dir = tempfile::tempdir().unwrap();
        let (all, segment) = written(dir.path(), 4);
        let mut bytes = std::fs::read(&segment).unwrap();
        let at = at.index(bytes.len());
        bytes[at] ^= 1 << bit;
        std::fs::write(&segment, &bytes).unwrap();
        match open(&Files::real(), dir.path()).load() {
            Ok(loaded) => prop_assert_eq!(loaded.records, all),
            Err(JournalError::Broken { .. }) => {}
            Err(other) => prop_assert!(false, "{other}"),
        }
    }

    #[test]
    fn power_loss_keeps_every_entry_that_append_returned_for(
        seed in any::<u64>(),
        groups in prop::collection::vec((1u64..5, any::<bool>()), 1..8),
        point in prop::sample::select(vec![
            "journal.appended", "place.begin", "place.written", "place.renamed", "place.synced",
            "journal.snapshot.placed", "journal.snapshot.pruned",
        ]),
        times in 1u64..6,
    ) {
        let disk = SimulatedDisk::new();
        let off = disk.clone();
        let points = CrashPoints::at(&format!("{point}:{times}"), move |_| off.cut());
        let files = Files::new(Arc::new(disk.clone()), points);
        let dir = Path::new("/journal");
        let mut journal = open(&files, dir);
        let mut head = journal.load().unwrap().head();
        for (count, snapshot) in groups {
            let group = records(&head, count, "p");
            if journal.append(&group).is_err() { break; }
            head = group.last().unwrap().head();
            if snapshot && journal.snapshot(&Snapshot { head: head.clone(), state: b"{}".to_vec() }).is_err() {
                break;
            }
        }
        disk.power_loss(seed);
        let files = Files::new(Arc::new(disk), CrashPoints::none());
        let mut journal = open(&files, dir);
        let loaded = journal.load().unwrap();
        prop_assert!(loaded.head().index >= head.index, "{} entries of {}", loaded.head().index, head.index);
        journal.append(&records(&loaded.head(), 1, "q")).unwrap();
    }
}
