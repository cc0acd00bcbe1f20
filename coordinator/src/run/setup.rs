//! Making a team from its file. Each thing is looked for first, so that a run that was killed in the middle
//! goes on; the order lets nothing run before what it needs is there: tasks, schedules, teammates, the lead.

use std::collections::BTreeSet;

use posthouse_shared::codes::Code;
use posthouse_shared::refusal::Refusal;
use posthouse_shared::task::TaskSpec;
use posthouse_shared::wire::replies::{
    AgentReply, AgentsReply, Done, ScheduleReply, SchedulesReply, TaskReply, TasksReply, TeamReply, TeamView,
};
use posthouse_shared::wire::requests::Request;

use crate::cli::{Client, Run};

/// What was there before.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum There {
    /// No team of this name.
    Nothing,
    /// The team, with work left.
    Begun,
    /// The team, every task ended.
    Finished,
}

/// Makes what is not there yet.
pub async fn make(client: &Client, run: &Run) -> Result<There, Refusal> {
    let file = &run.file;
    let team = file.name.to_string();
    let there = match client.ask::<TeamReply>(&Request::TeamShow { team: team.clone() }).await {
        Ok(_) if run.fresh => {
            client.ask::<Done>(&Request::TeamDelete { team: team.clone() }).await?;
            There::Nothing
        }
        Ok(reply) => {
            let view = reply.answer.reply.team;
            same_file(run, &view)?;
            let counts = view.tasks;
            let known = usize::try_from(counts.completed + counts.cancelled).unwrap_or(usize::MAX);
            let open = counts.pending + counts.in_progress;
            if open == 0 && known >= file.tasks.len() { There::Finished } else { There::Begun }
        }
        Err(refusal) if refusal.code == Code::UnknownTeam => There::Nothing,
        Err(refusal) => return Err(refusal),
    };
    if there == There::Nothing {
        let request = Request::TeamCreate { name: team.clone(), config: file.config.clone() };
        client.ask::<TeamReply>(&request).await?;
    }
    tasks(client, run, &team).await?;
    schedules(client, run, &team).await?;
    members(client, run, &team).await?;
    Ok(there)
}

fn same_file(run: &Run, view: &TeamView) -> Result<(), Refusal> {
    let (file, shown) = (&run.file, &run.shown);
    if view.config.file_digest == file.config.file_digest {
        return Ok(());
    }
    let what = match view.config.file_digest {
        Some(_) => format!("{shown} is not as it was when team \"{}\" was made from it", file.name),
        None => format!("team \"{}\" is there and was not made from {shown}", file.name),
    };
    Err(Refusal::new(Code::TeamFileChanged, what)
        .cause("the file and the values of --set are compared as a whole")
        .effect("nothing was changed")
        .next(format!(
            "posthouse run {shown} --fresh      (puts the old team into the attic and begins anew)"
        )))
}

/// Tasks, each after those that block it.
async fn tasks(client: &Client, run: &Run, team: &str) -> Result<(), Refusal> {
    let known =
        client.ask::<TasksReply>(&Request::TaskList { team: team.to_owned() }).await?.answer.reply.tasks;
    let mut known: BTreeSet<_> = known.into_iter().map(|task| task.id).collect();
    let mut left: Vec<_> =
        run.file.tasks.iter().filter(|task| task.id.as_ref().is_none_or(|id| !known.contains(id))).collect();
    while !left.is_empty() {
        let (now, later): (Vec<_>, Vec<_>) = left
            .into_iter()
            .partition(|task: &&TaskSpec| task.blocked_by.iter().all(|id| known.contains(id)));
        if now.is_empty() {
            return Err(Refusal::new(Code::BadTeamFile, "tasks wait on each other"));
        }
        for task in now {
            let request = Request::TaskAdd { team: team.to_owned(), spec: task.clone(), request_id: None };
            client.ask::<TaskReply>(&request).await?;
            known.extend(task.id.clone());
        }
        left = later;
    }
    Ok(())
}

async fn schedules(client: &Client, run: &Run, team: &str) -> Result<(), Refusal> {
    let request = Request::ScheduleList { team: team.to_owned() };
    let known = client.ask::<SchedulesReply>(&request).await?.answer.reply.schedules;
    let known: BTreeSet<_> = known.into_iter().map(|view| view.schedule.id).collect();
    for spec in run.file.schedules.iter().filter(|spec| spec.id.as_ref().is_none_or(|id| !known.contains(id)))
    {
        let request = Request::ScheduleAdd { team: team.to_owned(), spec: spec.clone() };
        client.ask::<ScheduleReply>(&request).await?;
    }
    Ok(())
}

/// Teammates, and last the lead where it is an agent: it finds everybody there.
async fn members(client: &Client, run: &Run, team: &str) -> Result<(), Refusal> {
    let request = Request::AgentList { team: Some(team.to_owned()) };
    let known = client.ask::<AgentsReply>(&request).await?.answer.reply.agents;
    let known: BTreeSet<_> =
        known.into_iter().filter(|agent| agent.runner.is_some()).map(|agent| agent.name).collect();
    for spec in run.file.members.iter().chain(&run.file.lead).filter(|spec| !known.contains(&spec.name)) {
        client.ask::<AgentReply>(&Request::Spawn { team: team.to_owned(), spec: spec.clone() }).await?;
    }
    Ok(())
}
