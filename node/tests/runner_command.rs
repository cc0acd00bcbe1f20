//! The `command` runner with real programs: what they print, how they end, and what they leave behind.
#![allow(clippy::unwrap_used, clippy::panic, clippy::indexing_slicing, reason = "tests")]

use std::collections::BTreeMap;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use posthouse_node::children::{Children, MARK_VARIABLE, start_time};
use posthouse_node::runner::command::CommandRunner;
use posthouse_node::runner::log::{AgentLog, log_path};
use posthouse_node::runner::{Cancel, Event, Outcome, Runner, Session, SessionSpec, Turn, TurnInput};
use posthouse_shared::durable::Files;
use posthouse_shared::limits::Limits;
use posthouse_shared::name::{AgentId, AgentName, TeamName};
use posthouse_shared::supervise::Supervisor;
use posthouse_shared::team::RunnerSpec;

struct Bench {
    dir: tempfile::TempDir,
    limits: Limits,
    children: Children,
}

fn id() -> AgentId {
    AgentId::new(AgentName::new("scout").unwrap(), TeamName::new("main").unwrap())
}

impl Bench {
    fn new() -> Self {
        let dir = tempfile::tempdir().unwrap();
        let children = Children::open(Files::real(), &dir.path().join("run")).unwrap();
        Self { dir, limits: Limits::default(), children }
    }

    fn log_path(&self) -> PathBuf {
        log_path(self.dir.path(), &id())
    }

    async fn begin(&self, command: &[&str], cwd: &Path) -> Box<dyn Session> {
        let runner =
            CommandRunner::new(Arc::new(self.limits.clone()), self.children.clone(), Supervisor::new());
        let mut environment = BTreeMap::new();
        environment.insert("PATH".into(), std::env::var_os("PATH").unwrap());
        let spec = SessionSpec {
            agent: id(),
            runner: RunnerSpec::Command { command: command.iter().map(ToString::to_string).collect() },
            cwd: cwd.to_owned(),
            environment: Arc::new(environment),
        };
        let mut session = runner.open(spec).await.unwrap();
        let input =
            TurnInput { turn: 7, agent: id().agent, team: id().team, task: None, messages: Vec::new() };
        let log = Arc::new(AgentLog::open(Files::real(), self.log_path(), self.limits.log_bytes));
        session.start_turn(Turn { input, environment: BTreeMap::new(), log }).await.unwrap();
        session
    }

    async fn shell(&self, script: &str) -> Box<dyn Session> {
        self.begin(&["sh", "-c", script], self.dir.path()).await
    }
}

async fn done(session: &mut dyn Session) -> Outcome {
    let all = async {
        loop {
            if let Event::Done(outcome) = session.next().await {
                return outcome;
            }
        }
    };
    tokio::time::timeout(Duration::from_secs(60), all).await.unwrap()
}

async fn appears(path: &Path) -> String {
    let until = Instant::now() + Duration::from_secs(20);
    loop {
        match std::fs::read_to_string(path) {
            Ok(text) if text.ends_with('\n') => return text.trim().to_owned(),
            _ => assert!(Instant::now() < until, "{} does not appear", path.display()),
        }
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

fn gone(pid: i32) -> bool {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    stat.is_empty() || stat.rsplit_once(')').unwrap().1.trim_start().starts_with(['Z', 'X'])
}

async fn goes(pid: i32) {
    let until = Instant::now() + Duration::from_secs(20);
    while !gone(pid) {
        assert!(Instant::now() < until, "{pid} is still there");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_it_reads_is_json_and_what_it_prints_is_the_result() {
    let bench = Bench::new();
    let outcome = done(bench.shell("cat; echo; echo told >&2; env >&2").await.as_mut()).await;
    let Outcome::Completed { result } = outcome else { panic!("{outcome:?}") };
    assert_eq!(result, r#"{"turn":7,"agent":"scout","team":"main","messages":[]}"#);
    let log = std::fs::read_to_string(bench.log_path()).unwrap();
    assert!(log.contains("told") && log.contains(r#""turn":7"#), "{log}");
    assert!(!log.contains("CARGO"), "the environment is not handed on: {log}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_non_zero_exit_is_a_failure_with_the_end_of_stderr() {
    let mut bench = Bench::new();
    bench.limits.stderr_tail_bytes = 10;
    let outcome = done(bench.shell("echo said; echo 0123456789abc >&2; exit 3").await.as_mut()).await;
    let want = Outcome::AgentError {
        why: "exit 3".into(),
        exit: Some(3),
        said: "said".into(),
        tail: "456789abc".into(),
    };
    assert_eq!(outcome, want);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_cannot_be_started_fails_the_turn_and_says_why() {
    let bench = Bench::new();
    for (command, cwd, why) in [
        ("/no/such/program", bench.dir.path(), "the program /no/such/program is not there"),
        ("true", Path::new("/no/such/dir"), "the working directory /no/such/dir is not there"),
        ("/etc/passwd", bench.dir.path(), "the program /etc/passwd may not be run"),
    ] {
        let outcome = done(bench.begin(&[command], cwd).await.as_mut()).await;
        assert!(matches!(&outcome, Outcome::AgentError { why: said, .. } if said == why), "{outcome:?}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn one_that_was_killed_by_somebody_else_is_lost_and_not_failed() {
    let bench = Bench::new();
    let outcome = done(bench.shell("kill -9 $$").await.as_mut()).await;
    assert_eq!(outcome, Outcome::Lost { why: "killed by signal 9".into() });
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn gigabytes_of_output_cost_neither_memory_nor_log_and_the_turn_ends() {
    let mut bench = Bench::new();
    bench.limits.log_bytes = 1 << 20;
    let resident = || {
        let statm = std::fs::read_to_string("/proc/self/statm").unwrap();
        statm.split(' ').nth(1).unwrap().parse::<u64>().unwrap() * 4096
    };
    let before = resident();
    let outcome = done(bench.shell("head -c 2147483648 /dev/zero | tr '\\0' x").await.as_mut()).await;
    let Outcome::Completed { result } = outcome else { panic!("{outcome:?}") };
    assert!(
        result.ends_with("[cut: 2147483648 bytes were printed, 65536 are kept]"),
        "{}",
        &result[65_530..]
    );
    assert!(resident().saturating_sub(before) < 64 << 20);
    let logs = std::fs::read_dir(bench.log_path().parent().unwrap()).unwrap();
    assert!(logs.map(|file| file.unwrap().metadata().unwrap().len()).sum::<u64>() <= 2 << 20);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn at13_one_that_ignores_sigterm_is_killed_after_the_grace_with_its_group() {
    let bench = Bench::new();
    let pid = bench.dir.path().join("pid");
    let script = format!(
        "trap '' TERM; sleep 600 & echo $! > {0}.t; mv {0}.t {0}; wait; wait; sleep 600",
        pid.display()
    );
    let mut session = bench.shell(&script).await;
    let sleeper: i32 = appears(&pid).await.parse().unwrap();
    session.cancel(Cancel::Within(Duration::from_millis(50)));
    assert_eq!(done(session.as_mut()).await, Outcome::Cancelled);
    goes(sleeper).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn one_that_reads_nothing_and_one_that_is_asked_to_stop_end() {
    let bench = Bench::new();
    assert_eq!(
        done(bench.shell("exec <&-; echo x").await.as_mut()).await,
        Outcome::Completed { result: "x".into() }
    );
    let mut session = bench.shell("sleep 600").await;
    session.cancel(Cancel::Within(Duration::from_secs(30)));
    assert_eq!(done(session.as_mut()).await, Outcome::Cancelled);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_daemon_that_keeps_stdout_does_not_hold_the_turn_and_is_ended_with_its_group() {
    let bench = Bench::new();
    let began = Instant::now();
    let outcome = done(bench.shell("sleep 600 & echo $!").await.as_mut()).await;
    let Outcome::Completed { result } = outcome else { panic!("{outcome:?}") };
    assert!(began.elapsed() < Duration::from_secs(30));
    goes(result.parse().unwrap()).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn at13_left_over_groups_are_ended_at_the_next_start_and_strangers_are_not() {
    let bench = Bench::new();
    // As a node that was killed leaves them: one recorded and marked, one that left its group, one whose
    // environment was wiped (only the record names it), and a stranger with the same command.
    let spawn = |mark: Option<String>, wipe: bool| {
        let mut command = std::process::Command::new(if wipe { "env" } else { "sleep" });
        command.args(if wipe { &["-i", "sleep", "611"][..] } else { &["611"] }).process_group(0);
        command.env_remove(MARK_VARIABLE).envs(mark.map(|mark| (MARK_VARIABLE, mark)));
        command.spawn().unwrap()
    };
    let mut recorded = spawn(Some(bench.children.next_mark()), false);
    let mut unrecorded = spawn(Some(bench.children.next_mark()), false);
    let mut wiped = spawn(Some(bench.children.next_mark()), true);
    let mut stranger = spawn(None, false);
    let mut foreign = spawn(Some("0123.4".to_owned()), false);
    for child in [&recorded, &wiped] {
        bench.children.record(rustix::process::Pid::from_child(child)).unwrap();
    }
    // A record of a pid that was used again: the start time tells.
    let reused = bench.dir.path().join(format!("run/children/{}.json", stranger.id()));
    let start = start_time(i32::try_from(stranger.id()).unwrap()).unwrap() - 1;
    let boot = std::fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap();
    let record = format!(r#"{{"pid":{},"start":{start},"boot_id":"{}"}}"#, stranger.id(), boot.trim());
    Files::real().replace(&reused, record.as_bytes()).unwrap();

    let next = Children::open(Files::real(), &bench.dir.path().join("run")).unwrap();
    let swept =
        tokio::task::spawn_blocking(move || next.end_left_over(Duration::from_secs(5))).await.unwrap();
    assert_eq!((swept.ended, swept.left), (3, 0));
    for child in [&mut recorded, &mut unrecorded, &mut wiped] {
        assert!(!child.wait().unwrap().success());
    }
    for child in [&mut stranger, &mut foreign] {
        assert!(child.try_wait().unwrap().is_none(), "a stranger was touched");
        child.kill().unwrap();
        child.wait().unwrap();
    }
    assert_eq!(std::fs::read_dir(bench.dir.path().join("run/children")).unwrap().count(), 0);
}
