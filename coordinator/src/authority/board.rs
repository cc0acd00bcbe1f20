//! The task board of one team: the tasks, and indexes over them that make a claim cost the same on a board of
//! ten and of a hundred thousand. Here is what decisions do to it; what may be decided is in `claims`.

use std::sync::Arc;

use posthouse_node::port::GaveUp;
use posthouse_shared::clock::Stamp;
use posthouse_shared::name::{AgentName, RoleName, TaskId};
use posthouse_shared::task::{BlockerResult, ClaimedTask, Task, TaskChange, TaskSpec, TaskStatus};
use posthouse_shared::wire::replies::TaskCounts;
use rpds::{RedBlackTreeMapSync, RedBlackTreeSetSync};

use super::command::Decision;
use crate::journal::Entry;

type Index<K> = RedBlackTreeMapSync<K, RedBlackTreeSetSync<u64>>;

/// A task with its place in the order they were made.
#[derive(Debug, Clone)]
struct Card {
    seq: u64,
    task: Arc<Task>,
}

/// The board. A clone shares everything.
#[derive(Debug, Clone, Default)]
pub struct Board {
    cards: RedBlackTreeMapSync<TaskId, Card>,
    order: RedBlackTreeMapSync<u64, TaskId>,
    /// Tasks that anybody of the role may claim now.
    ready: Index<Option<RoleName>>,
    /// Pending tasks by the one they are assigned to.
    assigned: Index<AgentName>,
    /// Claimed tasks by their owner.
    held: Index<AgentName>,
    counts: TaskCounts,
    next: u64,
}

impl Board {
    /// One task.
    pub fn get(&self, id: &TaskId) -> Option<&Arc<Task>> {
        self.cards.get(id).map(|card| &card.task)
    }

    /// All tasks, in the order they were made.
    pub fn tasks(&self) -> impl Iterator<Item = &Arc<Task>> {
        self.order.values().filter_map(|id| self.get(id))
    }

    /// How many are where.
    pub const fn counts(&self) -> TaskCounts {
        self.counts
    }

    /// Tasks that are not ended.
    pub const fn open(&self) -> u64 {
        self.counts.pending + self.counts.in_progress
    }

    /// The tasks that this agent has claimed, oldest first.
    pub fn held_by(&self, agent: &AgentName) -> impl Iterator<Item = &Arc<Task>> {
        self.of(self.held.get(agent))
    }

    /// The pending tasks that are assigned to this agent, oldest first.
    pub fn assigned_to(&self, agent: &AgentName) -> impl Iterator<Item = &Arc<Task>> {
        self.of(self.assigned.get(agent))
    }

    /// The oldest task that somebody of this role may claim.
    pub fn oldest_ready(&self, role: Option<&RoleName>) -> Option<&Arc<Task>> {
        let first = |role: &Option<RoleName>| self.ready.get(role).and_then(|set| set.first()).copied();
        let seq = match role {
            None => first(&None),
            Some(role) => first(&None).into_iter().chain(first(&Some(role.clone()))).min(),
        }?;
        self.order.get(&seq).and_then(|id| self.get(id))
    }

    /// The tasks among its blockers that are not completed.
    pub fn blockers<'a>(&'a self, task: &'a Task) -> impl Iterator<Item = &'a TaskId> {
        task.blocked_by.iter().filter(|id| self.get(id).is_none_or(|t| t.status != TaskStatus::Completed))
    }

    /// A claimed task as a turn gets it.
    pub fn claimed(&self, id: &TaskId) -> Option<ClaimedTask> {
        let task = self.get(id).filter(|task| task.status == TaskStatus::InProgress)?;
        let result = |id: &TaskId| self.get(id).and_then(|task| task.result.clone());
        Some(ClaimedTask {
            id: task.id.clone(),
            subject: task.subject.clone(),
            description: task.description.clone(),
            generation: task.generation?,
            blocked_by: task
                .blocked_by
                .iter()
                .map(|id| BlockerResult { id: id.clone(), result: result(id) })
                .collect(),
        })
    }

    /// The way from `from` to `to` over "waits on", where there is one.
    pub fn path(&self, from: &TaskId, to: &TaskId) -> Option<Vec<TaskId>> {
        let mut came_from: std::collections::BTreeMap<TaskId, Option<TaskId>> = [(from.clone(), None)].into();
        let mut open = vec![from.clone()];
        while let Some(id) = open.pop() {
            if id == *to {
                let mut way = vec![id];
                while let Some(Some(before)) = way.last().and_then(|id| came_from.get(id)) {
                    way.push(before.clone());
                }
                way.reverse();
                return Some(way);
            }
            for next in self.get(&id).map(|task| task.blocked_by.as_slice()).unwrap_or_default() {
                if !came_from.contains_key(next) {
                    came_from.insert(next.clone(), Some(id.clone()));
                    open.push(next.clone());
                }
            }
        }
        None
    }

    /// An id that is not used yet, the same one for the same board.
    pub(super) fn free_id(&self) -> Option<TaskId> {
        (self.next + 1..).find_map(|n| {
            let id = TaskId::new(format!("T-{n}")).ok()?;
            self.get(&id).is_none().then_some(id)
        })
    }

    fn of<'a>(
        &'a self,
        set: Option<&'a RedBlackTreeSetSync<u64>>,
    ) -> impl Iterator<Item = &'a Arc<Task>> + 'a {
        set.into_iter()
            .flat_map(RedBlackTreeSetSync::iter)
            .filter_map(|seq| self.order.get(seq).and_then(|id| self.get(id)))
    }

    /// What an entry does to the board.
    pub(super) fn change(&mut self, entry: &Entry) {
        let (generation, at) = (entry.generation(), entry.at);
        match &entry.decision {
            Decision::TaskAdded { id, spec, .. } => self.add(id, spec, at),
            Decision::TaskUpdated { id, change, .. } => self.update(id, change, at),
            Decision::TaskClaimed { id, agent, .. } => self.edit(id, at, |task| {
                task.status = TaskStatus::InProgress;
                task.owner = Some(agent.clone());
                task.generation = Some(generation);
            }),
            Decision::TaskReleased { id, .. } => self.edit(id, at, |task| {
                if task.status == TaskStatus::InProgress {
                    pend(task);
                }
                task.hold = None;
                task.attempts = 0;
            }),
            Decision::TaskCompleted { id, agent, result, .. } => {
                self.edit(id, at, |task| {
                    task.status = TaskStatus::Completed;
                    task.owner = Some(agent.clone());
                    task.result.clone_from(result);
                });
                let waiting = self.get(id).map(|task| task.blocks.clone()).unwrap_or_default();
                for id in &waiting {
                    self.reindex(id);
                }
            }
            Decision::TaskGivenUp { id, how, hold, .. } => self.edit(id, at, |task| {
                pend(task);
                match how {
                    GaveUp::Failed { .. } => task.attempts = task.attempts.saturating_add(1),
                    GaveUp::Stopped => {}
                }
                task.hold.clone_from(hold);
            }),
            Decision::TaskCancelled { id, .. } => self.edit(id, at, |task| {
                task.status = TaskStatus::Cancelled;
                task.hold = None;
            }),
            Decision::Stood { released, .. } => {
                for id in released {
                    self.edit(id, at, pend);
                }
            }
            Decision::Cluster { .. }
            | Decision::Leader { .. }
            | Decision::HostStarted { .. }
            | Decision::Host { .. }
            | Decision::TeamCreated { .. }
            | Decision::TeamDeleted { .. }
            | Decision::Spawned { .. }
            | Decision::Commanded { .. }
            | Decision::ScheduleAdded { .. }
            | Decision::ScheduleDeleted { .. }
            | Decision::ScheduleTicked { .. }
            | Decision::Notified { .. } => {}
        }
    }

    /// The claim on a task ended with the host of its owner.
    pub(super) fn lost(&mut self, id: &TaskId, at: Stamp) {
        self.edit(id, at, pend);
    }

    fn add(&mut self, id: &TaskId, spec: &TaskSpec, at: Stamp) {
        let task = Task {
            id: id.clone(),
            subject: spec.subject.clone(),
            description: spec.description.clone(),
            active_form: spec.active_form.clone(),
            status: TaskStatus::Pending,
            owner: None,
            generation: None,
            blocked_by: spec.blocked_by.clone(),
            blocks: Vec::new(),
            role: spec.role.clone(),
            result: None,
            attempts: 0,
            hold: None,
            metadata: spec.metadata.clone(),
            created_at: at,
            updated_at: at,
        };
        self.insert(Arc::new(task));
        for blocker in &spec.blocked_by {
            self.link(blocker, id);
        }
    }

    /// Puts a task at the end of the order: a new one, or one of a snapshot.
    pub(super) fn insert(&mut self, task: Arc<Task>) {
        self.next += 1;
        let (seq, id) = (self.next, task.id.clone());
        self.order.insert_mut(seq, id.clone());
        self.cards.insert_mut(id.clone(), Card { seq, task });
        self.index(&id);
    }

    fn update(&mut self, id: &TaskId, change: &TaskChange, at: Stamp) {
        let before = self.get(id).map(|task| task.blocked_by.clone()).unwrap_or_default();
        if let Some(after) = &change.blocked_by {
            for gone in before.iter().filter(|id| !after.contains(id)) {
                self.edit_quietly(gone, |task| task.blocks.retain(|waiting| waiting != id));
            }
            for blocker in after.iter().filter(|id| !before.contains(id)) {
                self.link(blocker, id);
            }
        }
        self.edit(id, at, |task| {
            if let Some(subject) = &change.subject {
                task.subject.clone_from(subject);
            }
            if let Some(description) = &change.description {
                task.description.clone_from(description);
            }
            if let Some(active_form) = &change.active_form {
                task.active_form = Some(active_form.clone());
            }
            if let Some(blocked_by) = &change.blocked_by {
                task.blocked_by.clone_from(blocked_by);
            }
            if let Some(role) = &change.role {
                task.role = Some(role.clone());
            }
            if let Some(owner) = &change.owner {
                task.owner = Some(owner.clone());
            }
            for (key, value) in &change.metadata {
                if value.is_null() {
                    task.metadata.remove(key);
                } else {
                    task.metadata.insert(key.clone(), value.clone());
                }
            }
        });
    }

    fn link(&mut self, blocker: &TaskId, waiting: &TaskId) {
        self.edit_quietly(blocker, |task| {
            if !task.blocks.contains(waiting) {
                task.blocks.push(waiting.clone());
            }
        });
    }

    fn edit(&mut self, id: &TaskId, at: Stamp, edit: impl FnOnce(&mut Task)) {
        self.edit_quietly(id, |task| {
            edit(task);
            task.updated_at = at;
        });
    }

    fn edit_quietly(&mut self, id: &TaskId, edit: impl FnOnce(&mut Task)) {
        self.unindex(id);
        if let Some(card) = self.cards.get_mut(id) {
            edit(Arc::make_mut(&mut card.task));
        }
        self.index(id);
    }

    /// After the last task of a snapshot was inserted, and after a blocker has ended.
    pub(super) fn reindex(&mut self, id: &TaskId) {
        self.unindex(id);
        self.index(id);
    }

    fn index(&mut self, id: &TaskId) {
        let Some(Card { seq, task }) = self.cards.get(id).cloned() else { return };
        *self.count(task.status) += 1;
        match (task.status, &task.owner) {
            (TaskStatus::InProgress, Some(owner)) => put(&mut self.held, owner, seq),
            (TaskStatus::Pending, Some(owner)) => put(&mut self.assigned, owner, seq),
            (TaskStatus::Pending, None) if task.hold.is_none() && self.blockers(&task).next().is_none() => {
                put(&mut self.ready, &task.role, seq);
            }
            (TaskStatus::Pending | TaskStatus::InProgress, None)
            | (TaskStatus::Completed | TaskStatus::Cancelled, _) => {}
        }
    }

    fn unindex(&mut self, id: &TaskId) {
        let Some(Card { seq, task }) = self.cards.get(id).cloned() else { return };
        *self.count(task.status) -= 1;
        if let Some(owner) = &task.owner {
            take(&mut self.held, owner, seq);
            take(&mut self.assigned, owner, seq);
        }
        take(&mut self.ready, &task.role, seq);
    }

    const fn count(&mut self, status: TaskStatus) -> &mut u64 {
        match status {
            TaskStatus::Pending => &mut self.counts.pending,
            TaskStatus::InProgress => &mut self.counts.in_progress,
            TaskStatus::Completed => &mut self.counts.completed,
            TaskStatus::Cancelled => &mut self.counts.cancelled,
        }
    }
}

/// Back to pending, for anybody. The generation stays: the next claim's is higher.
fn pend(task: &mut Task) {
    task.status = TaskStatus::Pending;
    task.owner = None;
}

fn put<K: Ord + Clone>(index: &mut Index<K>, key: &K, seq: u64) {
    match index.get_mut(key) {
        Some(set) => set.insert_mut(seq),
        None => index.insert_mut(key.clone(), RedBlackTreeSetSync::default().insert(seq)),
    }
}

fn take<K: Ord + Clone>(index: &mut Index<K>, key: &K, seq: u64) {
    let empty = match index.get_mut(key) {
        Some(set) => {
            set.remove_mut(&seq);
            set.is_empty()
        }
        None => false,
    };
    if empty {
        index.remove_mut(key);
    }
}
