//! The mutex, which one holder at a time can acquire.

use std::sync::Arc;
use std::time::Duration;

use crate::clock::Instant;
use crate::contract::backend::Mode;
use crate::contract::error::Error;
use crate::contract::key::LockKey;
use crate::contract::try_lock_error::TryLockError;
use crate::engine::pipeline::Engine;
use crate::locks::guard::LockGuard;
use crate::locks::handle::{Kind, LockHandle};
use crate::options::LockOptions;

/// A lock that one holder at a time can acquire.
///
/// A `Mutex` value consists of a key and options. Creating a mutex does no I/O. All mutexes with
/// the same key in the same store are the same lock, even in different processes. Callers in the
/// same process acquire the lock in the order of their calls. Between processes, the store
/// determines the order, unless the lock is [fair](LockOptions::fair).
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
/// // HeldByCaller work under the lock. It is dropped if the lease is lost before it has finished.
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
/// | one holder at a time | `Mutex`, which is the right choice for most programs |
/// | one holder that may acquire the lock again in nested calls | [`ReentrantMutex`](crate::ReentrantMutex), or pass the guard as an argument |
/// | many readers, or one writer | [`RwLock`](crate::RwLock), if readers hold the lock for a long time; for short reads, a `Mutex` needs fewer requests |
/// | at most `n` holders at a time | [`Semaphore`](crate::Semaphore) |
/// | several keys, all or none | [`MultiLock`](crate::MultiLock), which prevents deadlocks between its callers |
/// | any one of several interchangeable parts of a resource | [`Striped`](crate::Striped) |
/// | one long-term leader that other processes can find | [`Election`](crate::election::Election) |
///
/// If all callers are in one process, use `tokio::sync::Mutex`. If the work fits into one database
/// transaction, let the transaction lock the row.
///
/// # Deadlocks
///
/// If a caller locks the mutex again while holding it, the call does not return before its [time
/// limit](LockOptions::wait) is reached. Within work that [runs](Self::run) under this mutex,
/// locking the mutex again fails immediately with
/// [`ErrorKind::WouldDeadlock`](crate::ErrorKind::WouldDeadlock).
#[derive(Clone, Debug)]
pub struct Mutex(LockHandle);

impl Mutex {
    pub(crate) fn new(
        engine: Arc<Engine>,
        key: LockKey,
        options: Arc<LockOptions>,
    ) -> Result<Self, Error> {
        LockHandle::new(engine, key, options, Kind::Mutex).map(Self)
    }

    /// Returns this mutex with different options.
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

    /// Waits for the lock and returns a guard that holds it.
    ///
    /// By default, this method waits for as long as another caller holds the lock, like the mutexes
    /// of std and tokio. Set [`LockOptions::wait`] to limit the wait, or call
    /// [`try_lock_for`](Self::try_lock_for). If the store does not respond, the wait is always
    /// limited by [`LockOptions::outage_wait`].
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
    /// - [`ErrorKind::Timeout`](crate::ErrorKind::Timeout) if another caller still held the lock
    ///   when the time limit was reached or the attempts allowed by [`LockOptions::retry`] were
    ///   used up. The error names the [holder](crate::Error::holder).
    ///
    /// - [`ErrorKind::Unavailable`](crate::ErrorKind::Unavailable) or
    ///   [`ErrorKind::Indeterminate`](crate::ErrorKind::Indeterminate) if the store did not respond
    ///   for [`LockOptions::outage_wait`].
    ///
    /// - [`ErrorKind::TooManyWaiters`](crate::ErrorKind::TooManyWaiters) immediately if
    ///   [`max_waiters`](crate::Builder::max_waiters) callers in this process are already waiting.
    ///
    /// - [`ErrorKind::WouldDeadlock`](crate::ErrorKind::WouldDeadlock) immediately if called within
    ///   work that [runs](Self::run) under this mutex.
    ///
    /// - [`ErrorKind::Closed`](crate::ErrorKind::Closed) if the client was shut down.
    ///
    /// - the store's error if a retry cannot succeed.
    ///
    /// # Cancel safety
    ///
    /// This method is cancel safe. If the future is dropped, the caller loses its position in the
    /// queue, and any lease that the store has already granted is released in the background or, at
    /// the latest, expires after its TTL.
    pub async fn lock(&self) -> Result<LockGuard, Error> {
        self.0.lock(Mode::Exclusive, None).await
    }

    /// Makes one attempt to acquire the lock. The method waits for the store's reply, but not for
    /// the current holder to release the lock.
    ///
    /// If a caller in this process holds the lock, or is already waiting because the store reported
    /// that the lock is held, this method returns without sending a request.
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
    /// Returns [`TryLockError::Busy`] if another caller holds the lock. If the attempt failed for
    /// another reason, returns [`TryLockError::Failed`] with one of the errors that
    /// [`lock`](Self::lock) returns. The method does not retry if the store is unreachable.
    ///
    /// # Cancel safety
    ///
    /// This method is cancel safe. If the future is dropped, any lease that the store has already
    /// granted is released in the background.
    pub async fn try_lock(&self) -> Result<LockGuard, TryLockError> {
        self.0.try_lock(Mode::Exclusive, None).await
    }

    /// Waits up to `wait` to acquire the lock. If `wait` is zero, the method makes one attempt,
    /// like [`try_lock`](Self::try_lock).
    ///
    /// The call can last up to 50 ms longer than `wait` while the caller leaves the store's queue,
    /// and up to another 50 ms longer while it waits for the store's first reply.
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
    /// Returns [`TryLockError::Busy`] if the lock was held until the time limit was reached. After
    /// any other failure, returns [`TryLockError::Failed`] with one of the errors that
    /// [`lock`](Self::lock) returns. If the store does not respond, the method returns `Failed`
    /// instead of `Busy`.
    ///
    /// # Cancel safety
    ///
    /// This method is cancel safe. If the future is dropped, any lease that the store has already
    /// granted is released in the background.
    pub async fn try_lock_for(&self, wait: Duration) -> Result<LockGuard, TryLockError> {
        self.0.try_lock_for(Mode::Exclusive, None, wait).await
    }

    /// Waits to acquire the lock, but gives up at `instant`, a time on the client's clock.
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
    /// Returns [`TryLockError::Busy`] if the lock was held until the time limit was reached. After
    /// any other failure, returns [`TryLockError::Failed`] with one of the errors that
    /// [`lock`](Self::lock) returns. If the store does not respond, the method returns `Failed`
    /// instead of `Busy`.
    ///
    /// # Cancel safety
    ///
    /// This method is cancel safe. If the future is dropped, any lease that the store has already
    /// granted is released in the background.
    pub async fn try_lock_until(&self, instant: Instant) -> Result<LockGuard, TryLockError> {
        self.0.try_lock_until(Mode::Exclusive, None, instant).await
    }

    /// Runs `work` under the lock. If the lease is lost, `work` is dropped before it finishes.
    ///
    /// Write `work` as an async closure, `async |guard| …`. The compiler rejects
    /// `|guard| async move { … }`, and reports that type annotations are needed or that a lifetime
    /// is not long enough.
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
    /// # Work that must finish even if its caller is dropped
    ///
    /// Dropping this future drops `work`. For example, a web framework drops a handler when its
    /// client disconnects. If the work must finish, run it in a separate task. If the handler is
    /// dropped, the task continues and then releases the lock:
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
    /// # Returning without waiting for the release
    ///
    /// This method returns after the store has confirmed the release, but waits for at most five
    /// seconds. To return as soon as the work has finished, hold a guard and drop the guard after
    /// the work. The lock is then released in the background:
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
    /// If [`lock`](Self::lock) fails, returns its error without calling `work`. Returns
    /// [`ErrorKind::LeaseLost`](crate::ErrorKind::LeaseLost) if the lease was lost before `work`
    /// finished, or if the store reports on release that the lease no longer exists. If only the
    /// reply to the release is lost, this method returns the result of `work`, because `work` ran
    /// under the lock.
    ///
    /// # Cancel safety
    ///
    /// This method is as cancel safe as `work`. If the future is dropped, the lock is released in
    /// the background.
    pub async fn run<T>(&self, work: impl AsyncFnOnce(&LockGuard) -> T) -> Result<T, Error> {
        self.lock().await?.run_and_release(work).await
    }

    /// Makes one attempt to acquire the lock and, if successful, runs `work` in the same way as
    /// [`run`](Self::run).
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

    /// Waits up to `wait` to acquire the lock and, if successful, runs `work` in the same way as
    /// [`run`](Self::run).
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

    /// Asks the store whether the lock is held. The result may be out of date by the time this
    /// method returns, so use it only for display.
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
    /// Returns [`ErrorKind::Unsupported`](crate::ErrorKind::Unsupported) if the store cannot report
    /// whether a key is held.
    pub async fn is_locked(&self) -> Result<bool, Error> {
        self.0.is_locked().await
    }
}
