//! Dependencies: each under a licence that is allowed, each once unless `.deny.toml` says why twice. This is what can
//! be checked without cargo-deny; advisories are its own.

#![allow(clippy::unwrap_used, clippy::panic, clippy::indexing_slicing, reason = "a test")]

use std::collections::{BTreeMap, BTreeSet};
use std::process::Command;

use posthouse_tests::repository::{read, top};
use serde_json::Value;

/// All packages of the build for Linux, the workspace's own included.
fn packages() -> Vec<Value> {
    let cargo = std::env::var("CARGO").unwrap_or_else(|_| "cargo".to_owned());
    let mut command = Command::new(cargo);
    command.args(["metadata", "--format-version", "1", "--locked"]);
    command.args(["--filter-platform", "x86_64-unknown-linux-gnu"]).current_dir(top());
    let output = command.output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let mut metadata: Value = serde_json::from_slice(&output.stdout).unwrap();
    // `packages` holds the whole lock file; what is built stands in the resolved graph.
    let built: BTreeSet<String> =
        metadata["resolve"]["nodes"].as_array().unwrap().iter().map(|node| node["id"].to_string()).collect();
    let packages = metadata["packages"].as_array_mut().unwrap();
    packages.retain(|package| built.contains(&package["id"].to_string()));
    std::mem::take(packages)
}

fn deny() -> toml::Table {
    read(".deny.toml").parse().unwrap()
}

/// Whether a licence expression can be met with what is allowed: each of its `AND` parts, by one of its choices.
fn is_met(expression: &str, allowed: &BTreeSet<&str>) -> bool {
    let plain = expression.replace(['(', ')'], "").replace(" / ", " OR ").replace('/', " OR ");
    // Good for the flat expressions that crates have: an OR inside an AND stands in brackets.
    plain.split(" AND ").all(|part| part.split(" OR ").any(|choice| allowed.contains(choice.trim())))
}

#[test]
fn every_dependency_has_a_licence_that_is_allowed() {
    let deny = deny();
    let allowed: BTreeSet<&str> =
        deny["licenses"]["allow"].as_array().unwrap().iter().filter_map(|licence| licence.as_str()).collect();
    let packages = packages();
    assert!(packages.len() > 50, "only {} packages were looked at", packages.len());
    let refused: Vec<String> = packages
        .iter()
        .filter(|package| !package["license"].as_str().is_some_and(|expression| is_met(expression, &allowed)))
        .map(|package| format!("{} {}: {}", package["name"], package["version"], package["license"]))
        .collect();
    assert!(refused.is_empty(), "{}", refused.join("\n"));
}

#[test]
fn a_crate_comes_twice_only_for_a_reason_that_is_given() {
    let mut versions: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
    for package in packages() {
        let text = |key: &str| package[key].as_str().unwrap().to_owned();
        versions.entry(text("name")).or_default().insert(text("version"));
    }
    let deny = deny();
    let mut excused = BTreeSet::new();
    for skip in deny["bans"]["skip"].as_array().unwrap() {
        let (name, _version) = skip["crate"].as_str().unwrap().split_once('@').unwrap();
        assert!(
            skip["reason"].as_str().is_some_and(|reason| !reason.is_empty()),
            "{name} is excused without a reason"
        );
        excused.insert(name.to_owned());
    }
    let twice: BTreeSet<String> =
        versions.iter().filter(|(_, versions)| versions.len() > 1).map(|(name, _)| name.clone()).collect();
    let unexcused: Vec<_> = twice.difference(&excused).map(|name| (name, &versions[name])).collect();
    assert!(unexcused.is_empty(), "come twice without a reason in .deny.toml: {unexcused:?}");
    let idle: Vec<_> = excused.difference(&twice).collect();
    assert!(idle.is_empty(), "come once and stand in .deny.toml: {idle:?}");
}

#[test]
fn licence_expressions_are_read_as_they_are_meant() {
    let allowed = BTreeSet::from(["MIT", "Unicode-3.0"]);
    assert!(is_met("MIT OR GPL-3.0", &allowed) && is_met("Apache-2.0/MIT", &allowed));
    assert!(is_met("(MIT OR Apache-2.0) AND Unicode-3.0", &allowed));
    assert!(!is_met("GPL-3.0", &allowed) && !is_met("MIT AND GPL-3.0", &allowed));
}
