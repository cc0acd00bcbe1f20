//! at09, on one host: races for tasks. 100 claimers go for 1,000 tasks: each task has one winner, each loser is told
//! the owner, and what the board says is what the winners were told.

#![allow(clippy::unwrap_used, clippy::panic, clippy::indexing_slicing, reason = "a test")]

use std::collections::BTreeMap;
use std::sync::Mutex;

use posthouse_shared::codes::Code;
use posthouse_shared::name::{AgentName, TaskId};
use posthouse_shared::task::TaskSpec;
use posthouse_shared::team::{MemberSpec, RunnerSpec, TeamConfig};
use posthouse_shared::wire::requests::Request;
use posthouse_tests::api::{Api, Fault};
use posthouse_tests::cluster::Posthouse;
use posthouse_tests::home::{Home, TEAM};
use posthouse_tests::repository::agent;

const CLAIMERS: usize = 100;
const TASKS: usize = 1_000;

fn claimer(number: usize) -> String {
    format!("claimer-{number}")
}

fn ask(api: &Api, request: &Request) -> serde_json::Value {
    api.ask(request).unwrap_or_else(|fault| panic!("{request:?}: {fault:?}"))
}

/// A team whose members may hold many tasks at once and take none by themselves, and its tasks.
fn prepare(api: &Api, home: &Home) {
    let config = TeamConfig { busy_check: false, ..TeamConfig::default() };
    ask(api, &Request::TeamCreate { name: TEAM.to_owned(), config });
    for number in 0..CLAIMERS {
        let spec = MemberSpec {
            name: AgentName::new(claimer(number)).unwrap(),
            role: None,
            model: None,
            color: None,
            cwd: home.room().to_owned(),
            runner: RunnerSpec::Command { command: vec![agent("echo.sh")] },
            prompt: String::from("wait"),
            self_claim: false,
            host: None,
            labels: BTreeMap::new(),
        };
        ask(api, &Request::Spawn { team: TEAM.to_owned(), spec });
    }
    for number in 0..TASKS {
        let id = TaskId::new(format!("t-{number}")).unwrap();
        let spec = TaskSpec { id: Some(id), subject: format!("task {number}"), ..TaskSpec::default() };
        ask(api, &Request::TaskAdd { team: TEAM.to_owned(), spec, request_id: None });
    }
}

#[test]
fn at09_each_task_has_one_winner_and_losers_are_told_the_owner() {
    let home = Home::new();
    let posthouse = Posthouse::up(&home);
    let api = posthouse.api();
    prepare(&api, &home);
    let wins: Mutex<BTreeMap<String, (String, String)>> = Mutex::default();
    let told: Mutex<Vec<(String, String)>> = Mutex::default();
    std::thread::scope(|scope| {
        for number in 0..CLAIMERS {
            let (api, wins, told) = (&api, &wins, &told);
            scope.spawn(move || {
                // Each goes for a stretch that ten others go for too, from another end.
                for step in 0..TASKS / 10 {
                    let task = format!("t-{}", (number / 10 * 100 + step * 7 + number) % TASKS);
                    let name = claimer(number);
                    let request = Request::TaskClaim {
                        team: TEAM.to_owned(),
                        id: task.clone(),
                        as_agent: Some(name.clone()),
                        request_id: None,
                    };
                    match api.ask(&request) {
                        Ok(reply) => {
                            assert_eq!(reply["task"]["owner"], name.as_str());
                            let generation = reply["task"]["generation"].as_str().unwrap().to_owned();
                            let before =
                                wins.lock().unwrap().insert(task.clone(), (name.clone(), generation));
                            assert!(
                                before.is_none_or(|(winner, _)| winner == name),
                                "{task} has two winners"
                            );
                        }
                        Err(Fault::Refused(refusal)) => {
                            // The winner may have worked it off already.
                            assert!(
                                matches!(refusal.code, Code::TaskClaimed | Code::TaskDone),
                                "{refusal:?}"
                            );
                            told.lock().unwrap().push((task, format!("{refusal:?}")));
                        }
                        Err(Fault::Unknown(error)) => panic!("no answer: {error}"),
                    }
                }
            });
        }
    });
    let wins = wins.into_inner().unwrap();
    for (task, text) in told.into_inner().unwrap() {
        let (winner, _) = &wins[&task];
        assert!(text.contains(winner), "the loser of {task} was not told {winner}: {text}");
    }
    let check = |api: &Api| {
        let board = ask(api, &Request::TaskList { team: TEAM.to_owned() });
        let claimed = board["tasks"].as_array().unwrap().iter().filter(|task| task["status"] != "pending");
        let claimed: BTreeMap<String, (String, String)> = claimed
            .map(|task| {
                let text = |key: &str| task[key].as_str().unwrap().to_owned();
                (text("id"), (text("owner"), text("generation")))
            })
            .collect();
        assert_eq!(claimed, wins);
    };
    check(&api);
    let mut generations: Vec<&String> = wins.values().map(|(_, generation)| generation).collect();
    generations.sort();
    generations.dedup();
    assert_eq!(generations.len(), wins.len(), "two claims share a generation");
    assert!(wins.len() > TASKS / 2, "only {} tasks were claimed", wins.len());
    posthouse.kill9();
    let posthouse = Posthouse::up(&home);
    check(&posthouse.api());
    assert_eq!(posthouse.term(), 0);
}

#[test]
fn at09_a_second_holder_of_a_name_is_refused() {
    let home = Home::new();
    let posthouse = Posthouse::up(&home);
    posthouse.team();
    posthouse.spawn("scout", &[&agent("echo.sh")]);
    let second = posthouse.cli(&[
        "spawn",
        "scout",
        "--prompt",
        "x",
        "--runner",
        "command",
        "--json",
        "--",
        &agent("echo.sh"),
    ]);
    assert_eq!(second.ended(3).json()["error"]["code"], "PH0210");
    let taken = posthouse.cli(&["team", "create", TEAM, "--json"]).ended(3).json();
    assert_eq!(taken["error"]["code"], "PH0210");
}
