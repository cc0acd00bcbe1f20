//! Teams: `team`.

use std::fmt::Write;

use posthouse_shared::name::AgentName;
use posthouse_shared::team::TeamConfig;
use posthouse_shared::wire::replies::{Done, MessageCounts, TaskCounts, TeamReply, TeamView, TeamsReply};
use posthouse_shared::wire::requests::Request;

use super::plural;
use crate::cli::args::{ListFormat, TeamCommand};
use crate::cli::failure::Ended;
use crate::cli::table::{Cell, Table};
use crate::cli::text::{ago, span, time};
use crate::cli::world::{Look, Session};

/// `team ...`
pub async fn team(session: &mut Session<'_>, command: TeamCommand) -> Result<u8, Ended> {
    match command {
        TeamCommand::Create { name, goal } => {
            let rehome_after_ms = Some(session.config.limits.rehome_after_ms);
            let config = TeamConfig { goal, rehome_after_ms, ..TeamConfig::default() };
            let request = Request::TeamCreate { name, config };
            session
                .show::<TeamReply>(&request, |reply, _| format!("created team {}\n", reply.team.name))
                .await
        }
        TeamCommand::Ls(list) => {
            session
                .list::<TeamsReply>(&Request::TeamList {}, list.output, |answer, look| {
                    teams(&answer.reply.teams, look)
                })
                .await
        }
        TeamCommand::Show { name } => {
            session
                .show::<TeamReply>(&Request::TeamShow { team: name }, |reply, look| whole(&reply.team, look))
                .await
        }
        TeamCommand::Delete { name, yes } => {
            if !yes {
                // Whether there is such a team is said before anybody types its name.
                session.ask::<TeamReply>(&Request::TeamShow { team: name.clone() }).await?;
            }
            let what = format!("This ends team {name}: its agents are shut down, its mailboxes put away");
            session.confirm(yes, &what, &name, &format!("posthouse team delete {name}"))?;
            session
                .show::<Done>(&Request::TeamDelete { team: name }, |reply, _| format!("{}\n", reply.done))
                .await
        }
        TeamCommand::Check { file, set } => super::local::check(session, &file, set),
    }
}

fn open(tasks: &TaskCounts) -> u64 {
    tasks.pending + tasks.in_progress
}

fn teams(all: &[TeamView], look: &Look) -> String {
    if look.format == ListFormat::Name {
        return all.iter().map(|one| format!("{}\n", one.name)).collect();
    }
    if all.is_empty() {
        return "no teams\n".to_owned();
    }
    let wide = look.format == ListFormat::Wide;
    let mut titles = vec!["NAME", "AGE", "MEMBERS", "OPEN", "DONE", "GOAL"];
    if wide {
        titles.extend(["BIRTH", "FILE"]);
    }
    let mut table = Table::new(titles, "GOAL");
    for one in all {
        let mut row: Vec<Cell> = vec![
            one.name.as_str().into(),
            ago(one.created_at, look.now).into(),
            one.members.len().to_string().into(),
            open(&one.tasks).to_string().into(),
            one.tasks.completed.to_string().into(),
            look.terminal.safe(one.config.goal.as_deref().unwrap_or("-")).into(),
        ];
        if wide {
            row.push(one.birth.to_string().into());
            row.push(
                one.config.file_digest.as_deref().and_then(|digest| digest.get(..12)).unwrap_or("-").into(),
            );
        }
        table.row(row);
    }
    table.render(&look.terminal)
}

fn whole(team: &TeamView, look: &Look) -> String {
    let mut text = format!("team {}\n", team.name);
    let mut field = |name: &str, value: &str| {
        let _strings_take_all = writeln!(text, "  {name:<10}{}", look.terminal.safe(value));
    };
    if let Some(goal) = &team.config.goal {
        field("goal", goal);
    }
    field("created", &time(team.created_at, look.now));
    let members: Vec<&str> = team.members.iter().map(AgentName::as_str).collect();
    field("members", &members.join(", "));
    let TaskCounts { pending, in_progress, completed, cancelled } = team.tasks;
    let tasks = plural(pending, "task pending", "tasks pending");
    field(
        "board",
        &format!("{tasks}, {in_progress} in progress, {completed} completed, {cancelled} cancelled"),
    );
    let MessageCounts { accepted: _, ready, processing, done, quarantined } = team.messages;
    let ready = plural(ready, "message ready", "messages ready");
    field("mail", &format!("{ready}, {processing} in a turn, {done} done, {quarantined} in quarantine"));
    let rehome = team.config.rehome_after_ms.map_or_else(|| "never".to_owned(), |ms| span(ms / 1000));
    field("rehome", &rehome);
    if !team.config.busy_check {
        field("busy", "a teammate may hold several tasks");
    }
    text
}
