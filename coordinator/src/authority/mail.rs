//! The mail that decisions cause. Pure: the same entry gives the same messages with the same ids, so that they
//! can be sent again after a crash and are told exactly once.

use posthouse_shared::message::Kind;
use posthouse_shared::name::{AgentName, HostName, MessageId, TaskId, TeamName};
use posthouse_shared::task::Task;
use posthouse_shared::team::Standing;
use serde::{Deserialize, Serialize};

use super::command::{Decision, HostChange, Lifecycle};
use super::state::State;
use crate::journal::Entry;
use posthouse_node::port::GaveUp;

/// The reserved name that the system's own notices come from.
pub const SYSTEM: &str = "posthouse";

/// Who a message of the authority is from.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum From {
    /// The lead: prompts, assignments, lifecycle commands.
    Lead,
    /// The system: notices.
    System,
}

impl From {
    /// The sender's name.
    pub fn name(self) -> AgentName {
        match self {
            Self::Lead => AgentName::lead(),
            Self::System => system_name(),
        }
    }
}

/// [`SYSTEM`] as a name.
pub fn system_name() -> AgentName {
    AgentName::new(SYSTEM).unwrap_or_else(|_| AgentName::lead())
}

/// A message to be sent.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Outgoing {
    /// Its id, made of the entry's generation.
    pub id: MessageId,
    /// Its team.
    pub team: TeamName,
    /// Who it is from.
    pub from: From,
    /// For whom it is.
    pub to: AgentName,
    /// What it is for.
    pub kind: Kind,
    /// One line.
    pub summary: Option<String>,
    /// The text.
    pub body: String,
    /// What it answers.
    pub in_reply_to: Option<MessageId>,
}

struct Sheet<'a> {
    entry: &'a Entry,
    team: &'a TeamName,
    mail: Vec<Outgoing>,
}

impl Sheet<'_> {
    fn put(&mut self, from: From, to: &AgentName, kind: Kind, summary: String, body: String) {
        let (generation, n) = (self.entry.generation().to_string(), self.mail.len().to_string());
        self.mail.push(Outgoing {
            id: MessageId::derived(&["journal", &generation, &n]),
            team: self.team.clone(),
            from,
            to: to.clone(),
            kind,
            summary: Some(summary),
            body,
            in_reply_to: None,
        });
    }

    fn notice(&mut self, to: &AgentName, text: String) {
        self.put(From::System, to, Kind::Notice, text.clone(), text);
    }
}

/// The mail that `entry` causes; `state` is the one right after it.
pub fn mail_of(state: &State, entry: &Entry) -> Vec<Outgoing> {
    let lead = AgentName::lead();
    let sheet = |team| Sheet { entry, team, mail: Vec::new() };
    let task = |team: &TeamName, id: &TaskId| state.team(team).and_then(|team| team.board.get(id)).cloned();
    match &entry.decision {
        Decision::Spawned { team, spec, .. } => {
            let mut sheet = sheet(team);
            let from = if spec.name.is_lead() { From::System } else { From::Lead };
            sheet.put(from, &spec.name, Kind::Task, "your brief".to_owned(), spec.prompt.clone());
            sheet.mail
        }
        Decision::Commanded { team, agent, what } => {
            let mut sheet = sheet(team);
            let (kind, force) = match what {
                Lifecycle::Stop => (Kind::Stop, false),
                Lifecycle::Resume => (Kind::Resume, false),
                Lifecycle::Shutdown { force } => (Kind::ShutdownRequest, *force),
            };
            let body = serde_json::json!({ "command": entry.generation().to_string(), "force": force });
            sheet.put(From::Lead, agent, kind, kind.to_string(), body.to_string());
            sheet.mail
        }
        Decision::Stood { team, agent, standing, released } => {
            let mut sheet = sheet(team);
            let standing = serde_json::to_value(standing).unwrap_or_default();
            for id in released {
                let word = standing.as_str().unwrap_or("gone");
                sheet.notice(&lead, format!("task {id} is pending again: {agent}, who held it, is {word}"));
            }
            sheet.mail
        }
        Decision::TaskUpdated { team, id, change, by } => {
            let mut sheet = sheet(team);
            if let (Some(owner), Some(task)) = (&change.owner, task(team, id))
                && owner != by
            {
                sheet.put(From::Lead, owner, Kind::TaskAssignment, assigned(&task), brief(&task));
            }
            sheet.mail
        }
        Decision::TaskReleased { team, id, by } => {
            let mut sheet = sheet(team);
            if *by != lead {
                sheet.notice(&lead, format!("task {id} is pending again: released by {by}"));
            }
            sheet.mail
        }
        Decision::TaskGivenUp { team, id, agent, how, hold } => {
            let mut sheet = sheet(team);
            let text = match (hold, how) {
                (Some(why), _) => format!("task {id} is on hold: {why}"),
                (None, GaveUp::Failed { why }) => {
                    format!("task {id} is pending again: {agent} failed on it: {why}")
                }
                (None, GaveUp::Stopped) => format!("task {id} is pending again: {agent} was stopped"),
            };
            sheet.notice(&lead, text);
            sheet.mail
        }
        Decision::TaskCancelled { team, id, by } => {
            let mut sheet = sheet(team);
            let owner = task(team, id).and_then(|task| task.owner.clone());
            let told =
                owner.filter(|owner| owner != by).into_iter().chain((*by != lead).then(|| lead.clone()));
            for to in told {
                sheet.notice(
                    &to,
                    format!("task {id} is cancelled by {by}; what is done for it does not count"),
                );
            }
            sheet.mail
        }
        Decision::Host { what: HostChange::Lost { host, released } } => lost(state, entry, host, released),
        Decision::Host { .. }
        | Decision::Cluster { .. }
        | Decision::Leader { .. }
        | Decision::HostStarted { .. }
        | Decision::TeamCreated { .. }
        | Decision::TeamDeleted { .. }
        | Decision::TaskAdded { .. }
        | Decision::TaskClaimed { .. }
        | Decision::TaskCompleted { .. }
        | Decision::ScheduleAdded { .. }
        | Decision::ScheduleDeleted { .. }
        | Decision::ScheduleTicked { .. }
        | Decision::Notified { .. } => Vec::new(),
    }
}

/// The lead of each team that has somebody there is told once.
fn lost(state: &State, entry: &Entry, host: &HostName, released: &[(TeamName, TaskId)]) -> Vec<Outgoing> {
    let mut all = Vec::new();
    for (name, team) in state.teams.iter() {
        let here = team.members.values().filter(|m| m.host == *host && m.standing != Standing::Shutdown);
        let here: Vec<&str> = here.map(|member| member.name.as_str()).collect();
        if here.is_empty() {
            continue;
        }
        let tasks: Vec<&str> =
            released.iter().filter(|(team, _)| team == name).map(|(_, task)| task.as_str()).collect();
        let again = match tasks.as_slice() {
            [] => String::new(),
            tasks => format!("; pending again: {}", tasks.join(", ")),
        };
        let text = format!("host {host} is lost, with {}{again}", here.join(", "));
        // One sheet a team would give each of them the same id.
        let id = MessageId::derived(&["journal", &entry.generation().to_string(), name.as_str()]);
        let mut sheet = Sheet { entry, team: name, mail: Vec::new() };
        sheet.notice(&AgentName::lead(), text);
        all.extend(sheet.mail.into_iter().map(|mail| Outgoing { id, ..mail }));
    }
    all
}

fn assigned(task: &Task) -> String {
    format!("task {} is assigned to you: {}", task.id, task.subject)
}

fn brief(task: &Task) -> String {
    if task.description.is_empty() {
        return assigned(task);
    }
    format!("{}\n\n{}", assigned(task), task.description)
}
