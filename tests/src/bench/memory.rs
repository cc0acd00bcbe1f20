//! Opening a large mailbox, and resident memory. Each is measured in a process of its own, so that nothing
//! else is counted.

use std::path::Path;
use std::process::Command;
use std::time::Instant;

use super::ground::{agent, mailboxes};

/// Runs this program as a child; its answer is one line of numbers.
pub(super) fn ask(data: &Path, role: &str) -> Vec<f64> {
    let output = Command::new(std::env::current_exe().unwrap())
        .args(["--dir".as_ref(), data.as_os_str(), "--child".as_ref(), role.as_ref()])
        .output()
        .unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8_lossy(&output.stdout).split_whitespace().map(|number| number.parse().unwrap()).collect()
}

/// Time to open at `size` ready over a bare read of the same directory, and bytes a ready message.
pub fn open(data: &Path, size: u64) -> (f64, f64) {
    let answer = ask(data, &format!("open {size}"));
    (answer[0] / answer[1], answer[2])
}

/// The other side: warm, the median of three each, interleaved.
pub fn open_child(data: &Path, size: u64) {
    let ready = data.join(format!("mailboxes/main/backlog-{size}/ready"));
    let (mut opens, mut reads) = (Vec::new(), Vec::new());
    let mut bytes = 0.0;
    for round in 0..4 {
        let begun = Instant::now();
        let names = std::fs::read_dir(&ready).unwrap().filter(Result::is_ok).count();
        let read = begun.elapsed().as_secs_f64();
        let before = resident();
        let begun = Instant::now();
        let mailbox = mailboxes(data).get(&agent(&format!("backlog-{size}"))).unwrap();
        let counted = mailbox.counts().unwrap().ready;
        let open = begun.elapsed().as_secs_f64();
        assert_eq!(counted, names);
        if round == 0 {
            // A fresh process; the first round also warms the cache and is not timed.
            bytes = (resident() - before) / names as f64;
        } else {
            opens.push(open);
            reads.push(read);
        }
    }
    let middle = |values| super::median(values).unwrap();
    println!("{} {} {bytes}", middle(opens), middle(reads));
}

/// Resident megabytes with `count` idle mailboxes, each used once and listened to.
pub fn idle(data: &Path, count: u64) -> f64 {
    ask(data, &format!("idle {count}"))[0]
}

/// The other side.
pub fn idle_child(data: &Path, count: u64) {
    let before = resident();
    let home = data.join("idle");
    let all = mailboxes(&home);
    let kept: Vec<_> = (0..count)
        .map(|n| {
            let mailbox =
                all.create(&agent(&format!("idle-{n}")), posthouse_shared::generation::Generation::new(1, 1));
            let mailbox = mailbox.unwrap();
            let changes = mailbox.changes();
            (mailbox, changes)
        })
        .collect();
    // Those that were made first may have been dropped by the watcher already.
    all.drop_idle(std::time::Duration::ZERO);
    println!("{}", (resident() - before) / 1e6);
    drop(kept);
}

pub(super) fn resident() -> f64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find(|line| line.starts_with("VmRSS:")).unwrap();
    let kilobytes: f64 = line.split_whitespace().nth(1).unwrap().parse().unwrap();
    kilobytes * 1024.0
}
