//! `posthouse-node`: a host of its own, which joins a coordinator over NATS; and `fsck`, which needs neither.

use std::collections::BTreeMap;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::{Args, Parser, Subcommand};
use posthouse_node::bus::daemon::{Daemon, DaemonOptions};
use posthouse_node::mailbox::fsck::{FsckError, Report, fsck};
use posthouse_node::signals::{Asked, Signals};
use posthouse_shared::codes::Code;
use posthouse_shared::durable::Files;
use posthouse_shared::limits::Limits;
use posthouse_shared::name::HostName;
use posthouse_shared::quantity::quantity;
use posthouse_shared::refusal::Refusal;
use posthouse_shared::telemetry::{self, LogFormat};

/// The node agent of Posthouse: one host of a team that is spread over many.
#[derive(Debug, Parser)]
#[command(
    name = "posthouse-node",
    version,
    args_conflicts_with_subcommands = true,
    arg_required_else_help = true,
    after_help = "Limits are set by POSTHOUSE_LIMITS_NAME, see posthouse config. Exit codes: 0 ok, 1 failed, 2 usage, \
                  3 refused, 4 unreachable, 130/143 ended at once by a second signal."
)]
struct Arguments {
    #[command(flatten)]
    serve: Serve,
    #[command(subcommand)]
    command: Option<Command>,
}

/// Runs the host until a signal ends it; prints `ready NAME` when it takes mail.
#[derive(Debug, Args)]
struct Serve {
    /// The NATS servers, for instance nats://127.0.0.1:4222; several with commas.
    #[arg(long, env = "POSTHOUSE_NATS", hide_env_values = true, value_name = "URL")]
    nats: Option<String>,
    /// This host's name; needed at the first start, and the same ever after.
    #[arg(long, env = "POSTHOUSE_NAME", value_name = "HOST")]
    name: Option<HostName>,
    /// A token of `posthouse hosts token`; needed at the first start.
    #[arg(long, env = "POSTHOUSE_JOIN", value_name = "TOKEN", hide_env_values = true)]
    join: Option<String>,
    /// What placement can ask of this host.
    #[arg(long, value_name = "KEY=VALUE", value_parser = pair)]
    label: Vec<(String, String)>,
    /// The blob store that all hosts share: s3://BUCKET/PREFIX?endpoint=URL, or file:///DIRECTORY.
    #[arg(long, env = "POSTHOUSE_BLOB_STORE", value_name = "URL")]
    blob_store: Option<String>,
    /// The data directory; without it posthouse-node below the user's data directory.
    #[arg(long, env = "POSTHOUSE_DATA", value_name = "DIR")]
    data: Option<PathBuf>,
    /// What is logged to stderr, in the syntax of RUST_LOG.
    #[arg(long, env = "POSTHOUSE_LOG", default_value = "info", value_name = "FILTER")]
    log: String,
    /// How log lines look: text or json.
    #[arg(long, env = "POSTHOUSE_LOG_FORMAT", default_value = "text", value_name = "FORMAT", value_parser = log_format)]
    log_format: LogFormat,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Checks a data directory that no process holds: every message, cursor and history. Exit code 0: clean,
    /// 1: breaches are left, 3: the directory is held or is none.
    Fsck {
        /// The data directory.
        dir: PathBuf,
        /// Mend what can be mended: quarantine what is wrong, heal torn tails, sweep half-written files.
        #[arg(long)]
        repair: bool,
        /// Print one JSON object.
        #[arg(long)]
        json: bool,
    },
}

fn pair(text: &str) -> Result<(String, String), String> {
    match text.split_once('=') {
        Some((key, value)) if !key.is_empty() => Ok((key.to_owned(), value.to_owned())),
        Some(_) | None => Err(format!("{text:?} is not written KEY=VALUE")),
    }
}

fn log_format(text: &str) -> Result<LogFormat, String> {
    match text {
        "text" => Ok(LogFormat::Text),
        "json" => Ok(LogFormat::Json),
        other => Err(format!("{other:?} is not a log format; use text or json")),
    }
}

fn main() -> ExitCode {
    let arguments = Arguments::parse();
    match arguments.command {
        Some(Command::Fsck { dir, repair, json }) => {
            telemetry::start("warn", LogFormat::Text);
            run_fsck(&dir, repair, json)
        }
        None => {
            telemetry::start(&arguments.serve.log, arguments.serve.log_format);
            match serve(arguments.serve) {
                Ok(code) => ExitCode::from(code),
                Err(refusal) => {
                    eprint!("{}", text(&refusal));
                    ExitCode::from(refusal.kind.exit_code())
                }
            }
        }
    }
}

fn serve(arguments: Serve) -> Result<u8, Refusal> {
    let options = options(arguments)?;
    let grace = options.limits.shutdown_grace();
    let internal = |what: &str, error: &std::io::Error| Refusal::new(Code::Internal, what).because(error);
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build();
    runtime.map_err(|e| internal("start the runtime", &e))?.block_on(async {
        let mut signals = Signals::new().map_err(|e| internal("listen for signals", &e))?;
        // Nothing runs before it has joined: a signal until then just ends it.
        let mut daemon = tokio::select! {
            daemon = Daemon::start(options) => daemon?,
            signal = signals.next() => return Ok(signal.exit_code()),
        };
        let mut stdout = std::io::stdout();
        let said = writeln!(stdout, "ready {}", daemon.host()).and_then(|()| stdout.flush());
        said.map_err(|e| internal("print", &e))?;
        let refused = tokio::select! {
            signal = signals.next() => {
                tracing::info!(?signal, "closing");
                None
            }
            refusal = daemon.refused() => Some(refusal),
        };
        let second = close(daemon, grace, &mut signals).await;
        match (refused, second) {
            (Some(refusal), _) => Err(refusal),
            (None, None) => Ok(0),
            (None, Some(second)) => Ok(second.exit_code()),
        }
    })
}

/// Closes in order; a second signal meanwhile ends running turns at once and is the answer.
async fn close(daemon: Daemon, grace: std::time::Duration, signals: &mut Signals) -> Option<Asked> {
    let node = daemon.node();
    let mut closing = std::pin::pin!(daemon.close(grace));
    tokio::select! {
        _well = &mut closing => None,
        second = signals.next() => {
            tracing::warn!(signal = ?second, "second signal: running turns are ended now");
            node.kill_now();
            closing.await;
            Some(second)
        }
    }
}

fn options(arguments: Serve) -> Result<DaemonOptions, Refusal> {
    let missing = |what: &str| {
        Refusal::new(Code::BadRequest, what.to_owned())
            .effect("nothing was started")
            .next("posthouse-node --nats nats://127.0.0.1:4222 --name HOST --join TOKEN")
    };
    let nats = arguments.nats.ok_or_else(|| missing("no NATS server was named (--nats, POSTHOUSE_NATS)"))?;
    let home = |name: &str| std::env::var_os(name).filter(|path| !path.is_empty()).map(PathBuf::from);
    let base = home("XDG_DATA_HOME").or_else(|| home("HOME").map(|home| home.join(".local/share")));
    let data = arguments.data.or_else(|| base.map(|base| base.join("posthouse-node")));
    let data = data.ok_or_else(|| missing("no data directory: neither --data nor HOME is set"))?;
    let data = std::path::absolute(&data)
        .map_err(|e| Refusal::new(Code::Internal, "find the data directory").because(&e))?;
    Ok(DaemonOptions {
        blob_store: arguments.blob_store,
        data,
        name: arguments.name,
        nats,
        join: arguments.join,
        labels: BTreeMap::from_iter(arguments.label),
        limits: limits()?,
        environment: std::env::vars_os().collect(),
        crash_at: std::env::var("POSTHOUSE_CRASH_AT").ok(),
    })
}

/// The defaults, with what `POSTHOUSE_LIMITS_*` says.
fn limits() -> Result<Limits, Refusal> {
    let mut limits = Limits::default();
    let table = limits.table();
    for (variable, text) in std::env::vars() {
        let Some(name) = variable.strip_prefix("POSTHOUSE_LIMITS_").map(str::to_ascii_lowercase) else {
            continue;
        };
        let broken = |message: String| {
            Refusal::new(Code::BadConfig, format!("{variable}: {message}")).effect("nothing was started")
        };
        let Some((_, _, unit)) = table.iter().find(|(limit, _, _)| *limit == name) else {
            let known = table.iter().map(|(limit, _, _)| (*limit, None));
            return Err(broken(format!("unknown key {name:?}")).closest_to(&name, known));
        };
        let value = quantity(&text, unit).map_err(|error| broken(error.to_string()))?;
        if !limits.set(&name, value) {
            return Err(broken(format!("{value} is too large")));
        }
    }
    Ok(limits)
}

/// A refusal as people read it.
fn text(refusal: &Refusal) -> String {
    let mut out = format!("error[{}]: {}\n", refusal.code, refusal.message);
    let mut line = |text: String| {
        out.push_str(&text);
        out.push('\n');
    };
    for cause in &refusal.cause {
        line(format!("  because: {cause}"));
    }
    let closest: Vec<&str> = refusal.closest.iter().map(|one| one.name.as_str()).collect();
    if !closest.is_empty() {
        line(format!("  closest: {}", closest.join(", ")));
    }
    if let Some(effect) = &refusal.effect {
        line(format!("  {effect}"));
    }
    if !refusal.next.is_empty() {
        line(format!("help: {}", refusal.next.join("        ")));
    }
    out
}

fn run_fsck(dir: &Path, repair: bool, json: bool) -> ExitCode {
    match fsck(&Files::real(), dir, &Limits::default(), repair) {
        Ok(report) => {
            if json {
                println!("{}", serde_json::to_string(&report).unwrap_or_default());
            } else {
                print_report(dir, &report);
            }
            ExitCode::from(u8::from(!report.is_clean()))
        }
        Err(error) => {
            let code = match &error {
                FsckError::Held { .. } | FsckError::NotData { .. } => 3,
                FsckError::Durable(_) | FsckError::Keys(_) | FsckError::Mailbox(_) => 1,
            };
            eprintln!("error: {error}");
            let mut cause = std::error::Error::source(&error);
            while let Some(error) = cause {
                eprintln!("  because: {error}");
                cause = error.source();
            }
            ExitCode::from(code)
        }
    }
}

fn print_report(dir: &Path, report: &Report) {
    for breach in &report.breaches {
        let mark = if breach.repaired { "mended" } else { "breach" };
        println!("{mark}  {:<12}  {}: {}", breach.code, breach.path, breach.text);
    }
    let left = report.breaches.iter().filter(|breach| !breach.repaired).count();
    let mended = report.breaches.len() - left;
    println!(
        "{}: {} mailboxes, {} messages, {} lines read; {left} breaches, {mended} mended",
        dir.display(),
        report.mailboxes,
        report.messages,
        report.lines
    );
}
