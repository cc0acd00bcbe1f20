//! The one read model: pure functions over what is known of a team at one moment. CLI, HTTP and whoever else
//! asks only print what is made here. A state is a fact; *quiet for 11m* is an observation and called so.

pub mod agents;
pub mod attention;
pub mod brief;
pub mod settled;
pub mod wait;
pub mod why;

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use posthouse_shared::clock::Stamp;
use posthouse_shared::name::{AgentName, TeamName};
use posthouse_shared::task::Task;
use posthouse_shared::team::{AgentState, Member, Standing, TeamConfig};

use crate::live::Seen;

/// How many messages of one mailbox are where.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Mail {
    /// Waiting.
    pub ready: u64,
    /// In a turn, or handed out to a person.
    pub processing: u64,
    /// Their turn has ended.
    pub done: u64,
    /// In quarantine.
    pub quarantined: u64,
}

/// All that is known of one team at one moment.
#[derive(Debug, Clone)]
pub struct Sight<'a> {
    /// The moment.
    pub now: Stamp,
    /// The team.
    pub team: &'a TeamName,
    /// How it works.
    pub config: &'a TeamConfig,
    /// Its members, the lead included.
    pub members: Vec<&'a Member>,
    /// Its board, in the order the tasks were made.
    pub tasks: Vec<&'a Task>,
    /// Their mail.
    pub mail: BTreeMap<AgentName, Mail>,
    /// Their last words.
    pub live: BTreeMap<AgentName, Seen>,
    /// Members for whom the board has a task: one that they hold, or may take now.
    pub claimable: BTreeSet<AgentName>,
    /// Whether decisions are on their way to teammates that have not arrived there.
    pub under_way: bool,
}

impl<'a> Sight<'a> {
    /// One member.
    pub fn member(&self, name: &str) -> Option<&'a Member> {
        self.members.iter().copied().find(|member| member.name.as_str() == name)
    }

    /// One task.
    pub fn task(&self, id: &str) -> Option<&'a Task> {
        self.tasks.iter().copied().find(|task| task.id.as_str() == id)
    }

    /// One member's mail.
    pub fn mail_of(&self, member: &Member) -> Mail {
        self.mail.get(&member.name).copied().unwrap_or_default()
    }

    /// What a member does: what was decided where that ends the matter, else its own last word, else what
    /// was decided.
    pub fn state(&self, member: &Member) -> AgentState {
        match (member.standing, self.live.get(&member.name)) {
            (Standing::Shutdown, _) => AgentState::Shutdown,
            (Standing::Active | Standing::Stopped | Standing::Failed, Some(seen)) => seen.report.state,
            (Standing::Active, None) => AgentState::Idle,
            (Standing::Stopped, None) => AgentState::Stopped,
            (Standing::Failed, None) => AgentState::Failed,
        }
    }

    /// Since when.
    pub fn since(&self, member: &Member) -> Stamp {
        match (member.standing, self.live.get(&member.name)) {
            (Standing::Shutdown, _) | (_, None) => member.since,
            (_, Some(seen)) => seen.since,
        }
    }

    /// Whether a program of ours is behind this member (a lead may be a person).
    pub fn is_run(member: &Member) -> bool {
        member.spec.is_some()
    }
}

/// A duration as people read it: `41s`, `2m48s`, `18m`, `3h05m`, `4d`.
pub fn ago(span: Duration) -> String {
    let s = span.as_secs();
    match s {
        0..60 => format!("{s}s"),
        60..600 => format!("{}m{:02}s", s / 60, s % 60),
        600..3_600 => format!("{}m", s / 60),
        3_600..86_400 => format!("{}h{:02}m", s / 3_600, s / 60 % 60),
        _ => format!("{}d", s / 86_400),
    }
}

/// `1 message`, `2 messages`.
pub fn count(n: u64, what: &str) -> String {
    format!("{n} {what}{}", if n == 1 { "" } else { "s" })
}

#[cfg(test)]
pub mod tests {
    //! A small team for the tests of the rooms beside this one.

    use super::*;
    use posthouse_node::port::Report;
    use posthouse_shared::generation::Generation;
    use posthouse_shared::name::HostName;
    use posthouse_shared::task::TaskStatus;
    use posthouse_shared::team::{MemberSpec, RunnerSpec};

    /// A moment.
    pub const NOW: Stamp = Stamp::from_nanos(1_000_000_000_000);

    /// A teammate that runs a command.
    pub fn member(name: &str, standing: Standing) -> Member {
        let name = AgentName::new(name).unwrap();
        let spec = MemberSpec {
            name: name.clone(),
            role: None,
            model: None,
            color: None,
            cwd: "/tmp".into(),
            runner: RunnerSpec::Command { command: vec!["true".to_owned()] },
            prompt: String::new(),
            self_claim: true,
            host: None,
            labels: BTreeMap::new(),
        };
        let first = Generation::new(1, 2);
        Member {
            spec: (!name.is_lead()).then_some(spec),
            name,
            birth: first,
            generation: first,
            host: HostName::new("alpha").unwrap(),
            session: None,
            standing,
            commanded: first,
            since: Stamp::from_nanos(NOW.nanos() - 60_000_000_000),
        }
    }

    /// A task without blockers.
    pub fn task(id: &str, status: TaskStatus) -> Task {
        Task {
            id: id.parse().unwrap(),
            subject: format!("do {id}"),
            description: String::new(),
            active_form: None,
            status,
            owner: None,
            generation: None,
            blocked_by: Vec::new(),
            blocks: Vec::new(),
            role: None,
            result: None,
            attempts: 0,
            hold: None,
            metadata: serde_json::Map::new(),
            created_at: NOW,
            updated_at: NOW,
        }
    }

    /// A last word.
    pub fn seen(state: AgentState, seconds_ago: u64) -> Seen {
        let since = Stamp::from_nanos(NOW.nanos() - seconds_ago * 1_000_000_000);
        let report = Report {
            generation: Generation::default(),
            state,
            turn: 3,
            attempt: 1,
            task: None,
            doing: "2 messages".to_owned(),
        };
        Seen { report, since, last: since }
    }

    /// A team of these.
    pub fn sight<'a>(
        team: &'a TeamName,
        config: &'a TeamConfig,
        members: &'a [Member],
        tasks: &'a [Task],
    ) -> Sight<'a> {
        let live = members
            .iter()
            .filter(|member| member.spec.is_some())
            .map(|member| (member.name.clone(), seen(AgentState::Idle, 5)))
            .collect();
        Sight {
            now: NOW,
            team,
            config,
            members: members.iter().collect(),
            tasks: tasks.iter().collect(),
            mail: BTreeMap::new(),
            live,
            claimable: BTreeSet::new(),
            under_way: false,
        }
    }

    #[test]
    fn spans_are_read_at_a_glance() {
        let spans = [41, 168, 1_100, 11_100, 400_000].map(|s| ago(Duration::from_secs(s)));
        assert_eq!(spans, ["41s", "2m48s", "18m", "3h05m", "4d"]);
    }
}
