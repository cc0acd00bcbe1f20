//! What the authority's tests share: an authority over files, and short ways to ask it.

#![allow(dead_code, reason = "each test binary uses a part of it")]
#![allow(clippy::unwrap_used, clippy::panic, reason = "tests")]

use std::path::{Path, PathBuf};
use std::sync::Arc;

use posthouse_coordinator::authority::{
    Authority, AuthorityError, BoardCommand, Command, HostStart, Options, Reply,
};
use posthouse_coordinator::journal::FilesJournal;
use posthouse_shared::clock::SystemClock;
use posthouse_shared::durable::Files;
use posthouse_shared::limits::Limits;
use posthouse_shared::name::{AgentId, AgentName, HostName, TaskId, TeamName};
use posthouse_shared::refusal::Refusal;
use posthouse_shared::task::{Task, TaskSpec};
use posthouse_shared::team::{Member, MemberSpec, RunnerSpec, TeamConfig};
use posthouse_shared::wire::Caller;

pub const OPERATOR: Caller = Caller::Operator;

pub fn start(boot: u64) -> HostStart {
    HostStart {
        host: HostName::new("alpha").unwrap(),
        data_id: "data-1".to_owned(),
        boot,
        labels: [("gpu".to_owned(), "no".to_owned())].into(),
        runners: ["command".to_owned()].into(),
    }
}

pub fn options(files: Files, dir: &Path, boot: u64) -> Options {
    Options {
        journal: Box::new(FilesJournal::open(files, dir.join("journal")).unwrap()),
        start: start(boot),
        adopt: false,
        limits: Arc::new(Limits::default()),
        clock: Arc::new(SystemClock),
        snapshot_every: 10_000,
    }
}

pub fn open(dir: &Path, boot: u64) -> Result<Authority, AuthorityError> {
    Authority::open(options(Files::real(), dir, boot))
}

pub fn create() -> Command {
    Command::TeamCreate {
        name: "main".to_owned(),
        config: TeamConfig::default(),
        host: HostName::new("alpha").unwrap(),
    }
}

pub fn spec(name: &str) -> MemberSpec {
    MemberSpec {
        name: AgentName::new(name).unwrap(),
        role: None,
        model: None,
        color: None,
        cwd: PathBuf::from("/"),
        runner: RunnerSpec::Command { command: vec!["true".to_owned()] },
        prompt: "begin".to_owned(),
        self_claim: true,
        host: None,
        labels: std::collections::BTreeMap::new(),
    }
}

pub fn spawn(name: &str) -> Command {
    Command::Spawn { team: "main".to_owned(), spec: Box::new(spec(name)) }
}

pub fn board(what: BoardCommand) -> Command {
    Command::Board { team: "main".to_owned(), as_agent: None, what }
}

pub fn board_as(name: &str, what: BoardCommand) -> Command {
    Command::Board { team: "main".to_owned(), as_agent: Some(name.to_owned()), what }
}

pub fn add(id: &str, blocked_by: &[&str]) -> Command {
    let spec = TaskSpec {
        id: Some(TaskId::new(id).unwrap()),
        subject: format!("do {id}"),
        blocked_by: blocked_by.iter().map(|id| TaskId::new(*id).unwrap()).collect(),
        ..TaskSpec::default()
    };
    board(BoardCommand::Add { spec: Box::new(spec) })
}

pub fn claim(id: &str) -> BoardCommand {
    BoardCommand::Claim { id: id.to_owned() }
}

pub fn task(reply: Result<Reply, Refusal>) -> Arc<Task> {
    match reply.unwrap() {
        Reply::Task(task) => task,
        other => panic!("{other:?}"),
    }
}

pub fn ask(authority: &Authority, command: Command) -> Result<Reply, Refusal> {
    authority.decide_blocking(OPERATOR, command, None)
}

pub fn member(authority: &Authority, name: &str) -> Member {
    let (team, name) = (TeamName::new("main").unwrap(), AgentName::new(name).unwrap());
    authority.state().member(&team, &name).unwrap().clone()
}

pub fn agent(authority: &Authority, name: &str) -> Caller {
    let member = member(authority, name);
    Caller::Agent {
        id: AgentId::new(member.name, TeamName::new("main").unwrap()),
        generation: member.generation,
    }
}

/// The state's content, without what a start adds.
pub fn content(authority: &Authority) -> serde_json::Value {
    let snapshot = authority.state().snapshot().unwrap();
    let mut value: serde_json::Value = serde_json::from_slice(&snapshot.state).unwrap();
    let map = value.as_object_mut().unwrap();
    map.remove("hosts");
    map.remove("at");
    value
}
