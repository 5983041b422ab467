//! The blocking mutex.

use std::time::Duration;

use super::background::Background;
use super::guard::Guard;
use crate::clock::Instant;
use crate::contract::error::Error;
use crate::contract::key::LockKey;
use crate::contract::try_lock_error::TryLockError;
use crate::options::LockOptions;

/// A lock that one holder at a time can acquire. This is the blocking version of
/// [`Mutex`](crate::Mutex).
///
/// If a thread that holds the mutex locks it again, the thread deadlocks.
///
/// ```
/// # fn main() -> Result<(), leasehold_core::Error> {
/// use leasehold_core::blocking::LockClient;
/// use leasehold_core::memory::MemoryBackend;
///
/// let client = LockClient::new(MemoryBackend::new())?;
/// let invoice = client.mutex("invoice:42")?;
///
/// let guard = invoice.lock()?;
/// assert!(invoice.try_lock().is_err(), "another caller is refused");
/// guard.release()?;
///
/// invoice.run(|guard| println!("paid under token {}", guard.token()))?;
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug)]
pub struct Mutex {
    mutex: crate::Mutex,
    background: Background,
}

impl Mutex {
    pub(super) fn new(mutex: crate::Mutex, background: Background) -> Self {
        Self { mutex, background }
    }

    /// Returns this mutex with different options.
    /// [`Mutex::with_options`](crate::Mutex::with_options) shows how to derive a lock's options
    /// from the client's options.
    ///
    /// # Errors
    ///
    /// Returns [`ErrorKind::Invalid`](crate::ErrorKind::Invalid) if the options conflict, and
    /// [`ErrorKind::Unsupported`](crate::ErrorKind::Unsupported) if the store does not support one
    /// of the options.
    pub fn with_options(self, options: LockOptions) -> Result<Self, Error> {
        Ok(Self { mutex: self.mutex.with_options(options)?, ..self })
    }

    /// Returns the key.
    pub fn key(&self) -> &LockKey {
        self.mutex.key()
    }

    /// Blocks until this thread acquires the lock, then returns a guard.
    ///
    /// By default, this method waits indefinitely. Set [`LockOptions::wait`] to limit the wait, or
    /// call [`try_lock_for`](Self::try_lock_for).
    ///
    /// # Errors
    ///
    /// Returns the same errors as [`Mutex::lock`](crate::Mutex::lock), and
    /// [`ErrorKind::Unsupported`](crate::ErrorKind::Unsupported) if called from [async
    /// code](super).
    pub fn lock(&self) -> Result<Guard, Error> {
        self.background.lock(self.mutex.lock())
    }

    /// Makes one attempt to acquire the lock. The method waits for the store's reply, but not for
    /// the current holder to release the lock.
    ///
    /// # Errors
    ///
    /// Returns [`TryLockError::Busy`] if another caller holds the lock. If the attempt failed for
    /// another reason, returns [`TryLockError::Failed`] with one of the errors that
    /// [`lock`](Self::lock) returns. The method does not retry if the store is unreachable. See
    /// [`TryLockError`] for an example.
    pub fn try_lock(&self) -> Result<Guard, TryLockError> {
        self.background.lock(self.mutex.try_lock())
    }

    /// Attempts to acquire the lock, blocking this thread for at most `wait`.
    ///
    /// # Errors
    ///
    /// Returns [`TryLockError::Busy`] if other callers held the lock until `wait` had elapsed. If
    /// the store rejected the request or did not reply in time, returns [`TryLockError::Failed`]
    /// with one of the errors that [`lock`](Self::lock) returns. See [`TryLockError`] for an
    /// example.
    pub fn try_lock_for(&self, wait: Duration) -> Result<Guard, TryLockError> {
        self.background.lock(self.mutex.try_lock_for(wait))
    }

    /// Blocks until this thread can acquire the lock, but gives up at `instant`, a time on the
    /// client's clock such as `client.now() + wait`.
    ///
    /// # Errors
    ///
    /// Returns [`TryLockError::Busy`] if other callers held the lock until `instant`. If the store
    /// rejected the request or did not reply in time, returns [`TryLockError::Failed`] with one of
    /// the errors that [`lock`](Self::lock) returns. See [`TryLockError`] for an example.
    pub fn try_lock_until(&self, instant: Instant) -> Result<Guard, TryLockError> {
        self.background.lock(self.mutex.try_lock_until(instant))
    }

    /// Runs `work` under the lock and then releases the lock.
    ///
    /// `work` is not cancelled if the lease is lost, so long work should call [`Guard::is_held`]
    /// regularly. If `work` panics, the lock is released in the background.
    ///
    /// ```
    /// use leasehold_core::blocking::LockClient;
    /// use leasehold_core::memory::MemoryBackend;
    ///
    /// let invoice = LockClient::new(MemoryBackend::new())?.mutex("invoice:42")?;
    /// let paid = invoice.run(|guard| format!("paid under token {}", guard.token()))?;
    /// # let _ = paid;
    /// # Ok::<(), leasehold_core::Error>(())
    /// ```
    ///
    /// # Errors
    ///
    /// If [`lock`](Self::lock) fails, returns its error without calling `work`. Returns
    /// [`ErrorKind::LeaseLost`](crate::ErrorKind::LeaseLost) after `work` has finished if the lease
    /// was lost in the meantime, because another holder may have been working at the same time. If
    /// only the reply to the release is lost, this method returns the result of `work`.
    pub fn run<T>(&self, work: impl FnOnce(&Guard) -> T) -> Result<T, Error> {
        self.lock()?.run_and_release(work)
    }

    /// Makes one attempt to acquire the lock and, if successful, runs `work` in the same way as
    /// [`run`](Self::run).
    ///
    /// # Errors
    ///
    /// If [`try_lock`](Self::try_lock) fails, returns its error without calling `work`. Returns
    /// errors from [`run`](Self::run) as [`TryLockError::Failed`].
    pub fn try_run<T>(&self, work: impl FnOnce(&Guard) -> T) -> Result<T, TryLockError> {
        let guard = self.try_lock()?;
        Ok(guard.run_and_release(work)?)
    }

    /// Attempts to acquire the lock, blocking this thread for at most `wait`, and on success runs
    /// `work` in the same way as [`run`](Self::run).
    ///
    /// # Errors
    ///
    /// If [`try_lock_for`](Self::try_lock_for) fails, returns its error without calling `work`.
    /// Returns errors from [`run`](Self::run) as [`TryLockError::Failed`].
    pub fn try_run_for<T>(
        &self,
        wait: Duration,
        work: impl FnOnce(&Guard) -> T,
    ) -> Result<T, TryLockError> {
        let guard = self.try_lock_for(wait)?;
        Ok(guard.run_and_release(work)?)
    }

    /// Asks the store whether the lock is held. The result may be out of date by the time this
    /// method returns, so use it only for display.
    ///
    /// # Errors
    ///
    /// Returns [`ErrorKind::Unsupported`](crate::ErrorKind::Unsupported) if the store cannot report
    /// whether a key is held, or if this method is called from [async code](super).
    pub fn is_locked(&self) -> Result<bool, Error> {
        self.background.block_on(self.mutex.is_locked())
    }
}
