//! Delivering: one sender, many threads, many processes, many at once. Messages are made and indexes read
//! before the clock starts.

use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Command, Stdio};

use posthouse_node::mailbox::{Mailbox, Marks};

use super::Sample;
use super::device::Device;
use super::ground::{mailbox, measure, messages, settle};

/// One thread, one message after the other.
pub fn one_sender(device: &Device, data: &Path, round: usize, count: u64) -> Sample {
    threads(device, data, &format!("single-{round}"), 1, count)
}

/// 64 threads on one mailbox.
pub fn threads_64(device: &Device, data: &Path, round: usize, count: u64) -> Sample {
    threads(device, data, &format!("threads-{round}"), 64, count / 64)
}

fn threads(device: &Device, data: &Path, name: &str, threads: u64, each: u64) -> Sample {
    let mailbox = mailbox(data, name);
    mailbox.counts().unwrap();
    let work: Vec<_> = (0..threads).map(|n| messages(&format!("s{n}"), name, 1, each)).collect();
    settle(data);
    measure(device, threads * each, || deliver_all(&mailbox, &work))
}

fn deliver_all(mailbox: &Mailbox, work: &[Vec<posthouse_shared::message::Sealed>]) {
    std::thread::scope(|scope| {
        for batch in work {
            scope.spawn(move || {
                for message in batch {
                    mailbox.deliver(message, Marks::NONE).unwrap();
                }
            });
        }
    });
}

/// 8 processes of 8 threads each on one mailbox.
pub fn processes_8(device: &Device, data: &Path, round: usize, count: u64) -> Sample {
    let name = format!("processes-{round}");
    mailbox(data, &name);
    let each = count / 64;
    let mut children: Vec<_> = (0..8)
        .map(|process| {
            Command::new(std::env::current_exe().unwrap())
                .args(["--dir".as_ref(), data.as_os_str(), "--child".as_ref()])
                .arg(format!("deliver {name} {process} {each}"))
                .stdin(Stdio::piped())
                .stdout(Stdio::piped())
                .spawn()
                .unwrap()
        })
        .collect();
    let mut said: Vec<_> =
        children.iter_mut().map(|child| BufReader::new(child.stdout.take().unwrap()).lines()).collect();
    for lines in &mut said {
        assert_eq!(lines.next().unwrap().unwrap(), "loaded");
    }
    settle(data);
    let sample = measure(device, each * 64, || {
        for child in &mut children {
            child.stdin.as_mut().unwrap().write_all(b"go\n").unwrap();
        }
        for lines in &mut said {
            assert_eq!(lines.next().unwrap().unwrap(), "delivered");
        }
    });
    for mut child in children {
        drop(child.stdin.take());
        assert!(child.wait().unwrap().success());
    }
    sample
}

/// The other side of that.
pub fn child(data: &Path, name: &str, process: u64, each: u64) {
    let mailbox = mailbox(data, name);
    // Reads the names, as a process does that only delivers.
    for message in messages(&format!("first-{process}"), name, 1, 1) {
        mailbox.deliver(&message, Marks::NONE).unwrap();
    }
    let work: Vec<_> = (0..8).map(|n| messages(&format!("s{}", process * 8 + n), name, 1, each)).collect();
    say("loaded");
    std::io::stdin().read_line(&mut String::new()).unwrap();
    deliver_all(&mailbox, &work);
    say("delivered");
    // Stays until all are measured: its end is not part of it.
    std::io::stdin().read_line(&mut String::new()).unwrap();
}

fn say(line: &str) {
    let mut out = std::io::stdout().lock();
    writeln!(out, "{line}").and_then(|()| out.flush()).unwrap();
}

/// Batches of 512 by one thread.
pub fn many_512(device: &Device, data: &Path, round: usize, count: u64) -> Sample {
    let name = format!("many-{round}");
    let mailbox = mailbox(data, &name);
    mailbox.counts().unwrap();
    let batches = (count / 512).max(2);
    let work = messages("s", &name, 1, batches * 512);
    settle(data);
    measure(device, batches * 512, || {
        for batch in work.chunks(512) {
            assert!(mailbox.deliver_many(batch).iter().all(Result::is_ok));
        }
    })
}
