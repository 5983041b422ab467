//! The blocking striped lock.

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

/// A lock with several interchangeable segments. This is the blocking version of
/// [`Striped`](crate::Striped).
///
/// ```
/// use leasehold_core::blocking::LockClient;
/// use leasehold_core::memory::MemoryBackend;
///
/// let stock = LockClient::new(MemoryBackend::new())?.striped("stock:umbrellas", 2)?;
///
/// let (one, other) = (stock.lock()?, stock.lock()?);
/// assert_ne!(one.segment(), other.segment());
/// assert!(stock.try_lock().is_err());
/// # Ok::<(), leasehold_core::Error>(())
/// ```
#[derive(Clone, Debug)]
pub struct Striped {
    striped: crate::Striped,
    background: Background,
}

impl Striped {
    pub(super) fn new(striped: crate::Striped, background: Background) -> Self {
        Self { striped, background }
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
        Ok(Self { striped: self.striped.with_options(options)?, ..self })
    }

    /// Returns the key from which the segment keys are derived. No caller ever locks the striped
    /// lock's own key.
    pub fn key(&self) -> &LockKey {
        self.striped.key()
    }

    /// Returns the segment keys. Element `i` of the slice is the key of the segment with index `i`.
    pub fn segments(&self) -> &[LockKey] {
        self.striped.segments()
    }

    /// Blocks until a segment is free, then returns a guard that holds it.
    ///
    /// By default, this method waits indefinitely. Set [`LockOptions::wait`] to limit the wait, or
    /// call [`try_lock_for`](Self::try_lock_for).
    ///
    /// # Errors
    ///
    /// Returns the same errors as [`Striped::lock`](crate::Striped::lock), and
    /// [`ErrorKind::Unsupported`](crate::ErrorKind::Unsupported) if called from [async
    /// code](super).
    pub fn lock(&self) -> Result<StripedGuard, Error> {
        let guard = self.background.block_on(self.striped.lock())?;
        Ok(self.guard(guard))
    }

    /// Makes one attempt to acquire a segment. The method waits for the store's replies, but not
    /// for a current holder to release its segment.
    ///
    /// # Errors
    ///
    /// Returns [`TryLockError::Busy`] if all segments are held. If the attempt failed for another
    /// reason, returns [`TryLockError::Failed`] with one of the errors that [`lock`](Self::lock)
    /// returns. The method does not retry if the store is unreachable. See [`TryLockError`] for an
    /// example.
    pub fn try_lock(&self) -> Result<StripedGuard, TryLockError> {
        let guard = self.background.block_on(self.striped.try_lock())?;
        Ok(self.guard(guard))
    }

    /// Attempts to acquire a segment, blocking this thread for at most `wait`.
    ///
    /// # Errors
    ///
    /// Returns [`TryLockError::Busy`] if no segment became free in time. If the store rejected a
    /// request or did not reply in time, returns [`TryLockError::Failed`] with one of the errors
    /// that [`lock`](Self::lock) returns. See [`TryLockError`] for an example.
    pub fn try_lock_for(&self, wait: Duration) -> Result<StripedGuard, TryLockError> {
        let guard = self.background.block_on(self.striped.try_lock_for(wait))?;
        Ok(self.guard(guard))
    }

    /// Blocks until this thread can acquire a segment, but gives up at `instant`, a time on the
    /// client's clock such as `client.now() + wait`.
    ///
    /// # Errors
    ///
    /// Returns [`TryLockError::Busy`] if no segment became free in time. If the store rejected a
    /// request or did not reply in time, returns [`TryLockError::Failed`] with one of the errors
    /// that [`lock`](Self::lock) returns. See [`TryLockError`] for an example.
    pub fn try_lock_until(&self, instant: Instant) -> Result<StripedGuard, TryLockError> {
        let guard = self.background.block_on(self.striped.try_lock_until(instant))?;
        Ok(self.guard(guard))
    }

    /// Acquires a segment, runs `work`, and then releases the segment.
    ///
    /// `work` is not cancelled if the lease is lost. If `work` panics, the segment is released in
    /// the background.
    ///
    /// ```
    /// use leasehold_core::blocking::LockClient;
    /// use leasehold_core::memory::MemoryBackend;
    ///
    /// let stock = LockClient::new(MemoryBackend::new())?.striped("stock:umbrellas", 10)?;
    /// let sold = stock.run(|guard| format!("from counter {}", guard.segment()))?;
    /// # let _ = sold;
    /// # Ok::<(), leasehold_core::Error>(())
    /// ```
    ///
    /// # Errors
    ///
    /// If [`lock`](Self::lock) fails, returns its error without calling `work`. Returns
    /// [`ErrorKind::LeaseLost`](crate::ErrorKind::LeaseLost) after `work` has finished if the lease
    /// was lost in the meantime.
    pub fn run<T>(&self, work: impl FnOnce(&StripedGuard) -> T) -> Result<T, Error> {
        self.lock()?.run_and_release(work)
    }

    /// Makes one attempt to acquire a segment and, if successful, runs `work` in the same way as
    /// [`run`](Self::run).
    ///
    /// # Errors
    ///
    /// If [`try_lock`](Self::try_lock) fails, returns its error without calling `work`. Returns
    /// errors from [`run`](Self::run) as [`TryLockError::Failed`].
    pub fn try_run<T>(&self, work: impl FnOnce(&StripedGuard) -> T) -> Result<T, TryLockError> {
        let guard = self.try_lock()?;
        Ok(guard.run_and_release(work)?)
    }

    /// Attempts to acquire a segment, blocking this thread for at most `wait`, and on success runs
    /// `work` in the same way as [`run`](Self::run).
    ///
    /// # Errors
    ///
    /// If [`try_lock_for`](Self::try_lock_for) fails, returns its error without calling `work`.
    /// Returns errors from [`run`](Self::run) as [`TryLockError::Failed`].
    pub fn try_run_for<T>(
        &self,
        wait: Duration,
        work: impl FnOnce(&StripedGuard) -> T,
    ) -> Result<T, TryLockError> {
        let guard = self.try_lock_for(wait)?;
        Ok(guard.run_and_release(work)?)
    }

    fn guard(&self, guard: crate::StripedGuard) -> StripedGuard {
        let segment = guard.segment();
        StripedGuard { guard: Guard::new(guard.into_guard(), &self.background), segment }
    }
}

/// A guard that holds one segment of a [`Striped`] lock: a [`Guard`] with the index of its segment.
///
/// Dropping the guard releases the segment.
///
/// ```
/// use leasehold_core::blocking::LockClient;
/// use leasehold_core::memory::MemoryBackend;
///
/// let guard = LockClient::new(MemoryBackend::new())?.striped("stock:umbrellas", 10)?.lock()?;
/// println!("selling from counter {}", guard.segment()); // 0 to 9
/// guard.release()?;
/// # Ok::<(), leasehold_core::Error>(())
/// ```
#[must_use = "dropping a guard releases its lock"]
pub struct StripedGuard {
    guard: Guard,
    segment: u32,
}

impl StripedGuard {
    /// Returns the index of the segment, starting at 0.
    pub fn segment(&self) -> u32 {
        self.segment
    }

    /// Converts this value into a plain guard, which still holds the segment but does not report
    /// its index.
    pub fn into_guard(self) -> Guard {
        self.guard
    }

    /// Releases the segment and blocks until the store has confirmed the release. See
    /// [`Guard::release`].
    ///
    /// # Errors
    ///
    /// Returns the same errors as [`Guard::release`].
    pub fn release(self) -> Result<(), Error> {
        self.guard.release()
    }
}

impl StripedGuard {
    fn run_and_release<T>(self, work: impl FnOnce(&Self) -> T) -> Result<T, Error> {
        let output = self.guard.run(|| work(&self));
        self.guard.run_and_release(|_guard| output)
    }
}

impl Deref for StripedGuard {
    type Target = Guard;

    fn deref(&self) -> &Guard {
        &self.guard
    }
}

impl fmt::Debug for StripedGuard {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut debug = f.debug_struct("StripedGuard");
        debug.field("segment", &self.segment).field("guard", &self.guard).finish()
    }
}
