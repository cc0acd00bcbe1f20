//! What the process was started with: variables, working directory, the system's configuration file. Taken
//! once in `main`; tests make their own.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

/// Variables and directories of one process.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Environment {
    variables: BTreeMap<String, String>,
    cwd: PathBuf,
    system: PathBuf,
}

impl Environment {
    /// Of this process. Variables that are not UTF-8 are read with replacement characters.
    pub fn of_process() -> Self {
        let variables = std::env::vars_os()
            .map(|(name, value)| (name.to_string_lossy().into_owned(), value.to_string_lossy().into_owned()))
            .collect();
        let cwd = std::env::current_dir().unwrap_or_else(|_| PathBuf::from("/"));
        Self { variables, cwd, system: PathBuf::from("/etc/posthouse/config.toml") }
    }

    /// Made up, for tests: no system file.
    pub fn of<'a>(cwd: &Path, variables: impl IntoIterator<Item = (&'a str, String)>) -> Self {
        let variables = variables.into_iter().map(|(name, value)| (name.to_owned(), value)).collect();
        Self { variables, cwd: cwd.to_owned(), system: cwd.join("etc/posthouse/config.toml") }
    }

    /// A variable; an empty one counts as not set.
    pub fn get(&self, name: &str) -> Option<&str> {
        self.variables.get(name).map(String::as_str).filter(|value| !value.is_empty())
    }

    /// All variables.
    pub fn all(&self) -> impl Iterator<Item = (&str, &str)> {
        self.variables.iter().map(|(name, value)| (name.as_str(), value.as_str()))
    }

    /// The working directory.
    pub fn cwd(&self) -> &Path {
        &self.cwd
    }

    /// The configuration files, the strongest first.
    pub fn config_files(&self) -> Vec<PathBuf> {
        let user = self
            .get("XDG_CONFIG_HOME")
            .map(PathBuf::from)
            .or_else(|| self.get("HOME").map(|home| Path::new(home).join(".config")));
        let mut files = vec![self.cwd.join("posthouse.toml")];
        files.extend(user.map(|dir| dir.join("posthouse/config.toml")));
        files.push(self.system.clone());
        files
    }

    /// Where data goes when nobody says otherwise.
    pub fn default_data(&self) -> Option<PathBuf> {
        let base = self
            .get("XDG_DATA_HOME")
            .map(PathBuf::from)
            .or_else(|| self.get("HOME").map(|home| Path::new(home).join(".local/share")));
        base.map(|dir| super::absolute(&dir.join("posthouse"), &self.cwd))
    }

    /// Whether text may hold more than ASCII, by `LC_ALL`, `LC_CTYPE`, `LANG`.
    pub fn is_utf8(&self) -> bool {
        ["LC_ALL", "LC_CTYPE", "LANG"].iter().find_map(|name| self.get(name)).is_some_and(|locale| {
            let locale = locale.to_ascii_lowercase();
            locale.ends_with("utf-8") || locale.ends_with("utf8")
        })
    }

    /// Whether colour is asked not to be used.
    pub fn is_plain(&self) -> bool {
        self.get("NO_COLOR").is_some() || self.get("TERM") == Some("dumb")
    }
}
