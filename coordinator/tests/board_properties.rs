//! The board under random commands: one live claim a task, what is completed stays, generations only rise,
//! nothing waits on itself, and no command panics. A failing case prints its seed and its smallest form.

#![allow(clippy::unwrap_used, clippy::panic, clippy::indexing_slicing, reason = "tests")]

mod authority_support;

use std::sync::Arc;

use authority_support::*;
use posthouse_coordinator::authority::{BoardCommand, Command, Decided, State};
use posthouse_coordinator::journal::Record;
use posthouse_node::port::GaveUp;
use posthouse_shared::clock::Stamp;
use posthouse_shared::generation::Generation;
use posthouse_shared::limits::Limits;
use posthouse_shared::task::{TaskChange, TaskStatus};
use proptest::prelude::*;

fn any_command() -> impl Strategy<Value = Command> {
    let id = || (0u8..6).prop_map(|n| format!("t{n}"));
    let blockers = || prop::collection::vec(0u8..6, 0..3);
    let generation = || prop::option::of((0u64..40).prop_map(|index| Generation::new(1, index)));
    let what = prop_oneof![
        (id(), blockers()).prop_map(|(id, blockers)| {
            let blockers: Vec<String> = blockers.iter().map(|n| format!("t{n}")).collect();
            match add(&id, &blockers.iter().map(String::as_str).collect::<Vec<_>>()) {
                Command::Board { what, .. } => what,
                other => panic!("{other:?}"),
            }
        }),
        (id(), blockers(), prop::option::of(0u8..3)).prop_map(|(id, blockers, owner)| {
            let change = TaskChange {
                blocked_by: Some(blockers.iter().map(|n| format!("t{n}").parse().unwrap()).collect()),
                owner: owner.map(|n| format!("agent-{n}").parse().unwrap()),
                ..TaskChange::default()
            };
            BoardCommand::Update { id, change: Box::new(change) }
        }),
        id().prop_map(|id| BoardCommand::Claim { id }),
        Just(BoardCommand::ClaimNext),
        (id(), generation()).prop_map(|(id, generation)| BoardCommand::Release { id, generation }),
        (id(), generation()).prop_map(|(id, generation)| BoardCommand::Complete {
            id,
            generation,
            result: Some("r".to_owned())
        }),
        (id(), 0u64..40, any::<bool>()).prop_map(|(id, index, failed)| BoardCommand::GiveUp {
            id: id.parse().unwrap(),
            generation: Generation::new(1, index),
            how: if failed { GaveUp::Failed { why: "x".to_owned() } } else { GaveUp::Stopped },
        }),
        id().prop_map(|id| BoardCommand::Cancel { id }),
    ];
    (prop::option::of(0u8..4), what).prop_map(|(agent, what)| Command::Board {
        team: "main".to_owned(),
        as_agent: agent.map(|n| format!("agent-{n}")),
        what,
    })
}

fn step(state: &mut State, command: &Command) {
    if let Ok(Decided::Journal(decision)) = state.decide(command, &OPERATOR, state.at) {
        let at = Stamp::from_nanos(state.head.index + 1);
        let record = Record::after(&state.head, 1, state.head.index + 1, at, None, decision).unwrap();
        state.apply(&record);
    }
}

proptest! {
    #[test]
    fn the_board_keeps_its_rules_under_any_commands(commands in prop::collection::vec(any_command(), 0..80)) {
        let limits = Arc::new(Limits::default());
        let mut state = State::new(limits.clone());
        step(&mut state, &Command::HostStart { start: start(1), adopt: false });
        step(&mut state, &create());
        for n in 0..3 {
            step(&mut state, &spawn(&format!("agent-{n}")));
        }
        for command in &commands {
            let before = state.clone();
            step(&mut state, command);
            let board = &state.find_team("main").unwrap().board;
            for old in before.find_team("main").unwrap().board.tasks() {
                let new = board.get(&old.id).unwrap();
                prop_assert!(new.generation >= old.generation, "generations only rise");
                if old.status == TaskStatus::Completed {
                    prop_assert_eq!((new.status, &new.owner, &new.result), (old.status, &old.owner, &old.result));
                }
            }
            for task in board.tasks() {
                if task.status == TaskStatus::InProgress {
                    prop_assert!(task.owner.is_some() && task.generation.is_some());
                    let owner = task.owner.as_ref().unwrap();
                    prop_assert!(owner.is_lead() || board.held_by(owner).count() == 1);
                }
                for blocker in &task.blocked_by {
                    prop_assert!(board.path(blocker, &task.id).is_none(), "a cycle over {}", task.id);
                    prop_assert!(board.get(blocker).unwrap().blocks.contains(&task.id));
                }
            }
            let ready = board.oldest_ready(None);
            let expected = board.tasks().find(|task| {
                task.status == TaskStatus::Pending && task.owner.is_none() && task.hold.is_none()
                    && board.blockers(task).next().is_none()
            });
            prop_assert_eq!(ready.map(|task| &task.id), expected.map(|task| &task.id));
            let counts = board.counts();
            prop_assert_eq!(board.open(), counts.pending + counts.in_progress);
        }
        let snapshot = state.snapshot().unwrap();
        let restored = State::restore(&snapshot, limits).unwrap();
        prop_assert_eq!(restored.snapshot().unwrap().state, snapshot.state);
    }
}
