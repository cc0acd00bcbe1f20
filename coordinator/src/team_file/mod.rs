//! Team files: a team, its members, tasks and schedules as one TOML document. Reading one either gives all of
//! it, resolved (variables put in, paths absolute, ids made up where left away), or says all that is wrong
//! with it, each with its line, a caret and the nearest name.
//!
//! Where relative paths lead:
//! - `cwd` is relative to the directory of the team file;
//! - a program with a slash in it is looked for beside the team file, then in each directory above, so that
//!   `deploy/examples/audit/count.sh` is found from wherever in the repository the file lies and from
//!   wherever the command is typed;
//! - a variable declared as `dir = { path = "." }` is relative to the team file by default, and to the
//!   directory that `--set dir=PATH` was typed in otherwise. It becomes an absolute path.

mod check;
mod diagnostics;
mod members;
mod plan;
mod reader;
mod work;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use posthouse_shared::name::TeamName;
use posthouse_shared::task::TaskSpec;
use posthouse_shared::team::{MemberSpec, ScheduleSpec, TeamConfig};
use serde::Serialize;
use sha2::{Digest, Sha256};

pub use diagnostics::{Diagnostic, Diagnostics};
pub use plan::Plan;
pub(crate) use work::cron_expression;

/// Largest team file.
pub const FILE_BYTES_MAX: u64 = 4 * 1024 * 1024;

/// A team file, resolved.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct TeamFile {
    /// The team's name.
    pub name: TeamName,
    /// How the team works. `file_digest` covers all that is resolved here, variables included.
    pub config: TeamConfig,
    /// The lead that is run by us; without it a person leads.
    pub lead: Option<MemberSpec>,
    /// The members, in the file's order.
    pub members: Vec<MemberSpec>,
    /// The tasks, each after those that block it, in the file's order otherwise. Each has an id.
    pub tasks: Vec<TaskSpec>,
    /// The schedules. Each has an id.
    pub schedules: Vec<ScheduleSpec>,
    /// All variables and their values.
    pub vars: BTreeMap<String, String>,
}

/// Where a team file is read: who asks, from where.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Source {
    /// The file as it was named, for messages.
    pub shown: String,
    /// The file, absolute.
    pub path: PathBuf,
    /// The directory that the command was typed in, absolute.
    pub typed_in: PathBuf,
    /// `--set key=value`, in order.
    pub set: Vec<(String, String)>,
    /// A silent host keeps its teammates this long unless the file says otherwise.
    pub rehome_after_ms: u64,
}

/// Why there is no team file.
#[derive(Debug, thiserror::Error)]
pub enum TeamFileError {
    /// It cannot be read.
    #[error("read team file {shown}")]
    Read {
        /// The file as it was named.
        shown: String,
        /// What the system said.
        source: std::io::Error,
    },
    /// It has errors.
    #[error("{0}")]
    Wrong(Diagnostics),
}

impl From<&TeamFileError> for posthouse_shared::refusal::Refusal {
    fn from(error: &TeamFileError) -> Self {
        match error {
            TeamFileError::Read { source, .. } => {
                Self::new(posthouse_shared::codes::Code::BadTeamFile, error.to_string())
                    .because(source)
                    .next("write one: posthouse init")
            }
            TeamFileError::Wrong(diagnostics) => diagnostics.refusal(),
        }
    }
}

impl TeamFile {
    /// Reads and checks a team file. Looks at the disk (programs, working directories); writes nothing.
    pub fn read(source: &Source) -> Result<Self, TeamFileError> {
        let read = |error| TeamFileError::Read { shown: source.shown.clone(), source: error };
        let metadata = std::fs::metadata(&source.path).map_err(read)?;
        if metadata.len() > FILE_BYTES_MAX {
            return Err(read(std::io::ErrorKind::FileTooLarge.into()));
        }
        let text = std::fs::read_to_string(&source.path).map_err(read)?;
        Self::parse(&text, source).map_err(TeamFileError::Wrong)
    }

    /// Checks a team file's text.
    pub fn parse(text: &str, source: &Source) -> Result<Self, Diagnostics> {
        check::team_file(text, source)
    }

    /// What `run` would make of it.
    pub fn plan(&self) -> Plan<'_> {
        Plan(self)
    }

    fn with_digest(mut self) -> Self {
        self.config.file_digest = None;
        let resolved = serde_json::to_vec(&self).unwrap_or_default();
        let digest = Sha256::digest(&resolved);
        self.config.file_digest = Some(posthouse_shared::identity::hex(&digest));
        self
    }
}

impl Source {
    fn dir(&self) -> &Path {
        self.path.parent().unwrap_or(Path::new("/"))
    }
}
