//! The nouns with verbs below them: `team`, `hosts`, `task`, `schedule`, `quarantine`.

#![expect(missing_docs, reason = "flattened arguments are described by their type")]

use std::path::PathBuf;

use clap::{Args, Subcommand, ValueEnum};
use posthouse_shared::generation::Generation;

use super::{ListArgs, TeamArg, pair};

/// `team`
#[derive(Debug, Subcommand)]
pub enum TeamCommand {
    /// Makes a team with its lead.
    Create {
        /// Its name.
        name: String,
        /// What it is for.
        #[arg(long)]
        goal: Option<String>,
    },
    /// All teams.
    Ls(ListArgs),
    /// One team with its members.
    Show {
        /// Its name.
        name: String,
    },
    /// Ends a team: its agents are shut down, its mailboxes put away.
    Delete {
        /// Its name.
        name: String,
        /// Does not ask.
        #[arg(long)]
        yes: bool,
    },
    /// Checks a team file.
    Check {
        /// The team file.
        file: PathBuf,
        /// Sets a variable of the team file.
        #[arg(long, value_name = "KEY=VALUE", value_parser = pair)]
        set: Vec<(String, String)>,
    },
}

/// `hosts`
#[derive(Debug, Subcommand)]
pub enum HostsCommand {
    /// All hosts.
    Ls(ListArgs),
    /// Makes a token with which one host can join, once; prints it.
    Token {
        /// For a host that takes the place of this one: its disk is lost, say.
        #[arg(long, value_name = "HOST")]
        replace: Option<String>,
    },
    /// Takes a host as it is that was refused: a restored backup, a copy. What it had done since is not known.
    Adopt {
        /// Its name.
        name: String,
        /// Does not ask.
        #[arg(long)]
        yes: bool,
    },
    /// Forgets a host on which nobody lives; what was on its way to it is dropped. Its node ends by itself.
    Remove {
        /// Its name.
        name: String,
        /// Does not ask.
        #[arg(long)]
        yes: bool,
    },
}

/// `task`
#[derive(Debug, Subcommand)]
pub enum TaskCommand {
    /// Adds a task.
    Add {
        /// One line.
        subject: String,
        #[command(flatten)]
        team: TeamArg,
        /// Its id; one is made up without it.
        #[arg(long)]
        id: Option<String>,
        /// All that the one who does it must know; - is stdin.
        #[arg(long)]
        description: Option<String>,
        /// What is shown while it is done.
        #[arg(long, value_name = "TEXT")]
        active_form: Option<String>,
        /// Tasks that must be completed first.
        #[arg(long, value_name = "A,B", value_delimiter = ',')]
        blocked_by: Vec<String>,
        /// Who may claim it.
        #[arg(long)]
        role: Option<String>,
    },
    /// The board.
    Ls {
        #[command(flatten)]
        team: TeamArg,
        #[command(flatten)]
        list: ListArgs,
    },
    /// One task.
    Show(TaskArgs),
    /// Changes a task.
    Update {
        #[command(flatten)]
        task: TaskArgs,
        #[command(flatten)]
        change: ChangeArgs,
    },
    /// Claims a task.
    Claim {
        #[command(flatten)]
        task: TaskArgs,
        /// For this agent; yourself without it.
        #[arg(long = "as", value_name = "NAME")]
        as_agent: Option<String>,
    },
    /// Gives a claim back, or lifts a hold.
    Release {
        #[command(flatten)]
        task: TaskArgs,
        /// The claim that is meant; the present one without it.
        #[arg(long)]
        generation: Option<Generation>,
    },
    /// Completes a task.
    Complete {
        #[command(flatten)]
        task: TaskArgs,
        /// For this agent; yourself without it.
        #[arg(long = "as", value_name = "NAME")]
        as_agent: Option<String>,
        /// The claim that is meant; your own live one without it.
        #[arg(long)]
        generation: Option<Generation>,
        /// What came of it; - is stdin.
        #[arg(long)]
        result: Option<String>,
    },
    /// Gives a task up.
    Cancel(TaskArgs),
    /// Whether a claim is the present one: exit 0 or 3.
    Check {
        #[command(flatten)]
        task: TaskArgs,
        /// Of this agent; your own without it.
        #[arg(long = "as", value_name = "NAME")]
        as_agent: Option<String>,
        /// The claim that is meant.
        #[arg(long)]
        generation: Option<Generation>,
    },
}

/// One task.
#[derive(Debug, Args)]
pub struct TaskArgs {
    /// Its id.
    pub id: String,
    #[command(flatten)]
    pub team: TeamArg,
}

/// What `task update` changes; at least one of them.
#[derive(Debug, Args)]
#[group(required = true, multiple = true)]
pub struct ChangeArgs {
    /// New subject.
    #[arg(long)]
    pub subject: Option<String>,
    /// New description; - is stdin.
    #[arg(long)]
    pub description: Option<String>,
    /// What is shown while it is done.
    #[arg(long, value_name = "TEXT")]
    pub active_form: Option<String>,
    /// New list of blockers; empty for none.
    #[arg(long, value_name = "A,B")]
    pub blocked_by: Option<String>,
    /// New role.
    #[arg(long)]
    pub role: Option<String>,
    /// Assigns it to this teammate.
    #[arg(long, value_name = "NAME")]
    pub owner: Option<String>,
    /// Sets a key of its metadata; an empty value removes the key.
    #[arg(long, value_name = "KEY=VALUE", value_parser = pair)]
    pub metadata: Vec<(String, String)>,
}

/// `schedule`
#[derive(Debug, Subcommand)]
pub enum ScheduleCommand {
    /// Adds a schedule.
    Add {
        /// When: five fields, in UTC.
        cron: String,
        /// To whom.
        to: String,
        /// What; - is stdin.
        message: String,
        #[command(flatten)]
        team: TeamArg,
        /// Its id; one is made up without it.
        #[arg(long)]
        id: Option<String>,
        /// What happens to ticks that were missed.
        #[arg(long, value_enum, default_value_t)]
        missed: MissedArg,
    },
    /// All schedules of a team.
    Ls {
        #[command(flatten)]
        team: TeamArg,
        #[command(flatten)]
        list: ListArgs,
    },
    /// Ends a schedule.
    Delete {
        /// Its id.
        id: String,
        #[command(flatten)]
        team: TeamArg,
    },
}

/// `--missed`
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, ValueEnum)]
pub enum MissedArg {
    /// They are dropped.
    #[default]
    Skip,
    /// The latest of them is sent once.
    Once,
}

/// `quarantine`
#[derive(Debug, Subcommand)]
pub enum QuarantineCommand {
    /// All that was put aside.
    Ls {
        #[command(flatten)]
        team: TeamArg,
        #[command(flatten)]
        list: ListArgs,
    },
    /// One of them, with reason and content.
    Show {
        /// Its id, or the first 8 characters or more.
        id: String,
    },
    /// Brings one back.
    Redeliver {
        /// Its id, or the first 8 characters or more.
        id: String,
        /// The whole batch of its turn, in order.
        #[arg(long)]
        turn: bool,
    },
    /// Drops one; its sender is told.
    Drop {
        /// Its id, or the first 8 characters or more.
        id: String,
        /// Does not ask.
        #[arg(long)]
        yes: bool,
    },
}

impl TaskCommand {
    /// What `--team` says.
    pub fn team(&self) -> &TeamArg {
        match self {
            Self::Add { team, .. } | Self::Ls { team, .. } => team,
            Self::Show(task)
            | Self::Cancel(task)
            | Self::Update { task, .. }
            | Self::Claim { task, .. }
            | Self::Release { task, .. }
            | Self::Complete { task, .. }
            | Self::Check { task, .. } => &task.team,
        }
    }
}
