//! The sending side. Order of steps: record synced in the outbox -> published -> `stored` heard -> asked now and
//! then -> `done` heard -> record removed. Each may be repeated.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use posthouse_shared::message::{Kind, Sealed};
use posthouse_shared::name::{HostName, MessageId};
use posthouse_shared::supervise::Closing;
use posthouse_shared::wire::receipts::{Question, Receipt, Word};
use posthouse_shared::wire::replies::Stage;

use super::Shared;
use super::judge::FORGED;
use crate::inspect::RECEIPT;
use crate::link::Parcel;
use crate::mailbox::Marks;
use crate::outbox::{Act, Due, Item, OutboxError};
use crate::post::{Draft, DraftId};
use crate::trace_index::TraceNote;

const BATCH: usize = 256;
/// Between two looks where nothing is due.
const IDLE: Duration = Duration::from_secs(60);
/// After a failure to tell a sender.
const NOTICE_RETRY: Duration = Duration::from_secs(1);
/// After a refusal that a person should look at.
const FORGED_RETRY: Duration = Duration::from_secs(60);

pub(super) async fn run(shared: Arc<Shared>, mut closing: Closing) {
    let mut state = shared.options.link.link.state();
    let mut changes = shared.options.outbox.changes();
    let mut connects = state.borrow().connects;
    while !closing.begun() {
        changes.mark_unchanged();
        let now = *state.borrow_and_update();
        if now.up && now.connects != connects {
            connects = now.connects;
            shared.options.outbox.reconnected();
        }
        let due = if now.up { shared.options.outbox.due(BATCH) } else { Vec::new() };
        if !due.is_empty() {
            tokio::select! {
                () = closing.wait() => return,
                () = send(&shared, due) => continue,
            }
        }
        let pause = shared.options.outbox.next_in().filter(|_| now.up).unwrap_or(IDLE);
        tokio::select! {
            () = closing.wait() => return,
            _ = state.changed() => {}
            _ = changes.changed() => {}
            () = tokio::time::sleep(pause) => {}
        }
    }
}

/// What is read from the outbox for what is due.
#[derive(Default)]
struct Read {
    parcels: Vec<(Due, Parcel)>,
    questions: BTreeMap<HostName, Vec<Question>>,
}

async fn send(shared: &Arc<Shared>, due: Vec<Due>) {
    let reading = Arc::clone(shared);
    let Ok(read) = tokio::task::spawn_blocking(move || read(&reading, due)).await else { return };
    let (due, parcels): (Vec<Due>, Vec<Parcel>) = read.parcels.into_iter().unzip();
    if !parcels.is_empty() {
        let answers = shared.options.link.link.publish(parcels).await;
        for (due, answer) in due.iter().zip(answers) {
            if let Err(error) = &answer {
                tracing::debug!(message = %due.item.id, to = %due.item.host, %error, "not published yet");
            }
            shared.options.outbox.published(due.item.id, answer.is_ok());
        }
    }
    for (host, questions) in read.questions {
        shared.tell(&host, Vec::new(), questions).await;
    }
}

fn read(shared: &Shared, due: Vec<Due>) -> Read {
    let mut read = Read::default();
    for due in due {
        if let Err(error) = read_one(shared, due, &mut read) {
            tracing::warn!(%error, "cannot read the outbox; it is tried again");
        }
    }
    read
}

fn read_one(shared: &Shared, due: Due, read: &mut Read) -> Result<(), OutboxError> {
    let options = &shared.options;
    let Some(sealed) = options.outbox.read(&due.item)? else { return Ok(()) };
    let envelope = &sealed.envelope;
    let (to, birth) = (envelope.recipient(), envelope.to.birth);
    if options.directory.is_gone(&to, birth) {
        return undeliverable(shared, &due.item, &sealed, &format!("{to} is gone"));
    }
    // A directory that is behind says nothing yet.
    let Some(home) = options.directory.get(&to).filter(|home| home.birth == birth) else { return Ok(()) };
    if home.host == options.host {
        // It lives here now.
        let marks = if due.item.handled { Marks::MAY_HAVE_BEEN_HANDLED } else { Marks::NONE };
        match options.post.deliver_marked(&sealed, marks) {
            Ok(_) => options.outbox.remove(envelope.id).map(|_| ())?,
            Err(refusal) => tracing::warn!(message = %envelope.id, %refusal, "cannot deliver what came home"),
        }
        return Ok(());
    }
    if home.host != due.item.host {
        return options.outbox.readdress(&due.item, &home.host);
    }
    match due.what {
        Act::Publish => {
            let (host, control) = (&due.item.host, envelope.lane.is_some_and(|lane| lane.control));
            let parcel = Parcel {
                from: options.host.clone(),
                to: host.clone(),
                control,
                msg_id: format!("{}:{host}:{}:{}", envelope.id, home.generation, due.attempt),
                after: due.after.filter(|_| !control),
                handled: due.item.handled,
                bytes: sealed.bytes,
            };
            read.parcels.push((due, parcel));
        }
        Act::Ask => {
            let question = Question {
                id: envelope.id,
                to,
                birth,
                lane: due.item.lane,
                seq: due.item.seq,
                after: due.after,
            };
            read.questions.entry(due.item.host.clone()).or_default().push(question);
        }
    }
    Ok(())
}

/// Ends a message that will never be in its recipient's mailbox. Order of steps: its sender is told, durably, in a
/// message whose id is derived from its own -> the record is removed. Where the sender cannot be told now, both
/// are tried again.
fn undeliverable(shared: &Shared, item: &Item, sealed: &Sealed, why: &str) -> Result<(), OutboxError> {
    let options = &shared.options;
    let (envelope, id) = (&sealed.envelope, item.id);
    if envelope.kind != Kind::Notice {
        let text = format!("your message {id} to {} was not delivered: {why}", envelope.to.agent);
        let notice = Draft {
            from: envelope.sender(),
            to: envelope.from.agent.clone(),
            kind: Kind::Notice,
            body: text.clone(),
            summary: Some(text),
            in_reply_to: Some(id),
            control: false,
            id: DraftId::Chosen(MessageId::derived(&["undeliverable", &id.to_string()])),
            trace: envelope.trace.clone(),
        };
        match options.post.send(notice) {
            Ok(posted) => {
                if let Some(what) = posted.event(&options.host) {
                    options.port.event(what);
                }
            }
            Err(refusal) if refusal.retry_after_ms.is_some() => {
                options.outbox.again(id, NOTICE_RETRY);
                return Ok(());
            }
            // The sender is gone too, or the notice was sent with other words before.
            Err(refusal) => {
                tracing::warn!(message = %id, %refusal, "nobody is told of what was not delivered")
            }
        }
    }
    tracing::warn!(message = %id, to = %envelope.to.agent, why, "a message is not delivered");
    let detail = format!("not delivered: {why}");
    options.trace.step(id, TraceNote { at: options.clock.now(), stage: Stage::Dropped, detail, host: None });
    options.files.point("relay.undeliverable.told");
    options.outbox.end(id).map(|_| ())
}

/// What another host says about mail that it got from here. Words about mail that does not go there (any more)
/// do not count.
pub(super) fn heard(shared: &Shared, from: &HostName, receipts: Vec<Receipt>) {
    let options = &shared.options;
    for Receipt { id, word } in receipts {
        let Some(item) = options.outbox.get(id).filter(|item| item.host == *from) else { continue };
        let note = |stage, detail: String| {
            options
                .trace
                .step(id, TraceNote { at: options.clock.now(), stage, detail, host: Some(from.clone()) });
        };
        let ended = match word {
            Word::Stored => {
                if options.outbox.stored(id) {
                    note(Stage::Stored, RECEIPT.to_owned());
                }
                Ok(())
            }
            Word::Quarantined => {
                if options.outbox.stored(id) {
                    note(Stage::Quarantined, RECEIPT.to_owned());
                }
                Ok(())
            }
            Word::Busy { retry_ms } => {
                options.outbox.busy(id, Duration::from_millis(retry_ms));
                Ok(())
            }
            Word::Unknown => {
                options.outbox.again(id, Duration::ZERO);
                Ok(())
            }
            Word::Refused { code, text } if code == FORGED => {
                tracing::error!(message = %id, host = %from, text, "the other host does not believe us");
                options.outbox.again(id, FORGED_RETRY);
                Ok(())
            }
            Word::Refused { code, text } => match options.outbox.read(&item) {
                Ok(Some(sealed)) => {
                    undeliverable(shared, &item, &sealed, &format!("{from} refuses it: {text} ({code})"))
                }
                Ok(None) => Ok(()),
                Err(error) => Err(error),
            },
            Word::Done => {
                note(Stage::Done, RECEIPT.to_owned());
                options.outbox.remove(item.id).map(|_| ())
            }
        };
        if let Err(error) = ended {
            tracing::warn!(message = %id, %error, "cannot end an outbox record; it is sent again");
        }
    }
}
