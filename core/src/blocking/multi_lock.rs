//! Several locks, of one kind or of several, all or none.

use std::fmt;
use std::time::Duration;

use super::background::{Background, Ending};
use crate::clock::Instant;
use crate::contract::error::Error;
use crate::contract::key::{IntoKey, LockKey};
use crate::contract::loss::LossReason;
use crate::contract::token::FencingToken;
use crate::contract::try_lock_error::TryLockError;
use crate::engine::runs;
use crate::locks::guard::LockGuard;
use crate::options::LockOptions;

/// Several locks that are taken together, all of them or none: the [`MultiLock`](crate::MultiLock) of code
/// without a runtime.
///
/// ```
/// use leasehold_core::blocking::LockClient;
/// use leasehold_core::memory::MemoryBackend;
///
/// let client = LockClient::new(MemoryBackend::new())?;
/// let transfer = client.multi_lock().mutexes(["account:2", "account:1"])?.read("rates")?;
///
/// let guard = transfer.lock()?;
/// assert!(client.mutex("account:1")?.try_lock().is_err());
/// guard.release()?;
/// # Ok::<(), leasehold_core::Error>(())
/// ```
#[derive(Clone, Debug)]
pub struct MultiLock {
    lock: crate::MultiLock,
    background: Background,
}

impl MultiLock {
    pub(super) fn new(lock: crate::MultiLock, background: Background) -> Self {
        Self { lock, background }
    }

    /// The same locks with other options, those that are added later included.
    ///
    /// # Errors
    ///
    /// Returns the errors of [`MultiLock::with_options`](crate::MultiLock::with_options).
    pub fn with_options(self, options: LockOptions) -> Result<Self, Error> {
        Ok(Self { lock: self.lock.with_options(options)?, ..self })
    }

    /// Adds the mutex `key`.
    ///
    /// # Errors
    ///
    /// Returns the errors of [`MultiLock::mutex`](crate::MultiLock::mutex).
    pub fn mutex(self, key: impl IntoKey) -> Result<Self, Error> {
        Ok(Self { lock: self.lock.mutex(key)?, ..self })
    }

    /// Adds the mutexes of all `keys`.
    ///
    /// # Errors
    ///
    /// Returns the errors of [`mutex`](Self::mutex).
    pub fn mutexes(self, keys: impl IntoIterator<Item = impl IntoKey>) -> Result<Self, Error> {
        Ok(Self { lock: self.lock.mutexes(keys)?, ..self })
    }

    /// Adds a reader of the reader-writer lock `key`.
    ///
    /// # Errors
    ///
    /// Returns the errors of [`MultiLock::read`](crate::MultiLock::read).
    pub fn read(self, key: impl IntoKey) -> Result<Self, Error> {
        Ok(Self { lock: self.lock.read(key)?, ..self })
    }

    /// Adds the writer of the reader-writer lock `key`.
    ///
    /// # Errors
    ///
    /// Returns the errors of [`read`](Self::read).
    pub fn write(self, key: impl IntoKey) -> Result<Self, Error> {
        Ok(Self { lock: self.lock.write(key)?, ..self })
    }

    /// Adds so many `permits` of the semaphore `key` that has `limit` of them.
    ///
    /// # Errors
    ///
    /// Returns the errors of [`MultiLock::permits`](crate::MultiLock::permits).
    pub fn permits(self, key: impl IntoKey, permits: u32, limit: u32) -> Result<Self, Error> {
        Ok(Self { lock: self.lock.permits(key, permits, limit)?, ..self })
    }

    /// The keys of the parts, in the order in which they are taken.
    pub fn keys(&self) -> impl Iterator<Item = &LockKey> {
        self.lock.keys()
    }

    /// Blocks until all parts are ours, for as long as [`LockOptions::wait`] says.
    ///
    /// # Errors
    ///
    /// Returns the errors of [`MultiLock::lock`](crate::MultiLock::lock), and
    /// [`ErrorKind::Unsupported`](crate::ErrorKind::Unsupported) in [async code](super).
    pub fn lock(&self) -> Result<MultiGuard, Error> {
        let guard = self.background.block_on(self.lock.lock())?;
        Ok(self.guard(guard))
    }

    /// Makes one attempt to acquire all parts. It does not wait for other holders, only for the store's reply.
    ///
    /// # Errors
    ///
    /// Returns [`TryLockError::Busy`] if another caller holds one of them, and [`TryLockError::Failed`] with an error of [`lock`](Self::lock) if the attempt
    /// failed. It does not retry while the store is unreachable. See [`TryLockError`] for an example.
    pub fn try_lock(&self) -> Result<MultiGuard, TryLockError> {
        let guard = self.background.block_on(self.lock.try_lock())?;
        Ok(self.guard(guard))
    }

    /// Blocks until this thread can acquire all parts, for at most `wait`.
    ///
    /// # Errors
    ///
    /// Returns [`TryLockError::Busy`] if a part was held throughout, and [`TryLockError::Failed`] with an error of [`lock`](Self::lock) if the store
    /// refused the request or did not answer in time. See [`TryLockError`] for an example.
    pub fn try_lock_for(&self, wait: Duration) -> Result<MultiGuard, TryLockError> {
        let guard = self.background.block_on(self.lock.try_lock_for(wait))?;
        Ok(self.guard(guard))
    }

    /// Blocks until this thread can acquire all parts, until `instant` on the client's clock, for example `client.now() + wait`.
    ///
    /// # Errors
    ///
    /// Returns [`TryLockError::Busy`] if a part was held throughout, and [`TryLockError::Failed`] with an error of [`lock`](Self::lock) if the store
    /// refused the request or did not answer in time. See [`TryLockError`] for an example.
    pub fn try_lock_until(&self, instant: Instant) -> Result<MultiGuard, TryLockError> {
        let guard = self.background.block_on(self.lock.try_lock_until(instant))?;
        Ok(self.guard(guard))
    }

    /// Runs `work` while all parts are held, and releases them.
    ///
    /// # Errors
    ///
    /// Returns the errors of [`Mutex::run`](super::Mutex::run) for each part.
    pub fn run<T>(&self, work: impl FnOnce(&MultiGuard) -> T) -> Result<T, Error> {
        self.lock()?.run_and_release(work)
    }

    /// Makes one attempt to acquire all parts and, if it succeeds, runs `work` like [`run`](Self::run).
    ///
    /// # Errors
    ///
    /// Returns the errors of [`try_lock`](Self::try_lock) before `work` is called, and the errors of [`run`](Self::run) as
    /// [`TryLockError::Failed`].
    pub fn try_run<T>(&self, work: impl FnOnce(&MultiGuard) -> T) -> Result<T, TryLockError> {
        let guard = self.try_lock()?;
        Ok(guard.run_and_release(work)?)
    }

    /// Blocks until this thread can acquire all parts, for at most `wait`, and runs `work` like [`run`](Self::run).
    ///
    /// # Errors
    ///
    /// Returns the errors of [`try_lock_for`](Self::try_lock_for) before `work` is called, and the errors of [`run`](Self::run) as
    /// [`TryLockError::Failed`].
    pub fn try_run_for<T>(
        &self,
        wait: Duration,
        work: impl FnOnce(&MultiGuard) -> T,
    ) -> Result<T, TryLockError> {
        let guard = self.try_lock_for(wait)?;
        Ok(guard.run_and_release(work)?)
    }

    fn guard(&self, guard: crate::MultiGuard) -> MultiGuard {
        MultiGuard { guard, background: Ending::new(&self.background) }
    }
}

/// The proof of the leases on all keys of a [`MultiLock`]: the [`MultiGuard`](crate::MultiGuard) of code without a
/// runtime.
///
/// See [`MultiLock`] for an example.
#[must_use = "dropping a guard releases its locks"]
pub struct MultiGuard {
    // Dropped first, so that the background waits for its releases.
    guard: crate::MultiGuard,
    background: Ending,
}

impl MultiGuard {
    /// The fencing tokens of the parts, in the order of their keys.
    pub fn tokens(&self) -> impl Iterator<Item = &FencingToken> {
        self.guard.guards().iter().map(LockGuard::token)
    }

    /// The earliest of the parts' deadlines. See [`MultiGuard::deadline`](crate::MultiGuard::deadline).
    pub fn deadline(&self) -> Instant {
        self.guard.deadline()
    }

    /// How long until the earliest deadline of a part; zero once any is lost.
    pub fn remaining(&self) -> Duration {
        self.guard.remaining()
    }

    /// Whether all leases are in force, by local knowledge and without I/O. False is final.
    pub fn is_held(&self) -> bool {
        self.guard.is_held()
    }

    /// Makes sure, without I/O, that every lease is in force for at least `min_left`.
    ///
    /// # Errors
    ///
    /// Returns the errors of [`MultiGuard::ensure_held`](crate::MultiGuard::ensure_held).
    pub fn ensure_held(&self, min_left: Duration) -> Result<(), Error> {
        self.guard.ensure_held(min_left)
    }

    /// Blocks until any part is lost, and tells which and why; `None` if none was lost within `wait`.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Unsupported`](crate::ErrorKind::Unsupported) in [async code](super).
    pub fn wait_lost(&self, wait: Duration) -> Result<Option<(LockKey, LossReason)>, Error> {
        Ok(self.background.wait_for(self.guard.lost(), wait)?.flatten())
    }

    /// Ends all leases, and blocks until the store has confirmed it, for five seconds at most and no longer than until the
    /// deadline.
    ///
    /// # Errors
    ///
    /// Returns the errors of [`MultiGuard::release`](crate::MultiGuard::release), and
    /// [`ErrorKind::Unsupported`](crate::ErrorKind::Unsupported) in [async code](super).
    pub fn release(self) -> Result<(), Error> {
        self.background.take().block_on(self.guard.release())
    }

    /// Renews all leases now, with another TTL from now on. Blocks until the store has answered.
    ///
    /// # Errors
    ///
    /// Returns the errors of [`MultiGuard::extend`](crate::MultiGuard::extend), and [`ErrorKind::Unsupported`](crate::ErrorKind::Unsupported) in
    /// [async code](super).
    pub fn extend(&self, ttl: Duration) -> Result<(), Error> {
        self.background.block_on(self.guard.extend(ttl))
    }

    /// Whether the holders of any part were asked to finish early.
    pub fn is_revocation_requested(&self) -> bool {
        self.guard.is_revocation_requested()
    }

    fn run_and_release<T>(self, work: impl FnOnce(&Self) -> T) -> Result<T, Error> {
        let runs = self.guard.guards().iter().map(LockGuard::to_run);
        let output = runs::sync_within(runs, || work(&self));
        // A loss until now is found before the output is looked at.
        self.background.take().block_on(self.guard.run_and_release(async |_guard| output))
    }
}

impl fmt::Debug for MultiGuard {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(&self.guard, f)
    }
}
