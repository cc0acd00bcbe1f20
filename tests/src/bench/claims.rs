//! Task claims by many claimers at once, durable, against one raw synced append at a time on the same disk.

use std::fs::OpenOptions;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Barrier};
use std::time::Instant;

use posthouse_coordinator::authority::{Authority, BoardCommand, Command, HostStart, Options};
use posthouse_coordinator::journal::FilesJournal;
use posthouse_shared::clock::SystemClock;
use posthouse_shared::durable::Files;
use posthouse_shared::limits::Limits;
use posthouse_shared::name::{AgentName, HostName, TaskId};
use posthouse_shared::task::TaskSpec;
use posthouse_shared::team::{MemberSpec, RunnerSpec, TeamConfig};
use posthouse_shared::wire::Caller;

/// Claimers at once.
pub const CLAIMERS: usize = 64;
/// Bytes of one raw append: about a claim's entry.
const RAW_BYTES: usize = 420;

/// What was measured.
#[derive(Debug, Clone, Copy)]
pub struct Rates {
    /// Durable claims a second, all claimers together.
    pub claims: f64,
    /// Raw synced appends a second, one thread.
    pub raw: f64,
}

/// One run in `dir` (which must not be there): `each` claims by each of [`CLAIMERS`], then as many raw appends as
/// fit into about the same time.
pub fn run(dir: &Path, each: usize) -> Rates {
    std::fs::create_dir_all(dir).unwrap();
    let raw = raw(&dir.join("raw"), (each * CLAIMERS / 10).max(100));
    let authority = board(&dir.join("journal"), each * CLAIMERS);
    let barrier = Barrier::new(CLAIMERS + 1);
    let seconds = std::thread::scope(|scope| {
        let claimers: Vec<_> = (0..CLAIMERS)
            .map(|n| {
                let (authority, barrier) = (&authority, &barrier);
                scope.spawn(move || {
                    barrier.wait();
                    for k in 0..each {
                        let what = BoardCommand::Claim { id: format!("t{}", n * each + k) };
                        let claim = about(what, Some(format!("agent-{n}")));
                        authority.decide_blocking(Caller::Operator, claim, None).unwrap();
                    }
                })
            })
            .collect();
        barrier.wait();
        let begin = Instant::now();
        for claimer in claimers {
            claimer.join().unwrap();
        }
        begin.elapsed().as_secs_f64()
    });
    authority.close();
    Rates { claims: (each * CLAIMERS) as f64 / seconds, raw }
}

fn raw(path: &Path, count: usize) -> f64 {
    let mut file = OpenOptions::new().create(true).append(true).open(path).unwrap();
    let line = vec![b'x'; RAW_BYTES];
    let begin = Instant::now();
    for _ in 0..count {
        file.write_all(&line).unwrap();
        file.sync_data().unwrap();
    }
    count as f64 / begin.elapsed().as_secs_f64()
}

fn about(what: BoardCommand, as_agent: Option<String>) -> Command {
    Command::Board { team: "main".to_owned(), as_agent, what }
}

fn board(dir: &Path, tasks: usize) -> Authority {
    let host = HostName::new("alpha").unwrap();
    let authority = Authority::open(Options {
        journal: Box::new(FilesJournal::open(Files::real(), dir.to_owned()).unwrap()),
        start: HostStart {
            host: host.clone(),
            data_id: "bench".to_owned(),
            boot: 1,
            labels: Default::default(),
            runners: ["command".to_owned()].into(),
        },
        adopt: false,
        limits: Arc::new(Limits::default()),
        clock: Arc::new(SystemClock),
        snapshot_every: u64::MAX,
    })
    .unwrap();
    let ask = |command| authority.decide_blocking(Caller::Operator, command, None).unwrap();
    let config = TeamConfig { busy_check: false, ..TeamConfig::default() };
    ask(Command::TeamCreate { name: "main".to_owned(), config, host });
    for n in 0..CLAIMERS {
        let spec = MemberSpec {
            name: AgentName::new(format!("agent-{n}")).unwrap(),
            role: None,
            model: None,
            color: None,
            cwd: PathBuf::from("/"),
            runner: RunnerSpec::Command { command: vec!["true".to_owned()] },
            prompt: String::new(),
            self_claim: false,
            host: None,
            labels: Default::default(),
        };
        ask(Command::Spawn { team: "main".to_owned(), spec: Box::new(spec) });
    }
    std::thread::scope(|scope| {
        for part in 0..CLAIMERS {
            let ask = &ask;
            scope.spawn(move || {
                for n in (part..tasks).step_by(CLAIMERS) {
                    let spec = TaskSpec {
                        id: Some(TaskId::new(format!("t{n}")).unwrap()),
                        subject: format!("task {n}"),
                        ..TaskSpec::default()
                    };
                    ask(about(BoardCommand::Add { spec: Box::new(spec) }, None));
                }
            });
        }
    });
    authority
}
