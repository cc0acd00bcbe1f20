//! Whether a team has come to rest, and if not, whether it still can: what `run` and `wait team=settled` end
//! by.

use posthouse_shared::name::AgentName;
use posthouse_shared::task::TaskStatus;
use posthouse_shared::team::{AgentState, Standing};

use super::{Sight, count};

/// Where a team stands as a whole.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Settled {
    /// Something moves, or is about to.
    Moving,
    /// Every task is completed or cancelled, every teammate idle, no mail waits.
    Yes,
    /// Nothing moves, and something is left. What, for people.
    Stuck(Vec<String>),
}

/// Looks at the whole team.
pub fn settled(sight: &Sight<'_>) -> Settled {
    if sight.under_way {
        return Settled::Moving;
    }
    let mut left = Vec::new();
    for member in sight.members.iter().filter(|member| Sight::is_run(member)) {
        let mail = sight.mail_of(member);
        let name = &member.name;
        let waiting = mail.ready + mail.processing;
        if member.standing == Standing::Active && !sight.live.contains_key(name) {
            return Settled::Moving;
        }
        match sight.state(member) {
            AgentState::Running | AgentState::Waiting => return Settled::Moving,
            AgentState::Idle if waiting > 0 || sight.claimable.contains(name) => return Settled::Moving,
            AgentState::Failed => left.push(format!("{name} has failed")),
            AgentState::Stopped if waiting > 0 => {
                left.push(format!("{name} is stopped and has {}", count(waiting, "message")));
            }
            AgentState::Idle | AgentState::Stopped | AgentState::Shutdown => {}
        }
        if mail.quarantined > 0 {
            left.push(format!("{name} has {} in quarantine", count(mail.quarantined, "message")));
        }
    }
    // Between the claim and the first word of its turn an owner still looks idle.
    let at_it = |owner: &AgentName| {
        let mut run = sight.members.iter().filter(|member| Sight::is_run(member));
        run.any(|member| member.name == *owner && member.standing == Standing::Active)
    };
    for task in &sight.tasks {
        let id = &task.id;
        match (task.status, &task.hold) {
            (TaskStatus::Completed | TaskStatus::Cancelled, _) => {}
            (_, Some(why)) => left.push(format!("task {id} is on hold: {why}")),
            (TaskStatus::InProgress, None) if task.owner.as_ref().is_some_and(at_it) => {
                return Settled::Moving;
            }
            (TaskStatus::InProgress, None) => {
                let owner = task.owner.as_ref().map_or("nobody", |owner| owner.as_str());
                left.push(format!("task {id} is claimed by {owner}, who does nothing"));
            }
            (TaskStatus::Pending, None) => left.push(format!("task {id} is pending and nobody can claim it")),
        }
    }
    if left.is_empty() { Settled::Yes } else { Settled::Stuck(left) }
}

#[cfg(test)]
mod tests {
    use super::super::tests::{member, seen, sight, task};
    use super::super::{Mail, Sight};
    use super::*;
    use posthouse_shared::name::TeamName;
    use posthouse_shared::team::TeamConfig;

    fn with(check: impl Fn(&mut Sight<'_>), status: TaskStatus) -> Settled {
        let (team, config) = (TeamName::new("main").unwrap(), TeamConfig::default());
        let members = [member("lead", Standing::Active), member("a", Standing::Active)];
        let tasks = [task("T-1", status)];
        let mut sight = sight(&team, &config, &members, &tasks);
        check(&mut sight);
        settled(&sight)
    }

    fn state(state: AgentState) -> impl Fn(&mut Sight<'_>) {
        move |sight| {
            sight.live.insert("a".parse().unwrap(), seen(state, 1));
        }
    }

    #[test]
    fn a_team_rests_only_when_nothing_waits_and_nothing_is_on_its_way() {
        assert_eq!(with(|_| {}, TaskStatus::Completed), Settled::Yes);
        assert_eq!(with(|sight| sight.under_way = true, TaskStatus::Completed), Settled::Moving);
        assert_eq!(with(state(AgentState::Running), TaskStatus::Completed), Settled::Moving);
        assert_eq!(with(|sight| sight.live.clear(), TaskStatus::Completed), Settled::Moving);
        let mail = |sight: &mut Sight<'_>| {
            sight.mail.insert("a".parse().unwrap(), Mail { ready: 1, ..Mail::default() });
        };
        assert_eq!(with(mail, TaskStatus::Completed), Settled::Moving);
        let claimable = |sight: &mut Sight<'_>| {
            sight.claimable.insert("a".parse().unwrap());
        };
        assert_eq!(with(claimable, TaskStatus::Pending), Settled::Moving);
    }

    #[test]
    fn what_can_no_longer_move_is_named() {
        let stuck = |settled| match settled {
            Settled::Stuck(left) => left.join("; "),
            other => format!("{other:?}"),
        };
        assert_eq!(stuck(with(|_| {}, TaskStatus::Pending)), "task T-1 is pending and nobody can claim it");
        assert_eq!(stuck(with(state(AgentState::Failed), TaskStatus::Completed)), "a has failed");
    }

    #[test]
    fn the_mail_of_a_lead_that_is_a_person_keeps_nobody_waiting() {
        let lead = |sight: &mut Sight<'_>| {
            sight.mail.insert("lead".parse().unwrap(), Mail { ready: 7, ..Mail::default() });
        };
        assert_eq!(with(lead, TaskStatus::Completed), Settled::Yes);
    }
}
