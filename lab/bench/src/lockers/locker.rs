//! What the bench requires of each lock library.

use std::time::Duration;

/// The TTL of a lock, which is the default of Leasehold.
pub(crate) const TTL: Duration = Duration::from_secs(30);

/// One client of one store.
pub(crate) trait Locker: Send + Sync + 'static {
    type Lock: Lock;

    /// Returns the lock with the name `key`, without I/O.
    fn lock(&self, key: &str) -> Self::Lock;

    /// Returns the same lock for each of `count` tasks.
    fn locks(&self, key: &str, count: usize) -> Vec<Self::Lock> {
        (0..count).map(|_| self.lock(key)).collect()
    }
}

/// The lock of one task.
pub(crate) trait Lock: Send + Sync + 'static {
    /// Waits for the lock, does `work`, and releases the lock.
    fn turn<W>(&self, work: W) -> impl Future<Output = W::Output> + Send
    where
        W: Future<Output: Send + 'static> + Send + 'static;
}
