//! The contract of a journal, which each of its implementations is held to.

use posthouse_coordinator::authority::Decision;
use posthouse_coordinator::journal::{Head, Journal, JournalError, Record, Snapshot};
use posthouse_shared::clock::Stamp;

/// So many entries of one append, after `head`.
pub fn records(head: &Head, term: u64, count: u64, tag: &str) -> Vec<Record> {
    let (mut head, group) = (head.clone(), head.index + 1);
    let one = |n| {
        let decision = Decision::Cluster { id: format!("{tag}-{n}") };
        let record = Record::after(&head, term, group, Stamp::from_nanos(n), None, decision).unwrap();
        head = record.head();
        record
    };
    (0..count).map(one).collect()
}

/// What every journal must do. `reopen` gives the same journal again.
pub fn contract(mut reopen: impl FnMut() -> Box<dyn Journal>) {
    let mut journal = reopen();
    let empty = journal.load().unwrap();
    assert_eq!((empty.head(), empty.records.len()), (Head::default(), 0));
    let first = records(&Head::default(), 1, 3, "a");
    journal.append(&first).unwrap();
    journal.append(&[]).unwrap();
    let second = records(&first[2].head(), 1, 2, "b");
    journal.append(&second).unwrap();
    let stale = journal.append(&records(&first[2].head(), 1, 1, "c"));
    assert!(matches!(stale, Err(JournalError::OutOfOrder { index: 4, end: 5 })), "{stale:?}");
    drop(journal);

    let mut journal = reopen();
    let loaded = journal.load().unwrap();
    assert_eq!(loaded.records, [first, second].concat());
    let state = br#"{"some":"state"}"#.to_vec();
    let early = Snapshot { head: loaded.records[0].head(), state: state.clone() };
    assert!(journal.snapshot(&early).is_err(), "a snapshot is of the journal's end");
    let kept = Snapshot { head: loaded.head(), state };
    journal.snapshot(&kept).unwrap();
    drop(journal);

    let mut journal = reopen();
    let loaded = journal.load().unwrap();
    assert_eq!((loaded.snapshot.as_ref(), loaded.records.len()), (Some(&kept), 0));
    let third = records(&loaded.head(), 1, 4, "d");
    journal.append(&third).unwrap();
    drop(journal);
    let loaded = reopen().load().unwrap();
    assert_eq!((loaded.snapshot, loaded.records), (Some(kept), third));
}
