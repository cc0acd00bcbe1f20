//! The one loop. A group is all that waits: it is decided on a copy of the state, appended to the journal as
//! one synced write, then published, then answered.
//!
//! ```text
//! decide on a copy -> append, synced -> swap the state -> answer -> feed
//! ```
//!
//! A failed append leaves the old state, and refuses what would have changed it. Where it is not known whether
//! the append landed, nothing is decided before the journal has told: what did land is applied first. A journal
//! that another leader writes ends the loop, and [`super::Authority::ended`] says so.

use std::sync::Arc;

use posthouse_shared::clock::{Clock, Stamp};
use posthouse_shared::refusal::Refusal;
use posthouse_shared::wire::Caller;
use tokio::sync::{broadcast, mpsc, oneshot, watch};
use uuid::Uuid;

use super::command::{Command, Decided, Decision, Reply};
use super::decide;
use super::state::State;
use super::{Ask, AuthorityError, Job, Options};
use crate::journal::{Entry, Journal, JournalError, Record, RequestMark};

/// Most decisions in one append; bounds how long the first of them waits for the last.
const GROUP_MAX: usize = 1_024;

pub(super) struct Service {
    pub(super) state: State,
    journal: Box<dyn Journal>,
    clock: Arc<dyn Clock>,
    snapshot_every: u64,
    since_snapshot: u64,
    /// An append has an unknown outcome.
    unsettled: bool,
    ended: watch::Sender<bool>,
}

type Answer = (oneshot::Sender<Result<Reply, Refusal>>, Result<Reply, Refusal>);

impl Service {
    /// Folds the journal, checks who starts, and appends the entries of this start as one write.
    pub(super) fn open(options: Options, ended: watch::Sender<bool>) -> Result<Self, AuthorityError> {
        let Options { mut journal, start, adopt, limits, clock, snapshot_every } = options;
        let loaded = journal.load()?;
        let mut state = match &loaded.snapshot {
            Some(snapshot) => State::restore(snapshot, limits).map_err(AuthorityError::Snapshot)?,
            None => State::new(limits),
        };
        for record in &loaded.records {
            state.apply(record);
        }
        let since_snapshot = u64::try_from(loaded.records.len()).unwrap_or(u64::MAX);
        let mut service =
            Self { state, journal, clock, snapshot_every, since_snapshot, unsettled: false, ended };
        service.begin(start, adopt)?;
        Ok(service)
    }

    fn begin(&mut self, start: super::HostStart, adopt: bool) -> Result<(), AuthorityError> {
        let now = self.now();
        let (id, host) = (start.data_id.clone(), start.host.clone());
        let command = Command::HostStart { start, adopt };
        let started = self.state.decide(&command, &Caller::Operator, now).map_err(AuthorityError::Refused)?;
        let same = self.state.leader.as_ref().is_some_and(|leader| leader.id == id);
        let term = self.state.head.term + u64::from(!same);
        let cluster = self.state.cluster.is_none();
        let first = cluster.then(|| Decision::Cluster { id: Uuid::new_v4().to_string() });
        let mut decisions: Vec<Decision> = first.into_iter().chain([Decision::Leader { id, host }]).collect();
        if let Decided::Journal(started) = started {
            decisions.push(started);
        }
        let mut next = self.state.clone();
        let group = next.head.index + 1;
        let mut records = Vec::with_capacity(decisions.len());
        for decision in decisions {
            let record = Record::after(&next.head, term, group, now, None, decision)?;
            next.apply(&record);
            records.push(record);
        }
        self.journal.append(&records)?;
        self.state = next;
        self.since_snapshot += u64::try_from(records.len()).unwrap_or(0);
        Ok(())
    }

    /// The journal's time does not go back when the clock does.
    fn now(&self) -> Stamp {
        self.clock.now().max(self.state.at)
    }

    /// Until it is told to close, or nobody is left to ask.
    pub(super) fn run(
        mut self,
        mut jobs: mpsc::Receiver<Job>,
        publish: &watch::Sender<Arc<State>>,
        feed: &broadcast::Sender<Arc<Entry>>,
    ) {
        let mut open = true;
        while open && let Some(first) = jobs.blocking_recv() {
            let mut group = Vec::new();
            let mut next = Some(first);
            while let Some(job) = next {
                match job {
                    Job::Ask(ask) => group.push(*ask),
                    Job::Close => {
                        open = false;
                        jobs.close();
                    }
                }
                next = if group.len() < GROUP_MAX { jobs.try_recv().ok() } else { None };
            }
            let mut asks = group.into_iter().peekable();
            while asks.peek().is_some() {
                self.group(&mut asks, publish, feed);
            }
            open &= !*self.ended.borrow();
        }
    }

    /// Applies what an append of unknown outcome has appended after all.
    fn settle(
        &mut self,
        publish: &watch::Sender<Arc<State>>,
        feed: &broadcast::Sender<Arc<Entry>>,
    ) -> Result<(), JournalError> {
        if !self.unsettled {
            return Ok(());
        }
        let records = self.journal.catch_up()?;
        self.unsettled = false;
        for record in &records {
            self.state.apply(record);
        }
        publish.send_replace(Arc::new(self.state.clone()));
        for record in records {
            let _nobody_follows = feed.send(Arc::new(record.entry));
        }
        Ok(())
    }

    fn failed(&mut self, error: &JournalError) {
        self.unsettled |= matches!(error, JournalError::Unknown(_));
        if error.ends_leading() {
            tracing::error!(%error, "this coordinator does not lead any more");
            self.ended.send_replace(true);
        }
    }

    fn group(
        &mut self,
        asks: &mut impl Iterator<Item = Ask>,
        publish: &watch::Sender<Arc<State>>,
        feed: &broadcast::Sender<Arc<Entry>>,
    ) {
        let settled = self.settle(publish, feed);
        if let Err(error) = &settled {
            self.failed(error);
        }
        let now = self.now();
        let mut next = self.state.clone();
        let begin = next.head.index + 1;
        let mut records = Vec::new();
        let (mut answers, mut again): (Vec<Answer>, _) = (Vec::new(), Vec::new());
        let mut bytes = 0;
        while bytes < self.journal.group_bytes()
            && let Some(Ask { caller, command, request_id, answer }) = asks.next()
        {
            let before = records.len();
            let mark = request_id.as_deref().map(|id| decide::mark(&caller, &command, id));
            let reply = decide_one(&mut next, &mut records, begin, now, &caller, &command, mark.as_ref());
            bytes += records.iter().skip(before).map(|record: &Record| record.line.len() + 1).sum::<usize>();
            answers.push((answer, reply));
            again.push((caller, command, mark));
        }
        if !records.is_empty() {
            match settled.and_then(|()| self.journal.append(&records)) {
                Ok(()) => self.state = next,
                Err(error) => {
                    tracing::warn!(error = %error, entries = records.len(), "journal append failed");
                    self.failed(&error);
                    records.clear();
                    self.refuse_group(&error, now, &mut answers, &again);
                }
            }
        }
        if !records.is_empty() {
            publish.send_replace(Arc::new(self.state.clone()));
        }
        for (to, answer) in answers {
            let _asker_has_gone = to.send(answer);
        }
        let count = u64::try_from(records.len()).unwrap_or(0);
        for record in records {
            let _nobody_follows = feed.send(Arc::new(record.entry));
        }
        self.keep_snapshot(count);
    }

    /// What the old state answers or refuses by itself stays; what would change it gets the disk's refusal.
    fn refuse_group(
        &self,
        error: &JournalError,
        now: Stamp,
        answers: &mut [Answer],
        asked: &[(Caller, Command, Option<RequestMark>)],
    ) {
        for ((_, answer), (caller, command, mark)) in answers.iter_mut().zip(asked) {
            let first = self.state.repeated(mark.as_ref());
            *answer = match first {
                Err(refusal) => Err(refusal),
                Ok(Some(reply)) => Ok(self.state.shape(command, reply)),
                Ok(None) => match self.state.decide(command, caller, now) {
                    Err(refusal) => Err(refusal),
                    Ok(Decided::Answer(reply)) => Ok(reply),
                    Ok(Decided::Journal(_)) => Err(error.refusal()),
                },
            };
        }
    }

    fn keep_snapshot(&mut self, count: u64) {
        self.since_snapshot = self.since_snapshot.saturating_add(count);
        if self.since_snapshot < self.snapshot_every {
            return;
        }
        self.since_snapshot = 0;
        let kept = match self.state.snapshot() {
            Ok(snapshot) => self.journal.snapshot(&snapshot),
            Err(error) => Err(JournalError::Encode(error)),
        };
        if let Err(error) = kept {
            tracing::warn!(%error, "snapshot failed, the next one is tried later; no decision is lost");
        }
    }
}

fn decide_one(
    next: &mut State,
    records: &mut Vec<Record>,
    group: u64,
    now: Stamp,
    caller: &Caller,
    command: &Command,
    mark: Option<&RequestMark>,
) -> Result<Reply, Refusal> {
    if let Some(reply) = next.repeated(mark)? {
        return Ok(next.shape(command, reply));
    }
    let decision = match next.decide(command, caller, now)? {
        Decided::Answer(reply) => return Ok(reply),
        Decided::Journal(decision) => decision,
    };
    let term = next.head.term;
    let record = Record::after(&next.head, term, group, now, mark.cloned(), decision)
        .map_err(|error| error.refusal())?;
    next.apply(&record);
    let reply = next.shape(command, next.reply_to(&record.entry));
    records.push(record);
    Ok(reply)
}
