//! A number of permits.

use std::sync::Arc;
use std::time::Duration;

use crate::clock::Instant;
use crate::contract::backend::{Operation, Share};
use crate::contract::error::{Error, ErrorKind};
use crate::contract::key::LockKey;
use crate::contract::try_lock_error::TryLockError;
use crate::engine::pipeline::Engine;
use crate::locks::face::{Face, Kind};
use crate::locks::guard::LockGuard;
use crate::options::LockOptions;

/// A number of permits that callers take some of, and give back.
///
/// A guard holds the permits that were taken together: all or none are granted, they are renewed as one
/// lease, and those of a holder that dies are free after its TTL. They count once, however late
/// a guard that was lost is released.
///
/// The limit is the caller's own, and not kept in the store: the store compares it with the permits in use at
/// the moment. If clients name different limits, as while a new one is being rolled out, each is as careful as
/// its own limit: permits in use never exceed the largest limit, and a client with a smaller one waits until the
/// rest is below it.
///
/// Callers of one process are served first come, first served; so a large request is not passed by
/// small ones there, nor, while one holds all permits of a limit, by one that names a larger limit. Callers that want
/// equally many ask the store at the same time until it refuses one.
/// Between processes the store decides, unless the lock is [fair](LockOptions::fair).
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
#[derive(Clone, Debug)]
pub struct Semaphore {
    face: Face,
    limit: u32,
}

impl Semaphore {
    /// The most permits that a semaphore may have.
    pub const MAX_LIMIT: u32 = u32::MAX - 1;

    pub(crate) fn new(
        engine: Arc<Engine>,
        key: LockKey,
        options: Arc<LockOptions>,
        limit: u32,
    ) -> Result<Self, Error> {
        if limit == 0 || limit > Self::MAX_LIMIT {
            let message = format!("a semaphore has 1 to {} permits, not {limit}", Self::MAX_LIMIT);
            return Err(Error::new(ErrorKind::Invalid, message).with_key(&key));
        }
        Ok(Self { face: Face::new(engine, key, options, Kind::Semaphore)?, limit })
    }

    /// The same semaphore with other options.
    ///
    /// # Errors
    ///
    /// Returns the errors of [`Mutex::with_options`](crate::Mutex::with_options).
    pub fn with_options(self, options: LockOptions) -> Result<Self, Error> {
        Ok(Self { face: self.face.with_options(options)?, ..self })
    }

    /// The key.
    pub fn key(&self) -> &LockKey {
        self.face.key()
    }

    /// How many permits there are.
    pub fn limit(&self) -> u32 {
        self.limit
    }

    /// Waits for so many `permits`, for as long as [`LockOptions::wait`] says.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Invalid`] at once if that is none, or more than there are.
    /// [`ErrorKind::WrongType`] if the key is held as a mutex. Else as
    /// [`Mutex::lock`](crate::Mutex::lock).
    ///
    /// # Cancel safety
    ///
    /// This method is cancel safe. If it is dropped, permits that the store has granted in the meantime are given back in the background.
    pub async fn acquire(&self, permits: u32) -> Result<LockGuard, Error> {
        self.face.lock(self.units(permits)?, None).await
    }

    /// Makes one attempt to acquire `permits` permits. It does not wait for other holders, only for the store's reply.
    ///
    /// # Errors
    ///
    /// Returns [`TryLockError::Busy`] if fewer permits are free, and [`TryLockError::Failed`] with an error of [`acquire`](Self::acquire) if the attempt
    /// failed. It does not retry while the store is unreachable. See [`TryLockError`] for an example.
    ///
    /// # Cancel safety
    ///
    /// This method is cancel safe. If it is dropped, a lease that the store has granted in the meantime is released in the background.
    pub async fn try_acquire(&self, permits: u32) -> Result<LockGuard, TryLockError> {
        self.face.try_lock(self.units(permits)?, None).await
    }

    /// Waits to acquire `permits` permits, for at most `wait`.
    ///
    /// # Errors
    ///
    /// Returns [`TryLockError::Busy`] if fewer permits were free throughout, and [`TryLockError::Failed`] with an error of [`acquire`](Self::acquire) if the store
    /// refused the request or did not answer in time. See [`TryLockError`] for an example.
    ///
    /// # Cancel safety
    ///
    /// This method is cancel safe. If it is dropped, a lease that the store has granted in the meantime is released in the background.
    pub async fn try_acquire_for(
        &self,
        permits: u32,
        wait: Duration,
    ) -> Result<LockGuard, TryLockError> {
        self.face.try_lock_for(self.units(permits)?, None, wait).await
    }

    /// Waits to acquire `permits` permits, until `instant` on the client's clock, for example `client.now() + wait`.
    ///
    /// # Errors
    ///
    /// Returns [`TryLockError::Busy`] if fewer permits were free throughout, and [`TryLockError::Failed`] with an error of [`acquire`](Self::acquire) if the store
    /// refused the request or did not answer in time. See [`TryLockError`] for an example.
    ///
    /// # Cancel safety
    ///
    /// This method is cancel safe. If it is dropped, a lease that the store has granted in the meantime is released in the background.
    pub async fn try_acquire_until(
        &self,
        permits: u32,
        instant: Instant,
    ) -> Result<LockGuard, TryLockError> {
        self.face.try_lock_until(self.units(permits)?, None, instant).await
    }

    /// Runs `work` with so many `permits`, and drops it unfinished if the lease is lost.
    ///
    /// # Errors
    ///
    /// The errors of [`acquire`](Self::acquire), before `work` is called, and those of
    /// [`Mutex::run`](crate::Mutex::run).
    ///
    /// # Cancel safety
    ///
    /// This method is as cancel safe as `work`. If it is dropped, the permits are given back in the background.
    pub async fn run<T>(
        &self,
        permits: u32,
        work: impl AsyncFnOnce(&LockGuard) -> T,
    ) -> Result<T, Error> {
        self.acquire(permits).await?.run_and_release(work).await
    }

    /// Makes one attempt to acquire `permits` permits and, if it succeeds, runs `work` like [`run`](Self::run).
    ///
    /// # Errors
    ///
    /// Returns the errors of [`try_acquire`](Self::try_acquire) before `work` is called, and the errors of [`run`](Self::run) as
    /// [`TryLockError::Failed`].
    ///
    /// # Cancel safety
    ///
    /// This method is as cancel safe as `work`. If it is dropped, the lock is released in the background.
    pub async fn try_run<T>(
        &self,
        permits: u32,
        work: impl AsyncFnOnce(&LockGuard) -> T,
    ) -> Result<T, TryLockError> {
        let guard = self.try_acquire(permits).await?;
        Ok(guard.run_and_release(work).await?)
    }

    /// Waits to acquire `permits` permits, for at most `wait`, and runs `work` like [`run`](Self::run).
    ///
    /// # Errors
    ///
    /// Returns the errors of [`try_acquire_for`](Self::try_acquire_for) before `work` is called, and the errors of [`run`](Self::run) as
    /// [`TryLockError::Failed`].
    ///
    /// # Cancel safety
    ///
    /// This method is as cancel safe as `work`. If it is dropped, the lock is released in the background.
    pub async fn try_run_for<T>(
        &self,
        permits: u32,
        wait: Duration,
        work: impl AsyncFnOnce(&LockGuard) -> T,
    ) -> Result<T, TryLockError> {
        let guard = self.try_acquire_for(permits, wait).await?;
        Ok(guard.run_and_release(work).await?)
    }

    /// Asks the store how many permits are free. It may have changed by the time you read it.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Unsupported`] if the store cannot tell.
    pub async fn available(&self) -> Result<u32, Error> {
        let used = self.face.inspect().await?.units();
        Ok(self.limit.saturating_sub(u32::try_from(used).unwrap_or(u32::MAX)))
    }

    /// The share of so many `permits`, to be asked for together with others.
    pub(crate) fn into_part(self, permits: u32) -> Result<(Face, Share), Error> {
        let share = self.units(permits)?;
        Ok((self.face, share))
    }

    fn units(&self, permits: u32) -> Result<Share, Error> {
        if permits == 0 || permits > self.limit {
            let message = format!("{permits} permits can never be had: there are {}", self.limit);
            return Err(Error::new(ErrorKind::Invalid, message)
                .with_operation(Operation::Acquire)
                .with_key(self.key()));
        }
        Ok(Share::Units { units: permits, limit: self.limit })
    }
}
