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
    /// As [`Mutex::with_options`](crate::Mutex::with_options).
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
    /// As [`RwLock::read`](crate::RwLock::read), and
    /// [`ErrorKind::Unsupported`](crate::ErrorKind::Unsupported) in [async code](super).
    pub fn read(&self) -> Result<Guard, Error> {
        self.background.lock(self.lock.read())
    }

    /// Makes one attempt to read; [`Busy`] if a writer has the lock, or waits for it.
    ///
    /// # Errors
    ///
    /// As [`read`](Self::read), without `Timeout`.
    pub fn try_read(&self) -> Result<Guard, TryLockError> {
        self.background.lock(self.lock.try_read())
    }

    /// Blocks until we may read, for at most `wait`; [`Busy`] if there was no way in.
    ///
    /// # Errors
    ///
    /// As [`read`](Self::read), without `Timeout`.
    pub fn try_read_for(&self, wait: Duration) -> Result<Guard, TryLockError> {
        self.background.lock(self.lock.try_read_for(wait))
    }

    /// Blocks until we may read, at most until `instant`; [`Busy`] if there was no way in.
    ///
    /// # Errors
    ///
    /// As [`read`](Self::read), without `Timeout`.
    pub fn try_read_until(&self, instant: Instant) -> Result<Guard, TryLockError> {
        self.background.lock(self.lock.try_read_until(instant))
    }

    /// Blocks until we may write, for as long as [`LockOptions::wait`] says.
    ///
    /// # Errors
    ///
    /// As [`RwLock::write`](crate::RwLock::write), and
    /// [`ErrorKind::Unsupported`](crate::ErrorKind::Unsupported) in [async code](super).
    pub fn write(&self) -> Result<WriteGuard, Error> {
        let write = async { Ok(self.lock.write().await?.into_guard()) };
        self.background.lock(write).map(WriteGuard)
    }

    /// Makes one attempt to write; [`Busy`] if another caller has the lock or waits for it.
    ///
    /// # Errors
    ///
    /// As [`write`](Self::write), without `Timeout`.
    pub fn try_write(&self) -> Result<WriteGuard, TryLockError> {
        self.writer(self.lock.try_write())
    }

    /// Blocks until we may write, for at most `wait`; [`Busy`] if there was no way in.
    ///
    /// # Errors
    ///
    /// As [`write`](Self::write), without `Timeout`.
    pub fn try_write_for(&self, wait: Duration) -> Result<WriteGuard, TryLockError> {
        self.writer(self.lock.try_write_for(wait))
    }

    /// Blocks until we may write, at most until `instant`; [`Busy`] if there was no way in.
    ///
    /// # Errors
    ///
    /// As [`write`](Self::write), without `Timeout`.
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

    /// Makes one attempt, and runs `work` as a reader if that is granted; [`Busy`] if there is no way in, and `work` is not called.
    ///
    /// # Errors
    ///
    /// The errors of [`try_read`](Self::try_read), before `work` is called, and the errors of [`run_read`](Self::run_read).
    pub fn try_run_read<T>(&self, work: impl FnOnce(&Guard) -> T) -> Result<T, TryLockError> {
        let guard = self.try_read()?;
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

    /// Makes one attempt, and runs `work` as the writer if that is granted; [`Busy`] if there is no way in, and `work` is not called.
    ///
    /// # Errors
    ///
    /// The errors of [`try_write`](Self::try_write), before `work` is called, and the errors of [`run_write`](Self::run_write).
    pub fn try_run_write<T>(&self, work: impl FnOnce(&Guard) -> T) -> Result<T, TryLockError> {
        let guard = self.try_write()?;
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
/// See the example of [`RwLock`].
#[must_use = "dropping a guard releases its lock"]
pub struct WriteGuard(Guard);

impl WriteGuard {
    /// Becomes a reader: other readers may enter, and no writer enters in between.
    ///
    /// Blocks until the store has answered.
    ///
    /// # Errors
    ///
    /// As [`WriteGuard::downgrade`](crate::WriteGuard::downgrade), and
    /// [`ErrorKind::Unsupported`](crate::ErrorKind::Unsupported) in [async code](super). The guard is gone then.
    pub fn downgrade(self) -> Result<Guard, Error> {
        self.0.share_with_readers()
    }

    /// Ends the lease, as [`Guard::release`] does.
    ///
    /// # Errors
    ///
    /// As [`Guard::release`].
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
