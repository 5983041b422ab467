//! The multi-lock, which acquires either all of several keys or none.

mod guard;

pub use guard::MultiGuard;

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use futures_util::FutureExt;

use self::guard::lost_error;
use crate::clock::{self, Instant};
use crate::contract::backend::{Feature, Mode, Operation};
use crate::contract::busy::Busy;
use crate::contract::error::{Error, ErrorKind};
use crate::contract::key::{IntoKey, LockKey};
use crate::contract::try_lock_error::TryLockError;
use crate::engine::pipeline::{Engine, Locked, Outcome};
use crate::engine::wait::Wait;
use crate::locks::handle::{Kind, LockHandle};
use crate::locks::semaphore::Semaphore;
use crate::options::LockOptions;

/// Several locks that are acquired together, either all or none.
///
/// A multi-lock consists of parts: mutexes, readers, writers and permits. Each part has a different
/// key. Each part is the same lock that the client would create for that key on its own, so a
/// multi-lock also competes with callers that acquire only one of its keys.
///
/// ```
/// # tokio::runtime::Builder::new_current_thread().enable_all().build()?.block_on(async {
/// use leasehold_core::LockClient;
/// use leasehold_core::memory::MemoryBackend;
///
/// let client = LockClient::new(MemoryBackend::new());
/// let transfer = client.multi_lock().mutexes(["account:2", "account:1"])?.read("rates")?;
///
/// let guard = transfer.lock().await?;
/// assert!(client.mutex("account:1")?.try_lock().await.is_err());
/// assert!(client.rw_lock("rates")?.try_read().await.is_ok());
/// for part in guard.guards() {
///     println!("{} is held, token {}", part.key(), part.token());
/// }
/// guard.release().await?;
///
/// let tokens = transfer.run(async |guard| guard.guards().len()).await?;
/// assert_eq!(tokens, 3);
/// # Ok::<(), leasehold_core::Error>(())
/// # })?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
/// # How the parts are acquired
///
/// If the store supports [`Feature::Together`], the client first requests all parts in a single
/// request. If the store rejects the request for all parts and the caller may wait, the client
/// acquires the parts one by one, in key order. The order in which the parts were added does not
/// matter.
///
/// Because every caller acquires the parts in key order, callers of multi-locks cannot deadlock
/// with each other. However, a caller that already holds one of the keys deadlocks with itself.
/// While a caller waits for one part, it holds all parts that it has already acquired.
///
/// If one part cannot be acquired, the parts that were already acquired are released in reverse
/// order, usually before the call returns. If the store has not confirmed a release by the time the
/// wait ends, the release continues in the background.
///
/// # Options
///
/// - [`LockOptions::wait`] limits the total time spent waiting for all parts.
///
/// - [`Retry::attempts`](crate::retry::Retry::attempts) and [`LockOptions::outage_wait`] apply
///   first to the request for all parts and then to each part separately.
///
/// - [`LockOptions::min_hold`] applies only after all parts are held.
///
/// # Tokens
///
/// Each part has its own lease and fencing token. Send a part's token with every write to the
/// resource that the part's key protects. A multi-lock does not have a single token for all parts,
/// because tokens for different keys cannot be compared.
#[derive(Clone)]
pub struct MultiLock {
    engine: Arc<Engine>,
    options: Arc<LockOptions>,
    /// Sorted by key, because every caller must acquire the parts in this order.
    parts: BTreeMap<LockKey, (LockHandle, Mode)>,
}

impl MultiLock {
    pub(crate) fn new(engine: Arc<Engine>, options: Arc<LockOptions>) -> Self {
        Self { engine, options, parts: BTreeMap::new() }
    }

    /// Returns this multi-lock with different options. The options also apply to keys that are
    /// added to the multi-lock later.
    ///
    /// # Errors
    ///
    /// Returns [`ErrorKind::Invalid`](crate::ErrorKind::Invalid) if the options conflict, and
    /// [`ErrorKind::Unsupported`](crate::ErrorKind::Unsupported) if the store does not support one
    /// of the options.
    pub fn with_options(mut self, options: LockOptions) -> Result<Self, Error> {
        let store = self.engine.backend().capabilities();
        let options = Arc::new(options.on(&store));
        options.validate(&store)?;
        for (handle, _ask) in self.parts.values_mut() {
            *handle = handle.clone().sharing(Arc::clone(&options))?;
        }
        Ok(Self { options, ..self })
    }

    /// Adds the [mutex](crate::LockClient::mutex) named `key`.
    ///
    /// # Errors
    ///
    /// Returns [`ErrorKind::Invalid`] if the key or the options are invalid, or if the multi-lock
    /// already has a part with this key. Returns [`ErrorKind::Unsupported`] if the store does not
    /// support one of the options.
    pub fn mutex(self, key: impl IntoKey) -> Result<Self, Error> {
        let handle = self.handle(key.into_key()?, Kind::Mutex)?;
        self.with(handle, Mode::Exclusive)
    }

    /// Adds a mutex for each key in `keys`.
    ///
    /// # Errors
    ///
    /// Returns the error from [`mutex`](Self::mutex) for the first key that cannot be added.
    pub fn mutexes(self, keys: impl IntoIterator<Item = impl IntoKey>) -> Result<Self, Error> {
        keys.into_iter().try_fold(self, Self::mutex)
    }

    /// Adds a reader of the [reader-writer lock](crate::LockClient::rw_lock) named `key`.
    ///
    /// # Errors
    ///
    /// Returns [`ErrorKind::Invalid`] if the key or the options are invalid, or if the multi-lock
    /// already has a part with this key. Returns [`ErrorKind::Unsupported`] if the store does not
    /// support reader-writer locks or one of the options.
    pub fn read(self, key: impl IntoKey) -> Result<Self, Error> {
        let handle = self.handle(key.into_key()?, Kind::RwLock)?;
        self.with(handle, Mode::READER)
    }

    /// Adds the write lock of the [reader-writer lock](crate::LockClient::rw_lock) named `key`.
    ///
    /// # Errors
    ///
    /// Returns the same errors as [`read`](Self::read).
    pub fn write(self, key: impl IntoKey) -> Result<Self, Error> {
        let handle = self.handle(key.into_key()?, Kind::RwLock)?;
        self.with(handle, Mode::WRITER)
    }

    /// Adds `permits` permits of the [semaphore](crate::LockClient::semaphore) named `key`, which
    /// has `limit` permits in total.
    ///
    /// ```
    /// use leasehold_core::LockClient;
    /// use leasehold_core::memory::MemoryBackend;
    ///
    /// let client = LockClient::new(MemoryBackend::new());
    /// let export = client.multi_lock().write("rates")?.permits("connections", 2, 3)?;
    /// assert_eq!(export.keys().count(), 2);
    /// # Ok::<(), leasehold_core::Error>(())
    /// ```
    ///
    /// # Errors
    ///
    /// Returns [`ErrorKind::Invalid`] if the key or the options are invalid, if the multi-lock
    /// already has a part with this key, or if `permits` is 0 or larger than `limit`. Returns
    /// [`ErrorKind::Unsupported`] if the store does not support semaphores or one of the options.
    pub fn permits(self, key: impl IntoKey, permits: u32, limit: u32) -> Result<Self, Error> {
        let (engine, options) = (Arc::clone(&self.engine), Arc::clone(&self.options));
        let semaphore = Semaphore::new(engine, key.into_key()?, options, limit)?;
        let (handle, mode) = semaphore.into_part(permits)?;
        self.with(handle, mode)
    }

    /// Returns the keys of the parts, in the order in which the parts are acquired.
    pub fn keys(&self) -> impl Iterator<Item = &LockKey> {
        self.parts.keys()
    }

    /// Waits until all parts are acquired, then returns a guard that holds them.
    ///
    /// By default, this method waits indefinitely. Set [`LockOptions::wait`] to limit the wait, or
    /// call [`try_lock_for`](Self::try_lock_for).
    ///
    /// # Errors
    ///
    /// Returns [`ErrorKind::Invalid`] immediately if there are no parts. Returns
    /// [`ErrorKind::LeaseLost`] if a part that was already acquired is lost during the wait for
    /// another part.
    ///
    /// All other errors concern a single part: see [`Mutex::lock`](crate::Mutex::lock),
    /// [`RwLock::read`](crate::RwLock::read) and [`Semaphore::acquire`]. [`Error::key`] returns the
    /// key of the part that failed, or the first key if a request for all parts failed. After an
    /// error, the caller does not hold any part.
    ///
    /// # Cancel safety
    ///
    /// This method is cancel safe. If the future is dropped, any leases that the store has already
    /// granted are released in the background.
    pub async fn lock(&self) -> Result<MultiGuard, Error> {
        let asked_at = self.engine.now();
        let wait = Wait::lasting(self.options.wait, asked_at);
        self.take(wait).await?.in_time(&self.engine, asked_at)
    }

    /// Makes one attempt to acquire all parts. The method waits for the store's reply, but not for
    /// a part's current holder to release it.
    ///
    /// # Errors
    ///
    /// Returns [`TryLockError::Busy`] if another caller holds one of the parts. If the attempt
    /// failed for another reason, returns [`TryLockError::Failed`] with one of the errors that
    /// [`lock`](Self::lock) returns. The method does not retry if the store is unreachable. See
    /// [`TryLockError`] for an example.
    ///
    /// # Cancel safety
    ///
    /// This method is cancel safe. If the future is dropped, any leases that the store has already
    /// granted are released in the background.
    pub async fn try_lock(&self) -> Result<MultiGuard, TryLockError> {
        self.take(Wait::once(self.engine.now())).await?.or_busy()
    }

    /// Waits up to `wait` to acquire all parts.
    ///
    /// # Errors
    ///
    /// Returns [`TryLockError::Busy`] if another caller held a part until `wait` had elapsed. If
    /// the store rejected the request or did not reply in time, returns [`TryLockError::Failed`]
    /// with one of the errors that [`lock`](Self::lock) returns. See [`TryLockError`] for an
    /// example.
    ///
    /// # Cancel safety
    ///
    /// This method is cancel safe. If the future is dropped, any leases that the store has already
    /// granted are released in the background.
    pub async fn try_lock_for(&self, wait: Duration) -> Result<MultiGuard, TryLockError> {
        let wait = Wait::lasting(Some(wait), self.engine.now());
        self.take(wait).await?.or_busy()
    }

    /// Waits to acquire all parts, but gives up at `instant`, a time on the client's clock such as
    /// `client.now() + wait`.
    ///
    /// # Errors
    ///
    /// Returns [`TryLockError::Busy`] if another caller held a part until `instant`. If the store
    /// rejected the request or did not reply in time, returns [`TryLockError::Failed`] with one of
    /// the errors that [`lock`](Self::lock) returns. See [`TryLockError`] for an example.
    ///
    /// # Cancel safety
    ///
    /// This method is cancel safe. If the future is dropped, any leases that the store has already
    /// granted are released in the background.
    pub async fn try_lock_until(&self, instant: Instant) -> Result<MultiGuard, TryLockError> {
        self.try_lock_for(instant.since(self.engine.now())).await
    }

    /// Runs `work` while all parts are held. If any part is lost, `work` is dropped before it
    /// finishes.
    ///
    /// # Errors
    ///
    /// If [`lock`](Self::lock) fails, returns its error without calling `work`. Returns
    /// [`ErrorKind::LeaseLost`] if any part was lost before `work` finished, or if the store
    /// reports on release that a lease no longer exists. If only the reply to a release is lost,
    /// this method returns the result of `work`, because `work` ran under the locks.
    ///
    /// # Cancel safety
    ///
    /// This method is as cancel safe as `work`. If the future is dropped, all parts are released in
    /// the background.
    pub async fn run<T>(&self, work: impl AsyncFnOnce(&MultiGuard) -> T) -> Result<T, Error> {
        self.lock().await?.run_and_release(work).await
    }

    /// Makes one attempt to acquire all parts and, if successful, runs `work` in the same way as
    /// [`run`](Self::run).
    ///
    /// # Errors
    ///
    /// If [`try_lock`](Self::try_lock) fails, returns its error without calling `work`. Returns
    /// errors from [`run`](Self::run) as [`TryLockError::Failed`].
    ///
    /// # Cancel safety
    ///
    /// This method is as cancel safe as `work`. If the future is dropped, all parts are released in
    /// the background.
    pub async fn try_run<T>(
        &self,
        work: impl AsyncFnOnce(&MultiGuard) -> T,
    ) -> Result<T, TryLockError> {
        let guard = self.try_lock().await?;
        Ok(guard.run_and_release(work).await?)
    }

    /// Waits up to `wait` to acquire all parts and, if successful, runs `work` in the same way as
    /// [`run`](Self::run).
    ///
    /// # Errors
    ///
    /// If [`try_lock_for`](Self::try_lock_for) fails, returns its error without calling `work`.
    /// Returns errors from [`run`](Self::run) as [`TryLockError::Failed`].
    ///
    /// # Cancel safety
    ///
    /// This method is as cancel safe as `work`. If the future is dropped, all parts are released in
    /// the background.
    pub async fn try_run_for<T>(
        &self,
        wait: Duration,
        work: impl AsyncFnOnce(&MultiGuard) -> T,
    ) -> Result<T, TryLockError> {
        let guard = self.try_lock_for(wait).await?;
        Ok(guard.run_and_release(work).await?)
    }

    async fn take(&self, wait: Wait) -> Result<Locked<MultiGuard>, Error> {
        if self.parts.is_empty() {
            let message = "a multi-lock without parts would lock nothing; add at least one part";
            return Err(Error::new(ErrorKind::Invalid, message).with_operation(Operation::Acquire));
        }
        if let Some(locked) = self.take_together(wait).await? {
            return Ok(locked);
        }
        let mut taken = MultiGuard::taking();
        let refusal = match self.take_parts(&mut taken, wait).await {
            Ok(None) => return Ok(Locked::Guard(taken.complete())),
            Ok(Some(held)) => Ok(Locked::Held(held)),
            Err(error) => Err(error),
        };
        // Wait for the releases. Without this wait, a caller that retries immediately could be
        // rejected because of its own leases. Releases that are still unconfirmed at the end of the
        // wait continue in the background.
        clock::until(self.engine.clock(), wait.end(), taken.give_back()).await;
        refusal
    }

    /// Acquires all parts in one request.
    ///
    /// Returns `None` if the parts must be acquired one by one, either because the store does not
    /// support requests for several keys, or because a part is held and the caller may wait.
    async fn take_together(&self, wait: Wait) -> Result<Option<Locked<MultiGuard>>, Error> {
        let can = self.engine.backend().capabilities().supports(Feature::Together);
        if !can || self.parts.len() < 2 {
            return Ok(None);
        }
        let parts = self.parts.values();
        let requests = parts.map(|(handle, mode)| handle.request(*mode, None, wait)).collect();
        let together = |outcome| match outcome {
            Outcome::Granted(guards) => Ok(Some(Locked::Guard(MultiGuard::of(guards.into_vec())))),
            Outcome::Held(held) => Ok(Some(Locked::Held(held))),
            Outcome::Apart => Ok(None),
        };
        self.engine.lock(requests, together).await
    }

    /// Acquires the parts one by one. If a part is still held by another caller when the wait ends,
    /// returns its `Busy`.
    async fn take_parts(&self, taken: &mut MultiGuard, wait: Wait) -> Result<Option<Busy>, Error> {
        for (handle, mode) in self.parts.values() {
            // The wait may end between two parts.
            if !taken.guards().is_empty() && self.engine.now() >= wait.end() {
                return Ok(Some(Busy::new(handle.key(), None)));
            }
            let locked = tokio::select! {
                biased;
                // Polled first: during a shutdown, this branch returns `Closed`, which takes
                // precedence over the loss of earlier parts.
                locked = handle.lock_within(*mode, wait) => locked?,
                Some(lost) = taken.lost() => return Err(lost_error(&lost, Operation::Acquire)),
            };
            match locked {
                Locked::Guard(guard) => taken.add(guard),
                Locked::Held(held) => return Ok(Some(held)),
            }
        }
        match taken.lost().now_or_never().flatten() {
            Some(lost) => Err(lost_error(&lost, Operation::Acquire)),
            None => Ok(None),
        }
    }

    fn handle(&self, key: LockKey, kind: Kind) -> Result<LockHandle, Error> {
        LockHandle::new(Arc::clone(&self.engine), key, Arc::clone(&self.options), kind)
    }

    fn with(mut self, handle: LockHandle, mode: Mode) -> Result<Self, Error> {
        match self.parts.entry(handle.key().clone()) {
            Entry::Vacant(place) => {
                place.insert((handle, mode));
                Ok(self)
            }
            Entry::Occupied(_) => {
                let message = "the key is already part of this multi-lock; the second part would wait for the first";
                Err(Error::new(ErrorKind::Invalid, message).with_key(handle.key()))
            }
        }
    }
}

impl fmt::Debug for MultiLock {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("MultiLock")?;
        f.debug_list().entries(self.parts.keys()).finish()
    }
}
