//! Lane order between two hosts (P3): the real outbox's lanes, a bus that drops, repeats and reorders, words that are
//! lost, a small mailbox on a simulated disk, and loss of power on both sides. Each seed is one history; `SEED=n`
//! replays it.
//!
//! What must hold: a number is handed out for the first time only after all lower ones of its lane that were not
//! refused; everything that was not refused is handed out; the outbox ends empty.

#![allow(clippy::unwrap_used, clippy::panic, clippy::indexing_slicing, missing_docs, reason = "tests")]

mod support;

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use posthouse_node::mailbox::{
    After, Batch, Delivered, Mailbox, MailboxError, Marks, Reason, Release, Which,
};
use posthouse_node::outbox::lanes::{Lanes, WINDOW};
use posthouse_node::outbox::{Act, Item, Pace};
use posthouse_shared::clock::{ManualClock, Stamp};
use posthouse_shared::durable::simulated::SimulatedDisk;
use posthouse_shared::durable::{CrashPoints, Files};
use posthouse_shared::message::Sealed;
use posthouse_shared::name::{HostName, MessageId};
use posthouse_shared::wire::replies::Stage;
use support::{Dice, House, agent, claim_bodies, message, message_at, seeds};

const NAMES: [&str; 2] = ["a", "lead"];

/// What travels: a message or a question, and what its sender says goes before it.
#[derive(Debug, Clone)]
struct Flying {
    id: MessageId,
    after: Option<u64>,
    what: Act,
}

enum Word {
    Stored,
    Busy,
    Refused,
    Done,
    Unknown,
}

struct World {
    disk: SimulatedDisk,
    mailbox: Mailbox,
    lanes: Lanes,
    /// All that was accepted and is not over at the sender: its disk.
    records: BTreeMap<MessageId, (Sealed, Item)>,
    flying: Vec<Flying>,
    told: Vec<(MessageId, Word)>,
    refused: BTreeSet<MessageId>,
    ended: BTreeSet<MessageId>,
    /// By lane, in the order of first hand-outs.
    handed: BTreeMap<&'static str, Vec<u64>>,
    next: [u64; 2],
    now: Duration,
    dice: Dice,
    incarnation: u64,
    lossy: bool,
}

fn open(disk: &SimulatedDisk, incarnation: u64) -> Mailbox {
    let mut house = House::at(Path::new("/data")).incarnation(incarnation).limit("ready_per_mailbox", 6);
    house.files = Files::new(Arc::new(disk.clone()), CrashPoints::none());
    house.clock = Arc::new(ManualClock::at(Stamp::from_nanos(1_000_000_000_000)));
    house.mailbox()
}

fn lanes() -> Lanes {
    let (second, most) = (Duration::from_secs(1), Duration::from_secs(4));
    Lanes::new(Pace { resend_min: second, resend_max: most, ask_min: second, ask_max: most })
}

impl World {
    fn new(seed: u64) -> Self {
        let disk = SimulatedDisk::new();
        Files::new(Arc::new(disk.clone()), CrashPoints::none()).create_dirs(Path::new("/data")).unwrap();
        Self {
            mailbox: open(&disk, 1),
            disk,
            lanes: lanes(),
            records: BTreeMap::new(),
            flying: Vec::new(),
            told: Vec::new(),
            refused: BTreeSet::new(),
            ended: BTreeSet::new(),
            handed: BTreeMap::new(),
            next: [0; 2],
            now: Duration::ZERO,
            dice: Dice(seed),
            incarnation: 1,
            lossy: true,
        }
    }

    fn chance(&mut self, in_ten: u64) -> bool {
        self.lossy && self.dice.roll(10) < in_ten
    }

    fn step(&mut self, at: &str) {
        match self.dice.roll(12) {
            0 if self.lossy => self.accept(),
            0..=3 => self.publish(),
            4..=7 => self.arrive(),
            8 => self.hear(),
            9..=10 => self.turn(at),
            _ if self.lossy && self.dice.roll(6) == 0 => self.crash(),
            _ => {}
        }
    }

    fn accept(&mut self) {
        let lane = usize::from(self.dice.roll(2) == 1);
        self.next[lane] += 1 + self.dice.roll(2);
        // Stamps of a lane may go backwards; the numbers count.
        let sealed = message_at(NAMES[lane], self.next[lane], 1_000 + self.dice.roll(50), false);
        let envelope = &sealed.envelope;
        let item = Item {
            id: envelope.id,
            lane: envelope.lane_key().unwrap(),
            seq: self.next[lane],
            host: HostName::new("beta").unwrap(),
            handled: false,
        };
        if self.dice.roll(8) == 0 {
            self.refused.insert(item.id);
        }
        self.lanes.add(item.clone(), false, self.now);
        self.records.insert(item.id, (sealed, item));
    }

    fn publish(&mut self) {
        self.now += Duration::from_millis(300 + self.dice.roll(1_500));
        for due in self.lanes.due(self.now, 100, &mut || 0.5) {
            let flying = Flying { id: due.item.id, after: due.after, what: due.what };
            self.lanes.published(due.item.id, true);
            if self.chance(2) {
                continue;
            }
            if self.chance(2) {
                self.flying.push(flying.clone());
            }
            self.flying.push(flying);
        }
    }

    fn arrive(&mut self) {
        if self.flying.is_empty() {
            return;
        }
        let at = usize::try_from(self.dice.roll(u64::try_from(self.flying.len()).unwrap())).unwrap();
        let flying = if self.lossy { self.flying.swap_remove(at) } else { self.flying.remove(0) };
        let Some((sealed, item)) = self.records.get(&flying.id).cloned() else { return };
        let stage = |stage| match stage {
            Stage::Done | Stage::Dropped | Stage::Quarantined => Word::Done,
            Stage::Accepted | Stage::Stored | Stage::Processing | Stage::Released => Word::Stored,
        };
        let word = match flying.what {
            Act::Publish if self.refused.contains(&flying.id) => Word::Refused,
            Act::Publish => {
                let order_at = sealed.envelope.created_at;
                match self.mailbox.deliver_at(&sealed, order_at, Marks::NONE, After::Open(flying.after)) {
                    Ok(Delivered::Stored) => Word::Stored,
                    Ok(Delivered::Duplicate(where_it_is)) => stage(where_it_is),
                    Err(MailboxError::Full { .. }) => Word::Busy,
                    Err(error) => panic!("{error}"),
                }
            }
            Act::Ask => {
                self.mailbox.open_after(item.lane, item.seq, flying.after).unwrap();
                self.mailbox.stage_of(item.id, item.lane, item.seq).unwrap().map_or(Word::Unknown, stage)
            }
        };
        if !self.chance(2) {
            self.told.push((flying.id, word));
        }
    }

    fn hear(&mut self) {
        for (id, word) in std::mem::take(&mut self.told) {
            match word {
                Word::Stored => {
                    self.lanes.stored(id, self.now);
                }
                Word::Busy => self.lanes.busy(id, self.now + Duration::from_millis(500)),
                Word::Unknown => self.lanes.again(id, self.now),
                Word::Done | Word::Refused => {
                    self.lanes.remove(id, self.now);
                    self.records.remove(&id);
                }
            }
        }
    }

    fn turn(&mut self, at: &str) {
        let max = 1 + usize::try_from(self.dice.roll(4)).unwrap();
        let batch = Batch { messages_max: max, bytes_max: u64::MAX, only: Which::All };
        let claimed = self.mailbox.claim(batch).unwrap();
        for one in &claimed {
            let envelope = &one.message.envelope;
            let (name, seq) = (envelope.from.agent.as_str(), envelope.lane.unwrap().seq);
            let name = NAMES.into_iter().find(|known| *known == name).unwrap();
            let handed = self.handed.entry(name).or_default();
            assert!(!self.ended.contains(&envelope.id), "{at}: {name} {seq} was handed out again");
            if handed.contains(&seq) {
                continue;
            }
            let last = handed.last().copied().unwrap_or_default();
            assert!(last < seq, "{at}: {name} {seq} after {last}");
            handed.push(seq);
            let lower_open = self.records.values().find(|(_, item)| {
                item.lane == envelope.lane_key().unwrap()
                    && item.seq < seq
                    && !handed.contains(&item.seq)
                    && !self.refused.contains(&item.id)
            });
            assert!(lower_open.is_none(), "{at}: {name} {seq} before {lower_open:?}");
        }
        let leases: Vec<_> = claimed.iter().map(|one| one.lease).collect();
        match self.dice.roll(5) {
            0 if self.lossy => drop(self.mailbox.release(&leases, Release::Planned).unwrap()),
            1 if self.lossy => {}
            how => {
                self.ended.extend(claimed.iter().map(|one| one.lease.id()));
                if how > 2 {
                    return self.mailbox.ack(&leases).unwrap();
                }
                let reason = Reason { code: "x".to_owned(), text: String::new(), turn: None };
                self.mailbox.quarantine(&leases, &reason).unwrap();
            }
        }
    }

    /// Power is lost at one of the two ends.
    fn crash(&mut self) {
        if self.dice.roll(2) == 0 {
            self.lanes = lanes();
            for (_, item) in self.records.values() {
                self.lanes.add(item.clone(), true, self.now);
            }
        } else {
            self.restart_receiver();
        }
    }

    fn restart_receiver(&mut self) {
        self.disk.cut();
        self.disk.power_loss(self.dice.roll(1_000_000));
        self.incarnation += 1;
        self.mailbox = open(&self.disk, self.incarnation);
        let orphans: Vec<_> = self.mailbox.orphans().unwrap().iter().map(|one| one.lease).collect();
        self.mailbox.release(&orphans, Release::Planned).unwrap();
    }
}

fn run(seed: u64) {
    let at = format!("SEED={seed}");
    let mut world = World::new(seed);
    (0..400).for_each(|_| world.step(&at));
    // Healing: nothing is lost any more, and what was claimed and forgotten is released.
    world.restart_receiver();
    world.lossy = false;
    let mut steps = 0;
    while !world.lanes.is_empty() {
        world.step(&at);
        steps += 1;
        let gaps = world.mailbox.gaps().unwrap();
        assert!(steps < 20_000, "{at}: stuck with {:?}, {gaps:?}", world.lanes.counts(world.now));
        if steps % 64 == 0 {
            world.restart_receiver();
        }
    }
    assert_eq!(world.mailbox.counts().unwrap().held, 0, "{at}");
}

#[test]
fn a_lane_comes_in_order_however_the_bus_and_both_hosts_fail() {
    for seed in seeds(150) {
        let outcome = std::panic::catch_unwind(|| run(seed));
        assert!(outcome.is_ok(), "failed at SEED={seed}");
    }
}

#[test]
fn a_number_is_held_until_the_one_before_it_is_there_also_over_a_restart() {
    let dir = tempfile::tempdir().unwrap();
    let house = House::at(dir.path()).limit("ready_per_mailbox", 3);
    let mailbox = house.mailbox();
    let deliver = |mailbox: &Mailbox, seq, after| {
        let sealed = message("a", seq);
        mailbox.deliver_at(&sealed, sealed.envelope.created_at, Marks::NONE, After::Open(after))
    };
    deliver(&mailbox, 1, None).unwrap();
    deliver(&mailbox, 3, Some(2)).unwrap();
    deliver(&mailbox, 4, Some(3)).unwrap();
    let counts = mailbox.counts().unwrap();
    assert_eq!((counts.ready, counts.held), (3, 2));
    assert_eq!(mailbox.peek(10).unwrap().len(), 1);
    drop(mailbox);
    let mailbox = house.clone().incarnation(2).mailbox();
    assert_eq!(claim_bodies(&mailbox), ["a 1"]);
    assert!(claim_bodies(&mailbox).is_empty());
    let gap = mailbox.gaps().unwrap()[0];
    assert_eq!((gap.seq, gap.waits_for), (3, 2));
    // Others do not wait for this lane, and what is full for others is open for the number that fills the gap.
    let other = message("b", 1);
    mailbox.deliver_at(&other, other.envelope.created_at, Marks::NONE, After::Open(None)).unwrap();
    assert!(matches!(deliver(&mailbox, 5, Some(4)), Err(MailboxError::Full { .. })));
    assert_eq!(claim_bodies(&mailbox), ["b 1"]);
    deliver(&mailbox, 2, Some(1)).unwrap();
    assert_eq!(claim_bodies(&mailbox), ["a 2", "a 3", "a 4"]);
    assert!(mailbox.gaps().unwrap().is_empty());
}

#[test]
fn what_the_sender_says_is_over_is_not_waited_for() {
    let dir = tempfile::tempdir().unwrap();
    let mailbox = House::at(dir.path()).mailbox();
    let key = message("a", 1).envelope.lane_key().unwrap();
    for (seq, after) in [(9, 7), (5, 4), (6, 5)] {
        let sealed = message("a", seq);
        mailbox
            .deliver_at(&sealed, sealed.envelope.created_at, Marks::NONE, After::Open(Some(after)))
            .unwrap();
    }
    // 4 was refused for good, 3 is still on its way.
    mailbox.open_after(key, 5, Some(3)).unwrap();
    assert!(claim_bodies(&mailbox).is_empty());
    assert_eq!(mailbox.gaps().unwrap()[0].waits_for, 3);
    mailbox.open_after(key, 5, None).unwrap();
    assert_eq!(claim_bodies(&mailbox), ["a 5", "a 6"]);
    // The sender was replaced: 7 will never come.
    mailbox.end_epoch(key).unwrap();
    assert_eq!(claim_bodies(&mailbox), ["a 9"]);
    assert_eq!(mailbox.agent(), &agent("scout"));
}

#[test]
fn control_is_never_held() {
    let dir = tempfile::tempdir().unwrap();
    let mailbox = House::at(dir.path()).mailbox();
    let sealed = message_at("lead", 5, 5, true);
    mailbox.deliver_at(&sealed, sealed.envelope.created_at, Marks::NONE, After::Open(Some(4))).unwrap();
    assert_eq!(claim_bodies(&mailbox), ["lead 5"]);
    assert_eq!(WINDOW, 64);
}
