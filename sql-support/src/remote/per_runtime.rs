//! Values of which each tokio runtime has its own.

use std::fmt;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use leasehold_core::backend::unpoisoned;
use tokio::runtime::{Handle, Id};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::timeout;

use crate::failure::Failure;
use crate::remote::RunError;

/// The maximum number of runtimes with a value. Nobody is notified when a runtime ends.
const RUNTIMES: usize = 64;

/// A value for each runtime. A runtime may be blocked during a call, and calls on other runtimes must
/// not wait for what this call uses, such as a connection.
pub(super) struct PerRuntime<T> {
    create: Box<dyn Fn() -> T + Send + Sync>,
    /// `None` after the backend was closed.
    values: Mutex<Option<Values<T>>>,
}

/// The values, in the order of their last use.
type Values<T> = Vec<(Option<Id>, Arc<T>)>;

impl<T> PerRuntime<T> {
    pub(super) fn new(create: impl Fn() -> T + Send + Sync + 'static) -> Self {
        Self { create: Box::new(create), values: Mutex::new(Some(Vec::new())) }
    }

    /// Returns the value of the current runtime.
    pub(super) fn current(&self) -> Result<Arc<T>, RunError> {
        let runtime = Handle::try_current().ok().map(|runtime| runtime.id());
        let mut values = unpoisoned(&self.values);
        let Some(open) = &mut *values else {
            return Err(RunError::without_source(Failure::NotApplied, "the backend is closed"));
        };
        let found = open.iter().position(|(of, _)| *of == runtime);
        let is_unused = |(_, value): &(_, Arc<T>)| Arc::strong_count(value) == 1;
        let oldest = if found.is_none() && open.len() >= RUNTIMES {
            open.iter().position(is_unused).map(|oldest| open.remove(oldest))
        } else {
            None
        };
        let (_, value) = match found {
            Some(found) => open.remove(found),
            None => (runtime, Arc::new((self.create)())),
        };
        open.push((runtime, Arc::clone(&value)));
        // The mutex is unlocked first, because dropping a value may run arbitrary code.
        drop(values);
        drop(oldest);
        Ok(value)
    }

    /// Returns the values of all runtimes.
    pub(super) fn all(&self) -> Vec<Arc<T>> {
        let values = unpoisoned(&self.values);
        values.iter().flatten().map(|(_, value)| Arc::clone(value)).collect()
    }

    /// Returns the values of all runtimes, and refuses to create others.
    pub(super) fn close(&self) -> Vec<Arc<T>> {
        let values = unpoisoned(&self.values).take();
        values.into_iter().flatten().map(|(_, value)| value).collect()
    }
}

impl PerRuntime<Semaphore> {
    /// Waits until fewer calls than permits are in progress on the current runtime.
    pub(super) async fn turn(&self, limit: Duration) -> Result<OwnedSemaphorePermit, RunError> {
        turn(self.current()?, limit).await
    }
}

/// Waits until fewer calls than permits are in progress.
pub(super) async fn turn(
    turns: Arc<Semaphore>,
    limit: Duration,
) -> Result<OwnedSemaphorePermit, RunError> {
    let busy =
        |elapsed| RunError::new(Failure::NotApplied, "no connection became free in time", elapsed);
    let closed = |closed| RunError::new(Failure::NotApplied, "the backend is closed", closed);
    let turn = timeout(limit, turns.acquire_owned()).await;
    turn.map_err(busy)?.map_err(closed)
}

impl<T> fmt::Debug for PerRuntime<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PerRuntime").field("values", &self.all().len()).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use tokio::runtime::Builder;

    use super::*;

    #[test]
    fn the_values_of_the_last_runtimes_are_kept() {
        let values = PerRuntime::new(|| ());
        let runtime = || Builder::new_current_thread().build().unwrap();
        let current = |runtime: &tokio::runtime::Runtime| {
            let _entered = runtime.enter();
            values.current().unwrap()
        };
        let [first, used] = [runtime(), runtime()];
        let kept = [current(&first), current(&used)].map(|value| Arc::downgrade(&value));

        for _ in 0..RUNTIMES - 1 {
            current(&used);
            current(&runtime());
        }

        let is_kept = kept.map(|value| value.upgrade().is_some());
        assert_eq!((values.all().len(), is_kept), (RUNTIMES, [false, true]));
    }

    #[test]
    fn a_closed_backend_creates_no_value() {
        let values = PerRuntime::new(|| ());
        values.current().unwrap();

        assert_eq!(values.close().len(), 1);

        assert_eq!(values.current().unwrap_err().to_string(), "the backend is closed");
    }
}
