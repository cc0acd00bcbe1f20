//! The layers of the configuration: which wins, and what is said of a wrong one.
#![allow(
    missing_docs,
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    clippy::disallowed_methods,
    reason = "tests read as sentences, and fail by panicking"
)]

use std::path::Path;

use posthouse_coordinator::config::{Config, Environment, Flags};
use posthouse_shared::codes::Code;
use posthouse_shared::refusal::Refusal;

fn write(path: &Path, text: &str) {
    std::fs::create_dir_all(path.parent().unwrap()).unwrap();
    std::io::Write::write_all(&mut std::fs::File::create(path).unwrap(), text.as_bytes()).unwrap();
}

fn environment(dir: &Path, variables: &[(&'static str, &str)]) -> Environment {
    let home = ("HOME", dir.join("home").display().to_string());
    let all = variables.iter().map(|(name, value)| (*name, (*value).to_owned()));
    Environment::of(dir, all.chain([home]))
}

fn refused(dir: &Path, variables: &[(&'static str, &str)]) -> Refusal {
    Refusal::from(&Config::load(&environment(dir, variables), &Flags::default()).unwrap_err())
}

#[test]
fn each_layer_overrides_the_weaker_ones_and_every_value_tells_its_origin() {
    let dir = tempfile::tempdir().unwrap();
    let dir = dir.path();
    write(
        &dir.join("etc/posthouse/config.toml"),
        "team = \"system\"\nlog = \"system\"\nlisten = \"system\"\nurl = \"system\"\n[limits]\nmax_attempts = 1\n",
    );
    write(
        &dir.join("home/.config/posthouse/config.toml"),
        "team = \"user\"\nlog = \"user\"\nlisten = \"user\"\n",
    );
    write(
        &dir.join("posthouse.toml"),
        "# here\nteam = \"dir\"\nlog = \"dir\"\n[limits]\nenvelope_bytes = \"64KiB\"\nshutdown_grace_ms = \"2s\"\n",
    );
    let variables = environment(dir, &[("POSTHOUSE_TEAM", "var"), ("POSTHOUSE_LIMITS_MAX_ATTEMPTS", "9")]);
    let flags = Flags { data: Some("d/../data".into()), team: None, nats: None, listen: None };
    let config = Config::load(&variables, &flags).unwrap();
    let setting = |name: &str| {
        let one = config.settings().into_iter().find(|one| one.name == name).unwrap();
        (one.value, one.origin)
    };
    let here = dir.join("posthouse.toml").display().to_string();
    assert_eq!(setting("team"), ("var".to_owned(), "POSTHOUSE_TEAM".to_owned()));
    assert_eq!(setting("log"), ("dir".to_owned(), format!("{here}:3")));
    assert!(setting("listen").1.ends_with("home/.config/posthouse/config.toml:3"));
    assert!(setting("url").1.ends_with("etc/posthouse/config.toml:4"));
    assert_eq!(setting("data"), (dir.join("data").display().to_string(), "--data".to_owned()));
    assert_eq!(setting("log_format"), ("text".to_owned(), "default".to_owned()));
    assert_eq!(setting("limits.max_attempts"), ("9".to_owned(), "POSTHOUSE_LIMITS_MAX_ATTEMPTS".to_owned()));
    assert_eq!(setting("limits.envelope_bytes"), ("65536".to_owned(), format!("{here}:5")));
    assert_eq!(setting("limits.shutdown_grace_ms").0, "2000");
    assert_eq!(setting("limits.hosts").1, "default");
}

#[test]
fn an_unknown_key_is_an_error_with_file_line_and_the_nearest() {
    let dir = tempfile::tempdir().unwrap();
    write(&dir.path().join("posthouse.toml"), "\nlsten = \"x\"\n");
    let refusal = refused(dir.path(), &[]);
    assert_eq!(refusal.code, Code::BadConfig);
    assert!(refusal.message.ends_with("posthouse.toml:2: unknown key \"lsten\""), "{}", refusal.message);
    assert_eq!(refusal.closest[0].name, "listen");
    write(&dir.path().join("posthouse.toml"), "[limits]\nmax_atempts = 3\n");
    assert_eq!(refused(dir.path(), &[]).closest[0].name, "max_attempts");
    write(&dir.path().join("posthouse.toml"), "");
    assert_eq!(refused(dir.path(), &[("POSTHOUSE_LIMITS_HOST", "3")]).closest[0].name, "hosts");
}

#[test]
fn a_value_that_does_not_fit_is_an_error_with_its_place() {
    let dir = tempfile::tempdir().unwrap();
    for (text, end) in [
        ("team = 3\n", "posthouse.toml:1: team: is text in quotes, not integer"),
        ("[limits]\nhosts = \"many\"\n", "posthouse.toml:2: limits.hosts: \"many\" is not a number of hosts"),
        ("[limits]\nhosts = 99999999999\n", "posthouse.toml:2: limits.hosts: 99999999999 is too large"),
        (
            "log_format = \"xml\"\n",
            "posthouse.toml:1: log_format: \"xml\" is not a log format; use text or json",
        ),
        ("limits = 3\n", "posthouse.toml:1: limits: is a table: [limits]"),
    ] {
        write(&dir.path().join("posthouse.toml"), text);
        let refusal = refused(dir.path(), &[]);
        assert!(refusal.message.ends_with(end), "{}", refusal.message);
    }
    write(&dir.path().join("posthouse.toml"), "team = \n");
    assert!(refused(dir.path(), &[]).message.contains("posthouse.toml:1: "));
}

#[test]
fn without_any_place_for_data_it_says_what_to_set() {
    let dir = tempfile::tempdir().unwrap();
    let nothing = Environment::of(dir.path(), []);
    let refusal = Refusal::from(&Config::load(&nothing, &Flags::default()).unwrap_err());
    assert_eq!(refusal.code, Code::BadConfig);
    let data = Environment::of(dir.path(), [("XDG_DATA_HOME", "/x".to_owned())]);
    let config = Config::load(&data, &Flags::default()).unwrap();
    assert_eq!(config.data.value, Path::new("/x/posthouse"));
}
