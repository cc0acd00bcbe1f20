//! What a fresh lead needs to go on: team, members, open tasks, unread mail, as text to paste.

use std::fmt::Write as _;

use posthouse_shared::task::TaskStatus;
use posthouse_shared::wire::replies::MessageView;

use super::{Sight, ago, count};

/// Tasks and messages that are listed one by one; the rest is counted.
const LISTED: usize = 50;
/// Characters of a result or a body that are shown.
const SHOWN: usize = 200;

/// The brief. `unread` is what lies in the lead's mailbox, in order.
pub fn brief(sight: &Sight<'_>, unread: &[MessageView], more: u64) -> String {
    let mut out = String::new();
    let mut line = |text: String| {
        let _infallible = writeln!(out, "{text}");
    };
    line(format!("You lead team {}.", sight.team));
    if let Some(goal) = &sight.config.goal {
        line(format!("Goal: {goal}"));
    }
    line("\nTeammates:".to_owned());
    for member in sight.members.iter().filter(|member| !member.name.is_lead()) {
        let role = member.spec.as_ref().and_then(|spec| spec.role.as_ref());
        let role = role.map(|role| format!(" ({role})")).unwrap_or_default();
        let mail = sight.mail_of(member);
        let state = sight.state(member).as_str();
        let for_long = ago(sight.now.since(sight.since(member)));
        let doing = sight.live.get(&member.name).map(|seen| seen.report.doing.as_str()).unwrap_or_default();
        let quarantined = if mail.quarantined > 0 {
            format!(", {} in quarantine", mail.quarantined)
        } else {
            String::new()
        };
        line(format!(
            "- {}{role} on {}: {state} for {for_long}, {}{quarantined}. {doing}",
            member.name,
            member.host,
            count(mail.ready, "unread message"),
        ));
    }
    let open: Vec<_> = sight.tasks.iter().filter(|task| !task.status.is_ended()).collect();
    let ended = sight.tasks.len().saturating_sub(open.len());
    line(format!("\nOpen tasks: {} ({ended} ended).", open.len()));
    for task in open.iter().take(LISTED) {
        let owner = task.owner.as_ref().map(|owner| format!(", {owner}")).unwrap_or_default();
        let blockers: Vec<&str> = task.blocked_by.iter().map(|id| id.as_str()).collect();
        let waits = match (task.status, blockers.is_empty()) {
            (TaskStatus::Pending, false) => format!(", after {}", blockers.join(" ")),
            _ => String::new(),
        };
        let hold = task.hold.as_ref().map(|hold| format!(", on hold: {hold}")).unwrap_or_default();
        line(format!("- {} [{}{owner}{waits}{hold}] {}", task.id, task.status.as_str(), task.subject));
    }
    if open.len() > LISTED {
        line(format!("- and {} more: posthouse task ls", open.len() - LISTED));
    }
    line(format!("\nUnread mail: {}.", count(u64::try_from(unread.len()).unwrap_or(0) + more, "message")));
    for message in unread.iter().take(LISTED) {
        let text = message.summary.as_deref().unwrap_or(&message.body);
        line(format!("- {} {} from {}: {}", message.created_at, message.kind, message.from, short(text)));
    }
    line(
        "\nRead and acknowledge it: posthouse inbox. Hand out work: posthouse task add, posthouse send."
            .to_owned(),
    );
    out
}

/// The first line, at most [`SHOWN`] characters, and whether there is more.
fn short(text: &str) -> String {
    let first = text.lines().next().unwrap_or_default();
    let cut: String = first.chars().take(SHOWN).collect();
    if cut.len() < text.trim_end().len() { format!("{cut} ...") } else { cut }
}
