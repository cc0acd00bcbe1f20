//! The project's own files: where they are, and which there are.

use std::path::{Path, PathBuf};

/// The repository's top directory.
pub fn top() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("the package lies in the repository").to_owned()
}

/// Text of a file of the repository.
pub fn read(path: &str) -> String {
    std::fs::read_to_string(top().join(path)).unwrap_or_else(|error| panic!("read {path}: {error}"))
}

/// A program of `fixtures/agents`, as a command names it.
pub fn agent(name: &str) -> String {
    top().join("tests/fixtures/agents").join(name).display().to_string()
}

/// All Rust sources below these directories of the repository, relative to it, sorted.
pub fn sources(below: &[&str]) -> Vec<PathBuf> {
    let mut found = Vec::new();
    let mut open: Vec<PathBuf> = below.iter().map(PathBuf::from).collect();
    while let Some(dir) = open.pop() {
        for entry in std::fs::read_dir(top().join(&dir)).expect("list sources").flatten() {
            let path = dir.join(entry.file_name());
            match entry.file_type() {
                Ok(kind) if kind.is_dir() => open.push(path),
                _ if path.extension().is_some_and(|extension| extension == "rs") => found.push(path),
                _ => {}
            }
        }
    }
    found.sort();
    found
}

/// The names of all crash points in the product's sources: what stands in `.point("...")`.
pub fn crash_points() -> Vec<String> {
    let mut points = Vec::new();
    for path in sources(&["shared/src", "node/src", "coordinator/src"]) {
        let text = read(&path.display().to_string());
        let product = text.split("#[cfg(test)]\nmod tests").next().unwrap_or_default();
        points.extend(
            product.split(".point(\"").skip(1).filter_map(|rest| rest.split('"').next()).map(str::to_owned),
        );
    }
    points.sort();
    points.dedup();
    points
}

/// The names of all tests: functions under `#[test]` or in `proptest!`, in all packages.
pub fn tests() -> Vec<String> {
    let mut names = Vec::new();
    for path in sources(&["shared", "node", "coordinator", "tests"]) {
        let text = read(&path.display().to_string());
        let mut marked = false;
        for line in text.lines().map(str::trim) {
            marked = marked || line.starts_with("#[test]") || line.starts_with("#[tokio::test");
            let function = line.trim_start_matches("async ").strip_prefix("fn ");
            if let (true, Some(rest)) = (marked, function) {
                names.extend(rest.split('(').next().map(str::to_owned));
                marked = false;
            }
        }
    }
    names
}
