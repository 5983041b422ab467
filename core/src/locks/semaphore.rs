//! The semaphore, which has a limited number of permits.

use std::sync::Arc;
use std::time::Duration;

use crate::clock::Instant;
use crate::contract::backend::{Mode, Operation};
use crate::contract::error::{Error, ErrorKind};
use crate::contract::key::LockKey;
use crate::contract::try_lock_error::TryLockError;
use crate::engine::pipeline::Engine;
use crate::locks::guard::LockGuard;
use crate::locks::handle::{Kind, LockHandle};
use crate::options::LockOptions;

/// A lock that limits the number of permits in use at the same time.
///
/// A semaphore has a `limit`, and each caller acquires one or more permits. A guard holds all
/// permits that the call requested, under one lease. If the holder dies, its permits become free
/// when the lease expires. A permit is never returned twice, even if a guard is released after its
/// lease was lost.
///
/// ```
/// # tokio::runtime::Builder::new_current_thread().enable_all().build()?.block_on(async {
/// use leasehold_core::LockClient;
/// use leasehold_core::memory::MemoryBackend;
///
/// let client = LockClient::new(MemoryBackend::new());
/// let connections = client.semaphore("connections", 3)?;
///
/// let two = connections.acquire(2).await?;
/// assert!(connections.try_acquire(2).await.is_err());
/// let one = connections.try_acquire(1).await?;
/// assert_eq!(connections.available().await?, 0);
/// two.release().await?;
/// assert_eq!(connections.available().await?, 2);
/// # drop(one);
/// # Ok::<(), leasehold_core::Error>(())
/// # })?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
/// # The limit
///
/// The store does not save the limit of a semaphore. Each request contains the client's limit, and
/// the store compares that limit with the number of permits in use. Clients can therefore use
/// different limits, for example during the rollout of a new limit:
///
/// - The number of permits in use never exceeds the largest limit of any client.
///
/// - A client with a smaller limit waits until enough permits are free under its own limit.
///
/// # Order
///
/// Callers in the same process acquire permits in the order of their calls, so small requests do
/// not overtake a large request. Between processes, the store determines the order, unless the
/// semaphore is [fair](LockOptions::fair).
#[derive(Clone, Debug)]
pub struct Semaphore {
    handle: LockHandle,
    limit: u32,
}

impl Semaphore {
    /// The largest limit that a semaphore can have.
    pub const MAX_LIMIT: u32 = u32::MAX - 1;

    pub(crate) fn new(
        engine: Arc<Engine>,
        key: LockKey,
        options: Arc<LockOptions>,
        limit: u32,
    ) -> Result<Self, Error> {
        if limit == 0 || limit > Self::MAX_LIMIT {
            let message =
                format!("a semaphore must have 1 to {} permits, not {limit}", Self::MAX_LIMIT);
            return Err(Error::new(ErrorKind::Invalid, message).with_key(&key));
        }
        Ok(Self { handle: LockHandle::new(engine, key, options, Kind::Semaphore)?, limit })
    }

    /// Returns this semaphore with different options.
    /// [`Mutex::with_options`](crate::Mutex::with_options) shows how to derive a lock's options
    /// from the client's options.
    ///
    /// # Errors
    ///
    /// Returns [`ErrorKind::Invalid`](crate::ErrorKind::Invalid) if the options conflict, and
    /// [`ErrorKind::Unsupported`](crate::ErrorKind::Unsupported) if the store does not support one
    /// of the options.
    pub fn with_options(self, options: LockOptions) -> Result<Self, Error> {
        Ok(Self { handle: self.handle.with_options(options)?, ..self })
    }

    /// Returns the key.
    pub fn key(&self) -> &LockKey {
        self.handle.key()
    }

    /// Returns the total number of permits.
    pub fn limit(&self) -> u32 {
        self.limit
    }

    /// Waits until `permits` permits are free, then returns a guard that holds them.
    ///
    /// By default, this method waits indefinitely. Set [`LockOptions::wait`] to limit the wait, or
    /// call [`try_acquire_for`](Self::try_acquire_for).
    ///
    /// # Errors
    ///
    /// Returns [`ErrorKind::Invalid`] immediately if `permits` is 0 or larger than the limit, and
    /// [`ErrorKind::WrongType`] if the key is in use as a mutex.
    /// [`Mutex::lock`](crate::Mutex::lock) lists all other errors.
    ///
    /// # Cancel safety
    ///
    /// This method is cancel safe. If the future is dropped, the caller loses its position in the
    /// queue, and any lease that the store has already granted is released in the background.
    pub async fn acquire(&self, permits: u32) -> Result<LockGuard, Error> {
        self.handle.lock(self.units(permits)?, None).await
    }

    /// Makes one attempt to acquire `permits` permits. The method waits for the store's reply, but
    /// not for permits to become free.
    ///
    /// # Errors
    ///
    /// Returns [`TryLockError::Busy`] if the store cannot grant `permits` permits immediately. If
    /// the attempt failed for another reason, returns [`TryLockError::Failed`] with one of the
    /// errors that [`acquire`](Self::acquire) returns. The method does not retry if the store is
    /// unreachable. See [`TryLockError`] for an example.
    ///
    /// # Cancel safety
    ///
    /// This method is cancel safe. If the future is dropped, any lease that the store has already
    /// granted is released in the background.
    pub async fn try_acquire(&self, permits: u32) -> Result<LockGuard, TryLockError> {
        self.handle.try_lock(self.units(permits)?, None).await
    }

    /// Waits up to `wait` to acquire `permits` permits.
    ///
    /// # Errors
    ///
    /// Returns [`TryLockError::Busy`] if too few permits became free in time. If the store rejected
    /// the request or did not reply in time, returns [`TryLockError::Failed`] with one of the
    /// errors that [`acquire`](Self::acquire) returns. See [`TryLockError`] for an example.
    ///
    /// # Cancel safety
    ///
    /// This method is cancel safe. If the future is dropped, any lease that the store has already
    /// granted is released in the background.
    pub async fn try_acquire_for(
        &self,
        permits: u32,
        wait: Duration,
    ) -> Result<LockGuard, TryLockError> {
        self.handle.try_lock_for(self.units(permits)?, None, wait).await
    }

    /// Waits to acquire `permits` permits, but gives up at `instant`, a time on the client's clock
    /// such as `client.now() + wait`.
    ///
    /// # Errors
    ///
    /// Returns [`TryLockError::Busy`] if too few permits became free in time. If the store rejected
    /// the request or did not reply in time, returns [`TryLockError::Failed`] with one of the
    /// errors that [`acquire`](Self::acquire) returns. See [`TryLockError`] for an example.
    ///
    /// # Cancel safety
    ///
    /// This method is cancel safe. If the future is dropped, any lease that the store has already
    /// granted is released in the background.
    pub async fn try_acquire_until(
        &self,
        permits: u32,
        instant: Instant,
    ) -> Result<LockGuard, TryLockError> {
        self.handle.try_lock_until(self.units(permits)?, None, instant).await
    }

    /// Acquires `permits` permits, runs `work`, and then releases the permits. If the lease is
    /// lost, `work` is dropped before it finishes.
    ///
    /// ```
    /// # tokio::runtime::Builder::new_current_thread().enable_all().build()?.block_on(async {
    /// use leasehold_core::LockClient;
    /// use leasehold_core::memory::MemoryBackend;
    ///
    /// let connections = LockClient::new(MemoryBackend::new()).semaphore("connections", 3)?;
    /// let used = connections.run(2, async |guard| guard.units()).await?;
    /// assert_eq!(used, 2);
    /// # Ok::<(), leasehold_core::Error>(())
    /// # })?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    ///
    /// If [`acquire`](Self::acquire) fails, returns its error without calling `work`. Returns
    /// [`ErrorKind::LeaseLost`] if the lease was lost before `work` finished, or if the store
    /// reports on release that the lease no longer exists.
    ///
    /// # Cancel safety
    ///
    /// This method is as cancel safe as `work`. If the future is dropped, the lock is released in
    /// the background.
    pub async fn run<T>(
        &self,
        permits: u32,
        work: impl AsyncFnOnce(&LockGuard) -> T,
    ) -> Result<T, Error> {
        self.acquire(permits).await?.run_and_release(work).await
    }

    /// Makes one attempt to acquire `permits` permits and, if successful, runs `work` in the same
    /// way as [`run`](Self::run).
    ///
    /// # Errors
    ///
    /// If [`try_acquire`](Self::try_acquire) fails, returns its error without calling `work`.
    /// Returns errors from [`run`](Self::run) as [`TryLockError::Failed`].
    ///
    /// # Cancel safety
    ///
    /// This method is as cancel safe as `work`. If the future is dropped, the lock is released in
    /// the background.
    pub async fn try_run<T>(
        &self,
        permits: u32,
        work: impl AsyncFnOnce(&LockGuard) -> T,
    ) -> Result<T, TryLockError> {
        let guard = self.try_acquire(permits).await?;
        Ok(guard.run_and_release(work).await?)
    }

    /// Waits up to `wait` to acquire `permits` permits and, if successful, runs `work` in the same
    /// way as [`run`](Self::run).
    ///
    /// # Errors
    ///
    /// If [`try_acquire_for`](Self::try_acquire_for) fails, returns its error without calling
    /// `work`. Returns errors from [`run`](Self::run) as [`TryLockError::Failed`].
    ///
    /// # Cancel safety
    ///
    /// This method is as cancel safe as `work`. If the future is dropped, the lock is released in
    /// the background.
    pub async fn try_run_for<T>(
        &self,
        permits: u32,
        wait: Duration,
        work: impl AsyncFnOnce(&LockGuard) -> T,
    ) -> Result<T, TryLockError> {
        let guard = self.try_acquire_for(permits, wait).await?;
        Ok(guard.run_and_release(work).await?)
    }

    /// Asks the store how many permits are free. The result may be out of date by the time this
    /// method returns, so use it only for display.
    ///
    /// # Errors
    ///
    /// Returns [`ErrorKind::Unsupported`] if the store cannot report the holders of a key.
    ///
    /// # Cancel safety
    ///
    /// This method is cancel safe, because it only reads.
    pub async fn available(&self) -> Result<u32, Error> {
        let used = self.handle.inspect().await?.units();
        Ok(self.limit.saturating_sub(u32::try_from(used).unwrap_or(u32::MAX)))
    }

    /// Returns the parts of a request for `permits` permits, which a multi-lock can combine with
    /// requests for different keys.
    pub(crate) fn into_part(self, permits: u32) -> Result<(LockHandle, Mode), Error> {
        let mode = self.units(permits)?;
        Ok((self.handle, mode))
    }

    fn units(&self, permits: u32) -> Result<Mode, Error> {
        if permits == 0 || permits > self.limit {
            let message = format!(
                "{permits} permits were requested, but the number must be between 1 and {}",
                self.limit
            );
            return Err(Error::new(ErrorKind::Invalid, message)
                .with_operation(Operation::Acquire)
                .with_key(self.key()));
        }
        Ok(Mode::Units { units: permits, limit: self.limit })
    }
}
