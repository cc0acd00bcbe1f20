//! Conditions that scripts wait for. Each look gives one of three answers: it holds, not yet, or never.

use posthouse_shared::codes::Code;
use posthouse_shared::name::MessageId;
use posthouse_shared::refusal::{Refusal, closest};
use posthouse_shared::task::TaskStatus;
use posthouse_shared::team::AgentState;
use posthouse_shared::wire::replies::Stage;

use super::settled::{Settled, settled};
use super::{Sight, count};

/// What is waited for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Condition {
    /// `task/ID=STATUS`
    Task(String, TaskStatus),
    /// `agent/NAME=STATE`; idle means idle and no ready mail.
    Agent(String, AgentState),
    /// `message/ID=done`
    Message(String, Stage),
    /// `team=settled`
    TeamSettled,
}

/// What one look gives.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Look {
    /// It holds.
    Holds(String),
    /// Not yet; where it stands.
    NotYet(String),
    /// It can no longer come true; why.
    Never(String),
}

const FORMS: &str = "task/ID=completed, agent/NAME=idle, message/ID=done or team=settled";

impl Look {
    /// What may be answered after something has moved during the look: a team's members are looked at one after
    /// the other, and what moved from one to the next may have been missed by all.
    pub fn after_moves(self, condition: &Condition) -> Self {
        match (self, condition) {
            (Self::Holds(state) | Self::Never(state), Condition::TeamSettled) => Self::NotYet(state),
            (look, _) => look,
        }
    }
}

impl Condition {
    /// Parses a condition.
    pub fn parse(text: &str) -> Result<Self, Refusal> {
        let broken = |what: String| {
            Refusal::new(Code::BadRequest, what).cause(format!("conditions are written {FORMS}"))
        };
        let (thing, wanted) =
            text.split_once('=').ok_or_else(|| broken(format!("{text:?} is not a condition")))?;
        let word = |known: &[&str]| {
            let near = closest(wanted, known.iter().map(|name| (*name, None)));
            let hint = near.first().map(|near| format!("; did you mean {}?", near.name)).unwrap_or_default();
            broken(format!("{thing} cannot become {wanted:?}{hint}"))
        };
        match thing.split_once('/') {
            None if thing == "team" && wanted == "settled" => Ok(Self::TeamSettled),
            Some(("task", id)) => parse_word(wanted)
                .map(|status| Self::Task(id.to_owned(), status))
                .ok_or_else(|| word(&["pending", "in_progress", "completed", "cancelled"])),
            Some(("agent", name)) => parse_word(wanted)
                .map(|state| Self::Agent(name.to_owned(), state))
                .ok_or_else(|| word(&["idle", "running", "waiting", "stopped", "failed", "shutdown"])),
            Some(("message", id)) => parse_word(wanted)
                .map(|stage| Self::Message(id.to_owned(), stage))
                .ok_or_else(|| word(&["stored", "processing", "done", "quarantined"])),
            None | Some(_) => Err(broken(format!("{text:?} is not a condition"))),
        }
    }
}

fn parse_word<T: serde::de::DeserializeOwned>(word: &str) -> Option<T> {
    serde_json::from_value(word.into()).ok()
}

/// Looks at a team once. `stage_of` tells where a message is.
pub fn look(
    sight: &Sight<'_>,
    condition: &Condition,
    stage_of: impl Fn(&str) -> Result<(MessageId, Stage), Refusal>,
) -> Result<Look, Refusal> {
    match condition {
        Condition::TeamSettled => Ok(match settled(sight) {
            Settled::Yes => Look::Holds("settled".to_owned()),
            Settled::Moving => Look::NotYet("moving".to_owned()),
            Settled::Stuck(left) => Look::Never(left.join("; ")),
        }),
        Condition::Task(id, wanted) => {
            let task = sight.task(id).ok_or_else(|| unknown_task(sight, id))?;
            let state = task.status.as_str().to_owned();
            Ok(match task.status {
                status if status == *wanted => Look::Holds(state),
                status if status.is_ended() => Look::Never(format!("task {id} is {state}")),
                TaskStatus::Pending
                | TaskStatus::InProgress
                | TaskStatus::Completed
                | TaskStatus::Cancelled => Look::NotYet(state),
            })
        }
        Condition::Agent(name, wanted) => {
            let member = sight.member(name).ok_or_else(|| unknown_agent(sight, name))?;
            let state = sight.state(member);
            // What is claimed and not yet said to run is work as well.
            let mail = sight.mail_of(member);
            let waiting = if Sight::is_run(member) { mail.ready + mail.processing } else { mail.ready };
            let text = state.as_str().to_owned();
            Ok(match (state, *wanted) {
                (AgentState::Idle, AgentState::Idle) if waiting > 0 => {
                    Look::NotYet(format!("idle with {} to read", count(waiting, "message")))
                }
                (state, wanted) if state == wanted => Look::Holds(text),
                (AgentState::Shutdown, _) => Look::Never(format!("{name} is shut down")),
                (AgentState::Failed, AgentState::Idle) => {
                    Look::Never(format!("{name} has failed and stays so until it is resumed"))
                }
                (
                    AgentState::Idle
                    | AgentState::Running
                    | AgentState::Waiting
                    | AgentState::Stopped
                    | AgentState::Failed,
                    _,
                ) => Look::NotYet(text),
            })
        }
        Condition::Message(id, wanted) => {
            let (_, stage) = stage_of(id)?;
            let text = format!("{stage:?}").to_lowercase();
            Ok(match (stage, *wanted) {
                (stage, wanted) if stage == wanted => Look::Holds(text),
                (Stage::Done, _) => Look::Never(format!("message {id} is done")),
                (Stage::Dropped, _) => Look::Never(format!("message {id} was dropped from quarantine")),
                (Stage::Quarantined, Stage::Done) => Look::Never(format!("message {id} is in quarantine")),
                (Stage::Processing | Stage::Quarantined, Stage::Stored) => Look::Holds(text),
                (
                    Stage::Accepted
                    | Stage::Stored
                    | Stage::Processing
                    | Stage::Released
                    | Stage::Quarantined,
                    _,
                ) => Look::NotYet(text),
            })
        }
    }
}

/// The refusal for a task that is not there.
pub fn unknown_task(sight: &Sight<'_>, id: &str) -> Refusal {
    let known = sight.tasks.iter().map(|task| (task.id.as_str(), Some(task.status.as_str().to_owned())));
    Refusal::new(Code::UnknownTask, format!("no task {id:?} in team \"{}\"", sight.team))
        .closest_to(id, known)
        .next("posthouse task ls")
}

/// The refusal for a teammate that is not there.
pub fn unknown_agent(sight: &Sight<'_>, name: &str) -> Refusal {
    let known = sight.members.iter().map(|member| {
        (member.name.as_str(), Some(format!("{}, {}", member.host, sight.state(member).as_str())))
    });
    Refusal::new(Code::UnknownAgent, format!("no teammate {name:?} in team \"{}\"", sight.team))
        .closest_to(name, known)
        .next("posthouse ps -o name")
}

#[cfg(test)]
mod tests {
    use super::super::tests::{member, sight, task};
    use super::*;
    use posthouse_shared::name::TeamName;
    use posthouse_shared::team::{Standing, TeamConfig};

    #[test]
    fn conditions_are_parsed_and_nonsense_is_told_the_nearest_word() {
        assert_eq!(
            Condition::parse("task/T-1=completed").unwrap(),
            Condition::Task("T-1".into(), TaskStatus::Completed)
        );
        assert_eq!(Condition::parse("team=settled").unwrap(), Condition::TeamSettled);
        let refusal = Condition::parse("task/T-1=complete").unwrap_err();
        assert!(refusal.message.ends_with("did you mean completed?"), "{}", refusal.message);
        for bad in ["", "x", "x=y", "task=done", "team/x=settled"] {
            assert_eq!(Condition::parse(bad).unwrap_err().code, Code::BadRequest, "{bad}");
        }
    }

    #[test]
    fn a_look_tells_holds_not_yet_and_never_apart() {
        let (team, config) = (TeamName::new("main").unwrap(), TeamConfig::default());
        let members = [member("a", Standing::Active), member("gone", Standing::Shutdown)];
        let tasks = [task("T-1", TaskStatus::Cancelled), task("T-2", TaskStatus::Pending)];
        let sight = sight(&team, &config, &members, &tasks);
        let stage = |_: &str| Ok((MessageId::derived(&["m"]), Stage::Processing));
        let look = |text: &str| look(&sight, &Condition::parse(text).unwrap(), stage);
        assert!(matches!(look("task/T-2=pending"), Ok(Look::Holds(_))));
        assert!(matches!(look("task/T-2=completed"), Ok(Look::NotYet(_))));
        assert!(matches!(look("task/T-1=completed"), Ok(Look::Never(_))));
        assert!(matches!(look("agent/a=idle"), Ok(Look::Holds(_))));
        assert!(matches!(look("agent/gone=idle"), Ok(Look::Never(_))));
        assert!(matches!(look("message/m=done"), Ok(Look::NotYet(_))));
        assert_eq!(look("agent/b=idle").unwrap_err().code, Code::UnknownAgent);
    }

    #[test]
    fn a_team_that_moved_during_the_look_is_looked_at_again() {
        let (settled, task) = (Condition::TeamSettled, Condition::parse("task/job=completed").unwrap());
        let (holds, never) = (Look::Holds("now".to_owned()), Look::Never("why".to_owned()));
        assert_eq!(holds.clone().after_moves(&settled), Look::NotYet("now".to_owned()));
        assert_eq!(never.clone().after_moves(&settled), Look::NotYet("why".to_owned()));
        // A single thing was seen whole.
        assert_eq!(holds.clone().after_moves(&task), holds);
        assert_eq!(never.clone().after_moves(&task), never);
    }
}
