//! `posthouse-node`: what one host needs without a coordinator of its own. In this build: `fsck`.

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::{Parser, Subcommand};
use posthouse_node::mailbox::fsck::{FsckError, Report, fsck};
use posthouse_shared::durable::Files;
use posthouse_shared::limits::Limits;
use posthouse_shared::telemetry::{self, LogFormat};

/// The node agent of Posthouse.
#[derive(Debug, Parser)]
#[command(name = "posthouse-node", version)]
struct Arguments {
    #[command(subcommand)]
    command: Command,
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

fn main() -> ExitCode {
    telemetry::start("warn", LogFormat::Text);
    match Arguments::parse().command {
        Command::Fsck { dir, repair, json } => run_fsck(&dir, repair, json),
    }
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
