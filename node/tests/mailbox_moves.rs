//! The moves of a message between its states, one sentence each.

#![allow(clippy::unwrap_used, clippy::panic, clippy::indexing_slicing, missing_docs, reason = "tests")]

mod support;

use std::time::Duration;

use posthouse_node::mailbox::{After, Batch, Delivered, MailboxError, Marks, Reason, Release, Which};
use posthouse_shared::clock::Stamp;
use posthouse_shared::generation::Generation;
use posthouse_shared::wire::replies::Stage;
use support::{BIRTH, House, agent, all, bodies, claim_bodies, message, message_at, sealed};

fn house() -> (tempfile::TempDir, House) {
    let dir = tempfile::tempdir().unwrap();
    let house = House::at(dir.path());
    (dir, house)
}

#[test]
fn control_comes_first_then_the_lead_then_the_order_of_sending() {
    let (_dir, house) = house();
    let mailbox = house.mailbox();
    for (from, seq, at, control) in [
        ("a", 2, 20, false),
        ("a", 1, 10, false),
        ("b", 1, 15, false),
        ("lead", 1, 90, false),
        ("lead", 5, 99, true),
        ("a", 1, 95, true),
    ] {
        mailbox.deliver(&message_at(from, seq, at, control), Marks::NONE).unwrap();
    }
    let peeked: Vec<u64> = mailbox.peek(10).unwrap().iter().map(|m| m.order_at.nanos()).collect();
    assert_eq!(peeked, [95, 99, 90, 10, 15, 20]);
    assert_eq!(mailbox.lead_newest().unwrap(), Some(Stamp::from_nanos(90)));
    let control = mailbox.claim(Batch { only: Which::ControlOnly, ..all() }).unwrap();
    assert_eq!(control.iter().map(|c| c.order_at.nanos()).collect::<Vec<_>>(), [95, 99]);
    assert_eq!(claim_bodies(&mailbox), ["lead 1", "a 1", "b 1", "a 2"]);
}

#[test]
fn a_claim_is_bounded_by_count_and_bytes_and_takes_at_least_one() {
    let (_dir, house) = house();
    let mailbox = house.mailbox();
    for seq in 1..=6 {
        mailbox.deliver(&message("a", seq), Marks::NONE).unwrap();
    }
    let one = mailbox.claim(Batch { messages_max: 10, bytes_max: 1, only: Which::All }).unwrap();
    assert_eq!(bodies(&one), ["a 1"]);
    let size = u64::try_from(message("a", 2).bytes.len()).unwrap();
    let two = mailbox.claim(Batch { messages_max: 10, bytes_max: 2 * size, only: Which::All }).unwrap();
    assert_eq!(bodies(&two), ["a 2", "a 3"]);
    let counted = mailbox.claim(Batch { messages_max: 2, bytes_max: u64::MAX, only: Which::All }).unwrap();
    assert_eq!(bodies(&counted), ["a 4", "a 5"]);
    let counts = mailbox.counts().unwrap();
    assert_eq!((counts.ready, counts.processing), (1, 5));
}

#[test]
fn a_message_is_taken_once_in_whatever_state_it_is() {
    let (_dir, house) = house();
    let again = |expected: Stage, m: &posthouse_node::mailbox::Mailbox| {
        assert_eq!(m.deliver(&message("a", 1), Marks::NONE).unwrap(), Delivered::Duplicate(expected));
        let many = m.deliver_many(&[message("a", 1)]);
        assert_eq!(*many[0].as_ref().unwrap(), Delivered::Duplicate(expected));
    };
    let mailbox = house.mailbox();
    assert_eq!(mailbox.deliver(&message("a", 1), Marks::NONE).unwrap(), Delivered::Stored);
    again(Stage::Stored, &mailbox);
    let claimed = mailbox.claim(all()).unwrap();
    again(Stage::Processing, &mailbox);
    mailbox.ack(&[claimed[0].lease]).unwrap();
    again(Stage::Done, &mailbox);
    again(Stage::Done, &house.mailbox());
    mailbox.ack(&[claimed[0].lease]).unwrap();
    assert_eq!(mailbox.counts().unwrap().done, 1);
    let pruned = mailbox.prune(Stamp::from_nanos(u64::MAX)).unwrap();
    assert_eq!((pruned.removed, pruned.left), (1, 0));
    again(Stage::Done, &mailbox);
    again(Stage::Done, &house.mailbox());
}

#[test]
fn a_batch_is_stored_with_three_barriers_and_its_own_duplicates_are_found() {
    let (_dir, house) = house();
    let mailbox = house.mailbox();
    let mut batch: Vec<_> = (1..=100).map(|seq| message("a", seq)).collect();
    batch.push(message("a", 7));
    let answers = mailbox.deliver_many(&batch);
    assert!(answers[..100].iter().all(|a| matches!(a, Ok(Delivered::Stored))));
    assert!(matches!(answers[100], Ok(Delivered::Duplicate(Stage::Stored))));
    assert_eq!(claim_bodies(&mailbox).len(), 100);
}

#[test]
fn an_interrupted_message_is_the_next_attempt_and_a_planned_stop_does_not_count() {
    let (_dir, house) = house();
    let house = house.limit("max_attempts", 3);
    let mailbox = house.mailbox();
    mailbox.deliver(&message("a", 1), Marks::NONE).unwrap();
    mailbox.deliver(&message("a", 2), Marks::NONE).unwrap();
    for (attempt, how) in [(1, Release::Planned), (1, Release::Interrupted), (2, Release::Interrupted)] {
        let claimed = mailbox.claim(Batch::ONE).unwrap();
        assert_eq!((bodies(&claimed), claimed[0].attempt), (vec!["a 1".to_owned()], attempt));
        assert!(mailbox.release(&[claimed[0].lease], how).unwrap().is_empty());
    }
    let claimed = mailbox.claim(Batch::ONE).unwrap();
    assert_eq!(claimed[0].attempt, 3);
    let gone = mailbox.release(&[claimed[0].lease], Release::Interrupted).unwrap();
    assert_eq!(gone, [claimed[0].lease.id()]);
    let quarantined = mailbox.quarantined().unwrap();
    assert_eq!((quarantined.len(), quarantined[0].reason.code.as_str()), (1, "max_attempts"));
    assert_eq!(quarantined[0].from.as_deref(), Some("a"));
    assert_eq!(claim_bodies(&mailbox), ["a 2"]);
}

#[test]
fn what_a_dead_incarnation_held_is_found_and_what_a_live_one_holds_is_not() {
    let (_dir, house) = house();
    let mailbox = house.mailbox();
    for seq in 1..=3 {
        mailbox.deliver(&message("a", seq), Marks::NONE).unwrap();
    }
    let held = mailbox.claim(Batch { messages_max: 2, ..all() }).unwrap();
    assert!(mailbox.orphans().unwrap().is_empty());
    let later = house.clone().incarnation(2).mailbox();
    let orphans = later.orphans().unwrap();
    assert_eq!(bodies(&orphans), ["a 1", "a 2"]);
    assert_eq!(orphans[0].lease.id(), held[0].lease.id());
    let leases: Vec<_> = orphans.iter().map(|o| o.lease).collect();
    later.release(&leases, Release::Interrupted).unwrap();
    assert!(later.orphans().unwrap().is_empty());
    let claimed = later.claim(all()).unwrap();
    assert_eq!(bodies(&claimed), ["a 1", "a 2", "a 3"]);
    assert_eq!(claimed.iter().map(|c| c.attempt).collect::<Vec<_>>(), [2, 2, 1]);
    assert!(matches!(mailbox.ack(&[held[0].lease]), Err(MailboxError::LeaseLost { .. })));
}

#[test]
fn a_failed_turns_batch_is_quarantined_and_comes_back_in_order_marked() {
    let (_dir, house) = house();
    let mailbox = house.mailbox();
    for seq in 1..=4 {
        mailbox.deliver(&message("a", seq), Marks::NONE).unwrap();
    }
    let claimed = mailbox.claim(Batch { messages_max: 3, ..all() }).unwrap();
    let leases: Vec<_> = claimed.iter().map(|c| c.lease).collect();
    let reason = Reason { code: "turn_failed".to_owned(), text: "exit 101".to_owned(), turn: Some(12) };
    mailbox.quarantine(&leases, &reason).unwrap();
    let mailbox = house.mailbox();
    assert_eq!(
        mailbox.deliver(&message("a", 1), Marks::NONE).unwrap(),
        Delivered::Duplicate(Stage::Quarantined)
    );
    assert_eq!(mailbox.quarantined().unwrap().len(), 3);
    assert!(mailbox.redeliver_turn(99).unwrap().is_empty());
    let dropped = mailbox.drop_quarantined(claimed[2].lease.id()).unwrap();
    assert_eq!(dropped.reason, reason);
    assert_eq!(mailbox.redeliver_turn(12).unwrap().len(), 2);
    let again = mailbox.claim(all()).unwrap();
    assert_eq!(bodies(&again), ["a 1", "a 2", "a 4"]);
    assert!(again[0].marks.contains(Marks::REDELIVERED) && again[2].marks == Marks::NONE);
    assert_eq!(again.iter().map(|c| c.delivery).collect::<Vec<_>>(), [2, 2, 1]);
    assert!(matches!(mailbox.redeliver(claimed[2].lease.id()), Err(MailboxError::NotQuarantined { .. })));
    assert_eq!(
        house.mailbox().deliver(&message("a", 3), Marks::NONE).unwrap(),
        Delivered::Duplicate(Stage::Done)
    );
    assert_eq!(std::fs::read_dir(mailbox.dir().join("quarantine")).unwrap().count(), 0);
}

#[test]
fn a_full_mailbox_is_busy_keeps_a_reserve_for_control_and_stores_nothing_above_a_busy_number() {
    let (_dir, house) = house();
    let house = house.limit("ready_per_mailbox", 2).limit("control_reserve", 1);
    let mailbox = house.mailbox();
    let deliver = |seq, control| mailbox.deliver(&message_at("a", seq, seq, control), Marks::NONE);
    deliver(1, false).unwrap();
    deliver(2, false).unwrap();
    let full = deliver(3, false);
    assert!(matches!(full, Err(MailboxError::Full { ready: 2, limit: 2, .. })), "{full:?}");
    deliver(1, true).unwrap();
    assert!(matches!(deliver(2, true), Err(MailboxError::Full { .. })));
    let claimed = mailbox.claim(all()).unwrap();
    assert_eq!(claimed.len(), 3);
    assert!(matches!(deliver(4, false), Err(MailboxError::Full { .. })), "3 was busy and comes first");
    deliver(3, false).unwrap();
    deliver(4, false).unwrap();
    assert!(matches!(deliver(5, false), Err(MailboxError::Full { .. })));
    mailbox.claim(all()).unwrap();
    mailbox.withdraw(&message("a", 5));
    deliver(6, false).unwrap();
}

#[test]
fn a_message_for_somebody_else_or_another_birth_is_refused() {
    let (_dir, house) = house();
    let mailboxes = house.mailboxes();
    let other = mailboxes.create(&agent("lint"), BIRTH).unwrap();
    assert!(matches!(other.deliver(&message("a", 1), Marks::NONE), Err(MailboxError::WrongRecipient { .. })));
    let reborn = mailboxes.create(&agent("scout"), Generation::new(2, 1)).unwrap();
    assert!(matches!(reborn.deliver(&message("a", 1), Marks::NONE), Err(MailboxError::WrongBirth { .. })));
    assert!(matches!(mailboxes.get(&agent("ghost")), Err(MailboxError::NotFound { .. })));
    assert!(!house.data.join("mailboxes/main/ghost").exists());
}

#[test]
fn a_deleted_agents_mailbox_goes_to_the_attic_and_a_new_one_starts_empty() {
    let (_dir, house) = house();
    let mailboxes = house.mailboxes();
    let old = mailboxes.create(&agent("scout"), BIRTH).unwrap();
    old.deliver(&message("a", 1), Marks::NONE).unwrap();
    assert_eq!(mailboxes.list().unwrap(), [agent("scout")]);
    let new = mailboxes.create(&agent("scout"), Generation::new(2, 1)).unwrap();
    assert_eq!(new.counts().unwrap().ready, 0);
    assert!(matches!(old.claim(all()), Err(MailboxError::NotFound { .. })));
    let attic = house.data.join("attic/main/scout.1.7/ready");
    assert_eq!(std::fs::read_dir(attic).unwrap().count(), 1);
    mailboxes.to_attic(&agent("scout")).unwrap();
    assert!(matches!(mailboxes.get(&agent("scout")), Err(MailboxError::NotFound { .. })));
    mailboxes.to_attic(&agent("scout")).unwrap();
}

#[test]
fn messages_without_a_lane_are_remembered_by_id() {
    let (_dir, house) = house();
    let mailbox = house.mailbox();
    let plain = sealed("a", None, 5, "no lane");
    assert_eq!(mailbox.deliver(&plain, Marks::NONE).unwrap(), Delivered::Stored);
    let claimed = mailbox.claim(all()).unwrap();
    assert_eq!(claimed[0].vouched, posthouse_shared::message::Vouched::Node);
    mailbox.ack(&[claimed[0].lease]).unwrap();
    mailbox.prune(Stamp::from_nanos(u64::MAX)).unwrap();
    let again = house.mailbox().deliver(&plain, Marks::NONE).unwrap();
    assert_eq!(again, Delivered::Duplicate(Stage::Done));
}

#[test]
fn late_mail_stands_outside_the_order_of_its_lane() {
    let (_dir, house) = house();
    let mailbox = house.mailbox();
    mailbox.deliver(&message_at("a", 5, 50, false), Marks::NONE).unwrap();
    mailbox.deliver(&message_at("a", 6, 10, false), Marks::LATE).unwrap();
    let claimed = mailbox.claim(all()).unwrap();
    assert_eq!(bodies(&claimed), ["a 6", "a 5"]);
    assert!(claimed[0].marks.contains(Marks::LATE));
}

#[test]
fn a_skewed_message_sorts_by_its_arrival_for_ever() {
    let (_dir, house) = house();
    let mailbox = house.mailbox();
    let arrival = Stamp::from_nanos(20);
    mailbox.deliver_at(&message_at("a", 1, 9_000_000, false), arrival, Marks::NONE, After::Nothing).unwrap();
    mailbox.deliver(&message_at("b", 1, 30, false), Marks::NONE).unwrap();
    let claimed = house.mailbox().claim(all()).unwrap();
    assert_eq!((bodies(&claimed)[0].as_str(), claimed[0].order_at), ("a 1", arrival));
    assert_eq!(claimed[0].message.envelope.created_at.nanos(), 9_000_000);
}

#[test]
fn an_index_that_is_idle_is_dropped_and_read_again() {
    let (_dir, house) = house();
    let mailboxes = house.mailboxes();
    let mailbox = mailboxes.create(&agent("scout"), BIRTH).unwrap();
    mailbox.deliver(&message("a", 1), Marks::NONE).unwrap();
    mailbox.deliver(&message("a", 2), Marks::NONE).unwrap();
    let claimed = mailbox.claim(Batch::ONE).unwrap();
    assert_eq!(mailboxes.drop_idle(Duration::ZERO), 0, "a lease is held");
    mailbox.ack(&[claimed[0].lease]).unwrap();
    assert_eq!(mailboxes.drop_idle(Duration::from_secs(3600)), 0);
    assert_eq!(mailboxes.drop_idle(Duration::ZERO), 1);
    assert_eq!(mailbox.deliver(&message("a", 1), Marks::NONE).unwrap(), Delivered::Duplicate(Stage::Done));
    assert_eq!(claim_bodies(&mailbox), ["a 2"]);
}

#[test]
fn a_message_is_found_in_each_state_by_its_id_or_the_beginning_of_it() {
    let (_dir, house) = house();
    let mailbox = house.mailbox();
    let id = message("a", 1).envelope.id;
    assert!(mailbox.find(id).unwrap().is_none());
    mailbox.deliver(&message("a", 1), Marks::NONE).unwrap();
    let state = || mailbox.find(id).unwrap().unwrap().state;
    assert_eq!(state(), Stage::Stored);
    let claimed = mailbox.claim(all()).unwrap();
    assert_eq!(state(), Stage::Processing);
    mailbox.release(&[claimed[0].lease], Release::Interrupted).unwrap();
    assert_eq!(state(), Stage::Released);
    let claimed = mailbox.claim(all()).unwrap();
    mailbox.ack(&[claimed[0].lease]).unwrap();
    assert_eq!(state(), Stage::Done);
    assert_eq!(mailbox.find_prefix(&id.to_string()[..10], 5).unwrap()[0].id, id);
    assert_eq!(mailbox.read(id).unwrap().unwrap().0.bytes, message("a", 1).bytes);
}
