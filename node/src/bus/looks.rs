//! Questions of the coordinator to this host: mail, logs, quarantine, ways. Each is answered; only who leads by
//! the present orders is heard.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use futures_util::StreamExt;
use posthouse_shared::clock::Clock;
use posthouse_shared::codes::Code;
use posthouse_shared::name::HostName;
use posthouse_shared::refusal::Refusal;
use posthouse_shared::supervise::{Closing, Supervisor};
use serde_json::Value;
use tokio::sync::{Semaphore, watch};

use super::guard::Guard;
use super::wire::{Answered, Signed};
use crate::inspect::Look;
use crate::node::NodeHandle;

/// Questions that are worked on at once; more wait in the subscription.
const AT_ONCE: usize = 8;

/// Answers questions.
pub struct Looks {
    /// The connection.
    pub client: async_nats::Client,
    /// Where they come in.
    pub subject: String,
    /// What is asked about.
    pub node: NodeHandle,
    /// Who leads; nobody is heard before that is known.
    pub leader: watch::Receiver<Option<HostName>>,
    /// Time.
    pub clock: Arc<dyn Clock>,
    /// How far off a question's time may be.
    pub skew: Duration,
    /// Joins what is worked on.
    pub supervisor: Supervisor,
}

impl Looks {
    /// Answers until closing begins.
    pub async fn answer_all(self, mut from: async_nats::Subscriber, mut closing: Closing) {
        let room = Arc::new(Semaphore::new(AT_ONCE));
        let guard = Arc::new(Mutex::new(Guard::new(self.skew)));
        loop {
            let message = tokio::select! {
                message = from.next() => message,
                () = closing.wait() => return,
            };
            let Some(message) = message else { return };
            let Ok(permit) = Arc::clone(&room).acquire_owned().await else { return };
            let checked = self.check(&guard, &message.payload);
            let (node, client) = (self.node.clone(), self.client.clone());
            self.supervisor.start("look", async move {
                let answer = match checked {
                    Ok(look) => tokio::task::spawn_blocking(move || node.inspect(look)).await,
                    Err(refusal) => Ok(Err(refusal)),
                };
                drop(permit);
                let answer: Result<Value, Refusal> = answer.unwrap_or_else(|error| {
                    Err(Refusal::new(Code::Internal, "work on files").because(&error))
                });
                let answered = match answer {
                    Ok(reply) => Answered::Reply(reply),
                    Err(refusal) => Answered::Refused(refusal),
                };
                let Some(to) = message.reply else { return };
                let bytes = serde_json::to_vec(&answered).unwrap_or_default();
                if let Err(error) = client.publish(to, bytes.into()).await {
                    tracing::warn!(%error, "answer the coordinator");
                }
            });
        }
    }

    fn check(&self, guard: &Mutex<Guard>, payload: &[u8]) -> Result<Look, Refusal> {
        let broken = |error: serde_json::Error| {
            Refusal::new(Code::BadRequest, "a question of the coordinator cannot be read").because(&error)
        };
        let signed: Signed = serde_json::from_slice(payload).map_err(broken)?;
        let leads = self.leader.borrow().as_ref() == Some(&signed.host);
        let key = self.node.directory().hosts().get(&signed.host).map(|host| host.key.to_string());
        let Some(key) = key.filter(|_| leads) else {
            let text = format!("host \"{}\" does not lead, as far as is known here", signed.host);
            return Err(Refusal::new(Code::Unauthorized, text).effect("nothing was done"));
        };
        let mut guard = guard.lock().unwrap_or_else(PoisonError::into_inner);
        guard.check(&signed, &self.subject, Some(&key), self.clock.now())?;
        serde_json::from_str(&signed.body).map_err(broken)
    }
}
