//! How `run` ends: completed (0), failed (1), interrupted (130), refused (3), a bad file (2); and what it says then.

#![allow(clippy::unwrap_used, clippy::indexing_slicing, clippy::disallowed_methods, reason = "a test")]

use std::io::Write;
use std::net::TcpListener;
use std::path::PathBuf;
use std::process::Stdio;

use posthouse_tests::home::{Home, exit_code};
use posthouse_tests::recorded::wait_for_file;
use posthouse_tests::repository::agent;
use rustix::process::{Pid, Signal, kill_process};

/// A team file with one teammate that is `command`, and one task for it.
fn team_file(home: &Home, command: &[&str]) -> PathBuf {
    let command: Vec<String> = command.iter().map(|part| format!("{part:?}")).collect();
    let text = format!(
        "[team]\nname = \"one\"\n\n[[member]]\nname = \"worker\"\nrunner = \"command\"\ncommand = [{}]\n\
         prompt = \"work\"\nself_claim = true\n\n[[task]]\nid = \"job\"\nsubject = \"The job\"\n",
        command.join(", ")
    );
    let path = home.room().join("team.toml");
    std::fs::write(&path, text).unwrap();
    path
}

#[test]
fn a_task_that_cannot_be_done_ends_the_run_as_failed_and_says_what_and_why() {
    let home = Home::new();
    home.expect_log("WARN");
    // Agrees to its prompt and fails on the task.
    let script = "if [ -n \"$POSTHOUSE_TASK\" ]; then echo made of cheese >&2; exit 7; fi; cat > /dev/null";
    let file = team_file(&home, &["sh", "-c", script]).display().to_string();
    let failed = home.posthouse(["run", &file]).ended(1);
    for part in ["job", "made of cheese"] {
        assert!(
            failed.stderr.contains(part) || failed.stdout.contains(part),
            "{part} is not in\n{failed:#?}"
        );
    }
    let summary = home.posthouse(["run", &file, "--json"]).ended(1).json();
    assert_eq!(summary["outcome"], "failed", "{summary:#}");
}

#[test]
fn interrupted_it_ends_with_130_and_goes_on_later() {
    let home = Home::new();
    home.expect_log("WARN");
    let dir = home.dir("worker");
    let file = team_file(&home, &[&agent("wait.sh"), &dir.display().to_string()]).display().to_string();
    let mut child = home.command(["run", &file]).stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
    wait_for_file(&dir.join("started"));
    kill_process(Pid::from_raw(i32::try_from(child.id()).unwrap()).unwrap(), Signal::INT).unwrap();
    assert_eq!(exit_code(child.wait().unwrap()), 130);
    std::fs::write(dir.join("go"), "").unwrap();
    let summary = home.posthouse(["run", &file, "--json"]).ended(0).json();
    assert_eq!(summary["outcome"], "completed", "{summary:#}");
    assert_eq!(summary["tasks"][0]["owner"], "worker");
}

#[test]
fn a_bad_team_file_is_shown_with_its_place_and_the_nearest_match() {
    let home = Home::new();
    let file = team_file(&home, &["true"]);
    let good = std::fs::read_to_string(&file).unwrap();
    let path = file.display().to_string();
    home.posthouse(["team", "check", &path]).ended(0);
    for (bad, place, near) in [
        (good.replace("self_claim", "self_clam"), "team.toml:9", "self_claim"),
        (format!("{good}blocked_by = [\"jab\"]\n"), "team.toml:14", "job"),
        (format!("{good}blocked_by = [\"job\"]\n"), "team.toml:14", "job"),
        (good.replace("\"worker\"", "\"../worker\""), "team.toml:5", "a-z"),
        (good.replace("[team]", "[team"), "team.toml:1", ""),
    ] {
        std::fs::write(&file, &bad).unwrap();
        for command in [&["team", "check", path.as_str()][..], &["run", &path]] {
            let refused = home.posthouse(command).ended(2);
            assert!(refused.stderr.contains("PH0110"), "{}", refused.stderr);
            assert!(refused.stderr.contains(place), "{place} is not in\n{}", refused.stderr);
            assert!(refused.stderr.contains(near), "{near} is not in\n{}", refused.stderr);
        }
        let json = home.posthouse(["team", "check", &path, "--json"]).ended(2).json();
        assert_eq!(json["error"]["code"], "PH0110");
    }
    assert!(!home.data().exists(), "a bad file made a data directory");
}

#[test]
fn a_run_waits_for_a_holder_of_its_data_that_is_just_ending() {
    let home = Home::new();
    let file = team_file(&home, &[&agent("echo.sh")]).display().to_string();
    home.posthouse(["run", &file]).ended(0);
    // As a process that is being killed: it has the lock still, and answers nobody.
    let dying = TcpListener::bind("127.0.0.1:0").unwrap();
    let told = serde_json::json!({
        "pid": std::process::id(), "url": format!("http://{}", dying.local_addr().unwrap()), "since": "2026-01-01T00:00:00Z",
    });
    let lock = std::fs::File::options().write(true).truncate(true).open(home.data().join("lock")).unwrap();
    lock.lock().unwrap();
    (&lock).write_all(told.to_string().as_bytes()).unwrap();
    let run =
        home.command(["run", &file, "--json"]).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    drop(dying.accept().unwrap());
    drop(dying);
    drop(lock);
    let ended = run.wait_with_output().unwrap();
    let shown = String::from_utf8_lossy(&ended.stderr);
    assert_eq!(exit_code(ended.status), 0, "{shown}{}", String::from_utf8_lossy(&ended.stdout));
}
