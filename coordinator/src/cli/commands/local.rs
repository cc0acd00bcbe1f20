//! Commands that need no coordinator: `config`, `explain`, `init`, `completions`, `man`, `team check`.

use std::io::Write;
use std::path::Path;

use clap::CommandFactory;
use posthouse_shared::codes::Code;
use posthouse_shared::refusal::{Refusal, closest};
use serde_json::json;

use crate::cli::args::{Cli, CompletionsArgs, ExplainArgs, InitArgs, ListFormat};
use crate::cli::failure::Ended;
use crate::cli::table::Table;
use crate::cli::typed;
use crate::cli::world::{Session, World};
use crate::config::{Config, Environment};
use crate::team_file::{Source, TeamFile};

const TEMPLATE: &str = include_str!("../init.toml");

/// How a team file is read for this command line.
pub fn source(file: &Path, set: Vec<(String, String)>, environment: &Environment, config: &Config) -> Source {
    Source {
        shown: file.display().to_string(),
        path: typed(file, environment),
        typed_in: environment.cwd().to_owned(),
        set,
        rehome_after_ms: config.limits.rehome_after_ms,
    }
}

/// `team check FILE`
pub fn check(session: &mut Session<'_>, file: &Path, set: Vec<(String, String)>) -> Result<u8, Ended> {
    let source = source(file, set, &session.world.environment, &session.config);
    let file = TeamFile::read(&source)?;
    let count = |count: usize, one: &str, many: &str| {
        super::plural(u64::try_from(count).unwrap_or(u64::MAX), one, many)
    };
    let text = format!(
        "{} is good: team {}, {}, {}, {}\n",
        source.shown,
        file.name,
        count(file.members.len(), "member", "members"),
        count(file.tasks.len(), "task", "tasks"),
        count(file.schedules.len(), "schedule", "schedules"),
    );
    let document = json!({
        "v": 1, "file": source.shown, "team": file.name, "digest": file.config.file_digest,
        "members": file.members.len(), "tasks": file.tasks.len(), "schedules": file.schedules.len(),
    });
    session.document(&document, &text)?;
    Ok(0)
}

/// `config`
pub fn config(session: &mut Session<'_>) -> Result<u8, Ended> {
    let settings = session.config.settings();
    let mut table = Table::new(vec!["SETTING", "VALUE", "UNIT", "FROM"], "");
    for one in &settings {
        let row = [&one.name, &one.value, &one.unit, &one.origin];
        table.row(row.map(|text| text.as_str().into()).into());
    }
    let text = table.render(&session.look(ListFormat::Table).terminal);
    session.document(&json!({ "v": 1, "settings": settings }), &text)?;
    Ok(0)
}

/// `explain CODE`
pub fn explain(world: &mut World, json: bool, args: &ExplainArgs) -> Result<u8, Ended> {
    let code: Code =
        args.code.to_ascii_uppercase().parse().map_err(|error: posthouse_shared::codes::CodeError| {
            let all: Vec<String> = Code::ALL.iter().map(ToString::to_string).collect();
            let mut refusal = Refusal::new(Code::UnknownCode, error.to_string());
            refusal.closest = closest(&args.code, all.iter().map(|code| (code.as_str(), None)));
            refusal.next("posthouse explain PH0001")
        })?;
    let exit = code.kind().exit_code();
    let document = json!({
        "v": 1, "code": code, "kind": code.kind(), "title": code.title(), "explain": code.explain(), "exit_code": exit,
    });
    let text = format!("{code}: {}\n\n{}\n\nexit code {exit}\n", code.title(), code.explain());
    print(world, json, &document, &text)
}

/// `init [FILE]`. Never overwrites.
pub fn init(session: &mut Session<'_>, args: &InitArgs) -> Result<u8, Ended> {
    let shown = args.file.display().to_string();
    let path = typed(&args.file, &session.world.environment);
    let written =
        std::fs::OpenOptions::new().write(true).create_new(true).open(&path).and_then(|mut file| {
            file.write_all(TEMPLATE.as_bytes())?;
            file.sync_all()
        });
    if let Err(error) = written {
        let refusal = if error.kind() == std::io::ErrorKind::AlreadyExists {
            Refusal::new(Code::BadRequest, format!("{shown} is there already"))
                .effect("it was not changed")
                .next("posthouse init OTHER.toml")
        } else {
            Refusal::new(Code::BadRequest, format!("cannot write {shown}")).because(&error)
        };
        return Err(refusal.into());
    }
    let text = format!("wrote {shown}\nrun it: posthouse run {shown}\n");
    session.document(&json!({ "v": 1, "file": shown }), &text)?;
    Ok(0)
}

/// `completions SHELL`
pub fn completions(world: &mut World, json: bool, args: &CompletionsArgs) -> Result<u8, Ended> {
    let mut script = Vec::new();
    clap_complete::generate(args.shell, &mut Cli::command(), "posthouse", &mut script);
    let script = String::from_utf8_lossy(&script).into_owned();
    print(world, json, &json!({ "v": 1, "shell": args.shell.to_string(), "script": script }), &script)
}

/// `man`
pub fn man(world: &mut World, json: bool) -> Result<u8, Ended> {
    let mut page = Vec::new();
    clap_mangen::Man::new(Cli::command()).render(&mut page).map_err(Ended::Output)?;
    let page = String::from_utf8_lossy(&page).into_owned();
    print(world, json, &json!({ "v": 1, "man": page }), &page)
}

fn print(world: &mut World, json: bool, document: &serde_json::Value, text: &str) -> Result<u8, Ended> {
    let text = if json { format!("{document}\n") } else { text.to_owned() };
    world.stdout.write_all(text.as_bytes()).and_then(|()| world.stdout.flush()).map_err(Ended::Output)?;
    Ok(0)
}
