//! What lies in quarantine: seen, brought back, dropped. A drop is told to the sender.

use posthouse_node::mailbox::{self, Mailbox, MailboxError};
use posthouse_node::post::{Draft, DraftId};
use posthouse_shared::codes::Code;
use posthouse_shared::message::Kind;
use posthouse_shared::name::{AgentId, AgentName, MessageId};
use posthouse_shared::refusal::Refusal;
use posthouse_shared::wire::replies::{
    AttentionReply, HostsReply, QuarantineReply, Quarantined, QuarantinedReply, Stage,
};
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
        let mut quarantined: Vec<Quarantined> =
            self.all_quarantined(team)?.into_iter().map(|(_, entry)| entry).collect();
        quarantined.sort_by_key(|entry| std::cmp::Reverse(entry.since));
        self.answer_with(QuarantineReply { quarantined })
    }

    pub(super) fn quarantine_show(&self, id: &str) -> Result<Value, Refusal> {
        let (mailbox, entry) = self.one_quarantined(id)?;
        let (_, content) = mailbox.show(entry.id).map_err(|error| error.refusal())?;
        self.answer_with(QuarantinedReply { quarantined: entry, content })
    }

    /// Brings back one message, or with `turn` all that its turn left.
    pub(super) fn quarantine_redeliver(&self, id: &str, turn: bool) -> Result<Value, Refusal> {
        let (mailbox, entry) = self.one_quarantined(id)?;
        let moved = match (turn, entry.turn) {
            (false, _) => vec![mailbox.redeliver(entry.id).map_err(|error| error.refusal())?],
            (true, Some(turn)) => mailbox.redeliver_turn(turn).map_err(|error| error.refusal())?,
            (true, None) => {
                return Err(Refusal::new(
                    Code::NotQuarantined,
                    format!("{} is not there because of a turn", entry.id),
                )
                .effect("nothing was moved")
                .next(format!("posthouse quarantine redeliver {}", entry.id)));
            }
        };
        let quarantined = moved.iter().map(|moved| self.entry(&mailbox, moved)).collect();
        self.live().bump();
        self.answer_with(QuarantineReply { quarantined })
    }

    /// Drops one for good. Its sender, where it is a member, gets a notice; a notice causes none.
    pub(super) fn quarantine_drop(&self, id: &str) -> Result<Value, Refusal> {
        let (mailbox, entry) = self.one_quarantined(id)?;
        // The sender is told first: told twice is dropped as a duplicate, not told would be silence.
        let sealed = mailbox.read(entry.id).map_err(|error| error.refusal())?;
        if let Some((sealed, _)) = sealed.filter(|(sealed, _)| sealed.envelope.kind != Kind::Notice) {
            let to = sealed.envelope.from.agent.clone();
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
        let dropped = mailbox.drop_quarantined(entry.id).map_err(|error| error.refusal())?;
        self.trace_step(entry.id, Stage::Dropped, String::new())?;
        self.live().bump();
        self.answer_with(QuarantineReply { quarantined: vec![self.entry(&mailbox, &dropped)] })
    }

    pub(super) fn attention(&self, team: Option<&str>) -> Result<Value, Refusal> {
        let state = self.authority().state();
        let found = match team {
            Some(name) => vec![self.team(&state, name)?],
            None => state.teams.iter().collect(),
        };
        let mut all = Vec::new();
        for (name, team) in found {
            let quarantined: Vec<Quarantined> =
                self.all_quarantined(Some(name.as_str()))?.into_iter().map(|(_, entry)| entry).collect();
            all.extend(attention::team(&self.sight(&state, name, team)?, &quarantined));
        }
        all.extend(attention::hosts(&self.hosts()?));
        attention::sort(&mut all);
        self.answer_with(AttentionReply { attention: all })
    }

    pub(super) fn host_list(&self) -> Result<Value, Refusal> {
        self.answer_with(HostsReply { hosts: self.hosts()? })
    }

    /// All that lies in quarantine, of one team or all. Only mailboxes of living members are looked at.
    fn all_quarantined(&self, only: Option<&str>) -> Result<Vec<(Mailbox, Quarantined)>, Refusal> {
        let state = self.authority().state();
        let mut found = Vec::new();
        for (name, team) in
            state.teams.iter().filter(|(name, _)| only.is_none_or(|only| only == name.as_str()))
        {
            for member in team.members.values() {
                let id = AgentId::new(member.name.clone(), name.clone());
                let mailbox = match self.node()?.mailboxes().get(&id) {
                    Ok(mailbox) => mailbox,
                    Err(MailboxError::NotFound { .. }) => continue,
                    Err(error) => return Err(error.refusal()),
                };
                if mailbox.counts().map_err(|error| error.refusal())?.quarantined == 0 {
                    continue;
                }
                let entries = mailbox.quarantined().map_err(|error| error.refusal())?;
                found.extend(entries.iter().map(|entry| (mailbox.clone(), self.entry(&mailbox, entry))));
            }
        }
        Ok(found)
    }

    fn one_quarantined(&self, wanted: &str) -> Result<(Mailbox, Quarantined), Refusal> {
        let all = self.all_quarantined(None)?;
        let ids: Vec<String> = all.iter().map(|(_, entry)| entry.id.to_string()).collect();
        let found = prefix::resolve(wanted, ids.iter().map(String::as_str), || {
            Refusal::new(Code::NotQuarantined, format!("no message {wanted} in quarantine"))
                .effect("nothing was moved")
                .next("posthouse quarantine ls")
        })?;
        let one = all.iter().find(|(_, entry)| entry.id.to_string() == found).cloned();
        one.ok_or_else(|| Refusal::new(Code::NotQuarantined, format!("no message {wanted} in quarantine")))
    }

    fn entry(&self, mailbox: &Mailbox, entry: &mailbox::Quarantined) -> Quarantined {
        let agent: &AgentName = &mailbox.agent().agent;
        Quarantined {
            id: entry.id,
            agent: agent.clone(),
            team: mailbox.agent().team.clone(),
            host: self.host().clone(),
            code: entry.reason.code.clone(),
            reason: entry.reason.text.clone(),
            since: entry.since,
            turn: entry.reason.turn,
            from: entry.from.clone(),
            file: entry.file.clone(),
        }
    }
}
