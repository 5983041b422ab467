//! The reentrant mutex, which its owner can lock again.

use std::sync::Arc;
use std::time::Duration;

use crate::clock::Instant;
use crate::contract::backend::Mode;
use crate::contract::error::Error;
use crate::contract::key::LockKey;
use crate::contract::owner::OwnerId;
use crate::contract::try_lock_error::TryLockError;
use crate::engine::pipeline::Engine;
use crate::locks::guard::LockGuard;
use crate::locks::handle::{Kind, LockHandle};
use crate::options::LockOptions;

/// A mutex that its owner can lock again while already holding it.
///
/// The owner is a scope, a tokio task or a thread: see [`OwnerId`]. Locking the mutex again returns
/// another guard of the same lease, with the same token, without contacting the store. The lease is
/// released when the owner's last guard is released or dropped, and a loss of the lease affects all
/// of the owner's guards. Guards can be moved to different tasks and released there.
///
/// An owner is recognized within one [`LockClient`](crate::LockClient) and its clones. For all
/// other callers, the lock behaves like a [`Mutex`](crate::Mutex) with the same key.
///
/// ```
/// # tokio::runtime::Builder::new_current_thread().enable_all().build()?.block_on(async {
/// use leasehold_core::LockClient;
/// use leasehold_core::memory::MemoryBackend;
///
/// let client = LockClient::new(MemoryBackend::new());
/// let mutex = client.reentrant_mutex("invoice:42")?;
///
/// let outer = mutex.lock().await?;
/// let inner = mutex.lock().await?;
/// assert_eq!(outer.token(), inner.token());
/// inner.release().await?;
/// assert!(outer.is_held());
/// outer.release().await?;
/// # Ok::<(), leasehold_core::Error>(())
/// # })?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug)]
pub struct ReentrantMutex(LockHandle);

impl ReentrantMutex {
    pub(crate) fn new(
        engine: Arc<Engine>,
        key: LockKey,
        options: Arc<LockOptions>,
    ) -> Result<Self, Error> {
        LockHandle::new(engine, key, options, Kind::Mutex).map(Self)
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
        self.0.with_options(options).map(Self)
    }

    /// Returns the key.
    pub fn key(&self) -> &LockKey {
        self.0.key()
    }

    /// Waits for the lock and returns a guard. If the owner already holds the lock, the method
    /// returns another guard immediately.
    ///
    /// By default, this method waits indefinitely. Set [`LockOptions::wait`] to limit the wait, or
    /// call [`try_lock_for`](Self::try_lock_for).
    ///
    /// # Errors
    ///
    /// Returns [`ErrorKind::ReentryLimit`](crate::ErrorKind::ReentryLimit) immediately if the owner
    /// already has [`reentry_limit`](LockOptions::reentry_limit) guards. Returns
    /// [`ErrorKind::LeaseLost`](crate::ErrorKind::LeaseLost) if the owner lost the lease but still
    /// has a guard of the lost lease. [`Mutex::lock`](crate::Mutex::lock) lists all other errors.
    ///
    /// # Cancel safety
    ///
    /// This method is cancel safe. If the future is dropped, the caller loses its position in the
    /// queue, and any lease that the store has already granted is released in the background.
    pub async fn lock(&self) -> Result<LockGuard, Error> {
        self.0.lock(Mode::Exclusive, here()).await
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
    ///
    /// # Cancel safety
    ///
    /// This method is cancel safe. If the future is dropped, any lease that the store has already
    /// granted is released in the background.
    pub async fn try_lock(&self) -> Result<LockGuard, TryLockError> {
        self.0.try_lock(Mode::Exclusive, here()).await
    }

    /// Waits up to `wait` to acquire the lock. If the owner already holds the lock, the method
    /// returns another guard immediately.
    ///
    /// # Errors
    ///
    /// Returns [`TryLockError::Busy`] if another owner held the lock until `wait` had elapsed. If
    /// the store rejected the request or did not reply in time, returns [`TryLockError::Failed`]
    /// with one of the errors that [`lock`](Self::lock) returns. See [`TryLockError`] for an
    /// example.
    ///
    /// # Cancel safety
    ///
    /// This method is cancel safe. If the future is dropped, any lease that the store has already
    /// granted is released in the background.
    pub async fn try_lock_for(&self, wait: Duration) -> Result<LockGuard, TryLockError> {
        self.0.try_lock_for(Mode::Exclusive, here(), wait).await
    }

    /// Waits to acquire the lock, but gives up at `instant`, a time on the client's clock such as
    /// `client.now() + wait`. If the owner already holds the lock, the method returns another guard
    /// immediately.
    ///
    /// # Errors
    ///
    /// Returns [`TryLockError::Busy`] if another owner held the lock until `instant`. If the store
    /// rejected the request or did not reply in time, returns [`TryLockError::Failed`] with one of
    /// the errors that [`lock`](Self::lock) returns. See [`TryLockError`] for an example.
    ///
    /// # Cancel safety
    ///
    /// This method is cancel safe. If the future is dropped, any lease that the store has already
    /// granted is released in the background.
    pub async fn try_lock_until(&self, instant: Instant) -> Result<LockGuard, TryLockError> {
        self.0.try_lock_until(Mode::Exclusive, here(), instant).await
    }

    /// Runs `work` under the lock. If the lease is lost, `work` is dropped before it finishes.
    ///
    /// ```
    /// # tokio::runtime::Builder::new_current_thread().enable_all().build()?.block_on(async {
    /// use leasehold_core::LockClient;
    /// use leasehold_core::memory::MemoryBackend;
    ///
    /// let mutex = LockClient::new(MemoryBackend::new()).reentrant_mutex("invoice:42")?;
    /// mutex.run(async |_guard| mutex.run(async |_guard| println!("locked twice")).await).await??;
    /// # Ok::<(), leasehold_core::Error>(())
    /// # })?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    ///
    /// If [`lock`](Self::lock) fails, returns its error without calling `work`. Returns
    /// [`ErrorKind::LeaseLost`](crate::ErrorKind::LeaseLost) if the lease was lost before `work`
    /// finished, or if the store reports on release that the lease no longer exists.
    ///
    /// # Cancel safety
    ///
    /// This method is as cancel safe as `work`. If the future is dropped, the lock is released in
    /// the background.
    pub async fn run<T>(&self, work: impl AsyncFnOnce(&LockGuard) -> T) -> Result<T, Error> {
        self.lock().await?.run_and_release(work).await
    }

    /// Calls [`try_lock`](Self::try_lock) and, if the call succeeds, runs `work` in the same way as
    /// [`run`](Self::run).
    ///
    /// # Errors
    ///
    /// If [`try_lock`](Self::try_lock) fails, returns its error without calling `work`. Returns
    /// errors from [`run`](Self::run) as [`TryLockError::Failed`].
    ///
    /// # Cancel safety
    ///
    /// This method is as cancel safe as `work`. If the future is dropped, the lock is released in
    /// the background.
    pub async fn try_run<T>(
        &self,
        work: impl AsyncFnOnce(&LockGuard) -> T,
    ) -> Result<T, TryLockError> {
        let guard = self.try_lock().await?;
        Ok(guard.run_and_release(work).await?)
    }

    /// Calls [`try_lock_for`](Self::try_lock_for) with `wait` and, if the call succeeds, runs
    /// `work` in the same way as [`run`](Self::run).
    ///
    /// # Errors
    ///
    /// If [`try_lock_for`](Self::try_lock_for) fails, returns its error without calling `work`.
    /// Returns errors from [`run`](Self::run) as [`TryLockError::Failed`].
    ///
    /// # Cancel safety
    ///
    /// This method is as cancel safe as `work`. If the future is dropped, the lock is released in
    /// the background.
    pub async fn try_run_for<T>(
        &self,
        wait: Duration,
        work: impl AsyncFnOnce(&LockGuard) -> T,
    ) -> Result<T, TryLockError> {
        let guard = self.try_lock_for(wait).await?;
        Ok(guard.run_and_release(work).await?)
    }

    /// Asks the store whether the lock is held, by this owner or by any other owner. The result may
    /// be out of date by the time this method returns, so use it only for display.
    ///
    /// # Errors
    ///
    /// Returns [`ErrorKind::Unsupported`](crate::ErrorKind::Unsupported) if the store cannot report
    /// whether a key is held.
    pub async fn is_locked(&self) -> Result<bool, Error> {
        self.0.is_locked().await
    }
}

/// Returns the owner of the current call. Every call on a reentrant mutex has an owner.
fn here() -> Option<OwnerId> {
    Some(OwnerId::current())
}
