//! Teams.

use std::sync::Arc;

use posthouse_shared::name::{AgentId, TeamName};
use posthouse_shared::refusal::Refusal;
use posthouse_shared::task::TaskStatus;
use posthouse_shared::team::TeamConfig;
use posthouse_shared::wire::Caller;
use posthouse_shared::wire::replies::{Done, MessageCounts, TaskCounts, TeamReply, TeamView, TeamsReply};
use serde_json::Value;

use super::Service;
use crate::authority::{Command, Team};

impl Service {
    pub(super) async fn team_create(
        &self,
        caller: Caller,
        name: String,
        config: TeamConfig,
    ) -> Result<Value, Refusal> {
        let host = self.host().clone();
        self.decide_and_carry_out(caller, Command::TeamCreate { name: name.clone(), config, host }, None)
            .await?;
        self.blocking(move |s| s.team_show(&name)).await
    }

    pub(super) fn team_list(&self) -> Result<Value, Refusal> {
        let state = self.authority().state();
        let teams =
            state.teams.iter().map(|(name, team)| self.team_view(name, team)).collect::<Result<_, _>>()?;
        self.answer_with(TeamsReply { teams })
    }

    pub(super) fn team_show(&self, name: &str) -> Result<Value, Refusal> {
        let state = self.authority().state();
        let (name, team) = self.team(&state, name)?;
        self.answer_with(TeamReply { team: self.team_view(name, team)? })
    }

    pub(super) async fn team_delete(&self, caller: Caller, team: String) -> Result<Value, Refusal> {
        self.decide_and_carry_out(caller, Command::TeamDelete { team: team.clone() }, None).await?;
        self.answer_with(Done { done: format!("team {team} is deleted; its mailboxes are in the attic") })
    }

    fn team_view(&self, name: &TeamName, team: &Arc<Team>) -> Result<TeamView, Refusal> {
        let mut tasks = TaskCounts::default();
        for task in team.board.tasks() {
            let count = match task.status {
                TaskStatus::Pending => &mut tasks.pending,
                TaskStatus::InProgress => &mut tasks.in_progress,
                TaskStatus::Completed => &mut tasks.completed,
                TaskStatus::Cancelled => &mut tasks.cancelled,
            };
            *count += 1;
        }
        let mut messages = MessageCounts::default();
        let mut members: Vec<_> = team.members.values().map(|member| member.name.clone()).collect();
        members.sort_by_key(|name| !name.is_lead());
        for member in &members {
            let mail = self.mail_counts(&AgentId::new(member.clone(), name.clone()))?;
            messages.ready += mail.ready;
            messages.processing += mail.processing;
            messages.done += mail.done;
            messages.quarantined += mail.quarantined;
        }
        messages.accepted = messages.ready + messages.processing + messages.done + messages.quarantined;
        Ok(TeamView {
            name: name.clone(),
            birth: team.birth,
            created_at: team.created_at,
            config: team.config.clone(),
            members,
            tasks,
            messages,
        })
    }
}
