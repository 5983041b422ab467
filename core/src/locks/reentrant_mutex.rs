//! One owner at a time, which may enter again.

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

/// A lock that one owner has at a time, and that the same owner may enter again while holding it.
///
/// [`OwnerId`] tells the owner: a scope, else the tokio task, else the thread. Entering again costs
/// no round trip and gives a guard of the same lease with the same token; the lease ends with the
/// last guard, and its loss is the loss of all. Guards may be moved to other tasks and released
/// there. Owners are known within one [`LockClient`](crate::LockClient) and its clones.
///
/// To all others, it is the [`Mutex`](crate::Mutex) of the same key.
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

    /// The same lock with other options.
    ///
    /// # Errors
    ///
    /// Returns the errors of [`Mutex::with_options`](crate::Mutex::with_options).
    pub fn with_options(self, options: LockOptions) -> Result<Self, Error> {
        self.0.with_options(options).map(Self)
    }

    /// The key.
    pub fn key(&self) -> &LockKey {
        self.0.key()
    }

    /// Enters again, or waits for the lock, for as long as [`LockOptions::wait`] says.
    ///
    /// # Errors
    ///
    /// Returns the errors of [`Mutex::lock`](crate::Mutex::lock), and
    /// [`ErrorKind::ReentryLimit`](crate::ErrorKind::ReentryLimit) at once if the owner holds it as
    /// often as it may. If the owner held it and lost it, entering again is
    /// [`ErrorKind::LeaseLost`](crate::ErrorKind::LeaseLost) until its guards are gone.
    ///
    /// # Cancel safety
    ///
    /// This method is cancel safe. If it is dropped, a lease that the store has granted in the meantime is released in the background.
    pub async fn lock(&self) -> Result<LockGuard, Error> {
        self.0.lock(Share::Whole, here()).await
    }

    /// Makes one attempt to acquire the lock, or to enter it again. It does not wait for other holders, only for the store's reply.
    ///
    /// # Errors
    ///
    /// Returns [`TryLockError::Busy`] if another owner holds the lock, and [`TryLockError::Failed`] with an error of [`lock`](Self::lock) if the attempt
    /// failed. It does not retry while the store is unreachable. See [`TryLockError`] for an example.
    ///
    /// # Cancel safety
    ///
    /// This method is cancel safe. If it is dropped, a lease that the store has granted in the meantime is released in the background.
    pub async fn try_lock(&self) -> Result<LockGuard, TryLockError> {
        self.0.try_lock(Share::Whole, here()).await
    }

    /// Waits to acquire the lock, or to enter it again, for at most `wait`.
    ///
    /// # Errors
    ///
    /// Returns [`TryLockError::Busy`] if another owner held the lock throughout, and [`TryLockError::Failed`] with an error of [`lock`](Self::lock) if the store
    /// refused the request or did not answer in time. See [`TryLockError`] for an example.
    ///
    /// # Cancel safety
    ///
    /// This method is cancel safe. If it is dropped, a lease that the store has granted in the meantime is released in the background.
    pub async fn try_lock_for(&self, wait: Duration) -> Result<LockGuard, TryLockError> {
        self.0.try_lock_for(Share::Whole, here(), wait).await
    }

    /// Waits to acquire the lock, or to enter it again, until `instant` on the client's clock, for example `client.now() + wait`.
    ///
    /// # Errors
    ///
    /// Returns [`TryLockError::Busy`] if another owner held the lock throughout, and [`TryLockError::Failed`] with an error of [`lock`](Self::lock) if the store
    /// refused the request or did not answer in time. See [`TryLockError`] for an example.
    ///
    /// # Cancel safety
    ///
    /// This method is cancel safe. If it is dropped, a lease that the store has granted in the meantime is released in the background.
    pub async fn try_lock_until(&self, instant: Instant) -> Result<LockGuard, TryLockError> {
        self.0.try_lock_until(Share::Whole, here(), instant).await
    }

    /// Runs `work` under the lock, and drops it unfinished if the lease is lost.
    ///
    /// # Errors
    ///
    /// Returns the errors of [`lock`](Self::lock) and [`Mutex::run`](crate::Mutex::run).
    ///
    /// # Cancel safety
    ///
    /// This method is as cancel safe as `work`. If it is dropped, the lock is released in the background.
    pub async fn run<T>(&self, work: impl AsyncFnOnce(&LockGuard) -> T) -> Result<T, Error> {
        self.lock().await?.run_and_release(work).await
    }

    /// Makes one attempt to acquire the lock, or to enter it again and, if it succeeds, runs `work` like [`run`](Self::run).
    ///
    /// # Errors
    ///
    /// Returns the errors of [`try_lock`](Self::try_lock) before `work` is called, and the errors of [`run`](Self::run) as
    /// [`TryLockError::Failed`].
    ///
    /// # Cancel safety
    ///
    /// This method is as cancel safe as `work`. If it is dropped, the lock is released in the background.
    pub async fn try_run<T>(
        &self,
        work: impl AsyncFnOnce(&LockGuard) -> T,
    ) -> Result<T, TryLockError> {
        let guard = self.try_lock().await?;
        Ok(guard.run_and_release(work).await?)
    }

    /// Waits to acquire the lock, or to enter it again, for at most `wait`, and runs `work` like [`run`](Self::run).
    ///
    /// # Errors
    ///
    /// Returns the errors of [`try_lock_for`](Self::try_lock_for) before `work` is called, and the errors of [`run`](Self::run) as
    /// [`TryLockError::Failed`].
    ///
    /// # Cancel safety
    ///
    /// This method is as cancel safe as `work`. If it is dropped, the lock is released in the background.
    pub async fn try_run_for<T>(
        &self,
        wait: Duration,
        work: impl AsyncFnOnce(&LockGuard) -> T,
    ) -> Result<T, TryLockError> {
        let guard = self.try_lock_for(wait).await?;
        Ok(guard.run_and_release(work).await?)
    }

    /// Asks the store whether the lock is held, by the caller or by another.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Unsupported`](crate::ErrorKind::Unsupported) if the store cannot tell.
    pub async fn is_locked(&self) -> Result<bool, Error> {
        self.0.is_locked().await
    }
}

/// The whole key, for the owner that calls.
fn here() -> Option<OwnerId> {
    Some(OwnerId::current())
}
