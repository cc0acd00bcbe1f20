//! Why something does not move: cause with a stable code, since when, what happens next, and what one can do.

use posthouse_shared::name::MessageId;
use posthouse_shared::task::{Task, TaskStatus};
use posthouse_shared::team::{AgentState, HostState, Member};
use posthouse_shared::wire::replies::{HostView, Stage, TraceReply, WhyReply};

use super::{Sight, ago, count};

/// Why a teammate does, or does not.
pub fn agent(sight: &Sight<'_>, member: &Member) -> WhyReply {
    let name = &member.name;
    let state = sight.state(member);
    let mail = sight.mail_of(member);
    let waiting = count(mail.ready, "message");
    let doing = sight.live.get(name).map(|seen| seen.report.doing.clone()).unwrap_or_default();
    let for_long = ago(sight.now.since(sight.since(member)));
    let (code, why, then, next) = if !Sight::is_run(member) {
        let why = format!("{name} is a person or another program; {waiting} to read");
        ("person", why, "whoever leads reads the inbox".to_owned(), vec![format!("posthouse inbox {name}")])
    } else {
        match state {
            AgentState::Idle if mail.ready > 0 => {
                let why = format!("{waiting} ready, about to be claimed, or waiting for a retry");
                (
                    "about_to_run",
                    why,
                    "its next turn takes them".to_owned(),
                    vec![format!("posthouse log {name}")],
                )
            }
            AgentState::Idle => {
                let why = "no mail, and no task that it may claim".to_owned();
                let then = "mail or a task wakes it".to_owned();
                (
                    "idle",
                    why,
                    then,
                    vec![format!("posthouse send {name} \"...\""), "posthouse task ls".to_owned()],
                )
            }
            AgentState::Running => {
                let why = format!("in its turn for {for_long}: {doing}");
                let then = format!("when the turn ends it reads {waiting}");
                (
                    "in_turn",
                    why,
                    then,
                    vec![format!("posthouse log {name} -f"), format!("posthouse stop {name}")],
                )
            }
            AgentState::Waiting => {
                let why = format!("waits for an answer for {for_long}: {doing}");
                (
                    "waiting",
                    why,
                    "an answer lets its turn go on".to_owned(),
                    vec!["posthouse attention".to_owned()],
                )
            }
            AgentState::Stopped => {
                let why = format!("was stopped {for_long} ago; {waiting} held");
                let then = "nothing, until it is resumed or the lead writes to it".to_owned();
                ("stopped", why, then, vec![format!("posthouse resume {name}")])
            }
            AgentState::Failed => {
                let why = format!("its last turn failed {for_long} ago: {doing}; {waiting} held");
                let then = "nothing, until it is resumed or the lead writes to it".to_owned();
                let mut next = vec![format!("posthouse log {name}"), format!("posthouse resume {name}")];
                if mail.quarantined > 0 {
                    next.push("posthouse quarantine ls".to_owned());
                }
                ("failed", why, then, next)
            }
            AgentState::Shutdown => {
                let why = format!("was shut down {for_long} ago");
                (
                    "shutdown",
                    why,
                    "nothing: it has ended, and its name can be taken again".to_owned(),
                    Vec::new(),
                )
            }
        }
    };
    WhyReply {
        thing: format!("agent/{name}"),
        state: state.as_str().to_owned(),
        code: code.to_owned(),
        why,
        since: Some(sight.since(member)),
        then,
        next,
    }
}

/// The same of a teammate whose host is not seen as it should be: that is the cause, and the rest is old.
pub fn elsewhere(told: WhyReply, member: &Member, how: HostState) -> WhyReply {
    let (host, how) = (&member.host, how.as_str());
    WhyReply {
        code: format!("host_{how}"),
        why: format!("its host {host} is {how}; at its last word: {}", told.why),
        then: format!("it goes on when {host} is back; mail to it waits meanwhile"),
        next: vec![format!("posthouse why host/{host}"), "posthouse hosts ls".to_owned()],
        ..told
    }
}

/// Why a task is where it is.
pub fn task(sight: &Sight<'_>, task: &Task) -> WhyReply {
    let id = &task.id;
    let owner = task.owner.as_ref();
    let open: Vec<String> = task
        .blocked_by
        .iter()
        .filter(|id| sight.task(id.as_str()).is_none_or(|task| task.status != TaskStatus::Completed))
        .map(ToString::to_string)
        .collect();
    let (code, why, then, next) = match (task.status, &task.hold) {
        (TaskStatus::Completed, _) => {
            ("completed", "it is completed".to_owned(), "nothing".to_owned(), vec![])
        }
        (TaskStatus::Cancelled, _) => {
            ("cancelled", "it was cancelled".to_owned(), "nothing".to_owned(), vec![])
        }
        (TaskStatus::InProgress, _) => {
            let who = owner.map_or("nobody", |owner| owner.as_str());
            let doing = sight.member(who).map(|member| sight.state(member).as_str()).unwrap_or("unknown");
            let why = format!("claimed by {who}, who is {doing}");
            ("claimed", why, format!("{who} completes or releases it"), vec![format!("posthouse why {who}")])
        }
        (TaskStatus::Pending, Some(hold)) => {
            let then = "nothing, until a person releases it".to_owned();
            ("on_hold", hold.clone(), then, vec![format!("posthouse task release {id}")])
        }
        (TaskStatus::Pending, None) if !open.is_empty() => {
            let why = format!("waits for {}", open.join(", "));
            let next = open.iter().map(|id| format!("posthouse why {id}")).collect();
            ("blocked", why, "it can be claimed when they are completed".to_owned(), next)
        }
        (TaskStatus::Pending, None) => match owner {
            Some(owner) => {
                let then = format!("{owner} claims it when it is idle");
                ("assigned", format!("assigned to {owner}"), then, vec![format!("posthouse why {owner}")])
            }
            None => {
                let role = task.role.as_ref().map(|role| format!(" of role {role}")).unwrap_or_default();
                let then = format!("a teammate{role} that claims by itself takes it when idle");
                ("unclaimed", "nobody has claimed it".to_owned(), then, vec!["posthouse ps".to_owned()])
            }
        },
    };
    WhyReply {
        thing: format!("task/{id}"),
        state: task.status.as_str().to_owned(),
        code: code.to_owned(),
        why,
        since: Some(task.updated_at),
        then,
        next,
    }
}

/// Why a message is where it is. `recipient` is absent where the mailbox is in the attic.
pub fn message(sight: &Sight<'_>, trace: &TraceReply, recipient: Option<&Member>) -> WhyReply {
    let id: MessageId = trace.id;
    let name = recipient.map_or("its recipient", |member| member.name.as_str());
    let (code, why, then, next) = match trace.state {
        Stage::Done => ("done", "its turn has ended".to_owned(), "nothing".to_owned(), vec![]),
        Stage::Dropped => {
            ("dropped", "a person dropped it from quarantine".to_owned(), "nothing".to_owned(), vec![])
        }
        Stage::Quarantined => {
            let why = "it lies in quarantine".to_owned();
            let then = "nothing, until a person redelivers or drops it".to_owned();
            let next = vec![
                format!("posthouse quarantine show {id}"),
                format!("posthouse quarantine redeliver {id}"),
            ];
            ("quarantined", why, then, next)
        }
        Stage::Processing => {
            let then = "it is done when the turn ends".to_owned();
            ("in_turn", format!("{name} is at it"), then, vec![format!("posthouse log {name} -f")])
        }
        Stage::Accepted | Stage::Stored | Stage::Released => {
            let agent = recipient.map(|member| agent(sight, member));
            match agent {
                Some(agent) if matches!(agent.code.as_str(), "stopped" | "failed" | "person") => {
                    ("held", format!("{name}: {}", agent.why), agent.then, agent.next)
                }
                Some(agent) if matches!(agent.code.as_str(), "in_turn" | "waiting") => {
                    let then = format!("{name} reads it when its turn ends");
                    ("behind_turn", format!("{name} is {}", agent.why), then, agent.next)
                }
                Some(_) | None => {
                    let then = format!("{name} claims it next");
                    ("ready", "it is stored and about to be claimed".to_owned(), then, vec![])
                }
            }
        }
    };
    WhyReply {
        thing: format!("message/{id}"),
        state: format!("{:?}", trace.state).to_lowercase(),
        code: code.to_owned(),
        why,
        since: trace.since,
        then,
        next,
    }
}

/// Why a host is seen as it is.
pub fn host(host: &HostView) -> WhyReply {
    let (why, then) = match host.state {
        HostState::Up => ("its beats arrive", "nothing needs to happen"),
        HostState::Draining => ("it takes no new turns", "it ends when its running turns have"),
        HostState::Unreachable => ("it is silent", "it is lost if it stays so"),
        HostState::Lost => {
            ("it was silent for too long", "its tasks were released; its teammates move after rehome_after")
        }
        HostState::Unknown => ("the bus is away", "nothing is decided until it is back"),
    };
    WhyReply {
        thing: format!("host/{}", host.name),
        state: host.state.as_str().to_owned(),
        code: host.state.as_str().to_owned(),
        why: why.to_owned(),
        since: Some(host.since),
        then: then.to_owned(),
        next: vec!["posthouse hosts ls".to_owned()],
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::{member, sight};
    use super::*;
    use posthouse_shared::name::TeamName;
    use posthouse_shared::team::{Standing, TeamConfig};

    #[test]
    fn a_blocked_task_names_what_it_waits_for_and_a_held_one_its_reason() {
        let (team, config) = (TeamName::new("main").unwrap(), TeamConfig::default());
        let mut blocked = super::super::tests::task("report", TaskStatus::Pending);
        blocked.blocked_by = vec!["size".parse().unwrap(), "links".parse().unwrap()];
        let mut held = super::super::tests::task("links", TaskStatus::Pending);
        held.hold = Some("failed 5 times".to_owned());
        let tasks = [super::super::tests::task("size", TaskStatus::Completed), held, blocked];
        let members = [member("a", Standing::Stopped)];
        let sight = sight(&team, &config, &members, &tasks);
        assert_eq!(task(&sight, &tasks[2]).why, "waits for links");
        assert_eq!(
            (task(&sight, &tasks[1]).code.as_str(), task(&sight, &tasks[1]).why.as_str()),
            ("on_hold", "failed 5 times")
        );
        assert_eq!(agent(&sight, &members[0]).code, "idle", "what it last said of itself");
    }
}
