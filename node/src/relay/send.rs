//! The sending side. Order of steps: record synced in the outbox -> published -> `stored` heard -> asked now and
//! then -> `done` heard -> record removed. Each may be repeated.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use posthouse_shared::name::HostName;
use posthouse_shared::supervise::Closing;
use posthouse_shared::wire::receipts::{Question, Receipt, Word};
use posthouse_shared::wire::replies::Stage;

use super::Shared;
use super::judge::FORGED;
use crate::inspect::RECEIPT;
use crate::link::Parcel;
use crate::outbox::{Act, Due};
use crate::trace_index::TraceNote;

const BATCH: usize = 256;
/// Between two looks where nothing is due.
const IDLE: Duration = Duration::from_secs(60);
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

fn read_one(shared: &Shared, due: Due, read: &mut Read) -> Result<(), crate::outbox::OutboxError> {
    let options = &shared.options;
    let Some(sealed) = options.outbox.read(&due.item)? else { return Ok(()) };
    let envelope = &sealed.envelope;
    let Some(residence) = options.directory.get(&envelope.recipient()) else { return Ok(()) };
    if residence.birth == envelope.to.birth && residence.host != due.item.host {
        if residence.host != options.host {
            return options.outbox.readdress(&due.item, &residence.host);
        }
        // It lives here now.
        match options.post.deliver(&sealed) {
            Ok(_) => options.outbox.remove(envelope.id).map(|_| ())?,
            Err(refusal) => tracing::warn!(message = %envelope.id, %refusal, "cannot deliver what came home"),
        }
        return Ok(());
    }
    match due.what {
        Act::Publish => {
            let host = &due.item.host;
            let generation =
                options.directory.hosts().get(host).map(|host| host.generation).unwrap_or_default();
            let control = envelope.lane.is_some_and(|lane| lane.control);
            let parcel = Parcel {
                from: options.host.clone(),
                to: host.clone(),
                control,
                msg_id: format!("{}:{host}:{generation}:{}", envelope.id, due.attempt),
                after: due.after.filter(|_| !control),
                bytes: sealed.bytes,
            };
            read.parcels.push((due, parcel));
        }
        Act::Ask => {
            let question = Question {
                id: envelope.id,
                to: envelope.recipient(),
                birth: envelope.to.birth,
                lane: due.item.lane,
                seq: due.item.seq,
                after: due.after,
            };
            read.questions.entry(due.item.host.clone()).or_default().push(question);
        }
    }
    Ok(())
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
                Ok(None)
            }
            Word::Quarantined => {
                if options.outbox.stored(id) {
                    note(Stage::Quarantined, RECEIPT.to_owned());
                }
                Ok(None)
            }
            Word::Busy { retry_ms } => {
                options.outbox.busy(id, Duration::from_millis(retry_ms));
                Ok(None)
            }
            Word::Unknown => {
                options.outbox.again(id, Duration::ZERO);
                Ok(None)
            }
            Word::Refused { code, text } if code == FORGED => {
                tracing::error!(message = %id, host = %from, text, "the other host does not believe us");
                options.outbox.again(id, FORGED_RETRY);
                Ok(None)
            }
            Word::Refused { code, text } => {
                tracing::warn!(message = %id, host = %from, code, text, "the other host refuses a message for good");
                note(Stage::Dropped, format!("refused: {text}"));
                options.outbox.remove(item.id)
            }
            Word::Done => {
                note(Stage::Done, RECEIPT.to_owned());
                options.outbox.remove(item.id)
            }
        };
        if let Err(error) = ended {
            tracing::warn!(message = %id, %error, "cannot remove an outbox record; it is sent again after a restart");
        }
    }
}
