//! What may be done to a task, and by whom. A refusal names what stands in the way.

use std::sync::Arc;

use posthouse_node::port::GaveUp;
use posthouse_shared::codes::Code;
use posthouse_shared::generation::Generation;
use posthouse_shared::limits::Limits;
use posthouse_shared::name::{AgentName, TaskId};
use posthouse_shared::refusal::Refusal;
use posthouse_shared::task::{Task, TaskChange, TaskSpec, TaskStatus};
use posthouse_shared::team::{Member, Standing};

use super::command::{BoardCommand, Decided, Decision, Reply};
use super::decide::{Actor, find_member, refuse};
use super::state::Team;

/// Part of an envelope that a task's text may fill, so that its assignment fits into a message.
const TEXT_SHARE: u64 = 2;

/// One command about a task of `team`.
pub(super) struct Desk<'a> {
    pub(super) team: &'a Team,
    pub(super) actor: Actor,
    pub(super) limits: &'a Limits,
}

impl Desk<'_> {
    pub(super) fn decide(&self, what: &BoardCommand) -> Result<Decided, Refusal> {
        match what {
            BoardCommand::Add { spec } => self.add(spec),
            BoardCommand::Update { id, change } => self.update(self.task(id)?, change),
            BoardCommand::Claim { id } => self.claim(self.task(id)?),
            BoardCommand::ClaimNext => self.claim_next(),
            BoardCommand::Release { id, generation } => self.release(self.task(id)?, *generation),
            BoardCommand::Complete { id, generation, result } => {
                self.complete(self.task(id)?, *generation, result.as_deref())
            }
            BoardCommand::GiveUp { id, generation, how } => {
                self.give_up(self.task(id.as_str())?, *generation, how)
            }
            BoardCommand::Cancel { id } => self.cancel(self.task(id)?),
            BoardCommand::Check { id, generation } => {
                let task = self.task(id)?;
                self.own_claim(task, *generation)?;
                Ok(Decided::Answer(Reply::Task(task.clone())))
            }
        }
    }

    fn task(&self, id: &str) -> Result<&Arc<Task>, Refusal> {
        let found = TaskId::new(id).ok().and_then(|id| self.team.board.get(&id));
        found.ok_or_else(|| {
            let known = self.team.board.tasks();
            let known = known.map(|task| (task.id.as_str(), Some(task.status.as_str().to_owned())));
            refuse(Code::UnknownTask, format!("no task {id:?} in team \"{}\"", self.team.name))
                .closest_to(id, known)
                .next("posthouse task ls")
        })
    }

    fn me(&self) -> &AgentName {
        &self.actor.name
    }

    fn member(&self) -> Option<&Member> {
        self.team.members.get(self.me())
    }

    fn add(&self, spec: &TaskSpec) -> Result<Decided, Refusal> {
        self.fits(spec)?;
        let limit = u64::from(self.limits.open_tasks_per_team);
        if self.team.board.open() >= limit {
            let text = format!("the board of \"{}\" has {limit} open tasks, the limit", self.team.name);
            return Err(refuse(Code::LimitReached, text).next("posthouse task ls"));
        }
        let id = match &spec.id {
            Some(id) if self.team.board.get(id).is_some() => {
                let text = format!("there is a task {id} in team \"{}\"", self.team.name);
                return Err(refuse(Code::TaskExists, text).next(format!("posthouse task show {id}")));
            }
            Some(id) => id.clone(),
            None => self.team.board.free_id().ok_or_else(|| refuse(Code::Internal, "no task id is free"))?,
        };
        let mut spec = spec.clone();
        spec.blocked_by = self.blockers(&id, &spec.blocked_by)?;
        let (team, by) = (self.team.name.clone(), self.me().clone());
        Ok(Decided::Journal(Decision::TaskAdded { team, id, spec: Box::new(spec), by }))
    }

    fn fits(&self, spec: &TaskSpec) -> Result<(), Refusal> {
        if spec.subject.trim().is_empty() {
            return Err(refuse(Code::BadRequest, "a task needs a subject"));
        }
        let bytes = serde_json::to_vec(spec).map_or(u64::MAX, |text| text.len() as u64);
        let limit = self.limits.envelope_bytes / TEXT_SHARE;
        if bytes > limit {
            let text = format!("the task has {bytes} bytes, the limit is {limit}");
            return Err(refuse(Code::LimitReached, text).next("put the text in a file and name its path"));
        }
        Ok(())
    }

    /// The blockers, each once; all there, and none that waits on the task itself.
    fn blockers(&self, id: &TaskId, wanted: &[TaskId]) -> Result<Vec<TaskId>, Refusal> {
        let mut blockers: Vec<TaskId> = Vec::with_capacity(wanted.len());
        for blocker in wanted {
            if blocker != id {
                self.task(blocker.as_str())?;
            }
            if let Some(way) = self.team.board.path(blocker, id) {
                let cycle = [id].into_iter().chain(&way).map(TaskId::as_str).collect::<Vec<_>>().join(" -> ");
                let text = format!("task {id} cannot wait on {blocker}: {cycle}");
                return Err(refuse(Code::TaskCycle, text).next(format!("posthouse task show {blocker}")));
            }
            if !blockers.contains(blocker) {
                blockers.push(blocker.clone());
            }
        }
        Ok(blockers)
    }

    fn update(&self, task: &Arc<Task>, change: &TaskChange) -> Result<Decided, Refusal> {
        open(task)?;
        let mut change = change.clone();
        if let Some(wanted) = &change.blocked_by {
            change.blocked_by = Some(self.blockers(&task.id, wanted)?);
        }
        if let Some(owner) = &change.owner {
            self.actor.must_lead("assign tasks")?;
            let member = find_member(self.team, owner.as_str())?;
            if member.standing == Standing::Shutdown {
                let text = format!("{owner} has been shut down, nothing can be assigned to it");
                return Err(refuse(Code::AgentShutdown, text).next("posthouse ps"));
            }
            if task.status == TaskStatus::InProgress {
                if task.owner.as_ref() != Some(owner) {
                    return Err(claimed(task));
                }
                change.owner = None;
            }
        }
        self.fits(&TaskSpec {
            id: None,
            subject: change.subject.clone().unwrap_or_else(|| task.subject.clone()),
            description: change.description.clone().unwrap_or_else(|| task.description.clone()),
            active_form: change.active_form.clone(),
            blocked_by: Vec::new(),
            role: None,
            metadata: task.metadata.clone().into_iter().chain(change.metadata.clone()).collect(),
        })?;
        let (team, id, by) = (self.team.name.clone(), task.id.clone(), self.me().clone());
        Ok(Decided::Journal(Decision::TaskUpdated { team, id, change: Box::new(change), by }))
    }

    fn claim(&self, task: &Arc<Task>) -> Result<Decided, Refusal> {
        let me = self.me();
        open(task)?;
        match (task.status, &task.owner) {
            (TaskStatus::InProgress, Some(owner)) if owner == me => {
                return Ok(Decided::Answer(Reply::Task(task.clone())));
            }
            (TaskStatus::InProgress, _) => return Err(claimed(task)),
            (_, Some(owner)) if owner != me => {
                let text = format!("task {} is assigned to {owner}, who alone may claim it", task.id);
                return Err(refuse(Code::TaskClaimed, text).next("posthouse task ls"));
            }
            (TaskStatus::Pending | TaskStatus::Completed | TaskStatus::Cancelled, _) => {}
        }
        self.active()?;
        claimable(self.team, task)?;
        self.role_fits(task)?;
        let holds = self.team.board.held_by(me).next();
        if let Some(holds) = holds.filter(|_| self.team.config.busy_check && !me.is_lead()) {
            let text = format!("{me} holds task {} and cannot claim {} too", holds.id, task.id);
            return Err(refuse(Code::ClaimerBusy, text)
                .next(format!("posthouse task complete {} --as {me}", holds.id))
                .next(format!("posthouse task release {}", holds.id)));
        }
        Ok(self.grant(task))
    }

    fn grant(&self, task: &Task) -> Decided {
        let (team, id, agent) = (self.team.name.clone(), task.id.clone(), self.me().clone());
        Decided::Journal(Decision::TaskClaimed { team, id, agent })
    }

    fn active(&self) -> Result<(), Refusal> {
        let me = self.me();
        let word = match self.member().map(|member| member.standing) {
            Some(Standing::Active) => return Ok(()),
            Some(Standing::Stopped) => "stopped",
            Some(Standing::Failed) => "failed",
            Some(Standing::Shutdown) | None => "shut down",
        };
        let text = format!("{me} is {word} and takes no tasks");
        Err(refuse(Code::ClaimerNotActive, text).next(format!("posthouse resume {me}")))
    }

    /// An assignment overrides the role, and the lead has all roles.
    fn role_fits(&self, task: &Task) -> Result<(), Refusal> {
        let Some(wanted) = &task.role else { return Ok(()) };
        let me = self.me();
        let role = self.member().and_then(|member| member.spec.as_ref()).and_then(|spec| spec.role.as_ref());
        if me.is_lead() || task.owner.as_ref() == Some(me) || role == Some(wanted) {
            return Ok(());
        }
        let own = role.map_or_else(|| "none".to_owned(), |role| format!("\"{role}\""));
        let text = format!("task {} asks for role \"{wanted}\"; the role of {me} is {own}", task.id);
        Err(refuse(Code::TaskRole, text).next("posthouse task ls"))
    }

    fn claim_next(&self) -> Result<Decided, Refusal> {
        let (me, board) = (self.me(), &self.team.board);
        let none = Decided::Answer(Reply::Claimed(None));
        if self.active().is_err() {
            return Ok(none);
        }
        if let Some(held) = board.held_by(me).next() {
            return Ok(Decided::Answer(Reply::Claimed(board.claimed(&held.id).map(Box::new))));
        }
        Ok(self.team.next_task(me).map_or(none, |task| self.grant(task)))
    }

    fn release(&self, task: &Arc<Task>, generation: Option<Generation>) -> Result<Decided, Refusal> {
        open(task)?;
        let mine = task.owner.as_ref() == Some(self.me());
        match (&task.hold, &task.owner) {
            (Some(why), _) if !self.actor.leads => {
                let text = format!("task {} is on hold until the lead releases it: {why}", task.id);
                return Err(refuse(Code::TaskOnHold, text).next("posthouse send lead \"...\""));
            }
            (None, None) => return Err(not_claimed(task)),
            (None, Some(_)) if !mine && !self.actor.leads => return Err(claimed(task)),
            (_, _) => {}
        }
        if task.status == TaskStatus::InProgress {
            same_generation(task, generation)?;
        }
        let (team, id, by) = (self.team.name.clone(), task.id.clone(), self.me().clone());
        let by = if self.actor.leads { AgentName::lead() } else { by };
        Ok(Decided::Journal(Decision::TaskReleased { team, id, by }))
    }

    /// That the actor holds the task now, under this generation where one is given.
    fn own_claim(&self, task: &Task, generation: Option<Generation>) -> Result<(), Refusal> {
        match task.status {
            TaskStatus::Completed | TaskStatus::Cancelled => {
                same_generation(task, generation)?;
                open(task)
            }
            TaskStatus::Pending if generation.is_some() => Err(stale(task, generation)),
            TaskStatus::Pending => Err(not_claimed(task)),
            TaskStatus::InProgress => {
                same_generation(task, generation)?;
                if task.owner.as_ref() == Some(self.me()) { Ok(()) } else { Err(claimed(task)) }
            }
        }
    }

    fn complete(
        &self,
        task: &Arc<Task>,
        generation: Option<Generation>,
        result: Option<&str>,
    ) -> Result<Decided, Refusal> {
        let mine = task.owner.as_ref() == Some(self.me());
        let same = generation.is_none() || generation == task.generation;
        if task.status == TaskStatus::Completed && mine && same {
            return Ok(Decided::Answer(Reply::Task(task.clone())));
        }
        self.own_claim(task, generation)?;
        let bytes = result.map_or(0, str::len) as u64;
        // Room for the mark that says that a longer result was cut.
        let limit = self.limits.result_bytes.saturating_add(1024);
        if bytes > limit {
            let text = format!("the result has {bytes} bytes, the limit is {limit}");
            return Err(refuse(Code::LimitReached, text).next("put it in a file and name its path"));
        }
        Ok(Decided::Journal(Decision::TaskCompleted {
            team: self.team.name.clone(),
            id: task.id.clone(),
            agent: self.me().clone(),
            result: result.map(str::to_owned),
        }))
    }

    fn give_up(&self, task: &Arc<Task>, generation: Generation, how: &GaveUp) -> Result<Decided, Refusal> {
        let mine = task.owner.as_ref() == Some(self.me()) && task.generation == Some(generation);
        if task.status == TaskStatus::Completed && mine {
            return Ok(Decided::Answer(Reply::Nothing));
        }
        self.own_claim(task, Some(generation))?;
        let attempts = task.attempts.saturating_add(1);
        let hold = match how {
            GaveUp::Failed { why } if attempts >= self.limits.max_attempts => {
                Some(format!("it failed {attempts} times, the last time by {}: {why}", self.me()))
            }
            GaveUp::Failed { .. } | GaveUp::Stopped => None,
        };
        Ok(Decided::Journal(Decision::TaskGivenUp {
            team: self.team.name.clone(),
            id: task.id.clone(),
            agent: self.me().clone(),
            how: how.clone(),
            hold,
        }))
    }

    fn cancel(&self, task: &Arc<Task>) -> Result<Decided, Refusal> {
        self.actor.must_lead("cancel tasks")?;
        if task.status == TaskStatus::Cancelled {
            return Ok(Decided::Answer(Reply::Task(task.clone())));
        }
        open(task)?;
        let (team, id, by) = (self.team.name.clone(), task.id.clone(), AgentName::lead());
        Ok(Decided::Journal(Decision::TaskCancelled { team, id, by }))
    }
}

fn open(task: &Task) -> Result<(), Refusal> {
    let by = task.owner.as_ref().map_or_else(String::new, |owner| format!(" by {owner}"));
    let text = match task.status {
        TaskStatus::Pending | TaskStatus::InProgress => return Ok(()),
        TaskStatus::Completed => format!("task {} was completed{by}", task.id),
        TaskStatus::Cancelled => format!("task {} was cancelled", task.id),
    };
    Err(refuse(Code::TaskDone, text).next(format!("posthouse task show {}", task.id)))
}

fn claimable(team: &Team, task: &Task) -> Result<(), Refusal> {
    if let Some(why) = &task.hold {
        let text = format!("task {} is on hold: {why}", task.id);
        return Err(refuse(Code::TaskOnHold, text).next(format!("posthouse task release {}", task.id)));
    }
    let blockers: Vec<String> = team
        .board
        .blockers(task)
        .map(|id| match team.board.get(id) {
            Some(blocker) => format!("{id} ({})", blocker.status.as_str()),
            None => id.to_string(),
        })
        .collect();
    if blockers.is_empty() {
        return Ok(());
    }
    let text = format!("task {} waits on {}", task.id, blockers.join(", "));
    Err(refuse(Code::TaskBlocked, text).next(format!("posthouse why {}", task.id)))
}

fn claimed(task: &Task) -> Refusal {
    let owner = task.owner.as_ref().map_or("somebody else", AgentName::as_str);
    let text = match (task.status, task.generation) {
        (TaskStatus::InProgress, Some(generation)) => {
            format!("task {} is claimed by {owner}, under {generation}", task.id)
        }
        (_, _) => format!("task {} belongs to {owner}", task.id),
    };
    refuse(Code::TaskClaimed, text).next("posthouse task ls")
}

fn not_claimed(task: &Task) -> Refusal {
    refuse(Code::TaskNotClaimed, format!("task {} is not claimed", task.id))
        .next(format!("posthouse task claim {} --as NAME", task.id))
}

fn same_generation(task: &Task, generation: Option<Generation>) -> Result<(), Refusal> {
    if generation.is_none() || generation == task.generation { Ok(()) } else { Err(stale(task, generation)) }
}

fn stale(task: &Task, generation: Option<Generation>) -> Refusal {
    let given = generation.map_or_else(String::new, |generation| format!(" {generation}"));
    let now = match (task.status, &task.owner, task.generation) {
        (TaskStatus::InProgress, Some(owner), Some(now)) => format!("{owner} claimed it under {now}"),
        (TaskStatus::Pending, _, _) => "nobody holds it now".to_owned(),
        (status, _, _) => format!("it is {}", status.as_str()),
    };
    let text = format!("claim{given} of task {} is not the present one: {now}", task.id);
    refuse(Code::WrongGeneration, text).next(format!("posthouse task show {}", task.id))
}

impl Team {
    /// Whether a member that asks for a task now would get one: one that it holds already, or the next.
    pub fn has_work_for(&self, agent: &AgentName) -> bool {
        self.board.held_by(agent).next().is_some() || self.next_task(agent).is_some()
    }

    /// The task that a member which holds none would be given: one assigned to it, else (where it claims by
    /// itself) the oldest of its role.
    pub fn next_task(&self, agent: &AgentName) -> Option<&Arc<Task>> {
        let assigned = self.board.assigned_to(agent).find(|task| claimable(self, task).is_ok());
        assigned.or_else(|| {
            let spec = self.members.get(agent)?.spec.as_ref().filter(|spec| spec.self_claim)?;
            self.board.oldest_ready(spec.role.as_ref())
        })
    }
}
