//! What lies in quarantine: seen, brought back, dropped. A drop is told to the sender.

use std::collections::BTreeMap;

use posthouse_node::inspect::{Look, Shown};
use posthouse_node::post::{Draft, DraftId};
use posthouse_shared::codes::Code;
use posthouse_shared::message::Kind;
use posthouse_shared::name::{AgentId, HostName, MessageId};
use posthouse_shared::refusal::Refusal;
use posthouse_shared::wire::replies::{AttentionReply, HostsReply, QuarantineReply, Quarantined};
use serde_json::Value;

use super::Service;
use crate::authority::system_name;
use crate::prefix;
use crate::view::attention;

impl Service {
    pub(super) fn quarantine_list(&self, team: Option<&str>) -> Result<Value, Refusal> {
        if let Some(name) = team {
            self.team(&self.authority().state(), name)?;
        }
        let (mut quarantined, unseen) = self.all_quarantined(team)?;
        quarantined.sort_by_key(|entry| std::cmp::Reverse(entry.since));
        self.answer_with(QuarantineReply { quarantined, unseen })
    }

    pub(super) fn quarantine_show(&self, id: &str) -> Result<Value, Refusal> {
        let (agent, entry) = self.one_quarantined(id)?;
        let shown: Shown = self.ask_host(&entry.host, Look::Show { agent, id: entry.id })?;
        self.answer_with(shown.shown)
    }

    /// Brings back one message, or with `turn` all that its turn left.
    pub(super) fn quarantine_redeliver(&self, id: &str, turn: bool) -> Result<Value, Refusal> {
        let (agent, entry) = self.one_quarantined(id)?;
        if turn && entry.turn.is_none() {
            return Err(Refusal::new(
                Code::NotQuarantined,
                format!("{} is not there because of a turn", entry.id),
            )
            .effect("nothing was moved")
            .next(format!("posthouse quarantine redeliver {}", entry.id)));
        }
        let look = Look::Redeliver { agent, id: entry.id, turn: entry.turn.filter(|_| turn) };
        let quarantined = self.ask_host(&entry.host, look)?;
        self.live().bump();
        self.answer_with(QuarantineReply { quarantined, unseen: Vec::new() })
    }

    /// Drops one for good. Its sender, where it is a member, gets a notice; a notice causes none.
    pub(super) fn quarantine_drop(&self, id: &str) -> Result<Value, Refusal> {
        let (agent, entry) = self.one_quarantined(id)?;
        // The sender is told first: told twice is dropped as a duplicate, not told would be silence.
        let shown: Shown = self.ask_host(&entry.host, Look::Show { agent: agent.clone(), id: entry.id })?;
        if let Some(to) = shown.sender {
            let text = format!(
                "your message {} to {} was dropped from quarantine by a person",
                entry.id, entry.agent
            );
            let draft = Draft {
                from: AgentId::new(system_name(), entry.team.clone()),
                to: to.clone(),
                kind: Kind::Notice,
                body: text.clone(),
                summary: Some(text),
                in_reply_to: Some(entry.id),
                control: false,
                id: DraftId::Chosen(MessageId::derived(&["dropped", &entry.id.to_string(), &entry.file])),
                trace: None,
            };
            match self.node()?.post().send(draft) {
                Ok(posted) => self.posted(&posted),
                // The sender is gone, or is the system itself.
                Err(refusal) if matches!(refusal.code, Code::UnknownAgent | Code::AgentShutdown) => {}
                Err(refusal) => return Err(refusal.effect("nothing was dropped")),
            }
        }
        let dropped = self.ask_host(&entry.host, Look::Drop { agent, id: entry.id })?;
        self.live().bump();
        self.answer_with(QuarantineReply { quarantined: vec![dropped], unseen: Vec::new() })
    }

    pub(super) fn attention(&self, team: Option<&str>) -> Result<Value, Refusal> {
        let state = self.authority().state();
        let found = match team {
            Some(name) => vec![self.team(&state, name)?],
            None => state.teams.iter().collect(),
        };
        let mut all = Vec::new();
        for (name, team) in found {
            let (quarantined, _) = self.all_quarantined(Some(name.as_str()))?;
            all.extend(attention::team(&self.sight(&state, name, team)?, &quarantined));
        }
        all.extend(attention::hosts(&self.hosts()?));
        attention::sort(&mut all);
        self.answer_with(AttentionReply { attention: all })
    }

    pub(super) fn host_list(&self) -> Result<Value, Refusal> {
        self.answer_with(HostsReply { hosts: self.hosts()? })
    }

    /// All that lies in quarantine, of one team or all, and the hosts that could not be asked. Only mailboxes of
    /// living members are looked at.
    fn all_quarantined(&self, only: Option<&str>) -> Result<(Vec<Quarantined>, Vec<HostName>), Refusal> {
        let state = self.authority().state();
        let mut homes: BTreeMap<HostName, Vec<AgentId>> = BTreeMap::new();
        for (name, team) in
            state.teams.iter().filter(|(name, _)| only.is_none_or(|only| only == name.as_str()))
        {
            for member in team.members.values() {
                let id = AgentId::new(member.name.clone(), name.clone());
                homes.entry(member.host.clone()).or_default().push(id);
            }
        }
        let (mut found, mut unseen) = (Vec::new(), Vec::new());
        for (host, agents) in homes {
            match self.ask_host::<Vec<Quarantined>>(&host, Look::Quarantine { agents }) {
                Ok(entries) => found.extend(entries),
                Err(refusal) if refusal.code == Code::HostUnreachable => unseen.push(host),
                Err(refusal) => return Err(refusal),
            }
        }
        Ok((found, unseen))
    }

    fn one_quarantined(&self, wanted: &str) -> Result<(AgentId, Quarantined), Refusal> {
        let (all, unseen) = self.all_quarantined(None)?;
        let ids: Vec<String> = all.iter().map(|entry| entry.id.to_string()).collect();
        let unknown = || {
            let refusal = Refusal::new(Code::NotQuarantined, format!("no message {wanted} in quarantine"))
                .effect("nothing was moved")
                .next("posthouse quarantine ls");
            unseen
                .iter()
                .fold(refusal, |refusal, host| refusal.cause(format!("host \"{host}\" could not be asked")))
        };
        let found = prefix::resolve(wanted, ids.iter().map(String::as_str), unknown)?;
        let one = all.iter().find(|entry| entry.id.to_string() == found).cloned();
        one.map(|entry| (AgentId::new(entry.agent.clone(), entry.team.clone()), entry)).ok_or_else(unknown)
    }
}
