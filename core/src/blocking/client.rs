//! The client, which hands out locks by name.

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

/// Hands out locks by name: the [`LockClient`](crate::LockClient) of code without a runtime.
///
/// Clones are cheap and share everything, the background thread included. Any number of threads may use
/// one client.
#[derive(Clone, Debug)]
pub struct LockClient {
    client: crate::LockClient,
    background: Background,
}

impl LockClient {
    /// Creates a client with default options, over a backend that is connected to nothing.
    ///
    /// It does no I/O, and may be called anywhere.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Unavailable`](crate::ErrorKind::Unavailable) if the system gives us no thread.
    pub fn new(backend: impl LockBackend) -> Result<Self, Error> {
        let background = Background::start()?;
        Ok(Self::with_background(crate::LockClient::new(backend).into_dyn(), background))
    }

    /// Creates the client that `build` makes, with options of its own or a backend that connects.
    ///
    /// Blocks until `build` has ended. It runs inside the background runtime, since the connections
    /// that it opens must stay there. No other code may use the client that it makes.
    ///
    /// # Errors
    ///
    /// The errors of `build`, and of [`new`](Self::new).
    /// [`ErrorKind::Unsupported`](crate::ErrorKind::Unsupported) in [async code](super).
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
    pub fn from_async(
        build: impl AsyncFnOnce() -> Result<crate::LockClient, Error>,
    ) -> Result<Self, Error> {
        let background = Background::start()?;
        let client = background.block_on(build())?;
        Ok(Self::with_background(client, background))
    }

    fn with_background(client: crate::LockClient, background: Background) -> Self {
        let background = background.working_for(client.reaper());
        Self { client, background }
    }

    /// The mutex `key`: one holder at a time, which cannot enter again.
    ///
    /// # Errors
    ///
    /// Returns the errors of [`LockClient::mutex`](crate::LockClient::mutex).
    pub fn mutex(&self, key: impl IntoKey) -> Result<Mutex, Error> {
        Ok(Mutex::new(self.client.mutex(key)?, self.background.clone()))
    }

    /// The mutex `key`, which the thread that holds it may enter again.
    ///
    /// # Errors
    ///
    /// Returns the errors of [`LockClient::reentrant_mutex`](crate::LockClient::reentrant_mutex).
    pub fn reentrant_mutex(&self, key: impl IntoKey) -> Result<ReentrantMutex, Error> {
        Ok(ReentrantMutex::new(self.client.reentrant_mutex(key)?, self.background.clone()))
    }

    /// The reader-writer lock `key`: many readers, or one writer.
    ///
    /// # Errors
    ///
    /// Returns the errors of [`LockClient::rw_lock`](crate::LockClient::rw_lock).
    pub fn rw_lock(&self, key: impl IntoKey) -> Result<RwLock, Error> {
        Ok(RwLock::new(self.client.rw_lock(key)?, self.background.clone()))
    }

    /// The semaphore `key` with so many permits.
    ///
    /// # Errors
    ///
    /// Returns the errors of [`LockClient::semaphore`](crate::LockClient::semaphore).
    pub fn semaphore(&self, key: impl IntoKey, limit: u32) -> Result<Semaphore, Error> {
        Ok(Semaphore::new(self.client.semaphore(key, limit)?, self.background.clone()))
    }

    /// Several locks that are taken all or none. It has no part yet.
    pub fn multi_lock(&self) -> MultiLock {
        MultiLock::new(self.client.multi_lock(), self.background.clone())
    }

    /// The resource `key`, split into so many `segments`, of which callers take any one.
    ///
    /// # Errors
    ///
    /// Returns the errors of [`LockClient::striped`](crate::LockClient::striped).
    pub fn striped(&self, key: impl IntoKey, segments: u32) -> Result<Striped, Error> {
        Ok(Striped::new(self.client.striped(key, segments)?, self.background.clone()))
    }

    /// The election `key`: one leader, which proclaims a value.
    ///
    /// # Errors
    ///
    /// Returns the errors of [`LockClient::election`](crate::LockClient::election).
    pub fn election(&self, key: impl IntoKey) -> Result<Election, Error> {
        Ok(Election::new(self.client.election(key)?, self.background.clone()))
    }

    /// Asks the present holders of `key` to finish early: see
    /// [`Guard::is_revocation_requested`](super::Guard::is_revocation_requested).
    ///
    /// Blocks until the store has answered.
    ///
    /// # Errors
    ///
    /// Returns the errors of [`LockClient::request_revocation`](crate::LockClient::request_revocation), and
    /// [`ErrorKind::Unsupported`](crate::ErrorKind::Unsupported) in [async code](super).
    pub fn request_revocation(&self, key: impl IntoKey) -> Result<Revocation, Error> {
        self.background.block_on(self.client.request_revocation(key))
    }

    /// The operators' side: look into a key, and end leases of other clients.
    pub fn admin(&self) -> Admin {
        Admin::new(self.client.admin(), self.background.clone())
    }

    /// The client's options, to start those of a lock from.
    pub fn options(&self) -> LockOptions {
        self.client.options()
    }

    /// The time now, on the clock that [deadlines](super::Guard::deadline) are counted on.
    pub fn now(&self) -> Instant {
        self.client.now()
    }

    /// Asks the store whether it serves, and blocks until it has answered, for at most `within`. See [`LockClient::ping`](crate::LockClient::ping).
    ///
    /// # Errors
    ///
    /// Returns the errors of [`LockClient::ping`](crate::LockClient::ping), and [`ErrorKind::Unsupported`](crate::ErrorKind::Unsupported) in
    /// [async code](super).
    pub fn ping(&self, within: Duration) -> Result<(), Error> {
        self.background.block_on(self.client.ping(within))
    }

    /// Refuses new acquisitions, and blocks until everything that this client and its clones hold is released, for at most `within`.
    ///
    /// See [`LockClient::drain`](crate::LockClient::drain) for an example. Call it from a thread that holds no lock.
    ///
    /// # Errors
    ///
    /// Returns the errors of [`LockClient::drain`](crate::LockClient::drain), and
    /// [`ErrorKind::Unsupported`](crate::ErrorKind::Unsupported) in [async code](super).
    pub fn drain(&self, within: Duration) -> Result<(), Error> {
        self.background.block_on(self.client.drain(within))
    }

    /// Releases everything held through this client and its clones, then closes the backend.
    ///
    /// Blocks for at most `within`, and for the time that the backend needs to close. Threads that
    /// wait for a lock return [`ErrorKind::Closed`](crate::ErrorKind::Closed).
    ///
    /// # Errors
    ///
    /// Returns the errors of [`LockClient::shutdown`](crate::LockClient::shutdown), and
    /// [`ErrorKind::Unsupported`](crate::ErrorKind::Unsupported) in [async code](super).
    pub fn shutdown(&self, within: Duration) -> Result<(), Error> {
        self.background.block_on(self.client.shutdown(within))
    }
}
