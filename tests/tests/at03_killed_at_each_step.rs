//! at03: a final report that is marked read and was never seen. The process is ended at each named step of each
//! durable sequence, on the first passing and on later ones, and started again: the agent sees every message, and a
//! second time only marked as the next attempt.

#![allow(clippy::unwrap_used, clippy::panic, reason = "a test")]

use std::time::{Duration, Instant};

use posthouse_shared::wire::requests::Request;
use posthouse_tests::cluster::{PATIENCE, Posthouse};
use posthouse_tests::home::{Home, TEAM};
use posthouse_tests::ledger::Ledger;
use posthouse_tests::recorded::{assert_histories_hold_inputs_once, recorder};
use posthouse_tests::repository::crash_points;

/// Passings at which the process is ended: the first ones belong to the start, later ones to the work.
const PASSINGS: &[u32] = &[1, 2, 3, 5, 8, 13, 21];
/// Messages of a run.
const MESSAGES: usize = 6;

/// Whether the agent is idle and has no ready mail, or the process is gone.
fn settled(posthouse: &mut Posthouse<'_>) -> bool {
    let wait = Request::Wait {
        team: TEAM.to_owned(),
        condition: "agent/reader=idle".to_owned(),
        timeout_ms: 60_000,
    };
    let started = Instant::now();
    while posthouse.api().ask(&wait).is_err() {
        if posthouse.has_died() {
            return false;
        }
        assert!(started.elapsed() < PATIENCE, "neither idle nor dead");
        std::thread::park_timeout(Duration::from_millis(10));
    }
    !posthouse.has_died()
}

/// One run that ends at `point` when it is passed for the `passing`-th time. Whether that happened.
fn crash_at(point: &str, passing: u32) -> bool {
    let home = Home::new();
    // What is found half-done after a crash is worth a line.
    home.expect_log("WARN");
    let turns = home.dir("turns");
    let posthouse = Posthouse::up(&home);
    posthouse.team();
    let command = recorder(&turns);
    posthouse.spawn("reader", &command.iter().map(String::as_str).collect::<Vec<_>>());
    posthouse.wait("agent/reader=idle");
    posthouse.kill9();

    let ledger = Ledger::default();
    let spec = format!("{point}:{passing}");
    let crashed = match Posthouse::try_up(&home, &[("POSTHOUSE_CRASH_AT", &spec)]) {
        Err(_) => true,
        Ok(mut posthouse) => {
            let api = posthouse.api();
            for number in 0..MESSAGES {
                ledger.send(&api, "reader", &format!("report {number}"));
            }
            !settled(&mut posthouse)
        }
    };
    let mut posthouse = Posthouse::up(&home);
    ledger.send(&posthouse.api(), "reader", "after the crash");
    assert!(settled(&mut posthouse), "died without a crash point");
    ledger.check_traces(&posthouse.api(), "done");
    assert_eq!(posthouse.term(), 0, "{spec}");
    ledger.check(&turns);
    assert_histories_hold_inputs_once(home.data());
    crashed
}

#[test]
fn at03_killed_at_each_step_the_agent_still_sees_every_message() {
    let points = crash_points();
    assert!(points.len() >= 8, "crash points: {points:?}");
    let mut reached = 0;
    let mut never = Vec::new();
    for point in &points {
        let passed = PASSINGS.iter().take_while(|passing| crash_at(point, **passing)).count();
        reached += passed;
        if passed == 0 {
            never.push(point);
        }
    }
    eprintln!("{reached} crashes at {} points; not on this way: {never:?}", points.len() - never.len());
    // What this way of work must pass: placing a file, claiming, acknowledging.
    for needed in ["place.", "mailbox.claim.", "mailbox.ack."] {
        assert!(
            points.iter().any(|point| point.starts_with(needed) && !never.contains(&point)),
            "{needed}: {never:?}"
        );
    }
}
