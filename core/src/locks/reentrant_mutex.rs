//! The reentrant mutex: one owner at a time, which can lock it again.

use std::sync::Arc;
use std::time::Duration;

use crate::clock::Instant;
use crate::contract::backend::Share;
use crate::contract::error::Error;
use crate::contract::key::LockKey;
use crate::contract::owner::OwnerId;
use crate::contract::try_lock_error::TryLockError;
use crate::engine::pipeline::Engine;
use crate::locks::face::{Face, Kind};
use crate::locks::guard::LockGuard;
use crate::options::LockOptions;

/// A mutex that its owner can lock again while holding it.
///
/// The owner is a scope, a tokio task or a thread: see [`OwnerId`]. Locking again does not contact
/// the store. It returns another guard of the same lease, with the same token. The lease ends when
/// the last guard is released, and a loss affects all guards. Guards can be moved to other tasks
/// and released there.
///
/// An owner is recognized within one [`LockClient`](crate::LockClient) and its clones. For all
/// other callers, the lock behaves like the [`Mutex`](crate::Mutex) of the same key.
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
pub struct ReentrantMutex(Face);

impl ReentrantMutex {
    pub(crate) fn new(
        engine: Arc<Engine>,
        key: LockKey,
        options: Arc<LockOptions>,
    ) -> Result<Self, Error> {
        Face::new(engine, key, options, Kind::Mutex).map(Self)
    }

    /// Returns this mutex with other options. [`Mutex::with_options`](crate::Mutex::with_options)
    /// shows how to derive them from the options of the client.
    ///
    /// # Errors
    ///
    /// Returns [`ErrorKind::Invalid`](crate::ErrorKind::Invalid) if the options contradict each
    /// other, and [`ErrorKind::Unsupported`](crate::ErrorKind::Unsupported) if the store does not
    /// support one of them.
    pub fn with_options(self, options: LockOptions) -> Result<Self, Error> {
        self.0.with_options(options).map(Self)
    }

    /// Returns the key.
    pub fn key(&self) -> &LockKey {
        self.0.key()
    }

    /// Waits for the lock, and returns a guard. If the owner already holds the lock, returns
    /// another guard immediately.
    ///
    /// By default, this method waits without a limit. Set [`LockOptions::wait`] to limit the wait,
    /// or call [`try_lock_for`](Self::try_lock_for).
    ///
    /// # Errors
    ///
    /// Returns [`ErrorKind::ReentryLimit`](crate::ErrorKind::ReentryLimit) immediately if the owner
    /// already has [`reentry_limit`](LockOptions::reentry_limit) guards. Returns
    /// [`ErrorKind::LeaseLost`](crate::ErrorKind::LeaseLost) if the owner lost the lease and still
    /// has a guard of it. All other errors are listed at [`Mutex::lock`](crate::Mutex::lock).
    ///
    /// # Cancel safety
    ///
    /// This method is cancel safe. If the future is dropped, the caller loses its position in the
    /// queue, and a lease that the store has granted in the meantime is released in the background.
    pub async fn lock(&self) -> Result<LockGuard, Error> {
        self.0.lock(Share::Whole, here()).await
    }

    /// Makes one attempt to acquire the lock. If the owner already holds the lock, returns another
    /// guard. The method does not wait for other holders, only for the store's reply.
    ///
    /// # Errors
    ///
    /// Returns [`TryLockError::Busy`] if another owner holds the lock, and [`TryLockError::Failed`]
    /// with an error of [`lock`](Self::lock) if the attempt failed. The method does not retry while
    /// the store is unreachable. See [`TryLockError`] for an example.
    ///
    /// # Cancel safety
    ///
    /// This method is cancel safe. If the future is dropped, a lease that the store has granted in
    /// the meantime is released in the background.
    pub async fn try_lock(&self) -> Result<LockGuard, TryLockError> {
        self.0.try_lock(Share::Whole, here()).await
    }

    /// Waits to acquire the lock, for at most `wait`. If the owner already holds the lock, returns
    /// another guard immediately.
    ///
    /// # Errors
    ///
    /// Returns [`TryLockError::Busy`] if another owner held the lock until the end of the wait, and
    /// [`TryLockError::Failed`] with an error of [`lock`](Self::lock) if the store refused the
    /// request or did not answer in time. See [`TryLockError`] for an example.
    ///
    /// # Cancel safety
    ///
    /// This method is cancel safe. If the future is dropped, a lease that the store has granted in
    /// the meantime is released in the background.
    pub async fn try_lock_for(&self, wait: Duration) -> Result<LockGuard, TryLockError> {
        self.0.try_lock_for(Share::Whole, here(), wait).await
    }

    /// Waits to acquire the lock, until `instant` on the client's clock, for example
    /// `client.now() + wait`. If the owner already holds the lock, returns another guard
    /// immediately.
    ///
    /// # Errors
    ///
    /// Returns [`TryLockError::Busy`] if another owner held the lock until `instant`, and
    /// [`TryLockError::Failed`] with an error of [`lock`](Self::lock) if the store refused the
    /// request or did not answer in time. See [`TryLockError`] for an example.
    ///
    /// # Cancel safety
    ///
    /// This method is cancel safe. If the future is dropped, a lease that the store has granted in
    /// the meantime is released in the background.
    pub async fn try_lock_until(&self, instant: Instant) -> Result<LockGuard, TryLockError> {
        self.0.try_lock_until(Share::Whole, here(), instant).await
    }

    /// Runs `work` under the lock. If the lease is lost, `work` is dropped before it has finished.
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
    /// Returns the errors of [`lock`](Self::lock) before `work` is called. Returns
    /// [`ErrorKind::LeaseLost`](crate::ErrorKind::LeaseLost) if the lease was lost before `work`
    /// finished, or if the store reports at the release that the lease was gone.
    ///
    /// # Cancel safety
    ///
    /// This method is as cancel safe as `work`. If the future is dropped, the lock is released in
    /// the background.
    pub async fn run<T>(&self, work: impl AsyncFnOnce(&LockGuard) -> T) -> Result<T, Error> {
        self.lock().await?.run_and_release(work).await
    }

    /// Calls [`try_lock`](Self::try_lock) and, if it succeeds, runs `work` like [`run`](Self::run).
    ///
    /// # Errors
    ///
    /// Returns the errors of [`try_lock`](Self::try_lock) before `work` is called, and the errors
    /// of [`run`](Self::run) as [`TryLockError::Failed`].
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

    /// Calls [`try_lock_for`](Self::try_lock_for) with `wait` and, if it succeeds, runs `work` like
    /// [`run`](Self::run).
    ///
    /// # Errors
    ///
    /// Returns the errors of [`try_lock_for`](Self::try_lock_for) before `work` is called, and the
    /// errors of [`run`](Self::run) as [`TryLockError::Failed`].
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

    /// Asks the store whether the lock is held, by this owner or by another one. The answer may be
    /// outdated when this method returns, so use it for displays only.
    ///
    /// # Errors
    ///
    /// Returns [`ErrorKind::Unsupported`](crate::ErrorKind::Unsupported) if the store cannot report
    /// it.
    pub async fn is_locked(&self) -> Result<bool, Error> {
        self.0.is_locked().await
    }
}

/// Returns the owner of the current call, because every call for a reentrant mutex has an owner.
fn here() -> Option<OwnerId> {
    Some(OwnerId::current())
}
