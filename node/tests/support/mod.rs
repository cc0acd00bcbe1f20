//! A small house for mailbox tests: one team with a lead and two agents, on a real or a simulated disk.

#![allow(
    dead_code,
    missing_docs,
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "tests; each uses a part of it"
)]

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use posthouse_node::blob::Blobs;
use posthouse_node::directory::{Directory, Residence};
use posthouse_node::mailbox::{Batch, Claimed, Incarnation, Mailbox, Mailboxes, Setup, Which};
use posthouse_node::post::{Draft, DraftId, Post, PostSetup};
use posthouse_node::trace_index::TraceIndex;
use posthouse_shared::clock::{Clock, Stamp, SystemClock};
use posthouse_shared::durable::Files;
use posthouse_shared::generation::Generation;
use posthouse_shared::identity::NodeKey;
use posthouse_shared::lane::LanePosition;
use posthouse_shared::limits::Limits;
use posthouse_shared::message::{Destination, Envelope, Kind, Origin, Sealed};
use posthouse_shared::name::{AgentId, AgentName, HostName, MessageId, TeamName};
use posthouse_shared::team::Standing;

pub const BIRTH: Generation = Generation::new(1, 7);
pub const EPOCH: Generation = Generation::new(1, 3);

pub fn agent(name: &str) -> AgentId {
    AgentId::new(AgentName::new(name).unwrap(), TeamName::new("main").unwrap())
}

pub fn key() -> NodeKey {
    NodeKey::from_bytes([7; 32])
}

#[derive(Clone)]
pub struct House {
    pub files: Files,
    pub data: PathBuf,
    pub limits: Arc<Limits>,
    pub clock: Arc<dyn Clock>,
    pub incarnation: u64,
}

impl House {
    pub fn at(data: &Path) -> Self {
        Self {
            files: Files::real(),
            data: data.to_owned(),
            limits: Arc::default(),
            clock: Arc::new(SystemClock),
            incarnation: 1,
        }
    }

    pub fn limit(mut self, name: &str, value: u64) -> Self {
        assert!(Arc::make_mut(&mut self.limits).set(name, value));
        self
    }

    pub fn incarnation(mut self, incarnation: u64) -> Self {
        self.incarnation = incarnation;
        self
    }

    pub fn mailboxes(&self) -> Mailboxes {
        self.try_mailboxes().unwrap()
    }

    pub fn try_mailboxes(&self) -> Result<Mailboxes, posthouse_node::mailbox::MailboxError> {
        Mailboxes::open(Setup {
            files: self.files.clone(),
            dir: self.data.join("mailboxes"),
            attic: self.data.join("attic"),
            key: key(),
            hosts: posthouse_shared::identity::HostKeys::default(),
            limits: Arc::clone(&self.limits),
            clock: Arc::clone(&self.clock),
            incarnation: Incarnation(self.incarnation),
        })
    }

    /// The mailbox of `scout`.
    pub fn mailbox(&self) -> Mailbox {
        self.mailboxes().create(&agent("scout"), BIRTH).unwrap()
    }

    pub fn post(&self, mailboxes: &Mailboxes) -> Post {
        let directory = Directory::default();
        let residence = |standing| Residence {
            birth: BIRTH,
            generation: EPOCH,
            host: HostName::new("alpha").unwrap(),
            standing,
        };
        let members = [
            ("lead", Standing::Active),
            ("scout", Standing::Active),
            ("lint", Standing::Stopped),
            ("old", Standing::Shutdown),
        ];
        let members: BTreeMap<_, _> =
            members.into_iter().map(|(name, s)| (AgentName::new(name).unwrap(), residence(s))).collect();
        for name in members.keys() {
            mailboxes.create(&agent(name.as_str()), BIRTH).unwrap();
        }
        directory.set_team(TeamName::new("main").unwrap(), members);
        let setup = PostSetup {
            files: self.files.clone(),
            host: HostName::new("alpha").unwrap(),
            key: key(),
            limits: Arc::clone(&self.limits),
            clock: Arc::clone(&self.clock),
            mailboxes: mailboxes.clone(),
            directory,
            trace: TraceIndex::none(),
            blobs: Blobs::open(self.files.clone(), self.data.join("blobs"), &self.limits, None),
            away: None,
        };
        Post::open(setup, &self.data.join("sent"), &self.data.join("clock")).unwrap()
    }
}

/// A message to `scout`; `control` puts it into the control lane.
pub fn message_at(from: &str, seq: u64, at: u64, control: bool) -> Sealed {
    sealed(from, Some(LanePosition { seq, control }), at, &format!("{from} {seq}"))
}

pub fn message(from: &str, seq: u64) -> Sealed {
    message_at(from, seq, 1_000_000 + seq, false)
}

pub fn sealed(from: &str, lane: Option<LanePosition>, at: u64, body: &str) -> Sealed {
    let to = agent("scout");
    let envelope = Envelope {
        v: 1,
        id: MessageId::derived(&[from, &format!("{lane:?}"), body]),
        team: to.team,
        from: Origin {
            agent: AgentName::new(from).unwrap(),
            host: HostName::new("alpha").unwrap(),
            generation: EPOCH,
        },
        to: Destination { agent: to.agent, birth: BIRTH },
        kind: Kind::Message,
        created_at: Stamp::from_nanos(at),
        lane,
        in_reply_to: None,
        summary: None,
        body: Some(body.to_owned()),
        blob: None,
        trace: None,
    };
    envelope.seal(&key(), &Limits::default()).unwrap()
}

pub fn draft(from: &str, to: &str, body: &str) -> Draft {
    Draft {
        from: agent(from),
        to: AgentName::new(to).unwrap(),
        kind: Kind::Message,
        body: body.to_owned(),
        summary: None,
        in_reply_to: None,
        control: false,
        id: DraftId::Fresh,
        trace: None,
    }
}

pub fn all() -> Batch {
    Batch { messages_max: 1_000_000, bytes_max: u64::MAX, only: Which::All }
}

pub fn bodies(claimed: &[Claimed]) -> Vec<String> {
    claimed.iter().map(|c| c.message.envelope.body.clone().unwrap()).collect()
}

pub fn claim_bodies(mailbox: &Mailbox) -> Vec<String> {
    bodies(&mailbox.claim(all()).unwrap())
}

/// The seeds to run: `SEED=n` replays one.
pub fn seeds(count: u64) -> Vec<u64> {
    match std::env::var("SEED") {
        Ok(seed) => vec![seed.parse().expect("SEED is a number")],
        Err(_) => (0..count).collect(),
    }
}

/// A small generator (splitmix64).
pub struct Dice(pub u64);

impl Dice {
    pub fn roll(&mut self, below: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (z ^ (z >> 31)) % below
    }
}

/// Waits until `holds`, looking again at each change of the mailbox.
pub fn await_change(mailbox: &Mailbox, mut holds: impl FnMut() -> bool) {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap();
    runtime.block_on(async {
        let mut changes = mailbox.changes();
        tokio::time::timeout(std::time::Duration::from_secs(20), async {
            while !holds() {
                changes.changed().await.unwrap();
            }
        })
        .await
        .expect("what was awaited did not happen");
    });
}
