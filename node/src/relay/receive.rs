//! The receiving side. Order of steps: key of the sending host kept -> message stored, synced -> acknowledged to
//! the bus, always -> receipt. A crash in between ends in a duplicate, which is answered with the present state.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use posthouse_shared::clock::Observed;
use posthouse_shared::generation::Generation;
use posthouse_shared::message::Sealed;
use posthouse_shared::name::HostName;
use posthouse_shared::supervise::Closing;
use posthouse_shared::wire::event::What;
use posthouse_shared::wire::receipts::{Note, Question, Receipt, Word};
use posthouse_shared::wire::replies::Stage;

use super::judge::{Verdict, judge};
use super::{Shared, send};
use crate::link::{AckToken, Arrival, Inbound, Parcel};
use crate::mailbox::{After, Delivered, MailboxError, Marks};
use crate::trace_index::TraceNote;

const BATCH: usize = 256;
/// Pauses before the inbound side is opened again.
const REOPEN_MIN: Duration = Duration::from_millis(100);
const REOPEN_MAX: Duration = Duration::from_secs(5);
/// What a sender waits after a full mailbox, or a disk that failed.
const FULL_RETRY_MS: u64 = 1_000;
const DISK_RETRY_MS: u64 = 5_000;
/// What a sender waits that has not yet heard of a move.
const MOVED_RETRY_MS: u64 = 1_000;

pub(super) async fn run(shared: Arc<Shared>, mut closing: Closing) {
    let mut pause = REOPEN_MIN;
    while !closing.begun() {
        let link = &shared.options.link;
        let opened = tokio::select! {
            () = closing.wait() => return,
            opened = link.link.open(&shared.options.host, link.generation) => opened,
        };
        let ended = match opened {
            Ok(mut inbound) => {
                tracing::info!(host = %shared.options.host, "bound to the relay");
                pause = REOPEN_MIN;
                tokio::select! {
                    () = closing.wait() => return,
                    ended = take_in(&shared, inbound.as_mut()) => ended,
                }
            }
            Err(error) => error,
        };
        tracing::debug!(error = %ended, "not bound to the relay; again soon");
        tokio::select! {
            () = closing.wait() => return,
            () = tokio::time::sleep(pause) => {}
        }
        pause = (pause * 2).min(REOPEN_MAX);
    }
}

async fn take_in(shared: &Arc<Shared>, inbound: &mut dyn Inbound) -> crate::link::LinkError {
    loop {
        let arrivals = match inbound.next(BATCH).await {
            Ok(arrivals) => arrivals,
            Err(error) => return error,
        };
        let working = Arc::clone(shared);
        let Ok(done) = tokio::task::spawn_blocking(move || work(&working, arrivals)).await else { continue };
        shared.options.files.point("relay.stored");
        inbound.ack(&done.tokens).await;
        if !done.forward.is_empty() {
            // Where it fails nothing is lost: the sender sends again.
            let _best_effort = shared.options.link.link.publish(done.forward).await;
        }
        for (host, receipts) in done.receipts {
            shared.tell(&host, receipts, Vec::new()).await;
        }
    }
}

#[derive(Default)]
struct Worked {
    tokens: Vec<AckToken>,
    forward: Vec<Parcel>,
    receipts: BTreeMap<HostName, Vec<Receipt>>,
}

fn work(shared: &Shared, arrivals: Vec<Arrival>) -> Worked {
    let mut worked = Worked::default();
    for arrival in arrivals {
        match arrival {
            Arrival::Parcel(parcel, token) => {
                worked.tokens.push(token);
                if let Some((to, receipt)) = store(shared, parcel, &mut worked) {
                    worked.receipts.entry(to).or_default().push(receipt);
                }
            }
            Arrival::Note(bytes) => {
                match Note::open(&bytes, &shared.options.host, shared.options.directory.hosts()) {
                    Ok(note) => {
                        send::heard(shared, &note.from, note.receipts);
                        let answers = note.questions.iter().map(|asked| answer(shared, &note.from, asked));
                        let answers: Vec<Receipt> = answers.collect();
                        worked.receipts.entry(note.from).or_default().extend(answers);
                    }
                    Err(error) => tracing::warn!(%error, "a note is not heard"),
                }
            }
        }
    }
    worked
}

/// Stores one message; answers what its sender is told.
fn store(shared: &Shared, mut parcel: Parcel, worked: &mut Worked) -> Option<(HostName, Receipt)> {
    let options = &shared.options;
    let sealed = match Sealed::decode_unchecked(std::mem::take(&mut parcel.bytes), &options.limits) {
        Ok(sealed) => sealed,
        Err(error) => {
            // It carries no id that could be believed, so nobody can be answered.
            tracing::warn!(from = %parcel.from, msg_id = parcel.msg_id, %error, "what arrived is not a message");
            return None;
        }
    };
    let (id, from) = (sealed.envelope.id, sealed.envelope.from.host.clone());
    let word = match judge(&sealed, &options.directory, &options.host, generation_of(&parcel.msg_id)) {
        Verdict::Take(marks) => {
            shared.came_from(id, &from);
            let handled = if parcel.handled { Marks::MAY_HAVE_BEEN_HANDLED } else { Marks::NONE };
            take(shared, &sealed, marks.and(handled), parcel.after)
        }
        Verdict::Forward(host, generation) => {
            // The copy here is not kept: the sender has its own, and hears of the new home before long.
            worked.forward.push(Parcel {
                from: options.host.clone(),
                to: host.clone(),
                msg_id: format!("{id}:{host}:{generation}:forwarded-by-{}", options.host),
                bytes: sealed.bytes,
                ..parcel.clone()
            });
            Word::Busy { retry_ms: MOVED_RETRY_MS }
        }
        Verdict::Busy(retry_ms) => Word::Busy { retry_ms },
        Verdict::Refuse(code, text) => {
            tracing::warn!(message = %id, from = %parcel.from, code, text, "mail refused");
            Word::Refused { code: code.to_owned(), text }
        }
    };
    Some((parcel.from, Receipt { id, word }))
}

fn take(shared: &Shared, sealed: &Sealed, marks: Marks, after: Option<u64>) -> Word {
    let options = &shared.options;
    let envelope = &sealed.envelope;
    let key = options.directory.hosts().get(&envelope.from.host).map(|host| host.key);
    if let Some(key) = key
        && let Err(error) = shared.keys.keep(&envelope.from.host, &key)
    {
        tracing::warn!(%error, "cannot keep a host's key");
        return Word::Busy { retry_ms: DISK_RETRY_MS };
    }
    let order_at = match options.post.clock().observe(envelope.created_at, options.limits.max_skew()) {
        Observed::Adopted => envelope.created_at,
        Observed::Skewed(by) => {
            tracing::warn!(from = %envelope.from.host, ahead_ms = by.as_millis(), "the sender's clock is ahead");
            options.clock.now()
        }
    };
    let mailbox = match options.mailboxes.get(&envelope.recipient()) {
        Ok(mailbox) => mailbox,
        Err(error) => return word_of(&error, sealed),
    };
    match mailbox.deliver_at(sealed, order_at, marks, After::Open(after)) {
        Ok(Delivered::Stored) => {
            let detail = format!("from {}", envelope.from.host);
            options.trace.note(
                sealed,
                TraceNote { at: options.clock.now(), stage: Stage::Stored, detail, host: None },
            );
            options.port.event(What::MessageStored {
                team: envelope.team.clone(),
                id: envelope.id,
                kind: envelope.kind,
                from: envelope.from.agent.to_string(),
                to: envelope.to.agent.clone(),
                host: options.host.clone(),
            });
            Word::Stored
        }
        Ok(Delivered::Duplicate(stage)) => word(stage),
        Err(error) => word_of(&error, sealed),
    }
}

/// A state as a word to the sender.
pub(super) fn word(stage: Stage) -> Word {
    match stage {
        Stage::Accepted | Stage::Stored | Stage::Processing | Stage::Released => Word::Stored,
        Stage::Done | Stage::Dropped => Word::Done,
        Stage::Quarantined => Word::Quarantined,
    }
}

fn word_of(error: &MailboxError, sealed: &Sealed) -> Word {
    let refused = |code: &str| Word::Refused { code: code.to_owned(), text: error.to_string() };
    match error {
        MailboxError::WrongBirth { birth, .. } if *birth > sealed.envelope.to.birth => refused("wrong_birth"),
        MailboxError::WrongRecipient { .. } => refused("wrong_recipient"),
        MailboxError::Full { .. }
        | MailboxError::TooMany { .. }
        | MailboxError::NotFound { .. }
        | MailboxError::WrongBirth { .. } => Word::Busy { retry_ms: FULL_RETRY_MS },
        MailboxError::LeaseLost { .. }
        | MailboxError::NotQuarantined { .. }
        | MailboxError::Unreadable { .. }
        | MailboxError::Broken { .. }
        | MailboxError::Durable(_) => {
            tracing::warn!(message = %sealed.envelope.id, %error, "cannot store a message");
            Word::Busy { retry_ms: DISK_RETRY_MS }
        }
    }
}

/// The grant in a message id of the bus, `<id>:<to>:<generation>:<try>`.
fn generation_of(msg_id: &str) -> Option<Generation> {
    msg_id.split(':').nth(2)?.parse().ok()
}

fn answer(shared: &Shared, from: &HostName, asked: &Question) -> Receipt {
    let mailbox = shared.options.mailboxes.get(&asked.to);
    let stage = mailbox.and_then(|mailbox| {
        if mailbox.birth() == asked.birth {
            mailbox.open_after(asked.lane, asked.seq, asked.after)?;
            mailbox.stage_of(asked.id, asked.lane, asked.seq)
        } else {
            Ok(None)
        }
    });
    let word = match stage {
        Ok(Some(stage)) => {
            shared.came_from(asked.id, from);
            word(stage)
        }
        Ok(None) | Err(MailboxError::NotFound { .. }) => Word::Unknown,
        Err(error) => {
            tracing::warn!(message = %asked.id, %error, "cannot look for a message");
            Word::Stored
        }
    };
    Receipt { id: asked.id, word }
}
