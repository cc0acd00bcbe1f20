//! Two hosts in one process: mail between them over the link in this process, and over a real NATS server.
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

use std::collections::HashSet;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use posthouse_node::blob::BlobStore;
use posthouse_node::directory::Residence;
use posthouse_node::link::Link;
use posthouse_node::link::in_process::{Fate, Hub};
use posthouse_node::mailbox::{Batch, Marks, Which};
use posthouse_node::post::Draft;
use posthouse_shared::codes::Code;
use posthouse_shared::message::Kind;
use posthouse_shared::wire::replies::SendState;
use relay_support::*;
use teammate_support::{draft, generation, id, name, team};

/// Mail there and back, a restart of both in between, and nothing left in the outboxes.
async fn there_and_back(alpha_link: Arc<dyn Link>, beta_link: Arc<dyn Link>) {
    let temp = tempfile::tempdir().unwrap();
    let alpha = start(temp.path(), "alpha", 1, Arc::clone(&alpha_link)).await;
    for body in numbered(100) {
        assert_eq!(alpha.send("lead", "scout", &body), SendState::Accepted);
    }
    // Beta was not there yet, and alpha starts anew.
    assert!(alpha.node.close(Duration::from_secs(5)).await);
    drop(alpha);
    let beta = start(temp.path(), "beta", 1, Arc::clone(&beta_link)).await;
    let alpha = start(temp.path(), "alpha", 2, alpha_link).await;
    beta.stored(100).await;
    assert!(beta.node.close(Duration::from_secs(5)).await);
    drop(beta);
    let beta = start(temp.path(), "beta", 2, beta_link).await;
    assert_eq!(beta.take("scout"), numbered(100));
    beta.send("scout", "lead", "answer");
    alpha.stored(1).await;
    assert_eq!(alpha.take("lead"), ["answer"]);
    alpha.drained().await;
    beta.drained().await;
    assert!(beta.take("scout").is_empty());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn mail_goes_there_and_back_over_restarts_of_both_in_process() {
    let hub = Arc::new(Hub::default());
    there_and_back(Arc::clone(&hub) as Arc<dyn Link>, hub).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn at05_parcels_lost_repeated_and_refused_are_one_message_each() {
    let temp = tempfile::tempdir().unwrap();
    let hub = Hub::default();
    let mut count = 0;
    hub.fates(move |_| {
        count += 1;
        [Fate::Twice, Fate::Lost, Fate::Unknown, Fate::Arrives, Fate::Refused][count % 5]
    });
    let link: Arc<dyn Link> = Arc::new(hub.clone());
    let alpha = start(temp.path(), "alpha", 1, Arc::clone(&link)).await;
    let beta = start(temp.path(), "beta", 1, link).await;
    numbered(50).iter().for_each(|body| assert_eq!(alpha.send("lead", "scout", body), SendState::Accepted));
    beta.stored(50).await;
    // All that is on its way is forgotten, and words are lost for a while.
    hub.lose_notes(true);
    let first: HashSet<String> = beta.take("scout").into_iter().collect();
    hub.wipe();
    hub.lose_notes(false);
    alpha.drained().await;
    assert_eq!(first, numbered(50).into_iter().collect());
    assert!(beta.take("scout").is_empty());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn mail_goes_there_and_back_over_restarts_of_both_over_nats() {
    let Some(nats) = Nats::start() else { return };
    let (alpha, beta) = (nats.link("alpha").await, nats.link("beta").await);
    prepare(&alpha).await;
    there_and_back(Arc::new(alpha), Arc::new(beta)).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_stream_that_is_deleted_in_mid_flight_loses_nothing() {
    let Some(nats) = Nats::start() else { return };
    let temp = tempfile::tempdir().unwrap();
    let link = nats.link("alpha").await;
    prepare(&link).await;
    let alpha = start(temp.path(), "alpha", 1, Arc::new(link.clone())).await;
    for body in numbered(20) {
        alpha.send("lead", "scout", &body);
    }
    // The bus has taken all, the other host has none of it.
    let waiting = async {
        loop {
            let stream = link.context().get_stream("PH_RELAY").await.unwrap();
            if stream.cached_info().state.messages == 20 {
                return;
            }
        }
    };
    tokio::time::timeout(Duration::from_secs(20), waiting).await.unwrap();
    link.context().delete_stream("PH_RELAY").await.unwrap();
    let beta = start(temp.path(), "beta", 1, Arc::new(nats.link("beta").await)).await;
    prepare(&link).await;
    beta.stored(20).await;
    let taken: HashSet<String> = beta.take("scout").into_iter().collect();
    assert_eq!(taken, numbered(20).into_iter().collect());
    alpha.drained().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn mail_for_who_is_gone_ends_with_one_notice_to_its_sender() {
    let temp = tempfile::tempdir().unwrap();
    let link: Arc<dyn Link> = Arc::new(Hub::default());
    let alpha = start(temp.path(), "alpha", 1, Arc::clone(&link)).await;
    let beta = start(temp.path(), "beta", 1, link).await;
    // Over there another one bears the name, which alpha has not heard yet.
    let lead = (name("lead"), home("alpha", 1));
    let members = [lead.clone(), (name("scout"), home("beta", 9))];
    beta.node.directory().set_team(team(), members.into());
    alpha.send("lead", "scout", "hello");
    alpha.drained().await;
    let told = alpha.take("lead");
    assert!(told.len() == 1 && told[0].contains("was not delivered: beta refuses it"), "{told:?}");
    // And where alpha knows it by itself.
    beta.node.close(Duration::from_secs(5)).await;
    alpha.send("lead", "scout", "again");
    assert_eq!(alpha.node.on_the_way_to(), [(id("scout"), 1)].into());
    alpha.node.directory().set_team(team(), [lead].into());
    alpha.node.directory().set_through(generation(20));
    alpha.drained().await;
    let told = alpha.take("lead");
    assert!(told.len() == 1 && told[0].contains("scout@main is gone"), "{told:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn mail_follows_its_recipient_to_a_new_home_marked_where_the_old_one_may_have_handled_it() {
    let temp = tempfile::tempdir().unwrap();
    let hub = Hub::default();
    let link: Arc<dyn Link> = Arc::new(hub.clone());
    let alpha = start(temp.path(), "alpha", 1, Arc::clone(&link)).await;
    let beta = start(temp.path(), "beta", 1, Arc::clone(&link)).await;
    let gamma = start(temp.path(), "gamma", 1, link).await;
    alpha.send("lead", "scout", "before");
    beta.stored(1).await;
    gamma.node.mailboxes().create(&id("scout"), generation(2)).unwrap();
    let moved = Residence { generation: generation(30), ..home("gamma", 2) };
    for host in [&gamma, &alpha, &beta] {
        host.node
            .directory()
            .set_team(team(), [(name("lead"), home("alpha", 1)), (name("scout"), moved.clone())].into());
    }
    alpha.send("lead", "scout", "after");
    gamma.stored(2).await;
    let mailbox = gamma.node.mailboxes().get(&id("scout")).unwrap();
    let peeked = mailbox.peek(10).unwrap();
    let marked: Vec<bool> =
        peeked.iter().map(|one| one.marks.contains(Marks::MAY_HAVE_BEEN_HANDLED)).collect();
    assert_eq!(marked, [true, false]);
    assert_eq!(gamma.take("scout"), ["before", "after"]);
    alpha.drained().await;
}

fn share(temp: &Path) -> BlobStore {
    let dir = temp.join("share");
    std::fs::create_dir_all(&dir).unwrap();
    BlobStore::open(&format!("file://{}", dir.display()), &[]).unwrap()
}

/// Larger than an envelope, different at every place, and not all of one byte a character.
fn long_body(lines: usize) -> String {
    (0..lines).map(|n| format!("line {n} of a long body, with \"quotes\" and ümlauts\n")).collect()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn at06_a_body_larger_than_an_envelope_arrives_whole_and_is_there_before_stored_is_said() {
    let temp = tempfile::tempdir().unwrap();
    let hub = Hub::default();
    let mut count = 0;
    hub.fates(move |_| {
        count += 1;
        [Fate::Twice, Fate::Lost, Fate::Arrives][count % 3]
    });
    let link: Arc<dyn Link> = Arc::new(hub);
    let store = share(temp.path());
    let alpha = start_with(temp.path(), "alpha", 1, Arc::clone(&link), Some(store.clone())).await;
    let beta = start_with(temp.path(), "beta", 1, link, Some(store)).await;
    let bodies = [long_body(20_000), "short".to_owned(), long_body(60_000)];
    for body in &bodies {
        assert_eq!(alpha.send("lead", "scout", body), SendState::Accepted);
    }
    beta.stored(3).await;
    // What was said to be stored needs the store no more.
    std::fs::remove_dir_all(temp.path().join("share")).unwrap();
    let mailbox = beta.node.mailboxes().get(&id("scout")).unwrap();
    let all = Batch { messages_max: 10, bytes_max: u64::MAX, only: Which::All };
    let claimed = mailbox.claim(all).unwrap();
    let read: Vec<String> = claimed
        .iter()
        .map(|one| {
            assert!(one.message.bytes.len() < 1_000);
            match &one.message.envelope.blob {
                Some(blob) => beta.node.blobs().text(blob, usize::MAX).unwrap(),
                None => one.message.envelope.body.clone().unwrap(),
            }
        })
        .collect();
    assert!(read == bodies, "bodies differ");
    mailbox.ack(&claimed.iter().map(|one| one.lease).collect::<Vec<_>>()).unwrap();
    alpha.drained().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn at06_without_a_shared_store_a_long_body_is_refused_and_nothing_is_cut_or_left() {
    let temp = tempfile::tempdir().unwrap();
    let hub: Arc<dyn Link> = Arc::new(Hub::default());
    let alpha = start(temp.path(), "alpha", 1, Arc::clone(&hub)).await;
    let beta = start(temp.path(), "beta", 1, hub).await;
    let long = Draft { from: id("lead"), to: name("scout"), ..draft(Kind::Message, &long_body(20_000)) };
    let refusal = alpha.node.post().send(long).unwrap_err();
    assert_eq!((refusal.code, refusal.effect.as_deref()), (Code::NoBlobStore, Some("nothing was sent")));
    let counts = alpha.node.relay().unwrap().outbox().counts();
    assert_eq!((counts.unstored, counts.undone), (0, 0));
    assert!(!temp.path().join("alpha/blobs").exists());
    // The lane goes on.
    alpha.send("lead", "scout", "next");
    beta.stored(1).await;
    assert_eq!(beta.take("scout"), ["next"]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn at06_a_body_that_the_store_has_lost_holds_its_message_back_and_stalls_no_other() {
    let temp = tempfile::tempdir().unwrap();
    let hub: Arc<dyn Link> = Arc::new(Hub::default());
    let store = share(temp.path());
    let alpha = start_with(temp.path(), "alpha", 1, Arc::clone(&hub), Some(store.clone())).await;
    let body = long_body(20_000);
    alpha.send("lead", "scout", &body);
    let blobs = temp.path().join("share/blobs");
    let lost = std::fs::read_dir(&blobs).unwrap().next().unwrap().unwrap().path();
    std::fs::remove_file(&lost).unwrap();
    let beta = start_with(temp.path(), "beta", 1, hub, Some(store)).await;
    // Control has a lane of its own, which is never held.
    let urgent =
        Draft { control: true, from: id("lead"), to: name("scout"), ..draft(Kind::Message, "urgent") };
    alpha.node.post().send(urgent).unwrap();
    beta.stored(1).await;
    assert_eq!(beta.take("scout"), ["urgent"]);
    std::fs::write(&lost, &body).unwrap();
    beta.stored(2).await;
    let mailbox = beta.node.mailboxes().get(&id("scout")).unwrap();
    let peeked = mailbox.peek(1).unwrap();
    let blob = peeked[0].message.envelope.blob.clone().unwrap();
    assert!(beta.node.blobs().text(&blob, usize::MAX).unwrap() == body);
}
