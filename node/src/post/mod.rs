//! The accept path: who it is for, number, stamp, seal, store. A message that was answered with *stored* is
//! on disk in the recipient's mailbox; a refused one left nothing but a skipped number.
//!
//! Order of steps for an id that the caller chose: number reserved -> record of the id synced -> delivered. A
//! crash in between is mended by the retry, which makes the identical envelope from the record.

mod clock;
mod group;
mod ids;
mod numbers;

use std::path::Path;
use std::sync::Arc;

use posthouse_shared::clock::Clock;
use posthouse_shared::codes::Code;
use posthouse_shared::durable::Files;
use posthouse_shared::identity::{HostKey, NodeKey};
use posthouse_shared::lane::{LaneHash, LaneKey, LanePosition};
use posthouse_shared::limits::Limits;
use posthouse_shared::message::{
    Destination, Envelope, Kind, Origin, SealError, Sealed, TraceParent, VERSION,
};
use posthouse_shared::name::{AgentId, AgentName, HostName, MessageId};
use posthouse_shared::refusal::Refusal;
use posthouse_shared::team::Standing;
use posthouse_shared::wire::event::What;
use posthouse_shared::wire::replies::{SendState, Stage};

pub use clock::KeptClock;
pub use group::GroupError;

use crate::directory::{Directory, Residence};
use crate::mailbox::{Delivered, MailboxError, Mailboxes, Marks};
use crate::outbox::Outbox;
use crate::trace_index::{TraceIndex, TraceNote};
use ids::{Chosen, ChosenIds, Known};
use numbers::LaneNumbers;

/// A message before it has a number, a stamp and a seal.
#[derive(Debug, Clone)]
pub struct Draft {
    /// The sender. Comes from a credential, never from an argument (P8).
    pub from: AgentId,
    /// The recipient, in the sender's team.
    pub to: AgentName,
    /// What it is for.
    pub kind: Kind,
    /// The text.
    pub body: String,
    /// One line for lists.
    pub summary: Option<String>,
    /// What it answers.
    pub in_reply_to: Option<MessageId>,
    /// Goes in the control lane: the lead marked it urgent. Control kinds go there by themselves.
    pub control: bool,
    /// Its id.
    pub id: DraftId,
    /// The trace that it carries on; a new one begins with it otherwise.
    pub trace: Option<TraceParent>,
}

/// Where a message's id comes from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DraftId {
    /// A new one.
    Fresh,
    /// Given by the caller or derived from a turn or a journal entry: the first answer counts for ever.
    Chosen(MessageId),
}

/// What became of a message.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Posted {
    /// Its id.
    pub id: MessageId,
    /// How far it is.
    pub state: SendState,
    /// Whether the id was known already; then this is the first answer again.
    pub duplicate: bool,
    /// The message as it is stored.
    pub sealed: Sealed,
}

impl Posted {
    /// What happened, where it is news: stored on `host`, or accepted there for another one.
    pub fn event(&self, host: &HostName) -> Option<What> {
        let Envelope { team, id, kind, from, to, .. } = self.sealed.envelope.clone();
        let (from, to, host) = (from.agent.to_string(), to.agent, host.clone());
        match self.state {
            _ if self.duplicate => None,
            SendState::Accepted => Some(What::MessageAccepted { team, id, kind, from, to, host }),
            SendState::Stored => Some(What::MessageStored { team, id, kind, from, to, host }),
        }
    }
}

/// What a [`Post`] is made from.
#[derive(Clone)]
pub struct PostSetup {
    /// The durable layer.
    pub files: Files,
    /// This host.
    pub host: HostName,
    /// The node's key.
    pub key: NodeKey,
    /// The limits in force.
    pub limits: Arc<Limits>,
    /// Time.
    pub clock: Arc<dyn Clock>,
    /// The mailboxes of this host.
    pub mailboxes: Mailboxes,
    /// Who lives where.
    pub directory: Directory,
    /// Where messages are traced.
    pub trace: TraceIndex,
    /// The way to other hosts, where there is one.
    pub away: Option<Away>,
}

/// What mail to other hosts needs.
#[derive(Clone)]
pub struct Away {
    /// Where it waits.
    pub outbox: Outbox,
    /// What signs it.
    pub key: HostKey,
}

/// The post of one host. Clones share it; all calls are synchronous.
#[derive(Clone)]
pub struct Post(Arc<Inner>);

struct Inner {
    setup: PostSetup,
    clock: KeptClock,
    numbers: LaneNumbers,
    chosen: ChosenIds,
}

impl Post {
    /// Opens the post: `sent` is `DATA/sent` (made where it is not there), `clock` is `DATA/clock`.
    pub fn open(setup: PostSetup, sent: &Path, clock: &Path) -> Result<Self, GroupError> {
        let files = &setup.files;
        files.create_dirs(sent)?;
        let numbers = LaneNumbers::open(files, &sent.join("lanes.jsonl"), setup.limits.lane_block)?;
        let chosen = ChosenIds::open(files, &sent.join("ids.jsonl"))?;
        let clock = KeptClock::open(files.clone(), clock.to_owned(), Arc::clone(&setup.clock))?;
        Ok(Self(Arc::new(Inner { setup, clock, numbers, chosen })))
    }

    /// Sends a message: on disk at return, or refused. The same id with the same content gets the first answer,
    /// with other content `PH0303`.
    pub fn send(&self, draft: Draft) -> Result<Posted, Refusal> {
        let (sealed, known) = self.number(draft)?;
        let mut posted = match self.deliver(&sealed) {
            Ok(posted) => posted,
            Err(refusal) => {
                self.withdraw(&sealed);
                return Err(refusal);
            }
        };
        posted.duplicate = known;
        Ok(posted)
    }

    /// Numbers, stamps and seals a message without delivering it: it goes into the history's `turn_end` first.
    pub fn prepare(&self, draft: Draft) -> Result<Sealed, Refusal> {
        self.number(draft).map(|(sealed, _)| sealed)
    }

    /// Delivers what was prepared. May be repeated: its place in the lane makes it one message.
    pub fn deliver(&self, sealed: &Sealed) -> Result<Posted, Refusal> {
        self.deliver_marked(sealed, Marks::NONE)
    }

    /// The same, with marks where it is delivered on this host.
    pub fn deliver_marked(&self, sealed: &Sealed, marks: Marks) -> Result<Posted, Refusal> {
        let to = sealed.envelope.recipient();
        if let Some(away) = &self.0.setup.away
            && let Some(residence) = self.0.setup.directory.get(&to)
            && residence.host != self.0.setup.host
        {
            return self.send_away(away, &residence.host, sealed);
        }
        let urgent =
            sealed.envelope.lane.is_some_and(|lane| lane.control) && !sealed.envelope.kind.is_control();
        let marks = if urgent { marks.and(Marks::URGENT) } else { marks };
        let mailbox = self.0.setup.mailboxes.get(&to).map_err(|e| refuse(&e))?;
        let delivered = mailbox.deliver(sealed, marks).map_err(|e| refuse(&e))?;
        let duplicate = match delivered {
            Delivered::Stored => {
                self.0.setup.trace.note(
                    sealed,
                    TraceNote {
                        at: self.0.setup.clock.now(),
                        stage: Stage::Stored,
                        detail: String::new(),
                        host: None,
                    },
                );
                false
            }
            Delivered::Duplicate(_) => true,
        };
        Ok(Posted { id: sealed.envelope.id, state: SendState::Stored, duplicate, sealed: sealed.clone() })
    }

    /// Into the outbox: accepted when that is synced, stored when the other host says so.
    fn send_away(&self, away: &Away, host: &HostName, sealed: &Sealed) -> Result<Posted, Refusal> {
        let setup = &self.0.setup;
        let signed = match sealed.signed_part() {
            Some((covered, sig)) if away.key.public().verify(covered, sig) => sealed.clone(),
            Some(_) | None => {
                sealed.envelope.clone().seal_for_others(&away.key, &setup.limits).map_err(sealing)?
            }
        };
        let new = away.outbox.put(host, &signed).map_err(|e| e.refusal())?;
        if new {
            let detail = format!("for {host}");
            setup.trace.note(
                &signed,
                TraceNote { at: setup.clock.now(), stage: Stage::Accepted, detail, host: None },
            );
        }
        let id = signed.envelope.id;
        Ok(Posted { id, state: SendState::Accepted, duplicate: !new, sealed: signed })
    }

    /// Says that a prepared message which the mailbox refused as full will not be tried again.
    pub fn withdraw(&self, sealed: &Sealed) {
        if let Ok(mailbox) = self.0.setup.mailboxes.get(&sealed.envelope.recipient()) {
            mailbox.withdraw(sealed);
        }
    }

    /// This host.
    pub fn host(&self) -> &HostName {
        &self.0.setup.host
    }

    /// The clock that stamps messages.
    pub fn clock(&self) -> &KeptClock {
        &self.0.clock
    }

    /// The sealed message, and whether its id was known.
    fn number(&self, draft: Draft) -> Result<(Sealed, bool), Refusal> {
        let inner = &self.0;
        let (to, residence) = inner.setup.directory.recipient(&draft.from.team, draft.to.as_str())?;
        let origin = inner.setup.directory.get(&draft.from).ok_or_else(|| {
            Refusal::new(Code::UnknownAgent, format!("the sender {} is not known here", draft.from))
                .effect("nothing was sent")
        })?;
        check_size(&draft, &inner.setup.limits)?;
        match draft.id {
            DraftId::Fresh => {
                check_standing(&to, &residence)?;
                let id = MessageId::fresh();
                let envelope = inner.stamped(inner.blank(&draft, id, to, &residence, &origin), &draft)?;
                Ok((inner.seal(envelope)?, false))
            }
            DraftId::Chosen(id) => {
                let blank = inner.blank(&draft, id, to.clone(), &residence, &origin);
                let content = blank.content_digest();
                match inner.chosen.look(id, &content) {
                    Known::Same(first) => Ok((inner.seal(inner.again(blank, *first))?, true)),
                    Known::Other => Err(Refusal::new(
                        Code::IdReused,
                        format!("message id {id} was used for something else"),
                    )
                    .effect("nothing was sent")),
                    Known::New => {
                        let made = check_standing(&to, &residence)
                            .and_then(|()| inner.first(blank, &draft, content));
                        let record = made.as_ref().ok().map(|(_, chosen)| chosen);
                        let settled = inner.chosen.settle(id, record);
                        let (sealed, _) = made?;
                        settled.map_err(|e| failed(&e))?;
                        inner.setup.files.point("post.id.synced");
                        Ok((sealed, false))
                    }
                }
            }
        }
    }
}

impl Inner {
    fn blank(
        &self,
        draft: &Draft,
        id: MessageId,
        to: AgentName,
        residence: &Residence,
        origin: &Residence,
    ) -> Envelope {
        let trace = match &draft.trace {
            Some(trace) => trace.carried_by(id),
            None => TraceParent::begin(id),
        };
        Envelope {
            v: VERSION,
            id,
            team: draft.from.team.clone(),
            from: Origin {
                agent: draft.from.agent.clone(),
                host: self.setup.host.clone(),
                generation: origin.generation,
            },
            to: Destination { agent: to, birth: residence.birth },
            kind: draft.kind,
            created_at: posthouse_shared::clock::Stamp::default(),
            lane: None,
            in_reply_to: draft.in_reply_to,
            summary: draft.summary.clone(),
            body: Some(draft.body.clone()),
            blob: None,
            trace: Some(trace),
        }
    }

    /// Gives number and stamp.
    fn stamped(&self, mut envelope: Envelope, draft: &Draft) -> Result<Envelope, Refusal> {
        let control = draft.control || draft.kind.is_control();
        let lane = LaneHash::of(&envelope.sender(), &envelope.recipient(), envelope.to.birth, control);
        let key = LaneKey { lane, epoch: envelope.from.generation };
        let seq = self.numbers.next(key).map_err(|e| failed(&e))?;
        envelope.lane = Some(LanePosition { seq, control });
        envelope.created_at = self.clock.tick().map_err(|e| e.refusal())?;
        Ok(envelope)
    }

    fn first(&self, blank: Envelope, draft: &Draft, content: String) -> Result<(Sealed, Chosen), Refusal> {
        let envelope = self.stamped(blank, draft)?;
        let lane = envelope.lane.unwrap_or(LanePosition { seq: 0, control: false });
        let chosen = Chosen {
            id: envelope.id,
            content,
            birth: envelope.to.birth,
            generation: envelope.from.generation,
            created_at: envelope.created_at,
            seq: lane.seq,
            control: lane.control,
            trace: envelope.trace.clone(),
        };
        Ok((self.seal(envelope)?, chosen))
    }

    /// The envelope of an id's first use.
    fn again(&self, blank: Envelope, first: Chosen) -> Envelope {
        Envelope {
            from: Origin { generation: first.generation, ..blank.from },
            to: Destination { birth: first.birth, ..blank.to },
            created_at: first.created_at,
            lane: Some(LanePosition { seq: first.seq, control: first.control }),
            trace: first.trace,
            ..blank
        }
    }

    fn seal(&self, envelope: Envelope) -> Result<Sealed, Refusal> {
        envelope.seal(&self.setup.key, &self.setup.limits).map_err(sealing)
    }
}

fn sealing(error: SealError) -> Refusal {
    match error {
        SealError::TooLarge { bytes, limit } => too_large(bytes, limit),
        SealError::Json(error) => Refusal::new(Code::Internal, "encode message").because(&error),
    }
}

/// Before a number is spent: a body that alone is over the limit, a summary that is no summary.
fn check_size(draft: &Draft, limits: &Limits) -> Result<(), Refusal> {
    let bytes = u64::try_from(draft.body.len()).unwrap_or(u64::MAX);
    if bytes > limits.envelope_bytes {
        return Err(too_large(bytes, limits.envelope_bytes));
    }
    let summary = draft.summary.as_ref().map_or(0, String::len);
    if summary > usize::try_from(limits.summary_bytes).unwrap_or(usize::MAX) {
        let text = format!("summary has {summary} bytes, the limit is {}", limits.summary_bytes);
        return Err(Refusal::new(Code::MessageTooLarge, text).effect("nothing was sent"));
    }
    Ok(())
}

fn too_large(bytes: u64, limit: u64) -> Refusal {
    Refusal::new(Code::MessageTooLarge, format!("encoded message has {bytes} bytes, the limit is {limit}"))
        .effect("nothing was sent")
}

fn check_standing(to: &AgentName, residence: &Residence) -> Result<(), Refusal> {
    match residence.standing {
        Standing::Active | Standing::Stopped | Standing::Failed => Ok(()),
        Standing::Shutdown => {
            Err(Refusal::new(Code::AgentShutdown, format!("teammate \"{to}\" has been shut down"))
                .effect("nothing was sent"))
        }
    }
}

fn refuse(error: &MailboxError) -> Refusal {
    error.refusal()
}

fn failed(error: &GroupError) -> Refusal {
    match error {
        GroupError::Durable(error) => error.refusal(),
        GroupError::Line { .. } => Refusal::new(Code::DiskFailed, error.to_string()).because(error),
    }
}
