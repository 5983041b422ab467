//! One holder at a time.

use std::sync::Arc;
use std::time::Duration;

use crate::clock::Instant;
use crate::contract::backend::Share;
use crate::contract::error::Error;
use crate::contract::key::LockKey;
use crate::contract::try_lock_error::TryLockError;
use crate::engine::pipeline::Engine;
use crate::locks::face::{Face, Kind};
use crate::locks::guard::LockGuard;
use crate::options::LockOptions;

/// A lock that one holder has at a time, and that its own holder cannot enter again.
///
/// It is only a name with options: making one does no I/O, and all that are made for one key, in
/// any process, are the same lock. A caller that already holds it and locks it again waits for
/// itself: until its wait runs out, or for ever.
///
/// Callers of one process are served first come, first served. Between processes the store decides,
/// unless the lock is [fair](LockOptions::fair).
///
/// ```
/// # tokio::runtime::Builder::new_current_thread().enable_all().build()?.block_on(async {
/// use std::time::Duration;
/// use leasehold_core::LockClient;
/// use leasehold_core::memory::MemoryBackend;
///
/// let client = LockClient::new(MemoryBackend::new());
/// let mutex = client.mutex("invoice:42")?;
///
/// let guard = mutex.lock().await?;
/// assert!(mutex.try_lock().await.is_err());
/// assert!(mutex.try_lock_for(Duration::from_millis(10)).await.is_err());
/// guard.release().await?;
///
/// let total = mutex.run(async |guard| guard.token().number()).await?;
/// # let _ = total;
/// # Ok::<(), leasehold_core::Error>(())
/// # })?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug)]
pub struct Mutex(Face);

impl Mutex {
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
    /// [`ErrorKind::Invalid`](crate::ErrorKind::Invalid) or
    /// [`ErrorKind::Unsupported`](crate::ErrorKind::Unsupported) if they are not possible, or not on this store.
    pub fn with_options(self, options: LockOptions) -> Result<Self, Error> {
        self.0.with_options(options).map(Self)
    }

    /// The key.
    pub fn key(&self) -> &LockKey {
        self.0.key()
    }

    /// Waits for the lock, for as long as [`LockOptions::wait`] says.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Timeout`](crate::ErrorKind::Timeout) if the wait or the attempts are used up while
    /// another holds it. [`ErrorKind::Unavailable`](crate::ErrorKind::Unavailable) or
    /// [`ErrorKind::Indeterminate`](crate::ErrorKind::Indeterminate) if the store did not answer for
    /// [`LockOptions::outage_wait`]. [`ErrorKind::TooManyWaiters`](crate::ErrorKind::TooManyWaiters),
    /// [`ErrorKind::Closed`](crate::ErrorKind::Closed) and, in work that [runs](Self::run) under this lock,
    /// [`ErrorKind::WouldDeadlock`](crate::ErrorKind::WouldDeadlock) at once. Else an error of the store that no retry can mend.
    ///
    /// # Cancel safety
    ///
    /// Safe to drop: the place in the queue is lost. If the store has granted the lease already, it is
    /// released in the background, at the latest after its TTL.
    pub async fn lock(&self) -> Result<LockGuard, Error> {
        self.0.lock(Share::Whole, None).await
    }

    /// Makes one attempt; [`Busy`] if the lock is held.
    ///
    /// The store is asked unless this process knows the answer: because one of its callers holds the lock, or waits for it
    /// since the store has refused it. It never waits for a request of another caller.
    ///
    /// # Errors
    ///
    /// As [`lock`](Self::lock), without `Timeout`; the store's silence is not waited out.
    ///
    /// # Cancel safety
    ///
    /// As [`lock`](Self::lock).
    pub async fn try_lock(&self) -> Result<LockGuard, TryLockError> {
        self.0.try_lock(Share::Whole, None).await
    }

    /// Waits for the lock for at most `wait`; [`Busy`] if it was held throughout. Without any time it is [`try_lock`](Self::try_lock).
    ///
    /// A caller that was refused leaves the store's queue before it is told, which takes a round trip more, and at most 50 ms. The first
    /// answer of the store is waited for as long, however short the wait.
    ///
    /// # Errors
    ///
    /// As [`lock`](Self::lock), without `Timeout`: a store that does not answer is an error, not `Busy`.
    ///
    /// # Cancel safety
    ///
    /// As [`lock`](Self::lock).
    pub async fn try_lock_for(&self, wait: Duration) -> Result<LockGuard, TryLockError> {
        self.0.try_lock_for(Share::Whole, None, wait).await
    }

    /// Waits for the lock until `instant` of the client's clock, such as `client.now() + wait`; [`Busy`] if it was held throughout.
    ///
    /// # Errors
    ///
    /// As [`try_lock_for`](Self::try_lock_for).
    ///
    /// # Cancel safety
    ///
    /// As [`lock`](Self::lock).
    pub async fn try_lock_until(&self, instant: Instant) -> Result<LockGuard, TryLockError> {
        self.0.try_lock_until(Share::Whole, None, instant).await
    }

    /// Runs `work` under the lock, and drops it unfinished if the lease is lost.
    ///
    /// # Errors
    ///
    /// The errors of [`lock`](Self::lock), before `work` is called.
    /// [`ErrorKind::LeaseLost`](crate::ErrorKind::LeaseLost) if the lease was lost before `work` had
    /// finished or, as the store says at the release, without our knowing. If the release itself
    /// gets no answer, the work was done under the lock all the same: that is no error.
    ///
    /// # Cancel safety
    ///
    /// As `work`; the lock is released in the background.
    pub async fn run<T>(&self, work: impl AsyncFnOnce(&LockGuard) -> T) -> Result<T, Error> {
        self.lock().await?.run_and_release(work).await
    }

    /// Makes one attempt, and runs `work` under the lock if it is free; [`Busy`] if it is held, and `work` is not called.
    ///
    /// ```
    /// # tokio::runtime::Builder::new_current_thread().enable_all().build()?.block_on(async {
    /// use leasehold_core::memory::MemoryBackend;
    /// use leasehold_core::{LockClient, TryLockError};
    ///
    /// let client = LockClient::new(MemoryBackend::new());
    /// match client.mutex("report")?.try_run(async |_guard| "written").await {
    ///     Ok(done) => println!("the report is {done}"),
    ///     Err(TryLockError::Busy(busy)) => println!("skipped: {busy}"),
    ///     Err(TryLockError::Failed(error)) => return Err(error),
    /// }
    /// # Ok::<(), leasehold_core::Error>(())
    /// # })?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    ///
    /// The errors of [`try_lock`](Self::try_lock), before `work` is called, and the errors of [`run`](Self::run).
    ///
    /// # Cancel safety
    ///
    /// As [`run`](Self::run).
    pub async fn try_run<T>(
        &self,
        work: impl AsyncFnOnce(&LockGuard) -> T,
    ) -> Result<T, TryLockError> {
        let guard = self.try_lock().await?;
        Ok(guard.run_and_release(work).await?)
    }

    /// Asks the store whether the lock is held. The answer may be out of date by the time that the call returns.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Unsupported`](crate::ErrorKind::Unsupported) if the store cannot tell.
    pub async fn is_locked(&self) -> Result<bool, Error> {
        self.0.is_locked().await
    }
}
