//! The order of checks: variables, team, lead, members, tasks, schedules, then what they say of each other.

use std::path::Path;

use posthouse_shared::name::TeamName;
use posthouse_shared::team::TeamConfig;
use toml::de::{DeTable, DeValue};

use super::reader::{Reader, Section, did_you_mean};
use super::{Diagnostics, Source, TeamFile, members, work};
use crate::config::absolute;
use posthouse_shared::quantity::duration_ms;

const SECTIONS: &[&str] = &["team", "vars", "lead", "member", "task", "schedule"];
const TEAM: &[&str] = &["name", "goal", "rehome_after", "busy_check"];

pub(super) fn team_file(text: &str, source: &Source) -> Result<TeamFile, Diagnostics> {
    let mut reader = Reader::new(text);
    let file = match DeTable::parse(text) {
        Ok(document) => {
            let root = Section { table: document.get_ref(), span: 0..0, what: "the team file".to_owned() };
            read(&mut reader, &root, source)
        }
        Err(error) => {
            let span = error.span().unwrap_or(0..0);
            reader.wrong(span, error.message(), "", None);
            None
        }
    };
    match file {
        Some(file) if reader.problems.is_empty() => Ok(file.with_digest()),
        Some(_) | None => {
            let mut list = reader.problems;
            list.sort_by_key(|one| (one.span.start, one.span.end));
            Err(Diagnostics { file: source.shown.clone(), source: text.to_owned(), list })
        }
    }
}

fn read(reader: &mut Reader<'_>, root: &Section<'_>, source: &Source) -> Option<TeamFile> {
    reader.only(root, SECTIONS);
    variables(reader, root, source);
    let team = team(reader, root, source);
    let lead = members::lead(reader, root, source);
    let members = members::all(reader, root, source);
    let tasks = work::tasks(reader, root, &members, lead.is_some());
    let schedules = work::schedules(reader, root, &members);
    unused_settings(reader, source);
    let (name, config) = team?;
    let members = members.specs;
    Some(TeamFile { name, config, lead, members, tasks, schedules, vars: reader.vars.clone() })
}

/// `[vars]`, with `--set` over it. A variable is text, or `{ path = "..." }`.
fn variables(reader: &mut Reader<'_>, root: &Section<'_>, source: &Source) {
    let set =
        |name: &str| source.set.iter().rev().find(|(key, _)| key == name).map(|(_, value)| value.clone());
    if let Some(vars) = reader.table(root, "vars", "[vars]") {
        for (key, value) in vars.table {
            let name = key.get_ref().as_ref();
            let given = set(name);
            let resolved = match value.get_ref() {
                DeValue::String(text) => Some(given.unwrap_or_else(|| text.to_string())),
                DeValue::Integer(number) => Some(given.unwrap_or_else(|| number.to_string())),
                DeValue::Boolean(yes) => Some(given.unwrap_or_else(|| yes.to_string())),
                DeValue::Table(table) => path_variable(table, given, source),
                DeValue::Float(_) | DeValue::Datetime(_) | DeValue::Array(_) => None,
            };
            match resolved {
                Some(text) => {
                    reader.vars.insert(name.to_owned(), text);
                }
                None => {
                    let label = "write \"text\" or { path = \"...\" }";
                    reader.wrong(
                        value.span(),
                        format!("variable {name:?} is neither text nor a path"),
                        label,
                        None,
                    );
                }
            }
        }
    }
    for (name, value) in &source.set {
        reader.vars.entry(name.clone()).or_insert_with(|| value.clone());
    }
}

fn path_variable(table: &DeTable<'_>, given: Option<String>, source: &Source) -> Option<String> {
    let mut keys = table.iter();
    let (key, value) = keys.next()?;
    if key.get_ref() != "path" || keys.next().is_some() {
        return None;
    }
    let default = value.get_ref().as_str()?;
    let path = match given {
        Some(given) => absolute(Path::new(&given), &source.typed_in),
        None => absolute(Path::new(default), source.dir()),
    };
    Some(path.to_string_lossy().into_owned())
}

/// A `--set` that changes nothing is most likely mistyped.
fn unused_settings(reader: &mut Reader<'_>, source: &Source) {
    for (name, _) in &source.set {
        if !reader.used.contains(name) {
            let used = reader.used.clone();
            let near = did_you_mean(name, used.iter().map(String::as_str));
            let note = match used.is_empty() {
                true => "the file uses no variable".to_owned(),
                false => format!("variables used: {}", used.iter().cloned().collect::<Vec<_>>().join(", ")),
            };
            let message = format!("--set {name}: no text of the file uses ${{{name}}}");
            reader.wrong(0..0, message, format!("not used{near}"), Some(note));
        }
    }
}

fn team(reader: &mut Reader<'_>, root: &Section<'_>, source: &Source) -> Option<(TeamName, TeamConfig)> {
    let Some(team) = reader.table(root, "team", "[team]") else {
        if root.get("team").is_none() {
            reader.wrong(0..0, "there is no [team]", "begin with [team] and name = \"...\"", None);
        }
        return None;
    };
    reader.only(&team, TEAM);
    let name = reader.needed(&team, "name");
    let name = reader.name(name, TeamName::new);
    let goal = reader.text(&team, "goal").map(|spot| spot.value);
    let rehome_after_ms = match reader.text(&team, "rehome_after") {
        None => Some(source.rehome_after_ms),
        Some(spot) if spot.value == "never" => None,
        Some(spot) => match duration_ms(&spot.value) {
            Ok(ms) => Some(ms),
            Err(error) => {
                reader.wrong(spot.span, error.to_string(), "a duration, or \"never\"", None);
                None
            }
        },
    };
    let busy_check = reader.boolean(&team, "busy_check", true);
    Some((name?.value, TeamConfig { goal, rehome_after_ms, busy_check, file_digest: None }))
}
