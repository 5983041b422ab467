//! The blocking semaphore.

use std::time::Duration;

use super::background::Background;
use super::guard::Guard;
use crate::clock::Instant;
use crate::contract::error::Error;
use crate::contract::key::LockKey;
use crate::contract::try_lock_error::TryLockError;
use crate::options::LockOptions;

/// A lock that limits the number of permits in use at the same time. This is the blocking version
/// of [`Semaphore`](crate::Semaphore).
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

    /// Returns this semaphore with different options.
    /// [`Mutex::with_options`](crate::Mutex::with_options) shows how to derive a lock's options
    /// from the client's options.
    ///
    /// # Errors
    ///
    /// Returns [`ErrorKind::Invalid`](crate::ErrorKind::Invalid) if the options conflict, and
    /// [`ErrorKind::Unsupported`](crate::ErrorKind::Unsupported) if the store does not support one
    /// of the options.
    pub fn with_options(self, options: LockOptions) -> Result<Self, Error> {
        Ok(Self { semaphore: self.semaphore.with_options(options)?, ..self })
    }

    /// Returns the key.
    pub fn key(&self) -> &LockKey {
        self.semaphore.key()
    }

    /// Returns the total number of permits.
    pub fn limit(&self) -> u32 {
        self.semaphore.limit()
    }

    /// Blocks until `permits` permits are free, then returns a guard that holds them.
    ///
    /// By default, this method waits indefinitely. Set [`LockOptions::wait`] to limit the wait, or
    /// call [`try_acquire_for`](Self::try_acquire_for).
    ///
    /// # Errors
    ///
    /// Returns the same errors as [`Semaphore::acquire`](crate::Semaphore::acquire), and
    /// [`ErrorKind::Unsupported`](crate::ErrorKind::Unsupported) if called from [async
    /// code](super).
    pub fn acquire(&self, permits: u32) -> Result<Guard, Error> {
        self.background.lock(self.semaphore.acquire(permits))
    }

    /// Makes one attempt to acquire `permits` permits. The method waits for the store's reply, but
    /// not for permits to become free.
    ///
    /// # Errors
    ///
    /// Returns [`TryLockError::Busy`] if the store cannot grant `permits` permits immediately. If
    /// the attempt failed for another reason, returns [`TryLockError::Failed`] with one of the
    /// errors that [`acquire`](Self::acquire) returns. The method does not retry if the store is
    /// unreachable. See [`TryLockError`] for an example.
    pub fn try_acquire(&self, permits: u32) -> Result<Guard, TryLockError> {
        self.background.lock(self.semaphore.try_acquire(permits))
    }

    /// Attempts to acquire `permits` permits, blocking this thread for at most `wait`.
    ///
    /// # Errors
    ///
    /// Returns [`TryLockError::Busy`] if too few permits became free in time. If the store rejected
    /// the request or did not reply in time, returns [`TryLockError::Failed`] with one of the
    /// errors that [`acquire`](Self::acquire) returns. See [`TryLockError`] for an example.
    pub fn try_acquire_for(&self, permits: u32, wait: Duration) -> Result<Guard, TryLockError> {
        self.background.lock(self.semaphore.try_acquire_for(permits, wait))
    }

    /// Blocks until this thread can acquire `permits` permits, but gives up at `instant`, a time on
    /// the client's clock such as `client.now() + wait`.
    ///
    /// # Errors
    ///
    /// Returns [`TryLockError::Busy`] if too few permits became free in time. If the store rejected
    /// the request or did not reply in time, returns [`TryLockError::Failed`] with one of the
    /// errors that [`acquire`](Self::acquire) returns. See [`TryLockError`] for an example.
    pub fn try_acquire_until(&self, permits: u32, instant: Instant) -> Result<Guard, TryLockError> {
        self.background.lock(self.semaphore.try_acquire_until(permits, instant))
    }

    /// Acquires `permits` permits, runs `work`, and then releases the permits. See
    /// [`Mutex::run`](super::Mutex::run) for an example.
    ///
    /// `work` is not cancelled if the lease is lost. If `work` panics, the permits are released in
    /// the background.
    ///
    /// # Errors
    ///
    /// If [`acquire`](Self::acquire) fails, returns its error without calling `work`. Returns
    /// [`ErrorKind::LeaseLost`](crate::ErrorKind::LeaseLost) after `work` has finished if the lease
    /// was lost in the meantime.
    pub fn run<T>(&self, permits: u32, work: impl FnOnce(&Guard) -> T) -> Result<T, Error> {
        self.acquire(permits)?.run_and_release(work)
    }

    /// Makes one attempt to acquire `permits` permits and, if successful, runs `work` in the same
    /// way as [`run`](Self::run).
    ///
    /// # Errors
    ///
    /// If [`try_acquire`](Self::try_acquire) fails, returns its error without calling `work`.
    /// Returns errors from [`run`](Self::run) as [`TryLockError::Failed`].
    pub fn try_run<T>(
        &self,
        permits: u32,
        work: impl FnOnce(&Guard) -> T,
    ) -> Result<T, TryLockError> {
        let guard = self.try_acquire(permits)?;
        Ok(guard.run_and_release(work)?)
    }

    /// Attempts to acquire `permits` permits, blocking this thread for at most `wait`, and on
    /// success runs `work` in the same way as [`run`](Self::run).
    ///
    /// # Errors
    ///
    /// If [`try_acquire_for`](Self::try_acquire_for) fails, returns its error without calling
    /// `work`. Returns errors from [`run`](Self::run) as [`TryLockError::Failed`].
    pub fn try_run_for<T>(
        &self,
        permits: u32,
        wait: Duration,
        work: impl FnOnce(&Guard) -> T,
    ) -> Result<T, TryLockError> {
        let guard = self.try_acquire_for(permits, wait)?;
        Ok(guard.run_and_release(work)?)
    }

    /// Asks the store how many permits are free. The result may be out of date by the time this
    /// method returns, so use it only for display.
    ///
    /// # Errors
    ///
    /// Returns [`ErrorKind::Unsupported`](crate::ErrorKind::Unsupported) if the store cannot report
    /// the holders of a key, or if this method is called from [async code](super).
    pub fn available(&self) -> Result<u32, Error> {
        self.background.block_on(self.semaphore.available())
    }
}
