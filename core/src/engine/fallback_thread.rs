//! Sends releases from a thread after the last runtime has ended. Dropping a guard waits briefly
//! for the thread to send the release.
//!
//! When a program exits, it drops its last guards and then its runtime, including the tasks that
//! would have sent the releases. Dropping the last task therefore waits for the pending releases.

use std::pin::pin;
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use tokio::runtime::Builder;
use tokio::time::timeout;

use crate::contract::backend::LockBackend;
use crate::engine::releases::ReleaseQueue;
use crate::sync::atomic::Ordering;
use crate::sync::lock;

/// How long the thread keeps running after the last release. A runtime needs less time than this to
/// drop its tasks one by one.
const IDLE: Duration = Duration::from_secs(1);

/// Counts a task that sends releases, for as long as the task exists.
#[derive(Debug)]
pub(crate) struct RunningTask(Arc<ReleaseQueue>);

impl ReleaseQueue {
    /// Counts a task that will call [`run`](Self::run).
    pub(crate) fn attend(self: &Arc<Self>, backend: &Arc<dyn LockBackend>) -> RunningTask {
        self.tasks.backend.get_or_init(|| Arc::clone(backend));
        self.tasks.alive.fetch_add(1, Ordering::SeqCst);
        RunningTask(Arc::clone(self))
    }

    /// If no task is running, starts a thread for the pending releases and waits for a short time
    /// until they have completed.
    pub(super) fn start_fallback(self: &Arc<Self>) {
        if self.tasks.alive.load(Ordering::SeqCst) > 0 || !self.clock.is_real_time() {
            return;
        }
        let Some(backend) = self.tasks.backend.get() else { return };
        let mut queue = lock(&self.queue);
        if queue.is_empty() {
            return;
        }
        let starts = !queue.fallback.works;
        queue.fallback.works = true;
        drop(queue);
        if starts {
            self.start(Arc::clone(backend));
        }
        self.wait_until_empty();
    }

    /// Blocks until no release is pending, unless drops have already waited long enough.
    pub(crate) fn wait_until_empty(&self) {
        let mut queue = lock(&self.queue);
        if queue.is_empty() || !self.clock.is_real_time() {
            return;
        }
        let wait = queue.fallback.wait();
        drop(queue);
        if let Some((nothing_is_left, ends)) = wait {
            let left = ends.saturating_duration_since(Instant::now());
            let _nothing = nothing_is_left.recv_timeout(left);
        }
    }

    fn start(self: &Arc<Self>, backend: Arc<dyn LockBackend>) {
        let this = Arc::clone(self);
        let thread = thread::Builder::new().name("leasehold-release".to_owned());
        if let Err(error) = thread.spawn(move || this.run_fallback(&*backend)) {
            tracing::warn!(%error, "cannot start a thread for releases; the locks expire after their TTL");
            self.stop_fallback();
        }
    }

    /// The body of the thread.
    fn run_fallback(&self, backend: &dyn LockBackend) {
        // A runtime that has ended no longer drives its connections.
        backend.disconnect();
        match Builder::new_current_thread().enable_all().build() {
            Ok(runtime) => runtime.block_on(self.run_until_idle(backend)),
            Err(error) => {
                tracing::warn!(%error, "cannot start a runtime for releases; the locks expire after their TTL");
                self.stop_fallback();
            }
        }
        backend.disconnect();
    }

    async fn run_until_idle(&self, backend: &dyn LockBackend) {
        let mut run = pin!(self.run(backend));
        loop {
            let has_ended = timeout(IDLE, run.as_mut()).await.is_ok();
            let mut queue = lock(&self.queue);
            if has_ended || queue.is_empty() {
                queue.fallback.works = false;
                return;
            }
        }
    }

    fn stop_fallback(&self) {
        let mut queue = lock(&self.queue);
        queue.fallback.works = false;
        queue.fallback.waiting.clear();
    }
}

impl Drop for RunningTask {
    fn drop(&mut self) {
        self.0.tasks.alive.fetch_sub(1, Ordering::SeqCst);
        self.0.start_fallback();
    }
}
