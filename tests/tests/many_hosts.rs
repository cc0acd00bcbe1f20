//! A team over several hosts: real coordinators, real hosts, a real NATS server. Mail crosses, tasks are claimed from
//! everywhere, and whatever is killed comes back with nothing lost and nothing done twice.

#![allow(
    clippy::unwrap_used,
    clippy::panic,
    clippy::indexing_slicing,
    clippy::disallowed_methods,
    reason = "a test"
)]

use std::collections::BTreeSet;
use std::path::Path;

use posthouse_tests::cluster::{Host, Posthouse};
use posthouse_tests::home::{Home, TEAM};
use posthouse_tests::nats::Nats;
use posthouse_tests::recorded::{assert_injected_once, attempts, recorder, wait_for_text};
use posthouse_tests::repository::{agent, top};

/// What is said where hosts and servers are killed on purpose.
const FAULTS: &[&str] = &["WARN", "ERROR"];

fn home() -> Home {
    let home = Home::new();
    FAULTS.iter().for_each(|text| home.expect_log(text));
    home
}

fn spawn_on(posthouse: &Posthouse<'_>, host: &str, name: &str, command: &[String]) {
    let command: Vec<&str> = command.iter().map(String::as_str).collect();
    let start = ["spawn", name, "--host", host, "--prompt", "hello", "--"];
    posthouse.ok(&[&start, command.as_slice()].concat());
}

fn injected(dir: &Path) -> BTreeSet<String> {
    attempts(dir).into_keys().collect()
}

#[test]
fn mail_crosses_between_two_hosts_and_survives_kill_9_of_either_and_of_the_bus() {
    let Some(mut nats) = Nats::start() else { return };
    let home = home();
    let dir = home.dir("scout");
    let posthouse = Posthouse::serve(&home, nats.url(), &[]);
    posthouse.team();
    let beta = Host::join(&posthouse, nats.url(), "beta", &["--label", "gpu=yes"]);
    spawn_on(&posthouse, "beta", "scout", &recorder(&dir));
    let mut sent: BTreeSet<String> = BTreeSet::new();
    let mut send = |posthouse: &Posthouse<'_>, text: &str| {
        let reply = posthouse.json(&["send", "scout", text]);
        // On this disk, and on no other yet (P5).
        assert_eq!(reply["state"], "accepted", "{reply:#}");
        sent.insert(reply["id"].as_str().unwrap().to_owned());
    };
    send(&posthouse, "one");
    posthouse.wait("agent/scout=idle");
    posthouse.wait("team=settled");

    // The host is away: what is accepted waits on the sender's disk.
    beta.kill9();
    send(&posthouse, "while the host is away");
    let beta = Host::up(&home, nats.url(), "beta", &[]);
    posthouse.wait("team=settled");

    // The coordinator is killed with mail in its outbox, and starts again while the host goes on.
    send(&posthouse, "just before the coordinator dies");
    posthouse.kill9();
    let posthouse = Posthouse::serve(&home, nats.url(), &[]);
    posthouse.wait("team=settled");

    // The bus dies, and comes back with nothing of what it held.
    nats.kill9();
    send(&posthouse, "while the bus is away");
    nats.again_blank();
    posthouse.wait("team=settled");
    send(&posthouse, "after all");
    posthouse.wait("team=settled");

    let prompt_and_all = injected(&dir);
    assert!(sent.is_subset(&prompt_and_all), "{sent:?} of {prompt_and_all:?}");
    assert_eq!(prompt_and_all.len(), sent.len() + 1);
    assert_injected_once(&dir);
    assert_eq!(beta.term(), 0);
    assert_eq!(posthouse.term(), 0);
}

#[test]
fn a_team_file_runs_over_three_hosts() {
    let Some(nats) = Nats::start() else { return };
    let home = home();
    let posthouse = Posthouse::serve(&home, nats.url(), &[]);
    let hosts = ["beta", "gamma"].map(|name| Host::join(&posthouse, nats.url(), name, &[]));
    let file = top().join("deploy/examples/audit.toml").display().to_string();
    let report = posthouse.json(&["run", &file]);
    assert_eq!(report["outcome"], "completed", "{report:#}");
    let agents = posthouse.json(&["ps", "--team", "audit", "-a"]);
    let homes: BTreeSet<&str> =
        agents["agents"].as_array().unwrap().iter().map(|agent| agent["host"].as_str().unwrap()).collect();
    assert_eq!(homes, BTreeSet::from(["alpha", "beta", "gamma"]), "{agents:#}");
    for host in hosts {
        assert_eq!(host.term(), 0);
    }
    assert_eq!(posthouse.term(), 0);
}

#[test]
fn at06_at10_a_killed_host_is_unreachable_then_lost_and_its_tasks_are_claimed_elsewhere_once() {
    let Some(nats) = Nats::start() else { return };
    let home = home();
    // A tenth of the defaults.
    let short = [("POSTHOUSE_LIMITS_UNREACHABLE_AFTER_MS", "4s"), ("POSTHOUSE_LIMITS_LOST_AFTER_MS", "8s")];
    let posthouse = Posthouse::serve(&home, nats.url(), &short);
    posthouse.team();
    let beta = Host::join(&posthouse, nats.url(), "beta", &[]);
    let dir = home.dir("slow");
    let start = ["spawn", "slow", "--host", "beta", "--self-claim", "--prompt", "hello", "--"];
    let waiter = "if [ -n \"$POSTHOUSE_TASK\" ]; then : > \"$0/claimed\"; sleep 600; fi; cat > /dev/null";
    posthouse.ok(&[&start[..], &["sh", "-c", waiter, &dir.display().to_string()]].concat());
    posthouse.wait("agent/slow=idle");
    posthouse.ok(&["task", "add", "The work", "--id", "work"]);
    wait_for_text(&dir.join("claimed"), "");
    let before = posthouse.json(&["task", "show", "work"]);
    assert_eq!(
        (&before["task"]["owner"], &before["task"]["status"]),
        (&"slow".into(), &"in_progress".into())
    );
    let mut events = posthouse.events();
    beta.kill9();
    events.until("host_state", |event| event["host"] == "beta" && event["state"] == "unreachable");
    // It is not taken for idle, nor its task for free, before it is lost.
    let sent = posthouse.json(&["send", "slow", "are you there?"]);
    assert_eq!(sent["state"], "accepted", "{sent:#}");
    assert_eq!(posthouse.json(&["task", "show", "work"])["task"]["status"], "in_progress");
    events.until("task_changed", |event| event["task"] == "work" && event["status"] == "pending");
    events.until("host_state", |event| event["host"] == "beta" && event["state"] == "lost");
    posthouse.spawn("other", &[&agent("echo.sh")]);
    let claimed = posthouse.json(&["task", "claim", "work", "--as", "other"]);
    let generation =
        |reply: &serde_json::Value| reply["task"]["generation"].as_str().map(str::to_owned).unwrap();
    assert!(generation(&claimed) > generation(&before), "{claimed:#}");
    // The old holder's word does not count any more.
    let old = generation(&before);
    posthouse.cli(&["task", "complete", "work", "--generation", &old, "--result", "late"]).ended(3);
    posthouse.ok(&["task", "complete", "work", "--as", "other", "--result", "done"]);
    let inbox = posthouse.json(&["inbox", "--peek"]);
    let notices = inbox["messages"].as_array().unwrap().iter();
    let lost =
        notices.filter(|one| one["kind"] == "notice" && one["body"].as_str().unwrap().contains("beta"));
    assert_eq!(lost.count(), 1, "{inbox:#}");
    // It comes back, and the message that waited arrives; the task is not done again.
    let beta = Host::up(&home, nats.url(), "beta", &[]);
    events.until("host_state", |event| event["host"] == "beta" && event["state"] == "up");
    let id = sent["id"].as_str().unwrap();
    posthouse.wait(&format!("message/{id}=done"));
    assert_eq!(posthouse.json(&["task", "show", "work"])["task"]["result"], "done");
    assert_eq!(beta.term(), 0);
    assert_eq!(posthouse.term(), 0);
}

#[test]
fn at12_while_the_bus_is_away_hosts_are_unknown_no_task_is_released_and_all_mail_arrives_afterwards() {
    let Some(mut nats) = Nats::start() else { return };
    let home = home();
    let short = [("POSTHOUSE_LIMITS_UNREACHABLE_AFTER_MS", "2s"), ("POSTHOUSE_LIMITS_LOST_AFTER_MS", "3s")];
    let posthouse = Posthouse::serve(&home, nats.url(), &short);
    posthouse.team();
    let beta = Host::join(&posthouse, nats.url(), "beta", &[]);
    let dir = home.dir("steady");
    // Its turn ends only when the bus is back.
    let steady = "if [ -n \"$POSTHOUSE_TASK\" ]; then : > \"$0/claimed\"; while [ ! -e \"$0/go\" ]; do sleep 0.1; done; fi; cat > /dev/null; echo well";
    let start = ["spawn", "steady", "--host", "beta", "--self-claim", "--prompt", "hello", "--"];
    posthouse.ok(&[&start[..], &["sh", "-c", steady, &dir.display().to_string()]].concat());
    posthouse.wait("agent/steady=idle");
    posthouse.ok(&["task", "add", "The work", "--id", "work"]);
    wait_for_text(&dir.join("claimed"), "");
    let claimed = posthouse.json(&["task", "show", "work"]);
    let mut events = posthouse.events();
    nats.kill9();
    events.until("host_state", |event| event["host"] == "beta" && event["state"] == "unknown");
    let ids: Vec<String> = (0..20).map(|n| posthouse.send("steady", &format!("number {n}"))).collect();
    // Three times as long as it takes to lose a host: nothing but time can show that nothing happens.
    let waited = posthouse.cli(&["wait", "task/work=pending", "--timeout", "9s"]);
    assert_eq!(waited.status, 5, "{waited:?}");
    let still = posthouse.json(&["task", "show", "work"]);
    assert_eq!(still["task"], claimed["task"]);
    nats.again();
    std::fs::write(dir.join("go"), "").unwrap();
    posthouse.wait("task/work=completed");
    for id in ids {
        posthouse.wait(&format!("message/{id}=done"));
    }
    events.until("host_state", |event| event["host"] == "beta" && event["state"] == "up");
    assert!(!events.told().contains("\"lost\""), "{}", events.told());
    assert_eq!(beta.term(), 0);
    assert_eq!(posthouse.term(), 0);
}

#[test]
fn who_may_not_join_and_a_bus_that_will_not_do_are_refused_with_what_to_do() {
    let Some(nats) = Nats::start() else { return };
    let home = home();
    let posthouse = Posthouse::serve(&home, nats.url(), &[]);
    let refused = |name: &str, more: &[&str], status: i32, code: &str| {
        let Err(not) = Host::try_up(&home, nats.url(), name, more) else { panic!("{name} was taken in") };
        assert_eq!(not.status, status, "{}", not.log);
        assert!(not.log.contains(code) && not.log.contains("help: "), "{}", not.log);
    };
    refused("beta", &[], 3, "posthouse hosts token");
    refused("beta", &["--join", "made-up"], 3, "posthouse hosts token");
    let token = posthouse.ok(&["hosts", "token"]).stdout.trim().to_owned();
    let beta = Host::up(&home, nats.url(), "beta", &["--join", &token]);
    refused("gamma", &["--join", &token], 3, "was used by host \"beta\"");
    let listed = posthouse.json(&["hosts", "ls"]);
    assert_eq!(listed["hosts"].as_array().unwrap().len(), 2, "{listed:#}");
    // A teammate that nobody can take.
    let placed = posthouse.cli(&["spawn", "x", "--host", "gamma", "--prompt", "p", "--", "true"]);
    assert!(placed.status == 3 || placed.status == 2, "{placed:?}");
    assert_eq!(beta.term(), 0);
    assert_eq!(posthouse.term(), 0);

    let other = Home::new();
    other.expect_log("WARN");
    let Err(away) = Posthouse::try_serve(&other, "nats://127.0.0.1:9", &[]) else {
        panic!("no bus, and ready")
    };
    assert!(away.status == 4 && away.log.contains("PH0601"), "{}", away.log);
    let Some(plain) = Nats::without_jetstream() else { return };
    let Err(unfit) = Posthouse::try_serve(&other, plain.url(), &[]) else {
        panic!("no JetStream, and ready")
    };
    assert!(unfit.status == 3 && unfit.log.contains("PH0603"), "{}", unfit.log);
}

#[test]
fn serve_brings_the_team_of_an_earlier_up_along() {
    let Some(nats) = Nats::start() else { return };
    let home = home();
    let posthouse = Posthouse::up(&home);
    posthouse.team();
    posthouse.spawn("scout", &[&agent("echo.sh")]);
    posthouse.wait("agent/scout=idle");
    posthouse.ok(&["task", "add", "Later", "--id", "later"]);
    // A coordinator of one host takes no others, and says how.
    let refused = posthouse.cli(&["hosts", "token"]).ended(3);
    assert!(refused.stderr.contains("posthouse serve"), "{refused:?}");
    assert_eq!(posthouse.term(), 0);
    let posthouse = Posthouse::serve(&home, nats.url(), &[]);
    let beta = Host::join(&posthouse, nats.url(), "beta", &[]);
    posthouse.ok(&["task", "show", "later", "--team", TEAM]);
    spawn_on(&posthouse, "beta", "far", &[agent("echo.sh")]);
    posthouse.ok(&["send", "scout", "still there?"]);
    posthouse.wait("team=settled");
    assert_eq!(beta.term(), 0);
    assert_eq!(posthouse.term(), 0);
}
