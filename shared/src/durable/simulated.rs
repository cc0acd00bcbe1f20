//! A disk in memory that forgets what was not synced. At a loss of power ([`SimulatedDisk::power_loss`])
//! unsynced content is lost, cut or zeroed at the end, and of the unsynced names a part is kept that one
//! seed decides: as a journal would (a prefix) or worse (any that do not rest on a lost one). A rename is one
//! step, as on every journaled file system: both halves or neither.
//!
//! It can also be full, read-only, or dead ([`SimulatedDisk::cut`]): then everything fails until the power is
//! back, so that code that runs on after a crash point changes nothing.

use std::collections::{BTreeMap, HashSet};
use std::ffi::{OsStr, OsString};
use std::io::{self, ErrorKind};
use std::path::{Component, Path};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use super::{AppendFile, Disk, FileLock, file_name, parent};

/// The disk. Clones are the same disk.
#[derive(Clone, Default)]
pub struct SimulatedDisk(Arc<Mutex<State>>);

const ROOT: usize = 0;

struct State {
    nodes: Vec<Node>,
    /// Changes of names that no sync has covered, oldest first.
    pending: Vec<Change>,
    room: Option<usize>,
    read_only: bool,
    dead: bool,
    /// Raised by each loss of power: handles of before are dead.
    boot: u64,
    syncs: u64,
}

enum Node {
    File { now: Vec<u8>, synced: Vec<u8> },
    Dir { now: Entries, synced: Entries },
}

type Entries = BTreeMap<OsString, usize>;
type Slot = (usize, OsString);

/// One change of names: slots that are emptied and filled.
#[derive(Clone)]
struct Change {
    clear: Option<Slot>,
    set: Option<(Slot, usize)>,
}

impl Change {
    fn touches_dir(&self, dir: usize) -> bool {
        self.clear.as_ref().is_some_and(|slot| slot.0 == dir)
            || self.set.as_ref().is_some_and(|(slot, _)| slot.0 == dir)
    }

    fn slots(&self) -> impl Iterator<Item = &Slot> {
        self.clear.iter().chain(self.set.iter().map(|(slot, _)| slot))
    }
}

impl Default for State {
    fn default() -> Self {
        let root = Node::Dir { now: Entries::new(), synced: Entries::new() };
        let nodes = vec![root];
        Self { nodes, pending: Vec::new(), room: None, read_only: false, dead: false, boot: 0, syncs: 0 }
    }
}

/// A small generator, so that one seed replays a run.
struct Dice(u64);

impl Dice {
    fn roll(&mut self, below: usize) -> usize {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        let below = u64::try_from(below.max(1)).unwrap_or(1);
        usize::try_from((z ^ (z >> 31)) % below).unwrap_or(0)
    }
}

impl SimulatedDisk {
    /// An empty disk.
    pub fn new() -> Self {
        Self::default()
    }

    /// Everything fails from now on, until [`SimulatedDisk::power_loss`].
    pub fn cut(&self) {
        self.lock().dead = true;
    }

    /// The power goes and comes back. What was synced is there; of the rest `seed` decides.
    pub fn power_loss(&self, seed: u64) {
        let mut state = self.lock();
        let mut dice = Dice(seed);
        let changes = std::mem::take(&mut state.pending);
        let as_journal = dice.roll(2) == 0;
        let prefix = dice.roll(changes.len() + 1);
        let mut lost: HashSet<Slot> = HashSet::new();
        for (at, change) in changes.iter().enumerate() {
            let rests_on_lost = change.slots().any(|slot| lost.contains(slot));
            let kept = if as_journal { at < prefix } else { dice.roll(2) == 0 && !rests_on_lost };
            if kept {
                state.make_durable(change);
            } else {
                lost.extend(change.slots().cloned());
            }
        }
        for node in &mut state.nodes {
            match node {
                Node::Dir { now, synced } => *now = synced.clone(),
                Node::File { now, synced } => {
                    if now != synced {
                        *now = torn(now, synced, &mut dice);
                        *synced = now.clone();
                    }
                }
            }
        }
        state.dead = false;
        state.boot += 1;
    }

    /// How many bytes can still be written; `None` is no limit.
    pub fn set_room(&self, room: Option<usize>) {
        self.lock().room = room;
    }

    /// Whether all changes are refused.
    pub fn set_read_only(&self, read_only: bool) {
        self.lock().read_only = read_only;
    }

    /// How many syncs there were.
    pub fn syncs(&self) -> u64 {
        self.lock().syncs
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn alive(&self) -> io::Result<MutexGuard<'_, State>> {
        let state = self.lock();
        if state.dead { Err(io::Error::other("the power is off")) } else { Ok(state) }
    }

    fn writable(&self) -> io::Result<MutexGuard<'_, State>> {
        let state = self.alive()?;
        if state.read_only { Err(ErrorKind::ReadOnlyFilesystem.into()) } else { Ok(state) }
    }
}

/// What may be left of a file whose content was not synced.
fn torn(now: &[u8], synced: &[u8], dice: &mut Dice) -> Vec<u8> {
    // What an append left untouched is safe: only a file that was written anew can lose its beginning.
    let kept = if now.starts_with(synced) { synced.len() } else { 0 };
    let cut = kept + dice.roll(now.len() - kept + 1);
    match dice.roll(4) {
        0 => synced.to_vec(),
        1 => now.to_vec(),
        2 => now.iter().take(cut).copied().collect(),
        _ => now.iter().enumerate().map(|(at, byte)| if at < cut { *byte } else { 0 }).collect(),
    }
}

impl State {
    fn find(&self, path: &Path) -> io::Result<usize> {
        let mut at = ROOT;
        for part in path.components() {
            match part {
                Component::RootDir | Component::CurDir => {}
                Component::Normal(name) => {
                    at = *self.entries(at)?.get(name).ok_or(ErrorKind::NotFound)?;
                }
                Component::ParentDir | Component::Prefix(_) => return Err(ErrorKind::InvalidInput.into()),
            }
        }
        Ok(at)
    }

    fn slot(&self, path: &Path) -> io::Result<Slot> {
        let dir = self.find(parent(path))?;
        self.entries(dir)?;
        Ok((dir, file_name(path).to_owned()))
    }

    fn entries(&self, dir: usize) -> io::Result<&Entries> {
        match self.nodes.get(dir) {
            Some(Node::Dir { now, .. }) => Ok(now),
            Some(Node::File { .. }) => Err(ErrorKind::NotADirectory.into()),
            None => Err(ErrorKind::NotFound.into()),
        }
    }

    fn file(&mut self, node: usize) -> io::Result<(&mut Vec<u8>, &mut Vec<u8>)> {
        match self.nodes.get_mut(node) {
            Some(Node::File { now, synced }) => Ok((now, synced)),
            Some(Node::Dir { .. }) => Err(ErrorKind::IsADirectory.into()),
            None => Err(ErrorKind::NotFound.into()),
        }
    }

    fn make(&mut self, slot: Slot, node: Node) -> usize {
        let id = self.nodes.len();
        self.nodes.push(node);
        self.change(Change { clear: None, set: Some((slot, id)) });
        id
    }

    fn change(&mut self, change: Change) {
        self.apply(&change, |node| match node {
            Node::Dir { now, .. } => Some(now),
            Node::File { .. } => None,
        });
        self.pending.push(change);
    }

    fn make_durable(&mut self, change: &Change) {
        self.apply(change, |node| match node {
            Node::Dir { synced, .. } => Some(synced),
            Node::File { .. } => None,
        });
    }

    fn apply(&mut self, change: &Change, side: impl Fn(&mut Node) -> Option<&mut Entries>) {
        if let Some((dir, name)) = &change.clear
            && let Some(entries) = self.nodes.get_mut(*dir).and_then(&side)
        {
            entries.remove(name);
        }
        if let Some(((dir, name), node)) = &change.set
            && let Some(entries) = self.nodes.get_mut(*dir).and_then(&side)
        {
            entries.insert(name.clone(), *node);
        }
    }

    /// Makes durable what touches `dir`, and what that rests on.
    fn sync_dir(&mut self, dir: usize) {
        let mut wanted: HashSet<Slot> = HashSet::new();
        let mut durable = vec![false; self.pending.len()];
        for (change, durable) in self.pending.iter().zip(&mut durable).rev() {
            if change.touches_dir(dir) || change.slots().any(|slot| wanted.contains(slot)) {
                wanted.extend(change.slots().cloned());
                *durable = true;
            }
        }
        let pending = std::mem::take(&mut self.pending);
        for (change, durable) in pending.into_iter().zip(durable) {
            if durable {
                self.make_durable(&change);
            } else {
                self.pending.push(change);
            }
        }
    }

    /// Takes `bytes` of the room. A full disk takes what fits, as a real one does: the answer is how much.
    fn take_room(&mut self, bytes: usize) -> usize {
        match &mut self.room {
            Some(room) => {
                let fits = bytes.min(*room);
                *room -= fits;
                fits
            }
            None => bytes,
        }
    }
}

impl Disk for SimulatedDisk {
    fn write(&self, path: &Path, bytes: &[u8]) -> io::Result<()> {
        let mut state = self.writable()?;
        let slot = state.slot(path)?;
        let there = state.entries(slot.0)?.get(&slot.1).copied();
        if there.is_none() && state.room == Some(0) {
            return Err(ErrorKind::StorageFull.into());
        }
        let blank = Node::File { now: Vec::new(), synced: Vec::new() };
        let node = there.unwrap_or_else(|| state.make(slot, blank));
        let fits = state.take_room(bytes.len());
        let (now, _) = state.file(node)?;
        *now = bytes.iter().take(fits).copied().collect();
        if fits < bytes.len() { Err(ErrorKind::StorageFull.into()) } else { Ok(()) }
    }

    fn sync_file(&self, path: &Path) -> io::Result<()> {
        let mut state = self.alive()?;
        state.syncs += 1;
        let node = state.find(path)?;
        let (now, synced) = state.file(node)?;
        *synced = now.clone();
        Ok(())
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        let mut state = self.writable()?;
        let (from, to) = (state.slot(from)?, state.slot(to)?);
        let node = *state.entries(from.0)?.get(&from.1).ok_or(ErrorKind::NotFound)?;
        if from != to {
            state.change(Change { clear: Some(from), set: Some((to, node)) });
        }
        Ok(())
    }

    fn remove(&self, path: &Path) -> io::Result<()> {
        let mut state = self.writable()?;
        let slot = state.slot(path)?;
        let node = *state.entries(slot.0)?.get(&slot.1).ok_or(ErrorKind::NotFound)?;
        state.file(node)?;
        state.change(Change { clear: Some(slot), set: None });
        Ok(())
    }

    fn sync_dir(&self, dir: &Path) -> io::Result<()> {
        let mut state = self.alive()?;
        state.syncs += 1;
        let dir = state.find(dir)?;
        state.entries(dir)?;
        state.sync_dir(dir);
        Ok(())
    }

    fn sync_file_system(&self, _dir: &Path) -> io::Result<()> {
        let mut state = self.alive()?;
        state.syncs += 1;
        for change in std::mem::take(&mut state.pending) {
            state.make_durable(&change);
        }
        for node in &mut state.nodes {
            if let Node::File { now, synced } = node {
                *synced = now.clone();
            }
        }
        Ok(())
    }

    fn create_dir(&self, dir: &Path) -> io::Result<()> {
        let mut state = self.writable()?;
        let slot = state.slot(dir)?;
        match state.entries(slot.0)?.get(&slot.1).map(|node| state.entries(*node).is_ok()) {
            Some(true) => Ok(()),
            Some(false) => Err(ErrorKind::AlreadyExists.into()),
            None => {
                state.make(slot, Node::Dir { now: Entries::new(), synced: Entries::new() });
                Ok(())
            }
        }
    }

    fn exists(&self, path: &Path) -> bool {
        self.alive().is_ok_and(|state| state.find(path).is_ok())
    }

    fn read(&self, path: &Path, bytes_max: u64) -> io::Result<Vec<u8>> {
        let mut state = self.alive()?;
        let node = state.find(path)?;
        let (now, _) = state.file(node)?;
        if u64::try_from(now.len()).unwrap_or(u64::MAX) > bytes_max {
            let text = format!("longer than {bytes_max} bytes");
            return Err(io::Error::new(ErrorKind::FileTooLarge, text));
        }
        Ok(now.clone())
    }

    fn list(&self, dir: &Path) -> io::Result<Vec<OsString>> {
        let state = self.alive()?;
        let dir = state.find(dir)?;
        Ok(state.entries(dir)?.keys().cloned().collect())
    }

    fn visit(&self, dir: &Path, each: &mut dyn FnMut(&OsStr)) -> io::Result<()> {
        self.list(dir)?.iter().for_each(|name| each(name));
        Ok(())
    }

    fn open_lock(&self, path: &Path) -> io::Result<Box<dyn FileLock>> {
        self.write(path, b"")?;
        Ok(Box::new(NoLock))
    }

    fn open_append(&self, path: &Path) -> io::Result<Box<dyn AppendFile>> {
        let there = self.alive()?.find(path);
        let node = match there {
            Ok(node) => node,
            Err(error) if error.kind() == ErrorKind::NotFound => {
                self.write(path, b"")?;
                self.alive()?.find(path)?
            }
            Err(error) => return Err(error),
        };
        let mut state = self.alive()?;
        let boot = state.boot;
        state.file(node)?;
        drop(state);
        Ok(Box::new(SimulatedAppend { disk: self.clone(), node, boot }))
    }
}

/// Only one process sees a simulated disk, so nobody is locked out.
struct NoLock;

impl FileLock for NoLock {
    fn lock(&self) -> io::Result<()> {
        Ok(())
    }

    fn unlock(&self) {}

    fn try_lock(&self) -> io::Result<bool> {
        Ok(true)
    }
}

struct SimulatedAppend {
    disk: SimulatedDisk,
    node: usize,
    boot: u64,
}

impl SimulatedAppend {
    fn state(&self) -> io::Result<MutexGuard<'_, State>> {
        let state = self.disk.alive()?;
        if state.boot == self.boot {
            Ok(state)
        } else {
            Err(io::Error::other("opened before the power was lost"))
        }
    }
}

impl AppendFile for SimulatedAppend {
    fn len(&self) -> io::Result<u64> {
        let mut state = self.state()?;
        let (now, _) = state.file(self.node)?;
        Ok(u64::try_from(now.len()).unwrap_or(u64::MAX))
    }

    fn append(&mut self, bytes: &[u8]) -> io::Result<()> {
        let mut state = self.state()?;
        if state.read_only {
            return Err(ErrorKind::ReadOnlyFilesystem.into());
        }
        let fits = state.take_room(bytes.len());
        let (now, _) = state.file(self.node)?;
        now.extend(bytes.iter().take(fits));
        if fits < bytes.len() { Err(ErrorKind::StorageFull.into()) } else { Ok(()) }
    }

    fn sync(&mut self) -> io::Result<()> {
        let mut state = self.state()?;
        state.syncs += 1;
        let (now, synced) = state.file(self.node)?;
        *synced = now.clone();
        Ok(())
    }

    fn truncate(&mut self, len: u64) -> io::Result<()> {
        let mut state = self.state()?;
        if state.read_only {
            return Err(ErrorKind::ReadOnlyFilesystem.into());
        }
        let (now, _) = state.file(self.node)?;
        now.truncate(usize::try_from(len).unwrap_or(usize::MAX));
        Ok(())
    }
}
