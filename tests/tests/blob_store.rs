//! Long bodies and checkpoints through a real S3 server, between real hosts.

#![allow(
    clippy::unwrap_used,
    clippy::panic,
    clippy::indexing_slicing,
    clippy::disallowed_methods,
    reason = "a test"
)]

use std::ffi::OsString;

use posthouse_node::blob::{BlobStore, StoreError};
use posthouse_node::checkpoint::Checkpoint;
use posthouse_shared::durable::Files;
use posthouse_shared::generation::Generation;
use posthouse_shared::name::AgentId;
use posthouse_tests::cluster::{Host, Posthouse};
use posthouse_tests::home::{Home, TEAM};
use posthouse_tests::nats::Nats;
use posthouse_tests::recorded::wait_for_text;
use posthouse_tests::s3::S3;

const KEYS: [(&str, &str); 2] = [("AWS_ACCESS_KEY_ID", "any"), ("AWS_SECRET_ACCESS_KEY", "any")];

fn open(url: &str) -> BlobStore {
    let environment: Vec<(OsString, OsString)> =
        KEYS.iter().map(|(name, value)| (name.into(), value.into())).collect();
    BlobStore::open(url, &environment).unwrap()
}

#[test]
fn objects_come_back_from_s3_as_they_were_put_and_a_wrong_bucket_or_server_says_so() {
    let Some(server) = S3::start() else { return };
    let store = open(&server.url("deep/prefix"));
    let large: Vec<u8> = (0..10_000_000u32).map(|n| u8::try_from(n % 251).unwrap()).collect();
    for _twice in 0..2 {
        store.put_once("a/large", large.clone()).unwrap();
        store.put_once("a/b/small", vec![7]).unwrap();
    }
    assert!(store.get("a/large", 10_000_000).unwrap() == large);
    assert!(matches!(store.get("a/large", 9_999_999), Err(StoreError::TooLarge { bytes: 10_000_000, .. })));
    assert_eq!(store.list("a").unwrap(), ["b/small", "large"]);
    assert!(open(&server.url("other")).list("a").unwrap().is_empty());
    // An upload that was cut off is put again.
    store.remove("a/large").unwrap();
    store.put_once("a/large", b"cut off".to_vec()).unwrap();
    store.put_once("a/large", large.clone()).unwrap();
    assert!(store.get("a/large", 10_000_000).unwrap() == large);
    assert!(matches!(store.get("none", 1), Err(StoreError::NotFound { .. })));
    store.remove("none").unwrap();

    let no_bucket = open(&server.url("x").replace("://posthouse/", "://nowhere/"));
    let refused = no_bucket.put_once("a", vec![1]).unwrap_err().refusal();
    // This server tells strangers no more of a bucket that is not there.
    assert_eq!(refused.code.to_string(), "PH0309");
    assert!(refused.cause[0].contains("AccessDenied") && refused.message.contains("nowhere"), "{refused:?}");
    let url = server.url("x");
    drop(server);
    let away = open(&url).get("a", 1).unwrap_err().refusal();
    assert_eq!(away.code.to_string(), "PH0309", "{away:?}");
}

#[test]
fn at06_a_long_body_crosses_to_another_host_through_s3_and_its_history_is_checkpointed_there() {
    let (Some(nats), Some(server)) = (Nats::start(), S3::start()) else { return };
    let home = Home::new();
    let (dir, url) = (home.dir("scout"), server.url("team"));
    let env = [KEYS[0], KEYS[1], ("POSTHOUSE_BLOB_STORE", url.as_str())];
    let posthouse = Posthouse::serve(&home, nats.url(), &env);
    posthouse.team();
    let beta = Host::join_with(&posthouse, nats.url(), "beta", &[], &env);
    let start = ["spawn", "scout", "--host", "beta", "--prompt", "hello", "--", "sh", "-c"];
    let script = "jq -j '.messages[].body' >> \"$0/got\"";
    posthouse.ok(&[&start[..], &[script, &dir.display().to_string()]].concat());
    posthouse.wait("agent/scout=idle");
    let body: String = (0..100_000).map(|n| format!("line {n}, \"ü\"\n")).collect();
    let file = home.room().join("body.txt");
    std::fs::write(&file, &body).unwrap();
    let sent = posthouse.json(&["send", "scout", "--file", &file.display().to_string()]);
    wait_for_text(&dir.join("got"), "line 99999, \"ü\"");
    let got = std::fs::read_to_string(dir.join("got")).unwrap();
    assert!(got.ends_with(&body), "the body was changed on its way");
    assert_eq!(beta.term(), 0);

    // What a home without the old disk starts from.
    let agents = Host::data(&home, "beta").join("history").join(TEAM);
    let name = std::fs::read_dir(&agents)
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .find(|name| name.starts_with("scout.") && name.ends_with(".jsonl"))
        .unwrap();
    let birth: Generation =
        name.strip_prefix("scout.").and_then(|name| name.strip_suffix(".jsonl")).unwrap().parse().unwrap();
    let id = AgentId::new("scout".parse().unwrap(), TEAM.parse().unwrap());
    let latest = Checkpoint::latest(&open(&url), &id, birth).unwrap().unwrap();
    let restored = home.room().join("restored/scout.jsonl");
    latest.restore(&open(&url), &Files::real(), &restored).unwrap();
    let history = std::fs::read_to_string(&restored).unwrap();
    assert!(history.contains(sent["id"].as_str().unwrap()), "the turn is not in it");
    assert!(history == std::fs::read_to_string(agents.join(&name)).unwrap());
    assert_eq!(posthouse.term(), 0);
}
