//! A test that cannot do its work on this machine says so in a way that the runner reads: nothing is skipped
//! silently. `tests/run` names a file in POSTHOUSE_TEST_SKIPS; where everything must be there
//! (POSTHOUSE_TEST_STRICT=1) a skip is a failure.

use std::fs::OpenOptions;
use std::io::Write;

/// Notes that the calling test is skipped, and why ("power loss on xfs: mkfs.xfs is missing"). The test returns
/// after it.
///
/// # Panics
/// Where skipping is not allowed.
pub fn skip(reason: &str) {
    assert!(
        std::env::var("POSTHOUSE_TEST_STRICT").as_deref() != Ok("1"),
        "nothing may be skipped here: {reason}"
    );
    eprintln!("skipped: {reason}");
    let Ok(path) = std::env::var("POSTHOUSE_TEST_SKIPS") else { return };
    let thread = std::thread::current();
    let line = format!("{}\t{}\n", thread.name().unwrap_or("?"), reason.replace(['\n', '\t'], " "));
    let mut file =
        OpenOptions::new().append(true).create(true).open(&path).expect("open POSTHOUSE_TEST_SKIPS");
    file.write_all(line.as_bytes()).expect("write POSTHOUSE_TEST_SKIPS");
}

/// Whether a program can be found in PATH or where system programs live.
pub fn has_program(name: &str) -> bool {
    let path = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&path)
        .chain(["/usr/sbin".into(), "/sbin".into()])
        .any(|directory| directory.join(name).is_file())
}
