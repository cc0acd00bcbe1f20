//! The command line: parses arguments, sends typed requests, prints what comes back. Promises of
//! `interface.md`: data on stdout and everything else on stderr; with `--json` exactly one document on stdout,
//! on failure too; exit codes 0 ok, 1 failed, 2 usage, 3 refused, 4 unreachable, 5 timed out, 130 and 143 for
//! signals. It decides nothing about teams, tasks or mail, and knows no state beyond what it was answered.
//!
//! The commands that start something (`up`, `run`) are handed to a [`Host`].

pub mod args;
pub mod client;
mod commands;
pub mod failure;
pub mod follow;
pub mod progress;
pub mod table;
pub mod terminal;
pub mod text;
pub mod world;

use std::ffi::OsString;
use std::future::Future;
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;

use clap::Parser;
use posthouse_shared::clock::SystemClock;
use posthouse_shared::codes::Code;
use posthouse_shared::name::HostName;
use posthouse_shared::refusal::Refusal;
use posthouse_shared::wire::Failure;

use crate::config::{Config, Environment, Flags, absolute};
use crate::team_file::TeamFile;
pub use args::Cli;
use args::Command;
pub use client::Client;
use failure::Ended;
pub use terminal::Terminal;
use world::Session;
pub use world::World;

/// `up` or `serve`, ready to be done.
#[derive(Debug)]
pub struct Up {
    /// All settings; `listen` among them.
    pub config: Config,
    /// This host's name where one was given.
    pub name: Option<HostName>,
    /// The NATS servers, for `serve`.
    pub nats: Option<String>,
    /// What placement can ask of this host.
    pub labels: Vec<(String, String)>,
    /// Whether stdout gets JSON.
    pub json: bool,
    /// What the process was started with, for the environment of teammates.
    pub environment: Environment,
}

/// `run`, ready to be done: the file is read and checked.
#[derive(Debug)]
pub struct Run {
    /// All settings. `url` set, or the data directory held: the running coordinator is used.
    pub config: Config,
    /// The team file, resolved.
    pub file: TeamFile,
    /// The file as it was named, for the next command.
    pub shown: String,
    /// Whether an old team of this name is put away.
    pub fresh: bool,
    /// Whether stdout gets one JSON document.
    pub json: bool,
    /// What the streams are.
    pub terminal: Terminal,
    /// What the process was started with, for the environment of teammates.
    pub environment: Environment,
}

/// Does what the command line itself cannot. Answers the exit code; a refusal is printed by the caller.
pub trait Host {
    /// Runs the coordinator until a signal ends it.
    fn up(&self, up: Up) -> Result<u8, Refusal>;
    /// Runs a team file to its end, and prints its report.
    fn run(&self, run: Run) -> Result<u8, Refusal>;
}

/// The whole of `main`: this process's arguments, environment and streams.
pub fn main(host: &dyn Host) -> ExitCode {
    let environment = Environment::of_process();
    let terminal = Terminal::of_process(&environment);
    let mut world = World {
        environment,
        terminal,
        clock: Arc::new(SystemClock),
        stdin: Box::new(std::io::stdin()),
        stdout: Box::new(std::io::stdout()),
        stderr: Box::new(std::io::stderr()),
    };
    ExitCode::from(dispatch(std::env::args_os(), &mut world, host))
}

/// Parses arguments and does the command. Answers the exit code; everything is printed when it returns.
pub fn dispatch(arguments: impl IntoIterator<Item = OsString>, world: &mut World, host: &dyn Host) -> u8 {
    let arguments: Vec<OsString> = arguments.into_iter().collect();
    let cli = match Cli::try_parse_from(&arguments) {
        Ok(cli) => cli,
        Err(error) => return usage(&error, &arguments, world),
    };
    let json = cli.json || commands::wants_json(&cli.command);
    match command(cli, world, host) {
        Ok(code) => code,
        Err(ended) => {
            fail(&ended, json, world);
            ended.exit_code()
        }
    }
}

fn command(cli: Cli, world: &mut World, host: &dyn Host) -> Result<u8, Ended> {
    let flags = Flags {
        data: cli.data,
        listen: cli.command.listen().cloned(),
        nats: cli.command.nats().cloned(),
        team: cli.command.team().and_then(|args| args.team.clone()),
    };
    let config = Config::load(&world.environment, &flags).map_err(|error| Refusal::from(&error));
    // What an error means must be told even where the configuration has one.
    let config = match (&cli.command, config) {
        (Command::Explain(args), _) => return commands::local::explain(world, cli.json, args),
        (Command::Completions(args), _) => return commands::local::completions(world, cli.json, args),
        (Command::Man, _) => return commands::local::man(world, cli.json),
        (_, config) => config?,
    };
    let environment = world.environment.clone();
    let holds_data = matches!(cli.command, Command::Up(_) | Command::Serve(_) | Command::Run(_));
    if holds_data && config.data.value.as_os_str().is_empty() {
        return Err(Refusal::from(&crate::config::ConfigError::NoData).into());
    }
    match cli.command {
        Command::Up(args) => {
            let (nats, labels) = (None, Vec::new());
            Ok(host.up(Up { config, name: args.name, nats, labels, json: cli.json, environment })?)
        }
        Command::Serve(args) => {
            let Some(nats) = config.nats.as_ref().map(|nats| nats.value.clone()) else {
                return Err(Refusal::new(Code::BadRequest, "no NATS server was named")
                    .effect("nothing was started")
                    .next("posthouse serve --nats nats://127.0.0.1:4222")
                    .next("posthouse up      (one host, no NATS)")
                    .into());
            };
            let (name, labels) = (args.up.name, args.label);
            Ok(host.up(Up { config, name, nats: Some(nats), labels, json: cli.json, environment })?)
        }
        Command::Run(args) => {
            let source = commands::local::source(&args.file, args.set, &environment, &config);
            let file = TeamFile::read(&source)?;
            if args.dry_run {
                let mut session = Session { world, config, json: cli.json };
                session.document(&file.plan().to_json(), &file.plan().to_string())?;
                return Ok(0);
            }
            Ok(host.run(Run {
                config,
                file,
                shown: source.shown,
                fresh: args.fresh,
                json: cli.json,
                terminal: world.terminal,
                environment,
            })?)
        }
        other => {
            let mut session = Session { world, config, json: cli.json };
            until_signal(commands::client_command(other, &mut session))
        }
    }
}

/// Runs a command on a runtime of its own, until it ends or a signal does. The signals are watched only after
/// the command first waits, so that one that reads stdin or asks a question ends as any program does.
fn until_signal(command: impl Future<Output = Result<u8, Ended>>) -> Result<u8, Ended> {
    let internal = |error: std::io::Error| Refusal::new(Code::Internal, "start the runtime").because(&error);
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().map_err(internal)?;
    runtime.block_on(async {
        tokio::select! {
            biased;
            ended = command => ended,
            () = interrupted() => Ok(130),
            () = terminated() => Ok(143),
        }
    })
}

async fn interrupted() {
    if tokio::signal::ctrl_c().await.is_err() {
        std::future::pending::<()>().await;
    }
}

async fn terminated() {
    match tokio::signal::unix::signal(tokio::signal::unix::SignalKind::terminate()) {
        Ok(mut signal) => {
            signal.recv().await;
        }
        Err(_) => std::future::pending().await,
    }
}

/// Help and version go to stdout and are no failure; anything else that clap says is a usage error.
fn usage(error: &clap::Error, arguments: &[OsString], world: &mut World) -> u8 {
    use std::io::Write;
    let plain = error.render().to_string();
    if !error.use_stderr() {
        let text = if world.terminal.colour { error.render().ansi().to_string() } else { plain };
        let _nobody_reads_it = world.stdout.write_all(text.as_bytes()).and_then(|()| world.stdout.flush());
        return 0;
    }
    let before_command = arguments.iter().take_while(|argument| *argument != "--");
    if before_command.into_iter().any(|argument| argument == "--json") {
        let refusal = usage_refusal(&plain);
        let line = serde_json::to_string(&Failure { v: 1, error: refusal }).unwrap_or_default();
        let _nobody_reads_it = writeln!(world.stdout, "{line}").and_then(|()| world.stdout.flush());
    } else {
        let _nobody_reads_it = world.stderr.write_all(plain.as_bytes()).and_then(|()| world.stderr.flush());
    }
    2
}

fn usage_refusal(text: &str) -> Refusal {
    let mut lines = text.lines().map(str::trim).filter(|line| !line.is_empty());
    let message = lines.next().unwrap_or("usage").trim_start_matches("error: ").to_owned();
    lines.fold(Refusal::new(Code::BadRequest, message), |refusal, line| match line {
        "For more information, try '--help'." => refusal.next("posthouse --help"),
        line => refusal.cause(line),
    })
}

fn fail(ended: &Ended, json: bool, world: &mut World) {
    use std::io::Write;
    let _nobody_reads_it = if json {
        writeln!(world.stdout, "{}", ended.to_json()).and_then(|()| world.stdout.flush())
    } else {
        let terminal = Terminal { colour: world.terminal.colour && world.terminal.stderr, ..world.terminal };
        let text = ended.to_text(&terminal);
        world.stderr.write_all(text.as_bytes()).and_then(|()| world.stderr.flush())
    };
}

/// A path as the user named it, made absolute against the directory it was typed in.
fn typed(path: &std::path::Path, environment: &Environment) -> PathBuf {
    absolute(path, environment.cwd())
}
