//! Many threads and many processes on one mailbox, with kill -9. Children are this test binary again: the test
//! `child` does what the environment asks and passes otherwise.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    missing_docs,
    reason = "tests"
)]

mod support;

use std::collections::{BTreeMap, BTreeSet};
use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Barrier, Mutex, mpsc};
use std::time::{Duration, Instant};

use posthouse_node::mailbox::{Batch, Delivered, Mailbox, Marks};
use support::{Dice, House, bodies, claim_bodies, message, seeds};

const ROLE: &str = "POSTHOUSE_TEST_ROLE";

fn spawn(role: &str, data: &Path, arguments: &str) -> Child {
    Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "child", "--nocapture"])
        .env(ROLE, role)
        .env("POSTHOUSE_TEST_DATA", data)
        .env("POSTHOUSE_TEST_ARGUMENTS", arguments)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap()
}

/// Prints one line that the parent can tell from the test harness's own.
fn say(line: &str) {
    let mut out = std::io::stdout().lock();
    writeln!(out, "\n> {line}").and_then(|()| out.flush()).unwrap();
}

fn said(child: &mut Child) -> impl Iterator<Item = String> + use<> {
    let lines = BufReader::new(child.stdout.take().unwrap()).lines();
    lines.map_while(Result::ok).filter_map(|line| line.strip_prefix("> ").map(str::to_owned))
}

#[test]
fn child() {
    let Ok(role) = std::env::var(ROLE) else { return };
    let house = House::at(Path::new(&std::env::var("POSTHOUSE_TEST_DATA").unwrap()));
    let arguments = std::env::var("POSTHOUSE_TEST_ARGUMENTS").unwrap();
    let mailbox = house.mailbox();
    match role.as_str() {
        "claim" => claim_on_word(&mailbox),
        "deliver" => deliver_for_ever(&mailbox, &arguments),
        other => panic!("no role {other}"),
    }
}

/// Reads the names, says so, waits for a line, claims one.
fn claim_on_word(mailbox: &Mailbox) {
    mailbox.counts().unwrap();
    say("loaded");
    std::io::stdin().read_line(&mut String::new()).unwrap();
    say(&bodies(&mailbox.claim(Batch::ONE).unwrap()).join(","));
}

/// One thread a sender; `arguments` are `sender:first number` pairs.
fn deliver_for_ever(mailbox: &Mailbox, arguments: &str) {
    std::thread::scope(|scope| {
        for pair in arguments.split(',') {
            let (sender, first) = pair.split_once(':').unwrap();
            let mut seq: u64 = first.parse().unwrap();
            scope.spawn(move || {
                loop {
                    mailbox.deliver(&message(sender, seq), Marks::NONE).unwrap();
                    say(&format!("{sender} {seq}"));
                    seq += 1;
                }
            });
        }
    });
}

#[test]
fn twelve_concurrent_claims_in_threads_get_twelve_different_messages() {
    let dir = tempfile::tempdir().unwrap();
    let mailbox = House::at(dir.path()).mailbox();
    for seq in 1..=12 {
        mailbox.deliver(&message("a", seq), Marks::NONE).unwrap();
    }
    let start = Barrier::new(12);
    let got: Mutex<BTreeSet<String>> = Mutex::default();
    std::thread::scope(|scope| {
        for _ in 0..12 {
            scope.spawn(|| {
                start.wait();
                got.lock().unwrap().extend(bodies(&mailbox.claim(Batch::ONE).unwrap()));
            });
        }
    });
    assert_eq!(got.lock().unwrap().len(), 12);
    assert!(claim_bodies(&mailbox).is_empty());
}

#[test]
fn twelve_concurrent_claims_in_processes_get_twelve_different_messages() {
    let dir = tempfile::tempdir().unwrap();
    let mailbox = House::at(dir.path()).mailbox();
    for seq in 1..=12 {
        mailbox.deliver(&message("a", seq), Marks::NONE).unwrap();
    }
    let mut children: Vec<_> = (0..12).map(|_| spawn("claim", dir.path(), "")).collect();
    let mut lines: Vec<_> = children.iter_mut().map(said).collect();
    for line in &mut lines {
        assert_eq!(line.next().unwrap(), "loaded");
    }
    for child in &mut children {
        child.stdin.take().unwrap().write_all(b"go\n").unwrap();
    }
    let got: Vec<String> = lines.iter_mut().map(|line| line.next().unwrap()).collect();
    for child in &mut children {
        assert!(child.wait().unwrap().success());
    }
    assert_eq!(got.iter().collect::<BTreeSet<_>>().len(), 12, "{got:?}");
    assert!(got.iter().all(|body| body.starts_with("a ")), "{got:?}");
    assert!(claim_bodies(&mailbox).is_empty());
}

#[test]
fn at02_of_64_concurrent_writers_in_killed_processes_every_accepted_message_is_in_exactly_one_state() {
    let seed = seeds(1)[0];
    eprintln!("SEED={seed}");
    let mut dice = Dice(seed);
    let dir = tempfile::tempdir().unwrap();
    let house = House::at(dir.path());
    let mailbox = house.mailbox();
    let accepted: Arc<Mutex<BTreeMap<String, u64>>> = Arc::default();
    let until = Instant::now() + Duration::from_secs(6);
    let mut round = 0;
    while Instant::now() < until {
        round += 1;
        let mut children = Vec::new();
        for process in 0..4 {
            let known = accepted.lock().unwrap().clone();
            let senders: Vec<String> = (0..16)
                .map(|n| format!("w{}", process * 16 + n))
                .map(|sender| format!("{sender}:{}", known.get(&sender).copied().unwrap_or(0) + 1))
                .collect();
            children.push(spawn("deliver", dir.path(), &senders.join(",")));
        }
        let (first, started) = mpsc::sync_channel(64);
        let readers: Vec<_> = children
            .iter_mut()
            .map(|child| {
                let (lines, accepted, first) = (said(child), Arc::clone(&accepted), first.clone());
                std::thread::spawn(move || {
                    for line in lines {
                        let (sender, seq) = line.split_once(' ').unwrap();
                        let seq: u64 = seq.parse().unwrap();
                        let before = accepted.lock().unwrap().insert(sender.to_owned(), seq);
                        assert_eq!(before.unwrap_or(0) + 1, seq, "{sender} was accepted out of order");
                        let _nobody_waits_any_more = first.try_send(());
                    }
                })
            })
            .collect();
        // Each process is killed some time after work has begun; meanwhile messages are claimed and ended.
        for child in &mut children {
            started.recv_timeout(Duration::from_secs(30)).unwrap();
            for _ in 0..dice.roll(20) {
                let claimed = mailbox.claim(Batch { messages_max: 5, ..support::all() }).unwrap();
                let leases: Vec<_> = claimed.iter().map(|c| c.lease).collect();
                mailbox.ack(&leases[..leases.len() / 2]).unwrap();
            }
            child.kill().unwrap();
            child.wait().unwrap();
        }
        readers.into_iter().for_each(|reader| reader.join().unwrap());
    }
    drop(mailbox);
    let accepted = accepted.lock().unwrap().clone();
    let total: u64 = accepted.values().sum();
    eprintln!("{round} rounds, {total} accepted");
    assert!(accepted.len() == 64 && total > 500, "{total} by {}", accepted.len());
    let mailbox = house.clone().incarnation(2).mailbox();
    let counts = mailbox.counts().unwrap();
    let mut where_is: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for state in ["ready", "processing", "done", "quarantine"] {
        for entry in std::fs::read_dir(mailbox.dir().join(state)).unwrap() {
            let name = entry.unwrap().file_name().into_string().unwrap();
            let id = name.split('.').nth(5).unwrap_or_else(|| panic!("{state}/{name}")).to_owned();
            where_is.entry(id).or_default().push(state.to_owned());
        }
    }
    for (sender, last) in &accepted {
        for seq in 1..=*last {
            let id = message(sender, seq).envelope.id.0.as_simple().to_string();
            let states = where_is.get(&id).cloned().unwrap_or_default();
            assert_eq!(states.len(), 1, "SEED={seed} {sender} {seq} is in {states:?}");
        }
    }
    assert_eq!(counts.quarantined, 0);
    assert_eq!(std::fs::read_dir(mailbox.dir().join("tmp")).unwrap().count(), 0, "tmp is swept");
    // And none is taken twice: what was accepted last is known.
    for (sender, last) in &accepted {
        assert!(matches!(mailbox.deliver(&message(sender, *last), Marks::NONE), Ok(Delivered::Duplicate(_))));
    }
}

#[test]
fn sixty_four_threads_deliver_and_others_claim_and_each_message_is_handed_out_once_in_order() {
    let dir = tempfile::tempdir().unwrap();
    let mailbox = House::at(dir.path()).mailbox();
    let got: Mutex<BTreeMap<String, Vec<u64>>> = Mutex::default();
    let left = std::sync::atomic::AtomicU64::new(64);
    std::thread::scope(|scope| {
        for n in 0..64 {
            let (mailbox, left) = (&mailbox, &left);
            scope.spawn(move || {
                for seq in 1..=20 {
                    mailbox.deliver(&message(&format!("w{n}"), seq), Marks::NONE).unwrap();
                    // A retry that comes at the same time, or later, is a duplicate.
                    assert!(matches!(
                        mailbox.deliver(&message(&format!("w{n}"), seq), Marks::NONE),
                        Ok(Delivered::Duplicate(_))
                    ));
                }
                left.fetch_sub(1, std::sync::atomic::Ordering::SeqCst);
            });
        }
        scope.spawn(|| {
            loop {
                let ended = left.load(std::sync::atomic::Ordering::SeqCst) == 0;
                let claimed = mailbox.claim(Batch { messages_max: 7, ..support::all() }).unwrap();
                if claimed.is_empty() && ended {
                    return;
                }
                let leases: Vec<_> = claimed.iter().map(|c| c.lease).collect();
                for c in claimed {
                    let envelope = c.message.envelope;
                    got.lock()
                        .unwrap()
                        .entry(envelope.from.agent.to_string())
                        .or_default()
                        .push(envelope.lane.unwrap().seq);
                }
                mailbox.ack(&leases).unwrap();
                std::thread::yield_now();
            }
        });
    });
    let expected: Vec<u64> = (1..=20).collect();
    let got = got.lock().unwrap();
    assert!(got.len() == 64 && got.values().all(|seqs| *seqs == expected), "{got:?}");
}

#[test]
fn the_same_message_delivered_by_eight_threads_at_once_is_stored_once() {
    let dir = tempfile::tempdir().unwrap();
    let mailbox = House::at(dir.path()).mailbox();
    let stored = Mutex::new(0);
    for seq in 1..=20 {
        let start = Barrier::new(8);
        std::thread::scope(|scope| {
            for _ in 0..8 {
                scope.spawn(|| {
                    start.wait();
                    if mailbox.deliver(&message("a", seq), Marks::NONE).unwrap() == Delivered::Stored {
                        *stored.lock().unwrap() += 1;
                    }
                });
            }
        });
    }
    assert_eq!(*stored.lock().unwrap(), 20);
    assert_eq!(claim_bodies(&mailbox).len(), 20);
}
