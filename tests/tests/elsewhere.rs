//! What lies on other hosts: seen and mended from the coordinator, refused with what is known where the host is
//! away; and what a host does alone. Real coordinators, hosts and NATS servers.

#![allow(
    clippy::unwrap_used,
    clippy::panic,
    clippy::indexing_slicing,
    clippy::disallowed_methods,
    reason = "a test"
)]

use std::collections::BTreeMap;

use posthouse_shared::name::{AgentName, HostName, TaskId};
use posthouse_shared::task::TaskSpec;
use posthouse_shared::team::{MemberSpec, RunnerSpec, TeamConfig};
use posthouse_shared::wire::requests::Request;
use posthouse_tests::cluster::{Host, Posthouse};
use posthouse_tests::home::{Home, TEAM};
use posthouse_tests::nats::Nats;
use posthouse_tests::recorded::wait_for_text;
use posthouse_tests::repository::agent;

/// 100 claimers, 25 on each of four hosts, and their tasks.
const HOSTS: [&str; 4] = ["alpha", "beta", "gamma", "delta"];
const CLAIMERS: usize = 100;
const TASKS: usize = 1_000;

fn home() -> Home {
    let home = Home::new();
    home.expect_log("WARN");
    home
}

fn spawn_on(posthouse: &Posthouse<'_>, host: &str, name: &str, command: &[&str]) {
    let start = ["spawn", name, "--host", host, "--prompt", "hello", "--"];
    posthouse.ok(&[&start, command].concat());
}

#[test]
fn mail_log_trace_and_quarantine_of_another_host_are_seen_and_mended_from_here() {
    let Some(nats) = Nats::start() else { return };
    let home = home();
    let posthouse = Posthouse::serve(&home, nats.url(), &[]);
    posthouse.team();
    let beta = Host::join(&posthouse, nats.url(), "beta", &[]);
    let dir = home.dir("work");
    // It fails while the file is there.
    let bad = "cat > /dev/null; echo said aloud >&2; if [ -e \"$0/bad\" ]; then exit 7; fi";
    std::fs::write(dir.join("bad"), "").unwrap();
    spawn_on(&posthouse, "beta", "far", &["sh", "-c", bad, &dir.display().to_string()]);
    posthouse.wait("agent/far=failed");
    let log = posthouse.ok(&["log", "far"]).stdout;
    assert!(log.contains("said aloud"), "{log}");
    let listed = posthouse.json(&["quarantine", "ls"]);
    let [entry] = listed["quarantined"].as_array().unwrap().as_slice() else { panic!("{listed:#}") };
    assert_eq!((&entry["host"], &entry["code"]), (&"beta".into(), &"turn_failed".into()));
    let prompt = entry["id"].as_str().unwrap();
    assert!(posthouse.ok(&["quarantine", "show", prompt]).stdout.contains("hello"));

    std::fs::remove_file(dir.join("bad")).unwrap();
    posthouse.ok(&["quarantine", "redeliver", prompt, "--turn"]);
    posthouse.ok(&["resume", "far"]);
    posthouse.wait(&format!("message/{prompt}=done"));
    let trace = posthouse.json(&["trace", prompt]);
    let steps: Vec<(&str, &str)> = trace["steps"]
        .as_array()
        .unwrap()
        .iter()
        .map(|step| (step["stage"].as_str().unwrap(), step["host"].as_str().unwrap()))
        .collect();
    assert_eq!(steps.first(), Some(&("accepted", "alpha")), "{steps:?}");
    assert!(steps.contains(&("stored", "beta")) && steps.contains(&("quarantined", "beta")), "{steps:?}");
    assert_eq!(steps.last(), Some(&("done", "beta")), "{steps:?}");

    // A drop over there is told to the sender here.
    std::fs::write(dir.join("bad"), "").unwrap();
    let id = posthouse.send("far", "drop me");
    posthouse.wait("agent/far=failed");
    posthouse.ok(&["quarantine", "drop", &id, "--yes"]);
    let told = posthouse.json(&["inbox", "--peek"]).to_string();
    assert!(told.contains("was dropped from quarantine by a person") && told.contains(&id), "{told}");
    posthouse.ok(&["stop", "far"]);
    let held = posthouse.json(&["inbox", "far"]);
    assert_eq!((&held["peek"], held["messages"].as_array().unwrap().len()), (&true.into(), 0), "{held:#}");

    beta.kill9();
    for command in [&["inbox", "far"][..], &["log", "far"]] {
        let away = posthouse.cli(&[command, &["--json"]].concat()).ended(4).json();
        assert_eq!(away["error"]["code"], "PH0217", "{away:#}");
        assert!(away.to_string().contains("last heard"), "{away:#}");
    }
    let id = posthouse.send("far", "when you are back");
    let trace = posthouse.json(&["trace", &id]);
    assert_eq!(trace["state"], "accepted", "{trace:#}");
    assert_eq!(posthouse.json(&["quarantine", "ls"])["unseen"][0], "beta");

    // Nobody's home is taken away; an empty one goes, and its node ends by itself.
    let used = posthouse.cli(&["hosts", "remove", "beta", "--yes", "--json"]).ended(3).json();
    assert_eq!(used["error"]["code"], "PH0216", "{used:#}");
    let gamma = Host::join(&posthouse, nats.url(), "gamma", &[]);
    posthouse.ok(&["hosts", "remove", "gamma", "--yes"]);
    let hosts = posthouse.json(&["hosts", "ls"]);
    assert_eq!(hosts["hosts"].as_array().unwrap().len(), 2, "{hosts:#}");
    assert_eq!(gamma.ended(), 3);
    home.expect_log("ERROR");
    assert_eq!(posthouse.term(), 0);
}

#[test]
fn a_host_starts_while_the_coordinator_is_away_and_its_teammates_go_on() {
    let Some(nats) = Nats::start() else { return };
    let home = home();
    let posthouse = Posthouse::serve(&home, nats.url(), &[]);
    posthouse.team();
    let beta = Host::join(&posthouse, nats.url(), "beta", &[]);
    let dir = home.dir("work");
    let waits = "cat > /dev/null; : > \"$0/begun\"; while [ ! -e \"$0/go\" ]; do sleep 0.05; done; : > \"$0/went\"; echo went";
    spawn_on(&posthouse, "beta", "far", &["sh", "-c", waits, &dir.display().to_string()]);
    wait_for_text(&dir.join("begun"), "");
    posthouse.kill9();
    beta.kill9();
    std::fs::write(dir.join("go"), "").unwrap();
    let beta = Host::up(&home, nats.url(), "beta", &[]);
    wait_for_text(&dir.join("went"), "");
    let posthouse = Posthouse::serve(&home, nats.url(), &[]);
    posthouse.wait("team=settled");
    let mail = posthouse.json(&["inbox", "--peek"]).to_string();
    assert!(mail.contains("went"), "its last word did not come: {mail}");
    assert_eq!(beta.term(), 0);
    assert_eq!(posthouse.term(), 0);
}

#[test]
fn at09_a_hundred_claimers_on_four_hosts_do_each_of_a_thousand_tasks_once() {
    let Some(nats) = Nats::start() else { return };
    let home = home();
    let posthouse = Posthouse::serve(&home, nats.url(), &[]);
    let hosts: Vec<Host> =
        HOSTS[1..].iter().map(|name| Host::join(&posthouse, nats.url(), name, &[])).collect();
    let dir = home.dir("done");
    let api = posthouse.api();
    let ask = |request: &Request| api.ask(request).unwrap_or_else(|fault| panic!("{request:?}: {fault:?}"));
    ask(&Request::TeamCreate { name: TEAM.to_owned(), config: TeamConfig::default() });
    for number in 0..TASKS {
        let id = TaskId::new(format!("t-{number}")).unwrap();
        let spec = TaskSpec { id: Some(id), subject: format!("task {number}"), ..TaskSpec::default() };
        ask(&Request::TaskAdd { team: TEAM.to_owned(), spec, request_id: None });
    }
    let work = "cat > /dev/null; if [ -n \"$POSTHOUSE_TASK\" ]; then echo \"$POSTHOUSE_AGENT\" >> \"$0/$POSTHOUSE_TASK\"; fi";
    for number in 0..CLAIMERS {
        let spec = MemberSpec {
            name: AgentName::new(format!("claimer-{number}")).unwrap(),
            role: None,
            model: None,
            color: None,
            cwd: home.room().to_owned(),
            runner: RunnerSpec::Command {
                command: ["sh", "-c", work, &dir.display().to_string()].map(str::to_owned).to_vec(),
            },
            prompt: String::from("take what there is"),
            self_claim: true,
            host: HostName::new(HOSTS[number % HOSTS.len()]).ok(),
            labels: BTreeMap::new(),
        };
        ask(&Request::Spawn { team: TEAM.to_owned(), spec });
    }
    posthouse.ok(&["wait", "team=settled", "--timeout", "400s"]);
    let board = ask(&Request::TaskList { team: TEAM.to_owned() });
    let mut homes: BTreeMap<String, usize> = BTreeMap::new();
    for task in board["tasks"].as_array().unwrap() {
        let (id, owner) = (task["id"].as_str().unwrap(), task["owner"].as_str().unwrap());
        assert_eq!(task["status"], "completed", "{task:#}");
        let name = std::fs::read_to_string(dir.join(id)).unwrap();
        assert_eq!(name.lines().collect::<Vec<_>>(), [owner], "{id} was worked on by others than its owner");
        let number: usize = owner.strip_prefix("claimer-").unwrap().parse().unwrap();
        *homes.entry(HOSTS[number % HOSTS.len()].to_owned()).or_default() += 1;
    }
    assert_eq!(homes.values().sum::<usize>(), TASKS);
    assert_eq!(homes.len(), HOSTS.len(), "not all hosts took part: {homes:?}");
    // A second holder of a name is refused, wherever it is.
    let second =
        ["spawn", "claimer-1", "--host", "gamma", "--prompt", "x", "--json", "--", &agent("echo.sh")];
    assert_eq!(posthouse.cli(&second).ended(3).json()["error"]["code"], "PH0210");
    for host in hosts {
        assert_eq!(host.term(), 0);
    }
    assert_eq!(posthouse.term(), 0);
}
