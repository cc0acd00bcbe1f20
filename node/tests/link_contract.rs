//! What the relay needs of a link, asked of both implementations: the one in this process, and NATS JetStream. A
//! link may drop, repeat, delay and reorder; what it may not do stands here.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    clippy::disallowed_methods,
    reason = "tests"
)]

mod relay_support;
mod teammate_support;

use std::sync::Arc;
use std::time::Duration;

use posthouse_node::link::in_process::{Fate, Hub};
use posthouse_node::link::jetstream::NatsLink;
use posthouse_node::link::{AckToken, Arrival, Inbound, Link, LinkError, Parcel};
use relay_support::*;
use teammate_support::generation;

const BETA: u64 = 12;
/// Longer than an unacknowledged delivery waits on NATS.
const SOON: Duration = Duration::from_secs(45);

fn parcel(n: u64) -> Parcel {
    Parcel {
        from: host("alpha"),
        to: host("beta"),
        control: n == 3,
        msg_id: format!("m{n}:beta:1.5:1"),
        after: (n > 1).then_some(n - 1),
        handled: n == 2,
        bytes: format!("{{\"n\":{n}}}").into_bytes(),
    }
}

/// The bus forgets everything.
enum Forget {
    Hub(Hub),
    Nats(Box<NatsLink>),
}

impl Forget {
    async fn all(&self) {
        match self {
            Self::Hub(hub) => hub.wipe(),
            Self::Nats(link) => drop(link.context().delete_stream("PH_RELAY").await.unwrap()),
        }
    }

    async fn prepare(&self) {
        if let Self::Nats(link) = self {
            prepare(link).await;
        }
    }
}

async fn open(link: &Arc<dyn Link>) -> Box<dyn Inbound> {
    link.open(&host("beta"), generation(BETA)).await.unwrap()
}

/// Everything up to `n` parcels, in the order of arrival.
async fn take(inbound: &mut dyn Inbound, n: usize) -> Vec<(Parcel, AckToken)> {
    let mut parcels = Vec::new();
    let all = async {
        while parcels.len() < n {
            for arrival in inbound.next(100).await.unwrap() {
                match arrival {
                    Arrival::Parcel(parcel, token) => parcels.push((parcel, token)),
                    Arrival::Note(_) => {}
                }
            }
        }
    };
    tokio::time::timeout(SOON, all).await.expect("parcels");
    parcels
}

async fn publish(link: &Arc<dyn Link>, parcels: Vec<Parcel>) {
    for answer in link.publish(parcels).await {
        answer.unwrap();
    }
}

fn plain(taken: &[(Parcel, AckToken)]) -> Vec<Parcel> {
    taken.iter().map(|(parcel, _)| parcel.clone()).collect()
}

async fn suite(link: Arc<dyn Link>, bus: Forget) {
    // Whole, with what is said beside it, in the order of publishing within a subject; repeated ids once.
    publish(&link, vec![parcel(1), parcel(2), parcel(1), parcel(4)]).await;
    publish(&link, vec![parcel(3), parcel(4)]).await;
    let mut inbound = open(&link).await;
    let taken = take(inbound.as_mut(), 4).await;
    let (control, mail): (Vec<Parcel>, Vec<Parcel>) = plain(&taken).into_iter().partition(|p| p.control);
    assert_eq!(control, [parcel(3)]);
    assert_eq!(mail, [parcel(1), parcel(2), parcel(4)]);

    // Another try is another id, and arrives beside the first.
    let again = Parcel { msg_id: "m1:beta:1.5:2".to_owned(), ..parcel(1) };
    publish(&link, vec![again.clone()]).await;
    let second = take(inbound.as_mut(), 1).await;
    assert_eq!(plain(&second), [again]);

    // What was acknowledged does not come again, what was not does, to whoever opens next.
    let tokens: Vec<AckToken> = taken.iter().chain(&second).map(|(_, token)| token.clone()).collect();
    inbound.ack(&tokens[1..]).await;
    let mut next = open(&link).await;
    drop(inbound);
    let left = take(next.as_mut(), 1).await;
    assert_eq!(left[0].0, taken[0].0);
    next.ack(&[left[0].1.clone()]).await;

    // Notes arrive.
    link.tell(&host("beta"), &host("alpha"), b"note".to_vec()).await.unwrap();
    let heard = tokio::time::timeout(SOON, next.next(10)).await.unwrap().unwrap();
    assert_eq!(heard, [Arrival::Note(b"note".to_vec())]);

    // A bus that forgets everything ends the inbound side; opened again it goes on.
    publish(&link, vec![parcel(7)]).await;
    take(next.as_mut(), 1).await;
    bus.all().await;
    let ended = async {
        loop {
            if let Err(error) = next.next(10).await {
                return error;
            }
        }
    };
    let error = tokio::time::timeout(SOON, ended).await.expect("the inbound side ends");
    assert!(matches!(error, LinkError::Ended(_)), "{error}");
    bus.prepare().await;
    let mut next = open(&link).await;
    publish(&link, vec![parcel(8), parcel(1)]).await;
    assert_eq!(plain(&take(next.as_mut(), 2).await), [parcel(8), parcel(1)]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_link_in_process_keeps_the_contract() {
    let hub = Hub::default();
    suite(Arc::new(hub.clone()), Forget::Hub(hub)).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_link_over_nats_keeps_the_contract() {
    let Some(nats) = Nats::start() else { return };
    let link = nats.link("beta").await;
    prepare(&link).await;
    suite(Arc::new(link.clone()), Forget::Nats(Box::new(link))).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_link_in_process_does_on_demand_what_goes_wrong() {
    let hub = Hub::default();
    let link: Arc<dyn Link> = Arc::new(hub.clone());
    let fates = [Fate::Twice, Fate::Lost, Fate::First, Fate::Unknown, Fate::Refused];
    let mut n = 0;
    hub.fates(move |_| {
        n += 1;
        fates[n - 1]
    });
    let answers = link.publish((1..=5).map(parcel).collect()).await;
    assert_eq!(answers[..3], [Ok(()), Ok(()), Ok(())]);
    assert_eq!(
        (&answers[3], matches!(answers[4], Err(LinkError::Refused(_)))),
        (&Err(LinkError::Unknown), true)
    );
    let mut inbound = open(&link).await;
    let taken = plain(&take(inbound.as_mut(), 4).await);
    assert_eq!(taken, [parcel(3), parcel(1), parcel(1), parcel(4)]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_consumer_that_was_deleted_ends_the_inbound_side_and_one_made_anew_is_bound_to() {
    let Some(nats) = Nats::start() else { return };
    let link = nats.link("beta").await;
    prepare(&link).await;
    let shared: Arc<dyn Link> = Arc::new(link.clone());
    let mut inbound = open(&shared).await;
    let stream = link.context().get_stream("PH_RELAY").await.unwrap();
    stream.delete_consumer("relay-beta-1-12").await.unwrap();
    let error = tokio::time::timeout(SOON, inbound.next(10)).await.expect("it ends").unwrap_err();
    assert!(matches!(error, LinkError::Ended(_)), "{error}");
    assert!(link.open(&host("beta"), generation(BETA)).await.is_err());
    link.prepare_consumer(&host("beta"), generation(BETA)).await.unwrap();
    let mut inbound = open(&shared).await;
    publish(&shared, vec![parcel(1)]).await;
    assert_eq!(plain(&take(inbound.as_mut(), 1).await), [parcel(1)]);
    // A newer grant ends the consumer of the older one, and takes over what was not acknowledged.
    link.prepare_consumer(&host("beta"), generation(20)).await.unwrap();
    let mut newer = link.open(&host("beta"), generation(20)).await.unwrap();
    assert_eq!(plain(&take(newer.as_mut(), 1).await), [parcel(1)]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn publishing_while_the_server_is_away_is_unknown_within_seconds_and_goes_on_after_it_is_back() {
    let Some(mut nats) = Nats::start() else { return };
    let link = nats.link("alpha").await;
    prepare(&link).await;
    let mut state = link.state();
    nats.kill();
    tokio::time::timeout(SOON, state.wait_for(|state| !state.up)).await.unwrap().unwrap();
    let answers = tokio::time::timeout(Duration::from_secs(10), link.publish(vec![parcel(1)])).await;
    assert!(answers.expect("bounded in time")[0].is_err());
    let connects = state.borrow().connects;
    nats.again();
    let back = state.wait_for(|state| state.up && state.connects == connects + 1);
    tokio::time::timeout(SOON, back).await.unwrap().unwrap();
    let shared: Arc<dyn Link> = Arc::new(link);
    // JetStream may need a moment after its start.
    let taken = async { while shared.publish(vec![parcel(1)]).await[0].is_err() {} };
    tokio::time::timeout(SOON, taken).await.unwrap();
    let mut inbound = open(&shared).await;
    assert_eq!(plain(&take(inbound.as_mut(), 1).await), [parcel(1)]);
}
