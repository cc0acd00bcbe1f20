//! What children get of the node's own environment: an allow-list, nothing else (no secrets by accident).

use std::collections::BTreeMap;
use std::ffi::{OsStr, OsString};
use std::path::Path;

/// Variables of the node's environment that its children get; `LC_*` too.
const ENVIRONMENT: &[&str] = &["PATH", "HOME", "LANG", "TZ", "TMPDIR", "TERM", "USER", "LOGNAME", "SHELL"];

/// What children get: an allow-list of the node's own environment, with our binary first on PATH.
pub fn child_environment(own: Vec<(OsString, OsString)>, bin_dir: &Path) -> BTreeMap<OsString, OsString> {
    let allowed = |name: &str| ENVIRONMENT.contains(&name) || name.starts_with("LC_");
    let mut environment: BTreeMap<OsString, OsString> =
        own.into_iter().filter(|(name, _)| name.to_str().is_some_and(allowed)).collect();
    let path = environment.get(OsStr::new("PATH")).cloned();
    let path = path.unwrap_or_else(|| OsString::from("/usr/local/bin:/usr/bin:/bin"));
    let mut with = bin_dir.as_os_str().to_owned();
    with.push(":");
    with.push(path);
    environment.insert("PATH".into(), with);
    environment
}
