//! The envelope as it stands on disk and on the wire, frozen. A change of format comes with a new version and
//! keeps the reader of this one. `POSTHOUSE_BLESS=1` writes the files anew.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::disallowed_methods,
    missing_docs,
    reason = "tests"
)]

use std::path::Path;

use posthouse_shared::clock::Stamp;
use posthouse_shared::generation::Generation;
use posthouse_shared::identity::NodeKey;
use posthouse_shared::lane::LanePosition;
use posthouse_shared::limits::Limits;
use posthouse_shared::message::{
    BlobRef, DecodeError, Destination, Envelope, Kind, Origin, Sealed, TraceParent, Vouched,
};
use posthouse_shared::name::{AgentName, HostName, MessageId, TeamName};

fn key() -> NodeKey {
    NodeKey::from_bytes([0x0b; 32])
}

fn plain() -> Envelope {
    Envelope {
        v: 1,
        id: "019ac1d2-0000-7000-8000-000000000001".parse().unwrap(),
        team: TeamName::new("main").unwrap(),
        from: Origin {
            agent: AgentName::new("lead").unwrap(),
            host: HostName::new("alpha").unwrap(),
            generation: Generation::new(1, 42),
        },
        to: Destination { agent: AgentName::new("scout-07").unwrap(), birth: Generation::new(1, 17) },
        kind: Kind::Message,
        created_at: Stamp::from_nanos(1_764_540_245_000_000_007),
        lane: Some(LanePosition { seq: 9, control: false }),
        in_reply_to: None,
        summary: None,
        body: Some("count the \"files\"\nin src/ — ünïcode".to_owned()),
        blob: None,
        trace: None,
    }
}

fn every_field() -> Envelope {
    let id: MessageId = "019ac1d2-0000-7000-8000-000000000002".parse().unwrap();
    Envelope {
        id,
        kind: Kind::ShutdownRequest,
        lane: Some(LanePosition { seq: u64::MAX, control: true }),
        in_reply_to: Some("019ac1d2-0000-7000-8000-000000000001".parse().unwrap()),
        summary: Some("one line".to_owned()),
        trace: Some(TraceParent::begin(id)),
        ..plain()
    }
}

fn with_blob() -> Envelope {
    let blob = BlobRef { sha256: "ab".repeat(32), bytes: 1_000_000 };
    Envelope { lane: None, body: None, blob: Some(blob), ..plain() }
}

#[test]
fn the_envelope_is_frozen() {
    for (name, envelope) in [("plain", plain()), ("every_field", every_field()), ("with_blob", with_blob())] {
        let path =
            Path::new(env!("CARGO_MANIFEST_DIR")).join(format!("tests/golden/envelope_v1_{name}.json"));
        let sealed = envelope.clone().seal(&key(), &Limits::default()).unwrap();
        if std::env::var_os("POSTHOUSE_BLESS").is_some() {
            std::fs::write(&path, &sealed.bytes).unwrap();
        }
        let golden = std::fs::read(&path).expect("the golden file is there");
        assert_eq!(String::from_utf8_lossy(&golden), String::from_utf8_lossy(&sealed.bytes), "{name}");
        let (read, vouched) = Sealed::decode(golden, &key(), &Limits::default()).unwrap();
        assert_eq!((read.envelope, vouched), (envelope, Vouched::Node), "{name}");
    }
}

#[test]
fn every_kind_keeps_its_word() {
    let words = [
        "task",
        "message",
        "result",
        "idle",
        "plan_approval_request",
        "permission_request",
        "task_assignment",
        "task_notification",
        "notice",
        "shutdown_request",
        "shutdown_response",
        "permission_response",
        "plan_approval_response",
        "stop",
        "resume",
    ];
    for word in words {
        let kind: Kind = serde_json::from_value(word.into()).unwrap();
        assert_eq!(kind.as_str(), word);
    }
}

#[test]
fn what_a_newer_build_wrote_is_named_as_such_and_each_flipped_byte_is_noticed() {
    let limits = Limits::default();
    let sealed = every_field().seal(&key(), &limits).unwrap();
    let text = String::from_utf8(sealed.bytes.clone()).unwrap();
    let decode = |text: String| Sealed::decode(text.into_bytes(), &key(), &limits);
    assert!(matches!(decode(text.replace("{\"v\":1", "{\"v\":2")), Err(DecodeError::UnknownVersion(2))));
    let other = text.replace("shutdown_request", "dance");
    assert!(matches!(decode(other), Err(DecodeError::UnknownKind(kind)) if kind == "dance"));
    for at in 0..sealed.bytes.len() {
        let mut bytes = sealed.bytes.clone();
        if let Some(byte) = bytes.get_mut(at) {
            *byte ^= 1;
        }
        if let Ok((_, vouched)) = Sealed::decode(bytes, &key(), &limits) {
            assert_eq!(vouched, Vouched::Nobody, "byte {at}");
        }
    }
    for cut in 0..sealed.bytes.len() {
        assert!(Sealed::decode(sealed.bytes.iter().take(cut).copied().collect(), &key(), &limits).is_err());
    }
}
