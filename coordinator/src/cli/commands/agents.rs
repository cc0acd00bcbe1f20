//! Teammates: `ps`, `spawn`, `stop`, `resume`, `shutdown`, `log`.

use std::time::Duration;

use posthouse_shared::codes::Code;
use posthouse_shared::name::{AgentName, RoleName};
use posthouse_shared::refusal::Refusal;
use posthouse_shared::team::{AgentState, HostState, MemberSpec, RunnerSpec};
use posthouse_shared::wire::Answer;
use posthouse_shared::wire::replies::{AgentReply, AgentView, AgentsReply, LogReply};
use posthouse_shared::wire::requests::Request;
use tokio::time::Instant;

use super::plural;
use crate::cli::args::{AgentArgs, ListFormat, LogArgs, PsArgs, ShutdownArgs, SpawnArgs};
use crate::cli::failure::Ended;
use crate::cli::table::{Cell, Table};
use crate::cli::terminal::Paint;
use crate::cli::text::{age, span};
use crate::cli::typed;
use crate::cli::world::{LOST_MAX, Look, Session, unhurried};

/// Between two looks of `-w`.
const WATCH_EVERY: Duration = Duration::from_secs(1);
/// Lines of a terminal that `ps` leaves for title, footer and prompt.
const PS_FRAME: usize = 5;

/// `ps`
pub async fn ps(session: &mut Session<'_>, args: PsArgs) -> Result<u8, Ended> {
    let request = Request::AgentList { team: session.team_if_set() };
    let format = args.list.output;
    if !args.watch {
        return session
            .list::<AgentsReply>(&request, format, |answer, look| agents(answer, look, args.all))
            .await;
    }
    let mut shown = String::new();
    let mut heard = false;
    loop {
        let reply = session.ask_on::<AgentsReply>(&request, &mut heard, LOST_MAX).await?;
        let json = session.json || format == ListFormat::Json;
        let look = session.look(format);
        let (text, same) = if json {
            let key = serde_json::to_string(&reply.answer.reply).unwrap_or_default();
            (format!("{}\n", reply.document), key)
        } else {
            let text = agents(&reply.answer, &look, args.all);
            (text.clone(), text)
        };
        if same != shown {
            let clear = if look.terminal.stdout && !json { "\u{1b}[H\u{1b}[2J" } else { "" };
            session.print(&format!("{clear}{text}"))?;
            shown = same;
        }
        tokio::time::sleep(WATCH_EVERY).await;
    }
}

/// The list of `ps`. The server's order is kept: what needs a person first, then the most recent.
fn agents(answer: &Answer<AgentsReply>, look: &Look, all: bool) -> String {
    let agents = &answer.reply.agents;
    if look.format == ListFormat::Name {
        return agents.iter().map(|one| format!("{}\n", one.name)).collect();
    }
    let fits = match look.terminal.size {
        Some((_, rows)) if !all => rows.saturating_sub(PS_FRAME).max(1),
        Some(_) | None => agents.len(),
    };
    let teams = agents.iter().any(|one| Some(&one.team) != agents.first().map(|first| &first.team));
    let wide = look.format == ListFormat::Wide;
    let mut titles = vec!["NAME", "HOST", "STATE", "FOR", "DOING", "LAST", "MAIL", "TRY"];
    if teams {
        titles.insert(1, "TEAM");
    }
    if wide {
        titles.extend(["ROLE", "RUNNER", "TASK", "TURN", "GENERATION", "CWD"]);
    }
    let mut table = Table::new(titles, "DOING");
    for one in agents.iter().take(fits) {
        table.row(agent_row(one, look, teams, wide));
    }
    let mut text = if agents.is_empty() { "no teammates\n".to_owned() } else { table.render(&look.terminal) };
    if look.terminal.stdout {
        text.push_str(&footer(answer, look, fits));
    }
    text
}

fn footer(answer: &Answer<AgentsReply>, look: &Look, fits: usize) -> String {
    let agents = &answer.reply.agents;
    let mut text = String::new();
    if fits < agents.len() {
        text = format!(
            "{}{fits} of {} shown: those that need attention or ran last. All: posthouse ps -a\n",
            look.terminal.glyph("…", "..."),
            agents.len()
        );
    }
    let needy = agents.iter().filter(|one| one.needs.is_some()).count();
    let needy = match needy {
        0 => "nobody needs you".to_owned(),
        1 => "1 needs you: posthouse attention".to_owned(),
        more => format!("{more} need you: posthouse attention"),
    };
    text + &format!("{needy}        as of #{}, {} ago\n", answer.as_of.seq, age(answer.as_of.age_ms))
}

fn agent_row(one: &AgentView, look: &Look, teams: bool, wide: bool) -> Vec<Cell> {
    let paint = match one.state {
        AgentState::Running => Some(Paint::Good),
        AgentState::Waiting | AgentState::Stopped => Some(Paint::Warning),
        AgentState::Failed => Some(Paint::Bad),
        AgentState::Shutdown => Some(Paint::Faint),
        AgentState::Idle => None,
    };
    let state = match one.host_state {
        HostState::Up => one.state.as_str().to_owned(),
        other @ (HostState::Draining | HostState::Unreachable | HostState::Lost | HostState::Unknown) => {
            format!("{} ({})", one.state.as_str(), other.as_str())
        }
    };
    let mut doing = look.terminal.safe(&one.doing);
    if one.quiet_s > 0 && !doing.contains("quiet") {
        doing = format!("{doing} quiet {}", span(one.quiet_s)).trim_start().to_owned();
    }
    let mail = match (one.mail, one.quarantined) {
        (mail, 0) => mail.to_string(),
        (0, quarantined) => format!("{quarantined} q"),
        (mail, quarantined) => format!("{mail}, {quarantined} q"),
    };
    let mut row: Vec<Cell> = vec![
        one.name.as_str().into(),
        one.host.as_str().into(),
        Cell::painted(state, paint),
        span(one.for_s).into(),
        doing.into(),
        span(one.last_s).into(),
        mail.into(),
        one.attempt.to_string().into(),
    ];
    if teams {
        row.insert(1, one.team.as_str().into());
    }
    if wide {
        let text = |text: Option<&str>| Cell::from(text.unwrap_or("-"));
        row.extend([
            text(one.role.as_deref()),
            text(one.runner.as_deref()),
            text(one.task.as_ref().map(|id| id.as_str())),
            one.turn.to_string().into(),
            one.generation.to_string().into(),
            text(one.cwd.as_deref()),
        ]);
    }
    row
}

/// `spawn`
pub async fn spawn(session: &mut Session<'_>, args: SpawnArgs) -> Result<u8, Ended> {
    if args.runner != "command" {
        return Err(Refusal::new(Code::NotInThisBuild, format!("the runner {:?}", args.runner))
            .cause("there is: --runner command")
            .effect("nothing was created")
            .into());
    }
    let bad = |error: posthouse_shared::name::NameError| {
        Refusal::new(Code::BadName, error.to_string()).effect("nothing was created")
    };
    let name = AgentName::new(args.name.as_str()).map_err(bad)?;
    let role = args.role.map(RoleName::new).transpose().map_err(bad)?;
    let prompt = session.text(&args.prompt)?;
    let environment = &session.world.environment;
    let cwd = args.cwd.map_or_else(|| environment.cwd().to_owned(), |dir| typed(&dir, environment));
    let mut command = args.command;
    if let Some(program) = command.first_mut()
        && program.contains('/')
    {
        *program = typed(std::path::Path::new(program.as_str()), environment).to_string_lossy().into_owned();
    }
    let spec = MemberSpec {
        name,
        role,
        model: args.model,
        color: args.color,
        cwd,
        runner: RunnerSpec::Command { command },
        prompt,
        self_claim: args.self_claim,
        host: args.host,
        labels: args.label.into_iter().collect(),
    };
    let request = Request::Spawn { team: session.team(), spec };
    session.show::<AgentReply>(&request, |reply, _| said("spawned", &reply.agent)).await
}

/// `stop`
pub async fn stop(session: &mut Session<'_>, args: AgentArgs) -> Result<u8, Ended> {
    let request = Request::Stop { team: session.team(), name: args.name };
    session.show::<AgentReply>(&request, |reply, _| said("told to stop:", &reply.agent)).await
}

/// `resume`
pub async fn resume(session: &mut Session<'_>, args: AgentArgs) -> Result<u8, Ended> {
    let request = Request::Resume { team: session.team(), name: args.name };
    session.show::<AgentReply>(&request, |reply, _| said("resumed", &reply.agent)).await
}

/// `shutdown`
pub async fn shutdown(session: &mut Session<'_>, args: ShutdownArgs) -> Result<u8, Ended> {
    let request = Request::Shutdown { team: session.team(), name: args.name, force: args.force };
    let verb = if args.force { "told to end:" } else { "asked to end:" };
    session.show::<AgentReply>(&request, |reply, _| said(verb, &reply.agent)).await
}

fn said(verb: &str, agent: &AgentView) -> String {
    let mail = plural(agent.mail, "message waits", "messages wait");
    format!("{verb} {} on {}: {}, {mail}\n", agent.name, agent.host, agent.state.as_str())
}

/// `log`
pub async fn log(session: &mut Session<'_>, args: LogArgs) -> Result<u8, Ended> {
    let mut after = 0;
    let mut timeout_ms = 0;
    let mut heard = false;
    loop {
        let request = Request::Log { team: session.team(), name: args.name.clone(), after, timeout_ms };
        let asked = Instant::now();
        let reply = session.ask_on::<LogReply>(&request, &mut heard, LOST_MAX).await?;
        let log = reply.answer.reply;
        if session.json {
            if !args.follow || !log.text.is_empty() {
                session.line(&reply.document)?;
            }
        } else {
            let text = session.world.terminal.safe(&log.text);
            session.print(&text)?;
        }
        if !args.follow {
            return Ok(0);
        }
        unhurried(asked).await;
        after = log.next;
        timeout_ms = session.config.limits.wait_ms_max;
    }
}
