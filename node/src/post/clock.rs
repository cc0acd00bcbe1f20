//! The node's hybrid clock, kept over restarts: stamps are reserved on disk a little ahead, so that after a
//! restart none is below one that was given, wherever the wall clock went meanwhile.

use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use posthouse_shared::clock::{Clock, HybridClock, Observed, Stamp};
use posthouse_shared::durable::{DurableError, Files};

/// Stamps are reserved this far ahead; after a crash they may start as far ahead of the wall clock.
const BLOCK: Duration = Duration::from_secs(2);

/// The clock that stamps messages.
pub struct KeptClock {
    state: Mutex<State>,
    files: Files,
    path: PathBuf,
    wall: Arc<dyn Clock>,
}

struct State {
    clock: HybridClock,
    /// Stamps up to here may be given.
    upto: Stamp,
}

impl KeptClock {
    /// Opens the clock kept in the file `path`: one line, the reserved stamp. A file that cannot be read as
    /// that counts as none, with a warning: the wall clock is then all there is.
    pub fn open(files: Files, path: PathBuf, wall: Arc<dyn Clock>) -> Result<Self, DurableError> {
        let bytes = files.read_if_there(&path, 128)?;
        let kept = bytes.map(|bytes| String::from_utf8_lossy(&bytes).trim().parse::<Stamp>());
        let upto = match kept {
            Some(Ok(upto)) => upto,
            Some(Err(error)) => {
                tracing::warn!(path = %path.display(), %error, "kept clock is not readable");
                Stamp::default()
            }
            None => Stamp::default(),
        };
        let state = Mutex::new(State { clock: HybridClock::after(upto), upto });
        Ok(Self { state, files, path, wall })
    }

    /// The next stamp: above all that were given, also before a restart.
    pub fn tick(&self) -> Result<Stamp, DurableError> {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        let mut clock = state.clock;
        let stamp = clock.tick(self.wall.now());
        if stamp > state.upto {
            let upto = stamp.plus(BLOCK);
            self.files.replace(&self.path, upto.to_string().as_bytes())?;
            self.files.point("clock.reserved");
            state.upto = upto;
        }
        state.clock = clock;
        Ok(stamp)
    }

    /// Takes a stamp that came from elsewhere into account.
    pub fn observe(&self, remote: Stamp, max_skew: Duration) -> Observed {
        let now = self.wall.now();
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        state.clock.observe(remote, now, max_skew)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use posthouse_shared::clock::ManualClock;

    #[test]
    fn stamps_rise_over_restarts_though_the_wall_clock_jumps() {
        let dir = tempfile::tempdir().unwrap();
        let wall = Arc::new(ManualClock::at(Stamp::from_nanos(7_200_000_000_000)));
        let mut last = Stamp::default();
        for jump in [0u64, 3_600_000_000_000, 10_800_000_000_000, 1, 7_200_000_000_000] {
            let clock = KeptClock::open(Files::real(), dir.path().join("clock"), wall.clone()).unwrap();
            for _ in 0..100 {
                let stamp = clock.tick().unwrap();
                assert!(stamp > last);
                last = stamp;
                wall.advance(Duration::from_millis(70));
            }
            wall.set(Stamp::from_nanos(jump));
        }
    }
}
