//! The blocking client.

use std::time::Duration;

use super::admin::Admin;
use super::background::Background;
use super::election::Election;
use super::multi_lock::MultiLock;
use super::mutex::Mutex;
use super::reentrant_mutex::ReentrantMutex;
use super::rw_lock::RwLock;
use super::semaphore::Semaphore;
use super::striped::Striped;
use crate::admin::Revocation;
use crate::clock::Instant;
use crate::contract::backend::LockBackend;
use crate::contract::error::Error;
use crate::contract::key::IntoKey;
use crate::options::LockOptions;

/// Creates locks by name. This is the blocking version of [`LockClient`](crate::LockClient).
///
/// Clones are cheap and share all state, including the background thread. Any number of threads can
/// share one client.
///
/// ```
/// use leasehold_core::blocking::LockClient;
/// use leasehold_core::memory::MemoryBackend;
///
/// let client = LockClient::new(MemoryBackend::new())?;
/// let guard = client.mutex("invoice:42")?.lock()?;
/// println!("held with token {}", guard.token());
/// guard.release()?;
/// # Ok::<(), leasehold_core::Error>(())
/// ```
#[derive(Clone, Debug)]
pub struct LockClient {
    client: crate::LockClient,
    background: Background,
}

impl LockClient {
    /// Creates a client with default options for a backend that has not opened a connection yet.
    ///
    /// `new` does no I/O and can be called anywhere, including in async code.
    ///
    /// # Errors
    ///
    /// Returns [`ErrorKind::Unavailable`](crate::ErrorKind::Unavailable) if the operating system
    /// cannot start a thread.
    pub fn new(backend: impl LockBackend) -> Result<Self, Error> {
        let background = Background::start()?;
        Ok(Self::with_background(crate::LockClient::new(backend).into_dyn(), background))
    }

    /// Creates a client from the async client that `build` returns. Use this method to set options
    /// or to connect to a store.
    ///
    /// The method blocks until `build` has finished. `build` runs on the background runtime,
    /// because the connections that it opens belong to that runtime. Do not use the async client in
    /// any other code.
    ///
    /// ```
    /// use std::time::Duration;
    /// use leasehold_core::memory::MemoryBackend;
    /// use leasehold_core::{LockClient, LockOptions, blocking};
    ///
    /// let client = blocking::LockClient::from_async(async || {
    ///     let backend = MemoryBackend::new(); // or: RedisBackend::connect(url).await?
    ///     let options = LockOptions::new().ttl(Duration::from_secs(10));
    ///     Ok(LockClient::builder(backend).options(options).build()?.into_dyn())
    /// })?;
    /// # let _ = client.mutex("invoice:42")?.lock()?;
    /// # Ok::<(), leasehold_core::Error>(())
    /// ```
    ///
    /// # Errors
    ///
    /// Returns the error from `build` if `build` fails, any error that [`new`](Self::new) returns,
    /// and [`ErrorKind::Unsupported`](crate::ErrorKind::Unsupported) if called from [async
    /// code](super).
    pub fn from_async(
        build: impl AsyncFnOnce() -> Result<crate::LockClient, Error>,
    ) -> Result<Self, Error> {
        let background = Background::start()?;
        let client = background.block_on(build())?;
        Ok(Self::with_background(client, background))
    }

    fn with_background(client: crate::LockClient, background: Background) -> Self {
        let background = background.working_for(client.releases());
        Self { client, background }
    }

    /// Returns the mutex named `key`, which one holder at a time can acquire.
    ///
    /// # Errors
    ///
    /// Returns the same errors as [`LockClient::mutex`](crate::LockClient::mutex).
    pub fn mutex(&self, key: impl IntoKey) -> Result<Mutex, Error> {
        Ok(Mutex::new(self.client.mutex(key)?, self.background.clone()))
    }

    /// Returns the reentrant mutex named `key`, which the thread that holds it can lock again.
    ///
    /// # Errors
    ///
    /// Returns the same errors as
    /// [`LockClient::reentrant_mutex`](crate::LockClient::reentrant_mutex).
    pub fn reentrant_mutex(&self, key: impl IntoKey) -> Result<ReentrantMutex, Error> {
        Ok(ReentrantMutex::new(self.client.reentrant_mutex(key)?, self.background.clone()))
    }

    /// Returns the reader-writer lock named `key`, which many readers or one writer can hold.
    ///
    /// # Errors
    ///
    /// Returns the same errors as [`LockClient::rw_lock`](crate::LockClient::rw_lock).
    pub fn rw_lock(&self, key: impl IntoKey) -> Result<RwLock, Error> {
        Ok(RwLock::new(self.client.rw_lock(key)?, self.background.clone()))
    }

    /// Returns the semaphore named `key`, which has `limit` permits.
    ///
    /// # Errors
    ///
    /// Returns the same errors as [`LockClient::semaphore`](crate::LockClient::semaphore).
    pub fn semaphore(&self, key: impl IntoKey, limit: u32) -> Result<Semaphore, Error> {
        Ok(Semaphore::new(self.client.semaphore(key, limit)?, self.background.clone()))
    }

    /// Returns a multi-lock without parts. Add keys to the multi-lock with [`MultiLock::mutex`] and
    /// similar methods.
    pub fn multi_lock(&self) -> MultiLock {
        MultiLock::new(self.client.multi_lock(), self.background.clone())
    }

    /// Returns the striped lock named `key`, which has `segments` interchangeable segments.
    ///
    /// # Errors
    ///
    /// Returns the same errors as [`LockClient::striped`](crate::LockClient::striped).
    pub fn striped(&self, key: impl IntoKey, segments: u32) -> Result<Striped, Error> {
        Ok(Striped::new(self.client.striped(key, segments)?, self.background.clone()))
    }

    /// Returns the election named `key`, which has one leader at a time.
    ///
    /// # Errors
    ///
    /// Returns the same errors as [`LockClient::election`](crate::LockClient::election).
    pub fn election(&self, key: impl IntoKey) -> Result<Election, Error> {
        Ok(Election::new(self.client.election(key)?, self.background.clone()))
    }

    /// Asks the current holders of `key` to finish early. The holders' guards report the
    /// request: see [`Guard::is_revocation_requested`](super::Guard::is_revocation_requested).
    ///
    /// The method blocks until the store has replied.
    ///
    /// # Errors
    ///
    /// Returns the same errors as
    /// [`LockClient::request_revocation`](crate::LockClient::request_revocation), and
    /// [`ErrorKind::Unsupported`](crate::ErrorKind::Unsupported) if called from [async
    /// code](super).
    pub fn request_revocation(&self, key: impl IntoKey) -> Result<Revocation, Error> {
        self.background.block_on(self.client.request_revocation(key))
    }

    /// Returns the operator tools, which can inspect keys and release locks held by any client.
    pub fn admin(&self) -> Admin {
        Admin::new(self.client.admin(), self.background.clone())
    }

    /// Returns the client's options. Use the client's options as the basis for the options of a
    /// single lock.
    pub fn options(&self) -> LockOptions {
        self.client.options()
    }

    /// Returns the current time on the client's clock. [Deadlines](super::Guard::deadline) use the
    /// same clock.
    pub fn now(&self) -> Instant {
        self.client.now()
    }

    /// Checks whether the store is available. The method blocks until the store has replied or
    /// `within` has elapsed. See [`LockClient::ping`](crate::LockClient::ping).
    ///
    /// # Errors
    ///
    /// Returns the same errors as [`LockClient::ping`](crate::LockClient::ping), and
    /// [`ErrorKind::Unsupported`](crate::ErrorKind::Unsupported) if called from [async
    /// code](super).
    pub fn ping(&self, within: Duration) -> Result<(), Error> {
        self.background.block_on(self.client.ping(within))
    }

    /// Rejects new acquisitions and blocks until all locks held through this client and its clones
    /// are released or `within` has elapsed.
    ///
    /// See [`LockClient::drain`](crate::LockClient::drain) for an example. Call `drain` from a
    /// thread that does not hold a lock.
    ///
    /// # Errors
    ///
    /// Returns the same errors as [`LockClient::drain`](crate::LockClient::drain), and
    /// [`ErrorKind::Unsupported`](crate::ErrorKind::Unsupported) if called from [async
    /// code](super).
    pub fn drain(&self, within: Duration) -> Result<(), Error> {
        self.background.block_on(self.client.drain(within))
    }

    /// Releases all locks held through this client and its clones, and then closes the backend.
    ///
    /// The method blocks for at most `within` plus the time that the backend needs to close.
    /// Threads that are waiting for a lock get [`ErrorKind::Closed`](crate::ErrorKind::Closed).
    ///
    /// # Errors
    ///
    /// Returns the same errors as [`LockClient::shutdown`](crate::LockClient::shutdown), and
    /// [`ErrorKind::Unsupported`](crate::ErrorKind::Unsupported) if called from [async
    /// code](super).
    pub fn shutdown(&self, within: Duration) -> Result<(), Error> {
        self.background.block_on(self.client.shutdown(within))
    }
}
