//! `posthouse run FILE`: makes the team of a file, lets it work to its end, prints a report. Typed again on the
//! same data it goes on where it stood: everything it makes is named in the file, so that what is there already
//! is not made twice.
//!
//! It talks to a coordinator over HTTP: the one that POSTHOUSE_URL names or that holds the data directory, else
//! one in this process.

mod progress;
pub mod report;
mod setup;

use std::io::Write;
use std::time::Duration;

use posthouse_shared::codes::Code;
use posthouse_shared::refusal::Refusal;
use posthouse_shared::telemetry;
use posthouse_shared::wire::replies::{
    AgentView, AgentsReply, LogReply, Status, TasksReply, TeamReply, WaitReply,
};
use posthouse_shared::wire::requests::Request;

use crate::cli::{Client, Run};
use crate::config::{Origin, Sourced};
use crate::data::holder;
use crate::start::{Running, StartOptions};
use crate::up;
use posthouse_node::signals::Signals;
use report::{FailureLine, Outcome, Report};

/// A holder of the data directory that does not answer may be starting or ending: how long it is waited for, and how
/// often looked at.
const ENDING_WAIT: Duration = Duration::from_secs(5);
const ENDING_LOOK: Duration = Duration::from_millis(20);
/// Lines of a failed teammate's log in the report.
const LAST_LINES: usize = 10;
/// One wait asks for so long; then it asks again.
const WAIT_MS: u64 = 10_000;

/// Runs a team file to its end. Answers the exit code; the report is printed.
pub fn run(mut run: Run) -> Result<u8, Refusal> {
    telemetry::start(&run.config.log.value, run.config.log_format.value);
    up::runtime()?.block_on(async {
        let mut signals = up::listen()?;
        let embedded = embed(&mut run).await?;
        let worked = work(&run, &mut signals).await;
        if let Some(running) = embedded {
            up::close(running, run.config.limits.shutdown_grace(), &mut signals).await;
        }
        let report = worked?;
        print(&run, &report).map_err(|e| Refusal::new(Code::Internal, "print the report").because(&e))?;
        Ok(report.exit_code())
    })
}

/// Whether another process holds the data directory and answers. One that was just killed holds it until it has
/// ended: that is waited for.
async fn held(run: &Run) -> bool {
    let until = tokio::time::Instant::now() + ENDING_WAIT;
    while holder(&run.config.data.value).is_some() {
        let answers = match Client::of(&run.config) {
            Ok(client) => client.ask::<Status>(&Request::Status {}).await.is_ok(),
            Err(_) => false,
        };
        if answers || tokio::time::Instant::now() >= until {
            return true;
        }
        tokio::time::sleep(ENDING_LOOK).await;
    }
    false
}

/// Starts a coordinator in this process where none is named and none holds the data directory.
async fn embed(run: &mut Run) -> Result<Option<Running>, Refusal> {
    if run.config.url.is_some() || held(run).await {
        return Ok(None);
    }
    let running =
        Running::start(StartOptions::of(&run.config, &run.environment, None, "127.0.0.1:0")).await?;
    run.config.url = Some(Sourced { value: running.url().to_owned(), origin: Origin::Default });
    run.config.token = Some(running.token().to_owned());
    run.config.socket = None;
    Ok(Some(running))
}

async fn work(run: &Run, signals: &mut Signals) -> Result<Report, Refusal> {
    let client = Client::of(&run.config)?;
    let there = setup::make(&client, run).await?;
    let mut progress = progress::Follower::start(&client, run).await;
    let ended = loop {
        let wait = Request::Wait {
            team: run.file.name.to_string(),
            condition: "team=settled".to_owned(),
            timeout_ms: WAIT_MS,
        };
        tokio::select! {
            answer = client.ask::<WaitReply>(&wait) => match answer {
                Ok(reply) if reply.answer.reply.holds => break Ended::Settled,
                Ok(_) => {}
                Err(refusal) if refusal.code == Code::WaitImpossible => break Ended::Stuck(refusal.message),
                Err(refusal) => return Err(refusal),
            },
            _asked = signals.next() => break Ended::Asked,
            () = progress.follow() => {}
        }
    };
    progress.end();
    report(&client, run, ended, there).await
}

enum Ended {
    Settled,
    Stuck(String),
    Asked,
}

async fn report(client: &Client, run: &Run, ended: Ended, there: setup::There) -> Result<Report, Refusal> {
    let team = run.file.name.to_string();
    let tasks = client.ask::<TasksReply>(&Request::TaskList { team: team.clone() }).await?.answer;
    let view = client.ask::<TeamReply>(&Request::TeamShow { team: team.clone() }).await?.answer.reply.team;
    let outcome = match &ended {
        Ended::Settled => Outcome::Completed,
        Ended::Stuck(_) => Outcome::Failed,
        Ended::Asked => Outcome::Interrupted,
    };
    let mut report = Report::new(view.name, tasks.as_of, outcome, tasks.reply.tasks, view.messages);
    let again = format!("posthouse run {}", run.shown);
    match ended {
        Ended::Settled if there == setup::There::Finished => {
            report.next.push(format!("{again} --fresh      (it was finished already; this begins anew)"));
        }
        Ended::Settled => {}
        Ended::Stuck(why) => {
            report.why = Some(why);
            let agents = client
                .ask::<AgentsReply>(&Request::AgentList { team: Some(team) })
                .await?
                .answer
                .reply
                .agents;
            for agent in agents.iter().filter(|agent| agent.needs.is_some()) {
                report.failures.push(failure(client, agent).await?);
                report.next.push(format!("posthouse log {} --team {}", agent.name, run.file.name));
            }
            report
                .next
                .push(format!("posthouse up      (then: posthouse attention --team {})", run.file.name));
            report.next.push(format!("{again} --fresh      (begins anew)"));
        }
        Ended::Asked => report.next.push(format!("{again}      (goes on where it stands)")),
    }
    Ok(report)
}

/// What a teammate failed with, and the last lines of its log: what it printed, then how its turn ended.
async fn failure(client: &Client, agent: &AgentView) -> Result<FailureLine, Refusal> {
    let (team, name) = (agent.team.to_string(), agent.name.to_string());
    let log = client.ask::<LogReply>(&Request::Log { team, name, after: 0, timeout_ms: 0 }).await?;
    let lines: Vec<&str> = log.answer.reply.text.lines().collect();
    let last = lines.iter().skip(lines.len().saturating_sub(LAST_LINES)).map(ToString::to_string);
    Ok(FailureLine { agent: agent.name.clone(), what: agent.doing.clone(), last_lines: last.collect() })
}

fn print(run: &Run, report: &Report) -> std::io::Result<()> {
    let mut stdout = std::io::stdout().lock();
    if run.json {
        writeln!(stdout, "{}", serde_json::to_string(report)?)?;
    } else {
        stdout.write_all(report.text().as_bytes())?;
    }
    stdout.flush()
}
