//! The board: `task`.

use std::fmt::Write;

use posthouse_shared::codes::Code;
use posthouse_shared::name::{AgentName, RoleName, TaskId};
use posthouse_shared::refusal::Refusal;
use posthouse_shared::task::{Task, TaskChange, TaskSpec, TaskStatus};
use posthouse_shared::wire::replies::{TaskReply, TasksReply};
use posthouse_shared::wire::requests::Request;

use crate::cli::args::{ChangeArgs, ListFormat, TaskCommand};
use crate::cli::failure::Ended;
use crate::cli::table::{Cell, Table};
use crate::cli::terminal::Paint;
use crate::cli::text::{ago, time};
use crate::cli::world::{Look, Session};

/// `task ...`
pub async fn task(session: &mut Session<'_>, command: TaskCommand) -> Result<u8, Ended> {
    let team = session.team();
    let request_id = None;
    match command {
        TaskCommand::Add { subject, id, description, active_form, blocked_by, role, team: _ } => {
            let spec = TaskSpec {
                id: id.map(TaskId::new).transpose().map_err(bad_name)?,
                subject,
                description: session.maybe_text(description.as_deref())?.unwrap_or_default(),
                active_form,
                blocked_by: ids(blocked_by.iter().map(String::as_str))?,
                role: role.map(RoleName::new).transpose().map_err(bad_name)?,
                metadata: serde_json::Map::new(),
            };
            let request = Request::TaskAdd { team, spec, request_id };
            session.show::<TaskReply>(&request, |reply, _| line(&reply.task)).await
        }
        TaskCommand::Ls { list, .. } => {
            session
                .list::<TasksReply>(&Request::TaskList { team }, list.output, |answer, look| {
                    board(&answer.reply.tasks, look)
                })
                .await
        }
        TaskCommand::Show(args) => {
            session
                .show::<TaskReply>(&Request::TaskShow { team, id: args.id }, |reply, look| {
                    whole(&reply.task, look)
                })
                .await
        }
        TaskCommand::Update { task, change } => {
            let change = changed(session, change)?;
            said(session, Request::TaskUpdate { team, id: task.id, change, request_id }).await
        }
        TaskCommand::Claim { task, as_agent } => {
            said(session, Request::TaskClaim { team, id: task.id, as_agent, request_id }).await
        }
        TaskCommand::Release { task, generation } => {
            said(session, Request::TaskRelease { team, id: task.id, generation, request_id }).await
        }
        TaskCommand::Complete { task, as_agent, generation, result } => {
            let result = session.maybe_text(result.as_deref())?;
            let id = task.id;
            said(session, Request::TaskComplete { team, id, generation, result, as_agent, request_id }).await
        }
        TaskCommand::Cancel(task) => {
            said(session, Request::TaskCancel { team, id: task.id, request_id }).await
        }
        TaskCommand::Check { task, as_agent, generation } => {
            said(session, Request::TaskCheck { team, id: task.id, generation, as_agent }).await
        }
    }
}

async fn said(session: &mut Session<'_>, request: Request) -> Result<u8, Ended> {
    session.show::<TaskReply>(&request, |reply, _| line(&reply.task)).await
}

fn bad_name(error: posthouse_shared::name::NameError) -> Refusal {
    Refusal::new(Code::BadName, error.to_string()).effect("nothing was changed")
}

fn ids<'a>(texts: impl Iterator<Item = &'a str>) -> Result<Vec<TaskId>, Refusal> {
    texts
        .map(str::trim)
        .filter(|text| !text.is_empty())
        .map(|text| TaskId::new(text).map_err(bad_name))
        .collect()
}

fn changed(session: &mut Session<'_>, change: ChangeArgs) -> Result<TaskChange, Ended> {
    let metadata = change.metadata.into_iter().map(|(key, value)| {
        let value = if value.is_empty() { serde_json::Value::Null } else { value.into() };
        (key, value)
    });
    Ok(TaskChange {
        subject: change.subject,
        description: session.maybe_text(change.description.as_deref())?,
        active_form: change.active_form,
        blocked_by: change.blocked_by.map(|list| ids(list.split(','))).transpose()?,
        role: change.role.map(RoleName::new).transpose().map_err(bad_name)?,
        owner: change.owner.map(AgentName::new).transpose().map_err(bad_name)?,
        metadata: metadata.collect(),
    })
}

/// One task in one line: id, state, owner, generation.
fn line(task: &Task) -> String {
    let mut text = format!("{}  {}", task.id, state(task));
    if let Some(owner) = &task.owner {
        let _strings_take_all = write!(text, "  {owner}");
    }
    if let Some(generation) = task.generation {
        let _strings_take_all = write!(text, "  generation {generation}");
    }
    text + "\n"
}

fn state(task: &Task) -> &'static str {
    match (&task.hold, task.status) {
        (Some(_), TaskStatus::Pending) => "on hold",
        (_, status) => status.as_str(),
    }
}

fn board(tasks: &[Task], look: &Look) -> String {
    if look.format == ListFormat::Name {
        return tasks.iter().map(|task| format!("{}\n", task.id)).collect();
    }
    if tasks.is_empty() {
        return "no tasks\n".to_owned();
    }
    let wide = look.format == ListFormat::Wide;
    let mut titles = vec!["ID", "STATUS", "OWNER", "ROLE", "FOR", "BLOCKED BY", "SUBJECT"];
    if wide {
        titles.extend(["GENERATION", "TRIES", "BLOCKS"]);
    }
    let mut table = Table::new(titles, "SUBJECT");
    for task in tasks {
        let open = task.blocked_by.iter().filter(|id| {
            let blocker = tasks.iter().find(|one| one.id == **id);
            blocker.is_none_or(|one| one.status != TaskStatus::Completed)
        });
        let paint = match (&task.hold, task.status) {
            (Some(_), _) => Some(Paint::Bad),
            (None, TaskStatus::InProgress) => Some(Paint::Good),
            (None, TaskStatus::Completed | TaskStatus::Cancelled) => Some(Paint::Faint),
            (None, TaskStatus::Pending) => None,
        };
        let mut row: Vec<Cell> = vec![
            task.id.as_str().into(),
            Cell::painted(state(task), paint),
            task.owner.as_ref().map_or("-", |owner| owner.as_str()).into(),
            task.role.as_ref().map_or("-", |role| role.as_str()).into(),
            ago(task.updated_at, look.now).into(),
            joined(open).into(),
            look.terminal.safe(&task.subject).into(),
        ];
        if wide {
            row.push(task.generation.map_or_else(|| "-".to_owned(), |g| g.to_string()).into());
            row.push(task.attempts.to_string().into());
            row.push(joined(task.blocks.iter()).into());
        }
        table.row(row);
    }
    table.render(&look.terminal)
}

fn joined<'a>(ids: impl Iterator<Item = &'a TaskId>) -> String {
    let ids: Vec<&str> = ids.map(TaskId::as_str).collect();
    if ids.is_empty() { "-".to_owned() } else { ids.join(",") }
}

fn whole(task: &Task, look: &Look) -> String {
    let mut text = format!("{}  {}\n", task.id, look.terminal.safe(&task.subject));
    let mut field = |name: &str, value: String| {
        if !value.is_empty() && value != "-" {
            let _strings_take_all = writeln!(text, "  {name:<12}{}", look.terminal.safe(&value));
        }
    };
    field("status", state(task).to_owned());
    field("hold", task.hold.clone().unwrap_or_default());
    field("owner", task.owner.as_ref().map(ToString::to_string).unwrap_or_default());
    field("generation", task.generation.map(|g| g.to_string()).unwrap_or_default());
    field("role", task.role.as_ref().map(ToString::to_string).unwrap_or_default());
    field("blocked by", joined(task.blocked_by.iter()));
    field("blocks", joined(task.blocks.iter()));
    field("created", time(task.created_at, look.now));
    field("changed", time(task.updated_at, look.now));
    if task.attempts > 0 {
        field("failed", format!("{} times", task.attempts));
    }
    for (key, value) in &task.metadata {
        field(key, value.as_str().map_or_else(|| value.to_string(), str::to_owned));
    }
    if !task.description.is_empty() {
        text.push_str(&format!("\n{}\n", look.terminal.safe(task.description.trim_end())));
    }
    if let Some(result) = &task.result {
        text.push_str(&format!("\nresult\n{}\n", look.terminal.safe(result.trim_end())));
    }
    text
}
