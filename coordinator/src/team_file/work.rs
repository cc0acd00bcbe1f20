//! `[[task]]` and `[[schedule]]`, and what they say of members and of each other.

use std::collections::{BTreeMap, BTreeSet};

use posthouse_shared::name::{AgentName, RoleName, ScheduleId, TaskId};
use posthouse_shared::task::TaskSpec;
use posthouse_shared::team::{Missed, ScheduleSpec};

use super::members::Members;
use super::reader::{Reader, Section, Spot, did_you_mean};

const TASK: &[&str] = &["id", "subject", "description", "active_form", "role", "blocked_by", "metadata"];
const SCHEDULE: &[&str] = &["id", "cron", "to", "message", "missed"];

/// A task while the references between tasks are not known to be good.
struct Draft {
    spec: TaskSpec,
    id: TaskId,
    blocked_by: Vec<Spot<TaskId>>,
}

/// All tasks, each after those that block it.
pub(super) fn tasks(
    reader: &mut Reader<'_>,
    root: &Section<'_>,
    members: &Members,
    has_lead: bool,
) -> Vec<TaskSpec> {
    let mut drafts: Vec<Draft> = Vec::new();
    for (index, section) in reader.tables(root, "task", "id").into_iter().enumerate() {
        reader.only(&section, TASK);
        let Some(draft) = task(reader, &section, index + 1, members, has_lead) else { continue };
        if drafts.iter().any(|known| known.id == draft.id) {
            let at = section.get("id").map_or(section.span.clone(), |(_, value)| value.span());
            reader.wrong(at, format!("there are two tasks {:?}", draft.id.as_str()), "the second one", None);
            continue;
        }
        drafts.push(draft);
    }
    unknown_blockers(reader, &drafts);
    in_order(reader, drafts)
}

fn task(
    reader: &mut Reader<'_>,
    section: &Section<'_>,
    number: usize,
    members: &Members,
    has_lead: bool,
) -> Option<Draft> {
    let id = match reader.text(section, "id") {
        // Made up from its place, so that the same file gives the same ids again.
        None => TaskId::new(format!("task-{number}")).ok()?,
        given => reader.name(given, TaskId::new)?.value,
    };
    // Kept without one, so that those that wait on it are not told wrong too.
    let subject = reader.needed(section, "subject").map(|spot| spot.value).unwrap_or_default();
    let role = reader.text(section, "role");
    let role = reader.name(role, RoleName::new);
    if let Some(role) = &role {
        known_role(reader, section, role, members, has_lead);
    }
    let mut blocked_by = Vec::new();
    for blocker in reader.texts(section, "blocked_by").unwrap_or_default() {
        blocked_by.extend(reader.name(Some(blocker), TaskId::new));
    }
    let mut text = |key| reader.text(section, key).map(|spot| spot.value);
    let (description, active_form) = (text("description").unwrap_or_default(), text("active_form"));
    let metadata = match section.get("metadata").map(|(_, value)| reader.json(value)) {
        Some(serde_json::Value::Object(fields)) => fields,
        None => serde_json::Map::new(),
        Some(_) => {
            let at = section.get("metadata").map_or(section.span.clone(), |(at, _)| at);
            reader.wrong(
                at,
                format!("{}: metadata is a table", section.what),
                "a table is wanted here",
                None,
            );
            serde_json::Map::new()
        }
    };
    let spec = TaskSpec {
        id: Some(id.clone()),
        subject,
        description,
        active_form,
        blocked_by: blocked_by.iter().map(|spot| spot.value.clone()).collect(),
        role: role.map(|spot| spot.value),
        metadata,
    };
    Some(Draft { spec, id, blocked_by })
}

/// A role that nobody has means a task that nobody ever takes, unless a lead is there who may spawn.
fn known_role(
    reader: &mut Reader<'_>,
    section: &Section<'_>,
    role: &Spot<RoleName>,
    members: &Members,
    has_lead: bool,
) {
    let roles: BTreeSet<&str> = members.roles.iter().map(String::as_str).collect();
    if has_lead || roles.contains(role.value.as_str()) {
        return;
    }
    let near = did_you_mean(role.value.as_str(), roles.iter().copied());
    let note = match roles.is_empty() {
        true => "no member has a role".to_owned(),
        false => format!("roles of members: {}", Vec::from_iter(roles).join(", ")),
    };
    let message =
        format!("{} asks for the role {:?}, which no member has", section.what, role.value.as_str());
    reader.wrong(role.span.clone(), message, format!("nobody would take it{near}"), Some(note));
}

fn unknown_blockers(reader: &mut Reader<'_>, drafts: &[Draft]) {
    let ids: Vec<&str> = drafts.iter().map(|draft| draft.id.as_str()).collect();
    for draft in drafts {
        for blocker in &draft.blocked_by {
            let wanted = blocker.value.as_str();
            if ids.contains(&wanted) {
                continue;
            }
            let others = ids.iter().copied().filter(|id| *id != draft.id.as_str());
            reader.wrong(
                blocker.span.clone(),
                format!("task {:?} waits on {wanted:?}, which is not defined", draft.id.as_str()),
                format!("no task with this id{}", did_you_mean(wanted, others)),
                Some(format!("tasks defined: {}", ids.join(", "))),
            );
        }
    }
}

/// Puts each task after its blockers, keeping the file's order otherwise; says it where they wait in a circle.
fn in_order(reader: &mut Reader<'_>, drafts: Vec<Draft>) -> Vec<TaskSpec> {
    let known: BTreeSet<TaskId> = drafts.iter().map(|draft| draft.id.clone()).collect();
    let mut waiting = drafts;
    let mut placed = BTreeSet::new();
    let mut ordered = Vec::new();
    loop {
        let free = |draft: &Draft| {
            draft.blocked_by.iter().all(|on| placed.contains(&on.value) || !known.contains(&on.value))
        };
        let Some(next) = waiting.iter().position(free) else { break };
        let draft = waiting.remove(next);
        placed.insert(draft.id.clone());
        ordered.push(draft.spec);
    }
    if let Some((circle, span)) = circle(&waiting) {
        let shown = circle.join(" -> ");
        reader.wrong(span, format!("tasks wait in a circle: {shown}"), "closes the circle", None);
    }
    ordered
}

/// One circle among tasks that all wait, from its first task to itself, and the place that closes it.
fn circle(waiting: &[Draft]) -> Option<(Vec<String>, std::ops::Range<usize>)> {
    let by_id: BTreeMap<&TaskId, &Draft> = waiting.iter().map(|draft| (&draft.id, draft)).collect();
    let mut path: Vec<&TaskId> = vec![&waiting.first()?.id];
    loop {
        let last = by_id.get(path.last()?)?;
        let next = last.blocked_by.iter().find(|on| by_id.contains_key(&on.value))?;
        if let Some(at) = path.iter().position(|id| **id == next.value) {
            let mut names: Vec<String> = path.iter().skip(at).map(ToString::to_string).collect();
            names.push(next.value.to_string());
            return Some((names, next.span.clone()));
        }
        path.push(&next.value);
    }
}

/// All schedules.
pub(super) fn schedules(reader: &mut Reader<'_>, root: &Section<'_>, members: &Members) -> Vec<ScheduleSpec> {
    let mut schedules: Vec<ScheduleSpec> = Vec::new();
    for (index, section) in reader.tables(root, "schedule", "id").into_iter().enumerate() {
        reader.only(&section, SCHEDULE);
        let Some(spec) = schedule(reader, &section, index + 1, members) else { continue };
        if schedules.iter().any(|known| known.id == spec.id) {
            let at = section.get("id").map_or(section.span.clone(), |(_, value)| value.span());
            reader.wrong(at, "there are two schedules of this id", "the second one", None);
            continue;
        }
        schedules.push(spec);
    }
    schedules
}

fn schedule(
    reader: &mut Reader<'_>,
    section: &Section<'_>,
    number: usize,
    members: &Members,
) -> Option<ScheduleSpec> {
    let id = match reader.text(section, "id") {
        None => ScheduleId::new(format!("schedule-{number}")).ok()?,
        given => reader.name(given, ScheduleId::new)?.value,
    };
    let cron = reader.needed(section, "cron");
    if let Some(cron) = &cron
        && let Err(error) = cron_expression(&cron.value)
    {
        let note = Some("five fields in UTC: minute hour day month weekday".to_owned());
        reader.wrong(cron.span.clone(), format!("{:?} is not a cron expression", cron.value), error, note);
    }
    let to = reader.needed(section, "to");
    let to = reader.name(to, AgentName::new);
    if let Some(to) = &to {
        known_member(reader, section, to, members);
    }
    let message = reader.needed(section, "message").map(|spot| spot.value);
    let missed = match reader.text(section, "missed") {
        None => Missed::Skip,
        Some(spot) => match spot.value.as_str() {
            "skip" => Missed::Skip,
            "once" => Missed::Once,
            other => {
                let label = format!("skip or once{}", did_you_mean(other, ["skip", "once"]));
                reader.wrong(spot.span, format!("{other:?} is no rule for missed ticks"), label, None);
                Missed::Skip
            }
        },
    };
    Some(ScheduleSpec { id: Some(id), cron: cron?.value, to: to?.value, message: message?, missed })
}

fn known_member(reader: &mut Reader<'_>, section: &Section<'_>, to: &Spot<AgentName>, members: &Members) {
    let mut names: Vec<&str> = members.names.iter().map(AgentName::as_str).collect();
    names.push(posthouse_shared::name::LEAD);
    let wanted = to.value.as_str();
    if !names.contains(&wanted) {
        reader.wrong(
            to.span.clone(),
            format!("{} is for {wanted:?}, who is not defined", section.what),
            format!("no member of this name{}", did_you_mean(wanted, names.iter().copied())),
            Some(format!("members defined: {}", names.join(", "))),
        );
    }
}

/// Whether a text is a cron expression of five fields; the error is for people.
pub(crate) fn cron_expression(text: &str) -> Result<(), String> {
    let fields = text.split_whitespace().count();
    if fields != 5 {
        return Err(format!("{fields} fields, five are wanted"));
    }
    croner::parser::CronParser::builder()
        .seconds(croner::parser::Seconds::Disallowed)
        .build()
        .parse(text)
        .map(|_| ())
        .map_err(|error| error.to_string())
}
