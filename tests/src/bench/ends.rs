//! Claims and acks: 64 mailboxes at once, and one mailbox at any backlog.

use std::path::Path;

use posthouse_node::mailbox::{Batch, Mailbox};

use super::Sample;
use super::device::Device;
use super::ground::agent;
use super::ground::{mailbox, mailboxes, measure, place, settle};

/// 64 threads, each with a mailbox of its own: claim one, ack it durably, and again.
pub fn mailboxes_64(device: &Device, data: &Path, round: usize, count: u64) -> Sample {
    let each = (count / 64).max(4);
    let names: Vec<String> = (0..64).map(|n| format!("ends-{round}-{n}")).collect();
    let all: Vec<Mailbox> = names.iter().map(|name| mailbox(data, name)).collect();
    for (name, mailbox) in names.iter().zip(&all) {
        place(data, name, "s", 1..each + 1, true);
        assert!(mailbox.counts().unwrap().ready > 0);
    }
    settle(data);
    measure(device, each * 64, || {
        std::thread::scope(|scope| {
            for mailbox in &all {
                scope.spawn(move || assert_eq!(end(mailbox, each), each));
            }
        });
    })
}

fn end(mailbox: &Mailbox, count: u64) -> u64 {
    let mut ended = 0;
    while ended < count {
        let claimed = mailbox.claim(Batch::ONE).unwrap();
        let Some(first) = claimed.first() else { break };
        mailbox.ack(&[first.lease]).unwrap();
        ended += 1;
    }
    ended
}

/// Makes the mailbox `backlog-<size>` with `size` messages behind those that will be claimed.
pub fn prepare_backlog(data: &Path, size: u64, to_claim: u64) {
    let name = format!("backlog-{size}");
    drop(mailbox(data, &name));
    place(data, &name, "s", 1..to_claim + 1, true);
    place(data, &name, "s", to_claim + 1..to_claim + 1 + size, false);
    settle(data);
}

/// Claims and acks `count` of it, one by one. The index is read before.
pub fn at_backlog(device: &Device, data: &Path, size: u64, count: u64) -> Sample {
    let mailbox = mailboxes(data).get(&agent(&format!("backlog-{size}"))).unwrap();
    assert!(mailbox.counts().unwrap().ready as u64 >= size);
    // The first claim may read directory blocks that a long-running process has in its cache.
    assert_eq!(end(&mailbox, 5), 5);
    settle(data);
    measure(device, count, || assert_eq!(end(&mailbox, count), count))
}
