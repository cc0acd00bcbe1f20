//! Commands that need no coordinator: `config`, `explain`, `init`, `completions`, `man`, `team check`.

use std::io::Write;
use std::path::Path;

use clap::CommandFactory;
use posthouse_shared::codes::Code;
use posthouse_shared::refusal::{Refusal, closest};
use posthouse_shared::wire::replies::{ConfigReply, Setting};
use posthouse_shared::wire::requests::Request;
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

/// `config`: the settings of this command line, and where a coordinator answers, those that it goes by.
pub async fn config(session: &mut Session<'_>) -> Result<u8, Ended> {
    let mut settings = session.config.settings();
    let mut document = json!({ "v": 1 });
    let known = session.config.socket.is_some()
        || session.config.url.is_some()
        || crate::data::holder(&session.config.data.value).is_some();
    if known {
        match session.ask::<ConfigReply>(&Request::Config {}).await {
            Ok(reply) => {
                document = json!({ "v": 1, "as_of": reply.answer.as_of });
                overlay(&mut settings, reply.answer.reply.settings);
            }
            Err(ended) => session.note(&format!("only the settings of this command line: {ended}")),
        }
    }
    let mut table = Table::new(vec!["SETTING", "VALUE", "UNIT", "FROM"], "");
    for one in &settings {
        let row = [&one.name, &one.value, &one.unit, &one.origin];
        table.row(row.map(|text| text.as_str().into()).into());
    }
    let text = table.render(&session.look(ListFormat::Table).terminal);
    if let Some(fields) = document.as_object_mut() {
        fields.insert("settings".to_owned(), json!(settings));
    }
    session.document(&document, &text)?;
    Ok(0)
}

/// Puts the coordinator's settings over this command line's, but for those that only the latter goes by.
fn overlay(settings: &mut Vec<Setting>, theirs: Vec<Setting>) {
    const OWN: &[&str] = &["url", "team"];
    let bare = |name: &str| name.trim_start_matches("limits.").to_owned();
    for their in theirs {
        if OWN.contains(&their.name.as_str()) {
            continue;
        }
        match settings.iter_mut().find(|own| bare(&own.name) == bare(&their.name)) {
            Some(own) => {
                *own = Setting {
                    name: own.name.clone(),
                    origin: format!("coordinator: {}", their.origin),
                    ..their
                };
            }
            None => settings.push(their),
        }
    }
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
