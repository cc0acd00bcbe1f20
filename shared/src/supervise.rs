//! Tasks that somebody joins. The only place that calls `tokio::spawn`: what is started here is named, its
//! panic is logged, and closing waits for it, with an end.

use std::future::Future;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tokio::sync::watch;
use tokio::task::JoinSet;

/// Starts tasks and joins them. Cheap to clone; clones share the tasks.
#[derive(Clone, Debug)]
pub struct Supervisor {
    tasks: Arc<Mutex<JoinSet<()>>>,
    closing: watch::Sender<bool>,
}

struct AbortOnDrop(tokio::task::JoinHandle<()>);

impl Drop for AbortOnDrop {
    fn drop(&mut self) {
        self.0.abort();
    }
}

/// Tells a task that it should end.
#[derive(Clone, Debug)]
pub struct Closing(watch::Receiver<bool>);

impl Closing {
    /// Whether closing has begun.
    pub fn begun(&self) -> bool {
        *self.0.borrow()
    }

    /// Waits until closing begins. Cancel-safe.
    pub async fn wait(&mut self) {
        let _ended_means_closing = self.0.wait_for(|closing| *closing).await;
    }
}

impl Default for Supervisor {
    fn default() -> Self {
        Self::new()
    }
}

impl Supervisor {
    /// With no task yet.
    pub fn new() -> Self {
        Self { tasks: Arc::default(), closing: watch::Sender::new(false) }
    }

    /// Starts a task. `name` stands in the log when it panics.
    #[expect(clippy::disallowed_methods, reason = "the supervisor is who may spawn")]
    pub fn start(&self, name: &'static str, task: impl Future<Output = ()> + Send + 'static) {
        let mut tasks = self.tasks.lock().unwrap_or_else(PoisonError::into_inner);
        while tasks.try_join_next().is_some() {}
        tasks.spawn(async move {
            let mut inner = AbortOnDrop(tokio::spawn(task));
            if let Err(error) = (&mut inner.0).await
                && error.is_panic()
            {
                tracing::error!(task = name, %error, "task panicked");
            }
        });
    }

    /// The signal for tasks to end.
    pub fn closing(&self) -> Closing {
        Closing(self.closing.subscribe())
    }

    /// Tells all tasks to end.
    pub fn begin_close(&self) {
        self.closing.send_replace(true);
    }

    /// Tells all tasks to end and waits for them, at most `grace`; what has not ended then is aborted.
    /// Answers whether all ended by themselves.
    pub async fn close(&self, grace: Duration) -> bool {
        self.begin_close();
        let mut tasks = std::mem::take(&mut *self.tasks.lock().unwrap_or_else(PoisonError::into_inner));
        let all = async { while tasks.join_next().await.is_some() {} };
        let ended = tokio::time::timeout(grace, all).await.is_ok();
        tasks.abort_all();
        ended
    }
}
