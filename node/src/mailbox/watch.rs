//! Files of other programs and processes: one inotify watcher for the `ready/` of all mailboxes in use. The
//! kernel's queue can overflow; then each of them is read once. Where watches cannot be had, an idle claim
//! reads the directory instead.

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, TrySendError, sync_channel};
use std::sync::{Arc, Mutex, Weak};
use std::time::Duration;

use notify::event::{AccessKind, AccessMode, CreateKind, EventKind, ModifyKind, RenameMode};
use notify::{RecursiveMode, Watcher as _};

use super::name::FileName;
use super::{IDLE_AFTER, Inner, Shared, State, lock};

/// Events between the kernel's queue and the thread that works on them; more than that is a rescan.
const EVENTS_MAX: usize = 65_536;
const SWEEP_EVERY: Duration = Duration::from_secs(30);

/// The watcher; ends when it is dropped.
pub(super) struct Watcher(Option<Mutex<notify::RecommendedWatcher>>);

/// A file that is whole: renamed into place, or closed after writing.
struct Landed {
    dir: PathBuf,
    name: OsString,
}

impl Watcher {
    /// Starts the thread. Where inotify cannot be had there is no watcher, and a warning.
    pub(super) fn start(shared: Weak<Shared>) -> Self {
        let (to, from) = sync_channel(EVENTS_MAX);
        let missed = Arc::new(AtomicBool::new(false));
        let on_event = handler(to, Arc::clone(&missed));
        let watcher = match notify::recommended_watcher(on_event) {
            Ok(watcher) => watcher,
            Err(error) => {
                tracing::warn!(%error, "no inotify; mailboxes are read when they are idle");
                return Self(None);
            }
        };
        let work = move || run(&from, &missed, &shared);
        if let Err(error) = std::thread::Builder::new().name("mailbox-watch".to_owned()).spawn(work) {
            tracing::warn!(%error, "cannot start the watch thread; mailboxes are read when they are idle");
            return Self(None);
        }
        Self(Some(Mutex::new(watcher)))
    }

    /// Watches one `ready/`; answers whether it is watched.
    pub(super) fn watch(&self, ready: &Path) -> bool {
        let Some(watcher) = &self.0 else { return false };
        match lock(watcher).watch(ready, RecursiveMode::NonRecursive) {
            Ok(()) => true,
            Err(error) => {
                tracing::warn!(path = %ready.display(), %error, "cannot watch a mailbox; it is read when it is idle");
                false
            }
        }
    }

    /// Ends that.
    pub(super) fn forget(&self, ready: &Path) {
        if let Some(watcher) = &self.0 {
            let _was_not_watched = lock(watcher).unwatch(ready);
        }
    }
}

/// Runs on notify's thread, which must never wait: a full queue is told by the flag.
fn handler(
    to: SyncSender<Landed>,
    missed: Arc<AtomicBool>,
) -> impl FnMut(notify::Result<notify::Event>) + Send + 'static {
    move |event| {
        let event = match event {
            Ok(event) => event,
            Err(error) => {
                tracing::warn!(%error, "inotify failed; mailboxes are read anew");
                missed.store(true, Ordering::Release);
                return;
            }
        };
        if event.need_rescan() {
            missed.store(true, Ordering::Release);
            return;
        }
        let (whole, begun) = match event.kind {
            EventKind::Modify(ModifyKind::Name(RenameMode::To))
            | EventKind::Access(AccessKind::Close(AccessMode::Write))
            | EventKind::Create(CreateKind::Folder) => (true, false),
            EventKind::Create(_) => (false, true),
            EventKind::Any
            | EventKind::Access(_)
            | EventKind::Modify(_)
            | EventKind::Remove(_)
            | EventKind::Other => (false, false),
        };
        if !whole && !begun {
            return;
        }
        for path in event.paths {
            let (Some(dir), Some(name)) = (path.parent(), path.file_name()) else { continue };
            // A link makes a whole file of our own name; a foreign one is awaited until it is closed.
            if begun && FileName::parse(name).is_none() {
                continue;
            }
            let landed = Landed { dir: dir.to_owned(), name: name.to_owned() };
            match to.try_send(landed) {
                Ok(()) => {}
                Err(TrySendError::Full(_)) => missed.store(true, Ordering::Release),
                Err(TrySendError::Disconnected(_)) => return,
            }
        }
    }
}

fn run(from: &Receiver<Landed>, missed: &AtomicBool, shared: &Weak<Shared>) {
    loop {
        let event = from.recv_timeout(SWEEP_EVERY);
        let Some(shared) = shared.upgrade() else { return };
        match event {
            Ok(landed) => {
                if let Some(mailbox) = shared.by_ready_dir(&landed.dir) {
                    mailbox.landed(&landed.name);
                }
            }
            Err(RecvTimeoutError::Timeout) => {
                shared.drop_idle(IDLE_AFTER);
            }
            Err(RecvTimeoutError::Disconnected) => return,
        }
        if missed.swap(false, Ordering::AcqRel) {
            let open = shared.all();
            tracing::warn!(mailboxes = open.len(), "inotify events were lost; mailboxes are read anew");
            for mailbox in open {
                mailbox.reread();
            }
        }
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
