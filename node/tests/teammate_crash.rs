//! A node that is killed: at each step of a turn, and in the middle of one. The node runs in a child process,
//! this test binary again with a variable set.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    clippy::disallowed_methods,
    reason = "tests"
)]

mod teammate_support;

use std::collections::BTreeMap;
use std::os::unix::process::ExitStatusExt;
use std::path::Path;
use std::process::{Command, ExitStatus, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use posthouse_node::post::{Draft, DraftId};
use posthouse_shared::durable::{CrashPoints, Files, RealDisk};
use posthouse_shared::message::Kind;
use posthouse_shared::name::MessageId;
use posthouse_shared::team::AgentState;
use posthouse_shared::wire::event::What;
use teammate_support::*;

const DIR: &str = "POSTHOUSE_TEST_CRASH_DIR";
const SPEC: &str = "POSTHOUSE_TEST_CRASH_AT";
const INCARNATION: &str = "POSTHOUSE_TEST_INCARNATION";

/// Writes what it saw, then says what it did.
const SCRIPT: &str = r#"
input=$(cat)
attempts=$(echo "$input" | jq -r '[.messages[].attempt] | join(",")')
if [ -n "$POSTHOUSE_TASK" ]; then echo "task $attempts" >> seen; echo did task
else echo "mail $attempts" >> seen; echo did mail; fi
"#;

async fn live(dir: &Path, incarnation: u64, crash: CrashPoints) {
    let files = Files::new(Arc::new(RealDisk), crash);
    let port = FakePort::with_ledger(dir.join("ledger"));
    let bench = Bench::at(dir, limits(), files, incarnation, port).await;
    let id = MessageId::derived(&["crash test"]);
    let draft = Draft { id: DraftId::Chosen(id), ..draft(Kind::Message, "report") };
    bench.node.post().send(draft).unwrap();
    let sleeper = std::env::var("POSTHOUSE_TEST_SLEEPER");
    bench.scout(sleeper.as_deref().unwrap_or(SCRIPT)).await;
    let rests = |told: &Told| {
        told.states.last() == Some(&AgentState::Idle) && told.tasks.is_empty() && told.held.is_none()
    };
    let mailbox = bench.node.mailboxes().get(&teammate_support::id("scout")).unwrap();
    loop {
        bench.port.until("rest", rests).await;
        let counts = mailbox.counts().unwrap();
        let told_last =
            bench.lead_bodies().iter().any(|(kind, body)| *kind == Kind::Idle && body == "did task");
        if counts.ready + counts.processing == 0 && told_last {
            break;
        }
        tokio::time::sleep(Duration::from_millis(2)).await;
    }
    assert!(bench.node.close(Duration::from_secs(5)).await);
    let inbox: Vec<String> =
        bench.lead_bodies().iter().map(|(kind, body)| format!("{kind} {body}\n")).collect();
    std::fs::write(dir.join("inbox"), inbox.concat()).unwrap();
    let counts = mailbox.counts().unwrap();
    assert_eq!((counts.done, counts.quarantined), (1, 0));
}

/// Not a test of its own: what the child process runs.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn child_process() {
    let Some(dir) = std::env::var_os(DIR) else { return };
    let crash = std::env::var(SPEC).map_or(CrashPoints::none(), |spec| CrashPoints::abort_at(&spec));
    live(Path::new(&dir), std::env::var(INCARNATION).unwrap().parse().unwrap(), crash).await;
}

fn child(dir: &Path, incarnation: u64, spec: Option<&str>) -> Command {
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args(["--exact", "child_process", "--nocapture"]).env(DIR, dir);
    command.env(INCARNATION, incarnation.to_string()).stdout(Stdio::null()).stderr(Stdio::piped());
    if let Some(spec) = spec {
        command.env(SPEC, spec);
    }
    command
}

fn run(dir: &Path, incarnation: u64, spec: Option<&str>) -> (ExitStatus, String) {
    let output = child(dir, incarnation, spec).output().unwrap();
    (output.status, String::from_utf8_lossy(&output.stderr).into_owned())
}

fn lines(dir: &Path, name: &str) -> Vec<String> {
    let text = std::fs::read_to_string(dir.join(name)).unwrap_or_default();
    text.lines().map(str::to_owned).collect()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn at03_a_crash_at_any_step_of_a_turn_loses_nothing_and_does_nothing_twice() {
    // All points that a whole life passes, with how often.
    let dir = tempfile::tempdir().unwrap();
    let recording = CrashPoints::recording();
    live(dir.path(), 1, recording.clone()).await;
    let mut points: BTreeMap<&str, u64> = BTreeMap::new();
    for name in recording.passed() {
        *points.entry(name).or_default() += 1;
    }
    for wanted in [
        "turn.input.synced",
        "turn.starting",
        "turn.ended",
        "turn.effects.messages",
        "turn.effects.completion",
        "turn.acked",
        "turn.told",
        "child.recorded",
        "mailbox.ack.renamed",
    ] {
        assert!(points.contains_key(wanted), "{wanted} is not passed: {points:?}");
    }
    let mut cases = Vec::new();
    for (name, times) in &points {
        let turns = name.starts_with("turn.");
        // Each pass of a turn's own steps; of the layers below the first and the last.
        cases.extend((1..=*times).filter(|n| turns || *n == 1 || n == times).map(|n| format!("{name}:{n}")));
    }
    // Children wait for the disk most of the time.
    let next = AtomicUsize::new(0);
    std::thread::scope(|threads| {
        for _ in 0..6 {
            threads.spawn(|| {
                while let Some(case) = cases.get(next.fetch_add(1, Ordering::Relaxed)) {
                    crash_at(case);
                }
            });
        }
    });
}

/// Crashes a life at one point, lets it go on, and looks at what came of it.
fn crash_at(case: &str) {
    let dir = tempfile::tempdir().unwrap();
    let dir = dir.path();
    let (status, said) = run(dir, 1, Some(case));
    if status.success() {
        // How often the layers below pass a point depends on timing.
        assert!(!case.starts_with("turn."), "{case} was not reached: {said}");
        return;
    }
    assert_eq!(status.signal(), Some(6), "{case}: {said}");
    let history = std::fs::read_to_string(dir.join("history/main/scout.1.2.jsonl")).unwrap_or_default();
    let ended = history.contains(r#""disposition":"done""#);
    let before = lines(dir, "seen").iter().filter(|line| line.starts_with("mail")).count();

    let (status, said) = run(dir, 2, None);
    assert!(status.success(), "{case}: {said}");
    let seen = lines(dir, "seen");
    let mail: Vec<&String> = seen.iter().filter(|line| line.starts_with("mail")).collect();
    if ended {
        assert_eq!(mail.len(), before, "{case}: a turn that had ended was run again: {seen:?}");
    }
    assert!(!mail.is_empty() && mail.len() <= 2, "{case}: {seen:?}");
    assert!(mail.len() == 1 || mail[1] == "mail 2", "{case}: the second attempt is not marked: {seen:?}");
    assert_eq!(lines(dir, "ledger").len(), 1, "{case}: completed once");
    let inbox = lines(dir, "inbox");
    assert_eq!(inbox.iter().filter(|line| line.ends_with("did mail")).count(), 1, "{case}: {inbox:?}");
    assert_eq!(inbox.iter().filter(|line| *line == "idle did task").count(), 1, "{case}: {inbox:?}");
    assert_eq!(inbox.len(), 2, "{case}: {inbox:?}");
    let history = std::fs::read_to_string(dir.join("history/main/scout.1.2.jsonl")).unwrap();
    assert_eq!(history.matches(r#""record":"input""#).count(), 1, "{case}: {history}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn at13_a_node_that_is_killed_leaves_no_program_behind_once_it_starts_again() {
    let dir = tempfile::tempdir().unwrap();
    let script = "setsid sleep 617 & sleep 617 & echo $$ > pid.new; mv pid.new pid; wait";
    let mut node = child(dir.path(), 1, None).env("POSTHOUSE_TEST_SLEEPER", script).spawn().unwrap();
    let pid = loop {
        let text = std::fs::read_to_string(dir.path().join("pid")).unwrap_or_default();
        if let Ok(pid) = text.trim().parse::<i32>() {
            break pid;
        }
        assert!(node.try_wait().unwrap().is_none(), "the node ended");
        tokio::time::sleep(Duration::from_millis(2)).await;
    };
    node.kill().unwrap();
    node.wait().unwrap();
    assert!(Path::new(&format!("/proc/{pid}")).exists());
    let bench = Bench::at(dir.path(), limits(), Files::real(), 2, Arc::default()).await;
    assert!(bench.node.swept().ended >= 2 && bench.node.swept().left == 0, "{:?}", bench.node.swept());
    assert!(!Path::new(&format!("/proc/{pid}")).exists() || zombie(pid));
    // The turn was cut off: it comes again, as the second attempt.
    bench.scout("jq -r '.messages[0].attempt'").await;
    let claimed =
        |told: &Told| told.events.iter().any(|what| matches!(what, What::MessageClaimed { attempt: 2, .. }));
    bench.port.until("the second attempt", claimed).await;
    bench.told_lead(Kind::Idle, 1).await;
    assert_eq!(bench.inbox(), [(Kind::Idle, "2".to_owned())]);
}

fn zombie(pid: i32) -> bool {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    stat.rsplit_once(')').is_none_or(|(_, rest)| rest.trim_start().starts_with(['Z', 'X']))
}
