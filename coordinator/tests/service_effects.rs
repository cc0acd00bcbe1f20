//! What follows a decision, and what is answered while it is still on its way.

#![allow(clippy::unwrap_used, clippy::indexing_slicing, reason = "tests")]

mod service_support;

use std::time::Duration;

use posthouse_coordinator::authority::Command;
use posthouse_node::port::{AuthorityPort, Report};
use posthouse_shared::codes::Code;
use posthouse_shared::durable::hindered::Step;
use posthouse_shared::team::{AgentState, Standing};
use posthouse_shared::wire::Caller;
use posthouse_shared::wire::requests::Request;
use service_support::*;

/// So long a request is watched that must not be answered yet.
const NOT_YET: Duration = Duration::from_millis(300);

fn shutting_down(name: &str) -> Request {
    let (team, name) = named(name);
    Request::Shutdown { team, name, force: false }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_a_full_disk_kept_from_being_carried_out_is_tried_again() {
    let bench = Bench::new().await;
    bench.disk.fill("mailboxes/main/scout", 1);
    bench.spawn("scout").await;
    assert!(bench.node.mailboxes().get(&id("scout")).is_ok(), "spawn answers after its mailbox is there");
    bench.wait("agent/scout=idle").await;
    bench.close().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn mail_to_who_has_just_ended_is_refused_though_that_is_not_carried_out_yet() {
    let bench = Bench::new().await;
    bench.spawn("scout").await;
    bench.wait("agent/scout=idle").await;
    // The decisions behind this one wait until the disk lets it go.
    bench.disk.hold(Step::Change, "mailboxes/main/later");
    let later = bench.asking(bench.spawning("later"));
    bench.held().await;
    let state = bench.authority.state();
    let member = state.member(&"main".parse().unwrap(), &"scout".parse().unwrap()).unwrap();
    let caller = Caller::Agent { id: id("scout"), generation: member.generation };
    let ends = Command::Standing { applied: member.commanded, standing: Standing::Shutdown };
    bench.authority.decide(caller, ends, None).await.unwrap();
    let mut sent = bench.asking(sending("scout", "still there?"));
    let early = tokio::time::timeout(NOT_YET, &mut sent).await;
    assert!(early.is_err(), "answered before it is known: {early:?}");
    bench.disk.let_go();
    assert_eq!(sent.await.unwrap().unwrap_err().code, Code::AgentShutdown);
    later.await.unwrap().unwrap();
    bench.close().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_team_that_is_made_again_before_its_end_is_carried_out_has_nobody_of_the_old_one() {
    let bench = Bench::new().await;
    bench.spawn("scout").await;
    bench.wait("agent/scout=idle").await;
    bench.disk.hold(Step::Change, "mailboxes/main/later");
    let later = bench.asking(bench.spawning("later"));
    bench.held().await;
    let deleted = bench.asking(Request::TeamDelete { team: "main".to_owned() });
    bench.until(|state| state.teams.is_empty()).await;
    let made = bench.asking(bench.making());
    bench.until(|state| !state.teams.is_empty()).await;
    bench.disk.let_go();
    for asked in [deleted, made] {
        asked.await.unwrap().unwrap();
    }
    let _its_team_may_be_gone_by_now = later.await.unwrap();
    assert!(bench.node.mailboxes().get(&id("scout")).is_err(), "the old team's scout has a mailbox");
    assert_eq!(bench.node.directory().get(&id("scout")), None);
    bench.spawn("scout").await;
    bench.wait("agent/scout=idle").await;
    bench.close().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_new_holder_of_a_name_is_not_said_to_be_what_the_old_one_was_last() {
    let bench = Bench::new().await;
    bench.spawn("scout").await;
    bench.wait("agent/scout=idle").await;
    bench.ask(shutting_down("scout")).await.unwrap();
    bench.wait("agent/scout=shutdown").await;
    bench.disk.hold(Step::Change, "mailboxes/main/scout");
    let spawned = bench.asking(bench.spawning("scout"));
    bench.held().await;
    let (team, name) = named("scout");
    let seen = bench.ask(Request::AgentShow { team, name }).await.unwrap();
    assert_eq!(seen["agent"]["state"], "idle", "{seen}");
    bench.disk.let_go();
    spawned.await.unwrap().unwrap();
    bench.wait("agent/scout=idle").await;
    bench.close().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_team_is_not_settled_by_a_look_during_which_something_moved() {
    let bench = Bench::new().await;
    bench.spawn("a").await;
    bench.wait("team=settled").await;
    // "a" is looked at, then the lead's mailbox, which must be read from disk.
    bench.node.mailboxes().drop_idle(Duration::ZERO);
    bench.disk.hold(Step::List, "mailboxes/main/lead");
    let mut settled = bench.asking(waiting("team=settled", 20_000));
    bench.held().await;
    let generation = {
        let state = bench.authority.state();
        state.member(&"main".parse().unwrap(), &"a".parse().unwrap()).unwrap().generation
    };
    let said = |state, turn| Report { generation, state, turn, attempt: 1, task: None, doing: String::new() };
    bench.service.report(&id("a"), said(AgentState::Running, 9));
    bench.disk.let_go();
    let early = tokio::time::timeout(NOT_YET, &mut settled).await;
    assert!(early.is_err(), "settled while \"a\" runs: {early:?}");
    bench.service.report(&id("a"), said(AgentState::Idle, 9));
    assert_eq!(settled.await.unwrap().unwrap()["holds"], true);
    bench.close().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_agent_is_not_idle_by_a_look_before_its_turn_began() {
    let bench = Bench::new().await;
    bench.spawn("a").await;
    bench.wait("agent/a=idle").await;
    bench.node.mailboxes().drop_idle(Duration::ZERO);
    bench.disk.hold(Step::List, "mailboxes/main/a");
    let mut idle = bench.asking(waiting("agent/a=idle", 20_000));
    bench.held().await;
    let state = bench.authority.state();
    let generation = state.member(&"main".parse().unwrap(), &"a".parse().unwrap()).unwrap().generation;
    let said = |state, turn| Report { generation, state, turn, attempt: 1, task: None, doing: String::new() };
    bench.service.report(&id("a"), said(AgentState::Running, 9));
    bench.disk.let_go();
    let early = tokio::time::timeout(NOT_YET, &mut idle).await;
    assert!(early.is_err(), "idle while it runs: {early:?}");
    bench.service.report(&id("a"), said(AgentState::Idle, 9));
    assert_eq!(idle.await.unwrap().unwrap()["holds"], true);
    bench.close().await;
}
