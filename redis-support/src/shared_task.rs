//! Runs a task once, on behalf of all callers that wait for the task's outcome.

use leasehold_core::backend::unpoisoned;
use std::sync::Mutex;
use std::time::Duration;

use futures_util::FutureExt;
use futures_util::future::Shared;
use tokio::sync::oneshot;
use tokio::time::{Instant, timeout_at};

/// Runs one task at a time, and returns its outcome to all callers.
///
/// A task runs on the runtime of the caller that started it, and does not depend on callers. That
/// runtime may stop running. For example, a current-thread runtime stops between two calls of
/// `block_on`. The remaining callers therefore wait for a limited time, after which one of them
/// starts a new task.
pub(crate) struct SharedTask<T>(Mutex<Option<Running<T>>>);

#[derive(Clone)]
struct Running<T> {
    outcome: Shared<oneshot::Receiver<T>>,
    /// The time until which callers wait for the task.
    until: Instant,
}

impl<T: Clone + Send + Sync + 'static> SharedTask<T> {
    pub(crate) fn new() -> Self {
        Self(Mutex::new(None))
    }

    /// Returns the outcome of the running task. If no task was started within the last `limit`,
    /// starts `work`. Returns `None` if the runtime of the task has stopped or ended.
    ///
    /// # Cancel safety
    ///
    /// This method is cancel safe. If the future is dropped, the task continues.
    pub(crate) async fn outcome<F>(&self, limit: Duration, work: impl FnOnce() -> F) -> Option<T>
    where
        F: Future<Output = T> + Send + 'static,
    {
        let (Running { outcome, until }, is_own) = self.join(limit, work);
        if is_own {
            // The runtime that polls this caller also runs its task.
            return outcome.await.ok();
        }
        timeout_at(until, outcome).await.ok()?.ok()
    }

    /// Starts `work`, unless a task that was started within the last `limit` is still running.
    pub(crate) fn begin<F>(&self, limit: Duration, work: impl FnOnce() -> F)
    where
        F: Future<Output = T> + Send + 'static,
    {
        self.join(limit, work);
    }

    /// Returns the running task, and whether it has just started.
    fn join<F>(&self, limit: Duration, work: impl FnOnce() -> F) -> (Running<T>, bool)
    where
        F: Future<Output = T> + Send + 'static,
    {
        let mut running = unpoisoned(&self.0);
        let now = Instant::now();
        if let Some(other) = &*running
            && now < other.until
            && other.outcome.clone().now_or_never().is_none()
        {
            return (other.clone(), false);
        }
        let (tell, told) = oneshot::channel();
        let own = Running { outcome: told.shared(), until: now + limit };
        let before = running.replace(own.clone());
        drop(running);
        // The mutex is unlocked first, because dropping an outcome may run arbitrary code.
        drop(before);
        let work = work();
        tokio::spawn(async move { drop(tell.send(work.await)) });
        (own, true)
    }
}

#[cfg(test)]
mod tests {
    use std::future::{pending, ready};

    use tokio::runtime::Builder;

    use super::*;

    const LIMIT: Duration = Duration::from_millis(500);

    #[tokio::test(start_paused = true)]
    async fn callers_share_a_task_while_it_runs() {
        let task = SharedTask::new();
        let after = |time, outcome| async move {
            tokio::time::sleep(time).await;
            outcome
        };

        let first = task.outcome(LIMIT, || after(LIMIT / 2, 1));
        let second = task.outcome(LIMIT, || ready(2));

        assert_eq!(tokio::join!(first, second), (Some(1), Some(1)));
        assert_eq!(task.outcome(LIMIT, || ready(3)).await, Some(3));
    }

    #[tokio::test(start_paused = true)]
    async fn the_caller_that_began_a_task_waits_for_it_however_long_it_takes() {
        let task = SharedTask::new();

        let slow = || tokio::time::sleep(3 * LIMIT);

        assert_eq!(task.outcome(LIMIT, slow).await, Some(()));
    }

    #[tokio::test(start_paused = true)]
    async fn a_task_that_stands_still_is_waited_for_until_its_limit_by_all() {
        let task = SharedTask::new();
        task.begin(LIMIT, pending::<i32>);

        let begun_at = Instant::now();
        for _ in 0..2 {
            let given_up = tokio::time::timeout(LIMIT / 2, task.outcome(LIMIT, || ready(1))).await;
            assert!(!matches!(given_up, Ok(Some(_))));
        }

        assert_eq!(task.outcome(LIMIT, || ready(2)).await, Some(2));
        assert_eq!(begun_at.elapsed(), LIMIT);
    }

    #[tokio::test]
    async fn a_task_that_ended_with_its_runtime_is_no_longer_waited_for() {
        let task = SharedTask::new();
        let other = Builder::new_current_thread().build().unwrap();
        {
            let _entered = other.enter();
            task.begin(LIMIT, pending::<i32>);
        }

        other.shutdown_background();

        assert_eq!(task.outcome(LIMIT, || ready(1)).await, Some(1));
    }
}
