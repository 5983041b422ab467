//! A resource in segments, of which callers take any one.

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

/// A resource that many want at once, split into segments: the [`Striped`](crate::Striped) of code without
/// a runtime.
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

    /// The same segments with other options.
    ///
    /// # Errors
    ///
    /// Returns the errors of [`Mutex::with_options`](crate::Mutex::with_options).
    pub fn with_options(self, options: LockOptions) -> Result<Self, Error> {
        Ok(Self { striped: self.striped.with_options(options)?, ..self })
    }

    /// The key of the whole, which is never locked itself.
    pub fn key(&self) -> &LockKey {
        self.striped.key()
    }

    /// The keys of the segments, by index.
    pub fn segments(&self) -> &[LockKey] {
        self.striped.segments()
    }

    /// Blocks until any segment is ours, for as long as [`LockOptions::wait`] says.
    ///
    /// # Errors
    ///
    /// Returns the errors of [`Striped::lock`](crate::Striped::lock), and
    /// [`ErrorKind::Unsupported`](crate::ErrorKind::Unsupported) in [async code](super).
    pub fn lock(&self) -> Result<StripedGuard, Error> {
        let guard = self.background.block_on(self.striped.lock())?;
        Ok(self.guard(guard))
    }

    /// Makes one attempt to acquire any segment. It does not wait for other holders, only for the store's reply.
    ///
    /// # Errors
    ///
    /// Returns [`TryLockError::Busy`] if all segments are held, and [`TryLockError::Failed`] with an error of [`lock`](Self::lock) if the attempt
    /// failed. It does not retry while the store is unreachable. See [`TryLockError`] for an example.
    pub fn try_lock(&self) -> Result<StripedGuard, TryLockError> {
        let guard = self.background.block_on(self.striped.try_lock())?;
        Ok(self.guard(guard))
    }

    /// Blocks until this thread can acquire any segment, for at most `wait`.
    ///
    /// # Errors
    ///
    /// Returns [`TryLockError::Busy`] if all segments were held throughout, and [`TryLockError::Failed`] with an error of [`lock`](Self::lock) if the store
    /// refused the request or did not answer in time. See [`TryLockError`] for an example.
    pub fn try_lock_for(&self, wait: Duration) -> Result<StripedGuard, TryLockError> {
        let guard = self.background.block_on(self.striped.try_lock_for(wait))?;
        Ok(self.guard(guard))
    }

    /// Blocks until this thread can acquire any segment, until `instant` on the client's clock, for example `client.now() + wait`.
    ///
    /// # Errors
    ///
    /// Returns [`TryLockError::Busy`] if all segments were held throughout, and [`TryLockError::Failed`] with an error of [`lock`](Self::lock) if the store
    /// refused the request or did not answer in time. See [`TryLockError`] for an example.
    pub fn try_lock_until(&self, instant: Instant) -> Result<StripedGuard, TryLockError> {
        let guard = self.background.block_on(self.striped.try_lock_until(instant))?;
        Ok(self.guard(guard))
    }

    /// Runs `work` with any segment, and releases it.
    ///
    /// # Errors
    ///
    /// Returns the errors of [`lock`](Self::lock) and [`Mutex::run`](super::Mutex::run).
    pub fn run<T>(&self, work: impl FnOnce(&StripedGuard) -> T) -> Result<T, Error> {
        self.lock()?.run_and_release(work)
    }

    /// Makes one attempt to acquire any segment and, if it succeeds, runs `work` like [`run`](Self::run).
    ///
    /// # Errors
    ///
    /// Returns the errors of [`try_lock`](Self::try_lock) before `work` is called, and the errors of [`run`](Self::run) as
    /// [`TryLockError::Failed`].
    pub fn try_run<T>(&self, work: impl FnOnce(&StripedGuard) -> T) -> Result<T, TryLockError> {
        let guard = self.try_lock()?;
        Ok(guard.run_and_release(work)?)
    }

    /// Blocks until this thread can acquire any segment, for at most `wait`, and runs `work` like [`run`](Self::run).
    ///
    /// # Errors
    ///
    /// Returns the errors of [`try_lock_for`](Self::try_lock_for) before `work` is called, and the errors of [`run`](Self::run) as
    /// [`TryLockError::Failed`].
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

/// The proof of a lease on one segment: a [`Guard`] that knows which.
///
/// See [`Striped`] for an example.
#[must_use = "dropping a guard releases its lock"]
pub struct StripedGuard {
    guard: Guard,
    segment: u32,
}

impl StripedGuard {
    /// The index of the segment that is held, from 0.
    pub fn segment(&self) -> u32 {
        self.segment
    }

    /// Forgets which segment it is of.
    pub fn into_guard(self) -> Guard {
        self.guard
    }

    /// Ends the lease, as [`Guard::release`] does.
    ///
    /// # Errors
    ///
    /// Returns the errors of [`Guard::release`].
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
