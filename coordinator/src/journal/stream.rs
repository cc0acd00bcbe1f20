//! The stream `PH_JOURNAL`, as a numbered list of texts that is only added to at its known end. What the texts
//! mean is the caller's.
//!
//! An append names the sequence that it expects to be the last one, of the stream and of its subject (one a
//! term). It never names a message id: `Nats-Expected-Last-Msg-Id` with a wrong value freezes a replicated
//! stream of 2.15.1 for good, and a repeated `Nats-Msg-Id` would be answered with 10071 all the same.

use std::time::Duration;

use async_nats::jetstream::context::{Context, GetStreamErrorKind, PublishErrorKind};
use async_nats::jetstream::message::PublishMessage;
use async_nats::jetstream::stream::{
    Config, DiscardPolicy, RawMessageErrorKind, RetentionPolicy, StorageType,
};
use async_nats::jetstream::{ErrorCode, stream};
use bytes::Bytes;
use futures_util::stream::{StreamExt, TryStreamExt};
use posthouse_shared::wire::subjects;

/// Reads of one block under way at a time.
const READS: usize = 64;
/// A block of [`Stream::read_block`].
pub const BLOCK: u64 = 256;
/// An append without an answer for so long has an unknown outcome.
const PUBLISH_TIMEOUT: Duration = Duration::from_secs(2);

/// Why the stream gave no answer that can be used.
#[derive(Debug, thiserror::Error)]
pub enum StreamError {
    /// There is no such stream.
    #[error("find the stream of the journal")]
    Missing,
    /// The bus did not answer, or not now.
    #[error("reach the stream of the journal: {0}")]
    Unreachable(String),
}

/// What became of an append.
#[derive(Debug)]
pub enum Appended {
    /// It has this sequence.
    Landed(u64),
    /// Something else stands at the expected end, or the end is not where it was.
    Conflict,
    /// There is no stream any more.
    Gone,
    /// It may have landed, or may land yet.
    Unknown(String),
}

/// The stream.
#[derive(Debug, Clone)]
pub struct Stream {
    context: Context,
}

fn unreachable(error: impl std::fmt::Display) -> StreamError {
    StreamError::Unreachable(error.to_string())
}

impl Stream {
    /// Over a connection. Asks nothing yet.
    pub fn new(context: Context) -> Self {
        Self { context }
    }

    /// Makes it, where it is not there.
    pub async fn make(&self, replicas: usize) -> Result<(), StreamError> {
        let config = Config {
            name: subjects::JOURNAL_STREAM.to_owned(),
            subjects: vec![subjects::JOURNAL_STREAM_SUBJECTS.to_owned()],
            retention: RetentionPolicy::Limits,
            storage: StorageType::File,
            discard: DiscardPolicy::New,
            deny_delete: true,
            num_replicas: replicas,
            ..Config::default()
        };
        self.context.get_or_create_stream(config).await.map_err(unreachable)?;
        Ok(())
    }

    async fn stream(&self) -> Result<stream::Stream<()>, StreamError> {
        self.context.get_stream_no_info(subjects::JOURNAL_STREAM).await.map_err(unreachable)
    }

    /// First and last sequence; (1, 0) or alike where it is empty.
    pub async fn bounds(&self) -> Result<(u64, u64), StreamError> {
        match self.context.get_stream(subjects::JOURNAL_STREAM).await {
            Ok(stream) => {
                let state = &stream.cached_info().state;
                Ok((state.first_sequence.max(1), state.last_sequence))
            }
            Err(error) => Err(match error.kind() {
                GetStreamErrorKind::JetStream(inner) if inner.error_code() == ErrorCode::STREAM_NOT_FOUND => {
                    StreamError::Missing
                }
                _other => unreachable(error),
            }),
        }
    }

    /// One text; nothing where there is none of that sequence.
    pub async fn read(&self, sequence: u64) -> Result<Option<Bytes>, StreamError> {
        match self.stream().await?.get_raw_message(sequence).await {
            Ok(message) => Ok(Some(message.payload)),
            Err(error) => match error.kind() {
                RawMessageErrorKind::NoMessageFound => Ok(None),
                RawMessageErrorKind::JetStream(inner)
                    if inner.error_code() == ErrorCode::STREAM_NOT_FOUND =>
                {
                    Err(StreamError::Missing)
                }
                _other => Err(unreachable(error)),
            },
        }
    }

    /// The texts from `from` to `to`, in order.
    pub async fn read_block(&self, from: u64, to: u64) -> Result<Vec<(u64, Bytes)>, StreamError> {
        let reads = futures_util::stream::iter(from..=to)
            .map(|sequence| async move { Ok(self.read(sequence).await?.map(|text| (sequence, text))) });
        let read: Vec<Option<(u64, Bytes)>> = reads.buffered(READS).try_collect().await?;
        Ok(read.into_iter().flatten().collect())
    }

    /// The last sequence of one term's subject; 0 for none.
    pub async fn last_of_term(&self, term: u64) -> Result<u64, StreamError> {
        let subject = subjects::journal(term);
        let found = self.stream().await?.get_last_raw_message_by_subject(&subject).await;
        match found {
            Ok(message) => Ok(message.sequence),
            Err(error) => match error.kind() {
                stream::LastRawMessageErrorKind::NoMessageFound => Ok(0),
                _other => Err(unreachable(error)),
            },
        }
    }

    /// Appends at the end that is expected. `Landed` says that the server has it, not that its disk has.
    pub async fn append(&self, term: u64, text: Bytes, last: u64, last_of_term: u64) -> Appended {
        let message = PublishMessage::build()
            .payload(text)
            .expected_last_sequence(last)
            .expected_last_subject_sequence(last_of_term);
        let sent = async { self.context.send_publish(subjects::journal(term), message).await?.await };
        match tokio::time::timeout(PUBLISH_TIMEOUT, sent).await {
            Err(_elapsed) => Appended::Unknown("no answer in time".to_owned()),
            Ok(Ok(ack)) => Appended::Landed(ack.sequence),
            Ok(Err(error)) => match error.kind() {
                PublishErrorKind::WrongLastSequence => Appended::Conflict,
                // No responders: the stream is gone, or its leader is being elected.
                PublishErrorKind::StreamNotFound => match self.bounds().await {
                    Err(StreamError::Missing) => Appended::Gone,
                    _there => Appended::Unknown(error.to_string()),
                },
                PublishErrorKind::WrongLastMessageId
                | PublishErrorKind::TimedOut
                | PublishErrorKind::BrokenPipe
                | PublishErrorKind::MaxAckPending
                | PublishErrorKind::MaxPayloadExceeded
                | PublishErrorKind::Other => Appended::Unknown(error.to_string()),
            },
        }
    }
}
