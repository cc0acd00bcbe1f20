//! The mailbox against a model, over a simulated disk that loses power at crash points and at random. Each
//! seed is one history; `SEED=n` replays it.
//!
//! What must hold after each loss of power: every message that was answered *stored* is in exactly one state;
//! what was acked is in done; what was quarantined stays so; nothing is handed out that was acked; a lane
//! comes in the order of its numbers.

#![allow(clippy::unwrap_used, clippy::panic, clippy::indexing_slicing, missing_docs, reason = "tests")]

mod support;

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;

use posthouse_node::mailbox::{Batch, Claimed, Delivered, Lease, Mailbox, Marks, Reason, Release, Which};
use posthouse_shared::clock::{ManualClock, Stamp};
use posthouse_shared::durable::simulated::SimulatedDisk;
use posthouse_shared::durable::{CrashPoints, Files};
use posthouse_shared::message::Sealed;
use posthouse_shared::name::MessageId;
use posthouse_shared::wire::replies::Stage;
use support::{BIRTH, Dice, House, agent, message_at, seeds};

/// What the caller was told.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Told {
    /// Nothing: the answer was an error or lost in a crash.
    Nothing,
    /// Stored: ready, or held by somebody.
    Stored,
    /// Ended for good.
    Done,
    /// In quarantine.
    Quarantined,
    /// An ack, release or quarantine of it was cut off: any state it may have led to.
    Unsure,
}

struct World {
    disk: SimulatedDisk,
    house: House,
    told: BTreeMap<MessageId, (Sealed, Told)>,
    dice: Dice,
    next: [u64; 3],
}

const POINTS: [&str; 16] = [
    "place.begin",
    "place.written",
    "place.renamed",
    "place.synced",
    "mailbox.claim.renamed",
    "mailbox.ack.renamed",
    "mailbox.ack.synced",
    "mailbox.release.renamed",
    "mailbox.release.synced",
    "mailbox.quarantine.reason",
    "mailbox.quarantine.renamed",
    "mailbox.cursors.synced",
    "mailbox.prune.removed",
    "mailbox.deliver_many.written",
    "mailbox.deliver_many.contents_synced",
    "mailbox.deliver_many.renamed",
];

fn house(disk: &SimulatedDisk, points: CrashPoints, incarnation: u64) -> House {
    let mut house = House::at(Path::new("/data")).incarnation(incarnation).limit("done_messages", 5);
    house.files = Files::new(Arc::new(disk.clone()), points);
    house.clock = Arc::new(ManualClock::at(Stamp::from_nanos(1_000_000_000_000)));
    house
}

fn run(seed: u64) {
    let disk = SimulatedDisk::new();
    let files = Files::new(Arc::new(disk.clone()), CrashPoints::none());
    files.create_dirs(Path::new("/data")).unwrap();
    house(&disk, CrashPoints::none(), 1).mailbox();
    let mut world = World {
        house: house(&disk, CrashPoints::none(), 1),
        disk,
        told: BTreeMap::new(),
        dice: Dice(seed),
        next: [0; 3],
    };
    for incarnation in 2..8 {
        world.live(incarnation);
        world.disk.power_loss(seed * 31 + incarnation);
        world.check(incarnation, seed);
    }
}

impl World {
    /// One incarnation: random work until a crash point, or until it stops.
    fn live(&mut self, incarnation: u64) {
        let point = POINTS[usize::try_from(self.dice.roll(16)).unwrap()];
        let spec = format!("{point}:{}", 1 + self.dice.roll(4));
        let dying = self.disk.clone();
        self.house = house(&self.disk, CrashPoints::at(&spec, move |_| dying.cut()), incarnation);
        let mailboxes = self.house.mailboxes();
        let Ok(mailbox) = mailboxes.create(&agent("scout"), BIRTH) else { return };
        let mut held: Vec<Claimed> = Vec::new();
        if let Ok(orphans) = mailbox.orphans() {
            held.extend(orphans);
        }
        for _ in 0..40 {
            self.step(&mailbox, &mut held);
        }
    }

    fn step(&mut self, mailbox: &Mailbox, held: &mut Vec<Claimed>) {
        match self.dice.roll(10) {
            0..=2 => {
                let message = self.message();
                let answer = mailbox.deliver(&message, Marks::NONE);
                self.delivered(message, answer.ok());
            }
            3 => {
                let batch: Vec<Sealed> = (0..1 + self.dice.roll(5)).map(|_| self.message()).collect();
                for (message, answer) in batch.clone().into_iter().zip(mailbox.deliver_many(&batch)) {
                    self.delivered(message, answer.ok());
                }
            }
            4..=5 => {
                let max = 1 + usize::try_from(self.dice.roll(4)).unwrap();
                if let Ok(claimed) =
                    mailbox.claim(Batch { messages_max: max, bytes_max: u64::MAX, only: Which::All })
                {
                    for c in &claimed {
                        let told = self.told.get(&c.lease.id()).map(|(_, told)| *told);
                        assert!(
                            told.is_some_and(|t| t != Told::Done && t != Told::Quarantined),
                            "{told:?} was handed out: {c:?}"
                        );
                    }
                    held.extend(claimed);
                }
            }
            6..=7 => self.end(held, Told::Done, |leases| mailbox.ack(leases).is_ok()),
            8 => self.end(held, Told::Stored, |leases| mailbox.release(leases, Release::Planned).is_ok()),
            _ if self.dice.roll(3) == 0 => {
                let _either = mailbox.prune(Stamp::from_nanos(1_000_000_000_000));
            }
            _ => {
                let reason = Reason { code: "turn_failed".to_owned(), text: String::new(), turn: Some(1) };
                self.end(held, Told::Quarantined, |leases| mailbox.quarantine(leases, &reason).is_ok());
            }
        }
    }

    /// A new message, or one that was sent before.
    fn message(&mut self) -> Sealed {
        let known = u64::try_from(self.told.len()).unwrap();
        if known > 0 && self.dice.roll(4) == 0 {
            let at = usize::try_from(self.dice.roll(known)).unwrap();
            return self.told.values().nth(at).unwrap().0.clone();
        }
        let lane = usize::try_from(self.dice.roll(3)).unwrap();
        self.next[lane] += 1;
        let from = ["a", "b", "lead"][lane];
        message_at(from, self.next[lane], 1_000 + self.dice.roll(1_000), false)
    }

    fn delivered(&mut self, message: Sealed, answer: Option<Delivered>) {
        let entry = self.told.entry(message.envelope.id).or_insert((message, Told::Nothing));
        match (answer, entry.1) {
            (Some(Delivered::Stored), Told::Nothing) => entry.1 = Told::Stored,
            (Some(Delivered::Stored), told) => panic!("stored again: {told:?}"),
            // It was there although nobody had been told.
            (Some(Delivered::Duplicate(_)), Told::Nothing) => entry.1 = Told::Unsure,
            (Some(Delivered::Duplicate(_)) | None, _) => {}
        }
    }

    fn end(&mut self, held: &mut Vec<Claimed>, told: Told, end: impl Fn(&[Lease]) -> bool) {
        let count = 1 + usize::try_from(self.dice.roll(3)).unwrap();
        let batch: Vec<Claimed> = held.drain(..count.min(held.len())).collect();
        let leases: Vec<Lease> = batch.iter().map(|c| c.lease).collect();
        let ended = end(&leases);
        for lease in leases {
            self.told.get_mut(&lease.id()).unwrap().1 = if ended { told } else { Told::Unsure };
        }
    }

    /// After the power came back.
    fn check(&mut self, incarnation: u64, seed: u64) {
        let house = house(&self.disk, CrashPoints::none(), incarnation);
        let mailbox = house.mailbox();
        let at = format!("SEED={seed} incarnation {incarnation}");
        let mut files: BTreeMap<MessageId, Vec<String>> = BTreeMap::new();
        for state in ["ready", "processing", "done", "quarantine"] {
            for name in house.files.list(&mailbox.dir().join(state)).unwrap() {
                let name = name.to_str().unwrap().to_owned();
                if name.ends_with(".reason.json") {
                    continue;
                }
                let id = name
                    .split('.')
                    .nth(5)
                    .and_then(|id| id.parse().ok())
                    .unwrap_or_else(|| panic!("{at}: {name}"));
                files.entry(id).or_default().push(format!("{state}/{name}"));
            }
        }
        mailbox.counts().unwrap();
        for (id, (message, told)) in &mut self.told {
            let located = mailbox.find(*id).unwrap();
            let state = located.map(|l| l.state);
            let fits = match told {
                Told::Nothing | Told::Unsure => true,
                Told::Stored => matches!(state, Some(Stage::Stored | Stage::Released | Stage::Processing)),
                // Nothing, where it was pruned: then its duplicate is known.
                Told::Done => matches!(state, Some(Stage::Done) | None),
                Told::Quarantined => state == Some(Stage::Quarantined),
            };
            assert!(fits, "{at}: told {told:?}, found {located:?} of {message:?}\n{files:?}");
            if *told == Told::Nothing && state.is_some() {
                *told = Told::Unsure;
            }
            if let (Told::Unsure, Some(state)) = (*told, state) {
                *told = match state {
                    Stage::Done => Told::Done,
                    Stage::Quarantined => Told::Quarantined,
                    _ => Told::Stored,
                };
            }
            if *told == Told::Done {
                assert!(
                    matches!(mailbox.deliver(message, Marks::NONE), Ok(Delivered::Duplicate(_))),
                    "{at}: {message:?} was taken again"
                );
            }
        }
        let order: Vec<_> = mailbox
            .peek(10_000)
            .unwrap()
            .into_iter()
            .map(|m| (m.message.envelope.from.agent, m.message.envelope.lane.unwrap().seq))
            .collect();
        for (i, (from, seq)) in order.iter().enumerate() {
            assert!(order[i..].iter().all(|(other, later)| other != from || later >= seq), "{at}: {order:?}");
        }
    }
}

#[test]
fn no_history_of_work_and_power_loss_breaks_the_promises() {
    for seed in seeds(150) {
        let outcome = std::panic::catch_unwind(|| run(seed));
        assert!(outcome.is_ok(), "failed at SEED={seed}");
    }
}
