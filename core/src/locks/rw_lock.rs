//! The reader-writer lock, which many readers or one writer can hold.

use std::fmt;
use std::ops::Deref;
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

/// A lock that many readers or one writer can hold.
///
/// The store keeps all waiting readers and writers of a key in one queue, so neither readers nor
/// writers starve. A caller waits only for callers that arrived earlier, in any process.
/// Consecutive readers in the queue acquire the lock at the same time.
///
/// Each reader has its own lease. If a reader dies, writers wait until the reader's lease has
/// expired.
///
/// ```
/// # tokio::runtime::Builder::new_current_thread().enable_all().build()?.block_on(async {
/// use leasehold_core::LockClient;
/// use leasehold_core::memory::MemoryBackend;
///
/// let client = LockClient::new(MemoryBackend::new());
/// let lock = client.rw_lock("catalogue")?;
///
/// let (one, other) = (lock.read().await?, lock.read().await?);
/// assert!(lock.try_write().await.is_err());
/// one.release().await?;
/// other.release().await?;
///
/// let writer = lock.write().await?;
/// assert!(lock.try_read().await.is_err());
/// let reader = writer.downgrade().await?;
/// assert!(lock.try_read().await.is_ok());
/// # drop(reader);
/// # Ok::<(), leasehold_core::Error>(())
/// # })?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
/// # Deadlocks
///
/// A caller that acquires the lock again while holding it deadlocks. If your code must acquire a
/// lock that it already holds, call [`reentrant`](Self::reentrant). A reader can never become the
/// writer, because two readers that tried to become the writer would wait for each other. A writer
/// can become a reader: see [`WriteGuard::downgrade`].
///
/// # Waiting in one process
///
/// Callers in one process that wait at the same time share one entry in the store's queue and
/// acquire the lock in the order of their calls. With [`LockOptions::fair`], each caller has its
/// own entry in the store's queue.
#[derive(Clone, Debug)]
pub struct RwLock {
    handle: LockHandle,
    reentrant: bool,
}

impl RwLock {
    pub(crate) fn new(
        engine: Arc<Engine>,
        key: LockKey,
        options: Arc<LockOptions>,
    ) -> Result<Self, Error> {
        let handle = LockHandle::new(engine, key, options, Kind::RwLock)?;
        Ok(Self { handle, reentrant: false })
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
        Ok(Self { handle: self.handle.with_options(options)?, ..self })
    }

    /// Returns a reentrant handle to this lock, which its [owner](OwnerId) can lock again.
    ///
    /// With the reentrant handle, a reader can acquire the lock again as a reader, and a writer can
    /// acquire the lock again as a reader or writer. All guards of an owner share one lease and one
    /// token, as with a [`ReentrantMutex`](crate::ReentrantMutex). If a reader calls
    /// [`write`](Self::write), the call fails immediately with
    /// [`ErrorKind::WouldDeadlock`](crate::ErrorKind::WouldDeadlock).
    ///
    /// ```
    /// # tokio::runtime::Builder::new_current_thread().enable_all().build()?.block_on(async {
    /// use leasehold_core::LockClient;
    /// use leasehold_core::memory::MemoryBackend;
    ///
    /// let lock = LockClient::new(MemoryBackend::new()).rw_lock("catalogue")?.reentrant();
    /// let outer = lock.write().await?;
    /// let inner = lock.read().await?; // the same owner
    /// assert_eq!(outer.token(), inner.token());
    /// # Ok::<(), leasehold_core::Error>(())
    /// # })?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    #[must_use]
    pub fn reentrant(mut self) -> Self {
        self.reentrant = true;
        self
    }

    /// Returns the key.
    pub fn key(&self) -> &LockKey {
        self.handle.key()
    }

    /// Waits until the caller can acquire the lock as a reader, then returns a guard.
    ///
    /// By default, this method waits indefinitely. Set [`LockOptions::wait`] to limit the wait, or
    /// call [`try_read_for`](Self::try_read_for).
    ///
    /// # Errors
    ///
    /// Returns [`ErrorKind::WrongType`](crate::ErrorKind::WrongType) if the key is in use as a
    /// mutex. [`Mutex::lock`](crate::Mutex::lock) lists all other errors. Calls on a
    /// [reentrant](Self::reentrant) lock can also return the errors of
    /// [`ReentrantMutex::lock`](crate::ReentrantMutex::lock).
    ///
    /// # Cancel safety
    ///
    /// This method is cancel safe. If the future is dropped, the caller loses its position in the
    /// queue, and any lease that the store has already granted is released in the background.
    pub async fn read(&self) -> Result<LockGuard, Error> {
        self.handle.lock(Mode::READER, self.owner()).await
    }

    /// Makes one attempt to acquire the lock as a reader. The method waits for the store's reply,
    /// but not for the current holder to release the lock.
    ///
    /// # Errors
    ///
    /// Returns [`TryLockError::Busy`] if a writer holds the lock or is waiting for it. If the
    /// attempt failed for another reason, returns [`TryLockError::Failed`] with one of the errors
    /// that [`read`](Self::read) returns. The method does not retry if the store is unreachable.
    /// See [`TryLockError`] for an example.
    ///
    /// # Cancel safety
    ///
    /// This method is cancel safe. If the future is dropped, any lease that the store has already
    /// granted is released in the background.
    pub async fn try_read(&self) -> Result<LockGuard, TryLockError> {
        self.handle.try_lock(Mode::READER, self.owner()).await
    }

    /// Waits up to `wait` to acquire the lock as a reader.
    ///
    /// # Errors
    ///
    /// Returns [`TryLockError::Busy`] if a writer held the lock until `wait` had elapsed. If the
    /// store rejected the request or did not reply in time, returns [`TryLockError::Failed`] with
    /// one of the errors that [`read`](Self::read) returns. See [`TryLockError`] for an example.
    ///
    /// # Cancel safety
    ///
    /// This method is cancel safe. If the future is dropped, any lease that the store has already
    /// granted is released in the background.
    pub async fn try_read_for(&self, wait: Duration) -> Result<LockGuard, TryLockError> {
        self.handle.try_lock_for(Mode::READER, self.owner(), wait).await
    }

    /// Waits to acquire the lock as a reader, but gives up at `instant`, a time on the client's
    /// clock such as `client.now() + wait`.
    ///
    /// # Errors
    ///
    /// Returns [`TryLockError::Busy`] if a writer held the lock until `instant`. If the store
    /// rejected the request or did not reply in time, returns [`TryLockError::Failed`] with one of
    /// the errors that [`read`](Self::read) returns. See [`TryLockError`] for an example.
    ///
    /// # Cancel safety
    ///
    /// This method is cancel safe. If the future is dropped, any lease that the store has already
    /// granted is released in the background.
    pub async fn try_read_until(&self, instant: Instant) -> Result<LockGuard, TryLockError> {
        self.handle.try_lock_until(Mode::READER, self.owner(), instant).await
    }

    /// Waits until the caller can acquire the lock as the writer, then returns a guard.
    ///
    /// By default, this method waits indefinitely. Set [`LockOptions::wait`] to limit the wait, or
    /// call [`try_write_for`](Self::try_write_for).
    ///
    /// # Errors
    ///
    /// Returns [`ErrorKind::WouldDeadlock`](crate::ErrorKind::WouldDeadlock) immediately if this
    /// handle is [reentrant](Self::reentrant) and its owner already holds the lock as a reader. All
    /// other errors are the same as for [`read`](Self::read).
    ///
    /// # Cancel safety
    ///
    /// This method is cancel safe. If the future is dropped, the caller loses its position in the
    /// queue, and any lease that the store has already granted is released in the background.
    pub async fn write(&self) -> Result<WriteGuard, Error> {
        self.handle.lock(Mode::WRITER, self.owner()).await.map(WriteGuard)
    }

    /// Makes one attempt to acquire the lock as the writer. The method waits for the store's reply,
    /// but not for the current holder to release the lock.
    ///
    /// # Errors
    ///
    /// Returns [`TryLockError::Busy`] if another caller holds the lock or is waiting for it. If the
    /// attempt failed for another reason, returns [`TryLockError::Failed`] with one of the errors
    /// that [`write`](Self::write) returns. The method does not retry if the store is unreachable.
    /// See [`TryLockError`] for an example.
    ///
    /// # Cancel safety
    ///
    /// This method is cancel safe. If the future is dropped, any lease that the store has already
    /// granted is released in the background.
    pub async fn try_write(&self) -> Result<WriteGuard, TryLockError> {
        self.handle.try_lock(Mode::WRITER, self.owner()).await.map(WriteGuard)
    }

    /// Waits up to `wait` to acquire the lock as the writer.
    ///
    /// # Errors
    ///
    /// Returns [`TryLockError::Busy`] if other callers held the lock until `wait` had elapsed. If
    /// the store rejected the request or did not reply in time, returns [`TryLockError::Failed`]
    /// with one of the errors that [`write`](Self::write) returns. See [`TryLockError`] for an
    /// example.
    ///
    /// # Cancel safety
    ///
    /// This method is cancel safe. If the future is dropped, any lease that the store has already
    /// granted is released in the background.
    pub async fn try_write_for(&self, wait: Duration) -> Result<WriteGuard, TryLockError> {
        self.handle.try_lock_for(Mode::WRITER, self.owner(), wait).await.map(WriteGuard)
    }

    /// Waits to acquire the lock as the writer, but gives up at `instant`, a time on the client's
    /// clock such as `client.now() + wait`.
    ///
    /// # Errors
    ///
    /// Returns [`TryLockError::Busy`] if other callers held the lock until `instant`. If the store
    /// rejected the request or did not reply in time, returns [`TryLockError::Failed`] with one of
    /// the errors that [`write`](Self::write) returns. See [`TryLockError`] for an example.
    ///
    /// # Cancel safety
    ///
    /// This method is cancel safe. If the future is dropped, any lease that the store has already
    /// granted is released in the background.
    pub async fn try_write_until(&self, instant: Instant) -> Result<WriteGuard, TryLockError> {
        self.handle.try_lock_until(Mode::WRITER, self.owner(), instant).await.map(WriteGuard)
    }

    /// Runs `work` as a reader. If the lease is lost, `work` is dropped before it finishes.
    ///
    /// ```
    /// # tokio::runtime::Builder::new_current_thread().enable_all().build()?.block_on(async {
    /// use leasehold_core::LockClient;
    /// use leasehold_core::memory::MemoryBackend;
    ///
    /// let lock = LockClient::new(MemoryBackend::new()).rw_lock("catalogue")?;
    /// let entries = lock.run_read(async |_guard| 3).await?;
    /// lock.run_write(async |guard| println!("entry {entries} under token {}", guard.token())).await?;
    /// # Ok::<(), leasehold_core::Error>(())
    /// # })?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    ///
    /// If [`read`](Self::read) fails, returns its error without calling `work`. Returns
    /// [`ErrorKind::LeaseLost`](crate::ErrorKind::LeaseLost) if the lease was lost before `work`
    /// finished, or if the store reports on release that the lease no longer exists.
    ///
    /// # Cancel safety
    ///
    /// This method is as cancel safe as `work`. If the future is dropped, the lock is released in
    /// the background.
    pub async fn run_read<T>(&self, work: impl AsyncFnOnce(&LockGuard) -> T) -> Result<T, Error> {
        self.read().await?.run_and_release(work).await
    }

    /// Makes one attempt to acquire the lock as a reader and, if successful, runs `work` in the
    /// same way as [`run_read`](Self::run_read).
    ///
    /// # Errors
    ///
    /// If [`try_read`](Self::try_read) fails, returns its error without calling `work`. Returns
    /// errors from [`run_read`](Self::run_read) as [`TryLockError::Failed`].
    ///
    /// # Cancel safety
    ///
    /// This method is as cancel safe as `work`. If the future is dropped, the lock is released in
    /// the background.
    pub async fn try_run_read<T>(
        &self,
        work: impl AsyncFnOnce(&LockGuard) -> T,
    ) -> Result<T, TryLockError> {
        let guard = self.try_read().await?;
        Ok(guard.run_and_release(work).await?)
    }

    /// Waits up to `wait` to acquire the lock as a reader and, if successful, runs `work` in the
    /// same way as [`run_read`](Self::run_read).
    ///
    /// # Errors
    ///
    /// If [`try_read_for`](Self::try_read_for) fails, returns its error without calling `work`.
    /// Returns errors from [`run_read`](Self::run_read) as [`TryLockError::Failed`].
    ///
    /// # Cancel safety
    ///
    /// This method is as cancel safe as `work`. If the future is dropped, the lock is released in
    /// the background.
    pub async fn try_run_read_for<T>(
        &self,
        wait: Duration,
        work: impl AsyncFnOnce(&LockGuard) -> T,
    ) -> Result<T, TryLockError> {
        let guard = self.try_read_for(wait).await?;
        Ok(guard.run_and_release(work).await?)
    }

    /// Runs `work` as the writer. If the lease is lost, `work` is dropped before it finishes.
    ///
    /// See [`run_read`](Self::run_read) for an example that also calls `run_write`.
    ///
    /// # Errors
    ///
    /// If [`write`](Self::write) fails, returns its error without calling `work`. Returns
    /// [`ErrorKind::LeaseLost`](crate::ErrorKind::LeaseLost) if the lease was lost before `work`
    /// finished, or if the store reports on release that the lease no longer exists.
    ///
    /// # Cancel safety
    ///
    /// This method is as cancel safe as `work`. If the future is dropped, the lock is released in
    /// the background.
    pub async fn run_write<T>(&self, work: impl AsyncFnOnce(&LockGuard) -> T) -> Result<T, Error> {
        self.write().await?.0.run_and_release(work).await
    }

    /// Makes one attempt to acquire the lock as the writer and, if successful, runs `work` in the
    /// same way as [`run_write`](Self::run_write).
    ///
    /// # Errors
    ///
    /// If [`try_write`](Self::try_write) fails, returns its error without calling `work`. Returns
    /// errors from [`run_write`](Self::run_write) as [`TryLockError::Failed`].
    ///
    /// # Cancel safety
    ///
    /// This method is as cancel safe as `work`. If the future is dropped, the lock is released in
    /// the background.
    pub async fn try_run_write<T>(
        &self,
        work: impl AsyncFnOnce(&LockGuard) -> T,
    ) -> Result<T, TryLockError> {
        let guard = self.try_write().await?;
        Ok(guard.0.run_and_release(work).await?)
    }

    /// Waits up to `wait` to acquire the lock as the writer and, if successful, runs `work` in the
    /// same way as [`run_write`](Self::run_write).
    ///
    /// # Errors
    ///
    /// If [`try_write_for`](Self::try_write_for) fails, returns its error without calling `work`.
    /// Returns errors from [`run_write`](Self::run_write) as [`TryLockError::Failed`].
    ///
    /// # Cancel safety
    ///
    /// This method is as cancel safe as `work`. If the future is dropped, the lock is released in
    /// the background.
    pub async fn try_run_write_for<T>(
        &self,
        wait: Duration,
        work: impl AsyncFnOnce(&LockGuard) -> T,
    ) -> Result<T, TryLockError> {
        let guard = self.try_write_for(wait).await?;
        Ok(guard.0.run_and_release(work).await?)
    }

    /// Asks the store whether the lock is held. The result may be out of date by the time this
    /// method returns, so use it only for display.
    ///
    /// # Errors
    ///
    /// Returns [`ErrorKind::Unsupported`](crate::ErrorKind::Unsupported) if the store cannot report
    /// whether a key is held.
    pub async fn is_locked(&self) -> Result<bool, Error> {
        self.handle.is_locked().await
    }

    fn owner(&self) -> Option<OwnerId> {
        self.reentrant.then(OwnerId::current)
    }
}

/// A writer's guard: a [`LockGuard`] that can be [downgraded](Self::downgrade) to a reader.
///
/// Dropping the guard releases the lock in the background.
///
/// ```
/// # tokio::runtime::Builder::new_current_thread().enable_all().build()?.block_on(async {
/// use leasehold_core::LockClient;
/// use leasehold_core::memory::MemoryBackend;
///
/// let lock = LockClient::new(MemoryBackend::new()).rw_lock("catalogue")?;
/// let writer = lock.write().await?;
/// println!("writing under token {}", writer.token());
/// let reader = writer.downgrade().await?;
/// reader.release().await?;
/// # Ok::<(), leasehold_core::Error>(())
/// # })?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[must_use = "dropping a guard releases its lock"]
pub struct WriteGuard(LockGuard);

impl WriteGuard {
    /// Turns the writer into a reader and returns a reader's guard. No other writer can acquire the
    /// lock during the downgrade.
    ///
    /// The guard keeps its lease and its token, and other readers can acquire the lock. If the
    /// store does not reply, the next renewal repeats the request, and other readers wait until
    /// then. If the store does not reply and [renewal is off](crate::RenewalMode::Off), other
    /// readers wait until the lease expires.
    ///
    /// # Errors
    ///
    /// Returns [`ErrorKind::LeaseLost`](crate::ErrorKind::LeaseLost) if the lease is lost. Returns
    /// [`ErrorKind::Invalid`](crate::ErrorKind::Invalid) if the lock is
    /// [reentrant](RwLock::reentrant) and its owner has other guards. If the downgrade fails, the
    /// guard is dropped.
    ///
    /// # Cancel safety
    ///
    /// If the future is dropped, the guard is also dropped, and the lock is released in the
    /// background.
    pub async fn downgrade(self) -> Result<LockGuard, Error> {
        self.0.share_with_readers().await?;
        Ok(self.0)
    }

    /// Releases the lock and waits until the store has confirmed the release. See
    /// [`LockGuard::release`].
    ///
    /// # Errors
    ///
    /// Returns the same errors as [`LockGuard::release`].
    ///
    /// # Cancel safety
    ///
    /// This method is cancel safe. If the future is dropped, the release continues in the
    /// background.
    pub async fn release(self) -> Result<(), Error> {
        self.0.release().await
    }

    /// Converts this value into a plain guard, which still holds the writer's lease but cannot be
    /// downgraded.
    pub fn into_guard(self) -> LockGuard {
        self.0
    }
}

impl Deref for WriteGuard {
    type Target = LockGuard;

    fn deref(&self) -> &LockGuard {
        &self.0
    }
}

impl fmt::Debug for WriteGuard {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(&self.0, f)
    }
}
