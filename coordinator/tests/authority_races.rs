//! Many who ask at once, disks that fail, and power that goes.

#![allow(clippy::unwrap_used, clippy::panic, clippy::indexing_slicing, reason = "tests")]

mod authority_support;

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::{Arc, Barrier};

use authority_support::*;
use posthouse_coordinator::authority::{Authority, BoardCommand, Reply};
use posthouse_shared::codes::Code;
use posthouse_shared::durable::simulated::SimulatedDisk;
use posthouse_shared::durable::{CrashPoints, Files};
use posthouse_shared::name::AgentName;
use posthouse_shared::task::TaskStatus;
use proptest::prelude::*;

#[test]
fn at09_a_hundred_claimers_of_a_thousand_tasks_have_one_winner_each_and_losers_are_told_the_owner() {
    let disk = Files::new(Arc::new(SimulatedDisk::new()), CrashPoints::none());
    let mut setup = options(disk, Path::new("/data"), 1);
    let limits = posthouse_shared::limits::Limits { decisions_queue: 4_096, ..Default::default() };
    setup.limits = Arc::new(limits);
    let authority = Authority::open(setup).unwrap();
    let team = posthouse_shared::team::TeamConfig { busy_check: false, ..Default::default() };
    let mut create = create();
    if let posthouse_coordinator::authority::Command::TeamCreate { config, .. } = &mut create {
        *config = team;
    }
    ask(&authority, create).unwrap();
    let agents: Vec<String> = (0..100).map(|n| format!("agent-{n}")).collect();
    for name in &agents {
        ask(&authority, spawn(name)).unwrap();
    }
    let tasks: Vec<String> = (0..1_000).map(|n| format!("T{n}")).collect();
    for id in &tasks {
        ask(&authority, add(id, &[])).unwrap();
    }
    let barrier = Barrier::new(agents.len());
    let won: Vec<(String, Vec<String>)> = std::thread::scope(|scope| {
        let claimers: Vec<_> = agents
            .iter()
            .enumerate()
            .map(|(n, name)| {
                let (authority, tasks, barrier) = (&authority, &tasks, &barrier);
                scope.spawn(move || {
                    let caller = agent(authority, name);
                    barrier.wait();
                    let mut won = Vec::new();
                    for k in 0..20 {
                        // Each task is wanted by two, at about the same time.
                        let id = &tasks[((n / 2) * 20 + k) % tasks.len()];
                        match authority.decide_blocking(caller.clone(), board(claim(id)), None) {
                            Ok(Reply::Task(_)) => won.push(id.clone()),
                            Ok(other) => panic!("{other:?}"),
                            Err(refusal) => {
                                assert_eq!(refusal.code, Code::TaskClaimed);
                                assert!(refusal.message.contains("agent-"), "{refusal}");
                            }
                        }
                    }
                    (name.clone(), won)
                })
            })
            .collect();
        claimers.into_iter().map(|claimer| claimer.join().unwrap()).collect()
    });
    let mut owners = BTreeMap::new();
    for (name, ids) in won {
        for id in ids {
            assert_eq!(owners.insert(id, name.clone()), None, "two winners");
        }
    }
    assert_eq!(owners.len(), 1_000);
    let state = authority.state();
    let board = &state.find_team("main").unwrap().board;
    for task in board.tasks() {
        assert_eq!(task.owner.as_ref().map(AgentName::as_str), owners.get(task.id.as_str()).map(|s| &**s));
    }
    assert_eq!(ask(&authority, spawn("agent-7")).unwrap_err().code, Code::NameTaken);
}

#[test]
fn a_full_disk_refuses_decisions_and_keeps_the_state_until_there_is_room() {
    let disk = SimulatedDisk::new();
    let files = Files::new(Arc::new(disk.clone()), CrashPoints::none());
    let authority = Authority::open(options(files.clone(), Path::new("/data"), 1)).unwrap();
    ask(&authority, create()).unwrap();
    let before = authority.state().head.clone();
    disk.set_room(Some(10));
    let refusal = ask(&authority, add("a", &[])).unwrap_err();
    assert_eq!((refusal.code, refusal.effect.as_deref()), (Code::NoSpace, Some("nothing was changed")));
    assert_eq!(ask(&authority, create()).unwrap_err().code, Code::NameTaken, "refusals need no room");
    assert_eq!(authority.state().head, before);
    disk.set_room(None);
    ask(&authority, add("a", &[])).unwrap();
    let content_before = content(&authority);
    authority.close();
    let authority = Authority::open(options(files, Path::new("/data"), 2)).unwrap();
    assert_eq!(content(&authority), content_before);
}

#[test]
fn after_close_a_request_is_told_so() {
    let dir = tempfile::tempdir().unwrap();
    let authority = open(dir.path(), 1).unwrap();
    authority.close();
    assert_eq!(ask(&authority, create()).unwrap_err().code, Code::ShuttingDown);
    authority.close();
}

#[test]
fn entries_are_fed_after_their_state_is_seen() {
    let dir = tempfile::tempdir().unwrap();
    let authority = open(dir.path(), 1).unwrap();
    let mut feed = authority.entries();
    ask(&authority, create()).unwrap();
    let entry = feed.blocking_recv().unwrap();
    assert!(authority.state().head.index >= entry.index);
    assert_eq!(entry.generation(), member(&authority, "lead").birth);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]
    #[test]
    fn power_loss_takes_back_no_answer_and_a_repeated_request_is_done_once(
        seed in any::<u64>(),
        point in prop::sample::select(vec![
            "journal.appended", "place.written", "place.renamed", "journal.snapshot.placed", "journal.snapshot.pruned",
        ]),
        times in 1u64..20,
        every in 3u64..12,
    ) {
        let disk = SimulatedDisk::new();
        let off = disk.clone();
        let points = CrashPoints::at(&format!("{point}:{times}"), move |_| off.cut());
        let files = Files::new(Arc::new(disk.clone()), points);
        let mended = Files::new(Arc::new(disk.clone()), CrashPoints::none());
        let setup = |boot| {
            let files = if boot == 1 { &files } else { &mended };
            let mut setup = options(files.clone(), Path::new("/data"), boot);
            setup.snapshot_every = every;
            setup
        };
        let mut answered = Vec::new();
        let script: Vec<_> = [create(), spawn("ada")].into_iter()
            .chain((0..12).map(|n| add(&format!("t{n}"), &[])))
            .chain([board_as("ada", claim("t1"))])
            .collect();
        let run = |authority: &Authority, n: usize| {
            authority.decide_blocking(OPERATOR, script[n].clone(), Some(format!("r{n}")))
        };
        let first = Authority::open(setup(1));
        if let Ok(authority) = first {
            for n in 0..script.len() {
                match run(&authority, n) {
                    Ok(reply) => answered.push((n, reply)),
                    Err(_) => break,
                }
            }
            authority.close();
        }
        disk.power_loss(seed);
        let authority = Authority::open(setup(2)).unwrap();
        // Asked again from the start: what was answered is answered so again, and nothing is done twice.
        for n in 0..script.len() {
            let reply = run(&authority, n);
            prop_assert!(reply.is_ok(), "{n}: {reply:?}");
        }
        let state = authority.state();
        let board_now = &state.find_team("main").unwrap().board;
        prop_assert_eq!(board_now.tasks().count(), 12);
        for (n, reply) in answered {
            if let Reply::Task(task) = reply && n < script.len() - 1 {
                prop_assert_eq!(board_now.get(&task.id).unwrap().created_at, task.created_at);
            }
        }
        let live = state.snapshot().unwrap();
        authority.close();
        let again = Authority::open(setup(3)).unwrap();
        let replayed = again.state();
        prop_assert_eq!(content(&again), {
            let mut value: serde_json::Value = serde_json::from_slice(&live.state).unwrap();
            value.as_object_mut().unwrap().remove("hosts");
            value.as_object_mut().unwrap().remove("at");
            value
        });
        prop_assert_eq!(replayed.find_team("main").unwrap().board.counts().in_progress, 1);
    }
}

#[test]
fn a_snapshot_and_its_tail_give_what_the_whole_replay_gives() {
    let (short, long) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let run = |dir: &Path, every| {
        for boot in 1..4 {
            let mut setup = options(Files::real(), dir, boot);
            setup.snapshot_every = every;
            setup.clock = Arc::new(posthouse_shared::clock::ManualClock::default());
            let authority = Authority::open(setup).unwrap();
            let _taken_after_the_first_start = ask(&authority, create());
            for n in 0..10 {
                ask(&authority, add(&format!("t{boot}-{n}"), &[])).unwrap();
            }
            ask(&authority, board(claim(&format!("t{boot}-3")))).unwrap();
            let complete =
                BoardCommand::Complete { id: format!("t{boot}-3"), generation: None, result: None };
            assert_eq!(task(ask(&authority, board(complete))).status, TaskStatus::Completed);
            authority.close();
        }
        let mut setup = options(Files::real(), dir, 9);
        setup.clock = Arc::new(posthouse_shared::clock::ManualClock::default());
        let authority = Authority::open(setup).unwrap();
        let mut content = content(&authority);
        content.as_object_mut().unwrap().remove("cluster");
        content
    };
    assert_eq!(run(short.path(), 5), run(long.path(), 100_000));
}
