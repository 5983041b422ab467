//! The blocking reentrant mutex.

use std::time::Duration;

use super::background::Background;
use super::guard::Guard;
use crate::clock::Instant;
use crate::contract::error::Error;
use crate::contract::key::LockKey;
use crate::contract::try_lock_error::TryLockError;
use crate::options::LockOptions;

/// A mutex that its owner can lock again while already holding it. This is the blocking version of
/// [`ReentrantMutex`](crate::ReentrantMutex).
///
/// The owner is the calling thread, or its [scope](crate::OwnerId::sync_scope) if it has one.
/// Guards can be sent to different threads and released there.
///
/// ```
/// use leasehold_core::blocking::LockClient;
/// use leasehold_core::memory::MemoryBackend;
///
/// let mutex = LockClient::new(MemoryBackend::new())?.reentrant_mutex("invoice:42")?;
///
/// let outer = mutex.lock()?;
/// let inner = mutex.lock()?;
/// assert_eq!(outer.token(), inner.token());
/// std::thread::scope(|scope| {
///     scope.spawn(|| assert!(mutex.try_lock().is_err()));
/// });
/// inner.release()?;
/// outer.release()?;
/// # Ok::<(), leasehold_core::Error>(())
/// ```
#[derive(Clone, Debug)]
pub struct ReentrantMutex {
    mutex: crate::ReentrantMutex,
    background: Background,
}

impl ReentrantMutex {
    pub(super) fn new(mutex: crate::ReentrantMutex, background: Background) -> Self {
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

    /// Blocks until this thread acquires the lock, then returns a guard. If the owner already holds
    /// the lock, the method returns another guard immediately.
    ///
    /// By default, this method waits indefinitely. Set [`LockOptions::wait`] to limit the wait, or
    /// call [`try_lock_for`](Self::try_lock_for).
    ///
    /// # Errors
    ///
    /// Returns the same errors as [`ReentrantMutex::lock`](crate::ReentrantMutex::lock), and
    /// [`ErrorKind::Unsupported`](crate::ErrorKind::Unsupported) if called from [async
    /// code](super).
    pub fn lock(&self) -> Result<Guard, Error> {
        self.background.lock(self.mutex.lock())
    }

    /// Makes one attempt to acquire the lock. If the owner already holds the lock, the method
    /// returns another guard. The method waits for the store's reply, but not for the current
    /// holder to release the lock.
    ///
    /// # Errors
    ///
    /// Returns [`TryLockError::Busy`] if another owner holds the lock. If the attempt failed for
    /// another reason, returns [`TryLockError::Failed`] with one of the errors that
    /// [`lock`](Self::lock) returns. The method does not retry if the store is unreachable. See
    /// [`TryLockError`] for an example.
    pub fn try_lock(&self) -> Result<Guard, TryLockError> {
        self.background.lock(self.mutex.try_lock())
    }

    /// Attempts to acquire the lock, blocking this thread for at most `wait`. If the owner already
    /// holds the lock, the method returns another guard immediately.
    ///
    /// # Errors
    ///
    /// Returns [`TryLockError::Busy`] if another owner held the lock until `wait` had elapsed. If
    /// the store rejected the request or did not reply in time, returns [`TryLockError::Failed`]
    /// with one of the errors that [`lock`](Self::lock) returns. See [`TryLockError`] for an
    /// example.
    pub fn try_lock_for(&self, wait: Duration) -> Result<Guard, TryLockError> {
        self.background.lock(self.mutex.try_lock_for(wait))
    }

    /// Blocks until this thread can acquire the lock, but gives up at `instant`, a time on the
    /// client's clock such as `client.now() + wait`. If the owner already holds the lock, the
    /// method returns another guard immediately.
    ///
    /// # Errors
    ///
    /// Returns [`TryLockError::Busy`] if another owner held the lock until `instant`. If the store
    /// rejected the request or did not reply in time, returns [`TryLockError::Failed`] with one of
    /// the errors that [`lock`](Self::lock) returns. See [`TryLockError`] for an example.
    pub fn try_lock_until(&self, instant: Instant) -> Result<Guard, TryLockError> {
        self.background.lock(self.mutex.try_lock_until(instant))
    }

    /// Runs `work` under the lock and then releases the lock. See [`Mutex::run`](super::Mutex::run)
    /// for an example.
    ///
    /// `work` is not cancelled if the lease is lost. If `work` panics, the lock is released in the
    /// background.
    ///
    /// # Errors
    ///
    /// If [`lock`](Self::lock) fails, returns its error without calling `work`. Returns
    /// [`ErrorKind::LeaseLost`](crate::ErrorKind::LeaseLost) after `work` has finished if the lease
    /// was lost in the meantime.
    pub fn run<T>(&self, work: impl FnOnce(&Guard) -> T) -> Result<T, Error> {
        self.lock()?.run_and_release(work)
    }

    /// Calls [`try_lock`](Self::try_lock) and, if the call succeeds, runs `work` in the same way as
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

    /// Calls [`try_lock_for`](Self::try_lock_for) with `wait` and, if the call succeeds, runs
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

    /// Asks the store whether the lock is held, either by this thread or by another owner. The
    /// result may be out of date by the time this method returns, so use it only for display.
    ///
    /// # Errors
    ///
    /// Returns [`ErrorKind::Unsupported`](crate::ErrorKind::Unsupported) if the store cannot report
    /// whether a key is held, or if this method is called from [async code](super).
    pub fn is_locked(&self) -> Result<bool, Error> {
        self.background.block_on(self.mutex.is_locked())
    }
}
