//! Named places at which a test can end the process. With none armed, passing one costs a branch.

use std::sync::Arc;
use std::sync::Mutex;
use std::sync::PoisonError;
use std::sync::atomic::{AtomicU64, Ordering};

type Action = dyn Fn(&'static str) + Send + Sync;

/// The crash points of one durable layer. Cheap to clone; clones share the count.
#[derive(Clone, Default)]
pub struct CrashPoints(Option<Arc<Armed>>);

struct Armed {
    name: Option<String>,
    left: AtomicU64,
    action: Box<Action>,
    passed: Mutex<Vec<&'static str>>,
}

impl std::fmt::Debug for CrashPoints {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(if self.0.is_some() { "CrashPoints(armed)" } else { "CrashPoints(none)" })
    }
}

impl CrashPoints {
    /// Nothing is armed.
    pub const fn none() -> Self {
        Self(None)
    }

    /// `name` or `name:n`: aborts the process when that point is passed for the n-th time (the first by
    /// default). An abort runs no destructor and flushes nothing, as a crash does.
    pub fn abort_at(spec: &str) -> Self {
        Self::at(spec, |name| {
            eprintln!("crash point {name}");
            std::process::abort();
        })
    }

    /// As [`CrashPoints::abort_at`], with another action: a simulated disk loses power, say.
    pub fn at(spec: &str, action: impl Fn(&'static str) + Send + Sync + 'static) -> Self {
        let (name, times) = match spec.rsplit_once(':') {
            Some((name, times)) => (name, times.parse().unwrap_or(1)),
            None => (spec, 1),
        };
        Self::armed(Some(name.to_owned()), times, action)
    }

    /// Records the names of all points that are passed, and never acts.
    pub fn recording() -> Self {
        Self::armed(None, u64::MAX, |_| {})
    }

    fn armed(
        name: Option<String>,
        times: u64,
        action: impl Fn(&'static str) + Send + Sync + 'static,
    ) -> Self {
        let passed = Mutex::default();
        Self(Some(Arc::new(Armed { name, left: AtomicU64::new(times), action: Box::new(action), passed })))
    }

    /// Passes the point `name`.
    pub fn pass(&self, name: &'static str) {
        let Some(armed) = &self.0 else { return };
        match &armed.name {
            None => armed.passed.lock().unwrap_or_else(PoisonError::into_inner).push(name),
            Some(wanted) if wanted == name => {
                if armed.left.fetch_sub(1, Ordering::Relaxed) == 1 {
                    (armed.action)(name);
                }
            }
            Some(_) => {}
        }
    }

    /// What was passed, in order, since [`CrashPoints::recording`].
    pub fn passed(&self) -> Vec<&'static str> {
        match &self.0 {
            Some(armed) => armed.passed.lock().unwrap_or_else(PoisonError::into_inner).clone(),
            None => Vec::new(),
        }
    }
}
