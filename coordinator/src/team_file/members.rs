//! `[lead]` and `[[member]]`.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use posthouse_shared::name::{AgentName, HostName, RoleName};
use posthouse_shared::team::{MemberSpec, RunnerSpec};

use super::Source;
use super::reader::{Reader, Section, Spot, did_you_mean};
use crate::config::absolute;

const LEAD: &[&str] = &[
    "runner",
    "command",
    "cwd",
    "prompt",
    "role",
    "model",
    "color",
    "host",
    "labels",
    "isolation",
    "permissions",
    "agent",
];
const MEMBER: &[&str] = &[
    "name",
    "role",
    "runner",
    "command",
    "cwd",
    "prompt",
    "self_claim",
    "model",
    "color",
    "host",
    "labels",
    "isolation",
    "permissions",
    "agent",
];
/// Names that are never a member's.
const RESERVED: &[&str] = &["lead", "external", "operator"];
const RUNNERS: &[&str] = &["command", "claude", "model", "acp:NAME"];

pub(super) fn lead(reader: &mut Reader<'_>, root: &Section<'_>, source: &Source) -> Option<MemberSpec> {
    let section = reader.table(root, "lead", "[lead]")?;
    reader.only(&section, LEAD);
    member(reader, &section, source, AgentName::lead())
}

/// The members, and what is known of those too that have an error elsewhere: one mistake is told once.
#[derive(Debug, Default)]
pub(super) struct Members {
    pub specs: Vec<MemberSpec>,
    pub names: Vec<AgentName>,
    pub roles: BTreeSet<String>,
}

pub(super) fn all(reader: &mut Reader<'_>, root: &Section<'_>, source: &Source) -> Members {
    let mut members = Members::default();
    for section in reader.tables(root, "member", "name") {
        reader.only(&section, MEMBER);
        let role = section.get("role").and_then(|(_, value)| value.get_ref().as_str());
        members.roles.extend(role.map(str::to_owned));
        let name = reader.needed(&section, "name");
        let Some(name) = reader.name(name, AgentName::new) else {
            continue;
        };
        if RESERVED.contains(&name.value.as_str()) {
            let message = format!("the name {:?} is reserved", name.value.as_str());
            reader.wrong(name.span.clone(), message, "choose another", None);
            continue;
        }
        if members.names.contains(&name.value) {
            let message = format!("there are two members {:?}", name.value.as_str());
            reader.wrong(name.span.clone(), message, "the second one", None);
            continue;
        }
        members.names.push(name.value.clone());
        let spec = member(reader, &section, source, name.value);
        members.roles.extend(spec.iter().filter_map(|one| one.role.as_ref()).map(ToString::to_string));
        members.specs.extend(spec);
    }
    members
}

fn member(
    reader: &mut Reader<'_>,
    section: &Section<'_>,
    source: &Source,
    name: AgentName,
) -> Option<MemberSpec> {
    not_yet(reader, section);
    let cwd = working_directory(reader, section, source);
    let runner = runner(reader, section, source);
    let prompt = reader.needed(section, "prompt").map(|spot| spot.value);
    let role = reader.text(section, "role");
    let role = reader.name(role, RoleName::new).map(|spot| spot.value);
    let host = reader.text(section, "host");
    let host = reader.name(host, HostName::new).map(|spot| spot.value);
    let mut text = |key| reader.text(section, key).map(|spot| spot.value);
    let (model, color) = (text("model"), text("color"));
    let labels = labels(reader, section);
    let self_claim = reader.boolean(section, "self_claim", false);
    Some(MemberSpec {
        name,
        role,
        model,
        color,
        cwd,
        runner: runner?,
        prompt: prompt?,
        self_claim,
        host,
        labels,
    })
}

/// What a later build does is refused by name, not passed over.
fn not_yet(reader: &mut Reader<'_>, section: &Section<'_>) {
    if let Some(isolation) = reader.text(section, "isolation") {
        match isolation.value.as_str() {
            "none" => {}
            "worktree" => {
                reader.later(isolation.span, "isolation in a worktree", "there is: isolation = \"none\"");
            }
            other => {
                let near = did_you_mean(other, ["none", "worktree"]);
                reader.wrong(
                    isolation.span,
                    format!("unknown isolation {other:?}"),
                    format!("none or worktree{near}"),
                    None,
                );
            }
        }
    }
    for key in ["permissions", "agent"] {
        if let Some((at, _)) = section.get(key) {
            let message = format!("{}: {key} belongs to runners of models", section.what);
            reader.later(at, message, "there is: runner = \"command\", which has none of this");
        }
    }
}

fn labels(reader: &mut Reader<'_>, section: &Section<'_>) -> BTreeMap<String, String> {
    let what = format!("labels of {}", section.what);
    let Some(labels) = reader.table(section, "labels", &what) else { return BTreeMap::new() };
    let keys: Vec<String> = labels.table.iter().map(|(key, _)| key.get_ref().to_string()).collect();
    keys.into_iter().filter_map(|key| reader.text(&labels, &key).map(|spot| (key, spot.value))).collect()
}

fn working_directory(reader: &mut Reader<'_>, section: &Section<'_>, source: &Source) -> PathBuf {
    let Some(cwd) = reader.text(section, "cwd") else { return source.dir().to_owned() };
    let path = absolute(Path::new(&cwd.value), source.dir());
    // A teammate that may live elsewhere has its directory there.
    let here = section.get("host").is_none() && section.get("labels").is_none();
    if here && !path.is_dir() {
        let note = format!("cwd is relative to the team file: {}", path.display());
        reader.wrong(
            cwd.span,
            format!("{}: no directory {:?}", section.what, cwd.value),
            "not a directory",
            Some(note),
        );
    }
    path
}

fn runner(reader: &mut Reader<'_>, section: &Section<'_>, source: &Source) -> Option<RunnerSpec> {
    let runner = reader.needed(section, "runner")?;
    match runner.value.as_str() {
        "command" => command(reader, section, source),
        later if matches!(later, "claude" | "model") || later.starts_with("acp:") => {
            reader.later(runner.span, format!("the runner {later:?}"), "there is: runner = \"command\"");
            None
        }
        other => {
            let label = format!("unknown runner{}", did_you_mean(other, RUNNERS.iter().copied()));
            let note = Some("in this build: command".to_owned());
            reader.wrong(runner.span, format!("no runner {other:?}"), label, note);
            None
        }
    }
}

fn command(reader: &mut Reader<'_>, section: &Section<'_>, source: &Source) -> Option<RunnerSpec> {
    if section.get("command").is_none() {
        let message = format!("{} has no command", section.what);
        reader.wrong(section.span.clone(), message, "command = [\"PROGRAM\", \"ARGUMENT\"] is missing", None);
        return None;
    }
    let words = reader.texts(section, "command")?;
    let Some((program, arguments)) = words.split_first() else {
        let (at, _) = section.get("command")?;
        reader.wrong(at, format!("{}: the command is empty", section.what), "a program is missing", None);
        return None;
    };
    let program = program_path(reader, section, program, source)?;
    let mut command = vec![program];
    command.extend(arguments.iter().map(|spot| spot.value.clone()));
    Some(RunnerSpec::Command { command })
}

/// A program without a slash is left to PATH. One with a slash is looked for beside the team file and in each
/// directory above.
fn program_path(
    reader: &mut Reader<'_>,
    section: &Section<'_>,
    program: &Spot<String>,
    source: &Source,
) -> Option<String> {
    if program.value.is_empty() {
        reader.wrong(
            program.span.clone(),
            format!("{}: the program is empty", section.what),
            "a program is missing",
            None,
        );
        return None;
    }
    let elsewhere = section.get("host").is_some() || section.get("labels").is_some();
    if !program.value.contains('/') || (elsewhere && program.value.starts_with('/')) {
        return Some(program.value.clone());
    }
    let found = source
        .dir()
        .ancestors()
        .map(|dir| absolute(Path::new(&program.value), dir))
        .find(|path| path.is_file());
    let Some(path) = found else {
        let note = format!("looked for in {} and each directory above", source.dir().display());
        let message = format!("{}: no program {:?}", section.what, program.value);
        reader.wrong(program.span.clone(), message, "not found", Some(note));
        return None;
    };
    if rustix::fs::access(&path, rustix::fs::Access::EXEC_OK).is_err() {
        let note = Some(format!("chmod +x {}", path.display()));
        let message = format!("{}: {:?} cannot be run", section.what, program.value);
        reader.wrong(program.span.clone(), message, "not executable", note);
        return None;
    }
    Some(path.to_string_lossy().into_owned())
}
