//! What decisions cause, each once: homes, mail, programs, events. All of it follows the journal and can be done
//! again: mailboxes and homes are made if they are not there, mail has ids made from the journal, and how far
//! it went is journaled after it is stored.
//!
//! Order for each entry: directory and mailbox -> its mail -> the program that reads it. So a prompt is durable
//! before its worker starts. A crash anywhere leaves mail in `state.unsent`, which the next start sends.

use std::collections::BTreeSet;
use std::time::Duration;

use posthouse_node::post::{Draft, DraftId};
use posthouse_node::teammate::AgentSetup;
use posthouse_shared::codes::Code;
use posthouse_shared::generation::Generation;
use posthouse_shared::name::{AgentId, AgentName, TaskId, TeamName};
use posthouse_shared::refusal::Refusal;
use posthouse_shared::task::TaskStatus;
use posthouse_shared::team::{Member, Schedule, Standing};
use posthouse_shared::wire::Caller;
use posthouse_shared::wire::event::What;
use tokio::runtime::Handle;
use tokio::sync::broadcast::error::RecvError;

use super::Service;
use super::hosts::residence;
use crate::authority::{Command, Decision, HostChange, Outgoing, Reply, State, Team};
use crate::journal::Entry;
use crate::view::Sight;

/// Pause before mail that could not be stored (disk or mailbox full) is tried again.
const TRY_AGAIN: Duration = Duration::from_secs(1);
/// A command waits at most so long for its effects before it answers without them.
const EFFECTS_WAIT: Duration = Duration::from_secs(10);
/// Longest summary of a notice.
const SUMMARY_CHARS: usize = 200;

/// Whether this life has carried out the state before.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Again {
    No,
    Yes,
}

/// Carries out what the journal asks for, then follows it in the background.
pub(super) async fn start(service: &Service) -> Result<(), Refusal> {
    let mut entries = service.authority().entries();
    let state = service.authority().state();
    service.blocking(move |s| s.bring_up(&state, Again::No)).await?;
    let follower = service.clone();
    let mut closing = service.supervisor().closing();
    service.supervisor().start("effects", async move {
        // Whether mail is left to be stored, and whether something else of a decision is.
        let mut mail_left = follower.authority().state().unsent().next().is_some();
        let mut behind = false;
        loop {
            tokio::select! {
                entry = entries.recv() => match entry {
                    Ok(entry) => behind |= !follower.follow(entry).await,
                    // Too far behind to follow entry by entry: the state has it all.
                    Err(RecvError::Lagged(_)) => behind = true,
                    Err(RecvError::Closed) => return,
                },
                () = tokio::time::sleep(TRY_AGAIN), if mail_left || behind => {
                    behind = behind && !follower.catch_up().await;
                }
                () = closing.wait() => return,
            }
            mail_left = !follower.send_mail().await;
        }
    });
    Ok(())
}

impl Service {
    /// Decides, and waits until what it causes has happened on this host.
    pub(super) async fn decide_and_carry_out(
        &self,
        caller: Caller,
        command: Command,
        request_id: Option<String>,
    ) -> Result<Reply, Refusal> {
        let reply = self.authority().decide(caller, command, request_id).await?;
        self.carried_out(self.authority().state().head.index).await;
        Ok(reply)
    }

    /// Waits until what the journal says up to this entry has happened on this host, for a bounded time.
    pub(super) async fn carried_out(&self, index: u64) {
        let mut carried_out = self.0.carried_out.subscribe();
        let all = carried_out.wait_for(|through| *through >= index);
        if tokio::time::timeout(EFFECTS_WAIT, all).await.is_err() {
            tracing::warn!(index, "decided, and not carried out yet");
        }
    }

    /// At the start, and after something could not be carried out: everything that the state says, on this
    /// host.
    fn bring_up(&self, state: &State, again: Again) -> Result<(), Refusal> {
        self.know_hosts(state)?;
        for (name, team) in state.teams.iter() {
            self.house(state, name, team)?;
            let lead = AgentId::new(AgentName::lead(), name.clone());
            // What is handed out in this life stays so.
            let first = again == Again::No;
            if first && team.members.get(&lead.agent).is_some_and(|lead| !Sight::is_run(lead)) {
                let mailbox = self.node()?.mailboxes().get(&lead).map_err(|e| e.refusal())?;
                self.0.inboxes.recover(&mailbox).map_err(|e| e.refusal())?;
            }
        }
        self.node()?.directory().set_through(Generation::new(state.head.term, state.head.index));
        self.forget_deleted(state)?;
        let sent_all = self.store_unsent(state);
        for (name, team) in state.teams.iter() {
            for member in team.members.values() {
                self.run_member(name, member)?;
            }
        }
        self.node()?.set_schedules(self.own_schedules(state));
        if sent_all {
            self.0.carried_out.send_replace(state.head.index);
        }
        Ok(())
    }

    /// Carries out one entry; answers whether all of it was done.
    async fn follow(&self, entry: std::sync::Arc<Entry>) -> bool {
        let index = entry.index;
        let done = self.blocking(move |s| s.carry_out(&entry)).await;
        if let Err(refusal) = &done {
            tracing::error!(index, error = %refusal, cause = ?refusal.cause, "carry out a decision, to be tried again");
        }
        done.is_ok()
    }

    /// Everything that the state says, again; answers whether all of it was done.
    async fn catch_up(&self) -> bool {
        let state = self.authority().state();
        let done = self.blocking(move |s| s.bring_up(&state, Again::Yes)).await;
        if let Err(refusal) = &done {
            tracing::error!(error = %refusal, "carry out decisions, to be tried again");
        }
        done.is_ok()
    }

    /// One entry, all but its mail's acknowledgement.
    fn carry_out(&self, entry: &Entry) -> Result<(), Refusal> {
        let state = self.authority().state();
        let team = |name: &TeamName| state.teams.get(name).cloned();
        match &entry.decision {
            Decision::TeamCreated { team: name, .. } => {
                if let Some(team) = team(name) {
                    self.house(&state, name, &team)?;
                }
                self.tell(What::TeamCreated { team: name.clone() });
            }
            Decision::TeamDeleted { team: name } => {
                self.forget_deleted(&state)?;
                self.tell(What::TeamDeleted { team: name.clone() });
            }
            Decision::Spawned { team: name, spec, .. } => {
                if let Some(member) = state.member(name, &spec.name) {
                    self.house_member(name, member)?;
                    self.store_unsent(&state);
                    let (agent, host, generation) =
                        (member.name.clone(), member.host.clone(), member.generation);
                    self.tell(What::AgentSpawned { team: name.clone(), agent, host, generation });
                    self.run_member(name, member)?;
                }
            }
            Decision::Commanded { team: name, agent, .. } | Decision::Stood { team: name, agent, .. } => {
                if let Decision::Stood { released, .. } = &entry.decision {
                    released.iter().for_each(|id| self.tell_task(&state, name, id, TaskStatus::Pending));
                }
                if let Some(member) = state.member(name, agent) {
                    self.house_member(name, member)?;
                }
                self.node()?.board_changed(name);
            }
            Decision::TaskAdded { team: name, id, .. }
            | Decision::TaskUpdated { team: name, id, .. }
            | Decision::TaskClaimed { team: name, id, .. }
            | Decision::TaskReleased { team: name, id, .. }
            | Decision::TaskCompleted { team: name, id, .. }
            | Decision::TaskGivenUp { team: name, id, .. }
            | Decision::TaskCancelled { team: name, id, .. } => {
                if let Some(status) = decided_status(&entry.decision).or_else(|| {
                    state.teams.get(name).and_then(|team| team.board.get(id)).map(|task| task.status)
                }) {
                    self.tell_task(&state, name, id, status);
                }
                self.node()?.board_changed(name);
            }
            Decision::ScheduleAdded { .. } | Decision::ScheduleDeleted { .. } => {
                self.node()?.set_schedules(self.own_schedules(&state));
            }
            Decision::HostStarted { .. } => {
                self.know_hosts(&state)?;
                // A new grant of the host is one of its teammates too.
                for (name, team) in state.teams.iter() {
                    self.house(&state, name, team)?;
                }
            }
            Decision::Host { what } => {
                if let HostChange::Lost { released, .. } = what {
                    released
                        .iter()
                        .for_each(|(team, id)| self.tell_task(&state, team, id, TaskStatus::Pending));
                }
                self.know_hosts(&state)?;
                for name in state.teams.keys() {
                    self.node()?.board_changed(name);
                }
            }
            Decision::Cluster { .. }
            | Decision::Leader { .. }
            | Decision::ScheduleTicked { .. }
            | Decision::Notified { .. } => {}
        }
        if concerns_hosts(&entry.decision) {
            self.0.orders.send_modify(|index| *index = (*index).max(entry.index));
        }
        self.node()?.directory().set_through(Generation::new(entry.term, entry.index));
        if self.store_unsent(&state) {
            self.0.carried_out.send_modify(|through| *through = (*through).max(entry.index));
        }
        Ok(())
    }

    /// The keys of all hosts, and that hosts have to ask for their orders.
    fn know_hosts(&self, state: &State) -> Result<(), Refusal> {
        self.node()?.directory().hosts().set_all(self.identities(state).into_iter().collect());
        self.0.orders.send_modify(|index| *index = (*index).max(state.head.index));
        Ok(())
    }

    /// Schedules whose recipients live on this host.
    fn own_schedules(&self, state: &State) -> Vec<Schedule> {
        let mut own = Vec::new();
        for team in state.teams.values() {
            let here = |one: &&Schedule| team.members.get(&one.to).is_none_or(|m| m.host == *self.host());
            own.extend(team.schedules.values().filter(here).cloned());
        }
        own
    }

    /// Tells of a task that a decision left in this status.
    fn tell_task(&self, state: &State, team: &TeamName, id: &TaskId, status: TaskStatus) {
        if let Some(task) = state.teams.get(team).and_then(|team| team.board.get(id)) {
            let (owner, generation) = (task.owner.clone(), task.generation);
            self.tell(What::TaskChanged { team: team.clone(), task: id.clone(), status, owner, generation });
        }
    }

    fn tell(&self, what: What) {
        self.0.setup.events.publish(self.now(), what);
        self.live().bump();
    }

    /// Directory and mailboxes of one team.
    fn house(&self, state: &State, name: &TeamName, team: &Team) -> Result<(), Refusal> {
        for member in team.members.values() {
            self.house_member(name, member)?;
        }
        let members = self.residences(state, team);
        self.node()?.directory().set_team(name.clone(), members);
        Ok(())
    }

    /// A member's mailbox, unless it has ended, then its entry in the directory: who finds the entry finds the
    /// mailbox.
    fn house_member(&self, team: &TeamName, member: &Member) -> Result<(), Refusal> {
        let node = self.node()?;
        let id = AgentId::new(member.name.clone(), team.clone());
        if member.host == *self.host() && member.standing != Standing::Shutdown {
            node.mailboxes().create(&id, member.birth).map_err(|e| e.refusal())?;
        }
        node.directory().set_member(id, residence(member));
        Ok(())
    }

    /// Starts the program of a member that lives here, if it is one that we run.
    fn run_member(&self, team: &TeamName, member: &Member) -> Result<(), Refusal> {
        let id = AgentId::new(member.name.clone(), team.clone());
        let Some(spec) = member.spec.clone().filter(|_| member.host == *self.host()) else { return Ok(()) };
        if member.standing == Standing::Shutdown {
            return Ok(());
        }
        let setup = AgentSetup {
            id,
            birth: member.birth,
            generation: member.generation,
            spec,
            standing: member.standing,
            command: member.commanded,
            since: member.since,
        };
        let node = self.node()?.clone();
        if setup.id.agent.is_lead() {
            // A person may have had mail in hand.
            let mailbox = node.mailboxes().get(&setup.id).map_err(|e| e.refusal())?;
            self.0.inboxes.give_back(&setup.id, Some(&mailbox)).map_err(|e| e.refusal())?;
        }
        Handle::current().block_on(node.ensure_agent(setup)).map(|_| ()).map_err(|e| e.refusal())
    }

    /// Ends what is still here of teams that are gone: programs, names, mailboxes (to the attic).
    fn forget_deleted(&self, state: &State) -> Result<(), Refusal> {
        let node = self.node()?;
        let mut gone = BTreeSet::new();
        for id in node.mailboxes().list().map_err(|e| e.refusal())? {
            if state.teams.contains_key(&id.team) {
                continue;
            }
            Handle::current().block_on(node.remove_agent(&id)).map_err(|e| e.refusal())?;
            self.live().forget(&id);
            self.0.inboxes.give_back(&id, None).map_err(|e| e.refusal())?;
            gone.insert(id.team);
        }
        for team in gone {
            node.directory().remove_team(&team);
        }
        Ok(())
    }

    /// Sends what is not known to be stored and journals that it is. Answers whether all of it is.
    async fn send_mail(&self) -> bool {
        let state = self.authority().state();
        if state.unsent().next().is_none() {
            return true;
        }
        let index = state.head.index;
        let sent = self.blocking(move |s| Ok(s.store_unsent(&state))).await.unwrap_or(false);
        if !sent {
            return false;
        }
        self.0.carried_out.send_modify(|through| *through = (*through).max(index));
        match self.authority().decide(Caller::Operator, Command::Notified { through: index }, None).await {
            Ok(_) => true,
            Err(refusal) => {
                tracing::warn!(error = %refusal, "journal what was notified");
                false
            }
        }
    }

    /// Stores the mail that the state has as unsent; what is stored already is a duplicate. Answers whether
    /// all of it is stored, or can never be.
    fn store_unsent(&self, state: &State) -> bool {
        let mut all = true;
        for outgoing in state.unsent() {
            if let Err(refusal) = self.store(state, outgoing) {
                let never = matches!(
                    refusal.code,
                    Code::UnknownAgent | Code::UnknownTeam | Code::AgentShutdown | Code::MessageTooLarge
                );
                tracing::warn!(id = %outgoing.id, to = %outgoing.to, never, error = %refusal, "store mail of a decision");
                all &= never;
            }
        }
        all
    }

    fn store(&self, state: &State, outgoing: &Outgoing) -> Result<(), Refusal> {
        // The state may be ahead of the entry that is being carried out: a recipient whose own entry is still
        // to come (a new one, or a later one of the same name) gets its mailbox here. One that the state does
        // not have is gone for good.
        let to = AgentId::new(outgoing.to.clone(), outgoing.team.clone());
        let known = self.node()?.directory().get(&to).map(|residence| residence.birth);
        if let (Some(team), Some(member)) = (state.team(&to.team), state.member(&to.team, &to.agent))
            && known != Some(member.birth)
        {
            self.house(state, &to.team, team)?;
        }
        let posted = self.node()?.post().send(Draft {
            from: AgentId::new(outgoing.from.name(), outgoing.team.clone()),
            to: outgoing.to.clone(),
            kind: outgoing.kind,
            body: outgoing.body.clone(),
            summary: outgoing.summary.as_ref().map(|text| text.chars().take(SUMMARY_CHARS).collect()),
            in_reply_to: outgoing.in_reply_to,
            control: false,
            id: DraftId::Chosen(outgoing.id),
            trace: None,
        })?;
        self.posted(&posted);
        Ok(())
    }
}

/// Whether a decision changes what other hosts must know.
const fn concerns_hosts(decision: &Decision) -> bool {
    match decision {
        Decision::TeamCreated { .. }
        | Decision::TeamDeleted { .. }
        | Decision::Spawned { .. }
        | Decision::Commanded { .. }
        | Decision::Stood { .. }
        | Decision::ScheduleAdded { .. }
        | Decision::ScheduleDeleted { .. }
        | Decision::HostStarted { .. } => true,
        Decision::Cluster { .. }
        | Decision::Leader { .. }
        | Decision::Host { .. }
        | Decision::ScheduleTicked { .. }
        | Decision::TaskAdded { .. }
        | Decision::TaskUpdated { .. }
        | Decision::TaskClaimed { .. }
        | Decision::TaskReleased { .. }
        | Decision::TaskCompleted { .. }
        | Decision::TaskGivenUp { .. }
        | Decision::TaskCancelled { .. }
        | Decision::Notified { .. } => false,
    }
}

/// The status that a decision about a task gave it; its owner and claim are told as they are now.
const fn decided_status(decision: &Decision) -> Option<TaskStatus> {
    match decision {
        Decision::TaskAdded { .. } | Decision::TaskReleased { .. } | Decision::TaskGivenUp { .. } => {
            Some(TaskStatus::Pending)
        }
        Decision::TaskClaimed { .. } => Some(TaskStatus::InProgress),
        Decision::TaskCompleted { .. } => Some(TaskStatus::Completed),
        Decision::TaskCancelled { .. } => Some(TaskStatus::Cancelled),
        Decision::TaskUpdated { .. }
        | Decision::Cluster { .. }
        | Decision::Leader { .. }
        | Decision::HostStarted { .. }
        | Decision::Host { .. }
        | Decision::TeamCreated { .. }
        | Decision::TeamDeleted { .. }
        | Decision::Spawned { .. }
        | Decision::Commanded { .. }
        | Decision::Stood { .. }
        | Decision::ScheduleAdded { .. }
        | Decision::ScheduleDeleted { .. }
        | Decision::ScheduleTicked { .. }
        | Decision::Notified { .. } => None,
    }
}
