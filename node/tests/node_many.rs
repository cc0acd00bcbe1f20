//! Many idle teammates in one process.
#![allow(
    clippy::unwrap_used,
    clippy::panic,
    clippy::indexing_slicing,
    clippy::disallowed_methods,
    reason = "tests"
)]

mod teammate_support;

use std::sync::Arc;
use std::time::Duration;

use posthouse_shared::durable::Files;
use posthouse_shared::message::Kind;
use posthouse_shared::team::{AgentState, Standing};
use teammate_support::*;

fn resident() -> u64 {
    let statm = std::fs::read_to_string("/proc/self/statm").unwrap();
    statm.split(' ').nth(1).unwrap().parse::<u64>().unwrap() * 4096
}

/// `MANY` teammates; the figure of the design (10,000 below 100 MB) is a tenth of a page each.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn idle_teammates_cost_little_memory() {
    let many: u64 = std::env::var("MANY").map_or(300, |many| many.parse().unwrap());
    let temp = tempfile::tempdir().unwrap();
    let bench = Bench::at(temp.path(), limits(), Files::real(), 1, Arc::default()).await;
    let before = resident();
    for n in 0..many {
        let mut setup = bench.setup("echo done", Standing::Active);
        setup.id = teammate_support::id(&format!("a{n}"));
        setup.spec.name = setup.id.agent.clone();
        (setup.birth, setup.generation) = (generation(n + 100), generation(n + 100));
        bench.node.ensure_agent(setup).await.unwrap();
    }
    let idle = |told: &Told| {
        u64::try_from(told.states.iter().filter(|state| **state == AgentState::Idle).count()).unwrap() >= many
    };
    bench.port.until("all idle", idle).await;
    let used = resident().saturating_sub(before);
    println!("{many} teammates: {} KiB, {} bytes each", used / 1024, used / many);
    assert!(used < 4 * 1024 * 1024 + many * 10_000, "{used} bytes for {many}");
    bench.scout("echo done").await;
    bench.send("still awake?");
    bench.told_lead(Kind::Idle, 1).await;
    assert!(bench.node.close(Duration::from_secs(20)).await);
}
