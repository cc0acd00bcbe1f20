//! Sending, and the lead's inbox.

use std::time::Duration;

use posthouse_node::inspect::{Look, claimed_view, look_into};
use posthouse_node::mailbox::Mailbox;
use posthouse_node::post::{Draft, DraftId};
use posthouse_shared::codes::Code;
use posthouse_shared::message::Kind;
use posthouse_shared::name::{AgentId, HostName, MessageId};
use posthouse_shared::refusal::Refusal;
use posthouse_shared::team::{HostState, Member, Standing};
use posthouse_shared::wire::Caller;
use posthouse_shared::wire::replies::{BriefReply, InboxReply, SendReply};
use posthouse_shared::wire::requests::Request;
use serde_json::Value;
use tokio::runtime::Handle;

use super::Service;
use crate::view::{Sight, agents, brief};

/// Messages in one answer where the request names no number, and at most.
const INBOX_DEFAULT: u32 = 100;
const INBOX_MAX: u32 = 1_000;
/// Between two looks into an inbox on another host.
const LOOK_AGAIN: Duration = Duration::from_millis(500);

impl Service {
    /// On disk in the recipient's mailbox at return, or refused.
    pub(super) fn send(&self, caller: &Caller, request: Request) -> Result<Value, Refusal> {
        let Request::Send { team, to, body, id, summary, in_reply_to, urgent, as_agent } = request else {
            return Err(Refusal::new(Code::Internal, "not a message"));
        };
        let state = self.authority().state();
        let (team_name, team) = self.team(&state, &team)?;
        let sight = self.sight_of(&state, team_name, team, |name| name == to)?;
        let from = Self::acting(caller, as_agent.as_deref())?;
        self.member(&sight, from.as_str()).map_err(|refusal| refusal.effect("nothing was sent"))?;
        let recipient = self.member(&sight, &to).map_err(|refusal| refusal.effect("nothing was sent"))?;
        if urgent && !from.is_lead() {
            return Err(Refusal::new(Code::OperatorOnly, "only the lead marks mail as urgent")
                .effect("nothing was sent")
                .next("leave --urgent away"));
        }
        if recipient.standing == Standing::Shutdown {
            // The directory that the post asks may be behind the journal.
            Handle::current().block_on(self.carried_out(state.head.index));
        }
        let of_lead = from.is_lead();
        let draft = Draft {
            from: AgentId::new(from, team_name.clone()),
            to: recipient.name.clone(),
            kind: Kind::Message,
            body,
            summary,
            in_reply_to,
            control: urgent,
            id: id.map_or(DraftId::Fresh, DraftId::Chosen),
            trace: None,
        };
        let posted = self.node()?.post().send(draft)?;
        self.posted(&posted);
        let reads = self.reads(&sight, recipient, of_lead);
        self.answer_with(SendReply { id: posted.id, state: posted.state, reads, duplicate: posted.duplicate })
    }

    /// Reads an inbox: the lead's own is handed out under leases, any other is only looked at.
    #[expect(clippy::too_many_arguments, reason = "the fields of one request")]
    pub(super) async fn inbox(
        &self,
        caller: Caller,
        team: String,
        name: String,
        peek: bool,
        seen: Vec<MessageId>,
        limit: u32,
        timeout_ms: u64,
    ) -> Result<Value, Refusal> {
        let (id, own, host) = self.inbox_of(&caller, &team, &name)?;
        let limit = if limit == 0 { INBOX_DEFAULT } else { limit.min(INBOX_MAX) };
        let limit = usize::try_from(limit).unwrap_or(usize::MAX);
        if host != *self.host() {
            return self.inbox_elsewhere(host, id, limit, timeout_ms).await;
        }
        let mailbox = self.node()?.mailboxes().get(&id).map_err(|error| error.refusal())?;
        let mut changes = {
            let mailbox = mailbox.clone();
            self.blocking(move |_| Ok(mailbox.changes())).await?
        };
        let until =
            tokio::time::Instant::now() + Duration::from_millis(timeout_ms.min(self.limits().wait_ms_max));
        let mut closing = self.supervisor().closing();
        let mut seen = seen;
        loop {
            changes.mark_unchanged();
            let (named, mailbox) = (std::mem::take(&mut seen), mailbox.clone());
            let reply = self
                .blocking(move |s| {
                    if own {
                        s.0.inboxes.acknowledge(&mailbox, &named).map_err(|error| error.refusal())?;
                        s.live().bump();
                    }
                    // The command line acknowledges what it has printed with a last look.
                    if peek || !own { s.look(&mailbox, limit) } else { s.hand_out(&mailbox, limit) }
                })
                .await?;
            if !reply.messages.is_empty() || tokio::time::Instant::now() >= until || closing.begun() {
                return self.answer_with(reply);
            }
            tokio::select! {
                changed = changes.changed() => if changed.is_err() { return self.answer_with(reply) },
                () = tokio::time::sleep_until(until) => {}
                () = closing.wait() => {}
            }
        }
    }

    /// A look into an inbox on another host, again and again where it waits for mail.
    async fn inbox_elsewhere(
        &self,
        host: HostName,
        agent: AgentId,
        limit: usize,
        timeout_ms: u64,
    ) -> Result<Value, Refusal> {
        let until =
            tokio::time::Instant::now() + Duration::from_millis(timeout_ms.min(self.limits().wait_ms_max));
        let mut closing = self.supervisor().closing();
        loop {
            let (host, look) = (host.clone(), Look::Inbox { agent: agent.clone(), limit });
            let reply: InboxReply = self.blocking(move |s| s.ask_host(&host, look)).await?;
            if !reply.messages.is_empty() || tokio::time::Instant::now() >= until || closing.begun() {
                return self.answer_with(reply);
            }
            tokio::select! {
                () = tokio::time::sleep(LOOK_AGAIN) => {}
                () = closing.wait() => {}
            }
        }
    }

    /// Whose inbox, on which host, and whether the caller may acknowledge what is in it: the operator where the lead is a
    /// person or another program.
    fn inbox_of(
        &self,
        caller: &Caller,
        team: &str,
        name: &str,
    ) -> Result<(AgentId, bool, HostName), Refusal> {
        let state = self.authority().state();
        let (team_name, team) = self.team(&state, team)?;
        let sight = self.sight_of(&state, team_name, team, |_| false)?;
        let member = self.member(&sight, name)?;
        let own = *caller == Caller::Operator && member.name.is_lead() && !Sight::is_run(member);
        Ok((AgentId::new(member.name.clone(), team_name.clone()), own, member.host.clone()))
    }

    fn hand_out(&self, mailbox: &Mailbox, limit: usize) -> Result<InboxReply, Refusal> {
        let messages = self.0.inboxes.read(mailbox, limit).map_err(|error| error.refusal())?;
        let more = mailbox.counts().map_err(|error| error.refusal())?.ready;
        self.live().bump();
        let messages = messages.iter().map(claimed_view).collect();
        Ok(InboxReply { messages, more: u64::try_from(more).unwrap_or(u64::MAX), peek: false })
    }

    fn look(&self, mailbox: &Mailbox, limit: usize) -> Result<InboxReply, Refusal> {
        look_into(mailbox, &self.0.inboxes.handed(mailbox.agent()), limit)
    }

    /// When a message will be read; what is not seen now is not said.
    fn reads(&self, sight: &Sight<'_>, recipient: &Member, of_lead: bool) -> String {
        let (name, host) = (&recipient.name, &recipient.host);
        match self.host_state(recipient) {
            HostState::Up => agents::reads(sight, recipient, of_lead),
            HostState::Draining => format!("{host} is closing; {name} reads it when that is back"),
            how @ (HostState::Unreachable | HostState::Lost | HostState::Unknown) => {
                format!("{host} is {}; {name} reads it when that is back", how.as_str())
            }
        }
    }

    /// What a fresh lead needs to go on.
    pub(super) fn brief(&self, team: &str) -> Result<Value, Refusal> {
        let state = self.authority().state();
        let (team_name, team) = self.team(&state, team)?;
        let sight = self.sight(&state, team_name, team)?;
        let id = AgentId::new(posthouse_shared::name::AgentName::lead(), team_name.clone());
        let mailbox = self.node()?.mailboxes().get(&id).map_err(|error| error.refusal())?;
        let unread = self.look(&mailbox, usize::try_from(INBOX_DEFAULT).unwrap_or(usize::MAX))?;
        self.answer_with(BriefReply { brief: brief::brief(&sight, &unread.messages, unread.more) })
    }
}
