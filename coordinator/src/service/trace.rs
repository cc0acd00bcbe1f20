//! Where one message is, and since when. The mailbox is the truth; the trace index adds times where it still
//! has them.

use posthouse_node::mailbox::{Located, Mailbox, MailboxError};
use posthouse_node::trace_index::{TraceNote, Traced};
use posthouse_shared::codes::Code;
use posthouse_shared::message::Sealed;
use posthouse_shared::name::{AgentId, MessageId};
use posthouse_shared::refusal::Refusal;
use posthouse_shared::wire::Caller;
use posthouse_shared::wire::event::What;
use posthouse_shared::wire::replies::{Stage, TraceReply, TraceStep};
use serde_json::Value;

use super::Service;
use crate::prefix;
use crate::view::ago;

/// More ids than this of one prefix are ambiguous anyway.
const CANDIDATES: usize = 16;

impl Service {
    pub(super) fn trace(&self, caller: &Caller, id: &str) -> Result<Value, Refusal> {
        let reply = self.traced(caller, id)?;
        self.answer_with(reply)
    }

    /// A message's way, by its id or an unambiguous prefix. An agent sees its own team's.
    pub(super) fn traced(&self, caller: &Caller, wanted: &str) -> Result<TraceReply, Refusal> {
        let (id, traced, located) = self.find_message(caller, wanted)?;
        // What the trace index remembers need not be read again.
        let content = match &located {
            Some((mailbox, _)) if traced.is_none() => {
                mailbox.read(id).map_err(|error| error.refusal())?.map(|(sealed, _)| sealed)
            }
            Some(_) | None => None,
        };
        let host = self.host();
        let mut steps: Vec<TraceStep> = traced
            .iter()
            .flat_map(|traced| &traced.steps)
            .map(|note| TraceStep {
                at: Some(note.at),
                stage: note.stage,
                host: host.clone(),
                detail: note.detail.clone(),
            })
            .collect();
        let last = steps.last().map(|step| step.stage);
        let state = match &located {
            Some((_, located)) => located.state,
            // Not there any more: pruned after it was done, or dropped.
            None => last.filter(|stage| *stage == Stage::Dropped).unwrap_or(Stage::Done),
        };
        let ready = [Stage::Stored, Stage::Released];
        if last != Some(state) && !(last.is_some_and(|last| ready.contains(&last)) && ready.contains(&state))
        {
            steps.push(TraceStep {
                at: None,
                stage: state,
                host: host.clone(),
                detail: "seen in the mailbox".to_owned(),
            });
        }
        let about =
            About::of(traced.as_ref(), content.as_ref(), located.as_ref()).ok_or_else(|| unknown(wanted))?;
        let since = steps.iter().rev().find(|step| step.stage == state).and_then(|step| step.at);
        let span = since.map(|since| format!(" for {}", ago(self.now().since(since)))).unwrap_or_default();
        let word = format!("{state:?}").to_lowercase();
        let next = match state {
            Stage::Quarantined => vec![
                format!("posthouse quarantine show {id}"),
                format!("posthouse quarantine redeliver {id}"),
            ],
            Stage::Stored | Stage::Released | Stage::Processing => vec![format!("posthouse why {id}")],
            Stage::Accepted | Stage::Done | Stage::Dropped => Vec::new(),
        };
        Ok(TraceReply {
            id,
            kind: about.kind,
            from: about.from,
            to: about.to,
            lane: about.lane,
            bytes: about.bytes,
            state,
            since,
            summary: format!("{word} on {host}{span}"),
            trace_id: about.trace_id,
            steps,
            next,
        })
    }

    /// Where a message is, by its id or an unambiguous prefix.
    pub(super) fn stage_of(&self, caller: &Caller, wanted: &str) -> Result<(MessageId, Stage), Refusal> {
        self.traced(caller, wanted).map(|reply| (reply.id, reply.state))
    }

    /// A message was stored: followers and the trace are told.
    pub(super) fn stored(&self, sealed: &Sealed) {
        let envelope = &sealed.envelope;
        self.0.setup.events.publish(
            self.now(),
            What::MessageStored {
                team: envelope.team.clone(),
                id: envelope.id,
                kind: envelope.kind,
                from: envelope.from.agent.to_string(),
                to: envelope.to.agent.clone(),
                host: self.host().clone(),
            },
        );
        self.live().bump();
    }

    /// Adds a step to a message's way.
    pub(super) fn trace_step(&self, id: MessageId, stage: Stage, detail: String) -> Result<(), Refusal> {
        self.node()?.trace().step(id, TraceNote { at: self.now(), stage, detail });
        Ok(())
    }

    #[expect(clippy::type_complexity, reason = "what is remembered of a message, and where it is")]
    fn find_message(
        &self,
        caller: &Caller,
        wanted: &str,
    ) -> Result<(MessageId, Option<Traced>, Option<(Mailbox, Located)>), Refusal> {
        let node = self.node()?;
        let hex = wanted.bytes().all(|b| b.is_ascii_hexdigit() || b == b'-');
        if !hex || wanted.len() < prefix::CHARS_MIN {
            return Err(unknown(wanted));
        }
        let mut located = Vec::new();
        // A whole id whose recipient is remembered is looked for in that mailbox alone.
        let known =
            wanted.parse::<MessageId>().ok().and_then(|id| node.trace().get(id)).map(|traced| traced.to);
        let agents = self.visible(caller);
        for agent in
            agents.into_iter().filter(|agent| known.as_ref().is_none_or(|to| *to == agent.to_string()))
        {
            let found = node.mailboxes().get(&agent).and_then(|mailbox| {
                let found = mailbox.find_prefix(wanted, CANDIDATES)?;
                Ok(found.into_iter().map(|found| (mailbox.clone(), found)).collect::<Vec<_>>())
            });
            match found {
                Ok(found) => located.extend(found),
                Err(MailboxError::NotFound { .. }) => {}
                Err(error) => return Err(error.refusal()),
            }
        }
        let mut traced = node.trace().find(wanted, CANDIDATES);
        if let Caller::Agent { id, .. } = caller {
            let team = format!("@{}", id.team);
            traced.retain(|traced| traced.to.ends_with(&team));
        }
        let ids: Vec<String> = located
            .iter()
            .map(|(_, located)| located.id.to_string())
            .chain(traced.iter().map(|traced| traced.id.to_string()))
            .collect();
        let found = prefix::resolve(wanted, ids.iter().map(String::as_str), || unknown(wanted))?;
        let id: MessageId = found.parse().map_err(|_| unknown(wanted))?;
        let traced = traced.into_iter().find(|traced| traced.id == id);
        Ok((id, traced, located.into_iter().find(|(_, located)| located.id == id)))
    }

    /// Whose mailboxes a caller may look into.
    fn visible(&self, caller: &Caller) -> Vec<AgentId> {
        let state = self.authority().state();
        let own = |name: &posthouse_shared::name::TeamName| match caller {
            Caller::Operator => true,
            Caller::Agent { id, .. } => id.team == *name,
        };
        let teams = state.teams.iter().filter(|(name, _)| own(name));
        teams
            .flat_map(|(name, team)| {
                team.members.keys().map(|agent| AgentId::new(agent.clone(), name.clone())).collect::<Vec<_>>()
            })
            .collect()
    }
}

fn unknown(wanted: &str) -> Refusal {
    Refusal::new(Code::UnknownMessage, format!("no message {wanted}"))
        .cause("an id is a UUID, or its first 8 characters or more")
        .next("posthouse events")
}

/// What a message says of itself, from whichever source still has it.
struct About {
    kind: posthouse_shared::message::Kind,
    from: String,
    to: String,
    lane: Option<u64>,
    bytes: u64,
    trace_id: Option<String>,
}

impl About {
    fn of(
        traced: Option<&Traced>,
        content: Option<&Sealed>,
        located: Option<&(Mailbox, Located)>,
    ) -> Option<Self> {
        if let Some(sealed) = content {
            let envelope = &sealed.envelope;
            return Some(Self {
                kind: envelope.kind,
                from: envelope.sender().to_string(),
                to: envelope.recipient().to_string(),
                lane: envelope.lane.map(|lane| lane.seq),
                bytes: sealed.size(),
                trace_id: envelope.trace.as_ref().map(|trace| trace.trace_id().to_owned()),
            });
        }
        if let Some(traced) = traced {
            return Some(Self {
                kind: traced.kind,
                from: traced.from.clone(),
                to: traced.to.clone(),
                lane: traced.lane,
                bytes: traced.bytes,
                trace_id: traced.trace_id.clone(),
            });
        }
        let (mailbox, located) = located?;
        Some(Self {
            kind: posthouse_shared::message::Kind::Message,
            from: "unreadable".to_owned(),
            to: mailbox.agent().to_string(),
            lane: located.lane,
            bytes: 0,
            trace_id: None,
        })
    }
}
