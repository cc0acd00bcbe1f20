//! Teammates with real programs: what a turn gets, what it causes, how it fails.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing, reason = "tests")]

mod teammate_support;

use posthouse_node::port::GaveUp;
use posthouse_shared::limits::Limits;
use posthouse_shared::message::Kind;
use posthouse_shared::team::{AgentState, Standing};
use posthouse_shared::wire::event::What;
use teammate_support::*;

use AgentState::{Failed, Idle, Running, Stopped};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn mail_becomes_a_turn_and_the_lead_hears_its_result_once() {
    let bench = Bench::new(limits()).await;
    bench.scout("cat > input.json; echo all done").await;
    let sent = bench.send("count the files");
    bench.told_lead(Kind::Idle, 1).await;
    assert_eq!(bench.inbox(), [(Kind::Idle, "all done".to_owned())]);
    let input: serde_json::Value = serde_json::from_str(&bench.file("input.json")).unwrap();
    assert_eq!(input["turn"], 1);
    assert_eq!(input["agent"], "scout");
    let message = &input["messages"][0];
    assert_eq!(message["id"], sent.to_string());
    assert_eq!((message["from"].as_str(), message["body"].as_str()), (Some("lead"), Some("count the files")));
    assert_eq!((message["attempt"].as_u64(), message["kind"].as_str()), (Some(1), Some("message")));
    assert!(input.get("task").is_none());
    let counts = bench.node.mailboxes().get(&id("scout")).unwrap().counts().unwrap();
    assert_eq!((counts.ready, counts.processing, counts.done), (0, 0, 1));
    assert!(bench.history().contains("count the files"));
    assert!(bench.node.close(std::time::Duration::from_secs(5)).await);
    // Who saw it idle found the notice.
    assert_eq!(bench.port.told().notices_at_idle, [1]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn several_messages_are_one_turn_and_nothing_is_said_when_nothing_changes() {
    let bench = Bench::new(limits()).await;
    for n in 0..5 {
        bench.send(&format!("m{n}"));
    }
    bench.scout("jq -r '.messages[].body' | tee -a order; ").await;
    bench.told_lead(Kind::Idle, 1).await;
    assert_eq!(bench.file("order"), "m0\nm1\nm2\nm3\nm4\n");
    // Polls of the board change nothing.
    for _ in 0..5 {
        bench.node.board_changed(&team());
    }
    bench.send("m5");
    bench.told_lead(Kind::Idle, 2).await;
    let kinds: Vec<Kind> = bench.inbox().into_iter().map(|(kind, _)| kind).collect();
    assert_eq!(kinds, [Kind::Idle, Kind::Idle]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_idle_teammate_claims_tasks_one_after_another_and_tells_the_lead_at_the_end() {
    let bench = Bench::new(limits()).await;
    bench.port.with(|told| told.tasks = vec![task(1), task(2)]);
    bench.scout(r#"jq -r .task.subject; echo "$POSTHOUSE_TASK $POSTHOUSE_TASK_GENERATION" >> env"#).await;
    let told = bench.port.until("two completions", |told| told.completed.len() == 2).await;
    let results: Vec<&str> = told.completed.iter().map(|(_, result)| result.as_str()).collect();
    assert_eq!(results, ["task 1", "task 2"]);
    bench.told_lead(Kind::Idle, 1).await;
    assert_eq!(bench.file("env"), "T-1 1.101\nT-2 1.102\n");
    assert_eq!(bench.inbox(), [(Kind::Idle, "task 2".to_owned())]);
    // A board that changes wakes it.
    bench.port.with(|told| told.tasks = vec![task(3)]);
    bench.node.board_changed(&team());
    bench.port.until("a third", |told| told.completed.len() == 3).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_failed_turn_is_quarantined_as_one_batch_and_redelivered_in_order() {
    let bench = Bench::new(limits()).await;
    for n in 0..3 {
        bench.send(&format!("m{n}"));
    }
    let mailbox =
        bench.scout("test -e ok || { echo half; echo broken >&2; exit 3; }; jq -r '.messages[].body'").await;
    bench.states("failed", &[Running, Failed]).await;
    let told = bench.port.until("standing", |told| !told.standings.is_empty()).await;
    assert_eq!(told.standings, [Standing::Failed]);
    assert_eq!(mailbox.counts().unwrap().quarantined, 3);
    let [(kind, body)] = &bench.inbox()[..] else { panic!("one result") };
    assert_eq!(*kind, Kind::Result);
    assert!(body.contains("exit 3") && body.contains("half") && body.contains("broken"), "{body}");
    // It claims nothing until it is resumed; a person brings the batch back.
    std::os::unix::fs::symlink("/dev/null", bench.dir.join("ok")).unwrap();
    assert_eq!(mailbox.redeliver_turn(1).unwrap().len(), 3);
    bench.command(Kind::Resume, 9, false);
    bench.told_lead(Kind::Idle, 1).await;
    assert_eq!(bench.inbox(), [(Kind::Idle, "m0\nm1\nm2".to_owned())]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_task_of_a_failed_turn_is_given_back() {
    let bench = Bench::new(limits()).await;
    bench.port.with(|told| told.tasks = vec![task(1)]);
    bench.scout("exit 1").await;
    let told = bench.port.until("given back", |told| !told.gave_up.is_empty()).await;
    assert_eq!(told.gave_up[0].1, GaveUp::Failed { why: "exit 1".to_owned() });
    bench.told_lead(Kind::Result, 1).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_agent_that_somebody_kills_is_tried_again_and_marked_until_it_was_tried_enough() {
    let bench = Bench::new(limits()).await;
    bench.send("poison");
    let mailbox = bench.scout("jq -r '.messages[0].attempt' >> attempts; kill -9 $$").await;
    bench.told_lead(Kind::Notice, 1).await;
    assert_eq!(bench.file("attempts"), "1\n2\n3\n");
    assert_eq!(mailbox.counts().unwrap().quarantined, 1);
    assert_eq!(bench.history().matches(r#""record":"input""#).count(), 1);
    // The poison is out of the way: the next message is taken.
    bench.send("next");
    bench
        .port
        .until("a fourth turn", |told| {
            told.events.iter().filter(|what| matches!(what, What::MessageClaimed { .. })).count() == 4
        })
        .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_task_whose_agent_is_killed_again_and_again_is_given_up() {
    let bench = Bench::new(limits()).await;
    bench.port.with(|told| told.tasks = vec![task(1)]);
    bench.scout("echo x >> tries; kill -9 $$").await;
    let told = bench.port.until("given up", |told| !told.gave_up.is_empty()).await;
    assert!(matches!(&told.gave_up[..], [(_, GaveUp::Failed { .. })]), "{:?}", told.gave_up);
    assert_eq!(bench.file("tries").lines().count(), 3);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_turn_may_not_run_longer_than_the_limit() {
    let bench = Bench::new(Limits { turn_ms_max: 50, ..limits() }).await;
    bench.send("go");
    bench.scout("sleep 600").await;
    bench.states("failed", &[Running, Failed]).await;
    assert!(bench.inbox()[0].1.contains("turn_ms_max"));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_stop_cancels_the_turn_and_newer_mail_of_the_lead_resumes_it() {
    let bench = Bench::new(limits()).await;
    let mailbox = bench.scout("cat >> seen; echo >> seen; test -e quick || sleep 600").await;
    bench.send("one");
    bench.appears("seen").await;
    bench.command(Kind::Stop, 5, false);
    bench.states("stopped", &[Running, Stopped]).await;
    assert_eq!(mailbox.counts().unwrap().ready, 1);
    // Mail of others is held, the lead's resumes it; a stop that is known already is passed over.
    bench.send_from_other("not for this");
    bench.node.board_changed(&team());
    bench.command(Kind::Stop, 4, false);
    bench.port.with(|told| told.commanded = generation(5));
    std::os::unix::fs::symlink("/dev/null", bench.dir.join("quick")).unwrap();
    bench.send("two");
    bench.told_lead(Kind::Idle, 1).await;
    let told = bench.port.told();
    assert_eq!(told.standings, [Standing::Active]);
    // The stopped attempt did not count.
    let turns: Vec<serde_json::Value> = bench
        .file("seen")
        .lines()
        .filter(|l| !l.is_empty())
        .map(|l| serde_json::from_str(l).unwrap())
        .collect();
    assert_eq!(turns.len(), 2);
    assert_eq!(turns[1]["messages"][0]["attempt"], 1);
    assert_eq!(turns[1]["messages"].as_array().unwrap().len(), 3);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_shutdown_is_asked_for_in_a_turn_of_its_own_and_may_be_refused_or_forced() {
    let bench = Bench::new(limits()).await;
    let script = "if jq -e '.messages[0].kind == \"shutdown_request\" and (.messages | length) == 1' > /dev/null; then echo busy with the report; exit 1; fi; echo fine";
    bench.scout(script).await;
    bench.command(Kind::ShutdownRequest, 5, false);
    bench.told_lead(Kind::ShutdownResponse, 1).await;
    bench.states("idle again", &[Running, Idle]).await;
    let [(_, body)] = &bench.inbox()[..] else { panic!() };
    assert!(body.contains(r#""agreed":false"#) && body.contains("busy with the report"), "{body}");
    bench.send("still there?");
    bench.told_lead(Kind::Idle, 1).await;
    bench.command(Kind::ShutdownRequest, 6, true);
    let told = bench.port.until("standing", |told| !told.standings.is_empty()).await;
    assert_eq!(told.standings, [Standing::Shutdown]);
    bench.told_lead(Kind::ShutdownResponse, 2).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn at13_a_shutdown_is_agreed_to_by_exit_0_or_by_silence() {
    for script in ["exit 0", "trap '' TERM; sleep 600 & wait; sleep 600"] {
        let bench = Bench::new(limits()).await;
        bench.scout(script).await;
        bench.command(Kind::ShutdownRequest, 5, false);
        let told = bench.port.until("standing", |told| !told.standings.is_empty()).await;
        assert_eq!(told.standings, [Standing::Shutdown]);
        bench.told_lead(Kind::ShutdownResponse, 1).await;
        assert!(bench.inbox()[0].1.contains(r#""agreed":true"#));
        bench.states("shut down", &[AgentState::Shutdown]).await;
        assert_eq!(bench.port.told().ends_too_early, 0);
        assert!(bench.node.close(std::time::Duration::from_secs(5)).await);
        let counts = bench.node.mailboxes().get(&id("scout")).unwrap().counts().unwrap();
        assert_eq!((counts.ready, counts.processing), (0, 0));
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_completion_that_fails_is_retried_alone() {
    let bench = Bench::new(limits()).await;
    bench.port.with(|told| {
        told.tasks = vec![task(1)];
        told.fail_completions = 3;
    });
    bench.scout("echo x >> runs; echo result").await;
    let told = bench.port.until("completed", |told| !told.completed.is_empty()).await;
    assert_eq!(told.completed[0].1, "result");
    bench.told_lead(Kind::Idle, 1).await;
    assert_eq!(bench.file("runs"), "x\n");
    assert_eq!(bench.history().matches(r#""record":"turn_end""#).count(), 1);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_turns_result_is_told_when_more_is_to_be_done_and_never_twice() {
    let bench = Bench::new(limits()).await;
    bench.scout("b=$(jq -r '.messages[0].body'); test \"$b\" = one && until test -e go; do sleep 0.01; done; echo did $b").await;
    bench.send("one");
    bench.states("running", &[Running]).await;
    bench.send("two");
    std::os::unix::fs::symlink("/dev/null", bench.dir.join("go")).unwrap();
    bench.told_lead(Kind::Idle, 1).await;
    let inbox = bench.inbox();
    assert_eq!(inbox, [(Kind::Result, "did one".to_owned()), (Kind::Idle, "did two".to_owned())]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_closing_node_ends_turns_and_their_input_comes_again_as_the_same_attempt() {
    let bench = Bench::new(limits()).await;
    let mailbox = bench.scout("sleep 600").await;
    bench.send("long");
    bench.states("running", &[Running]).await;
    assert!(bench.node.close(std::time::Duration::from_millis(20)).await);
    assert_eq!(mailbox.counts().unwrap().ready, 1);
    let seen = mailbox.peek(1).unwrap();
    assert_eq!(seen[0].attempt, 1);
    assert!(bench.history().contains(r#""disposition":"released","counts":false"#));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_turn_that_ends_within_the_grace_of_a_close_is_done() {
    let bench = Bench::new(limits()).await;
    let mailbox = bench.scout("until test -e go; do sleep 0.01; done; echo done").await;
    bench.send("short");
    bench.states("running", &[Running]).await;
    let node = bench.node.clone();
    let closing = async { node.close(std::time::Duration::from_secs(20)).await };
    let going = async { std::os::unix::fs::symlink("/dev/null", bench.dir.join("go")).unwrap() };
    assert!(tokio::join!(closing, going).0);
    assert_eq!(mailbox.counts().unwrap().done, 1);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_second_signal_ends_turns_at_once() {
    let bench = Bench::new(limits()).await;
    let mailbox = bench.scout("trap '' TERM; sleep 600 & wait; sleep 600").await;
    bench.send("long");
    bench.states("running", &[Running]).await;
    let node = bench.node.clone();
    let closing = async { node.close(std::time::Duration::from_secs(3600)).await };
    let killing = async { bench.node.kill_now() };
    let both = async { tokio::join!(closing, killing) };
    assert!(tokio::time::timeout(std::time::Duration::from_secs(20), both).await.unwrap().0);
    assert_eq!(mailbox.peek(1).unwrap()[0].attempt, 1);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn at06_a_body_larger_than_an_envelope_reaches_the_turn_whole_and_one_that_is_gone_is_quarantined() {
    let bench = Bench::new(limits()).await;
    let body: String = (0..40_000).map(|n| format!("{n} \"ü\"\n")).collect();
    assert!(body.len() > 256 * 1024);
    let gone = "x".repeat(300_000);
    bench.send(&gone);
    bench.send(&body);
    let blob = bench.node.blobs().put(gone.as_bytes()).unwrap();
    posthouse_shared::durable::Files::real()
        .remove_unsynced(&bench.node.blobs().path(&blob).unwrap())
        .unwrap();
    bench.scout("jq -j '.messages[].body' > got; echo all done").await;
    bench.told_lead(Kind::Idle, 1).await;
    assert!(bench.file("got") == body, "the body was changed on its way");
    let mailbox = bench.node.mailboxes().get(&id("scout")).unwrap();
    let quarantined = mailbox.quarantined().unwrap();
    assert_eq!(quarantined.len(), 1);
    assert_eq!(quarantined[0].reason.code, "no_body");
    // The history names the body, and is not as long as it.
    assert!(bench.history().len() < 10_000);
    assert!(bench.history().contains(&posthouse_shared::identity::sha256_hex(body.as_bytes())));
}
