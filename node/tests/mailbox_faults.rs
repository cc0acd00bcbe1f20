//! Full disks, read-only directories, clocks that jump, large mailboxes; and the post on top.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    clippy::disallowed_methods,
    missing_docs,
    reason = "tests"
)]

mod support;

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;
use std::time::Duration;

use posthouse_node::mailbox::{Batch, Delivered, MailboxError, Marks};
use posthouse_node::post::{Draft, DraftId};
use posthouse_shared::clock::{ManualClock, Stamp};
use posthouse_shared::codes::Code;
use posthouse_shared::durable::simulated::SimulatedDisk;
use posthouse_shared::durable::{CrashPoints, DurableError, Files};
use posthouse_shared::message::Kind;
use posthouse_shared::name::{AgentName, MessageId};
use support::{House, agent, all, bodies, claim_bodies, draft, message, seeds};

/// A small file system of its own, or nothing where that is not allowed.
struct Mounted(PathBuf);

impl Mounted {
    fn tmpfs(at: &Path, options: &str) -> Option<Self> {
        std::fs::create_dir_all(at).unwrap();
        let mounted = Command::new("mount").args(["-t", "tmpfs", "-o", options, "tmpfs"]).arg(at).output();
        match mounted {
            Ok(output) if output.status.success() => Some(Self(at.to_owned())),
            Ok(_) | Err(_) => {
                eprintln!("skipped: cannot mount a tmpfs here (not root?)");
                None
            }
        }
    }

    fn remount(&self, options: &str) {
        let status = Command::new("mount").args(["-o", &format!("remount,{options}")]).arg(&self.0).status();
        assert!(status.unwrap().success());
    }
}

impl Drop for Mounted {
    fn drop(&mut self) {
        let _left_to_the_system = Command::new("umount").arg("-l").arg(&self.0).status();
    }
}

/// Delivers until it fails; answers how many were stored and the failure.
fn fill(mailbox: &posthouse_node::mailbox::Mailbox, from: u64) -> (u64, MailboxError) {
    for seq in from..100_000 {
        if let Err(error) = mailbox.deliver(&message("a", seq), Marks::NONE) {
            return (seq - from, error);
        }
    }
    panic!("the disk is never full");
}

#[test]
fn a_full_disk_is_a_typed_refusal_leaves_nothing_half_written_and_goes_on_when_there_is_room() {
    for options in ["size=400k", "nr_inodes=60"] {
        let dir = tempfile::tempdir().unwrap();
        let Some(mounted) = Mounted::tmpfs(&dir.path().join("small"), options) else { return };
        let house = House::at(&mounted.0);
        let mailbox = house.mailbox();
        let (stored, error) = fill(&mailbox, 1);
        assert!(matches!(error, MailboxError::Durable(DurableError::NoSpace { .. })), "{error:?}");
        assert_eq!(error.refusal().code, Code::NoSpace);
        assert!(stored > 10, "{stored}");
        let count = |state: &str| std::fs::read_dir(mailbox.dir().join(state)).unwrap().count();
        assert_eq!((count("tmp"), u64::try_from(count("ready")).unwrap()), (0, stored));
        let claimed = mailbox.claim(all()).unwrap();
        assert_eq!(u64::try_from(claimed.len()).unwrap(), stored);
        mailbox.ack(&claimed.iter().map(|c| c.lease).collect::<Vec<_>>()).unwrap();
        mounted.remount("size=10m,nr_inodes=1000");
        assert_eq!(mailbox.deliver(&message("a", stored + 1), Marks::NONE).unwrap(), Delivered::Stored);
        drop((mailbox, house));
    }
}

#[test]
fn a_read_only_disk_is_a_typed_refusal_and_goes_on_when_it_is_writable() {
    let dir = tempfile::tempdir().unwrap();
    let Some(mounted) = Mounted::tmpfs(&dir.path().join("small"), "size=4m") else { return };
    let mailbox = House::at(&mounted.0).mailbox();
    mailbox.deliver(&message("a", 1), Marks::NONE).unwrap();
    drop(mailbox);
    mounted.remount("ro");
    let house = House::at(&mounted.0);
    let mailbox = house.mailboxes().get(&agent("scout")).unwrap();
    let refused = mailbox.deliver(&message("a", 2), Marks::NONE).unwrap_err();
    assert!(matches!(refused, MailboxError::Durable(DurableError::ReadOnly { .. })), "{refused:?}");
    assert!(mailbox.claim(all()).is_err());
    assert_eq!(mailbox.counts().unwrap().ready, 1);
    mounted.remount("rw");
    mailbox.deliver(&message("a", 2), Marks::NONE).unwrap();
    assert_eq!(claim_bodies(&mailbox), ["a 1", "a 2"]);
}

#[test]
fn at04_behind_100_000_done_10_000_ready_all_surface_in_order_at_a_flat_cost() {
    let dir = tempfile::tempdir().unwrap();
    let house = House::at(dir.path());
    drop(house.mailbox());
    let home = dir.path().join("mailboxes/main/scout");
    // What a long life leaves behind, placed without syncs. What is done is empty here: it is never read.
    let name = |m: &posthouse_shared::message::Sealed| {
        posthouse_node::mailbox::name::FileName::arriving(&m.envelope, m.envelope.created_at, Marks::NONE)
            .to_string()
    };
    for seq in 1..=100_000 {
        std::fs::File::create(home.join("done").join(name(&light("a", seq)))).unwrap();
    }
    for seq in 100_001..=110_000 {
        let m = message("a", seq);
        std::fs::write(home.join("ready").join(name(&m)), m.bytes).unwrap();
    }
    let mailbox = house.mailbox();
    let counts = mailbox.counts().unwrap();
    assert_eq!((counts.done, counts.ready), (100_000, 10_000));
    let mut next = 100_001;
    let mut took = Vec::new();
    while next <= 110_000 {
        let begun = std::time::Instant::now();
        let claimed = mailbox.claim(Batch { messages_max: 100, ..all() }).unwrap();
        took.push(begun.elapsed());
        assert_eq!(claimed.len(), 100);
        for c in &claimed {
            assert_eq!(c.message.envelope.lane.unwrap().seq, next);
            next += 1;
        }
        mailbox.ack(&claimed.iter().map(|c| c.lease).collect::<Vec<_>>()).unwrap();
    }
    // The median of the first and the last quarter: flat, up to the noise of a busy machine.
    let median = |part: &[Duration]| {
        let mut part = part.to_vec();
        part.sort();
        part[part.len() / 2]
    };
    let (first, last) = (median(&took[..25]), median(&took[75..]));
    assert!(last < first * 4 && first < last * 4, "first {first:?}, last {last:?}");
}

/// Only its name counts.
fn light(from: &str, seq: u64) -> posthouse_shared::message::Sealed {
    let mut sealed = message("a", 0);
    sealed.envelope.id = MessageId::derived(&[from, &seq.to_string()]);
    sealed.envelope.lane = Some(posthouse_shared::lane::LanePosition { seq, control: false });
    sealed.envelope.created_at = Stamp::from_nanos(1_000_000 + seq);
    sealed
}

#[test]
fn the_post_numbers_stamps_and_stores_and_names_the_nearest_for_a_typo() {
    let dir = tempfile::tempdir().unwrap();
    let house = House::at(dir.path());
    let mailboxes = house.mailboxes();
    let post = house.post(&mailboxes);
    let posted = post.send(draft("lead", "scout", "hello")).unwrap();
    assert!(!posted.duplicate);
    post.send(Draft { control: true, ..draft("lead", "scout", "now") }).unwrap();
    post.send(Draft { kind: Kind::Stop, ..draft("lead", "scout", "{}") }).unwrap();
    post.send(draft("lint", "scout", "from lint")).unwrap();
    let mailbox = mailboxes.get(&agent("scout")).unwrap();
    let claimed = mailbox.claim(all()).unwrap();
    assert_eq!(bodies(&claimed), ["now", "{}", "hello", "from lint"]);
    assert!(claimed[0].marks.contains(Marks::URGENT) && !claimed[1].marks.contains(Marks::URGENT));

    let typo = post.send(draft("lead", "scuot", "x")).unwrap_err();
    assert_eq!((typo.code, typo.closest[0].name.as_str()), (Code::UnknownAgent, "scout"));
    assert!(!dir.path().join("mailboxes/main/scuot").exists());
    assert_eq!(post.send(draft("lead", "old", "x")).unwrap_err().code, Code::AgentShutdown);
    assert!(post.send(draft("lead", "lint", "held")).is_ok());
    // The limit is on the encoded form: quotes count twice. What does not fit lies beside the message.
    let large = "\"".repeat(140_000);
    let id = DraftId::Chosen(MessageId::derived(&["large"]));
    for duplicate in [false, true] {
        let posted = post.send(Draft { id, ..draft("lead", "scout", &large) }).unwrap();
        assert_eq!(posted.duplicate, duplicate);
        assert_eq!(posted.sealed.envelope.blob.unwrap().bytes, 140_000);
    }
    let other = post.send(Draft { id, ..draft("lead", "scout", &"\"".repeat(140_001)) }).unwrap_err();
    assert_eq!(other.code, Code::IdReused);
    let house = house.limit("blob_bytes", 140_000);
    let post = house.post(&mailboxes);
    let larger = post.send(draft("lead", "scout", &"\"".repeat(140_001))).unwrap_err();
    assert_eq!(larger.code, Code::MessageTooLarge);
}

#[test]
fn at05_a_chosen_id_gets_the_first_answer_for_ever_and_other_content_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    let house = House::at(dir.path()).limit("done_messages", 0);
    let id = DraftId::Chosen(MessageId::derived(&["turn", "7"]));
    let mut injected = 0;
    for restart in 0..4 {
        let house = house.clone().incarnation(restart);
        let mailboxes = house.mailboxes();
        let post = house.post(&mailboxes);
        for _ in 0..3 {
            let posted = post.send(Draft { id, ..draft("lead", "scout", "once") }).unwrap();
            assert_eq!(posted.duplicate, injected > 0);
            let mailbox = mailboxes.get(&agent("scout")).unwrap();
            let claimed = mailbox.claim(all()).unwrap();
            injected += claimed.len();
            mailbox.ack(&claimed.iter().map(|c| c.lease).collect::<Vec<_>>()).unwrap();
            mailbox.prune(Stamp::from_nanos(u64::MAX)).unwrap();
        }
        let other = post.send(Draft { id, ..draft("lead", "scout", "twice") }).unwrap_err();
        assert_eq!(other.code, Code::IdReused);
        let to = AgentName::new("lint").unwrap();
        let other = post.send(Draft { id, to, ..draft("lead", "scout", "once") }).unwrap_err();
        assert_eq!(other.code, Code::IdReused);
    }
    assert_eq!(injected, 1);
}

#[test]
fn a_send_that_crashed_at_any_step_is_one_message_after_its_retry() {
    let id = DraftId::Chosen(MessageId::derived(&["retry"]));
    let attempt = |house: &House| {
        let mailboxes = house.mailboxes();
        house.post(&mailboxes).send(Draft { id, ..draft("lead", "scout", "once") })
    };
    let points = {
        let points = CrashPoints::recording();
        let mut house = simulated(&SimulatedDisk::new(), points.clone());
        house.incarnation = 2;
        let before = points.passed().len();
        attempt(&house).unwrap();
        points.passed().into_iter().skip(before).collect::<Vec<_>>()
    };
    assert!(points.contains(&"post.id.synced"), "{points:?}");
    for nth in 0..points.len() {
        for seed in seeds(8) {
            let disk = SimulatedDisk::new();
            let name = points[nth];
            let times = points[..=nth].iter().filter(|p| **p == name).count();
            let dying = disk.clone();
            let crash = CrashPoints::at(&format!("{name}:{times}"), move |_| dying.cut());
            let doomed = simulated(&disk, crash);
            let first = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| attempt(&doomed)));
            disk.power_loss(seed);
            let house = simulated(&disk, CrashPoints::none());
            let again = attempt(&house).unwrap();
            let mailbox = house.mailbox();
            let claimed = mailbox.claim(all()).unwrap();
            assert_eq!(bodies(&claimed), ["once"], "{name}:{times} SEED={seed}");
            assert_eq!(claimed[0].message.bytes, again.sealed.bytes);
            if let Ok(Ok(first)) = first {
                assert_eq!(first.sealed.bytes, again.sealed.bytes, "{name}:{times} SEED={seed}");
            }
        }
    }
}

fn simulated(disk: &SimulatedDisk, crash: CrashPoints) -> House {
    let files = Files::new(Arc::new(disk.clone()), CrashPoints::none());
    files.create_dirs(Path::new("/data")).unwrap();
    let mut house = House::at(Path::new("/data"));
    house.files = Files::new(Arc::new(disk.clone()), crash);
    house.clock = Arc::new(ManualClock::at(Stamp::from_nanos(1_000_000_000_000)));
    house
}

#[test]
fn a_clock_that_jumps_an_hour_back_and_forth_changes_no_order() {
    let dir = tempfile::tempdir().unwrap();
    let hour = 3_600_000_000_000u64;
    let clock = Arc::new(ManualClock::at(Stamp::from_nanos(100 * hour)));
    let mut house = House::at(dir.path());
    house.clock = clock.clone();
    let mut sent = 0;
    for jump in [100, 99, 101, 100, 98] {
        clock.set(Stamp::from_nanos(jump * hour));
        let mailboxes = house.mailboxes();
        let post = house.post(&mailboxes);
        for _ in 0..5 {
            sent += 1;
            for from in ["lint", "scout"] {
                post.send(draft(from, "scout", &format!("{sent}"))).unwrap();
            }
            clock.advance(Duration::from_millis(700));
        }
    }
    let claimed = house.mailbox().claim(all()).unwrap();
    let expected: Vec<String> = (1..=sent).flat_map(|n| [n.to_string(), n.to_string()]).collect();
    assert_eq!(bodies(&claimed), expected);
}

#[test]
fn a_refused_send_does_not_block_the_lane_that_it_was_for() {
    let dir = tempfile::tempdir().unwrap();
    let house = House::at(dir.path()).limit("ready_per_mailbox", 1);
    let mailboxes = house.mailboxes();
    let post = house.post(&mailboxes);
    post.send(draft("lead", "scout", "1")).unwrap();
    let full = post.send(draft("lead", "scout", "2")).unwrap_err();
    assert_eq!((full.code, full.retry_after_ms), (Code::MailboxFull, Some(1_000)));
    let mailbox = mailboxes.get(&agent("scout")).unwrap();
    assert_eq!(claim_bodies(&mailbox), ["1"]);
    post.send(draft("lead", "scout", "3")).unwrap();
    assert_eq!(claim_bodies(&mailbox), ["3"]);
}
