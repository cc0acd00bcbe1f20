//! What a person may see of this host, and do to its quarantine: mail, logs, the ways of messages. The coordinator
//! asks its own node and those of other hosts the same questions; who may ask what is decided there.

use std::path::Path;

use posthouse_shared::codes::Code;
use posthouse_shared::durable::Files;
use posthouse_shared::message::{Kind, Sealed, Vouched};
use posthouse_shared::name::{AgentId, AgentName, HostName, MessageId, TeamName};
use posthouse_shared::refusal::Refusal;
use posthouse_shared::wire::replies::{
    InboxReply, LogReply, MessageView, Quarantined, QuarantinedReply, Stage, TraceStep,
};
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::bus::wire::{MailCounts, Outgoing};
use crate::mailbox::{self, Claimed, Located, Mailbox, MailboxError, Marks, Peeked};
use crate::node::NodeHandle;
use crate::port::Report;
use crate::trace_index::Traced;

/// The detail of a step that another host has told of.
pub const RECEIPT: &str = "receipt";
/// Most of a log in one answer, in bytes.
const LOG_BYTES: u64 = 64 * 1024;
/// More ids than this of one prefix are ambiguous anyway.
const CANDIDATES: usize = 16;
/// Mail in one answer to another host, in bytes, beside the last message: it stays below `max_payload`.
const MAIL_BYTES: usize = 256 * 1024;
/// Quarantined files in one answer, the newest.
const QUARANTINED_MAX: usize = 1_000;

/// One question. Only `Redeliver` and `Drop` change something.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "look", rename_all = "snake_case")]
#[expect(missing_docs, reason = "fields are those of the requests of users")]
pub enum Look {
    /// Ready mail, in order. -> `InboxReply`
    Inbox { agent: AgentId, limit: usize },
    /// A log from byte `after` on, with 0 its end. -> `LogReply`
    Log { team: String, name: String, after: u64 },
    /// What lies in quarantine. -> `Vec<Quarantined>`
    Quarantine { agents: Vec<AgentId> },
    /// How the teammates of a team are, now. -> `Rest`
    Rest { team: TeamName },
    /// One quarantined file. -> `Shown`
    Show { agent: AgentId, id: MessageId },
    /// Back into the mailbox; with `turn`, all that this turn left. -> `Vec<Quarantined>`
    Redeliver { agent: AgentId, id: MessageId, turn: Option<u64> },
    /// Dropped for good. -> `Quarantined`
    Drop { agent: AgentId, id: MessageId },
    /// The ways of messages by the beginning of their ids, of one team or all. -> `Vec<Way>`
    Ways { wanted: String, team: Option<TeamName> },
}

/// Whether anything moves.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Rest {
    /// Its mailboxes here.
    pub mail: Vec<(AgentId, MailCounts)>,
    /// What its teammates here last said.
    pub reports: Vec<(AgentId, Report)>,
    /// What is on its way from here, of all teams.
    pub outgoing: Outgoing,
}

/// A quarantined file, and who is told when it is dropped.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Shown {
    /// The file.
    pub shown: QuarantinedReply,
    /// Its sender; nobody where it is a notice, or no message.
    pub sender: Option<AgentName>,
}

/// What one host knows of a message.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Way {
    /// Its id.
    pub id: MessageId,
    /// What it is for.
    pub kind: Kind,
    /// The sender with its team, or `unreadable`.
    pub from: String,
    /// The recipient with its team.
    pub to: String,
    /// Its number in its lane.
    pub lane: Option<u64>,
    /// Its size.
    pub bytes: u64,
    /// Its W3C trace id.
    pub trace_id: Option<String>,
    /// What happened, in order.
    pub steps: Vec<TraceStep>,
    /// What it is in a mailbox here.
    pub here: Option<Stage>,
    /// Where it is going to, from the outbox here.
    pub going: Option<HostName>,
}

impl NodeHandle {
    /// Answers a question of another host. Works on files.
    pub fn inspect(&self, look: Look) -> Result<Value, Refusal> {
        match look {
            Look::Inbox { agent, limit } => {
                let mailbox = self.mailbox(&agent)?;
                value(&bounded(look_into(&mailbox, &[], limit)?))
            }
            Look::Log { team, name, after } => value(&self.log(&team, &name, after)?),
            Look::Quarantine { agents } => value(&self.quarantined(&agents)?),
            Look::Rest { team } => {
                let mut reports = self.reports();
                reports.retain(|(agent, _)| agent.team == team);
                value(&Rest { mail: self.mail_counts(Some(&team)), reports, outgoing: self.outgoing() })
            }
            Look::Show { agent, id } => value(&self.show_quarantined(&agent, id)?),
            Look::Redeliver { agent, id, turn } => value(&self.redeliver(&agent, id, turn)?),
            Look::Drop { agent, id } => value(&self.drop_quarantined(&agent, id)?),
            Look::Ways { wanted, team } => {
                let mut agents = self.mailboxes().list().map_err(|error| error.refusal())?;
                agents.retain(|agent| team.as_ref().is_none_or(|team| agent.team == *team));
                value(&self.ways(&wanted, agents, team.as_ref())?)
            }
        }
    }

    fn mailbox(&self, agent: &AgentId) -> Result<Mailbox, Refusal> {
        self.mailboxes().get(agent).map_err(|error| error.refusal())
    }

    /// Where the mail of the mailboxes here is, of one team or all. One that cannot be read says so elsewhere.
    pub fn mail_counts(&self, team: Option<&TeamName>) -> Vec<(AgentId, MailCounts)> {
        let count = |n: usize| u64::try_from(n).unwrap_or(u64::MAX);
        let mut mail = Vec::new();
        for agent in self.mailboxes().list().unwrap_or_default() {
            if team.is_some_and(|team| agent.team != *team) {
                continue;
            }
            let Ok(counts) = self.mailboxes().get(&agent).and_then(|mailbox| mailbox.counts()) else {
                continue;
            };
            let counts = MailCounts {
                ready: count(counts.ready),
                processing: count(counts.processing),
                done: count(counts.done),
                quarantined: count(counts.quarantined),
            };
            mail.push((agent, counts));
        }
        mail
    }

    /// What is on its way to other hosts.
    pub fn outgoing(&self) -> Outgoing {
        let Some(counts) = self.relay().map(|relay| relay.outbox().counts()) else {
            return Outgoing::default();
        };
        let count = |n: usize| u64::try_from(n).unwrap_or(u64::MAX);
        Outgoing {
            unstored: count(counts.unstored),
            undone: count(counts.undone),
            oldest_unstored_ms: u64::try_from(counts.oldest_unstored.as_millis()).unwrap_or(u64::MAX),
        }
    }

    /// A log from byte `after` on, with 0 its end. One that was turned over is shorter than `after` and is given
    /// from its beginning.
    pub fn log(&self, team: &str, name: &str, after: u64) -> Result<LogReply, Refusal> {
        // Both become a path: nothing but names may pass.
        let bad = |_| Refusal::new(Code::BadName, format!("{name}@{team} is no teammate"));
        let (team, name) = (TeamName::new(team).map_err(bad)?, AgentName::new(name).map_err(bad)?);
        read_log(&self.data().join("logs").join(team.as_str()).join(format!("{name}.log")), after)
    }

    /// What lies in quarantine of these mailboxes; those that are not here are passed over.
    pub fn quarantined(&self, agents: &[AgentId]) -> Result<Vec<Quarantined>, Refusal> {
        let mut found = Vec::new();
        for agent in agents {
            let mailbox = match self.mailboxes().get(agent) {
                Ok(mailbox) => mailbox,
                Err(MailboxError::NotFound { .. }) => continue,
                Err(error) => return Err(error.refusal()),
            };
            if mailbox.counts().map_err(|error| error.refusal())?.quarantined > 0 {
                let entries = mailbox.quarantined().map_err(|error| error.refusal())?;
                found.extend(entries.iter().map(|entry| self.entry(agent, entry)));
            }
        }
        found.sort_by_key(|entry| std::cmp::Reverse(entry.since));
        found.truncate(QUARANTINED_MAX);
        Ok(found)
    }

    /// One quarantined file.
    pub fn show_quarantined(&self, agent: &AgentId, id: MessageId) -> Result<Shown, Refusal> {
        let mailbox = self.mailbox(agent)?;
        let (entry, content) = mailbox.show(id).map_err(|error| error.refusal())?;
        let sealed = mailbox.read(id).map_err(|error| error.refusal())?.map(|(sealed, _)| sealed);
        let told = sealed.filter(|sealed| sealed.envelope.kind != Kind::Notice);
        Ok(Shown {
            shown: QuarantinedReply { quarantined: self.entry(agent, &entry), content },
            sender: told.map(|sealed| sealed.envelope.from.agent),
        })
    }

    /// Brings back one message, or all that a turn left. Durable at return.
    pub fn redeliver(
        &self,
        agent: &AgentId,
        id: MessageId,
        turn: Option<u64>,
    ) -> Result<Vec<Quarantined>, Refusal> {
        let mailbox = self.mailbox(agent)?;
        let moved = match turn {
            None => mailbox.redeliver(id).map(|moved| vec![moved]),
            Some(turn) => mailbox.redeliver_turn(turn),
        };
        Ok(moved.map_err(|e| e.refusal())?.iter().map(|moved| self.entry(agent, moved)).collect())
    }

    /// Drops a quarantined message for good. Durable at return.
    pub fn drop_quarantined(&self, agent: &AgentId, id: MessageId) -> Result<Quarantined, Refusal> {
        let dropped = self.mailbox(agent)?.drop_quarantined(id).map_err(|error| error.refusal())?;
        self.note_step(id, Stage::Dropped);
        Ok(self.entry(agent, &dropped))
    }

    fn entry(&self, agent: &AgentId, entry: &mailbox::Quarantined) -> Quarantined {
        Quarantined {
            id: entry.id,
            agent: agent.agent.clone(),
            team: agent.team.clone(),
            host: self.host().clone(),
            code: entry.reason.code.clone(),
            reason: entry.reason.text.clone(),
            since: entry.since,
            turn: entry.reason.turn,
            from: entry.from.clone(),
            file: entry.file.clone(),
        }
    }

    /// The ways of the messages whose ids begin so, as far as they are known here: from the mailboxes of
    /// `agents`, the trace (of one team or all), and the outbox.
    pub fn ways(
        &self,
        wanted: &str,
        agents: Vec<AgentId>,
        team: Option<&TeamName>,
    ) -> Result<Vec<Way>, Refusal> {
        // A whole id whose recipient is remembered is looked for in that mailbox alone.
        let known =
            wanted.parse::<MessageId>().ok().and_then(|id| self.trace().get(id)).map(|traced| traced.to);
        let mut located: Vec<(Mailbox, Located)> = Vec::new();
        for agent in
            agents.into_iter().filter(|agent| known.as_ref().is_none_or(|to| *to == agent.to_string()))
        {
            let found = self.mailboxes().get(&agent).and_then(|mailbox| {
                let found = mailbox.find_prefix(wanted, CANDIDATES)?;
                Ok(found.into_iter().map(|found| (mailbox.clone(), found)).collect::<Vec<_>>())
            });
            match found {
                Ok(found) => located.extend(found),
                Err(MailboxError::NotFound { .. }) => {}
                Err(error) => return Err(error.refusal()),
            }
        }
        let mut traced = self.trace().find(wanted, CANDIDATES);
        if let Some(team) = team {
            let team = format!("@{team}");
            traced.retain(|traced| traced.to.ends_with(&team));
        }
        let mut ways = Vec::new();
        for (mailbox, found) in &located {
            let traced = traced.iter().find(|traced| traced.id == found.id);
            // What the trace remembers need not be read again.
            let content = match traced {
                None => mailbox.read(found.id).map_err(|e| e.refusal())?.map(|(sealed, _)| sealed),
                Some(_) => None,
            };
            ways.push(self.way(traced, content.as_ref(), Some((mailbox, found))));
        }
        for traced in &traced {
            if !located.iter().any(|(_, found)| found.id == traced.id) {
                ways.push(self.way(Some(traced), None, None));
            }
        }
        Ok(ways.into_iter().flatten().collect())
    }

    fn way(
        &self,
        traced: Option<&Traced>,
        content: Option<&Sealed>,
        located: Option<(&Mailbox, &Located)>,
    ) -> Option<Way> {
        let here = located.map(|(_, found)| found.state);
        let step = |note: &crate::trace_index::TraceNote| TraceStep {
            at: Some(note.at),
            stage: note.stage,
            host: note.host.as_ref().unwrap_or(self.host()).clone(),
            detail: note.detail.clone(),
        };
        let mut steps: Vec<TraceStep> = traced.iter().flat_map(|traced| &traced.steps).map(step).collect();
        let last = steps.last().map(|step| step.stage);
        let ready = [Stage::Stored, Stage::Released];
        if let Some(here) = here
            && last != Some(here)
            && !(last.is_some_and(|last| ready.contains(&last)) && ready.contains(&here))
        {
            let detail = "seen in the mailbox".to_owned();
            steps.push(TraceStep { at: None, stage: here, host: self.host().clone(), detail });
        }
        let blank = |id, to: String| Way {
            id,
            kind: Kind::Message,
            from: "unreadable".to_owned(),
            to,
            lane: located.and_then(|(_, found)| found.lane),
            bytes: 0,
            trace_id: None,
            steps,
            here,
            going: self.relay().and_then(|relay| relay.outbox().get(id)).map(|item| item.host),
        };
        if let Some(sealed) = content {
            let envelope = &sealed.envelope;
            return Some(Way {
                kind: envelope.kind,
                from: envelope.sender().to_string(),
                lane: envelope.lane.map(|lane| lane.seq),
                bytes: u64::try_from(sealed.bytes.len()).unwrap_or(u64::MAX),
                trace_id: envelope.trace.as_ref().map(|trace| trace.trace_id().to_owned()),
                ..blank(envelope.id, envelope.recipient().to_string())
            });
        }
        if let Some(traced) = traced {
            return Some(Way {
                kind: traced.kind,
                from: traced.from.clone(),
                lane: traced.lane,
                bytes: traced.bytes,
                trace_id: traced.trace_id.clone(),
                ..blank(traced.id, traced.to.clone())
            });
        }
        let (mailbox, found) = located?;
        Some(blank(found.id, mailbox.agent().to_string()))
    }
}

/// The mail of a mailbox, nothing moved: what somebody has in hand, then what is ready.
pub fn look_into(mailbox: &Mailbox, in_hand: &[Claimed], limit: usize) -> Result<InboxReply, Refusal> {
    let ready = mailbox.peek(limit).map_err(|error| error.refusal())?;
    let counts = mailbox.counts().map_err(|error| error.refusal())?;
    let messages: Vec<MessageView> =
        in_hand.iter().map(claimed_view).chain(ready.iter().map(peeked_view)).take(limit).collect();
    let more = (counts.ready + in_hand.len()).saturating_sub(messages.len());
    Ok(InboxReply { messages, more: u64::try_from(more).unwrap_or(u64::MAX), peek: true })
}

/// At least one message, and no more than another host can be told at once.
fn bounded(mut reply: InboxReply) -> InboxReply {
    let mut bytes = 0;
    let fits = reply.messages.iter().take_while(|message| {
        let before = bytes;
        bytes += message.body.len();
        before < MAIL_BYTES
    });
    let fits = fits.count();
    reply.more += u64::try_from(reply.messages.len() - fits).unwrap_or(0);
    reply.messages.truncate(fits);
    reply
}

/// A message in hand, as a reader gets it.
pub fn claimed_view(claimed: &Claimed) -> MessageView {
    message_view(&claimed.message, claimed.vouched, claimed.attempt, claimed.marks)
}

fn peeked_view(seen: &Peeked) -> MessageView {
    message_view(&seen.message, seen.vouched, seen.attempt, seen.marks)
}

fn message_view(sealed: &Sealed, vouched: Vouched, attempt: u32, marks: Marks) -> MessageView {
    let envelope = &sealed.envelope;
    let from = match vouched {
        Vouched::Node | Vouched::Host => envelope.from.agent.to_string(),
        Vouched::Nobody => "external".to_owned(),
    };
    MessageView {
        id: envelope.id,
        kind: envelope.kind,
        from,
        to: envelope.to.agent.clone(),
        team: envelope.team.clone(),
        created_at: envelope.created_at,
        summary: envelope.summary.clone(),
        body: envelope.body.clone().unwrap_or_default(),
        in_reply_to: envelope.in_reply_to,
        attempt,
        marks: marks.names(),
        vouched,
    }
}

fn read_log(path: &Path, after: u64) -> Result<LogReply, Refusal> {
    let bytes = Files::real().read_if_there(path, u64::MAX).map_err(|e| e.refusal())?.unwrap_or_default();
    let len = u64::try_from(bytes.len()).unwrap_or(u64::MAX);
    let from = match after {
        0 => len.saturating_sub(LOG_BYTES),
        after if after <= len => after,
        _turned_over => 0,
    };
    let rest = bytes.get(usize::try_from(from).unwrap_or(0)..).unwrap_or_default();
    let shown = rest.get(..usize::try_from(LOG_BYTES).unwrap_or(usize::MAX)).unwrap_or(rest);
    let next = from + u64::try_from(shown.len()).unwrap_or(0);
    Ok(LogReply { text: String::from_utf8_lossy(shown).into_owned(), next })
}

fn value(reply: &impl Serialize) -> Result<Value, Refusal> {
    serde_json::to_value(reply).map_err(|e| Refusal::new(Code::Internal, "encode the answer").because(&e))
}
