//! Many readers or one writer at a time.

use std::fmt;
use std::ops::Deref;
use std::time::Duration;

use super::background::Background;
use super::guard::Guard;
use crate::clock::Instant;
use crate::contract::error::Error;
use crate::contract::key::LockKey;
use crate::contract::try_lock_error::TryLockError;
use crate::options::LockOptions;

/// A lock that many readers share, or that one writer has alone: the [`RwLock`](crate::RwLock) of code
/// without a runtime.
///
/// ```
/// use leasehold_core::blocking::LockClient;
/// use leasehold_core::memory::MemoryBackend;
///
/// let lock = LockClient::new(MemoryBackend::new())?.rw_lock("catalogue")?;
///
/// let (one, other) = (lock.read()?, lock.read()?);
/// assert!(lock.try_write().is_err());
/// one.release()?;
/// other.release()?;
///
/// let reader = lock.write()?.downgrade()?;
/// assert!(lock.try_read().is_ok());
/// # drop(reader);
/// # Ok::<(), leasehold_core::Error>(())
/// ```
#[derive(Clone, Debug)]
pub struct RwLock {
    lock: crate::RwLock,
    background: Background,
}

impl RwLock {
    pub(super) fn new(lock: crate::RwLock, background: Background) -> Self {
        Self { lock, background }
    }

    /// The same lock with other options.
    ///
    /// # Errors
    ///
    /// Returns the errors of [`Mutex::with_options`](crate::Mutex::with_options).
    pub fn with_options(self, options: LockOptions) -> Result<Self, Error> {
        Ok(Self { lock: self.lock.with_options(options)?, ..self })
    }

    /// The same lock, which the thread that holds it may enter again: a reader as a reader, a writer as both.
    ///
    /// See [`RwLock::reentrant`](crate::RwLock::reentrant).
    #[must_use]
    pub fn reentrant(self) -> Self {
        Self { lock: self.lock.reentrant(), ..self }
    }

    /// The key.
    pub fn key(&self) -> &LockKey {
        self.lock.key()
    }

    /// Blocks until we may read, for as long as [`LockOptions::wait`] says.
    ///
    /// # Errors
    ///
    /// Returns the errors of [`RwLock::read`](crate::RwLock::read), and
    /// [`ErrorKind::Unsupported`](crate::ErrorKind::Unsupported) in [async code](super).
    pub fn read(&self) -> Result<Guard, Error> {
        self.background.lock(self.lock.read())
    }

    /// Makes one attempt to acquire the lock as a reader. It does not wait for other holders, only for the store's reply.
    ///
    /// # Errors
    ///
    /// Returns [`TryLockError::Busy`] if a writer holds the lock or waits for it, and [`TryLockError::Failed`] with an error of [`read`](Self::read) if the attempt
    /// failed. It does not retry while the store is unreachable. See [`TryLockError`] for an example.
    pub fn try_read(&self) -> Result<Guard, TryLockError> {
        self.background.lock(self.lock.try_read())
    }

    /// Blocks until this thread can acquire the lock as a reader, for at most `wait`.
    ///
    /// # Errors
    ///
    /// Returns [`TryLockError::Busy`] if a writer held the lock throughout, and [`TryLockError::Failed`] with an error of [`read`](Self::read) if the store
    /// refused the request or did not answer in time. See [`TryLockError`] for an example.
    pub fn try_read_for(&self, wait: Duration) -> Result<Guard, TryLockError> {
        self.background.lock(self.lock.try_read_for(wait))
    }

    /// Blocks until this thread can acquire the lock as a reader, until `instant` on the client's clock, for example `client.now() + wait`.
    ///
    /// # Errors
    ///
    /// Returns [`TryLockError::Busy`] if a writer held the lock throughout, and [`TryLockError::Failed`] with an error of [`read`](Self::read) if the store
    /// refused the request or did not answer in time. See [`TryLockError`] for an example.
    pub fn try_read_until(&self, instant: Instant) -> Result<Guard, TryLockError> {
        self.background.lock(self.lock.try_read_until(instant))
    }

    /// Blocks until we may write, for as long as [`LockOptions::wait`] says.
    ///
    /// # Errors
    ///
    /// Returns the errors of [`RwLock::write`](crate::RwLock::write), and
    /// [`ErrorKind::Unsupported`](crate::ErrorKind::Unsupported) in [async code](super).
    pub fn write(&self) -> Result<WriteGuard, Error> {
        let write = async { Ok(self.lock.write().await?.into_guard()) };
        self.background.lock(write).map(WriteGuard)
    }

    /// Makes one attempt to acquire the lock as the writer. It does not wait for other holders, only for the store's reply.
    ///
    /// # Errors
    ///
    /// Returns [`TryLockError::Busy`] if another caller holds the lock or waits for it, and [`TryLockError::Failed`] with an error of [`write`](Self::write) if the attempt
    /// failed. It does not retry while the store is unreachable. See [`TryLockError`] for an example.
    pub fn try_write(&self) -> Result<WriteGuard, TryLockError> {
        self.writer(self.lock.try_write())
    }

    /// Blocks until this thread can acquire the lock as the writer, for at most `wait`.
    ///
    /// # Errors
    ///
    /// Returns [`TryLockError::Busy`] if the lock was held throughout, and [`TryLockError::Failed`] with an error of [`write`](Self::write) if the store
    /// refused the request or did not answer in time. See [`TryLockError`] for an example.
    pub fn try_write_for(&self, wait: Duration) -> Result<WriteGuard, TryLockError> {
        self.writer(self.lock.try_write_for(wait))
    }

    /// Blocks until this thread can acquire the lock as the writer, until `instant` on the client's clock, for example `client.now() + wait`.
    ///
    /// # Errors
    ///
    /// Returns [`TryLockError::Busy`] if the lock was held throughout, and [`TryLockError::Failed`] with an error of [`write`](Self::write) if the store
    /// refused the request or did not answer in time. See [`TryLockError`] for an example.
    pub fn try_write_until(&self, instant: Instant) -> Result<WriteGuard, TryLockError> {
        self.writer(self.lock.try_write_until(instant))
    }

    /// Runs `work` as a reader, and releases the lock.
    ///
    /// # Errors
    ///
    /// The errors of [`read`](Self::read), before `work` is called, and the errors of [`Mutex::run`](super::Mutex::run).
    pub fn run_read<T>(&self, work: impl FnOnce(&Guard) -> T) -> Result<T, Error> {
        self.read()?.run_and_release(work)
    }

    /// Makes one attempt to acquire the lock as a reader and, if it succeeds, runs `work` like [`run_read`](Self::run_read).
    ///
    /// # Errors
    ///
    /// Returns the errors of [`try_read`](Self::try_read) before `work` is called, and the errors of [`run_read`](Self::run_read) as
    /// [`TryLockError::Failed`].
    pub fn try_run_read<T>(&self, work: impl FnOnce(&Guard) -> T) -> Result<T, TryLockError> {
        let guard = self.try_read()?;
        Ok(guard.run_and_release(work)?)
    }

    /// Blocks until this thread can acquire the lock as a reader, for at most `wait`, and runs `work` like [`run_read`](Self::run_read).
    ///
    /// # Errors
    ///
    /// Returns the errors of [`try_read_for`](Self::try_read_for) before `work` is called, and the errors of [`run_read`](Self::run_read) as
    /// [`TryLockError::Failed`].
    pub fn try_run_read_for<T>(
        &self,
        wait: Duration,
        work: impl FnOnce(&Guard) -> T,
    ) -> Result<T, TryLockError> {
        let guard = self.try_read_for(wait)?;
        Ok(guard.run_and_release(work)?)
    }

    /// Runs `work` as the writer, and releases the lock.
    ///
    /// # Errors
    ///
    /// The errors of [`write`](Self::write), before `work` is called, and the errors of [`Mutex::run`](super::Mutex::run).
    pub fn run_write<T>(&self, work: impl FnOnce(&Guard) -> T) -> Result<T, Error> {
        self.write()?.0.run_and_release(work)
    }

    /// Makes one attempt to acquire the lock as the writer and, if it succeeds, runs `work` like [`run_write`](Self::run_write).
    ///
    /// # Errors
    ///
    /// Returns the errors of [`try_write`](Self::try_write) before `work` is called, and the errors of [`run_write`](Self::run_write) as
    /// [`TryLockError::Failed`].
    pub fn try_run_write<T>(&self, work: impl FnOnce(&Guard) -> T) -> Result<T, TryLockError> {
        let guard = self.try_write()?;
        Ok(guard.0.run_and_release(work)?)
    }

    /// Blocks until this thread can acquire the lock as the writer, for at most `wait`, and runs `work` like [`run_write`](Self::run_write).
    ///
    /// # Errors
    ///
    /// Returns the errors of [`try_write_for`](Self::try_write_for) before `work` is called, and the errors of [`run_write`](Self::run_write) as
    /// [`TryLockError::Failed`].
    pub fn try_run_write_for<T>(
        &self,
        wait: Duration,
        work: impl FnOnce(&Guard) -> T,
    ) -> Result<T, TryLockError> {
        let guard = self.try_write_for(wait)?;
        Ok(guard.0.run_and_release(work)?)
    }

    /// Asks the store whether the lock is held. The answer may be out of date by the time that the call returns.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Unsupported`](crate::ErrorKind::Unsupported) if the store cannot tell, and in
    /// [async code](super).
    pub fn is_locked(&self) -> Result<bool, Error> {
        self.background.block_on(self.lock.is_locked())
    }

    fn writer(
        &self,
        call: impl Future<Output = Result<crate::WriteGuard, TryLockError>>,
    ) -> Result<WriteGuard, TryLockError> {
        let call = async { call.await.map(crate::WriteGuard::into_guard) };
        self.background.lock(call).map(WriteGuard)
    }
}

/// The proof of a writer's lease: a [`Guard`] that can become a reader's.
///
/// See [`RwLock`] for an example.
#[must_use = "dropping a guard releases its lock"]
pub struct WriteGuard(Guard);

impl WriteGuard {
    /// Becomes a reader: other readers may enter, and no writer enters in between.
    ///
    /// Blocks until the store has answered.
    ///
    /// # Errors
    ///
    /// Returns the errors of [`WriteGuard::downgrade`](crate::WriteGuard::downgrade), and
    /// [`ErrorKind::Unsupported`](crate::ErrorKind::Unsupported) in [async code](super). The guard is gone then.
    pub fn downgrade(self) -> Result<Guard, Error> {
        self.0.share_with_readers()
    }

    /// Ends the lease, as [`Guard::release`] does.
    ///
    /// # Errors
    ///
    /// Returns the errors of [`Guard::release`].
    pub fn release(self) -> Result<(), Error> {
        self.0.release()
    }

    /// Forgets that it can become a reader's.
    pub fn into_guard(self) -> Guard {
        self.0
    }
}

impl Deref for WriteGuard {
    type Target = Guard;

    fn deref(&self) -> &Guard {
        &self.0
    }
}

impl fmt::Debug for WriteGuard {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(&self.0, f)
    }
}
