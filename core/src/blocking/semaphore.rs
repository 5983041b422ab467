//! A number of permits.

use std::time::Duration;

use super::background::Background;
use super::guard::Guard;
use crate::clock::Instant;
use crate::contract::error::Error;
use crate::contract::key::LockKey;
use crate::contract::try_lock_error::TryLockError;
use crate::options::LockOptions;

/// A number of permits that callers take some of, and give back: the [`Semaphore`](crate::Semaphore) of
/// code without a runtime.
///
/// ```
/// use leasehold_core::blocking::LockClient;
/// use leasehold_core::memory::MemoryBackend;
///
/// let connections = LockClient::new(MemoryBackend::new())?.semaphore("connections", 3)?;
///
/// let two = connections.acquire(2)?;
/// assert!(connections.try_acquire(2).is_err());
/// assert_eq!(connections.available()?, 1);
/// two.release()?;
/// # Ok::<(), leasehold_core::Error>(())
/// ```
#[derive(Clone, Debug)]
pub struct Semaphore {
    semaphore: crate::Semaphore,
    background: Background,
}

impl Semaphore {
    pub(super) fn new(semaphore: crate::Semaphore, background: Background) -> Self {
        Self { semaphore, background }
    }

    /// The same semaphore with other options.
    ///
    /// # Errors
    ///
    /// Returns the errors of [`Mutex::with_options`](crate::Mutex::with_options).
    pub fn with_options(self, options: LockOptions) -> Result<Self, Error> {
        Ok(Self { semaphore: self.semaphore.with_options(options)?, ..self })
    }

    /// The key.
    pub fn key(&self) -> &LockKey {
        self.semaphore.key()
    }

    /// How many permits there are.
    pub fn limit(&self) -> u32 {
        self.semaphore.limit()
    }

    /// Blocks until so many `permits` are ours, for as long as [`LockOptions::wait`] says.
    ///
    /// # Errors
    ///
    /// Returns the errors of [`Semaphore::acquire`](crate::Semaphore::acquire), and
    /// [`ErrorKind::Unsupported`](crate::ErrorKind::Unsupported) in [async code](super).
    pub fn acquire(&self, permits: u32) -> Result<Guard, Error> {
        self.background.lock(self.semaphore.acquire(permits))
    }

    /// Makes one attempt to acquire `permits` permits. It does not wait for other holders, only for the store's reply.
    ///
    /// # Errors
    ///
    /// Returns [`TryLockError::Busy`] if fewer permits are free, and [`TryLockError::Failed`] with an error of [`acquire`](Self::acquire) if the attempt
    /// failed. It does not retry while the store is unreachable. See [`TryLockError`] for an example.
    pub fn try_acquire(&self, permits: u32) -> Result<Guard, TryLockError> {
        self.background.lock(self.semaphore.try_acquire(permits))
    }

    /// Blocks until this thread can acquire `permits` permits, for at most `wait`.
    ///
    /// # Errors
    ///
    /// Returns [`TryLockError::Busy`] if fewer permits were free throughout, and [`TryLockError::Failed`] with an error of [`acquire`](Self::acquire) if the store
    /// refused the request or did not answer in time. See [`TryLockError`] for an example.
    pub fn try_acquire_for(&self, permits: u32, wait: Duration) -> Result<Guard, TryLockError> {
        self.background.lock(self.semaphore.try_acquire_for(permits, wait))
    }

    /// Blocks until this thread can acquire `permits` permits, until `instant` on the client's clock, for example `client.now() + wait`.
    ///
    /// # Errors
    ///
    /// Returns [`TryLockError::Busy`] if fewer permits were free throughout, and [`TryLockError::Failed`] with an error of [`acquire`](Self::acquire) if the store
    /// refused the request or did not answer in time. See [`TryLockError`] for an example.
    pub fn try_acquire_until(&self, permits: u32, instant: Instant) -> Result<Guard, TryLockError> {
        self.background.lock(self.semaphore.try_acquire_until(permits, instant))
    }

    /// Runs `work` with so many `permits`, and gives them back. See [`Mutex::run`](super::Mutex::run).
    ///
    /// # Errors
    ///
    /// The errors of [`acquire`](Self::acquire), and those of [`Mutex::run`](super::Mutex::run).
    pub fn run<T>(&self, permits: u32, work: impl FnOnce(&Guard) -> T) -> Result<T, Error> {
        self.acquire(permits)?.run_and_release(work)
    }

    /// Makes one attempt to acquire `permits` permits and, if it succeeds, runs `work` like [`run`](Self::run).
    ///
    /// # Errors
    ///
    /// Returns the errors of [`try_acquire`](Self::try_acquire) before `work` is called, and the errors of [`run`](Self::run) as
    /// [`TryLockError::Failed`].
    pub fn try_run<T>(
        &self,
        permits: u32,
        work: impl FnOnce(&Guard) -> T,
    ) -> Result<T, TryLockError> {
        let guard = self.try_acquire(permits)?;
        Ok(guard.run_and_release(work)?)
    }

    /// Blocks until this thread can acquire `permits` permits, for at most `wait`, and runs `work` like [`run`](Self::run).
    ///
    /// # Errors
    ///
    /// Returns the errors of [`try_acquire_for`](Self::try_acquire_for) before `work` is called, and the errors of [`run`](Self::run) as
    /// [`TryLockError::Failed`].
    pub fn try_run_for<T>(
        &self,
        permits: u32,
        wait: Duration,
        work: impl FnOnce(&Guard) -> T,
    ) -> Result<T, TryLockError> {
        let guard = self.try_acquire_for(permits, wait)?;
        Ok(guard.run_and_release(work)?)
    }

    /// Asks the store how many permits are free. It may have changed by the time you read it.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Unsupported`](crate::ErrorKind::Unsupported) if the store cannot tell, and in
    /// [async code](super).
    pub fn available(&self) -> Result<u32, Error> {
        self.background.block_on(self.semaphore.available())
    }
}
