//! What waits for a person, sorted by what waits behind it, then by age.

use posthouse_shared::task::TaskStatus;
use posthouse_shared::team::{AgentState, HostState};
use posthouse_shared::wire::replies::{Attention, HostView, Quarantined};

use super::{Sight, why};

/// All of one team.
pub fn team(sight: &Sight<'_>, quarantined: &[Quarantined]) -> Vec<Attention> {
    let mut found = Vec::new();
    for member in sight.members.iter().filter(|member| Sight::is_run(member)) {
        let state = sight.state(member);
        if !matches!(state, AgentState::Failed | AgentState::Waiting) {
            continue;
        }
        let reason = why::agent(sight, member);
        found.push(Attention {
            thing: reason.thing,
            team: Some(sight.team.clone()),
            sort: state.as_str().to_owned(),
            what: format!("{}: {}", member.name, reason.why),
            since: sight.since(member),
            behind: sight.mail_of(member).ready,
            next: reason.next,
        });
    }
    for task in sight.tasks.iter().filter(|task| task.status == TaskStatus::Pending) {
        let Some(hold) = &task.hold else { continue };
        found.push(Attention {
            thing: format!("task/{}", task.id),
            team: Some(sight.team.clone()),
            sort: "on_hold".to_owned(),
            what: format!("task {} is on hold: {hold}", task.id),
            since: task.updated_at,
            behind: u64::try_from(task.blocks.len()).unwrap_or(u64::MAX),
            next: vec![format!("posthouse task release {}", task.id)],
        });
    }
    for entry in quarantined {
        found.push(Attention {
            thing: format!("message/{}", entry.id),
            team: Some(entry.team.clone()),
            sort: "quarantine".to_owned(),
            what: format!("{}: {}", entry.agent, entry.reason),
            since: entry.since,
            behind: 0,
            next: vec![
                format!("posthouse quarantine show {}", entry.id),
                format!("posthouse quarantine redeliver {}", entry.id),
                format!("posthouse quarantine drop {}", entry.id),
            ],
        });
    }
    found
}

/// Hosts that are not seen.
pub fn hosts(hosts: &[HostView]) -> Vec<Attention> {
    let silent = |host: &&HostView| matches!(host.state, HostState::Lost | HostState::Unreachable);
    hosts
        .iter()
        .filter(silent)
        .map(|host| Attention {
            thing: format!("host/{}", host.name),
            team: None,
            sort: "host".to_owned(),
            what: format!("host {} is {}", host.name, host.state.as_str()),
            since: host.since,
            behind: host.agents,
            next: vec![format!("posthouse why {}", host.name)],
        })
        .collect()
}

/// Most behind it first, then oldest.
pub fn sort(found: &mut [Attention]) {
    found.sort_by(|a, b| b.behind.cmp(&a.behind).then(a.since.cmp(&b.since)).then(a.thing.cmp(&b.thing)));
}
