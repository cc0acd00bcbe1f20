//! The connection to NATS. A server that cannot do what is needed is refused here, with what it lacks.

use std::time::Duration;

use async_nats::jetstream::ErrorCode;
use async_nats::jetstream::context::AccountErrorKind;
use posthouse_shared::codes::Code;
use posthouse_shared::name::HostName;
use posthouse_shared::refusal::Refusal;

use crate::link::Link as _;
use crate::link::jetstream::NatsLink;

/// The oldest server that does what is needed.
const VERSION_MIN: (u64, u64) = (2, 14);
/// How long the first connection may take.
const CONNECT: Duration = Duration::from_secs(5);

/// Connects, and checks the server's version. Afterwards a lost connection is made again for ever. Where `alone`, a
/// server that does not answer now is waited for in the background too: this host can go on without.
pub async fn connect(url: &str, name: &HostName, alone: bool) -> Result<NatsLink, Refusal> {
    let unreachable = || {
        Refusal::new(Code::BusUnreachable, format!("cannot reach NATS at {url}"))
            .effect("nothing was started")
            .next("nats-server --jetstream")
    };
    let link = NatsLink::connect(url, &format!("posthouse {name}")).await;
    let link = link.map_err(|error| unreachable().because(&error))?;
    let mut state = link.state();
    if tokio::time::timeout(CONNECT, state.wait_for(|state| state.up)).await.is_err() {
        if alone {
            return Ok(link);
        }
        return Err(unreachable().cause(format!("no answer within {} s", CONNECT.as_secs())));
    }
    check_version(&link.client().server_info().version)?;
    Ok(link)
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

/// Refuses a server whose JetStream does not answer.
pub async fn jetstream(link: &NatsLink) -> Result<(), Refusal> {
    let Err(error) = link.context().query_account().await else { return Ok(()) };
    let off = Refusal::new(Code::BusWithoutStreams, "JetStream is not switched on");
    let refusal = match error.kind() {
        AccountErrorKind::JetStreamUnavailable => off,
        AccountErrorKind::JetStream(error)
            if [ErrorCode::JETSTREAM_NOT_ENABLED, ErrorCode::JETSTREAM_NOT_ENABLED_FOR_ACCOUNT]
                .contains(&error.error_code()) =>
        {
            off
        }
        AccountErrorKind::JetStream(_) | AccountErrorKind::Other => {
            Refusal::new(Code::BusUnfit, "JetStream of the NATS server does not answer").because(&error)
        }
        // A server says nothing to who may not ask; its log, and ours, say so beside it.
        AccountErrorKind::TimedOut => {
            Refusal::new(Code::BusForbidden, "the NATS server does not answer questions about JetStream")
                .cause("the user of this connection may not ask it: $JS.API.> is needed")
        }
    };
    Err(refusal.effect("nothing was started").next("nats-server --jetstream"))
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
