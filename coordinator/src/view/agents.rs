//! Teammates as `ps` shows them: those that need a person first, then the most recently active.

use std::time::Duration;

use posthouse_shared::team::{AgentState, HostState, Member};
use posthouse_shared::wire::replies::AgentView;

use super::{Sight, ago, count};

/// In a turn without a sign for this long, a teammate is called quiet.
const QUIET: Duration = Duration::from_secs(60);

/// One teammate.
pub fn view(sight: &Sight<'_>, member: &Member, host_state: HostState) -> AgentView {
    let state = sight.state(member);
    let since = sight.since(member);
    let seen = sight.live.get(&member.name);
    let mail = sight.mail_of(member);
    let last = seen.map_or(since, |seen| seen.last);
    let in_turn = matches!(state, AgentState::Running | AgentState::Waiting);
    let silent = sight.now.since(last);
    let quiet = in_turn && state == AgentState::Running && silent >= QUIET;
    let mut doing = seen.map(|seen| seen.report.doing.clone()).unwrap_or_default();
    if quiet {
        doing = format!("{doing} quiet {}", ago(silent)).trim().to_owned();
    }
    let spec = member.spec.as_ref();
    AgentView {
        name: member.name.clone(),
        team: sight.team.clone(),
        host: member.host.clone(),
        state,
        host_state,
        since,
        for_s: sight.now.since(since).as_secs(),
        doing,
        last_s: silent.as_secs(),
        quiet_s: if quiet { silent.as_secs() } else { 0 },
        mail: mail.ready,
        quarantined: mail.quarantined,
        attempt: seen.map_or(0, |seen| seen.report.attempt),
        turn: seen.map_or(0, |seen| seen.report.turn),
        task: seen.filter(|_| in_turn).and_then(|seen| seen.report.task.clone()),
        role: spec.and_then(|spec| spec.role.as_ref()).map(ToString::to_string),
        model: spec.and_then(|spec| spec.model.clone()),
        color: spec.and_then(|spec| spec.color.clone()),
        cwd: spec.map(|spec| spec.cwd.display().to_string()),
        runner: spec.map(|spec| spec.runner.name().to_owned()),
        birth: member.birth,
        generation: member.generation,
        session: member.session.clone(),
        needs: needs(state, mail.quarantined),
    }
}

/// All of a team, in the order of `ps`.
pub fn list(sight: &Sight<'_>, host_state: impl Fn(&Member) -> HostState) -> Vec<AgentView> {
    let mut agents: Vec<AgentView> =
        sight.members.iter().map(|member| view(sight, member, host_state(member))).collect();
    sort(&mut agents);
    agents
}

/// The order of `ps`.
pub fn sort(agents: &mut [AgentView]) {
    agents.sort_by(|a, b| {
        let key =
            |agent: &AgentView| (agent.needs.is_none(), agent.state == AgentState::Shutdown, agent.last_s);
        (key(a), &a.team, &a.name).cmp(&(key(b), &b.team, &b.name))
    });
}

/// When a message to this member will be read, one clause. Mail of the lead ends a stop and a failure.
pub fn reads(sight: &Sight<'_>, member: &Member, of_lead: bool) -> String {
    let name = &member.name;
    if !Sight::is_run(member) {
        return format!("{name} reads it with posthouse inbox");
    }
    let turn = sight.live.get(name).map_or(0, |seen| seen.report.turn);
    match sight.state(member) {
        AgentState::Idle => format!("{name} is idle, reads it now"),
        AgentState::Running => format!("{name} is in turn {turn}, reads it next turn"),
        AgentState::Waiting => format!("{name} waits for an answer in turn {turn}, reads it next turn"),
        AgentState::Stopped | AgentState::Failed if of_lead => {
            format!("{name} is {}, and the lead's mail resumes it", sight.state(member).as_str())
        }
        AgentState::Stopped => format!("{name} is stopped, reads it after posthouse resume {name}"),
        AgentState::Failed => format!("{name} has failed, reads it after posthouse resume {name}"),
        AgentState::Shutdown => format!("{name} is shut down"),
    }
}

fn needs(state: AgentState, quarantined: u64) -> Option<String> {
    match state {
        AgentState::Failed => Some("its last turn failed".to_owned()),
        AgentState::Waiting => Some("it waits for an answer".to_owned()),
        AgentState::Idle | AgentState::Running | AgentState::Stopped if quarantined > 0 => {
            Some(format!("{} in quarantine", count(quarantined, "message")))
        }
        AgentState::Idle | AgentState::Running | AgentState::Stopped | AgentState::Shutdown => None,
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::{member, seen, sight};
    use super::*;
    use posthouse_shared::name::TeamName;
    use posthouse_shared::team::{Standing, TeamConfig};

    #[test]
    fn who_needs_a_person_comes_first_then_the_most_recent() {
        let (team, config) = (TeamName::new("main").unwrap(), TeamConfig::default());
        let members = ["old", "new", "bad"].map(|name| member(name, Standing::Active));
        let mut sight = sight(&team, &config, &members, &[]);
        for (member, state, ago) in
            [(0, AgentState::Running, 660), (1, AgentState::Idle, 2), (2, AgentState::Failed, 999)]
        {
            sight.live.insert(members[member].name.clone(), seen(state, ago));
        }
        let agents = list(&sight, |_| HostState::Up);
        let names: Vec<&str> = agents.iter().map(|agent| agent.name.as_str()).collect();
        assert_eq!(names, ["bad", "new", "old"]);
        assert_eq!((agents[2].doing.as_str(), agents[2].quiet_s), ("2 messages quiet 11m", 660));
        assert_eq!(agents[0].needs.as_deref(), Some("its last turn failed"));
    }

    #[test]
    fn a_sender_is_told_whether_its_mail_wakes_a_stopped_teammate() {
        let (team, config) = (TeamName::new("main").unwrap(), TeamConfig::default());
        let members = [member("a", Standing::Stopped)];
        let mut sight = sight(&team, &config, &members, &[]);
        sight.live.insert(members[0].name.clone(), seen(AgentState::Stopped, 5));
        assert_eq!(reads(&sight, &members[0], true), "a is stopped, and the lead's mail resumes it");
        assert_eq!(reads(&sight, &members[0], false), "a is stopped, reads it after posthouse resume a");
    }
}
