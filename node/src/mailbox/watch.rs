//! Files of other programs and processes: one inotify queue for the `ready/` of all mailboxes that somebody reads
//! here. The kernel's queue can overflow; then each of them is read once. Where watches cannot be had, an idle
//! claim reads the directory instead.
//!
//! Who only delivers is not watched: every file that lands wakes every process that watches, for nothing there.

use std::collections::HashMap;
use std::ffi::OsStr;
use std::mem::MaybeUninit;
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::sync::{Arc, Mutex, Weak};
use std::time::Duration;

use rustix::event::{EventfdFlags, PollFd, PollFlags, Timespec, eventfd, poll};
use rustix::fs::inotify::{self, CreateFlags, ReadFlags, Reader, WatchFlags};
use rustix::io::Errno;

use super::name::FileName;
use super::{IDLE_AFTER, Inner, Shared, State, lock};

/// Bytes of events in one reading; some hundred of them.
const BUFFER: usize = 64 * 1024;
/// After a reading, before the next one: a flood of files is then taken in by hundreds, while a lone file is
/// noticed at once.
const PAUSE: Duration = Duration::from_millis(5);
const SWEEP_EVERY: Duration = Duration::from_secs(30);

/// The watcher; its thread ends when it is dropped.
pub(super) struct Watcher(Option<Arc<Queue>>);

struct Queue {
    inotify: OwnedFd,
    /// Written to when the watcher is dropped.
    end: OwnedFd,
    watched: Mutex<HashMap<i32, Weak<Inner>>>,
}

impl Watcher {
    /// Starts the thread. Where inotify cannot be had there is no watcher, and a warning.
    pub(super) fn start(shared: Weak<Shared>) -> Self {
        match Queue::open() {
            Ok(queue) => {
                let queue = Arc::new(queue);
                let reading = Arc::clone(&queue);
                let work = move || run(&reading, &shared);
                match std::thread::Builder::new().name("mailbox-watch".to_owned()).spawn(work) {
                    Ok(_ends_by_itself) => return Self(Some(queue)),
                    Err(error) => {
                        tracing::warn!(%error, "cannot start the watch thread; mailboxes are read when they are idle");
                    }
                }
            }
            Err(error) => tracing::warn!(%error, "no inotify; mailboxes are read when they are idle"),
        }
        Self(None)
    }

    /// Watches the `ready/` of a mailbox; answers whether it is watched.
    pub(super) fn watch(&self, ready: &Path, mailbox: Weak<Inner>) -> bool {
        let Some(queue) = &self.0 else { return false };
        let events =
            WatchFlags::MOVED_TO | WatchFlags::CLOSE_WRITE | WatchFlags::CREATE | WatchFlags::ONLYDIR;
        // Locked before, so that its first event finds it.
        let mut watched = lock(&queue.watched);
        match inotify::add_watch(&queue.inotify, ready, events) {
            Ok(number) => {
                watched.insert(number, mailbox);
                true
            }
            Err(error) => {
                tracing::warn!(path = %ready.display(), %error, "cannot watch a mailbox; it is read when it is idle");
                false
            }
        }
    }

    /// Ends that.
    pub(super) fn forget(&self, mailbox: &Inner) {
        let Some(queue) = &self.0 else { return };
        lock(&queue.watched).retain(|number, watched| {
            let keep = !std::ptr::eq(watched.as_ptr(), mailbox);
            if !keep {
                let _is_gone_where_its_directory_is = inotify::remove_watch(&queue.inotify, *number);
            }
            keep
        });
    }
}

impl Drop for Watcher {
    fn drop(&mut self) {
        if let Some(queue) = &self.0
            && let Err(error) = rustix::io::write(&queue.end, &1u64.to_ne_bytes())
        {
            tracing::warn!(%error, "the watch thread is not told of its end; it looks for it now and then");
        }
    }
}

/// What the thread was woken by.
#[derive(PartialEq, Eq)]
enum Woken {
    Events,
    End,
    Nothing,
}

impl Queue {
    fn open() -> rustix::io::Result<Self> {
        Ok(Self {
            inotify: inotify::init(CreateFlags::CLOEXEC | CreateFlags::NONBLOCK)?,
            end: eventfd(0, EventfdFlags::CLOEXEC)?,
            watched: Mutex::default(),
        })
    }

    fn wait(&self) -> Woken {
        let mut polled = [PollFd::new(&self.inotify, PollFlags::IN), PollFd::new(&self.end, PollFlags::IN)];
        let timeout = Timespec::try_from(SWEEP_EVERY).ok();
        match poll(&mut polled, timeout.as_ref()) {
            Ok(_) => {
                let [events, end] = polled.map(|one| !one.revents().is_empty());
                match (events, end) {
                    (_, true) => Woken::End,
                    (true, false) => Woken::Events,
                    (false, false) => Woken::Nothing,
                }
            }
            Err(error) => {
                tracing::warn!(%error, "inotify failed; it is asked again");
                Woken::Nothing
            }
        }
    }

    /// Takes in what one reading gives; answers whether events were missed.
    fn take_in(&self, buffer: &mut [MaybeUninit<u8>]) -> bool {
        let mut missed = false;
        let mut reader = Reader::new(&self.inotify, buffer);
        loop {
            match reader.next() {
                Ok(event) if event.events().contains(ReadFlags::QUEUE_OVERFLOW) => missed = true,
                Ok(event) if event.events().contains(ReadFlags::IGNORED) => {
                    lock(&self.watched).remove(&event.wd());
                }
                Ok(event) => {
                    let Some(name) = event.file_name().map(|name| OsStr::from_bytes(name.to_bytes())) else {
                        continue;
                    };
                    let mailbox = lock(&self.watched).get(&event.wd()).and_then(Weak::upgrade);
                    if let Some(mailbox) = mailbox.filter(|_| is_whole(event.events(), name)) {
                        mailbox.landed(name);
                    }
                }
                Err(Errno::AGAIN | Errno::INTR) => return missed,
                Err(error) => {
                    tracing::warn!(%error, "inotify failed; mailboxes are read anew");
                    return true;
                }
            }
            if reader.is_buffer_empty() {
                return missed;
            }
        }
    }
}

/// Whether a file is whole: renamed into place, or closed after writing. A link makes a whole file of our own
/// name; a foreign one that was begun is awaited until it is closed.
fn is_whole(events: ReadFlags, name: &OsStr) -> bool {
    let begun = events.contains(ReadFlags::CREATE) && !events.contains(ReadFlags::ISDIR);
    !begun || FileName::parse(name).is_some()
}

fn run(queue: &Queue, shared: &Weak<Shared>) {
    let mut buffer = vec![MaybeUninit::uninit(); BUFFER];
    let mut swept = None;
    loop {
        let woken = queue.wait();
        let Some(shared) = shared.upgrade().filter(|_| woken != Woken::End) else { return };
        if woken == Woken::Events && queue.take_in(&mut buffer) {
            let open = shared.all();
            tracing::warn!(mailboxes = open.len(), "inotify events were lost; mailboxes are read anew");
            for mailbox in open {
                mailbox.reread();
            }
        }
        let now = shared.core.setup.clock.boot();
        if now.saturating_sub(*swept.get_or_insert(now)) >= SWEEP_EVERY {
            swept = Some(now);
            shared.drop_idle(IDLE_AFTER);
        }
        drop(shared);
        std::thread::sleep(PAUSE);
    }
}

impl Inner {
    /// A file landed in `ready/`.
    fn landed(&self, name: &std::ffi::OsStr) {
        let mut state = self.lock_state();
        let news = match &mut *state {
            State::Loaded(loaded) => self.noticed(loaded, name),
            // Nobody asked for a while: whoever waits for a change will, and then the names are read.
            State::Cold => Ok(true),
            State::Gone => Ok(false),
        };
        drop(state);
        match news {
            Ok(true) => self.bump(),
            Ok(false) => {}
            Err(error) => {
                tracing::warn!(agent = %self.agent, ?name, %error, "cannot take in a file");
            }
        }
    }

    fn reread(&self) {
        let mut state = self.lock_state();
        if let State::Loaded(loaded) = &mut *state
            && let Err(error) = self.rescan(loaded)
        {
            tracing::warn!(agent = %self.agent, %error, "cannot read a mailbox anew");
        }
        drop(state);
        self.bump();
    }
}
