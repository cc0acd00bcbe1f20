//! What `run` would make of a team file: `run --dry-run`. Pure; the text is for people, the JSON is the
//! resolved file itself.

use std::fmt::{self, Write};

use posthouse_shared::team::{MemberSpec, RunnerSpec};
use serde_json::json;

use super::TeamFile;

/// What would be made.
#[derive(Debug, Clone, Copy)]
pub struct Plan<'a>(pub(super) &'a TeamFile);

impl Plan<'_> {
    /// One JSON object.
    pub fn to_json(&self) -> serde_json::Value {
        let file = self.0;
        json!({
            "v": 1, "dry_run": true, "team": file.name, "config": file.config, "lead": file.lead,
            "members": file.members, "tasks": file.tasks, "schedules": file.schedules, "vars": file.vars,
        })
    }
}

impl fmt::Display for Plan<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let file = self.0;
        write!(f, "team {}", file.name)?;
        match &file.config.goal {
            Some(goal) => writeln!(f, ": {goal}")?,
            None => writeln!(f)?,
        }
        if !file.vars.is_empty() {
            f.write_str("\nvariables\n")?;
            for (name, value) in &file.vars {
                writeln!(f, "  {name} = {value}")?;
            }
        }
        f.write_str("\nmembers\n")?;
        match &file.lead {
            Some(lead) => member(f, lead)?,
            None => f.write_str("  lead: you\n")?,
        }
        for one in &file.members {
            member(f, one)?;
        }
        if !file.tasks.is_empty() {
            f.write_str("\ntasks, in this order\n")?;
        }
        for task in &file.tasks {
            let id = task.id.as_ref().map_or("", |id| id.as_str());
            write!(f, "  {id}: {}", task.subject)?;
            if let Some(role) = &task.role {
                write!(f, " (role {role})")?;
            }
            if !task.blocked_by.is_empty() {
                let on: Vec<&str> = task.blocked_by.iter().map(|id| id.as_str()).collect();
                write!(f, ", after {}", on.join(", "))?;
            }
            writeln!(f)?;
        }
        if !file.schedules.is_empty() {
            f.write_str("\nschedules, in UTC\n")?;
        }
        for one in &file.schedules {
            let id = one.id.as_ref().map_or("", |id| id.as_str());
            writeln!(f, "  {id}: {} to {}: {}", one.cron, one.to, one.message)?;
        }
        f.write_str("\nnothing was started\n")
    }
}

fn member(f: &mut fmt::Formatter<'_>, one: &MemberSpec) -> fmt::Result {
    let RunnerSpec::Command { command } = &one.runner;
    let mut line = format!("  {}", one.name);
    if let Some(role) = &one.role {
        write!(line, " (role {role})")?;
    }
    write!(line, ": {}", command.join(" "))?;
    writeln!(
        f,
        "{line}, in {}{}",
        one.cwd.display(),
        if one.self_claim { ", takes tasks by itself" } else { "" }
    )
}
