//! The client, which creates locks by name.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use crate::admin::{Admin, Revocation};
use crate::clock::{Clock, Instant, SystemClock};
use crate::contract::backend::{LockBackend, Operation};
use crate::contract::error::{Error, ErrorKind};
use crate::contract::key::IntoKey;
use crate::engine::pipeline::Engine;
use crate::locks::election::Election;
use crate::locks::multi_lock::MultiLock;
use crate::locks::mutex::Mutex;
use crate::locks::reentrant_mutex::ReentrantMutex;
use crate::locks::rw_lock::RwLock;
use crate::locks::semaphore::Semaphore;
use crate::locks::striped::Striped;
use crate::observe::{Events, Observer, Settings};
use crate::options::LockOptions;

/// The entry point of Leasehold, which creates named locks in a store.
///
/// In each process, create one client per store, and clone the client as needed. Clones of a client
/// are cheap and share all of its state, including its queue of waiting callers and the renewal of
/// leases.
///
/// The client requires tokio. A background task renews leases and releases the locks of dropped
/// guards. The client starts one background task on each tokio runtime that uses it. Leases are
/// renewed as long as at least one of the runtimes that use the client is running. A client's
/// background task ends when all clones and guards of the client have been dropped, or when the
/// task's runtime shuts down. When the last runtime that uses the client shuts down, the shutdown
/// waits up to 2 s for the locks of dropped guards to be released. To stop a client gracefully,
/// call [`drain`](Self::drain) and then [`shutdown`](Self::shutdown).
///
/// ```
/// # tokio::runtime::Builder::new_current_thread().enable_all().build()?.block_on(async {
/// use leasehold_core::LockClient;
/// use leasehold_core::memory::MemoryBackend;
///
/// let client = LockClient::new(MemoryBackend::new());
/// let guard = client.mutex("invoice:42")?.lock().await?;
/// println!("held, token {}", guard.token());
/// guard.release().await?;
/// # Ok::<(), leasehold_core::Error>(())
/// # })?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct LockClient<B: LockBackend + ?Sized = dyn LockBackend> {
    backend: Arc<B>,
    engine: Arc<Engine>,
}

impl<B: LockBackend> LockClient<B> {
    /// Creates a client with the default options. Creating a client performs no I/O and does not
    /// require a runtime.
    ///
    /// ```
    /// use leasehold_core::LockClient;
    /// use leasehold_core::memory::MemoryBackend;
    ///
    /// let client = LockClient::new(MemoryBackend::new());
    /// assert_eq!(client.options(), leasehold_core::LockOptions::new());
    /// ```
    pub fn new(backend: B) -> Self {
        Builder::new(backend).assemble()
    }

    /// Returns a builder for a client with custom options, observers or a custom clock. See
    /// [`Builder`] for an example.
    pub fn builder(backend: B) -> Builder<B> {
        Builder::new(backend)
    }

    /// Erases the type of the client's backend, so that a struct or a list can hold clients of
    /// different stores.
    ///
    /// ```
    /// use leasehold_core::LockClient;
    /// use leasehold_core::memory::MemoryBackend;
    ///
    /// struct AppState {
    ///     locks: LockClient, // of any store
    /// }
    ///
    /// let state = AppState { locks: LockClient::new(MemoryBackend::new()).into_dyn() };
    /// assert_eq!(state.locks.backend().capabilities().name(), "memory");
    /// ```
    pub fn into_dyn(self) -> LockClient {
        LockClient { backend: self.backend, engine: self.engine }
    }
}

impl<B: LockBackend + ?Sized> LockClient<B> {
    /// Returns the mutex named `key`, which only one holder at a time can acquire. See [`Mutex`]
    /// for an example and for advice on choosing a lock type.
    ///
    /// # Errors
    ///
    /// Returns [`ErrorKind::Invalid`](crate::ErrorKind::Invalid) if the key or an option of the
    /// client is invalid. Returns [`ErrorKind::Unsupported`](crate::ErrorKind::Unsupported) if the
    /// store does not support one of the options.
    pub fn mutex(&self, key: impl IntoKey) -> Result<Mutex, Error> {
        Mutex::new(Arc::clone(&self.engine), key.into_key()?, self.engine.options())
    }

    /// Returns the reentrant mutex named `key`, which its [owner](crate::OwnerId) can acquire again
    /// while holding it. See [`ReentrantMutex`] for an example.
    ///
    /// A reentrant mutex and a [`mutex`](Self::mutex) with the same key are the same lock in the
    /// store, so they exclude each other.
    ///
    /// # Errors
    ///
    /// Returns [`ErrorKind::Invalid`](crate::ErrorKind::Invalid) if the key or an option of the
    /// client is invalid. Returns [`ErrorKind::Unsupported`](crate::ErrorKind::Unsupported) if the
    /// store does not support one of the options.
    pub fn reentrant_mutex(&self, key: impl IntoKey) -> Result<ReentrantMutex, Error> {
        ReentrantMutex::new(Arc::clone(&self.engine), key.into_key()?, self.engine.options())
    }

    /// Returns the reader-writer lock named `key`, which either many readers or one writer can
    /// hold. See [`RwLock`] for an example.
    ///
    /// # Errors
    ///
    /// Returns [`ErrorKind::Invalid`](crate::ErrorKind::Invalid) if the key or an option of the
    /// client is invalid. Returns [`ErrorKind::Unsupported`](crate::ErrorKind::Unsupported) if the
    /// store lacks [`Feature::Units`](crate::backend::Feature::Units) or
    /// [`Feature::Queue`](crate::backend::Feature::Queue).
    pub fn rw_lock(&self, key: impl IntoKey) -> Result<RwLock, Error> {
        RwLock::new(Arc::clone(&self.engine), key.into_key()?, self.engine.options())
    }

    /// Returns the semaphore named `key` with `limit` permits. See [`Semaphore`] for an example.
    ///
    /// # Errors
    ///
    /// Returns [`ErrorKind::Invalid`](crate::ErrorKind::Invalid) if the key or an option of the
    /// client is invalid, or if `limit` is 0 or greater than [`Semaphore::MAX_LIMIT`]. Returns
    /// [`ErrorKind::Unsupported`](crate::ErrorKind::Unsupported) if the store does not support
    /// [`Feature::Units`](crate::backend::Feature::Units).
    pub fn semaphore(&self, key: impl IntoKey, limit: u32) -> Result<Semaphore, Error> {
        Semaphore::new(Arc::clone(&self.engine), key.into_key()?, self.engine.options(), limit)
    }

    /// Returns an empty multi-lock, which acquires either all of its keys or none of them. Add keys
    /// to the multi-lock with [`MultiLock::mutex`] and similar methods. See [`MultiLock`] for an
    /// example.
    pub fn multi_lock(&self) -> MultiLock {
        MultiLock::new(Arc::clone(&self.engine), self.engine.options())
    }

    /// Returns the striped lock named `key`, which has `segments` segments. A caller of a striped
    /// lock acquires any free segment. See [`Striped`] for an example.
    ///
    /// # Errors
    ///
    /// Returns [`ErrorKind::Invalid`](crate::ErrorKind::Invalid) if the key or an option of the
    /// client is invalid, if `segments` is 0 or greater than [`Striped::MAX_SEGMENTS`], or if `key`
    /// is too long for the names of the segments (`<key>/0` and so on). Returns
    /// [`ErrorKind::Unsupported`](crate::ErrorKind::Unsupported) if the store does not support one
    /// of the options.
    pub fn striped(&self, key: impl IntoKey, segments: u32) -> Result<Striped, Error> {
        Striped::new(Arc::clone(&self.engine), key.into_key()?, self.engine.options(), segments)
    }

    /// Returns the election named `key`, in which one candidate at a time is the leader and
    /// publishes a value. See [`Election`] for an example.
    ///
    /// # Errors
    ///
    /// Returns [`ErrorKind::Invalid`](crate::ErrorKind::Invalid) if the key or an option of the
    /// client is invalid. Returns [`ErrorKind::Unsupported`](crate::ErrorKind::Unsupported) if the
    /// store does not support [`Feature::Units`](crate::backend::Feature::Units),
    /// [`Feature::Queue`](crate::backend::Feature::Queue) and
    /// [inspection](crate::backend::StoreAdmin::inspect).
    pub fn election(&self, key: impl IntoKey) -> Result<Election, Error> {
        Election::new(Arc::clone(&self.engine), key.into_key()?, self.engine.options())
    }

    /// Asks the current holders of `key` to finish early.
    ///
    /// A revocation request notifies each holder through
    /// [`LockGuard::revocation_requested`](crate::LockGuard::revocation_requested), but the holder
    /// keeps its lease until it decides to release the lease. To end a lease without its holder's
    /// consent, use [`Admin::force_release`].
    ///
    /// ```
    /// # tokio::runtime::Builder::new_current_thread().enable_all().build()?.block_on(async {
    /// use leasehold_core::LockClient;
    /// use leasehold_core::memory::MemoryBackend;
    ///
    /// let client = LockClient::new(MemoryBackend::new());
    /// let guard = client.mutex("batch")?.lock().await?;
    /// client.request_revocation("batch").await?;
    /// assert!(guard.revocation_requested().await);
    /// guard.release().await?;
    /// # Ok::<(), leasehold_core::Error>(())
    /// # })?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    ///
    /// Returns [`ErrorKind::Unsupported`](crate::ErrorKind::Unsupported) if the store does not
    /// support revocation requests. Returns the store's error if the request fails.
    ///
    /// # Cancel safety
    ///
    /// This method is cancel safe. If the future is dropped, the store may or may not have recorded
    /// the request.
    pub async fn request_revocation(&self, key: impl IntoKey) -> Result<Revocation, Error> {
        let admin = self.engine.admin(Operation::RequestRevocation)?;
        admin.request_revocation(&key.into_key()?, None).await
    }

    /// Returns the operator tools, which inspect keys and end other clients' leases. See [`Admin`]
    /// for an example.
    pub fn admin(&self) -> Admin {
        Admin::new(Arc::clone(&self.engine))
    }

    /// Returns the options of the client, as a starting point for the options of a single lock.
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
    pub fn options(&self) -> LockOptions {
        LockOptions::clone(&self.engine.options())
    }

    /// Returns the backend, for example to read its [capabilities](LockBackend::capabilities).
    pub fn backend(&self) -> &B {
        &self.backend
    }

    /// Returns the current time of the client's clock. [Deadlines](crate::LockGuard::deadline) are
    /// points in time on the client's clock. See [`Instant`](crate::clock::Instant) for an example.
    pub fn now(&self) -> Instant {
        self.engine.now()
    }

    /// Checks whether the store responds, by sending one cheap request that changes nothing. Use
    /// `ping` in readiness probes.
    ///
    /// ```
    /// # tokio::runtime::Builder::new_current_thread().enable_all().build()?.block_on(async {
    /// use std::time::Duration;
    /// use leasehold_core::LockClient;
    /// use leasehold_core::memory::MemoryBackend;
    ///
    /// let client = LockClient::new(MemoryBackend::new());
    /// let is_ready = client.ping(Duration::from_secs(1)).await.is_ok();
    /// assert!(is_ready);
    /// # Ok::<(), leasehold_core::Error>(())
    /// # })?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    ///
    /// Returns [`ErrorKind::Unavailable`](crate::ErrorKind::Unavailable) if the store does not
    /// reply within the given time. Returns [`ErrorKind::Closed`](crate::ErrorKind::Closed) after
    /// [`drain`](Self::drain) or [`shutdown`](Self::shutdown). Returns the store's error if the
    /// request fails. For example, [`ErrorKind::Denied`](crate::ErrorKind::Denied) means that the
    /// store responds but rejects this client.
    ///
    /// # Cancel safety
    ///
    /// This method is cancel safe.
    pub async fn ping(&self, within: Duration) -> Result<(), Error> {
        self.engine.ping(within).await
    }

    /// Rejects new acquisitions, and waits until all locks held through this client and its clones
    /// have been released.
    ///
    /// Call `drain` when a service stops. Work under locks that are already held can finish, and
    /// the client keeps renewing their leases. Calls that are waiting for a lock, and all later
    /// calls, fail with [`ErrorKind::Closed`](crate::ErrorKind::Closed), even if the caller already
    /// owns the lock. [`ping`](Self::ping) also fails, so that a readiness probe takes the service
    /// out of rotation. A drained client cannot be used again. After `drain`, call
    /// [`shutdown`](Self::shutdown), which also releases the locks of work that did not finish in
    /// time.
    ///
    /// ```
    /// # tokio::runtime::Builder::new_current_thread().enable_all().build()?.block_on(async {
    /// use std::time::Duration;
    /// use leasehold_core::memory::MemoryBackend;
    /// use leasehold_core::{ErrorKind, LockClient};
    ///
    /// let client = LockClient::new(MemoryBackend::new());
    /// let job = client.mutex("job")?;
    /// let guard = job.lock().await?;
    /// let work = tokio::spawn(async move {
    ///     tokio::time::sleep(Duration::from_millis(20)).await; // the work
    ///     guard.release().await
    /// });
    ///
    /// // On SIGTERM: let running work finish, and abort the rest.
    /// if let Err(error) = client.drain(Duration::from_secs(20)).await {
    ///     eprintln!("{error}");
    /// }
    /// client.shutdown(Duration::from_secs(5)).await?;
    ///
    /// assert!(work.await.unwrap().is_ok());
    /// assert_eq!(job.lock().await.unwrap_err().kind(), ErrorKind::Closed);
    /// # Ok::<(), leasehold_core::Error>(())
    /// # })?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    ///
    /// Returns [`ErrorKind::Timeout`](crate::ErrorKind::Timeout) if a lease is still held or a
    /// release is still unconfirmed after `within`. If `drain` times out, the leases that are still
    /// held remain valid.
    ///
    /// # Cancel safety
    ///
    /// This method is cancel safe. If the future is dropped, the client still rejects new
    /// acquisitions.
    pub async fn drain(&self, within: Duration) -> Result<(), Error> {
        self.engine.drain(within).await
    }

    /// Releases all locks held through this client and its clones, and then closes the backend.
    ///
    /// Guards report [`LossReason::Shutdown`](crate::LossReason::Shutdown) before their leases are
    /// released. Calls that are waiting for a lock, and all later calls, fail with
    /// [`ErrorKind::Closed`](crate::ErrorKind::Closed). To allow running work to finish first, call
    /// [`drain`](Self::drain).
    ///
    /// ```
    /// # tokio::runtime::Builder::new_current_thread().enable_all().build()?.block_on(async {
    /// use std::time::Duration;
    /// use leasehold_core::memory::MemoryBackend;
    /// use leasehold_core::{ErrorKind, LockClient, LossReason};
    ///
    /// let client = LockClient::new(MemoryBackend::new());
    /// let job = client.mutex("job")?;
    /// let guard = job.lock().await?;
    /// client.shutdown(Duration::from_secs(5)).await?; // on SIGTERM, after the last request
    /// assert_eq!(guard.lost().await, Some(LossReason::Shutdown));
    /// assert_eq!(job.lock().await.unwrap_err().kind(), ErrorKind::Closed);
    /// # Ok::<(), leasehold_core::Error>(())
    /// # })?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    ///
    /// Returns [`ErrorKind::Indeterminate`](crate::ErrorKind::Indeterminate) if the store did not
    /// confirm all releases within the given time. `shutdown` also waits for calls in progress,
    /// because the store may still grant their requests. If a pending `lock` future is neither
    /// polled nor dropped, `shutdown` waits until `within` has passed.
    ///
    /// # Cancel safety
    ///
    /// If the future is dropped, the releases continue in the background, but the backend is not
    /// closed.
    pub async fn shutdown(&self, within: Duration) -> Result<(), Error> {
        self.engine.shutdown(within).await
    }

    /// Returns the number of entries in each of the client's maps. All maps are empty if no caller
    /// holds or waits for a lock and no release is pending.
    #[cfg(feature = "_simulation")]
    pub fn entries(&self) -> [(&'static str, usize); 4] {
        self.engine.entries()
    }

    /// Returns the queue of releases, which releases the locks of dropped guards.
    #[cfg(feature = "blocking")]
    pub(crate) fn releases(&self) -> &Arc<crate::engine::releases::ReleaseQueue> {
        self.engine.releases()
    }
}

impl<B: LockBackend + ?Sized> Clone for LockClient<B> {
    fn clone(&self) -> Self {
        Self { backend: Arc::clone(&self.backend), engine: Arc::clone(&self.engine) }
    }
}

impl<B: LockBackend + ?Sized> fmt::Debug for LockClient<B> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LockClient")
            .field("backend", &&*self.backend)
            .field("options", &self.engine.options())
            .finish_non_exhaustive()
    }
}

/// Builds a [`LockClient`] with custom settings.
///
/// ```
/// use std::time::Duration;
/// use leasehold_core::memory::MemoryBackend;
/// use leasehold_core::{LockClient, LockOptions};
///
/// let client: LockClient = LockClient::builder(MemoryBackend::new())
///     .options(LockOptions::new().ttl(Duration::from_secs(10)).wait(Duration::from_secs(2)))
///     .max_waiters(100) // per key, in this process
///     .long_hold(Duration::from_secs(60))
///     .build()?
///     .into_dyn();
/// # let _ = client;
/// # Ok::<(), leasehold_core::Error>(())
/// ```
#[derive(Debug)]
pub struct Builder<B> {
    backend: B,
    options: LockOptions,
    clock: Arc<dyn Clock>,
    max_waiters: usize,
    settings: Settings,
}

impl<B: LockBackend> Builder<B> {
    /// The default limit for [`max_waiters`](Self::max_waiters). If more callers than the default
    /// limit wait for the same key, the process usually has a leak or is under attack.
    pub const DEFAULT_MAX_WAITERS: usize = 10_000;

    fn new(backend: B) -> Self {
        Self {
            backend,
            options: LockOptions::default(),
            clock: Arc::new(SystemClock),
            max_waiters: Self::DEFAULT_MAX_WAITERS,
            settings: Settings::default(),
        }
    }

    /// Sets the options of all locks that do not set their own options.
    #[must_use]
    pub fn options(mut self, options: LockOptions) -> Self {
        self.options = options;
        self
    }

    /// Sets the clock from which deadlines are computed. The default is [`SystemClock`].
    #[must_use]
    pub fn clock(mut self, clock: impl Clock) -> Self {
        self.clock = Arc::new(clock);
        self
    }

    /// Sets how many callers of this process may wait for the same key at the same time. The
    /// default is [`Builder::DEFAULT_MAX_WAITERS`].
    ///
    /// Additional callers are rejected with
    /// [`ErrorKind::TooManyWaiters`](crate::ErrorKind::TooManyWaiters). Callers whose request to
    /// the store is in progress count as waiting, but holders do not. The limit on waiting callers
    /// does not apply to calls that do not wait, such as `try_lock`.
    #[must_use]
    pub fn max_waiters(mut self, limit: usize) -> Self {
        self.max_waiters = limit;
        self
    }

    /// Adds an observer, which receives the events of all locks of the client. A client can have
    /// several observers, which are called in the order in which they were added.
    #[must_use]
    pub fn observer(mut self, observer: impl Observer) -> Self {
        self.settings.observers.push(Box::new(observer));
        self
    }

    /// Sets how long a call may wait before the client reports a long wait. The client reports each
    /// call at most once, at level `info`. By default, the client reports a call that has waited
    /// for 30 s. [`Duration::MAX`] disables the report.
    #[must_use]
    pub fn long_wait(mut self, time: Duration) -> Self {
        self.settings.long_wait = time;
        self
    }

    /// Sets how long a lock may be held before the client reports a long hold. The client reports
    /// each holder at most once, at level `warn`, when the holder first renews the lease after this
    /// time. The leader of an election is never reported, because a leader keeps its lock as long
    /// as it can. By default, the client reports a lock that has been held for 5 min.
    /// [`Duration::MAX`] disables the report.
    #[must_use]
    pub fn long_hold(mut self, time: Duration) -> Self {
        self.settings.long_hold = time;
        self
    }

    /// Creates the client. Building a client performs no I/O and does not require a runtime.
    ///
    /// # Errors
    ///
    /// Returns [`ErrorKind::Invalid`](crate::ErrorKind::Invalid) if an option is invalid for this
    /// store, or if [`max_waiters`](Self::max_waiters) is 0. Returns
    /// [`ErrorKind::Unsupported`](crate::ErrorKind::Unsupported) if the store does not support one
    /// of the options.
    pub fn build(self) -> Result<LockClient<B>, Error> {
        if self.max_waiters == 0 {
            let message = "max_waiters must be at least 1";
            return Err(Error::new(ErrorKind::Invalid, message));
        }
        let store = self.backend.capabilities();
        self.options.clone().on(&store).validate(&store)?;
        Ok(self.assemble())
    }

    fn assemble(self) -> LockClient<B> {
        let Self { backend, options, clock, max_waiters, settings } = self;
        let backend = Arc::new(backend);
        let shared = Arc::clone(&backend) as Arc<dyn LockBackend>;
        let store = shared.capabilities();
        let (events, options) =
            (Events::new(store.name(), settings), options.of_client().on(&store));
        let engine = Engine::new(shared, clock, options, max_waiters, events);
        LockClient { backend, engine: Arc::new(engine) }
    }
}
