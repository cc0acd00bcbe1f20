//! The relay's stream and the consumers of its hosts. The coordinator makes them, and nobody else.

use std::time::Duration;

use async_nats::jetstream::consumer::{AckPolicy, pull};
use async_nats::jetstream::stream::{Config, DiscardPolicy, RetentionPolicy, StorageType, Stream};
use futures_util::TryStreamExt;
use posthouse_shared::codes::Code;
use posthouse_shared::generation::Generation;
use posthouse_shared::name::HostName;
use posthouse_shared::refusal::Refusal;
use posthouse_shared::wire::subjects::{RELAY_STREAM, RELAY_STREAM_SUBJECTS, relay_consumer, relay_filters};

/// Messages of one pair of hosts that may wait in the stream; the rest waits on the sender's disk.
const PER_SUBJECT: i64 = 10_000;
/// One consumer a host; above the limit of hosts.
const CONSUMERS: i32 = 1_100;
/// Repetitions are dropped by the bus for this long; the receivers drop them for ever.
const DUPLICATES: Duration = Duration::from_secs(120);
/// A host that took messages acknowledges them within this.
const ACK_WAIT: Duration = Duration::from_secs(30);

fn unfit(what: &str, error: &(dyn std::error::Error + 'static)) -> Refusal {
    Refusal::new(Code::BusUnfit, what).because(error).retry_after_ms(2_000)
}

/// The relay's stream, as it must be.
pub async fn stream(context: &async_nats::jetstream::Context) -> Result<Stream, Refusal> {
    let config = Config {
        name: RELAY_STREAM.to_owned(),
        subjects: RELAY_STREAM_SUBJECTS.map(str::to_owned).to_vec(),
        retention: RetentionPolicy::WorkQueue,
        storage: StorageType::File,
        discard: DiscardPolicy::New,
        discard_new_per_subject: true,
        max_messages_per_subject: PER_SUBJECT,
        max_consumers: CONSUMERS,
        duplicate_window: DUPLICATES,
        ..Config::default()
    };
    context.create_or_update_stream(config).await.map_err(|e| unfit("make the relay's stream", &e))?;
    context.get_stream(RELAY_STREAM).await.map_err(|e| unfit("open the relay's stream", &e))
}

/// The one consumer of a host under its present grant; those of earlier grants are deleted.
pub async fn consumer(stream: &Stream, host: &HostName, generation: Generation) -> Result<(), Refusal> {
    let name = relay_consumer(host, generation);
    let failed = |e: &(dyn std::error::Error + 'static)| unfit("make the consumer of a host", e);
    let names: Vec<String> =
        stream.consumer_names().try_collect().await.map_err(|e| unfit("list consumers", &e))?;
    let filters = relay_filters(host);
    for other in names.iter().filter(|other| **other != name) {
        // Filters of a work queue may not overlap, so an earlier grant's consumer must go first.
        let info = stream.consumer_info(other).await.map_err(|e| failed(&e))?;
        if info.config.filter_subjects.iter().any(|filter| filters.contains(filter)) {
            stream.delete_consumer(other).await.map_err(|e| failed(&e))?;
        }
    }
    let config = pull::Config {
        durable_name: Some(name),
        ack_policy: AckPolicy::Explicit,
        ack_wait: ACK_WAIT,
        max_deliver: -1,
        max_ack_pending: -1,
        filter_subjects: filters.to_vec(),
        ..pull::Config::default()
    };
    stream.create_consumer(config).await.map_err(|e| failed(&e))?;
    Ok(())
}
