//! Faults at random while mail goes to two hosts: the network slow, cut, hanging, deaf one way; hosts, coordinator and
//! NATS killed; what NATS stored wiped. Afterwards everything heals, and the checker reads what each host wrote down.
//!
//! `SEED=n` begins another row of faults, POSTHOUSE_CHAOS_SECONDS says how long (the set that always runs: 30 s).

#![allow(
    clippy::unwrap_used,
    clippy::panic,
    clippy::indexing_slicing,
    clippy::disallowed_methods,
    reason = "a test"
)]

use std::io::Write;
use std::net::SocketAddr;
use std::path::Path;
use std::time::{Duration, Instant};

use posthouse_tests::checker::{Fact, Record, check};
use posthouse_tests::cluster::{Host, Posthouse};
use posthouse_tests::home::Home;
use posthouse_tests::nats::Nats;
use posthouse_tests::proxy::{Proxy, Weather};
use posthouse_tests::recorded::{assert_injected_once, recorder};
use serde_json::Value;

const HOSTS: [&str; 3] = ["alpha", "beta", "gamma"];
/// So many messages go between two faults.
const BETWEEN: u64 = 6;

/// A row of numbers that a seed repeats (splitmix64).
struct Dice(u64);

impl Dice {
    fn throw(&mut self, sides: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut x = self.0;
        x = (x ^ (x >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        x = (x ^ (x >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (x ^ (x >> 31)) % sides
    }
}

fn number(variable: &str, default: u64) -> u64 {
    std::env::var(variable).map_or(default, |text| text.parse().unwrap())
}

/// What a host wrote down about mail, in its order.
fn written_down(host: &str, data: &Path) -> Vec<Record> {
    let mut records = Vec::new();
    let Ok(teams) = std::fs::read_dir(data.join("history")) else { return records };
    for file in teams.flatten().flat_map(|team| std::fs::read_dir(team.path()).unwrap().flatten()) {
        let agent = file.file_name().to_string_lossy().split('.').next().unwrap().to_owned();
        let text = std::fs::read_to_string(file.path()).unwrap();
        let lines: Vec<Value> = text.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
        let is_mail = |id: &Value| {
            lines.iter().any(|one| one["record"] == "input" && one["id"] == *id && one["kind"] == "message")
        };
        for line in &lines {
            let id = |value: &Value| value["id"].as_str().unwrap().to_owned();
            if line["record"] == "input" && line["kind"] == "message" {
                let late =
                    line["marks"].as_array().is_some_and(|marks| marks.iter().any(|mark| mark == "late"));
                let delivery = u32::try_from(line["delivery"].as_u64().unwrap()).unwrap();
                let fact = Fact::Inject { id: id(line), agent: agent.clone(), delivery, late };
                records.push(Record { host: host.to_owned(), fact });
            } else if line["record"] == "turn_end" && line["disposition"] == "done" {
                for input in line["inputs"].as_array().unwrap().iter().filter(|input| is_mail(&input["id"])) {
                    let fact = Fact::Done { id: id(input), agent: agent.clone() };
                    records.push(Record { host: host.to_owned(), fact });
                }
            }
        }
    }
    records
}

#[test]
fn chaos_of_network_hosts_and_bus_loses_nothing_and_injects_nothing_twice_or_out_of_order() {
    let Some(mut nats) = Nats::start() else { return };
    let (seed, length) = (number("SEED", 1), Duration::from_secs(number("POSTHOUSE_CHAOS_SECONDS", 30)));
    eprintln!("SEED={seed}");
    let mut dice = Dice(seed);
    let home = Home::new();
    ["WARN", "ERROR"].iter().for_each(|text| home.expect_log(text));
    let server: SocketAddr = nats.url().trim_start_matches("nats://").parse().unwrap();
    let proxies = HOSTS.map(|_| Proxy::start(server).unwrap());
    let url = |index: usize| format!("nats://{}", proxies[index].address());
    let mut posthouse = Posthouse::serve(&home, &url(0), &[]);
    posthouse.team();
    let mut hosts: Vec<Option<Host>> =
        (1..3).map(|index| Some(Host::join(&posthouse, &url(index), HOSTS[index], &[]))).collect();
    let agents = ["scout-b", "scout-g"];
    let dirs = agents.map(|agent| home.dir(agent));
    for (index, agent) in agents.iter().enumerate() {
        let command = recorder(&dirs[index]);
        let command: Vec<&str> = command.iter().map(String::as_str).collect();
        posthouse.ok(&[
            &["spawn", agent, "--host", HOSTS[index + 1], "--prompt", "hello", "--"],
            command.as_slice(),
        ]
        .concat());
    }

    let mut history = Vec::new();
    let (started, mut sent, mut faults) = (Instant::now(), 0u64, Vec::new());
    while started.elapsed() < length {
        let to = agents[usize::try_from(dice.throw(2)).unwrap()];
        let id = posthouse.send(to, &format!("number {sent}"));
        let fact = Fact::Accept { id, from: "lead".to_owned(), to: to.to_owned() };
        history.push(Record { host: "alpha".to_owned(), fact });
        sent += 1;
        if sent % BETWEEN != 0 {
            continue;
        }
        let which = usize::try_from(dice.throw(3)).unwrap();
        let weather = [
            Weather::Fine,
            Weather::Cut,
            Weather::Hang,
            Weather::HangToServer,
            Weather::HangToClient,
            Weather::Slow(Duration::from_millis(50)),
        ];
        let fault = dice.throw(10);
        let fine = || proxies.iter().for_each(|proxy| proxy.weather(Weather::Fine));
        match fault {
            0..6 => {
                let weather = weather[usize::try_from(fault).unwrap()];
                faults.push(format!("{}: {weather:?}", HOSTS[which]));
                proxies[which].weather(weather);
            }
            6 => {
                // A host starts only where it can reach the coordinator.
                let index = 1 + which % 2;
                faults.push(format!("{}: kill -9", HOSTS[index]));
                fine();
                hosts[index - 1].take().unwrap().kill9();
                hosts[index - 1] = Some(Host::up(&home, &url(index), HOSTS[index], &[]));
            }
            7 => {
                faults.push("alpha: kill -9".to_owned());
                fine();
                posthouse.kill9();
                posthouse = Posthouse::serve(&home, &url(0), &[]);
            }
            8 => {
                faults.push("NATS: kill -9".to_owned());
                nats.kill9();
                nats.again();
            }
            _ => {
                faults.push("NATS: kill -9, wiped".to_owned());
                nats.kill9();
                nats.again_blank();
            }
        }
    }
    proxies.iter().for_each(|proxy| proxy.weather(Weather::Fine));
    posthouse.wait("team=settled");
    for host in hosts.into_iter().flatten() {
        assert_eq!(host.term(), 0);
    }
    assert_eq!(posthouse.term(), 0);
    for host in &HOSTS[1..] {
        history.extend(written_down(host, &Host::data(&home, host)));
    }
    let mut file = std::fs::File::create(home.dir("history").join("history.jsonl")).unwrap();
    for record in &history {
        writeln!(file, "{}", serde_json::to_string(record).unwrap()).unwrap();
    }
    eprintln!("{sent} messages, {} faults: {}", faults.len(), faults.join("; "));
    let breaches: Vec<String> = check(&history).iter().map(ToString::to_string).collect();
    assert!(breaches.is_empty(), "SEED={seed}:\n{}", breaches.join("\n"));
    // And the agents' own word.
    dirs.iter().for_each(|dir| assert_injected_once(dir));
    assert!(sent > BETWEEN && !faults.is_empty());
}
