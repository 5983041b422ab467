//! The client, which hands out locks by name.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use crate::admin::{Admin, Revocation};
use crate::clock::{Clock, Instant, SystemClock};
use crate::contract::backend::LockBackend;
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

/// The entry point: creates locks by name on one store.
///
/// Create one client per store and process, and clone it. Clones are cheap and share everything: their callers wait in the same queue, and
/// their leases are renewed in the same requests.
///
/// The client needs tokio. A background task renews leases and releases the locks of dropped guards. The client starts one on each tokio
/// runtime that uses it, and the tasks share the work, so leases are renewed as long as one of these runtimes runs. A task ends when all
/// clones and guards are dropped, or with its runtime. When the last runtime ends, it waits for the releases of dropped guards, for at most
/// 2 s. [`drain`](Self::drain) and [`shutdown`](Self::shutdown) end a client in order.
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
    /// Creates a client with the default options. This does no I/O, and does not need a runtime yet.
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

    /// Starts to build a client with options, observers or a clock of your choice. See [`Builder`] for an example.
    pub fn builder(backend: B) -> Builder<B> {
        Builder::new(backend)
    }

    /// Returns this client without its backend's type, so that a struct or a list can hold clients of different stores.
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
    /// Returns the mutex `key`, which one holder at a time can acquire. See [`Mutex`] for an example, and for the choice of a lock type.
    ///
    /// # Errors
    ///
    /// Returns [`ErrorKind::Invalid`](crate::ErrorKind::Invalid) if the key or an option of the client is invalid, and
    /// [`ErrorKind::Unsupported`](crate::ErrorKind::Unsupported) if the store does not support an option.
    pub fn mutex(&self, key: impl IntoKey) -> Result<Mutex, Error> {
        Mutex::new(Arc::clone(&self.engine), key.into_key()?, self.engine.options())
    }

    /// Returns the mutex `key`, which its [owner](crate::OwnerId) can acquire again while holding it. See [`ReentrantMutex`] for an example.
    ///
    /// It is the same lock as [`mutex`](Self::mutex) with this key: a holder of one excludes the holders of the other.
    ///
    /// # Errors
    ///
    /// Returns [`ErrorKind::Invalid`](crate::ErrorKind::Invalid) if the key or an option of the client is invalid, and
    /// [`ErrorKind::Unsupported`](crate::ErrorKind::Unsupported) if the store does not support an option.
    pub fn reentrant_mutex(&self, key: impl IntoKey) -> Result<ReentrantMutex, Error> {
        ReentrantMutex::new(Arc::clone(&self.engine), key.into_key()?, self.engine.options())
    }

    /// Returns the reader-writer lock `key`, which many readers or one writer can hold. See [`RwLock`] for an example.
    ///
    /// # Errors
    ///
    /// Returns [`ErrorKind::Invalid`](crate::ErrorKind::Invalid) if the key or an option of the client is invalid, and
    /// [`ErrorKind::Unsupported`](crate::ErrorKind::Unsupported) if the store does not have [`Feature::Units`](crate::backend::Feature::Units) and [`Feature::Queue`](crate::backend::Feature::Queue).
    pub fn rw_lock(&self, key: impl IntoKey) -> Result<RwLock, Error> {
        RwLock::new(Arc::clone(&self.engine), key.into_key()?, self.engine.options())
    }

    /// Returns the semaphore `key` with `limit` permits. See [`Semaphore`] for an example.
    ///
    /// # Errors
    ///
    /// Returns [`ErrorKind::Invalid`](crate::ErrorKind::Invalid) if the key or an option of the client is invalid, or if `limit` is 0 or above [`Semaphore::MAX_LIMIT`], and
    /// [`ErrorKind::Unsupported`](crate::ErrorKind::Unsupported) if the store does not have [`Feature::Units`](crate::backend::Feature::Units).
    pub fn semaphore(&self, key: impl IntoKey, limit: u32) -> Result<Semaphore, Error> {
        Semaphore::new(Arc::clone(&self.engine), key.into_key()?, self.engine.options(), limit)
    }

    /// Returns a lock for several keys, all or none. It is empty: add parts with [`MultiLock::mutex`] and similar methods. See [`MultiLock`] for
    /// an example.
    pub fn multi_lock(&self) -> MultiLock {
        MultiLock::new(Arc::clone(&self.engine), self.engine.options())
    }

    /// Returns the resource `key`, divided into `segments` segments, of which a caller acquires any one. See [`Striped`] for an example.
    ///
    /// # Errors
    ///
    /// Returns [`ErrorKind::Invalid`](crate::ErrorKind::Invalid) if the key or an option of the client is invalid, if `segments` is 0 or above [`Striped::MAX_SEGMENTS`], or if `key` is too long for the names of the segments (`<key>/0` and so on), and
    /// [`ErrorKind::Unsupported`](crate::ErrorKind::Unsupported) if the store does not support an option.
    pub fn striped(&self, key: impl IntoKey, segments: u32) -> Result<Striped, Error> {
        Striped::new(Arc::clone(&self.engine), key.into_key()?, self.engine.options(), segments)
    }

    /// Returns the election `key`, in which one candidate at a time leads and publishes a value. See [`Election`] for an example.
    ///
    /// # Errors
    ///
    /// Returns [`ErrorKind::Invalid`](crate::ErrorKind::Invalid) if the key or an option of the client is invalid, and
    /// [`ErrorKind::Unsupported`](crate::ErrorKind::Unsupported) if the store does not have [`Feature::Units`](crate::backend::Feature::Units), [`Feature::Queue`](crate::backend::Feature::Queue) and [`Feature::Inspect`](crate::backend::Feature::Inspect).
    pub fn election(&self, key: impl IntoKey) -> Result<Election, Error> {
        Election::new(Arc::clone(&self.engine), key.into_key()?, self.engine.options())
    }

    /// Asks the current holders of `key` to finish early: their
    /// [`LockGuard::revocation_requested`](crate::LockGuard::revocation_requested) returns.
    ///
    /// The holders keep their leases until they release them. To end a lease without its holder's consent, use [`Admin::force_release`].
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
    /// Returns [`ErrorKind::Unsupported`](crate::ErrorKind::Unsupported) if the store does not have
    /// [`Feature::Revocation`](crate::backend::Feature::Revocation), and otherwise the error of the store.
    ///
    /// # Cancel safety
    ///
    /// This method is cancel safe. If it is dropped, the store may have recorded the request.
    pub async fn request_revocation(&self, key: impl IntoKey) -> Result<Revocation, Error> {
        self.engine.store()?.request_revocation(&key.into_key()?, None).await
    }

    /// Returns the tools for operators, which inspect keys and release the leases of other clients. See [`Admin`] for an example.
    pub fn admin(&self) -> Admin {
        Admin::new(Arc::clone(&self.engine))
    }

    /// Returns the options of the client, as a start for the options of one lock.
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

    /// Returns the backend, for example for its [capabilities](LockBackend::capabilities).
    pub fn backend(&self) -> &B {
        &self.backend
    }

    /// Returns the current time on the client's clock. [Deadlines](crate::LockGuard::deadline) are instants of this clock. See
    /// [`Instant`](crate::clock::Instant) for an example.
    pub fn now(&self) -> Instant {
        self.engine.now()
    }

    /// Asks the store whether it serves, by one cheap request that changes nothing: for probes of readiness.
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
    /// [`ErrorKind::Unavailable`](crate::ErrorKind::Unavailable) if no answer arrives `within` that time, and
    /// [`ErrorKind::Closed`](crate::ErrorKind::Closed) after [`shutdown`](Self::shutdown). Else the error of the store: with
    /// [`ErrorKind::Denied`](crate::ErrorKind::Denied), for example, the store serves, but not this client.
    ///
    /// # Cancel safety
    ///
    /// This method is cancel safe.
    pub async fn ping(&self, within: Duration) -> Result<(), Error> {
        self.engine.ping(within).await
    }

    /// Refuses new acquisitions, and waits until everything that this client and its clones hold is released.
    ///
    /// Use it when a service stops: work under a lock may finish, and its leases are renewed until then. Calls that are waiting for a lock,
    /// and all later calls, fail with [`ErrorKind::Closed`](crate::ErrorKind::Closed), including calls of owners that hold the lock already.
    /// [`ping`](Self::ping) fails as well, so that a readiness probe takes the service out of rotation. A drained client cannot be used
    /// again: call [`shutdown`](Self::shutdown) next, which also ends the work that did not finish in time.
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
    /// Returns [`ErrorKind::Timeout`](crate::ErrorKind::Timeout) if a lease is still held, or a release is not confirmed, after `within`.
    /// The leases stay in force.
    ///
    /// # Cancel safety
    ///
    /// This method is cancel safe. If it is dropped, the client still refuses new acquisitions.
    pub async fn drain(&self, within: Duration) -> Result<(), Error> {
        self.engine.drain(within).await
    }

    /// Releases everything held through this client and its clones, then closes the backend.
    ///
    /// Guards report [`LossReason::Shutdown`](crate::LossReason::Shutdown) before their leases are released. Calls that are waiting for a
    /// lock, and all later calls, fail with [`ErrorKind::Closed`](crate::ErrorKind::Closed). To let work under a lock finish first, call
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
    /// [`ErrorKind::Indeterminate`](crate::ErrorKind::Indeterminate) if the store did not confirm all releases `within` that time.
    /// `shutdown` also waits for calls under way, because the store may still grant them. A future that is neither polled to its
    /// end nor dropped delays `shutdown` for the full time.
    ///
    /// # Cancel safety
    ///
    /// Dropped early, the releases go on in the background, and the backend is not closed.
    pub async fn shutdown(&self, within: Duration) -> Result<(), Error> {
        self.engine.shutdown(within).await
    }

    /// How many entries each of its maps has. All are empty while its callers hold nothing and want nothing, and no release is owed.
    #[cfg(feature = "_simulation")]
    pub fn entries(&self) -> [(&'static str, usize); 4] {
        self.engine.entries()
    }

    /// The reaper, which releases dropped guards.
    #[cfg(feature = "blocking")]
    pub(crate) fn reaper(&self) -> &Arc<crate::engine::reaper::Reaper> {
        self.engine.reaper()
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

/// Makes a [`LockClient`] with options of its own.
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
    /// More callers of one process that want one key at once are a leak or an attack.
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

    /// The options of all locks that are not given others.
    #[must_use]
    pub fn options(mut self, options: LockOptions) -> Self {
        self.options = options;
        self
    }

    /// The clock that deadlines are counted on. Default: [`SystemClock`].
    #[must_use]
    pub fn clock(mut self, clock: impl Clock) -> Self {
        self.clock = Arc::new(clock);
        self
    }

    /// How many callers of this process may wait for one key at once, those included that are asking the store; more are refused with
    /// [`ErrorKind::TooManyWaiters`](crate::ErrorKind::TooManyWaiters). Holders do not count, and attempts without a wait are not
    /// refused. Default: [`Builder::DEFAULT_MAX_WAITERS`].
    #[must_use]
    pub fn max_waiters(mut self, limit: usize) -> Self {
        self.max_waiters = limit;
        self
    }

    /// Tells `observer` of all that happens to the client's locks. A client may have several observers, which it tells in this order.
    #[must_use]
    pub fn observer(mut self, observer: impl Observer) -> Self {
        self.settings.observers.push(Box::new(observer));
        self
    }

    /// After how long a call that still waits is told of, once, at the level `info`. Default: 30 s. [`Duration::MAX`] is never.
    #[must_use]
    pub fn long_wait(mut self, time: Duration) -> Self {
        self.settings.long_wait = time;
        self
    }

    /// After how long a lock that is still held is told of, once, at the level `warn`, when the lease is renewed next. Elections are
    /// exempt. Default: 5 min. [`Duration::MAX`] is never.
    #[must_use]
    pub fn long_hold(mut self, time: Duration) -> Self {
        self.settings.long_hold = time;
        self
    }

    /// Creates the client. It does no I/O and needs no runtime yet.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Invalid`](crate::ErrorKind::Invalid) or [`ErrorKind::Unsupported`](crate::ErrorKind::Unsupported) if the options are not possible, or not on this store;
    /// [`ErrorKind::Invalid`](crate::ErrorKind::Invalid) if no caller may wait.
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
