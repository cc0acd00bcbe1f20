//! Checkpoints: an agent's history in the shared blob store, for a home that starts without the old one's disk.
//!
//! ```text
//! checkpoints/<team>/<agent>.<birth>/<term>.<index>/<sha256>                   a piece of the history
//! checkpoints/<team>/<agent>.<birth>/<term>.<index>/<bytes>.pointer            what the history is made of
//! ```
//!
//! Nothing is ever changed: a pointer is put once, after all that it names, and the newest by (generation, length)
//! counts. So an old home that goes on writing can never overtake a new one, and no store needs compare-and-swap.
//! Each generation has pieces of its own and removes only its own old ones.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use posthouse_shared::clock::{Clock, Stamp};
use posthouse_shared::durable::{DurableError, Files, parent};
use posthouse_shared::generation::{Birth, Generation};
use posthouse_shared::identity::sha256_hex;
use posthouse_shared::message::BlobRef;
use posthouse_shared::name::AgentId;
use posthouse_shared::supervise::Closing;
use serde::{Deserialize, Serialize};
use tokio::sync::Notify;

use crate::blob::{BlobStore, StoreError};

/// Pieces are cut at multiples of this, so that all but the last one stay the same as the history grows.
const PIECE_BYTES: usize = 1024 * 1024;
/// Largest history that is checkpointed.
const HISTORY_BYTES_MAX: u64 = 4 << 30;
const POINTER_BYTES_MAX: u64 = 16 * 1024 * 1024;
const SUFFIX: &str = ".pointer";
/// Pointers that a generation keeps: a reader may be at the last but one.
const KEEP: usize = 2;
/// After a store that failed.
const AGAIN: Duration = Duration::from_secs(10);

/// What a checkpoint cannot do, and why.
#[derive(Debug, thiserror::Error)]
pub enum CheckpointError {
    /// The store.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// This host's disk.
    #[error(transparent)]
    Durable(#[from] DurableError),
    /// A piece or pointer is not what it should be.
    #[error("checkpoint {key} is not what its name says")]
    Corrupt {
        /// The object.
        key: String,
    },
    /// There is a file where the history is to be put.
    #[error("there is a history already")]
    Taken,
    /// It cannot be encoded.
    #[error("encode checkpoint")]
    Encode(#[from] serde_json::Error),
}

/// What a history is made of.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Checkpoint {
    /// Version of this record.
    pub v: u8,
    /// Whose history it is.
    pub agent: AgentId,
    /// Its birth.
    pub birth: Birth,
    /// The grant of the home that wrote it.
    pub generation: Generation,
    /// Length of the history.
    pub bytes: u64,
    /// Its pieces, in order.
    pub pieces: Vec<BlobRef>,
    /// When it was written, by that home's clock.
    pub at: Stamp,
}

impl Checkpoint {
    /// Puts a history into the store as it is now, up to its last whole line: durable there at return. Nothing where
    /// there is no whole line yet.
    pub fn write(
        store: &BlobStore,
        files: &Files,
        history: &Path,
        of: (&AgentId, Birth, Generation),
        at: Stamp,
    ) -> Result<Option<Self>, CheckpointError> {
        let (agent, birth, generation) = of;
        let mut bytes = files.read_if_there(history, HISTORY_BYTES_MAX)?.unwrap_or_default();
        bytes.truncate(bytes.iter().rposition(|byte| *byte == b'\n').map_or(0, |at| at + 1));
        if bytes.is_empty() {
            return Ok(None);
        }
        let under = format!("{}/{}", root(agent, birth), folder(generation));
        let there = store.list(&under)?;
        let mut pieces = Vec::new();
        for piece in bytes.chunks(PIECE_BYTES) {
            let sha256 = sha256_hex(piece);
            if !there.contains(&sha256) {
                store.put_once(&format!("{under}/{sha256}"), piece.to_vec())?;
            }
            pieces.push(BlobRef { sha256, bytes: len(piece) });
        }
        let checkpoint =
            Self { v: 1, agent: agent.clone(), birth, generation, bytes: len(&bytes), pieces, at };
        let pointer = format!("{:020}{SUFFIX}", checkpoint.bytes);
        if !there.contains(&pointer) {
            store.put_once(&format!("{under}/{pointer}"), serde_json::to_vec(&checkpoint)?)?;
        }
        if let Err(error) = checkpoint.remove_older(store, &under, &there) {
            tracing::debug!(%agent, %error, "older checkpoints stay");
        }
        Ok(Some(checkpoint))
    }

    /// The newest checkpoint of an agent, whoever wrote it; nothing where there is none.
    pub fn latest(store: &BlobStore, agent: &AgentId, birth: Birth) -> Result<Option<Self>, CheckpointError> {
        let root = root(agent, birth);
        // Names are padded: the last one is that of the highest generation, and there of the longest history.
        let names = store.list(&root)?;
        let Some(name) = names.iter().rev().find(|name| name.ends_with(SUFFIX)) else { return Ok(None) };
        let key = format!("{root}/{name}");
        let corrupt = || CheckpointError::Corrupt { key: key.clone() };
        let found: Self =
            serde_json::from_slice(&store.get(&key, POINTER_BYTES_MAX)?).map_err(|_| corrupt())?;
        let fits = found.v == 1 && (&found.agent, found.birth) == (agent, birth);
        let sum: u64 = found.pieces.iter().map(|piece| piece.bytes).sum();
        if fits && sum == found.bytes { Ok(Some(found)) } else { Err(corrupt()) }
    }

    /// Writes the history that it stands for to `path`, where none may be: whole, checked and synced at return.
    pub fn restore(&self, store: &BlobStore, files: &Files, path: &Path) -> Result<(), CheckpointError> {
        if files.exists(path) {
            return Err(CheckpointError::Taken);
        }
        let under = format!("{}/{}", root(&self.agent, self.birth), folder(self.generation));
        let mut history = Vec::new();
        for piece in &self.pieces {
            let key = format!("{under}/{}", piece.sha256);
            let bytes = store.get(&key, piece.bytes)?;
            if len(&bytes) != piece.bytes || sha256_hex(&bytes) != piece.sha256 {
                return Err(CheckpointError::Corrupt { key });
            }
            history.extend(bytes);
        }
        files.create_dirs(parent(path))?;
        Ok(files.replace(path, &history)?)
    }

    /// Of this generation: older pointers but the last ones, and pieces that no pointer which stays names.
    fn remove_older(&self, store: &BlobStore, under: &str, there: &[String]) -> Result<(), CheckpointError> {
        let mut pointers: Vec<&String> = there.iter().filter(|name| name.ends_with(SUFFIX)).collect();
        pointers.sort_unstable();
        let older = pointers.split_off(pointers.len().saturating_sub(KEEP - 1));
        let (gone, stay) = (pointers, older);
        if gone.is_empty() {
            return Ok(());
        }
        let mut named: Vec<String> = self.pieces.iter().map(|piece| piece.sha256.clone()).collect();
        for pointer in stay {
            let bytes = store.get(&format!("{under}/{pointer}"), POINTER_BYTES_MAX)?;
            let kept: Self = serde_json::from_slice(&bytes)?;
            named.extend(kept.pieces.into_iter().map(|piece| piece.sha256));
        }
        for pointer in gone {
            store.remove(&format!("{under}/{pointer}"))?;
        }
        for piece in there.iter().filter(|name| !name.ends_with(SUFFIX) && !named.contains(name)) {
            store.remove(&format!("{under}/{piece}"))?;
        }
        Ok(())
    }
}

/// A history that has grown.
#[derive(Debug, Clone)]
pub(crate) struct Grown {
    pub birth: Birth,
    pub generation: Generation,
    pub history: PathBuf,
}

/// Whose history has grown since its last checkpoint; one entry an agent, however many turns it was. Clones share it.
#[derive(Clone)]
pub(crate) struct Checkpoints(Option<Arc<Waiting>>);

struct Waiting {
    store: BlobStore,
    grown: Mutex<BTreeMap<AgentId, Grown>>,
    wake: Notify,
}

impl Checkpoints {
    /// Into this store; without one nothing is noted.
    pub fn new(store: Option<BlobStore>) -> Self {
        let waiting = |store| Arc::new(Waiting { store, grown: Mutex::default(), wake: Notify::new() });
        Self(store.map(waiting))
    }

    /// A turn has ended: no turn waits for its checkpoint.
    pub fn grown(&self, agent: &AgentId, grown: Grown) {
        let Some(waiting) = &self.0 else { return };
        waiting.lock().insert(agent.clone(), grown);
        waiting.wake.notify_one();
    }
}

impl Waiting {
    fn lock(&self) -> std::sync::MutexGuard<'_, BTreeMap<AgentId, Grown>> {
        self.grown.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Writes checkpoints of what has grown, until the node closes and nothing waits. A store that fails is tried again;
/// nothing else waits for it.
pub(crate) async fn keep(
    checkpoints: Checkpoints,
    files: Files,
    clock: Arc<dyn Clock>,
    mut closing: Closing,
) {
    let Some(waiting) = checkpoints.0 else { return };
    loop {
        let all = std::mem::take(&mut *waiting.lock());
        if all.is_empty() {
            if closing.begun() {
                return;
            }
            tokio::select! {
                () = waiting.wake.notified() => {}
                () = closing.wait() => {}
            }
            continue;
        }
        let (store, files, clock) = (waiting.store.clone(), files.clone(), Arc::clone(&clock));
        let round = tokio::task::spawn_blocking(move || {
            let mut left = BTreeMap::new();
            for (agent, grown) in all {
                let of = (&agent, grown.birth, grown.generation);
                if let Err(error) = Checkpoint::write(&store, &files, &grown.history, of, clock.now()) {
                    tracing::warn!(%agent, %error, "no checkpoint yet");
                    left.insert(agent, grown);
                }
            }
            left
        });
        let left = round.await.unwrap_or_default();
        if left.is_empty() {
            continue;
        }
        if closing.begun() {
            return;
        }
        for (agent, grown) in left {
            waiting.lock().entry(agent).or_insert(grown);
        }
        tokio::select! {
            () = tokio::time::sleep(AGAIN) => {}
            () = closing.wait() => {}
        }
    }
}

fn root(agent: &AgentId, birth: Birth) -> String {
    format!("checkpoints/{}/{}.{birth}", agent.team, agent.agent)
}

fn folder(generation: Generation) -> String {
    format!("{:020}.{:020}", generation.term, generation.index)
}

fn len(bytes: &[u8]) -> u64 {
    u64::try_from(bytes.len()).unwrap_or(u64::MAX)
}

#[cfg(test)]
#[expect(clippy::disallowed_methods, reason = "damages files on purpose")]
mod tests {
    use super::*;

    struct Bench {
        temp: tempfile::TempDir,
        store: BlobStore,
    }

    impl Bench {
        fn new() -> Self {
            let temp = tempfile::tempdir().unwrap();
            let share = temp.path().join("share");
            std::fs::create_dir(&share).unwrap();
            let store = BlobStore::open(&format!("file://{}", share.display()), &[]).unwrap();
            Self { temp, store }
        }

        fn write(&self, home: &str, generation: Generation, history: &[u8]) -> Option<Checkpoint> {
            let path = self.temp.path().join(home);
            Files::real().replace(&path, history).unwrap();
            let of = (&agent(), birth(), generation);
            Checkpoint::write(&self.store, &Files::real(), &path, of, Stamp::default()).unwrap()
        }

        fn restored(&self) -> Vec<u8> {
            let latest = Checkpoint::latest(&self.store, &agent(), birth()).unwrap().unwrap();
            let path = self.temp.path().join("new/home/scout.jsonl");
            let _of_before = std::fs::remove_file(&path);
            latest.restore(&self.store, &Files::real(), &path).unwrap();
            assert!(matches!(
                latest.restore(&self.store, &Files::real(), &path),
                Err(CheckpointError::Taken)
            ));
            std::fs::read(&path).unwrap()
        }

        fn objects(&self) -> usize {
            self.store.list("checkpoints").unwrap().len()
        }
    }

    fn agent() -> AgentId {
        AgentId::new("scout".parse().unwrap(), "main".parse().unwrap())
    }

    fn birth() -> Birth {
        Generation::new(1, 7)
    }

    #[test]
    fn the_newest_history_comes_back_whole_and_old_checkpoints_do_not_pile_up() {
        let bench = Bench::new();
        assert!(Checkpoint::latest(&bench.store, &agent(), birth()).unwrap().is_none());
        assert!(bench.write("alpha", Generation::new(1, 9), b"torn").is_none());
        let mut history = Vec::new();
        for turn in 0..30 {
            history.extend(format!("{{\"turn\":{turn}}}{}\n", "x".repeat(100_000)).into_bytes());
            let torn = [history.clone(), b"{\"torn".to_vec()].concat();
            bench.write("alpha", Generation::new(1, 9), &torn).unwrap();
            // The same again changes nothing.
            bench.write("alpha", Generation::new(1, 9), &torn).unwrap();
            assert!(bench.restored() == history, "turn {turn}");
        }
        // 3 MB: two whole pieces, two last ones, two pointers.
        assert!(bench.objects() <= 6, "{} objects", bench.objects());
    }

    #[test]
    fn an_old_home_that_goes_on_writing_never_overtakes_the_new_one() {
        let bench = Bench::new();
        bench.write("alpha", Generation::new(1, 9), b"one\n").unwrap();
        bench.write("beta", Generation::new(1, 10), b"one\n").unwrap();
        for more in 1..6 {
            bench.write("alpha", Generation::new(1, 9), &b"of the old home\n".repeat(more)).unwrap();
            assert_eq!(bench.restored(), b"one\n");
        }
        bench.write("beta", Generation::new(1, 10), b"one\ntwo\n").unwrap();
        assert_eq!(bench.restored(), b"one\ntwo\n");
        bench.write("gamma", Generation::new(2, 1), b"three\n").unwrap();
        assert_eq!(bench.restored(), b"three\n");
    }

    #[test]
    fn a_checkpoint_that_was_damaged_is_not_taken_for_a_history() {
        let bench = Bench::new();
        let written = bench.write("alpha", Generation::new(1, 9), b"one\n").unwrap();
        let folder = bench.temp.path().join("share").join(root(&agent(), birth()));
        let folder = folder.join(super::folder(Generation::new(1, 9)));
        std::fs::write(folder.join(&written.pieces[0].sha256), "One\n").unwrap();
        let path = bench.temp.path().join("new");
        let latest = Checkpoint::latest(&bench.store, &agent(), birth()).unwrap().unwrap();
        let restored = latest.restore(&bench.store, &Files::real(), &path);
        assert!(matches!(restored, Err(CheckpointError::Corrupt { .. })));
        assert!(!path.exists());
        std::fs::write(folder.join(format!("{:020}{SUFFIX}", 4)), "{}").unwrap();
        assert!(Checkpoint::latest(&bench.store, &agent(), birth()).is_err());
    }
}
