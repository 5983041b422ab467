//! One owner at a time, which may enter again.

use std::time::Duration;

use super::background::Background;
use super::guard::Guard;
use crate::clock::Instant;
use crate::contract::error::Error;
use crate::contract::key::LockKey;
use crate::contract::try_lock_error::TryLockError;
use crate::options::LockOptions;

/// A lock that one thread has at a time, and that the same thread may enter again while holding it: the
/// [`ReentrantMutex`](crate::ReentrantMutex) of code without a runtime.
///
/// The owner is the thread that calls, or its [scope](crate::OwnerId::sync_scope). Guards may be sent to other
/// threads and released there.
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

    /// The same lock with other options.
    ///
    /// # Errors
    ///
    /// Returns the errors of [`Mutex::with_options`](crate::Mutex::with_options).
    pub fn with_options(self, options: LockOptions) -> Result<Self, Error> {
        Ok(Self { mutex: self.mutex.with_options(options)?, ..self })
    }

    /// The key.
    pub fn key(&self) -> &LockKey {
        self.mutex.key()
    }

    /// Enters again, or blocks until the lock is ours, for as long as [`LockOptions::wait`] says.
    ///
    /// # Errors
    ///
    /// Returns the errors of [`ReentrantMutex::lock`](crate::ReentrantMutex::lock), and
    /// [`ErrorKind::Unsupported`](crate::ErrorKind::Unsupported) in [async code](super).
    pub fn lock(&self) -> Result<Guard, Error> {
        self.background.lock(self.mutex.lock())
    }

    /// Makes one attempt to acquire the lock, or to enter it again. It does not wait for other holders, only for the store's reply.
    ///
    /// # Errors
    ///
    /// Returns [`TryLockError::Busy`] if another owner holds the lock, and [`TryLockError::Failed`] with an error of [`lock`](Self::lock) if the attempt
    /// failed. It does not retry while the store is unreachable. See [`TryLockError`] for an example.
    pub fn try_lock(&self) -> Result<Guard, TryLockError> {
        self.background.lock(self.mutex.try_lock())
    }

    /// Blocks until this thread can acquire the lock, or enter it again, for at most `wait`.
    ///
    /// # Errors
    ///
    /// Returns [`TryLockError::Busy`] if another owner held the lock throughout, and [`TryLockError::Failed`] with an error of [`lock`](Self::lock) if the store
    /// refused the request or did not answer in time. See [`TryLockError`] for an example.
    pub fn try_lock_for(&self, wait: Duration) -> Result<Guard, TryLockError> {
        self.background.lock(self.mutex.try_lock_for(wait))
    }

    /// Blocks until this thread can acquire the lock, or enter it again, until `instant` on the client's clock, for example `client.now() + wait`.
    ///
    /// # Errors
    ///
    /// Returns [`TryLockError::Busy`] if another owner held the lock throughout, and [`TryLockError::Failed`] with an error of [`lock`](Self::lock) if the store
    /// refused the request or did not answer in time. See [`TryLockError`] for an example.
    pub fn try_lock_until(&self, instant: Instant) -> Result<Guard, TryLockError> {
        self.background.lock(self.mutex.try_lock_until(instant))
    }

    /// Runs `work` under the lock, and releases it. See [`Mutex::run`](super::Mutex::run).
    ///
    /// # Errors
    ///
    /// Returns the errors of [`lock`](Self::lock) and [`Mutex::run`](super::Mutex::run).
    pub fn run<T>(&self, work: impl FnOnce(&Guard) -> T) -> Result<T, Error> {
        self.lock()?.run_and_release(work)
    }

    /// Makes one attempt to acquire the lock, or to enter it again and, if it succeeds, runs `work` like [`run`](Self::run).
    ///
    /// # Errors
    ///
    /// Returns the errors of [`try_lock`](Self::try_lock) before `work` is called, and the errors of [`run`](Self::run) as
    /// [`TryLockError::Failed`].
    pub fn try_run<T>(&self, work: impl FnOnce(&Guard) -> T) -> Result<T, TryLockError> {
        let guard = self.try_lock()?;
        Ok(guard.run_and_release(work)?)
    }

    /// Blocks until this thread can acquire the lock, or enter it again, for at most `wait`, and runs `work` like [`run`](Self::run).
    ///
    /// # Errors
    ///
    /// Returns the errors of [`try_lock_for`](Self::try_lock_for) before `work` is called, and the errors of [`run`](Self::run) as
    /// [`TryLockError::Failed`].
    pub fn try_run_for<T>(
        &self,
        wait: Duration,
        work: impl FnOnce(&Guard) -> T,
    ) -> Result<T, TryLockError> {
        let guard = self.try_lock_for(wait)?;
        Ok(guard.run_and_release(work)?)
    }

    /// Asks the store whether the lock is held, by the caller or by another.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Unsupported`](crate::ErrorKind::Unsupported) if the store cannot tell, and in
    /// [async code](super).
    pub fn is_locked(&self) -> Result<bool, Error> {
        self.background.block_on(self.mutex.is_locked())
    }
}
