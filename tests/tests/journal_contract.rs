//! The journal of a cluster against a real NATS server: one writer, copies that mend the stream, and outcomes
//! that are found out rather than guessed.

#![allow(
    clippy::unwrap_used,
    clippy::panic,
    clippy::indexing_slicing,
    clippy::disallowed_methods,
    reason = "a test"
)]

use std::path::Path;

use posthouse_coordinator::journal::{
    ClusterJournal, ClusterOptions, FilesJournal, Head, Journal, JournalError, Record, Snapshot, Stream,
};
use posthouse_node::link::jetstream::NatsLink;
use posthouse_shared::durable::Files;
use posthouse_shared::generation::Generation;
use posthouse_tests::journal::{contract, records as group};
use posthouse_tests::nats::Nats;
use tokio::runtime::Runtime;

struct Bus {
    runtime: Runtime,
    link: NatsLink,
    nats: Nats,
}

impl Bus {
    fn start() -> Option<Self> {
        let nats = Nats::start()?;
        let runtime =
            tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
        let link = runtime.block_on(NatsLink::connect(nats.url(), "test")).unwrap();
        let bus = Self { runtime, link, nats };
        bus.connected();
        Some(bus)
    }

    fn connected(&self) {
        let wait = std::time::Duration::from_secs(10);
        self.runtime.block_on(self.link.check_server(wait)).unwrap();
        let until = async { while self.link.context().query_account().await.is_err() {} };
        self.runtime.block_on(async { tokio::time::timeout(wait, until).await }).unwrap();
    }

    fn journal(&self, dir: &Path, change: impl FnOnce(&mut ClusterOptions)) -> ClusterJournal {
        let mut options = ClusterOptions {
            stream: Stream::new(self.link.context().clone()),
            local: FilesJournal::open(Files::real(), dir.to_owned()).unwrap(),
            runtime: self.runtime.handle().clone(),
            init: false,
            seen: Generation::default(),
            accept_loss: false,
            replicas: 1,
        };
        change(&mut options);
        ClusterJournal::new(options)
    }

    fn begun(&self, dir: &Path) -> ClusterJournal {
        let mut journal = self.journal(dir, |options| options.init = true);
        journal.load().unwrap();
        journal
    }

    /// Deletes the stream, and has the first `keep` of its messages again, as a server that lost its tail.
    fn lose_tail(&self, keep: usize) {
        self.runtime.block_on(async {
            let stream = self.link.context().get_stream("PH_JOURNAL").await.unwrap();
            let config = stream.cached_info().config.clone();
            let mut kept = Vec::new();
            for sequence in 1..=u64::try_from(keep).unwrap() {
                kept.push(stream.get_raw_message(sequence).await.unwrap());
            }
            self.link.context().delete_stream("PH_JOURNAL").await.unwrap();
            self.link.context().create_stream(config).await.unwrap();
            for message in kept {
                let sent = self.link.context().publish(message.subject, message.payload).await.unwrap();
                sent.await.unwrap();
            }
        });
    }
}

fn lines(records: &[Record]) -> Vec<Vec<u8>> {
    records.iter().map(|record| record.line.clone()).collect()
}

#[test]
fn files_keep_the_contract_of_a_journal() {
    let dir = tempfile::tempdir().unwrap();
    contract(|| Box::new(FilesJournal::open(Files::real(), dir.path().to_owned()).unwrap()));
}

#[test]
fn a_journal_of_a_cluster_keeps_the_contract_of_a_journal() {
    let Some(bus) = Bus::start() else { return };
    let dir = tempfile::tempdir().unwrap();
    contract(|| Box::new(bus.journal(dir.path(), |options| options.init = true)));
}

#[test]
fn a_second_copy_gets_all_and_the_old_writer_is_fenced_by_its_next_append() {
    let Some(bus) = Bus::start() else { return };
    let (a, b) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let mut old = bus.begun(a.path());
    let first = group(&Head::default(), 1, 3, "a");
    old.append(&first).unwrap();
    let mut new = bus.journal(b.path(), |_| {});
    assert_eq!(lines(&new.load().unwrap().records), lines(&first));
    let taken = group(&first[2].head(), 2, 1, "b leads");
    new.append(&taken).unwrap();
    let late = group(&first[2].head(), 1, 1, "a still writes");
    for _ in 0..2 {
        let refused = old.append(&late);
        assert!(matches!(refused, Err(JournalError::Fenced)), "{refused:?}");
    }
    drop(old);
    // What was refused is nowhere, and the old one follows.
    let again = bus.journal(a.path(), |_| {}).load().unwrap();
    assert_eq!(lines(&again.records), lines(&[first, taken].concat()));
}

#[test]
fn of_two_candidates_at_once_one_appends_and_the_other_is_fenced() {
    let Some(bus) = Bus::start() else { return };
    let (a, b) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let (mut one, mut other) = (bus.begun(a.path()), bus.begun(b.path()));
    let (one, other) = (&mut one, &mut other);
    let (barrier, head) = (std::sync::Barrier::new(2), Head::default());
    let results = std::thread::scope(|scope| {
        let (barrier, head) = (&barrier, &head);
        let race = move |journal: &mut ClusterJournal, tag| {
            barrier.wait();
            journal.append(&group(head, 1, 2, tag))
        };
        let one = scope.spawn(move || race(one, "one"));
        let other = scope.spawn(move || race(other, "other"));
        [one.join().unwrap(), other.join().unwrap()]
    });
    assert_eq!(results.iter().filter(|result| result.is_ok()).count(), 1, "{results:?}");
    assert!(results.iter().any(|result| matches!(result, Err(JournalError::Fenced))), "{results:?}");
}

#[test]
fn a_stream_that_lost_its_tail_fences_the_writer_and_is_mended_from_the_copy() {
    let Some(bus) = Bus::start() else { return };
    let dir = tempfile::tempdir().unwrap();
    let mut journal = bus.begun(dir.path());
    let mut all = Vec::new();
    for n in 0..5 {
        let head = all.last().map(Record::head).unwrap_or_default();
        let group = group(&head, 1 + n / 3, 2, &format!("g{n}"));
        journal.append(&group).unwrap();
        all.extend(group);
    }
    bus.lose_tail(2);
    let next = group(&all[9].head(), 2, 1, "next");
    assert!(matches!(journal.append(&next), Err(JournalError::TailLost)));
    drop(journal);
    let blank = tempfile::tempdir().unwrap();
    // Who has only what the stream has stays below what the hosts have seen.
    let mut behind = bus.journal(blank.path(), |options| options.seen = Generation::new(2, 10));
    let refused = behind.load();
    assert!(matches!(refused, Err(JournalError::Behind { .. })), "{refused:?}");
    let mut mended = bus.journal(dir.path(), |options| options.seen = Generation::new(2, 10));
    assert_eq!(mended.load().unwrap().records.len(), 10);
    mended.append(&next).unwrap();
    all.extend(next);
    assert_eq!(lines(&bus.journal(blank.path(), |_| {}).load().unwrap().records), lines(&all));
}

#[test]
fn what_hosts_have_seen_and_nobody_has_is_given_up_only_when_told() {
    let Some(bus) = Bus::start() else { return };
    let (a, b) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let mut journal = bus.begun(a.path());
    let first = group(&Head::default(), 1, 1, "kept");
    journal.append(&first).unwrap();
    let lost = group(&first[0].head(), 1, 1, "lost");
    journal.append(&lost).unwrap();
    bus.lose_tail(1);
    let seen = Generation::new(1, 2);
    let mut led = bus.journal(b.path(), |options| (options.seen, options.accept_loss) = (seen, true));
    led.load().unwrap();
    led.append(&group(&first[0].head(), 2, 1, "after the loss")).unwrap();
    // The copy that had it comes back: a fork, and it is not led from either end silently.
    let fork = bus.journal(a.path(), |_| {}).load();
    assert!(matches!(fork, Err(JournalError::Fork { .. })), "{fork:?}");
}

#[test]
fn an_empty_stream_is_begun_with_init_or_from_a_copy_only() {
    let Some(bus) = Bus::start() else { return };
    let (up, blank) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let refused = bus.journal(blank.path(), |_| {}).load();
    assert!(matches!(refused, Err(JournalError::NotBegun)), "{refused:?}");
    // The data directory of an earlier `up`, longer than one message can carry.
    let mut files = FilesJournal::open(Files::real(), up.path().to_owned()).unwrap();
    files.load().unwrap();
    let mut all = Vec::new();
    for n in 0..4 {
        let head = all.last().map(Record::head).unwrap_or_default();
        let group = group(&head, 1, 900, &format!("{n}{}", "x".repeat(400)));
        files.append(&group).unwrap();
        all.extend(group);
    }
    drop(files);
    bus.journal(up.path(), |_| {}).load().unwrap();
    assert_eq!(lines(&bus.journal(blank.path(), |_| {}).load().unwrap().records), lines(&all));
}

#[test]
fn wiped_while_the_full_copy_is_away_the_stream_is_not_begun_by_a_blank_one() {
    let Some(mut bus) = Bus::start() else { return };
    let (full, blank) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let mut journal = bus.begun(full.path());
    let mut all = group(&Head::default(), 1, 3, "a");
    journal.append(&all).unwrap();
    journal.snapshot(&Snapshot { head: all[2].head(), state: b"{}".to_vec() }).unwrap();
    let more = group(&all[2].head(), 1, 2, "b");
    journal.append(&more).unwrap();
    drop(journal);
    all.extend(more);
    bus.nats.kill9();
    bus.nats.again_blank();
    bus.connected();
    let refused = bus.journal(blank.path(), |_| {}).load();
    assert!(matches!(refused, Err(JournalError::NotBegun)), "{refused:?}");
    assert_eq!(bus.journal(full.path(), |_| {}).load().unwrap().records.len(), 2, "after its snapshot");
    assert_eq!(lines(&bus.journal(blank.path(), |_| {}).load().unwrap().records), lines(&all));
}

#[test]
fn an_append_of_unknown_outcome_is_settled_when_the_bus_is_back() {
    let Some(mut bus) = Bus::start() else { return };
    let dir = tempfile::tempdir().unwrap();
    let mut journal = bus.begun(dir.path());
    let first = group(&Head::default(), 1, 1, "a");
    journal.append(&first).unwrap();
    bus.nats.kill9();
    let second = group(&first[0].head(), 1, 2, "b");
    let unknown = journal.append(&second);
    assert!(matches!(unknown, Err(JournalError::Unknown(_))), "{unknown:?}");
    let other = group(&first[0].head(), 1, 1, "in its stead");
    assert!(matches!(journal.append(&other), Err(JournalError::Unknown(_))), "not before it is settled");
    assert!(matches!(journal.catch_up(), Err(JournalError::Unknown(_))), "the bus is still away");
    bus.nats.again();
    bus.connected();
    let settled = (0..100).find_map(|_| journal.catch_up().ok()).expect("the bus is back");
    assert_eq!(lines(&settled), lines(&second));
    assert!(journal.catch_up().unwrap().is_empty());
    journal.append(&group(&second[1].head(), 1, 1, "c")).unwrap();
    assert_eq!(bus.journal(dir.path(), |_| {}).load().unwrap().records.len(), 4);
}

#[test]
fn what_does_not_chain_is_void_for_every_reader() {
    let Some(bus) = Bus::start() else { return };
    let (a, b) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let mut journal = bus.begun(a.path());
    let first = group(&Head::default(), 1, 2, "a");
    journal.append(&first).unwrap();
    drop(journal);
    let foreign = group(&group(&first[1].head(), 1, 1, "never")[0].head(), 1, 1, "foreign");
    for text in [b"no entry".to_vec(), foreign[0].line.clone(), first[1].line.clone()] {
        let sent = bus.link.context().publish("ph.journal.1", text.into());
        bus.runtime.block_on(async { sent.await.unwrap().await.unwrap() });
    }
    let mut journal = bus.journal(a.path(), |_| {});
    assert_eq!(lines(&journal.load().unwrap().records), lines(&first));
    let next = group(&first[1].head(), 1, 1, "next");
    journal.append(&next).unwrap();
    let all = [first, next].concat();
    assert_eq!(lines(&bus.journal(b.path(), |_| {}).load().unwrap().records), lines(&all));
    assert_eq!(lines(&bus.journal(a.path(), |_| {}).load().unwrap().records), lines(&all));
}
