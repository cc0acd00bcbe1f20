//! A bus inside one process, for tests and for several hosts in one program. It repeats what was not
//! acknowledged when an inbound side opens again, drops repeated message ids as JetStream does, and does on
//! demand what goes wrong on real ones.

use std::collections::{BTreeMap, HashMap, HashSet, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use async_trait::async_trait;
use posthouse_shared::generation::Generation;
use posthouse_shared::name::HostName;
use tokio::sync::{Notify, watch};

use super::{AckToken, Arrival, Inbound, Link, LinkError, LinkState, Parcel};

/// What happens to one parcel.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fate {
    /// It arrives.
    Arrives,
    /// It arrives twice.
    Twice,
    /// It overtakes what waits.
    First,
    /// It is acknowledged and lost.
    Lost,
    /// It arrives, and the sender is not told.
    Unknown,
    /// It is refused.
    Refused,
}

type Fates = Box<dyn FnMut(&Parcel) -> Fate + Send>;

/// The bus. Clones share it.
#[derive(Clone)]
pub struct Hub(Arc<Shared>);

struct Shared {
    state: Mutex<State>,
    news: Notify,
    link: watch::Sender<LinkState>,
}

#[derive(Default)]
struct State {
    fates: Option<Fates>,
    lose_notes: bool,
    seen: HashSet<String>,
    hosts: HashMap<HostName, Queue>,
    tokens: u64,
    published: u64,
}

#[derive(Default)]
struct Queue {
    waiting: VecDeque<Parcel>,
    notes: VecDeque<Vec<u8>>,
    unacked: BTreeMap<u64, Parcel>,
    opened: u64,
}

impl Default for Hub {
    fn default() -> Self {
        let link = watch::Sender::new(LinkState { up: true, connects: 1 });
        Self(Arc::new(Shared { state: Mutex::default(), news: Notify::new(), link }))
    }
}

impl Hub {
    /// Decides from now on what happens to each parcel.
    pub fn fates(&self, fates: impl FnMut(&Parcel) -> Fate + Send + 'static) {
        self.lock().fates = Some(Box::new(fates));
    }

    /// Whether notes are lost from now on.
    pub fn lose_notes(&self, lose: bool) {
        self.lock().lose_notes = lose;
    }

    /// Connects or disconnects everybody.
    pub fn set_up(&self, up: bool) {
        self.0.link.send_modify(|state| {
            state.connects += u64::from(up && !state.up);
            state.up = up;
        });
        self.0.news.notify_waiters();
    }

    /// Forgets all that waits, as a deleted stream does; all inbound sides end.
    pub fn wipe(&self) {
        let mut state = self.lock();
        state.seen.clear();
        for queue in state.hosts.values_mut() {
            *queue = Queue { opened: queue.opened + 1, ..Queue::default() };
        }
        drop(state);
        self.0.news.notify_waiters();
    }

    /// How many parcels were taken or refused.
    pub fn published(&self) -> u64 {
        self.lock().published
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.0.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn take(&self, parcel: Parcel) -> Result<(), LinkError> {
        let mut state = self.lock();
        state.published += 1;
        let fate = state.fates.as_mut().map_or(Fate::Arrives, |fates| fates(&parcel));
        if fate == Fate::Refused {
            return Err(LinkError::Refused("no".to_owned()));
        }
        if !state.seen.insert(parcel.msg_id.clone()) {
            return Ok(());
        }
        let queue = state.hosts.entry(parcel.to.clone()).or_default();
        match fate {
            Fate::Arrives | Fate::Unknown => queue.waiting.push_back(parcel),
            Fate::Twice => queue.waiting.extend([parcel.clone(), parcel]),
            Fate::First => queue.waiting.push_front(parcel),
            Fate::Lost | Fate::Refused => {}
        }
        drop(state);
        self.0.news.notify_waiters();
        if fate == Fate::Unknown { Err(LinkError::Unknown) } else { Ok(()) }
    }
}

#[async_trait]
impl Link for Hub {
    async fn publish(&self, parcels: Vec<Parcel>) -> Vec<Result<(), LinkError>> {
        let up = self.0.link.borrow().up;
        let taken = parcels.into_iter().map(|p| if up { self.take(p) } else { Err(LinkError::Unknown) });
        taken.collect()
    }

    async fn tell(&self, to: &HostName, _from: &HostName, note: Vec<u8>) -> Result<(), LinkError> {
        let mut state = self.lock();
        if !state.lose_notes && self.0.link.borrow().up {
            state.hosts.entry(to.clone()).or_default().notes.push_back(note);
        }
        drop(state);
        self.0.news.notify_waiters();
        Ok(())
    }

    async fn open(&self, host: &HostName, _generation: Generation) -> Result<Box<dyn Inbound>, LinkError> {
        let mut state = self.lock();
        let queue = state.hosts.entry(host.clone()).or_default();
        queue.opened += 1;
        for (_, parcel) in std::mem::take(&mut queue.unacked).into_iter().rev() {
            queue.waiting.push_front(parcel);
        }
        let opened = queue.opened;
        Ok(Box::new(Side { hub: self.clone(), host: host.clone(), opened }))
    }

    fn state(&self) -> watch::Receiver<LinkState> {
        self.0.link.subscribe()
    }
}

struct Side {
    hub: Hub,
    host: HostName,
    opened: u64,
}

impl Side {
    fn poll(&self, max: usize) -> Result<Vec<Arrival>, LinkError> {
        let mut state = self.hub.lock();
        let mut tokens = state.tokens;
        let queue = state.hosts.entry(self.host.clone()).or_default();
        if queue.opened != self.opened {
            return Err(LinkError::Ended("opened again, or wiped".to_owned()));
        }
        let mut arrivals: Vec<Arrival> =
            std::iter::from_fn(|| queue.notes.pop_front()).take(max).map(Arrival::Note).collect();
        while arrivals.len() < max && self.hub.0.link.borrow().up {
            let Some(parcel) = queue.waiting.pop_front() else { break };
            tokens += 1;
            queue.unacked.insert(tokens, parcel.clone());
            arrivals.push(Arrival::Parcel(parcel, AckToken(tokens.to_string())));
        }
        state.tokens = tokens;
        Ok(arrivals)
    }
}

#[async_trait]
impl Inbound for Side {
    async fn next(&mut self, max: usize) -> Result<Vec<Arrival>, LinkError> {
        let hub = self.hub.clone();
        loop {
            let mut news = std::pin::pin!(hub.0.news.notified());
            news.as_mut().enable();
            let arrivals = self.poll(max)?;
            if !arrivals.is_empty() {
                return Ok(arrivals);
            }
            news.await;
        }
    }

    async fn ack(&mut self, tokens: &[AckToken]) {
        let mut state = self.hub.lock();
        if let Some(queue) = state.hosts.get_mut(&self.host) {
            for token in tokens.iter().filter_map(|token| token.0.parse::<u64>().ok()) {
                queue.unacked.remove(&token);
            }
        }
    }
}
