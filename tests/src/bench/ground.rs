//! Directories, messages and mailboxes to measure on, and the raw loop to measure against.

use std::fs::{File, create_dir_all, rename};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Instant;

use posthouse_node::mailbox::name::FileName;
use posthouse_node::mailbox::{Incarnation, Mailbox, Mailboxes, Marks, Setup};
use posthouse_shared::clock::{Stamp, SystemClock};
use posthouse_shared::durable::Files;
use posthouse_shared::generation::Generation;
use posthouse_shared::identity::NodeKey;
use posthouse_shared::lane::LanePosition;
use posthouse_shared::limits::Limits;
use posthouse_shared::message::{Destination, Envelope, Kind, Origin, Sealed};
use posthouse_shared::name::{AgentId, AgentName, HostName, MessageId, TeamName};

use super::Sample;
use super::device::Device;

/// Encoded size of the messages.
pub const MESSAGE_BYTES: usize = 1_024;
const BIRTH: Generation = Generation::new(1, 1);

/// An agent of the team `main`.
pub fn agent(name: &str) -> AgentId {
    AgentId::new(AgentName::new(name).unwrap(), TeamName::new("main").unwrap())
}

fn key() -> NodeKey {
    NodeKey::from_bytes([7; 32])
}

/// The mailboxes in `data`.
pub fn mailboxes(data: &Path) -> Mailboxes {
    let limits = Limits { ready_per_mailbox: 2_000_000, mailboxes_per_host: 20_000, ..Limits::default() };
    Mailboxes::open(Setup {
        files: Files::real(),
        dir: data.join("mailboxes"),
        attic: data.join("attic"),
        key: key(),
        hosts: posthouse_shared::identity::HostKeys::default(),
        limits: Arc::new(limits),
        clock: Arc::new(SystemClock),
        incarnation: Incarnation(1),
    })
    .unwrap()
}

/// The mailbox of `name` in `data`.
pub fn mailbox(data: &Path, name: &str) -> Mailbox {
    mailboxes(data).create(&agent(name), BIRTH).unwrap()
}

/// A message of [`MESSAGE_BYTES`] to `to`.
pub fn message(from: &str, to: &str, seq: u64) -> Sealed {
    let make = |body: String| {
        let to = agent(to);
        let envelope = Envelope {
            v: 1,
            id: MessageId::derived(&[from, to.agent.as_str(), &seq.to_string()]),
            team: to.team,
            from: Origin {
                agent: AgentName::new(from).unwrap(),
                host: HostName::new("alpha").unwrap(),
                generation: BIRTH,
            },
            to: Destination { agent: to.agent, birth: BIRTH },
            kind: Kind::Message,
            created_at: Stamp::from_nanos(1_700_000_000_000_000_000 + seq),
            lane: Some(LanePosition { seq, control: false }),
            in_reply_to: None,
            summary: None,
            body: Some(body),
            blob: None,
            trace: None,
        };
        envelope.seal(&key(), &Limits::default()).unwrap()
    };
    let frame = make(String::new()).bytes.len();
    make("x".repeat(MESSAGE_BYTES.saturating_sub(frame)))
}

/// Numbers `first..first + count` of one sender.
pub fn messages(from: &str, to: &str, first: u64, count: u64) -> Vec<Sealed> {
    (first..first + count).map(|seq| message(from, to, seq)).collect()
}

/// Places messages into `ready/` without a sync, as a long life would have left them. What is not `real` is
/// an empty file: only its name counts.
pub fn place(data: &Path, to: &str, from: &str, numbers: std::ops::Range<u64>, real: bool) {
    let ready = data.join("mailboxes/main").join(to).join("ready");
    let mut blank = message(from, to, 0);
    for seq in numbers {
        if real {
            blank = message(from, to, seq);
        } else {
            blank.envelope.id = MessageId::derived(&[from, to, &seq.to_string()]);
            blank.envelope.lane = Some(LanePosition { seq, control: false });
            blank.envelope.created_at = Stamp::from_nanos(1_700_000_000_000_000_000 + seq);
        }
        let name = FileName::arriving(&blank.envelope, blank.envelope.created_at, Marks::NONE);
        let mut file = File::create(ready.join(name.to_string())).unwrap();
        if real {
            file.write_all(&blank.bytes).unwrap();
        }
    }
}

/// Syncs the file system of `dir`, so that the next measurement does not pay for what was placed.
pub fn settle(dir: &Path) {
    Files::real().sync_file_system(dir).unwrap();
}

/// Measures `work`, which does `messages`.
pub fn measure(device: &Device, messages: u64, work: impl FnOnce()) -> Sample {
    let before = device.flushes();
    let begun = Instant::now();
    work();
    let took = begun.elapsed();
    let flushes = device.flushes().zip(before).map(|(after, before)| after - before);
    Sample { messages, took, flushes }
}

/// The raw loop: what one thread can do without Posthouse.
pub fn raw(device: &Device, dir: &Path, round: usize, messages: u64) -> Sample {
    let home = dir.join(format!("raw-{round}"));
    let (tmp, ready): (PathBuf, PathBuf) = (home.join("tmp"), home.join("ready"));
    create_dir_all(&tmp).unwrap();
    create_dir_all(&ready).unwrap();
    settle(dir);
    let bytes = [b'x'; MESSAGE_BYTES];
    measure(device, messages, || {
        for n in 0..messages {
            let (from, to) = (tmp.join("file"), ready.join(format!("{n:016x}.json")));
            let mut file = File::create(&from).unwrap();
            file.write_all(&bytes).unwrap();
            file.sync_all().unwrap();
            rename(&from, &to).unwrap();
            File::open(&ready).unwrap().sync_all().unwrap();
        }
    })
}
