//! The blocking multi-lock.

use std::fmt;
use std::time::Duration;

use super::background::{Background, Ending};
use crate::clock::Instant;
use crate::contract::error::Error;
use crate::contract::key::{IntoKey, LockKey};
use crate::contract::loss::LossReason;
use crate::contract::token::FencingToken;
use crate::contract::try_lock_error::TryLockError;
use crate::engine::held_by_caller;
use crate::locks::guard::LockGuard;
use crate::options::LockOptions;

/// Several locks that are acquired together, either all or none. This is the blocking version of
/// [`MultiLock`](crate::MultiLock).
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

    /// Returns this multi-lock with different options. The options also apply to keys that are
    /// added to the multi-lock later.
    ///
    /// # Errors
    ///
    /// Returns [`ErrorKind::Invalid`](crate::ErrorKind::Invalid) if the options conflict, and
    /// [`ErrorKind::Unsupported`](crate::ErrorKind::Unsupported) if the store does not support one
    /// of the options.
    pub fn with_options(self, options: LockOptions) -> Result<Self, Error> {
        Ok(Self { lock: self.lock.with_options(options)?, ..self })
    }

    /// Adds the mutex named `key`.
    ///
    /// # Errors
    ///
    /// Returns [`ErrorKind::Invalid`](crate::ErrorKind::Invalid) if the key or the options are
    /// invalid, or if the multi-lock already has a part with this key. Returns
    /// [`ErrorKind::Unsupported`](crate::ErrorKind::Unsupported) if the store does not support one
    /// of the options.
    pub fn mutex(self, key: impl IntoKey) -> Result<Self, Error> {
        Ok(Self { lock: self.lock.mutex(key)?, ..self })
    }

    /// Adds a mutex for each key in `keys`.
    ///
    /// # Errors
    ///
    /// Returns the error from [`mutex`](Self::mutex) for the first key that cannot be added.
    pub fn mutexes(self, keys: impl IntoIterator<Item = impl IntoKey>) -> Result<Self, Error> {
        Ok(Self { lock: self.lock.mutexes(keys)?, ..self })
    }

    /// Adds a part to the multi-lock: a reader of the reader-writer lock named `key`.
    ///
    /// # Errors
    ///
    /// Returns [`ErrorKind::Invalid`](crate::ErrorKind::Invalid) if the key or the options are
    /// invalid, or if the multi-lock already has a part with this key. Returns
    /// [`ErrorKind::Unsupported`](crate::ErrorKind::Unsupported) if the store does not support
    /// reader-writer locks or one of the options.
    pub fn read(self, key: impl IntoKey) -> Result<Self, Error> {
        Ok(Self { lock: self.lock.read(key)?, ..self })
    }

    /// Adds a part to the multi-lock: the writer of the reader-writer lock named `key`.
    ///
    /// # Errors
    ///
    /// Returns the same errors as [`read`](Self::read).
    pub fn write(self, key: impl IntoKey) -> Result<Self, Error> {
        Ok(Self { lock: self.lock.write(key)?, ..self })
    }

    /// Adds a part to the multi-lock: `permits` permits of the semaphore named `key`, which has
    /// `limit` permits in total. See [`MultiLock::permits`](crate::MultiLock::permits) for an
    /// example.
    ///
    /// # Errors
    ///
    /// Returns [`ErrorKind::Invalid`](crate::ErrorKind::Invalid) if the key or the options are
    /// invalid, if the multi-lock already has a part with this key, or if `permits` is 0 or larger
    /// than `limit`. Returns [`ErrorKind::Unsupported`](crate::ErrorKind::Unsupported) if the store
    /// does not support semaphores or one of the options.
    pub fn permits(self, key: impl IntoKey, permits: u32, limit: u32) -> Result<Self, Error> {
        Ok(Self { lock: self.lock.permits(key, permits, limit)?, ..self })
    }

    /// Returns the keys of the parts, in the order in which the parts are acquired.
    pub fn keys(&self) -> impl Iterator<Item = &LockKey> {
        self.lock.keys()
    }

    /// Blocks until all parts are acquired, then returns a guard that holds them.
    ///
    /// By default, this method waits indefinitely. Set [`LockOptions::wait`] to limit the wait, or
    /// call [`try_lock_for`](Self::try_lock_for).
    ///
    /// # Errors
    ///
    /// Returns the same errors as [`MultiLock::lock`](crate::MultiLock::lock), and
    /// [`ErrorKind::Unsupported`](crate::ErrorKind::Unsupported) if called from [async
    /// code](super).
    pub fn lock(&self) -> Result<MultiGuard, Error> {
        let guard = self.background.block_on(self.lock.lock())?;
        Ok(self.guard(guard))
    }

    /// Makes one attempt to acquire all parts. The method waits for the store's reply, but not for
    /// a part's current holder to release it.
    ///
    /// # Errors
    ///
    /// Returns [`TryLockError::Busy`] if another caller holds one of the parts. If the attempt
    /// failed for another reason, returns [`TryLockError::Failed`] with one of the errors that
    /// [`lock`](Self::lock) returns. The method does not retry if the store is unreachable. See
    /// [`TryLockError`] for an example.
    pub fn try_lock(&self) -> Result<MultiGuard, TryLockError> {
        let guard = self.background.block_on(self.lock.try_lock())?;
        Ok(self.guard(guard))
    }

    /// Attempts to acquire all parts, blocking this thread for at most `wait`.
    ///
    /// # Errors
    ///
    /// Returns [`TryLockError::Busy`] if another caller held a part until `wait` had elapsed. If
    /// the store rejected the request or did not reply in time, returns [`TryLockError::Failed`]
    /// with one of the errors that [`lock`](Self::lock) returns. See [`TryLockError`] for an
    /// example.
    pub fn try_lock_for(&self, wait: Duration) -> Result<MultiGuard, TryLockError> {
        let guard = self.background.block_on(self.lock.try_lock_for(wait))?;
        Ok(self.guard(guard))
    }

    /// Blocks until this thread can acquire all parts, but gives up at `instant`, a time on the
    /// client's clock such as `client.now() + wait`.
    ///
    /// # Errors
    ///
    /// Returns [`TryLockError::Busy`] if another caller held a part until `instant`. If the store
    /// rejected the request or did not reply in time, returns [`TryLockError::Failed`] with one of
    /// the errors that [`lock`](Self::lock) returns. See [`TryLockError`] for an example.
    pub fn try_lock_until(&self, instant: Instant) -> Result<MultiGuard, TryLockError> {
        let guard = self.background.block_on(self.lock.try_lock_until(instant))?;
        Ok(self.guard(guard))
    }

    /// Runs `work` while all parts are held and then releases the parts.
    ///
    /// `work` is not cancelled if a part is lost. If `work` panics, the parts are released in the
    /// background.
    ///
    /// ```
    /// use leasehold_core::blocking::LockClient;
    /// use leasehold_core::memory::MemoryBackend;
    ///
    /// let client = LockClient::new(MemoryBackend::new())?;
    /// let transfer = client.multi_lock().mutexes(["account:2", "account:1"])?;
    /// let tokens = transfer.run(|guard| guard.tokens().count())?;
    /// assert_eq!(tokens, 2);
    /// # Ok::<(), leasehold_core::Error>(())
    /// ```
    ///
    /// # Errors
    ///
    /// If [`lock`](Self::lock) fails, returns its error without calling `work`. Returns
    /// [`ErrorKind::LeaseLost`](crate::ErrorKind::LeaseLost) after `work` has finished if any part
    /// was lost in the meantime. If only the reply to a release is lost, this method returns the
    /// result of `work`.
    pub fn run<T>(&self, work: impl FnOnce(&MultiGuard) -> T) -> Result<T, Error> {
        self.lock()?.run_and_release(work)
    }

    /// Makes one attempt to acquire all parts and, if successful, runs `work` in the same way as
    /// [`run`](Self::run).
    ///
    /// # Errors
    ///
    /// If [`try_lock`](Self::try_lock) fails, returns its error without calling `work`. Returns
    /// errors from [`run`](Self::run) as [`TryLockError::Failed`].
    pub fn try_run<T>(&self, work: impl FnOnce(&MultiGuard) -> T) -> Result<T, TryLockError> {
        let guard = self.try_lock()?;
        Ok(guard.run_and_release(work)?)
    }

    /// Attempts to acquire all parts, blocking this thread for at most `wait`, and on success runs
    /// `work` in the same way as [`run`](Self::run).
    ///
    /// # Errors
    ///
    /// If [`try_lock_for`](Self::try_lock_for) fails, returns its error without calling `work`.
    /// Returns errors from [`run`](Self::run) as [`TryLockError::Failed`].
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

/// A guard that holds all parts of a [`MultiLock`]. This is the blocking version of
/// [`MultiGuard`](crate::MultiGuard).
///
/// Dropping the guard releases all parts and blocks for up to two seconds while it waits for the
/// store to confirm the releases.
///
/// ```
/// use std::time::Duration;
/// use leasehold_core::blocking::LockClient;
/// use leasehold_core::memory::MemoryBackend;
///
/// let client = LockClient::new(MemoryBackend::new())?;
/// let guard = client.multi_lock().mutexes(["from", "to"])?.lock()?;
/// guard.ensure_held(Duration::from_secs(1))?; // before a step that takes a second
/// for token in guard.tokens() {
///     println!("held with token {token}");
/// }
/// guard.release()?;
/// # Ok::<(), leasehold_core::Error>(())
/// ```
#[must_use = "dropping a guard releases its locks"]
pub struct MultiGuard {
    // Dropped before `background`, so that the drop of `background` waits for the releases.
    guard: crate::MultiGuard,
    background: Ending,
}

impl MultiGuard {
    /// Returns the fencing tokens of the parts, sorted by key.
    pub fn tokens(&self) -> impl Iterator<Item = &FencingToken> {
        self.guard.guards().iter().map(LockGuard::token)
    }

    /// Returns the earliest deadline of all parts. The guard is considered lost at the earliest
    /// deadline unless the part with that deadline is renewed first.
    pub fn deadline(&self) -> Instant {
        self.guard.deadline()
    }

    /// Returns the time until the earliest deadline, or zero if any part is lost.
    pub fn remaining(&self) -> Duration {
        self.guard.remaining()
    }

    /// Returns whether all leases are valid. This method reads local state and does no I/O.
    ///
    /// A result of `true` may be out of date by the time the caller acts on it. A result of `false`
    /// is final.
    pub fn is_held(&self) -> bool {
        self.guard.is_held()
    }

    /// Checks that every lease is valid, and that at least `min_left` remains before each deadline.
    /// The check uses the local deadlines and does no I/O.
    ///
    /// # Errors
    ///
    /// Returns [`ErrorKind::LeaseLost`](crate::ErrorKind::LeaseLost) if any lease is lost, and
    /// [`ErrorKind::ExpiresSoon`](crate::ErrorKind::ExpiresSoon) if less than `min_left` remains
    /// for any lease. [`Error::key`] returns that lease's key.
    pub fn ensure_held(&self, min_left: Duration) -> Result<(), Error> {
        self.guard.ensure_held(min_left)
    }

    /// Blocks until any part is lost or `wait` has elapsed. Returns the lost part's key and the
    /// reason, or `None` if no part was lost within `wait`.
    ///
    /// # Errors
    ///
    /// Returns [`ErrorKind::Unsupported`](crate::ErrorKind::Unsupported) if called from [async
    /// code](super).
    pub fn wait_lost(&self, wait: Duration) -> Result<Option<(LockKey, LossReason)>, Error> {
        Ok(self.background.wait_for(self.guard.lost(), wait)?.flatten())
    }

    /// Releases all parts and blocks until the store has confirmed the releases. The method blocks
    /// for at most five seconds and never past the parts' deadlines.
    ///
    /// # Errors
    ///
    /// Returns the same errors as [`MultiGuard::release`](crate::MultiGuard::release), and
    /// [`ErrorKind::Unsupported`](crate::ErrorKind::Unsupported) if called from [async
    /// code](super).
    pub fn release(self) -> Result<(), Error> {
        self.background.take().block_on(self.guard.release())
    }

    /// Renews all leases now with the new TTL `ttl`. The method blocks until the store has replied.
    ///
    /// # Errors
    ///
    /// Returns the same errors as [`MultiGuard::extend`](crate::MultiGuard::extend), and
    /// [`ErrorKind::Unsupported`](crate::ErrorKind::Unsupported) if called from [async
    /// code](super).
    pub fn extend(&self, ttl: Duration) -> Result<(), Error> {
        self.background.block_on(self.guard.extend(ttl))
    }

    /// Returns whether a client has asked the holders of any part to finish early.
    pub fn is_revocation_requested(&self) -> bool {
        self.guard.is_revocation_requested()
    }

    fn run_and_release<T>(self, work: impl FnOnce(&Self) -> T) -> Result<T, Error> {
        let runs = self.guard.guards().iter().map(LockGuard::to_run);
        let output = held_by_caller::sync_within(runs, || work(&self));
        // The async version checks whether the lease was lost before it returns `output`.
        self.background.take().block_on(self.guard.run_and_release(async |_guard| output))
    }
}

impl fmt::Debug for MultiGuard {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(&self.guard, f)
    }
}
