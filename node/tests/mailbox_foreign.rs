//! Files of other programs: what is a message is delivered as from `external`, all else is quarantined with a
//! reason. Nothing panics, nothing stops the queue, nothing leaves its directory.

#![allow(
    clippy::unwrap_used,
    clippy::panic,
    clippy::indexing_slicing,
    clippy::disallowed_methods,
    missing_docs,
    reason = "tests; they are the other program"
)]

mod support;

use std::ffi::OsStr;
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use posthouse_node::mailbox::{Delivered, Mailbox, MailboxError, Marks};
use posthouse_shared::message::{Kind, Vouched};
use posthouse_shared::wire::replies::Stage;
use support::{House, agent, all, await_change, bodies, claim_bodies, message, message_at};

fn house() -> (tempfile::TempDir, House) {
    let dir = tempfile::tempdir().unwrap();
    let house = House::at(dir.path());
    house.mailbox();
    (dir, house)
}

fn ready(house: &House) -> std::path::PathBuf {
    house.data.join("mailboxes/main/scout/ready")
}

fn drop_in(house: &House, name: impl AsRef<Path>, content: &[u8]) {
    let elsewhere = house.data.join("elsewhere");
    fs::write(&elsewhere, content).unwrap();
    fs::rename(elsewhere, ready(house).join(name)).unwrap();
}

fn codes(mailbox: &Mailbox) -> Vec<String> {
    let mut codes: Vec<String> = mailbox.quarantined().unwrap().into_iter().map(|q| q.reason.code).collect();
    codes.sort();
    codes
}

#[test]
fn a_minimal_drop_is_a_message_from_external() {
    let (_dir, house) = house();
    drop_in(&house, "hello.json", br#"{"v":1,"body":"hello"}"#);
    let claimed = house.mailbox().claim(all()).unwrap();
    let envelope = &claimed[0].message.envelope;
    assert_eq!((envelope.from.agent.as_str(), envelope.body.as_deref()), ("external", Some("hello")));
    assert_eq!((claimed[0].vouched, envelope.recipient()), (Vouched::Nobody, agent("scout")));
}

#[test]
fn an_envelope_that_nobody_vouches_for_is_from_external_whatever_it_claims() {
    let (_dir, house) = house();
    let sealed = message_at("lead", 1, 5, true);
    let text = String::from_utf8(sealed.bytes).unwrap();
    let forged = text.replace("\"kind\":\"message\"", "\"kind\":\"stop\"");
    drop_in(&house, "stop.json", forged.as_bytes());
    let mailbox = house.mailbox();
    assert!(mailbox.lead_newest().unwrap().is_none());
    let claimed = mailbox.claim(all()).unwrap();
    let envelope = &claimed[0].message.envelope;
    assert_eq!((envelope.from.agent.as_str(), envelope.kind), ("external", Kind::Message));
    assert!(envelope.lane.is_none() && envelope.id != sealed.envelope.id);
}

#[test]
fn a_message_of_ours_under_another_name_gets_its_place_back_once() {
    let (_dir, house) = house();
    drop_in(&house, "restored.json", &message("a", 1).bytes);
    let mailbox = house.mailbox();
    assert_eq!(mailbox.deliver(&message("a", 1), Marks::NONE).unwrap(), Delivered::Duplicate(Stage::Stored));
    let claimed = mailbox.claim(all()).unwrap();
    assert_eq!((bodies(&claimed), claimed[0].vouched), (vec!["a 1".to_owned()], Vouched::Node));
    mailbox.ack(&[claimed[0].lease]).unwrap();
    drop_in(&house, "restored.json", &message("a", 1).bytes);
    // Whoever notices it first, the watcher or the next reading, puts it aside.
    await_gone(&mailbox, &ready(&house).join("restored.json"));
    assert!(claim_bodies(&mailbox).is_empty());
    drop(mailbox);
    assert_eq!(codes(&house.mailbox()), ["duplicate"]);
}

#[test]
fn a_file_copied_back_under_its_own_name_is_not_injected_twice() {
    let (_dir, house) = house();
    let mailbox = house.mailbox();
    mailbox.deliver(&message("a", 1), Marks::NONE).unwrap();
    let name = fs::read_dir(ready(&house)).unwrap().next().unwrap().unwrap().file_name();
    let claimed = mailbox.claim(all()).unwrap();
    mailbox.ack(&[claimed[0].lease]).unwrap();
    drop_in(&house, &name, &message("a", 1).bytes);
    await_gone(&mailbox, &ready(&house).join(&name));
    assert!(mailbox.claim(all()).unwrap().is_empty());
    drop_in(&house, &name, b"other content under that name");
    let later = house.clone().incarnation(2).mailbox();
    assert!(later.claim(all()).unwrap().is_empty());
    assert!(later.counts().unwrap().done == 1);
}

/// The watcher moves a twin away without a change of what is ready.
fn await_gone(mailbox: &Mailbox, path: &Path) {
    let until = std::time::Instant::now() + std::time::Duration::from_secs(20);
    while path.exists() {
        assert!(std::time::Instant::now() < until, "the twin stays");
        mailbox.counts().unwrap();
        std::thread::yield_now();
    }
}

#[test]
fn every_sort_of_broken_file_is_quarantined_with_a_reason_and_the_queue_goes_on() {
    let (_dir, house) = house();
    let good = message("a", 1).bytes;
    let flipped: Vec<u8> = good.iter().enumerate().map(|(i, b)| if i == 40 { b ^ 1 } else { *b }).collect();
    let mut names: Vec<String> = Vec::new();
    {
        let mailbox = house.mailbox();
        for seq in 1..=5 {
            mailbox.deliver(&message("a", seq), Marks::NONE).unwrap();
        }
        let mut files: Vec<_> =
            fs::read_dir(ready(&house)).unwrap().map(|e| e.unwrap().file_name()).collect();
        files.sort();
        names.extend(files.iter().map(|name| name.to_str().unwrap().to_owned()));
    }
    fs::write(ready(&house).join(&names[0]), b"").unwrap();
    fs::write(ready(&house).join(&names[1]), &message("a", 2).bytes[..100]).unwrap();
    fs::write(ready(&house).join(&names[2]), &flipped).unwrap();
    fs::write(ready(&house).join(&names[3]), message("a", 77).bytes).unwrap();
    drop_in(&house, "empty.json", b"");
    drop_in(&house, "cut.json", &good[..50]);
    drop_in(&house, "notes.txt", b"not a message");
    drop_in(&house, "no-extension", b"");
    drop_in(&house, "future.json", br#"{"v":9,"kind":"message","body":"x"}"#);
    drop_in(&house, "kind.json", br#"{"v":1,"kind":"dance","body":"x"}"#);
    drop_in(&house, "array.json", b"[1,2,3]");
    drop_in(&house, "huge.json", &vec![b' '; 300 * 1024]);
    drop_in(&house, "binary.json", &[0xff, 0xfe, 0, 1]);
    drop_in(&house, OsStr::from_bytes(b"bad\xff\xfe.json"), br#"{"v":1,"body":"x"}"#);
    drop_in(&house, format!("{}.json", "x".repeat(250)), b"long");
    drop_in(&house, format!("{}.a1.json", names[4].strip_suffix(".json").unwrap()), b"not canonical");
    drop_in(&house, "x.reason.json", b"who writes such names");
    fs::create_dir(ready(&house).join("directory.json")).unwrap();
    std::os::unix::fs::symlink("/nowhere", ready(&house).join("link.json")).unwrap();
    assert!(
        std::process::Command::new("mkfifo").arg(ready(&house).join("pipe.json")).status().unwrap().success()
    );
    let mailbox = house.mailbox();
    assert_eq!(claim_bodies(&mailbox), ["a 5"]);
    assert_eq!(fs::read_dir(ready(&house)).unwrap().count(), 0);
    let list = mailbox.quarantined().unwrap();
    assert_eq!(list.len(), 20, "{list:#?}");
    assert!(list.iter().all(|q| q.reason.code != "unknown"), "{list:#?}");
    assert_eq!(mailbox.counts().unwrap().quarantined, 20);
    let mailbox = house.clone().incarnation(2).mailbox();
    assert_eq!(mailbox.counts().unwrap().quarantined, 20);
    let found = list.iter().find(|q| q.file == "future.json").unwrap();
    assert_eq!(found.reason.code, "unknown_version");
    assert!(mailbox.show(found.id).unwrap().1.contains("\"v\":9"));
    assert!(matches!(mailbox.redeliver(found.id), Err(MailboxError::Unreadable { .. })));
    for q in list {
        if q.file != "directory.json" {
            mailbox.drop_quarantined(q.id).unwrap();
        }
    }
    assert_eq!(mailbox.quarantined().unwrap().len(), 1);
}

#[test]
fn a_file_renamed_into_ready_by_another_program_is_noticed() {
    let (_dir, house) = house();
    let mailbox = house.mailbox();
    assert_eq!(mailbox.counts().unwrap().ready, 0);
    drop_in(&house, "note.json", br#"{"v":1,"body":"noticed"}"#);
    await_change(&mailbox, || mailbox.counts().unwrap().ready == 1);
    fs::write(ready(&house).join("written-here.json"), br#"{"v":1,"body":"in place"}"#).unwrap();
    await_change(&mailbox, || mailbox.counts().unwrap().ready == 2);
    assert_eq!(claim_bodies(&mailbox), ["noticed", "in place"]);
}

#[test]
fn deliveries_of_another_process_are_noticed_and_its_claims_are_not_claimed_again() {
    let (_dir, house) = house();
    let (here, there) = (house.mailbox(), house.mailbox());
    assert_eq!(here.counts().unwrap().ready, 0);
    for seq in 1..=10 {
        there.deliver(&message("a", seq), Marks::NONE).unwrap();
    }
    await_change(&here, || here.counts().unwrap().ready == 10);
    let claimed = there.claim(all()).unwrap();
    assert_eq!(claimed.len(), 10);
    assert!(here.claim(all()).unwrap().is_empty());
    let leases: Vec<_> = claimed.iter().map(|c| c.lease).collect();
    there.release(&leases, posthouse_node::mailbox::Release::Interrupted).unwrap();
    await_change(&here, || here.counts().unwrap().ready == 10);
    assert_eq!(here.claim(all()).unwrap()[0].attempt, 2);
}

#[test]
fn who_only_delivers_hears_of_the_others_as_soon_as_it_looks() {
    let (_dir, house) = house();
    let (one, other) = (house.mailbox(), house.mailbox());
    one.deliver(&message("a", 1), Marks::NONE).unwrap();
    other.deliver(&message("b", 1), Marks::NONE).unwrap();
    one.deliver(&message("a", 2), Marks::NONE).unwrap();
    assert_eq!((one.counts().unwrap().ready, other.counts().unwrap().ready), (3, 3));
    // From then on it is told.
    other.deliver(&message("b", 2), Marks::NONE).unwrap();
    await_change(&one, || one.counts().unwrap().ready == 4);
    let mut claimed = claim_bodies(&one);
    claimed.sort();
    assert_eq!(claimed, ["a 1", "a 2", "b 1", "b 2"]);
}

#[test]
fn processes_that_only_deliver_keep_the_limit_but_for_a_share_each() {
    let dir = tempfile::tempdir().unwrap();
    let house = House::at(dir.path()).limit("ready_per_mailbox", 64);
    let processes: Vec<Mailbox> = (0..4).map(|_| house.mailbox()).collect();
    let mut stored = 0;
    for seq in 1..=64 {
        for (n, mailbox) in processes.iter().enumerate() {
            match mailbox.deliver(&message(&format!("s{n}"), seq), Marks::NONE) {
                Ok(_) => stored += 1,
                Err(MailboxError::Full { .. }) => {}
                Err(error) => panic!("{error}"),
            }
        }
    }
    // Each of them may be a sixteenth behind.
    assert!((64..=64 + 4 * 5).contains(&stored), "{stored} stored");
}
