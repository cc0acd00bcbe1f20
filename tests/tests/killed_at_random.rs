//! P1 and P2 under kill -9 at random: over many lives of the coordinator everything accepted is injected, and
//! nothing is injected twice unmarked. POSTHOUSE_KILL_CYCLES sets how many lives (`tests/run` takes 1,000), SEED
//! replays the moments.

#![allow(clippy::unwrap_used, reason = "a test")]

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use posthouse_tests::cluster::Posthouse;
use posthouse_tests::home::{Home, TEAM};
use posthouse_tests::ledger::{Ledger, states_on_disk};
use posthouse_tests::recorded::{assert_histories_hold_inputs_once, attempts, recorder};

/// Senders of one life.
const SENDERS: usize = 4;
/// Messages that a sender sends in one life at most: what is sent is also read, at the end of all lives.
const MESSAGES: usize = 3;

/// By default a message whose turn was interrupted five times is put aside, and a thousand kills can hit one five
/// times: here they are tried on.
const PATIENT: &[(&str, &str)] = &[("POSTHOUSE_LIMITS_MAX_ATTEMPTS", "1000")];

/// A number of the environment.
fn number(variable: &str, default: u64) -> u64 {
    std::env::var(variable).ok().and_then(|text| text.parse().ok()).unwrap_or(default)
}

/// A small generator, so that a seed gives the same moments (SplitMix64).
struct Moments(u64);

impl Moments {
    fn below(&mut self, bound: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (mixed ^ (mixed >> 31)) % bound
    }
}

#[test]
fn kill_9_at_random_loses_nothing_and_injects_nothing_twice() {
    let cycles = number("POSTHOUSE_KILL_CYCLES", 20);
    let seed = number("SEED", u64::from(std::process::id()));
    eprintln!("SEED={seed} POSTHOUSE_KILL_CYCLES={cycles}");
    let mut moments = Moments(seed);
    let home = Home::new();
    home.expect_log("WARN");
    let turns = home.dir("turns");
    let ledger = Ledger::default();
    let posthouse = Posthouse::up_with(&home, PATIENT);
    posthouse.team();
    let command = recorder(&turns);
    posthouse.spawn("reader", &command.iter().map(String::as_str).collect::<Vec<_>>());
    drop(posthouse);

    let started = Instant::now();
    for cycle in 0..cycles {
        let posthouse = Posthouse::up_with(&home, PATIENT);
        let api = posthouse.api();
        let dead = AtomicBool::new(false);
        let life = Duration::from_micros(moments.below(120_000));
        std::thread::scope(|scope| {
            for sender in 0..SENDERS {
                let (api, ledger, dead) = (&api, &ledger, &dead);
                scope.spawn(move || {
                    for number in 0..MESSAGES {
                        let body = format!("{cycle}.{sender}.{number}");
                        if dead.load(Ordering::Relaxed) || !ledger.send(api, "reader", &body) {
                            return;
                        }
                    }
                });
            }
            std::thread::park_timeout(life);
            posthouse.kill9();
            dead.store(true, Ordering::Relaxed);
        });
        // One log a life would fill the disk with what nobody reads; the last ones stay.
        if cycle >= 20 {
            home.forget_log(cycle - 20);
        }
    }
    let lives_took = started.elapsed();

    let posthouse = Posthouse::up_with(&home, PATIENT);
    // Five interrupted attempts put a message into quarantine: that is a state too, and a person brings it back.
    posthouse.wait("agent/reader=idle");
    let quarantined = posthouse.json(&["quarantine", "ls"]);
    for entry in quarantined["quarantined"].as_array().into_iter().flatten() {
        posthouse.ok(&["quarantine", "redeliver", entry["id"].as_str().unwrap()]);
    }
    posthouse.wait("agent/reader=idle");
    ledger.check_traces(&posthouse.api(), "done");
    assert_eq!(posthouse.term(), 0);
    ledger.check(&turns);
    assert_histories_hold_inputs_once(home.data());
    let mailbox = home.data().join("mailboxes").join(TEAM).join("reader");
    let states = states_on_disk(&mailbox, &ledger.accepted_ids());
    let astray: Vec<_> = states.iter().filter(|(_, states)| states.as_slice() != ["done"]).collect();
    assert!(astray.is_empty(), "{astray:?}");
    let interrupted = attempts(&turns).values().filter(|attempts| attempts.len() > 1).count();
    eprintln!(
        "{cycles} lives in {lives_took:.1?}: {} accepted, {} seen, {interrupted} seen in more than one attempt",
        ledger.accepted(),
        attempts(&turns).len()
    );
    assert!(
        cycles < 20 || ledger.accepted() > 10,
        "only {} were accepted: nothing was tested",
        ledger.accepted()
    );
}
