//! Signed questions of a host, each answered or known not to be.

use std::sync::Arc;
use std::time::Duration;

use async_nats::client::RequestErrorKind;
use posthouse_shared::clock::Clock;
use posthouse_shared::codes::Code;
use posthouse_shared::identity::HostKey;
use posthouse_shared::name::HostName;
use posthouse_shared::refusal::Refusal;
use serde::Serialize;
use serde::de::DeserializeOwned;
use uuid::Uuid;

use super::wire::{Answered, Signed};

/// Asks under this host's name. Clones share the connection.
#[derive(Clone)]
pub struct Asker {
    client: async_nats::Client,
    host: HostName,
    key: HostKey,
    clock: Arc<dyn Clock>,
}

/// Why there is no answer.
#[derive(Debug, thiserror::Error)]
pub enum NoAnswer {
    /// Nobody heard it: nothing was done.
    #[error("no coordinator listens on the bus")]
    NotHeard,
    /// It may have been heard, and done.
    #[error("the coordinator did not answer")]
    Unknown,
    /// It was refused.
    #[error("refused")]
    Refused(Box<Refusal>),
}

impl NoAnswer {
    /// As users see it.
    pub fn refusal(self) -> Refusal {
        let unreachable = |text: &str, effect: &str| {
            Refusal::new(Code::CoordinatorUnreachable, text).effect(effect).next("posthouse hosts ls")
        };
        match self {
            Self::NotHeard => unreachable("no coordinator listens on the bus", "nothing was done"),
            Self::Unknown => unreachable("the coordinator did not answer", "it may have been done"),
            Self::Refused(refusal) => *refusal,
        }
    }
}

impl Asker {
    /// Asks as `host`, signed with `key`.
    pub fn new(client: async_nats::Client, host: HostName, key: HostKey, clock: Arc<dyn Clock>) -> Self {
        Self { client, host, key, clock }
    }

    /// Asks once, and waits for the answer at most `wait`.
    pub async fn ask<T: DeserializeOwned>(
        &self,
        subject: &str,
        body: &impl Serialize,
        wait: Duration,
    ) -> Result<T, NoAnswer> {
        let broken = |error: &dyn std::error::Error| {
            NoAnswer::Refused(Box::new(
                Refusal::new(Code::Internal, "talk to the coordinator").cause(error.to_string()),
            ))
        };
        let body = serde_json::to_string(body).map_err(|e| broken(&e))?;
        let mut signed = Signed {
            host: self.host.clone(),
            key: self.key.public().to_string(),
            at: self.clock.now(),
            nonce: Uuid::new_v4().simple().to_string(),
            body,
            sig: String::new(),
        };
        signed.sig = self.key.sign(&signed.covered(subject));
        let payload = serde_json::to_vec(&signed).map_err(|e| broken(&e))?;
        let request = async_nats::Request::new().payload(payload.into()).timeout(Some(wait));
        let answer =
            self.client.send_request(subject.to_owned(), request).await.map_err(|error| {
                match error.kind() {
                    RequestErrorKind::NoResponders => NoAnswer::NotHeard,
                    RequestErrorKind::TimedOut | RequestErrorKind::Other => NoAnswer::Unknown,
                    RequestErrorKind::InvalidSubject | RequestErrorKind::MaxPayloadExceeded => broken(&error),
                }
            })?;
        match serde_json::from_slice::<Answered>(&answer.payload).map_err(|e| broken(&e))? {
            Answered::Reply(value) => serde_json::from_value(value).map_err(|e| broken(&e)),
            Answered::Refused(refusal) => Err(NoAnswer::Refused(Box::new(refusal))),
        }
    }
}
