//! Orders: what the authority says of this host, made so. Whole each time, so that it can be done again and
//! nothing depends on what was missed.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::time::Duration;

use posthouse_shared::codes::Code;
use posthouse_shared::durable::Files;
use posthouse_shared::identity::{HostIdentity, sha256_hex};
use posthouse_shared::name::{AgentId, HostName, TeamName};
use posthouse_shared::refusal::Refusal;
use tokio::sync::watch;

use super::ask::{Asker, NoAnswer};
use super::port::BusPort;
use super::wire::{ASK, Ask, News, Orders, Part};
use crate::node::NodeHandle;

/// One part takes at most so long.
const PART: Duration = Duration::from_secs(5);
/// So often the whole is begun anew when it changes under way.
const WHOLES: u32 = 5;

/// Asks for the orders of this host, all of them.
pub async fn fetch(asker: &Asker) -> Result<Orders, NoAnswer> {
    let broken = |text: &str| NoAnswer::Refused(Box::new(Refusal::new(Code::Internal, text)));
    for _ in 0..WHOLES {
        let first: Part = asker.ask(ASK, &Ask::Orders { offset: 0 }, PART).await?;
        let mut text = first.text;
        while text.len() < first.total {
            let part: Part = asker.ask(ASK, &Ask::Orders { offset: text.len() }, PART).await?;
            if part.digest != first.digest || part.text.is_empty() {
                break;
            }
            text.push_str(&part.text);
        }
        if sha256_hex(text.as_bytes()) == first.digest {
            return serde_json::from_str(&text).map_err(|_| broken("the orders cannot be read"));
        }
    }
    Err(broken("the orders changed each time they were asked for"))
}

/// The orders of the last life, for a start without the coordinator.
#[derive(Clone)]
pub struct Saved {
    files: Files,
    path: PathBuf,
}

impl Saved {
    /// `DATA/orders.json`
    pub fn at(files: Files, data: &Path) -> Self {
        Self { files, path: data.join("orders.json") }
    }

    /// Those that were carried out last; none where there are none that can be read.
    pub fn read(&self) -> Option<Orders> {
        let bytes = match self.files.read_if_there(&self.path, u64::MAX) {
            Ok(bytes) => bytes?,
            Err(error) => {
                tracing::warn!(%error, "cannot read the orders of the last start");
                return None;
            }
        };
        serde_json::from_slice(&bytes)
            .inspect_err(|error| tracing::warn!(%error, "the orders of the last start cannot be read"))
            .ok()
    }

    /// Durable at return.
    fn keep(&self, orders: &Orders) {
        let kept = serde_json::to_vec(orders)
            .map_err(|error| error.to_string())
            .and_then(|bytes| self.files.replace(&self.path, &bytes).map_err(|error| error.to_string()));
        if let Err(error) = kept {
            tracing::warn!(error, "cannot keep the orders: a start without the coordinator has older ones");
        }
    }
}

/// Makes a node what its orders say.
pub struct Follower {
    node: NodeHandle,
    port: BusPort,
    teams: BTreeSet<TeamName>,
    news: News,
    saved: Saved,
    leader: watch::Sender<Option<HostName>>,
}

impl Follower {
    /// Nothing is known yet.
    pub fn new(node: NodeHandle, port: BusPort, saved: Saved) -> Self {
        let leader = watch::Sender::new(None);
        Self { node, port, teams: BTreeSet::new(), news: News::default(), saved, leader }
    }

    /// The host that leads, by the orders.
    pub fn leader(&self) -> watch::Receiver<Option<HostName>> {
        self.leader.subscribe()
    }

    /// What was carried out is not known to be the coordinator's last word.
    pub fn begin_anew(&mut self) {
        self.news = News::default();
    }

    /// Whether news ask for orders.
    pub const fn is_behind(&self, news: News) -> bool {
        news.orders > self.news.orders
    }

    /// Wakes teammates that may have something to claim.
    pub fn hear(&mut self, news: News) {
        if news.board > self.news.board {
            self.news.board = news.board;
            for team in &self.teams {
                self.node.board_changed(team);
            }
        }
    }

    /// Carries orders out. What could not be done is tried again with the next ones.
    pub async fn carry_out(&mut self, orders: Orders) -> Result<(), Refusal> {
        if orders.news.orders < self.news.orders {
            return Ok(());
        }
        // Kept first: a host that ends under way goes on with these.
        let (saved, kept) = (self.saved.clone(), orders.clone());
        let _logged = tokio::task::spawn_blocking(move || saved.keep(&kept)).await;
        self.leader.send_replace(Some(orders.leader.clone()));
        let directory = self.node.directory();
        let hosts = orders
            .hosts
            .into_iter()
            .filter_map(|(name, generation, key)| match key.parse() {
                Ok(key) => Some((name, HostIdentity { generation, key })),
                Err(error) => {
                    tracing::error!(host = %name, %error, "a host's key cannot be read");
                    None
                }
            })
            .collect();
        directory.hosts().set_all(hosts);
        let teams: BTreeSet<TeamName> = orders.teams.iter().map(|(name, _)| name.clone()).collect();
        for (name, members) in orders.teams {
            directory.set_team(name, members.into_iter().collect::<BTreeMap<_, _>>());
        }
        for gone in self.teams.difference(&teams) {
            directory.remove_team(gone);
        }
        directory.set_through(orders.through);
        self.put_away(&teams).await?;
        let mut failed = None;
        for order in orders.agents {
            let id = order.id.clone();
            if let Err(error) = self.node.ensure_agent(order.into()).await {
                tracing::error!(agent = %id, %error, "make a teammate what the authority says");
                failed = Some(error.refusal());
            }
        }
        self.node.set_schedules(orders.schedules);
        self.teams = teams;
        self.hear(orders.news);
        match failed {
            Some(refusal) => Err(refusal),
            None => {
                self.news.orders = orders.news.orders;
                Ok(())
            }
        }
    }

    /// Ends what is here of teams that are gone; their mailboxes go to the attic.
    async fn put_away(&self, teams: &BTreeSet<TeamName>) -> Result<(), Refusal> {
        let mailboxes = self.node.mailboxes().clone();
        let listed = tokio::task::spawn_blocking(move || mailboxes.list())
            .await
            .map_err(|error| Refusal::new(Code::Internal, "list mailboxes").because(&error))?;
        let gone: Vec<AgentId> = listed
            .map_err(|error| error.refusal())?
            .into_iter()
            .filter(|agent| !teams.contains(&agent.team))
            .collect();
        for agent in gone {
            self.node.remove_agent(&agent).await.map_err(|error| error.refusal())?;
            self.port.forget(&agent);
        }
        Ok(())
    }
}
