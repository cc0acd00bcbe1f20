//! The checker of recorded histories: good ones pass, and each kind of fault put into one is found.

#![allow(clippy::unwrap_used, clippy::panic, clippy::indexing_slicing, reason = "a test")]

use posthouse_shared::generation::Generation;
use posthouse_tests::checker::{Breach, Fact, Record, check};
use proptest::prelude::*;

fn at(host: &str, fact: Fact) -> Record {
    Record { host: host.to_owned(), fact }
}

fn claim(task: usize, agent: &str, index: u64) -> Fact {
    Fact::Claim { task: format!("t{task}"), agent: agent.to_owned(), generation: Generation::new(1, index) }
}

fn complete(task: usize, agent: &str, index: u64) -> Fact {
    Fact::Complete {
        task: format!("t{task}"),
        agent: agent.to_owned(),
        generation: Generation::new(1, index),
    }
}

/// A good history: mail of two senders to two agents on two hosts, in batches; tasks of which some are claimed again.
fn good() -> impl Strategy<Value = Vec<Record>> {
    let mail = prop::collection::vec((0..2usize, 0..2usize), 1..40);
    let tasks = prop::collection::vec(any::<bool>(), 1..6);
    (mail, tasks).prop_map(|(mail, tasks)| {
        let mut history = Vec::new();
        let mut waiting = [Vec::new(), Vec::new()];
        for (number, (from, to)) in mail.iter().enumerate() {
            let id = format!("m{number}");
            let fact = Fact::Accept { id: id.clone(), from: format!("s{from}"), to: format!("a{to}") };
            history.push(at("alpha", fact));
            waiting[*to].push(id);
            if number % 3 == 0 {
                take(&mut history, &mut waiting[*to], *to);
            }
        }
        for (to, waiting) in waiting.iter_mut().enumerate() {
            take(&mut history, waiting, to);
        }
        for (number, again) in tasks.into_iter().enumerate() {
            let index = number as u64 * 10 + 1;
            history.push(at("beta", claim(number, "a0", index)));
            let (agent, index) = if again { ("a1", index + 1) } else { ("a0", index) };
            if again {
                history.push(at("gamma", claim(number, agent, index)));
            }
            history.push(at("alpha", complete(number, agent, index)));
        }
        history
    })
}

fn take(history: &mut Vec<Record>, waiting: &mut Vec<String>, to: usize) {
    let (host, agent) = ([("beta"), ("gamma")][to], format!("a{to}"));
    for id in waiting.iter() {
        let fact = Fact::Inject { id: id.clone(), agent: agent.clone(), delivery: 0, late: false };
        history.push(at(host, fact));
    }
    for id in waiting.drain(..) {
        history.push(at(host, Fact::Done { id, agent: agent.clone() }));
    }
}

fn position(history: &[Record], wanted: impl Fn(&Fact) -> bool) -> usize {
    history.iter().position(|record| wanted(&record.fact)).unwrap()
}

fn is_inject(fact: &Fact) -> bool {
    matches!(fact, Fact::Inject { .. })
}

proptest! {
    #[test]
    fn a_good_history_breaks_no_promise(history in good()) {
        assert_eq!(check(&history), std::collections::BTreeSet::new());
    }

    #[test]
    fn each_fault_put_into_a_good_history_is_found(history in good()) {
        let first = position(&history, is_inject);
        let Fact::Inject { id, agent, .. } = history[first].fact.clone() else { unreachable!() };
        let of = |fact: &Fact| matches!(fact, Fact::Inject { id: one, .. } | Fact::Done { id: one, .. } if *one == id);

        let lost: Vec<Record> = history.iter().filter(|record| !of(&record.fact)).cloned().collect();
        assert!(check(&lost).contains(&Breach::Lost { id: id.clone() }));

        let mut twice = history.clone();
        twice.push(history[first].clone());
        assert!(check(&twice).contains(&Breach::InjectedTwice { id: id.clone(), agent: agent.clone() }));

        let mut two_agents = history.clone();
        two_agents.push(at("gamma", Fact::Inject { id: id.clone(), agent: "other".to_owned(), delivery: 0, late: false }));
        assert!(check(&two_agents).iter().any(|breach| matches!(breach, Breach::InjectedTwice { .. })));

        let is_done = |fact: &Fact| matches!(fact, Fact::Done { id: one, .. } if *one == id);
        let mut dropped = history.clone();
        dropped.remove(position(&history, is_done));
        assert!(check(&dropped).contains(&Breach::DroppedSilently { id: id.clone() }));

        let mut unseen = history.clone();
        unseen.remove(first);
        assert!(check(&unseen).contains(&Breach::DoneUnseen { id: id.clone() }));

        let mut foreign = history.clone();
        foreign.remove(position(&history, |fact| matches!(fact, Fact::Accept { id: one, .. } if *one == id)));
        assert!(check(&foreign).contains(&Breach::Foreign { id }));

        let won = position(&history, |fact| matches!(fact, Fact::Claim { .. }));
        let mut winners = history.clone();
        winners.push(at("gamma", claim(0, "thief", 1)));
        assert!(check(&winners).iter().any(|breach| matches!(breach, Breach::TwoWinners { .. })));

        let mut unclaimed = history.clone();
        unclaimed.push(at("alpha", complete(99, "a0", 7)));
        assert!(check(&unclaimed).iter().any(|breach| matches!(breach, Breach::CompletedByOther { .. })));

        let mut stale = history.clone();
        stale.insert(won, at("gamma", claim(0, "a9", 9)));
        assert!(check(&stale).iter().any(|breach| matches!(breach, Breach::CompletedByOther { .. })));

        let mut again = history.clone();
        let completed = position(&history, |fact| matches!(fact, Fact::Complete { .. }));
        again.push(history[completed].clone());
        assert!(check(&again).contains(&Breach::CompletedTwice { task: "t0".to_owned() }));
    }
}

#[test]
fn a_wrong_order_is_found_and_what_is_late_or_redelivered_stands_outside_it() {
    let accept = |id: &str| {
        at("alpha", Fact::Accept { id: id.to_owned(), from: "lead".to_owned(), to: "a".to_owned() })
    };
    let inject = |id: &str, delivery: u32, late: bool| {
        at("beta", Fact::Inject { id: id.to_owned(), agent: "a".to_owned(), delivery, late })
    };
    let done = |id: &str| at("beta", Fact::Done { id: id.to_owned(), agent: "a".to_owned() });
    let history =
        |first: Record, second: Record| vec![accept("1"), accept("2"), first, second, done("1"), done("2")];
    let wrong = history(inject("2", 0, false), inject("1", 0, false));
    let expected = Breach::OutOfOrder { earlier: "1".to_owned(), later: "2".to_owned() };
    assert_eq!(check(&wrong), [expected].into());
    assert!(check(&history(inject("1", 0, false), inject("2", 0, false))).is_empty());
    assert!(check(&history(inject("2", 0, false), inject("1", 0, true))).is_empty());
    assert!(check(&history(inject("2", 0, false), inject("1", 1, false))).is_empty());
    // The lines are what is kept of a run.
    let line = serde_json::to_string(&wrong[2]).unwrap();
    assert_eq!(serde_json::from_str::<Record>(&line).unwrap(), wrong[2]);
}
