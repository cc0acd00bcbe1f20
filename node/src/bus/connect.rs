//! The connection to NATS. A server that cannot do what is needed is refused here, with what it lacks.

use std::time::Duration;

use async_nats::jetstream;
use posthouse_shared::codes::Code;
use posthouse_shared::name::HostName;
use posthouse_shared::refusal::Refusal;

/// The oldest server that does what is needed.
const VERSION_MIN: (u64, u64) = (2, 14);
/// How long the first connection may take.
const CONNECT: Duration = Duration::from_secs(5);
/// First pause before a lost connection is tried again; doubles.
const AGAIN_MIN_MS: u64 = 50;
/// Longest such pause.
const AGAIN_MAX_MS: u64 = 4_000;

/// Connects, and checks the server's version. Afterwards a lost connection is made again for ever.
pub async fn connect(url: &str, name: &HostName) -> Result<async_nats::Client, Refusal> {
    let options = async_nats::ConnectOptions::new()
        .name(format!("posthouse {name}"))
        .connection_timeout(CONNECT)
        .request_timeout(Some(CONNECT))
        .reconnect_delay_callback(|attempt| {
            let doubled = AGAIN_MIN_MS.saturating_mul(1 << attempt.min(10)).min(AGAIN_MAX_MS);
            // Without it all hosts of a cluster come back in the same moment.
            let jitter = uuid::Uuid::new_v4().as_u128() % u128::from(doubled / 2 + 1);
            Duration::from_millis(doubled / 2 + u64::try_from(jitter).unwrap_or(0))
        });
    let client = options.connect(url).await.map_err(|error| {
        Refusal::new(Code::BusUnreachable, format!("cannot reach NATS at {url}"))
            .because(&error)
            .effect("nothing was started")
            .next("nats-server --jetstream")
    })?;
    check_version(&client.server_info().version)?;
    Ok(client)
}

fn check_version(version: &str) -> Result<(), Refusal> {
    let mut numbers = version.split(['.', '-']).map_while(|part| part.parse::<u64>().ok());
    let found = (numbers.next().unwrap_or(0), numbers.next().unwrap_or(0));
    if found >= VERSION_MIN {
        return Ok(());
    }
    let (major, minor) = VERSION_MIN;
    Err(Refusal::new(
        Code::BusUnfit,
        format!("the NATS server is {version}; {major}.{minor} or newer is needed"),
    )
    .effect("nothing was started"))
}

/// JetStream of this connection, seen to answer.
pub async fn jetstream(client: &async_nats::Client) -> Result<jetstream::Context, Refusal> {
    let context = jetstream::new(client.clone());
    context.query_account().await.map_err(|error| {
        Refusal::new(Code::BusUnfit, "JetStream of the NATS server does not answer")
            .because(&error)
            .effect("nothing was started")
            .next("nats-server --jetstream")
    })?;
    Ok(context)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_old_server_is_refused_with_what_is_needed() {
        for good in ["2.14.0", "2.15.1", "3.0.0-beta.1"] {
            assert!(check_version(good).is_ok(), "{good}");
        }
        for bad in ["2.9.10", "2.13.99", "", "x"] {
            let refusal = check_version(bad).unwrap_err();
            assert!(refusal.code == Code::BusUnfit && refusal.message.contains("2.14"), "{bad}");
        }
    }
}
