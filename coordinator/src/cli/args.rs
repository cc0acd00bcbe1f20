//! The argument tree. Names stay text where the server knows them better, so that a mistyped one is answered
//! with the nearest names; what has a shape of its own (durations, ids, generations) is parsed here.

#![expect(missing_docs, reason = "flattened arguments are described by their type")]

mod nouns;

use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, Parser, Subcommand, ValueEnum};
use posthouse_shared::name::{HostName, MessageId};

pub use nouns::{
    ChangeArgs, HostsCommand, MissedArg, QuarantineCommand, ScheduleCommand, TaskArgs, TaskCommand,
    TeamCommand,
};
use posthouse_shared::quantity::duration;

/// Durable mailboxes, a task board and teammates that keep working.
#[derive(Debug, Parser)]
#[command(name = "posthouse", version, arg_required_else_help = true, subcommand_required = true)]
#[command(
    after_help = "Exit codes: 0 ok, 1 failed, 2 usage, 3 refused, 4 unreachable, 5 timed out, 130/143 signals."
)]
pub struct Cli {
    /// Prints exactly one JSON document, on failure too; followers print one object a line.
    #[arg(long, global = true)]
    pub json: bool,
    /// The data directory. Without it POSTHOUSE_DATA, else the user's data directory.
    #[arg(long, global = true, value_name = "DIR")]
    pub data: Option<PathBuf>,
    /// What to do.
    #[command(subcommand)]
    pub command: Command,
}

/// All commands.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Starts the coordinator on this machine; prints `ready URL` when it is.
    Up(UpArgs),
    /// Starts the coordinator of several hosts, over NATS; prints `ready URL` when it is.
    Serve(ServeArgs),
    /// Runs a team file to its end.
    Run(RunArgs),
    /// Teams.
    #[command(subcommand)]
    Team(TeamCommand),
    /// Makes a teammate; its prompt is kept before it starts.
    Spawn(SpawnArgs),
    /// Sends a message.
    Send(SendArgs),
    /// Prints what waits in an inbox, and acknowledges what was printed.
    Inbox(InboxArgs),
    /// Teammates: those that need a person first, then the most recent.
    Ps(PsArgs),
    /// Hosts.
    #[command(subcommand)]
    Hosts(HostsCommand),
    /// What waits for a person.
    Attention(AttentionArgs),
    /// Why something does not move: an agent, a host, a task or a message.
    Why(WhyArgs),
    /// One teammate's log.
    Log(LogArgs),
    /// Everything that happens, one JSON object a line.
    Events(EventsArgs),
    /// Waits until something is so: task/ID=completed, agent/NAME=idle, message/ID=done.
    Wait(WaitArgs),
    /// What a fresh lead needs to go on, as text to paste.
    Brief(TeamArg),
    /// Cancels a teammate's turn; it claims nothing until resumed.
    Stop(AgentArgs),
    /// Ends a stop or a failure.
    Resume(AgentArgs),
    /// Asks a teammate to end.
    Shutdown(ShutdownArgs),
    /// The task board.
    #[command(subcommand)]
    Task(TaskCommand),
    /// Messages at times.
    #[command(subcommand)]
    Schedule(ScheduleCommand),
    /// Where a message is, and since when.
    Trace(TraceArgs),
    /// Messages that were put aside.
    #[command(subcommand)]
    Quarantine(QuarantineCommand),
    /// All settings and limits, each with where it came from.
    Config(TeamArg),
    /// What an error code means and what to do about it.
    Explain(ExplainArgs),
    /// Writes a small team file to begin with.
    Init(InitArgs),
    /// Prints a completion script.
    Completions(CompletionsArgs),
    /// Prints the manual page.
    Man,
}

/// The team that is meant.
#[derive(Debug, Args)]
pub struct TeamArg {
    /// The team. Without it POSTHOUSE_TEAM, else main.
    #[arg(long, value_name = "TEAM")]
    pub team: Option<String>,
}

/// How a list is printed.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, ValueEnum)]
pub enum ListFormat {
    /// Aligned columns.
    #[default]
    Table,
    /// More columns.
    Wide,
    /// One name or id a line.
    Name,
    /// One JSON document.
    Json,
}

/// `-o`
#[derive(Debug, Args)]
pub struct ListArgs {
    /// How to print it.
    #[arg(short, long, value_enum, default_value_t, value_name = "FORMAT")]
    pub output: ListFormat,
}

/// `up`
#[derive(Debug, Args)]
pub struct UpArgs {
    /// Where to listen.
    #[arg(long, value_name = "ADDRESS")]
    pub listen: Option<String>,
    /// This host's name; needed at most once, at the first start.
    #[arg(long, value_name = "HOST")]
    pub name: Option<HostName>,
}

/// `serve`
#[derive(Debug, Args)]
pub struct ServeArgs {
    /// The NATS servers, for instance nats://127.0.0.1:4222; several with commas. Without it POSTHOUSE_NATS.
    #[arg(long, value_name = "URL")]
    pub nats: Option<String>,
    #[command(flatten)]
    pub up: UpArgs,
    /// A label that placement can ask for.
    #[arg(long, value_name = "KEY=VALUE", value_parser = pair)]
    pub label: Vec<(String, String)>,
}

/// `run`
#[derive(Debug, Args)]
pub struct RunArgs {
    /// The team file.
    pub file: PathBuf,
    /// Sets a variable of the team file.
    #[arg(long, value_name = "KEY=VALUE", value_parser = pair)]
    pub set: Vec<(String, String)>,
    /// Prints what would be made, and makes nothing.
    #[arg(long)]
    pub dry_run: bool,
    /// Puts the old team of this name away and begins anew.
    #[arg(long, conflicts_with = "dry_run")]
    pub fresh: bool,
}

/// `spawn`
#[derive(Debug, Args)]
pub struct SpawnArgs {
    /// Its name.
    pub name: String,
    #[command(flatten)]
    pub team: TeamArg,
    /// What it is for; tasks can ask for a role.
    #[arg(long)]
    pub role: Option<String>,
    /// Its working directory; this one without it.
    #[arg(long, value_name = "DIR")]
    pub cwd: Option<PathBuf>,
    /// The model that it asks for.
    #[arg(long)]
    pub model: Option<String>,
    /// Its colour in lists.
    #[arg(long)]
    pub color: Option<String>,
    /// Its first prompt; - is stdin.
    #[arg(long)]
    pub prompt: String,
    /// What runs it; in this build: command.
    #[arg(long, default_value = "command")]
    pub runner: String,
    /// The host that it must live on.
    #[arg(long)]
    pub host: Option<HostName>,
    /// A label that its host must have.
    #[arg(long, value_name = "KEY=VALUE", value_parser = pair)]
    pub label: Vec<(String, String)>,
    /// Lets it take tasks of its role from the board when idle.
    #[arg(long)]
    pub self_claim: bool,
    /// Program and arguments, after --.
    #[arg(last = true, required = true, value_name = "CMD")]
    pub command: Vec<String>,
}

/// `send`
#[derive(Debug, Args)]
pub struct SendArgs {
    /// To whom.
    pub to: String,
    /// The text; - is stdin.
    #[arg(required_unless_present = "file", conflicts_with = "file")]
    pub text: Option<String>,
    #[command(flatten)]
    pub team: TeamArg,
    /// Sends this file's text.
    #[arg(long, value_name = "FILE")]
    pub file: Option<PathBuf>,
    /// The message's id: the same one again is not sent twice.
    #[arg(long, value_name = "UUID")]
    pub id: Option<MessageId>,
    /// Overtakes other mail.
    #[arg(long)]
    pub urgent: bool,
    /// One line about it.
    #[arg(long, value_name = "LINE")]
    pub summary: Option<String>,
    /// The message that it answers.
    #[arg(long, value_name = "ID")]
    pub reply_to: Option<MessageId>,
    /// Sends as this agent; the operator may.
    #[arg(long = "as", value_name = "NAME")]
    pub as_agent: Option<String>,
}

/// `inbox`
#[derive(Debug, Args)]
pub struct InboxArgs {
    /// Whose; your own without it. Another's is only looked at.
    pub name: Option<String>,
    #[command(flatten)]
    pub team: TeamArg,
    /// Goes on with what comes.
    #[arg(short, long)]
    pub follow: bool,
    /// Acknowledges nothing.
    #[arg(long, conflicts_with = "follow")]
    pub peek: bool,
    /// At most so many at once.
    #[arg(long, default_value_t = 100, value_parser = clap::value_parser!(u32).range(1..=10_000))]
    pub limit: u32,
}

/// `ps`
#[derive(Debug, Args)]
pub struct PsArgs {
    #[command(flatten)]
    pub team: TeamArg,
    /// All of them, however many.
    #[arg(short, long)]
    pub all: bool,
    #[command(flatten)]
    pub list: ListArgs,
    /// Goes on and prints what changes.
    #[arg(short, long)]
    pub watch: bool,
}

/// `attention`
#[derive(Debug, Args)]
pub struct AttentionArgs {
    #[command(flatten)]
    pub team: TeamArg,
    /// Goes on and prints what is new.
    #[arg(short, long)]
    pub follow: bool,
}

/// `why`
#[derive(Debug, Args)]
pub struct WhyArgs {
    /// The name of an agent or a host, or the id of a task or a message.
    pub thing: String,
    #[command(flatten)]
    pub team: TeamArg,
}

/// `log`
#[derive(Debug, Args)]
pub struct LogArgs {
    /// Whose.
    pub name: String,
    #[command(flatten)]
    pub team: TeamArg,
    /// Goes on with what comes.
    #[arg(short, long)]
    pub follow: bool,
}

/// `events`
#[derive(Debug, Args)]
pub struct EventsArgs {
    /// Goes on with what comes.
    #[arg(short, long)]
    pub follow: bool,
    /// Begins after this event; without it all that are kept, or with --follow those to come.
    #[arg(long, value_name = "SEQ")]
    pub after: Option<u64>,
}

/// `wait`
#[derive(Debug, Args)]
pub struct WaitArgs {
    /// task/ID=completed, agent/NAME=idle or message/ID=done.
    pub condition: String,
    #[command(flatten)]
    pub team: TeamArg,
    /// How long, for instance 10m.
    #[arg(long, value_name = "DURATION", value_parser = duration)]
    pub timeout: Duration,
}

/// One teammate.
#[derive(Debug, Args)]
pub struct AgentArgs {
    /// Its name.
    pub name: String,
    #[command(flatten)]
    pub team: TeamArg,
}

/// `shutdown`
#[derive(Debug, Args)]
pub struct ShutdownArgs {
    /// Its name.
    pub name: String,
    #[command(flatten)]
    pub team: TeamArg,
    /// Does not ask it.
    #[arg(long)]
    pub force: bool,
}

/// `trace`
#[derive(Debug, Args)]
pub struct TraceArgs {
    /// The message's id, or its first 8 characters or more.
    pub id: String,
    /// Goes on until it is done or quarantined.
    #[arg(short, long)]
    pub follow: bool,
}

/// `explain`
#[derive(Debug, Args)]
pub struct ExplainArgs {
    /// PH0201, 0201 or 201.
    pub code: String,
}

/// `init`
#[derive(Debug, Args)]
pub struct InitArgs {
    /// The file to write.
    #[arg(default_value = "team.toml")]
    pub file: PathBuf,
}

/// `completions`
#[derive(Debug, Args)]
pub struct CompletionsArgs {
    /// For which shell.
    pub shell: clap_complete::Shell,
}

fn pair(text: &str) -> Result<(String, String), String> {
    match text.split_once('=') {
        Some((key, value)) if !key.is_empty() => Ok((key.to_owned(), value.to_owned())),
        Some(_) | None => Err(format!("{text:?} is not written KEY=VALUE")),
    }
}

impl Command {
    /// What `--team` says, where the command has one.
    pub fn team(&self) -> Option<&TeamArg> {
        match self {
            Self::Spawn(args) => Some(&args.team),
            Self::Send(args) => Some(&args.team),
            Self::Inbox(args) => Some(&args.team),
            Self::Ps(args) => Some(&args.team),
            Self::Attention(args) => Some(&args.team),
            Self::Why(args) => Some(&args.team),
            Self::Log(args) => Some(&args.team),
            Self::Wait(args) => Some(&args.team),
            Self::Brief(team) | Self::Config(team) => Some(team),
            Self::Stop(args) | Self::Resume(args) => Some(&args.team),
            Self::Shutdown(args) => Some(&args.team),
            Self::Task(task) => Some(task.team()),
            Self::Schedule(
                ScheduleCommand::Add { team, .. }
                | ScheduleCommand::Ls { team, .. }
                | ScheduleCommand::Delete { team, .. },
            )
            | Self::Quarantine(QuarantineCommand::Ls { team, .. }) => Some(team),
            Self::Quarantine(
                QuarantineCommand::Show { .. }
                | QuarantineCommand::Redeliver { .. }
                | QuarantineCommand::Drop { .. },
            )
            | Self::Up(_)
            | Self::Serve(_)
            | Self::Run(_)
            | Self::Team(_)
            | Self::Hosts(_)
            | Self::Events(_)
            | Self::Trace(_)
            | Self::Explain(_)
            | Self::Init(_)
            | Self::Completions(_)
            | Self::Man => None,
        }
    }

    /// What `--listen` says.
    pub fn listen(&self) -> Option<&String> {
        match self {
            Self::Up(up) | Self::Serve(ServeArgs { up, .. }) => up.listen.as_ref(),
            _others_do_not_listen => None,
        }
    }

    /// What `--nats` says.
    pub fn nats(&self) -> Option<&String> {
        if let Self::Serve(args) = self { args.nats.as_ref() } else { None }
    }
}
