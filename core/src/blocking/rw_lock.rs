//! The blocking reader-writer lock.

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

/// A lock that many readers or one writer can hold. This is the blocking version of
/// [`RwLock`](crate::RwLock).
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

    /// Returns this lock with different options.
    /// [`Mutex::with_options`](crate::Mutex::with_options) shows how to derive a lock's options
    /// from the client's options.
    ///
    /// # Errors
    ///
    /// Returns [`ErrorKind::Invalid`](crate::ErrorKind::Invalid) if the options conflict, and
    /// [`ErrorKind::Unsupported`](crate::ErrorKind::Unsupported) if the store does not support one
    /// of the options.
    pub fn with_options(self, options: LockOptions) -> Result<Self, Error> {
        Ok(Self { lock: self.lock.with_options(options)?, ..self })
    }

    /// Returns a reentrant handle to this lock, which the thread that holds the lock can lock
    /// again.
    ///
    /// With the reentrant handle, a reader can acquire the lock again as a reader, and a writer can
    /// acquire the lock again as a reader or writer. See
    /// [`RwLock::reentrant`](crate::RwLock::reentrant) for an example.
    #[must_use]
    pub fn reentrant(self) -> Self {
        Self { lock: self.lock.reentrant(), ..self }
    }

    /// Returns the key.
    pub fn key(&self) -> &LockKey {
        self.lock.key()
    }

    /// Blocks until this thread can acquire the lock as a reader, then returns a guard.
    ///
    /// By default, this method waits indefinitely. Set [`LockOptions::wait`] to limit the wait, or
    /// call [`try_read_for`](Self::try_read_for).
    ///
    /// # Errors
    ///
    /// Returns the same errors as [`RwLock::read`](crate::RwLock::read), and
    /// [`ErrorKind::Unsupported`](crate::ErrorKind::Unsupported) if called from [async
    /// code](super).
    pub fn read(&self) -> Result<Guard, Error> {
        self.background.lock(self.lock.read())
    }

    /// Makes one attempt to acquire the lock as a reader. The method waits for the store's reply,
    /// but not for the current holder to release the lock.
    ///
    /// # Errors
    ///
    /// Returns [`TryLockError::Busy`] if a writer holds the lock or is waiting for it. If the
    /// attempt failed for another reason, returns [`TryLockError::Failed`] with one of the errors
    /// that [`read`](Self::read) returns. The method does not retry if the store is unreachable.
    /// See [`TryLockError`] for an example.
    pub fn try_read(&self) -> Result<Guard, TryLockError> {
        self.background.lock(self.lock.try_read())
    }

    /// Attempts to acquire the lock as a reader, blocking this thread for at most `wait`.
    ///
    /// # Errors
    ///
    /// Returns [`TryLockError::Busy`] if a writer held the lock until `wait` had elapsed. If the
    /// store rejected the request or did not reply in time, returns [`TryLockError::Failed`] with
    /// one of the errors that [`read`](Self::read) returns. See [`TryLockError`] for an example.
    pub fn try_read_for(&self, wait: Duration) -> Result<Guard, TryLockError> {
        self.background.lock(self.lock.try_read_for(wait))
    }

    /// Blocks until this thread can acquire the lock as a reader, but gives up at `instant`, a time
    /// on the client's clock such as `client.now() + wait`.
    ///
    /// # Errors
    ///
    /// Returns [`TryLockError::Busy`] if a writer held the lock until `instant`. If the store
    /// rejected the request or did not reply in time, returns [`TryLockError::Failed`] with one of
    /// the errors that [`read`](Self::read) returns. See [`TryLockError`] for an example.
    pub fn try_read_until(&self, instant: Instant) -> Result<Guard, TryLockError> {
        self.background.lock(self.lock.try_read_until(instant))
    }

    /// Blocks until this thread can acquire the lock as the writer, then returns a guard.
    ///
    /// By default, this method waits indefinitely. Set [`LockOptions::wait`] to limit the wait, or
    /// call [`try_write_for`](Self::try_write_for).
    ///
    /// # Errors
    ///
    /// Returns the same errors as [`RwLock::write`](crate::RwLock::write), and
    /// [`ErrorKind::Unsupported`](crate::ErrorKind::Unsupported) if called from [async
    /// code](super).
    pub fn write(&self) -> Result<WriteGuard, Error> {
        let write = async { Ok(self.lock.write().await?.into_guard()) };
        self.background.lock(write).map(WriteGuard)
    }

    /// Makes one attempt to acquire the lock as the writer. The method waits for the store's reply,
    /// but not for the current holder to release the lock.
    ///
    /// # Errors
    ///
    /// Returns [`TryLockError::Busy`] if another caller holds the lock or is waiting for it. If the
    /// attempt failed for another reason, returns [`TryLockError::Failed`] with one of the errors
    /// that [`write`](Self::write) returns. The method does not retry if the store is unreachable.
    /// See [`TryLockError`] for an example.
    pub fn try_write(&self) -> Result<WriteGuard, TryLockError> {
        self.writer(self.lock.try_write())
    }

    /// Attempts to acquire the lock as the writer, blocking this thread for at most `wait`.
    ///
    /// # Errors
    ///
    /// Returns [`TryLockError::Busy`] if other callers held the lock until `wait` had elapsed. If
    /// the store rejected the request or did not reply in time, returns [`TryLockError::Failed`]
    /// with one of the errors that [`write`](Self::write) returns. See [`TryLockError`] for an
    /// example.
    pub fn try_write_for(&self, wait: Duration) -> Result<WriteGuard, TryLockError> {
        self.writer(self.lock.try_write_for(wait))
    }

    /// Blocks until this thread can acquire the lock as the writer, but gives up at `instant`, a
    /// time on the client's clock such as `client.now() + wait`.
    ///
    /// # Errors
    ///
    /// Returns [`TryLockError::Busy`] if other callers held the lock until `instant`. If the store
    /// rejected the request or did not reply in time, returns [`TryLockError::Failed`] with one of
    /// the errors that [`write`](Self::write) returns. See [`TryLockError`] for an example.
    pub fn try_write_until(&self, instant: Instant) -> Result<WriteGuard, TryLockError> {
        self.writer(self.lock.try_write_until(instant))
    }

    /// Runs `work` as a reader and then releases the lock.
    ///
    /// `work` is not cancelled if the lease is lost. If `work` panics, the lock is released in the
    /// background.
    ///
    /// ```
    /// use leasehold_core::blocking::LockClient;
    /// use leasehold_core::memory::MemoryBackend;
    ///
    /// let lock = LockClient::new(MemoryBackend::new())?.rw_lock("catalogue")?;
    /// let entries = lock.run_read(|_guard| 3)?;
    /// lock.run_write(|guard| println!("entry {entries} under token {}", guard.token()))?;
    /// # Ok::<(), leasehold_core::Error>(())
    /// ```
    ///
    /// # Errors
    ///
    /// If [`read`](Self::read) fails, returns its error without calling `work`. Returns
    /// [`ErrorKind::LeaseLost`](crate::ErrorKind::LeaseLost) after `work` has finished if the lease
    /// was lost in the meantime.
    pub fn run_read<T>(&self, work: impl FnOnce(&Guard) -> T) -> Result<T, Error> {
        self.read()?.run_and_release(work)
    }

    /// Makes one attempt to acquire the lock as a reader and, if successful, runs `work` in the
    /// same way as [`run_read`](Self::run_read).
    ///
    /// # Errors
    ///
    /// If [`try_read`](Self::try_read) fails, returns its error without calling `work`. Returns
    /// errors from [`run_read`](Self::run_read) as [`TryLockError::Failed`].
    pub fn try_run_read<T>(&self, work: impl FnOnce(&Guard) -> T) -> Result<T, TryLockError> {
        let guard = self.try_read()?;
        Ok(guard.run_and_release(work)?)
    }

    /// Attempts to acquire the lock as a reader, blocking this thread for at most `wait`, and on
    /// success runs `work` in the same way as [`run_read`](Self::run_read).
    ///
    /// # Errors
    ///
    /// If [`try_read_for`](Self::try_read_for) fails, returns its error without calling `work`.
    /// Returns errors from [`run_read`](Self::run_read) as [`TryLockError::Failed`].
    pub fn try_run_read_for<T>(
        &self,
        wait: Duration,
        work: impl FnOnce(&Guard) -> T,
    ) -> Result<T, TryLockError> {
        let guard = self.try_read_for(wait)?;
        Ok(guard.run_and_release(work)?)
    }

    /// Runs `work` as the writer and then releases the lock. See [`run_read`](Self::run_read) for
    /// an example that also calls `run_write`.
    ///
    /// `work` is not cancelled if the lease is lost. If `work` panics, the lock is released in the
    /// background.
    ///
    /// # Errors
    ///
    /// If [`write`](Self::write) fails, returns its error without calling `work`. Returns
    /// [`ErrorKind::LeaseLost`](crate::ErrorKind::LeaseLost) after `work` has finished if the lease
    /// was lost in the meantime.
    pub fn run_write<T>(&self, work: impl FnOnce(&Guard) -> T) -> Result<T, Error> {
        self.write()?.0.run_and_release(work)
    }

    /// Makes one attempt to acquire the lock as the writer and, if successful, runs `work` in the
    /// same way as [`run_write`](Self::run_write).
    ///
    /// # Errors
    ///
    /// If [`try_write`](Self::try_write) fails, returns its error without calling `work`. Returns
    /// errors from [`run_write`](Self::run_write) as [`TryLockError::Failed`].
    pub fn try_run_write<T>(&self, work: impl FnOnce(&Guard) -> T) -> Result<T, TryLockError> {
        let guard = self.try_write()?;
        Ok(guard.0.run_and_release(work)?)
    }

    /// Attempts to acquire the lock as the writer, blocking this thread for at most `wait`, and on
    /// success runs `work` in the same way as [`run_write`](Self::run_write).
    ///
    /// # Errors
    ///
    /// If [`try_write_for`](Self::try_write_for) fails, returns its error without calling `work`.
    /// Returns errors from [`run_write`](Self::run_write) as [`TryLockError::Failed`].
    pub fn try_run_write_for<T>(
        &self,
        wait: Duration,
        work: impl FnOnce(&Guard) -> T,
    ) -> Result<T, TryLockError> {
        let guard = self.try_write_for(wait)?;
        Ok(guard.0.run_and_release(work)?)
    }

    /// Asks the store whether the lock is held. The result may be out of date by the time this
    /// method returns, so use it only for display.
    ///
    /// # Errors
    ///
    /// Returns [`ErrorKind::Unsupported`](crate::ErrorKind::Unsupported) if the store cannot report
    /// whether a key is held, or if this method is called from [async code](super).
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

/// A writer's guard: a [`Guard`] that can be [downgraded](Self::downgrade) to a reader.
///
/// Dropping the guard releases the lock.
///
/// ```
/// use leasehold_core::blocking::LockClient;
/// use leasehold_core::memory::MemoryBackend;
///
/// let lock = LockClient::new(MemoryBackend::new())?.rw_lock("catalogue")?;
/// let writer = lock.write()?;
/// println!("writing under token {}", writer.token());
/// let reader = writer.downgrade()?;
/// reader.release()?;
/// # Ok::<(), leasehold_core::Error>(())
/// ```
#[must_use = "dropping a guard releases its lock"]
pub struct WriteGuard(Guard);

impl WriteGuard {
    /// Turns the writer into a reader and returns a reader's guard. No other writer can acquire the
    /// lock during the downgrade.
    ///
    /// The method blocks until the store has replied.
    ///
    /// # Errors
    ///
    /// Returns the same errors as [`WriteGuard::downgrade`](crate::WriteGuard::downgrade), and
    /// [`ErrorKind::Unsupported`](crate::ErrorKind::Unsupported) if called from [async
    /// code](super). If the downgrade fails, the guard is dropped.
    pub fn downgrade(self) -> Result<Guard, Error> {
        self.0.share_with_readers()
    }

    /// Releases the lock and blocks until the store has confirmed the release. See
    /// [`Guard::release`].
    ///
    /// # Errors
    ///
    /// Returns the same errors as [`Guard::release`].
    pub fn release(self) -> Result<(), Error> {
        self.0.release()
    }

    /// Converts this value into a plain guard, which still holds the writer's lease but cannot be
    /// downgraded.
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
