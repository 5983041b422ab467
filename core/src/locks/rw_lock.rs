//! Many readers or one writer at a time.

use std::fmt;
use std::ops::Deref;
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

/// A lock that many readers share, or that one writer has alone.
///
/// Each waiter stands in the store's queue, readers and writers in one line. So neither starves: a
/// caller waits only for earlier claims, of any process, and readers with no writer between them enter
/// together. Callers of one process that wait at the same time send one of them to that queue, in their
/// own order; with [`LockOptions::fair`] each stands there itself.
///
/// Each reader has a lease of its own. One that dies keeps the writers out until its own TTL ends,
/// even after all other readers have left.
///
/// As a rule, a caller that holds the lock and asks for it again waits for itself. A
/// [reentrant](Self::reentrant) one lets its owner in again. No reader ever becomes a writer: two that
/// try would wait for each other. A writer becomes a reader by [`WriteGuard::downgrade`].
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
#[derive(Clone, Debug)]
pub struct RwLock {
    face: Face,
    reentrant: bool,
}

impl RwLock {
    pub(crate) fn new(
        engine: Arc<Engine>,
        key: LockKey,
        options: Arc<LockOptions>,
    ) -> Result<Self, Error> {
        let face = Face::new(engine, key, options, Kind::RwLock)?;
        Ok(Self { face, reentrant: false })
    }

    /// The same lock with other options.
    ///
    /// # Errors
    ///
    /// Returns the errors of [`Mutex::with_options`](crate::Mutex::with_options).
    pub fn with_options(self, options: LockOptions) -> Result<Self, Error> {
        Ok(Self { face: self.face.with_options(options)?, ..self })
    }

    /// The same lock, which its [owner](OwnerId) may enter again: a reader as a reader, a writer as both.
    ///
    /// All guards of an owner share one lease and one token, as with a
    /// [`ReentrantMutex`](crate::ReentrantMutex). A reader that asks to write gets
    /// [`ErrorKind::WouldDeadlock`](crate::ErrorKind::WouldDeadlock) at once.
    #[must_use]
    pub fn reentrant(mut self) -> Self {
        self.reentrant = true;
        self
    }

    /// The key.
    pub fn key(&self) -> &LockKey {
        self.face.key()
    }

    /// Waits to read, for as long as [`LockOptions::wait`] says.
    ///
    /// # Errors
    ///
    /// Returns the errors of [`Mutex::lock`](crate::Mutex::lock), and
    /// [`ErrorKind::WrongType`](crate::ErrorKind::WrongType) if the key is held as a mutex; if
    /// [reentrant](Self::reentrant), as [`ReentrantMutex::lock`](crate::ReentrantMutex::lock) too.
    ///
    /// # Cancel safety
    ///
    /// This method is cancel safe. If it is dropped, a lease that the store has granted in the meantime is released in the background.
    pub async fn read(&self) -> Result<LockGuard, Error> {
        self.face.lock(Share::READER, self.owner()).await
    }

    /// Makes one attempt to acquire the lock as a reader. It does not wait for other holders, only for the store's reply.
    ///
    /// # Errors
    ///
    /// Returns [`TryLockError::Busy`] if a writer holds the lock or waits for it, and [`TryLockError::Failed`] with an error of [`read`](Self::read) if the attempt
    /// failed. It does not retry while the store is unreachable. See [`TryLockError`] for an example.
    ///
    /// # Cancel safety
    ///
    /// This method is cancel safe. If it is dropped, a lease that the store has granted in the meantime is released in the background.
    pub async fn try_read(&self) -> Result<LockGuard, TryLockError> {
        self.face.try_lock(Share::READER, self.owner()).await
    }

    /// Waits to acquire the lock as a reader, for at most `wait`.
    ///
    /// # Errors
    ///
    /// Returns [`TryLockError::Busy`] if a writer held the lock throughout, and [`TryLockError::Failed`] with an error of [`read`](Self::read) if the store
    /// refused the request or did not answer in time. See [`TryLockError`] for an example.
    ///
    /// # Cancel safety
    ///
    /// This method is cancel safe. If it is dropped, a lease that the store has granted in the meantime is released in the background.
    pub async fn try_read_for(&self, wait: Duration) -> Result<LockGuard, TryLockError> {
        self.face.try_lock_for(Share::READER, self.owner(), wait).await
    }

    /// Waits to acquire the lock as a reader, until `instant` on the client's clock, for example `client.now() + wait`.
    ///
    /// # Errors
    ///
    /// Returns [`TryLockError::Busy`] if a writer held the lock throughout, and [`TryLockError::Failed`] with an error of [`read`](Self::read) if the store
    /// refused the request or did not answer in time. See [`TryLockError`] for an example.
    ///
    /// # Cancel safety
    ///
    /// This method is cancel safe. If it is dropped, a lease that the store has granted in the meantime is released in the background.
    pub async fn try_read_until(&self, instant: Instant) -> Result<LockGuard, TryLockError> {
        self.face.try_lock_until(Share::READER, self.owner(), instant).await
    }

    /// Waits to write, for as long as [`LockOptions::wait`] says.
    ///
    /// # Errors
    ///
    /// Returns the errors of [`Mutex::lock`](crate::Mutex::lock), [`ErrorKind::WrongType`](crate::ErrorKind::WrongType) if the key is held as
    /// a mutex and, if the lock is [reentrant](Self::reentrant), the errors of [`ReentrantMutex::lock`](crate::ReentrantMutex::lock). A
    /// reader of a reentrant lock that asks to write gets [`ErrorKind::WouldDeadlock`](crate::ErrorKind::WouldDeadlock) immediately.
    ///
    /// # Cancel safety
    ///
    /// This method is cancel safe. If it is dropped, a lease that the store has granted in the meantime is released in the background.
    pub async fn write(&self) -> Result<WriteGuard, Error> {
        self.face.lock(Share::WRITER, self.owner()).await.map(WriteGuard)
    }

    /// Makes one attempt to acquire the lock as the writer. It does not wait for other holders, only for the store's reply.
    ///
    /// # Errors
    ///
    /// Returns [`TryLockError::Busy`] if another caller holds the lock or waits for it, and [`TryLockError::Failed`] with an error of [`write`](Self::write) if the attempt
    /// failed. It does not retry while the store is unreachable. See [`TryLockError`] for an example.
    ///
    /// # Cancel safety
    ///
    /// This method is cancel safe. If it is dropped, a lease that the store has granted in the meantime is released in the background.
    pub async fn try_write(&self) -> Result<WriteGuard, TryLockError> {
        self.face.try_lock(Share::WRITER, self.owner()).await.map(WriteGuard)
    }

    /// Waits to acquire the lock as the writer, for at most `wait`.
    ///
    /// # Errors
    ///
    /// Returns [`TryLockError::Busy`] if the lock was held throughout, and [`TryLockError::Failed`] with an error of [`write`](Self::write) if the store
    /// refused the request or did not answer in time. See [`TryLockError`] for an example.
    ///
    /// # Cancel safety
    ///
    /// This method is cancel safe. If it is dropped, a lease that the store has granted in the meantime is released in the background.
    pub async fn try_write_for(&self, wait: Duration) -> Result<WriteGuard, TryLockError> {
        self.face.try_lock_for(Share::WRITER, self.owner(), wait).await.map(WriteGuard)
    }

    /// Waits to acquire the lock as the writer, until `instant` on the client's clock, for example `client.now() + wait`.
    ///
    /// # Errors
    ///
    /// Returns [`TryLockError::Busy`] if the lock was held throughout, and [`TryLockError::Failed`] with an error of [`write`](Self::write) if the store
    /// refused the request or did not answer in time. See [`TryLockError`] for an example.
    ///
    /// # Cancel safety
    ///
    /// This method is cancel safe. If it is dropped, a lease that the store has granted in the meantime is released in the background.
    pub async fn try_write_until(&self, instant: Instant) -> Result<WriteGuard, TryLockError> {
        self.face.try_lock_until(Share::WRITER, self.owner(), instant).await.map(WriteGuard)
    }

    /// Runs `work` as a reader, and drops it unfinished if the lease is lost.
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
    /// The errors of [`read`](Self::read), before `work` is called, and the errors of [`Mutex::run`](crate::Mutex::run).
    ///
    /// # Cancel safety
    ///
    /// This method is as cancel safe as `work`. If it is dropped, the lock is released in the background.
    pub async fn run_read<T>(&self, work: impl AsyncFnOnce(&LockGuard) -> T) -> Result<T, Error> {
        self.read().await?.run_and_release(work).await
    }

    /// Makes one attempt to acquire the lock as a reader and, if it succeeds, runs `work` like [`run_read`](Self::run_read).
    ///
    /// # Errors
    ///
    /// Returns the errors of [`try_read`](Self::try_read) before `work` is called, and the errors of [`run_read`](Self::run_read) as
    /// [`TryLockError::Failed`].
    ///
    /// # Cancel safety
    ///
    /// This method is as cancel safe as `work`. If it is dropped, the lock is released in the background.
    pub async fn try_run_read<T>(
        &self,
        work: impl AsyncFnOnce(&LockGuard) -> T,
    ) -> Result<T, TryLockError> {
        let guard = self.try_read().await?;
        Ok(guard.run_and_release(work).await?)
    }

    /// Waits to acquire the lock as a reader, for at most `wait`, and runs `work` like [`run_read`](Self::run_read).
    ///
    /// # Errors
    ///
    /// Returns the errors of [`try_read_for`](Self::try_read_for) before `work` is called, and the errors of [`run_read`](Self::run_read) as
    /// [`TryLockError::Failed`].
    ///
    /// # Cancel safety
    ///
    /// This method is as cancel safe as `work`. If it is dropped, the lock is released in the background.
    pub async fn try_run_read_for<T>(
        &self,
        wait: Duration,
        work: impl AsyncFnOnce(&LockGuard) -> T,
    ) -> Result<T, TryLockError> {
        let guard = self.try_read_for(wait).await?;
        Ok(guard.run_and_release(work).await?)
    }

    /// Runs `work` as the writer, and drops it unfinished if the lease is lost.
    ///
    /// # Errors
    ///
    /// The errors of [`write`](Self::write), before `work` is called, and the errors of [`Mutex::run`](crate::Mutex::run).
    ///
    /// # Cancel safety
    ///
    /// This method is as cancel safe as `work`. If it is dropped, the lock is released in the background.
    pub async fn run_write<T>(&self, work: impl AsyncFnOnce(&LockGuard) -> T) -> Result<T, Error> {
        self.write().await?.0.run_and_release(work).await
    }

    /// Makes one attempt to acquire the lock as the writer and, if it succeeds, runs `work` like [`run_write`](Self::run_write).
    ///
    /// # Errors
    ///
    /// Returns the errors of [`try_write`](Self::try_write) before `work` is called, and the errors of [`run_write`](Self::run_write) as
    /// [`TryLockError::Failed`].
    ///
    /// # Cancel safety
    ///
    /// This method is as cancel safe as `work`. If it is dropped, the lock is released in the background.
    pub async fn try_run_write<T>(
        &self,
        work: impl AsyncFnOnce(&LockGuard) -> T,
    ) -> Result<T, TryLockError> {
        let guard = self.try_write().await?;
        Ok(guard.0.run_and_release(work).await?)
    }

    /// Waits to acquire the lock as the writer, for at most `wait`, and runs `work` like [`run_write`](Self::run_write).
    ///
    /// # Errors
    ///
    /// Returns the errors of [`try_write_for`](Self::try_write_for) before `work` is called, and the errors of [`run_write`](Self::run_write) as
    /// [`TryLockError::Failed`].
    ///
    /// # Cancel safety
    ///
    /// This method is as cancel safe as `work`. If it is dropped, the lock is released in the background.
    pub async fn try_run_write_for<T>(
        &self,
        wait: Duration,
        work: impl AsyncFnOnce(&LockGuard) -> T,
    ) -> Result<T, TryLockError> {
        let guard = self.try_write_for(wait).await?;
        Ok(guard.0.run_and_release(work).await?)
    }

    /// Asks the store whether the lock is held. The answer may be out of date by the time that the call returns.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Unsupported`](crate::ErrorKind::Unsupported) if the store cannot tell.
    pub async fn is_locked(&self) -> Result<bool, Error> {
        self.face.is_locked().await
    }

    fn owner(&self) -> Option<OwnerId> {
        self.reentrant.then(OwnerId::current)
    }
}

/// The lock of a writer: a [`LockGuard`] that can become a reader's.
///
/// ```
/// # tokio::runtime::Builder::new_current_thread().enable_all().build()?.block_on(async {
/// use leasehold_core::LockClient;
/// use leasehold_core::memory::MemoryBackend;
///
/// let catalogue = LockClient::new(MemoryBackend::new()).rw_lock("catalogue")?;
/// let writer = catalogue.write().await?;
/// let reader = writer.downgrade().await?; // no other writer in between
/// assert!(catalogue.try_read().await.is_ok());
/// reader.release().await?;
/// # Ok::<(), leasehold_core::Error>(())
/// # })?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[must_use = "dropping a guard releases its lock"]
pub struct WriteGuard(LockGuard);

impl WriteGuard {
    /// Becomes a reader: other readers may enter, and no writer enters in between.
    ///
    /// The lease and the token stay. If the store does not answer now, the next renewal tells it, and until then the store
    /// lets no other reader in: without [renewal](crate::RenewalMode::Off), for as long as the lease lasts.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::LeaseLost`](crate::ErrorKind::LeaseLost) if the lease is lost.
    /// [`ErrorKind::Invalid`](crate::ErrorKind::Invalid) if the lock is
    /// [reentrant](RwLock::reentrant) and its owner has other guards. The guard is gone then, as after
    /// [`release`](LockGuard::release).
    ///
    /// # Cancel safety
    ///
    /// Dropped early, the lease is released in the background.
    pub async fn downgrade(self) -> Result<LockGuard, Error> {
        self.0.share_with_readers().await?;
        Ok(self.0)
    }

    /// Ends the lease, as [`LockGuard::release`] does.
    ///
    /// # Errors
    ///
    /// Returns the errors of [`LockGuard::release`].
    ///
    /// # Cancel safety
    ///
    /// This method is cancel safe. If it is dropped, the release continues in the background.
    pub async fn release(self) -> Result<(), Error> {
        self.0.release().await
    }

    /// Forgets that it can become a reader's.
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
