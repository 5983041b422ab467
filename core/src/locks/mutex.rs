//! The mutex: one holder at a time.

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

/// A lock that one holder at a time can acquire.
///
/// A `Mutex` is a key with options. Creating one does no I/O, and all mutexes for the same key of a store are the same lock, in every
/// process. Callers in the same process acquire it in the order in which they asked. Between processes, the store decides, unless the lock
/// is [fair](LockOptions::fair).
///
/// ```
/// # tokio::runtime::Builder::new_current_thread().enable_all().build()?.block_on(async {
/// use std::time::Duration;
/// use leasehold_core::LockClient;
/// use leasehold_core::memory::MemoryBackend;
///
/// let client = LockClient::new(MemoryBackend::new()); // or the backend of your store
/// let mutex = client.mutex("invoice:42")?;
///
/// // Run work under the lock. It is dropped if the lease is lost before it has finished.
/// let token = mutex.run(async |guard| guard.token().number()).await?;
/// # let _ = token;
///
/// // Or hold a guard.
/// let guard = mutex.lock().await?;
/// assert!(mutex.try_lock().await.is_err());
/// assert!(mutex.try_lock_for(Duration::from_millis(10)).await.is_err());
/// guard.release().await?;
/// # Ok::<(), leasehold_core::Error>(())
/// # })?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
/// # Which lock type should I use?
///
/// | you need | use |
/// | --- | --- |
/// | one holder at a time | `Mutex`. It is the right choice for most programs: start with it. |
/// | one holder that acquires the lock again in code that it calls | [`ReentrantMutex`](crate::ReentrantMutex), or pass the guard on as an argument |
/// | many readers, or one writer | [`RwLock`](crate::RwLock), if the readers hold it for long. For short reads, a `Mutex` costs fewer requests. |
/// | at most `n` holders at a time | [`Semaphore`](crate::Semaphore) |
/// | several keys, all or none | [`MultiLock`](crate::MultiLock), which prevents deadlocks between its callers |
/// | any one of several equal parts of a resource | [`Striped`](crate::Striped) |
/// | one process that leads for a long time, and a way to find it | [`Election`](crate::election::Election) |
///
/// If the work fits into one process, use `tokio::sync::Mutex`. If it fits into one database transaction, let the transaction lock the row.
///
/// # Deadlocks
///
/// A caller that holds the mutex and locks it again waits for itself, until its [wait](LockOptions::wait) ends. In work that
/// [runs](Self::run) under this mutex, such a call fails immediately with [`ErrorKind::WouldDeadlock`](crate::ErrorKind::WouldDeadlock).
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

    /// Returns this mutex with other options.
    ///
    /// ```
    /// use std::time::Duration;
    /// use leasehold_core::LockClient;
    /// use leasehold_core::memory::MemoryBackend;
    ///
    /// let client = LockClient::new(MemoryBackend::new());
    /// let patient = client.options().wait(Duration::from_secs(60));
    /// let mutex = client.mutex("report")?.with_options(patient)?;
    /// # let _ = mutex;
    /// # Ok::<(), leasehold_core::Error>(())
    /// ```
    ///
    /// # Errors
    ///
    /// Returns [`ErrorKind::Invalid`](crate::ErrorKind::Invalid) if the options contradict each other, and
    /// [`ErrorKind::Unsupported`](crate::ErrorKind::Unsupported) if the store does not support one of them.
    pub fn with_options(self, options: LockOptions) -> Result<Self, Error> {
        self.0.with_options(options).map(Self)
    }

    /// Returns the key.
    pub fn key(&self) -> &LockKey {
        self.0.key()
    }

    /// Waits for the lock, and returns a guard that holds it.
    ///
    /// By default, this method waits without a limit as long as another caller holds the lock, like the locks of std and tokio. Set
    /// [`LockOptions::wait`] to limit the wait, or call [`try_lock_for`](Self::try_lock_for). The wait for a store that does not answer is
    /// always limited, by [`LockOptions::outage_wait`].
    ///
    /// ```
    /// # tokio::runtime::Builder::new_current_thread().enable_all().build()?.block_on(async {
    /// use std::time::Duration;
    /// use leasehold_core::memory::MemoryBackend;
    /// use leasehold_core::{ErrorKind, LockClient, LockOptions};
    ///
    /// let options = LockOptions::new().wait(Duration::from_millis(20));
    /// let client = LockClient::builder(MemoryBackend::new()).options(options).build()?;
    /// let invoice = client.mutex("invoice:42")?;
    ///
    /// let guard = invoice.lock().await?;
    /// let error = invoice.lock().await.unwrap_err(); // waits for 20 ms
    /// assert_eq!(error.kind(), ErrorKind::Timeout);
    /// # guard.release().await
    /// # })?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    ///
    /// Returns
    ///
    /// - [`ErrorKind::Timeout`](crate::ErrorKind::Timeout) if the wait, or the attempts of [`LockOptions::retry`], ended while another caller
    ///   held the lock. The error names the [holder](crate::Error::holder).
    /// - [`ErrorKind::Unavailable`](crate::ErrorKind::Unavailable) or [`ErrorKind::Indeterminate`](crate::ErrorKind::Indeterminate) if the
    ///   store did not answer for [`LockOptions::outage_wait`].
    /// - [`ErrorKind::TooManyWaiters`](crate::ErrorKind::TooManyWaiters) immediately, if
    ///   [`max_waiters`](crate::Builder::max_waiters) callers of this process are waiting already.
    /// - [`ErrorKind::WouldDeadlock`](crate::ErrorKind::WouldDeadlock) immediately, in work that [runs](Self::run) under this mutex.
    /// - [`ErrorKind::Closed`](crate::ErrorKind::Closed) if the client was shut down.
    /// - another error of the store if a retry cannot succeed.
    ///
    /// # Cancel safety
    ///
    /// This method is cancel safe. If it is dropped, the caller loses its position in the queue, and a lease that the store has granted in the
    /// meantime is released in the background, at the latest after its TTL.
    pub async fn lock(&self) -> Result<LockGuard, Error> {
        self.0.lock(Share::Whole, None).await
    }

    /// Makes one attempt to acquire the lock. It does not wait for other holders, only for the store's reply.
    ///
    /// If a caller of this process holds the lock, or was refused by the store and is waiting, this method returns without a request.
    ///
    /// ```
    /// # tokio::runtime::Builder::new_current_thread().enable_all().build()?.block_on(async {
    /// use leasehold_core::memory::MemoryBackend;
    /// use leasehold_core::{LockClient, TryLockError};
    ///
    /// let client = LockClient::new(MemoryBackend::new());
    /// match client.mutex("report")?.try_lock().await {
    ///     Ok(guard) => guard.release().await, // after the work
    ///     Err(TryLockError::Busy(busy)) => {
    ///         println!("skipped: {busy}");
    ///         Ok(())
    ///     }
    ///     Err(TryLockError::Failed(error)) => Err(error),
    /// }
    /// # })?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    ///
    /// Returns [`TryLockError::Busy`] if another caller holds the lock, and [`TryLockError::Failed`] with an error of [`lock`](Self::lock) if
    /// the attempt failed. It does not retry while the store is unreachable.
    ///
    /// # Cancel safety
    ///
    /// This method is cancel safe. If it is dropped, a lease that the store has granted in the meantime is released in the background.
    pub async fn try_lock(&self) -> Result<LockGuard, TryLockError> {
        self.0.try_lock(Share::Whole, None).await
    }

    /// Waits for the lock for at most `wait`. A `wait` of zero means one attempt, like [`try_lock`](Self::try_lock).
    ///
    /// Two things can extend the wait by up to 50 ms each: a refused caller leaves the store's queue before this method returns, and the
    /// store's first reply is awaited even if `wait` is shorter.
    ///
    /// ```
    /// # tokio::runtime::Builder::new_current_thread().enable_all().build()?.block_on(async {
    /// use std::time::Duration;
    /// use leasehold_core::LockClient;
    /// use leasehold_core::memory::MemoryBackend;
    ///
    /// let client = LockClient::new(MemoryBackend::new());
    /// let guard = client.mutex("report")?.try_lock_for(Duration::from_secs(2)).await?;
    /// # guard.release().await
    /// # })?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    ///
    /// Returns [`TryLockError::Busy`] if the lock was held throughout, and [`TryLockError::Failed`] with an error of [`lock`](Self::lock)
    /// otherwise. A store that does not answer is a failure, not `Busy`.
    ///
    /// # Cancel safety
    ///
    /// This method is cancel safe. If it is dropped, a lease that the store has granted in the meantime is released in the background.
    pub async fn try_lock_for(&self, wait: Duration) -> Result<LockGuard, TryLockError> {
        self.0.try_lock_for(Share::Whole, None, wait).await
    }

    /// Waits for the lock until `instant` on the client's clock.
    ///
    /// ```
    /// # tokio::runtime::Builder::new_current_thread().enable_all().build()?.block_on(async {
    /// use std::time::Duration;
    /// use leasehold_core::LockClient;
    /// use leasehold_core::memory::MemoryBackend;
    ///
    /// let client = LockClient::new(MemoryBackend::new());
    /// let end = client.now() + Duration::from_secs(2); // for both locks together
    /// let one = client.mutex("one")?.try_lock_until(end).await?;
    /// let two = client.mutex("two")?.try_lock_until(end).await?;
    /// # two.release().await?;
    /// # one.release().await
    /// # })?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    ///
    /// Returns [`TryLockError::Busy`] if the lock was held throughout, and [`TryLockError::Failed`] with an error of [`lock`](Self::lock)
    /// otherwise. A store that does not answer is a failure, not `Busy`.
    ///
    /// # Cancel safety
    ///
    /// This method is cancel safe. If it is dropped, a lease that the store has granted in the meantime is released in the background.
    pub async fn try_lock_until(&self, instant: Instant) -> Result<LockGuard, TryLockError> {
        self.0.try_lock_until(Share::Whole, None, instant).await
    }

    /// Runs `work` under the lock. If the lease is lost, `work` is dropped before it has finished.
    ///
    /// ```
    /// # tokio::runtime::Builder::new_current_thread().enable_all().build()?.block_on(async {
    /// use leasehold_core::LockClient;
    /// use leasehold_core::memory::MemoryBackend;
    ///
    /// let client = LockClient::new(MemoryBackend::new());
    /// let invoice = client.mutex("invoice:42")?;
    /// let paid = invoice.run(async |guard| format!("paid under token {}", guard.token())).await?;
    /// # let _ = paid;
    /// # Ok::<(), leasehold_core::Error>(())
    /// # })?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Work that must finish although its caller is dropped
    ///
    /// Dropping this future drops `work`. A web framework, for example, drops a handler when its client hangs up. To let the work finish, run it
    /// in a task of its own. If the handler is dropped, the task continues and then releases the lock:
    ///
    /// ```
    /// # tokio::runtime::Builder::new_current_thread().enable_all().build()?.block_on(async {
    /// use leasehold_core::memory::MemoryBackend;
    /// use leasehold_core::{Error, LockClient};
    ///
    /// async fn handler(client: LockClient, id: u64) -> Result<(), Error> {
    ///     let invoice = client.mutex(format!("invoice:{id}"))?;
    ///     let paid = tokio::spawn(async move { invoice.run(async |_guard| pay(id).await).await });
    ///     paid.await.expect("the work does not panic")
    /// }
    ///
    /// async fn pay(_id: u64) {}
    /// # handler(LockClient::new(MemoryBackend::new()).into_dyn(), 42).await
    /// # })?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Without waiting for the release
    ///
    /// This method returns after the store has confirmed the release, or after at most five seconds. To return as soon as the work has finished,
    /// hold a guard and drop it. The lock is then released in the background:
    ///
    /// ```
    /// # tokio::runtime::Builder::new_current_thread().enable_all().build()?.block_on(async {
    /// use leasehold_core::LockClient;
    /// use leasehold_core::memory::MemoryBackend;
    ///
    /// let client = LockClient::new(MemoryBackend::new());
    /// let guard = client.mutex("invoice:42")?.lock().await?;
    /// let total = guard.while_held(async { 40 + 2 }).await?;
    /// drop(guard);
    /// # let _ = total;
    /// # Ok::<(), leasehold_core::Error>(())
    /// # })?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    ///
    /// Returns the errors of [`lock`](Self::lock) before `work` is called. Returns [`ErrorKind::LeaseLost`](crate::ErrorKind::LeaseLost) if the
    /// lease was lost before `work` finished, or if the store reports at the release that the lease was gone. If only the reply to the release
    /// is lost, this method returns the result of `work`, because it ran under the lock.
    ///
    /// # Cancel safety
    ///
    /// This method is as cancel safe as `work`. If it is dropped, the lock is released in the background.
    pub async fn run<T>(&self, work: impl AsyncFnOnce(&LockGuard) -> T) -> Result<T, Error> {
        self.lock().await?.run_and_release(work).await
    }

    /// Makes one attempt to acquire the lock and, if it succeeds, runs `work` like [`run`](Self::run).
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

    /// Waits to acquire the lock, for at most `wait`, and runs `work` like [`run`](Self::run).
    ///
    /// ```
    /// # tokio::runtime::Builder::new_current_thread().enable_all().build()?.block_on(async {
    /// use std::time::Duration;
    /// use leasehold_core::memory::MemoryBackend;
    /// use leasehold_core::{LockClient, TryLockError};
    ///
    /// let client = LockClient::new(MemoryBackend::new());
    /// let report = client.mutex("report")?;
    /// match report.try_run_for(Duration::from_secs(2), async |_guard| "written").await {
    ///     Ok(done) => println!("the report is {done}"),
    ///     Err(TryLockError::Busy(busy)) => println!("skipped after 2 s: {busy}"),
    ///     Err(TryLockError::Failed(error)) => return Err(error),
    /// }
    /// # Ok::<(), leasehold_core::Error>(())
    /// # })?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
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

    /// Asks the store whether the lock is held. The answer may be outdated when this method returns, so use it for displays only.
    ///
    /// ```
    /// # tokio::runtime::Builder::new_current_thread().enable_all().build()?.block_on(async {
    /// use leasehold_core::LockClient;
    /// use leasehold_core::memory::MemoryBackend;
    ///
    /// let client = LockClient::new(MemoryBackend::new());
    /// assert!(!client.mutex("report")?.is_locked().await?);
    /// # Ok::<(), leasehold_core::Error>(())
    /// # })?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    ///
    /// Returns [`ErrorKind::Unsupported`](crate::ErrorKind::Unsupported) if the store cannot report it.
    pub async fn is_locked(&self) -> Result<bool, Error> {
        self.0.is_locked().await
    }
}
