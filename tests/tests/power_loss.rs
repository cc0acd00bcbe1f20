//! P1 across power loss, on real file systems: every message that `send` called accepted is there when the
//! machine is on again, in exactly one state. The rig itself is shown to lose what was not synced, so that a pass
//! means something.

#![allow(clippy::unwrap_used, clippy::panic, clippy::disallowed_methods, reason = "a test")]

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use posthouse_tests::cluster::{NotReady, Posthouse};
use posthouse_tests::home::{Home, TEAM};
use posthouse_tests::ledger::{Ledger, states_on_disk};
use posthouse_tests::rig::{FileSystem, Rig};
use posthouse_tests::skip::skip;

/// Cuts a run of each file system.
const CUTS: u32 = 5;

fn the_rig_loses_what_was_not_synced(kind: FileSystem) {
    let mut rig = match Rig::new(kind) {
        Ok(rig) => rig,
        Err(missing) => return skip(&missing),
    };
    let (synced, unsynced) = (rig.mount_point().join("synced"), rig.mount_point().join("unsynced"));
    std::fs::write(&synced, "kept").unwrap();
    std::fs::File::open(&synced).unwrap().sync_all().unwrap();
    std::fs::File::open(rig.mount_point()).unwrap().sync_all().unwrap();
    std::fs::write(&unsynced, "lost").unwrap();
    rig.cut();
    rig.power_on();
    assert_eq!(std::fs::read_to_string(&synced).unwrap(), "kept");
    assert!(std::fs::read_to_string(&unsynced).unwrap_or_default().is_empty(), "the power was not cut");
}

#[test]
fn the_rig_loses_what_was_not_synced_on_ext4() {
    the_rig_loses_what_was_not_synced(FileSystem::Ext4);
}

#[test]
fn the_rig_loses_what_was_not_synced_on_xfs() {
    the_rig_loses_what_was_not_synced(FileSystem::Xfs);
}

/// Senders work until the power goes; after each cut everything accepted so far must be there.
fn nothing_accepted_is_lost(kind: FileSystem) {
    let mut rig = match Rig::new(kind) {
        Ok(rig) => rig,
        Err(missing) => return skip(&missing),
    };
    let home = Home::on(&rig.mount_point().join("data"));
    // While the disk is gone the running one has every reason to complain.
    home.expect_log("");
    let ledger = Ledger::default();
    Posthouse::up(&home).team();
    for cut in 0..CUTS {
        let posthouse = Posthouse::up(&home);
        let api = posthouse.api();
        let off = AtomicBool::new(false);
        let accepted = std::thread::scope(|scope| {
            for sender in 0..8 {
                let (api, ledger, off) = (api.clone(), &ledger, &off);
                scope.spawn(move || {
                    let mut number = 0;
                    while !off.load(Ordering::Relaxed) {
                        number += 1;
                        if !ledger.send_until_refused(&api, "lead", &format!("{cut} {sender} {number}")) {
                            return;
                        }
                    }
                });
            }
            std::thread::park_timeout(Duration::from_millis(200 + 70 * u64::from(cut)));
            // Where the power is gone nobody hears an answer any more. Here the process goes on for a moment, and
            // XFS may then tell it that a directory is synced whose last rename was never written (seen with an
            // fsync of a directory that was open before the cut). So what is said after this line counts as unsaid.
            let accepted = ledger.accepted_ids();
            rig.cut();
            off.store(true, Ordering::Relaxed);
            posthouse.kill9();
            accepted
        });
        rig.power_on();
        ledger.trust_only(&accepted);
        let lead = home.data().join("mailboxes").join(TEAM).join("lead");
        let states = states_on_disk(&lead, &accepted);
        let astray: Vec<_> = states.iter().filter(|(_, states)| states.len() != 1).collect();
        assert!(astray.is_empty(), "cut {cut}: {} of {} accepted: {astray:?}", astray.len(), accepted.len());
    }
    let posthouse = Posthouse::try_up(&home, &[])
        .unwrap_or_else(|NotReady { status, log }| panic!("exit {status} after the cuts:\n{log}"));
    ledger.check_traces(&posthouse.api(), "stored");
    assert!(ledger.accepted() > 50, "only {} were accepted: nothing was tested", ledger.accepted());
}

#[test]
fn what_was_accepted_survives_power_loss_on_ext4() {
    nothing_accepted_is_lost(FileSystem::Ext4);
}

#[test]
fn what_was_accepted_survives_power_loss_on_xfs() {
    nothing_accepted_is_lost(FileSystem::Xfs);
}
