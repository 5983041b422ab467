//! Several locks, of one kind or of several, all or none.

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
use crate::contract::backend::{Feature, Operation, Share};
use crate::contract::busy::Busy;
use crate::contract::error::{Error, ErrorKind};
use crate::contract::key::{IntoKey, LockKey};
use crate::contract::try_lock_error::TryLockError;
use crate::engine::pipeline::{Engine, Locked, Outcome};
use crate::engine::wait::Wait;
use crate::locks::face::{Face, Kind};
use crate::locks::semaphore::Semaphore;
use crate::options::LockOptions;

/// Several locks that are taken together: all of them or none.
///
/// Its parts are mutexes, readers, writers and permits, each of a key of its own, and the same locks as those that
/// the client hands out one by one. Where the store [can](Feature::Together), they are first asked for all at once, by
/// one request, and if all are free that is all. Else they are taken one after the other, in the order of their keys,
/// however they were added. So callers of multi-locks never wait for each other in a circle; a caller that holds one of
/// the keys already waits for itself. While it waits for one part, a caller holds those before.
///
/// All parts share one deadline: [`LockOptions::wait`] is the limit for all together.
/// [`Retry::attempts`](crate::retry::Retry::attempts) and [`LockOptions::outage_wait`] count for the request for all parts, and
/// then for each part anew. If one part cannot be had, the parts taken before are given back, the last one first: as a rule
/// before the call returns, and in the background once its time is up. [`LockOptions::min_hold`] counts only once all parts are
/// held.
///
/// Each part has a lease and a fencing token of its own, to be sent along with writes to the resource
/// that its key protects. The whole has no token: tokens of different keys have no order.
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
#[derive(Clone)]
pub struct MultiLock {
    engine: Arc<Engine>,
    options: Arc<LockOptions>,
    /// In the order in which all callers take them.
    parts: BTreeMap<LockKey, (Face, Share)>,
}

impl MultiLock {
    pub(crate) fn new(engine: Arc<Engine>, options: Arc<LockOptions>) -> Self {
        Self { engine, options, parts: BTreeMap::new() }
    }

    /// The same locks with other options, those that are added later included.
    ///
    /// # Errors
    ///
    /// Returns the errors of [`Mutex::with_options`](crate::Mutex::with_options).
    pub fn with_options(mut self, options: LockOptions) -> Result<Self, Error> {
        let store = self.engine.backend().capabilities();
        let options = Arc::new(options.on(&store));
        options.validate(&store)?;
        for (face, _ask) in self.parts.values_mut() {
            *face = face.clone().sharing(Arc::clone(&options))?;
        }
        Ok(Self { options, ..self })
    }

    /// Adds the [mutex](crate::LockClient::mutex) `key`.
    ///
    /// # Errors
    ///
    /// Returns the errors of [`LockClient::mutex`](crate::LockClient::mutex), and [`ErrorKind::Invalid`] if the key is
    /// that of another part.
    pub fn mutex(self, key: impl IntoKey) -> Result<Self, Error> {
        let face = self.face(key.into_key()?, Kind::Mutex)?;
        self.with(face, Share::Whole)
    }

    /// Adds the mutexes of all `keys`.
    ///
    /// # Errors
    ///
    /// Returns the errors of [`mutex`](Self::mutex).
    pub fn mutexes(self, keys: impl IntoIterator<Item = impl IntoKey>) -> Result<Self, Error> {
        keys.into_iter().try_fold(self, Self::mutex)
    }

    /// Adds a reader of the [reader-writer lock](crate::LockClient::rw_lock) `key`.
    ///
    /// # Errors
    ///
    /// Returns the errors of [`LockClient::rw_lock`](crate::LockClient::rw_lock), and [`ErrorKind::Invalid`] if the key is
    /// that of another part.
    pub fn read(self, key: impl IntoKey) -> Result<Self, Error> {
        let face = self.face(key.into_key()?, Kind::RwLock)?;
        self.with(face, Share::READER)
    }

    /// Adds the writer of the [reader-writer lock](crate::LockClient::rw_lock) `key`.
    ///
    /// # Errors
    ///
    /// Returns the errors of [`read`](Self::read).
    pub fn write(self, key: impl IntoKey) -> Result<Self, Error> {
        let face = self.face(key.into_key()?, Kind::RwLock)?;
        self.with(face, Share::WRITER)
    }

    /// Adds so many `permits` of the [semaphore](crate::LockClient::semaphore) `key` that has `limit` of them.
    ///
    /// # Errors
    ///
    /// Returns the errors of [`LockClient::semaphore`](crate::LockClient::semaphore), and [`ErrorKind::Invalid`] if so many can
    /// never be had, or if the key is that of another part.
    pub fn permits(self, key: impl IntoKey, permits: u32, limit: u32) -> Result<Self, Error> {
        let (engine, options) = (Arc::clone(&self.engine), Arc::clone(&self.options));
        let semaphore = Semaphore::new(engine, key.into_key()?, options, limit)?;
        let (face, share) = semaphore.into_part(permits)?;
        self.with(face, share)
    }

    /// The keys of the parts, in the order in which they are taken.
    pub fn keys(&self) -> impl Iterator<Item = &LockKey> {
        self.parts.keys()
    }

    /// Waits for all parts, for as long as [`LockOptions::wait`] says.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Invalid`] at once if there is no part.
    /// [`ErrorKind::LeaseLost`] as soon as a part that was taken is lost while others are waited for.
    /// Else those of the parts: as [`Mutex::lock`](crate::Mutex::lock),
    /// [`RwLock::read`](crate::RwLock::read), [`Semaphore::acquire`]. The [key](Error::key) is that
    /// of the part that failed: the first, if a request for all of them did. After any error nothing is held.
    ///
    /// # Cancel safety
    ///
    /// This method is cancel safe: the background releases each lease that was, or may have been, granted; each ends at the latest after
    /// its TTL.
    pub async fn lock(&self) -> Result<MultiGuard, Error> {
        let asked_at = self.engine.now();
        let wait = Wait::lasting(self.options.wait, asked_at);
        self.take(wait).await?.in_time(&self.engine, asked_at)
    }

    /// Makes one attempt to acquire all parts. It does not wait for other holders, only for the store's reply.
    ///
    /// # Errors
    ///
    /// Returns [`TryLockError::Busy`] if another caller holds one of them, and [`TryLockError::Failed`] with an error of [`lock`](Self::lock) if the attempt
    /// failed. It does not retry while the store is unreachable. See [`TryLockError`] for an example.
    ///
    /// # Cancel safety
    ///
    /// This method is cancel safe. If it is dropped, a lease that the store has granted in the meantime is released in the background.
    pub async fn try_lock(&self) -> Result<MultiGuard, TryLockError> {
        self.take(Wait::once(self.engine.now())).await?.or_busy()
    }

    /// Waits to acquire all parts, for at most `wait`.
    ///
    /// # Errors
    ///
    /// Returns [`TryLockError::Busy`] if a part was held throughout, and [`TryLockError::Failed`] with an error of [`lock`](Self::lock) if the store
    /// refused the request or did not answer in time. See [`TryLockError`] for an example.
    ///
    /// # Cancel safety
    ///
    /// This method is cancel safe. If it is dropped, a lease that the store has granted in the meantime is released in the background.
    pub async fn try_lock_for(&self, wait: Duration) -> Result<MultiGuard, TryLockError> {
        let wait = Wait::lasting(Some(wait), self.engine.now());
        self.take(wait).await?.or_busy()
    }

    /// Waits to acquire all parts, until `instant` on the client's clock, for example `client.now() + wait`.
    ///
    /// # Errors
    ///
    /// Returns [`TryLockError::Busy`] if a part was held throughout, and [`TryLockError::Failed`] with an error of [`lock`](Self::lock) if the store
    /// refused the request or did not answer in time. See [`TryLockError`] for an example.
    ///
    /// # Cancel safety
    ///
    /// This method is cancel safe. If it is dropped, a lease that the store has granted in the meantime is released in the background.
    pub async fn try_lock_until(&self, instant: Instant) -> Result<MultiGuard, TryLockError> {
        self.try_lock_for(instant.since(self.engine.now())).await
    }

    /// Runs `work` while all parts are held, and drops it unfinished if any is lost.
    ///
    /// # Errors
    ///
    /// The errors of [`lock`](Self::lock), before `work` is called.
    /// [`ErrorKind::LeaseLost`] if any part was lost before `work` had finished or, as the store says at
    /// the release, without our knowing. If a release gets no answer, the work was done
    /// under the locks all the same: that is no error.
    ///
    /// # Cancel safety
    ///
    /// This method is as cancel safe as `work`. If it is dropped, the parts are released in the background.
    pub async fn run<T>(&self, work: impl AsyncFnOnce(&MultiGuard) -> T) -> Result<T, Error> {
        self.lock().await?.run_and_release(work).await
    }

    /// Makes one attempt to acquire all parts and, if it succeeds, runs `work` like [`run`](Self::run).
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
        work: impl AsyncFnOnce(&MultiGuard) -> T,
    ) -> Result<T, TryLockError> {
        let guard = self.try_lock().await?;
        Ok(guard.run_and_release(work).await?)
    }

    /// Waits to acquire all parts, for at most `wait`, and runs `work` like [`run`](Self::run).
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
        work: impl AsyncFnOnce(&MultiGuard) -> T,
    ) -> Result<T, TryLockError> {
        let guard = self.try_lock_for(wait).await?;
        Ok(guard.run_and_release(work).await?)
    }

    async fn take(&self, wait: Wait) -> Result<Locked<MultiGuard>, Error> {
        if self.parts.is_empty() {
            let message = "a multi-lock without parts would lock nothing: add some first";
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
        // A caller that asks again at once is not to meet the leases of the last try. A release that is
        // unanswered when the wait is over goes on in the background.
        clock::until(self.engine.clock(), wait.end(), taken.give_back()).await;
        refusal
    }

    /// Takes all parts by one request; `None` if they are to be taken one after the other, because the store cannot do it
    /// or one is held and there is time to wait.
    async fn take_together(&self, wait: Wait) -> Result<Option<Locked<MultiGuard>>, Error> {
        let can = self.engine.backend().capabilities().supports(Feature::Together);
        if !can || self.parts.len() < 2 {
            return Ok(None);
        }
        let parts = self.parts.values();
        let requests = parts.map(|(face, share)| face.request(*share, None, wait)).collect();
        let together = |outcome| match outcome {
            Outcome::Granted(guards) => Ok(Some(Locked::Guard(MultiGuard::of(guards.into_vec())))),
            Outcome::Held(held) => Ok(Some(Locked::Held(held))),
            Outcome::Apart => Ok(None),
        };
        self.engine.lock(requests, together).await
    }

    /// Takes all parts, one after the other, unless one is held.
    async fn take_parts(&self, taken: &mut MultiGuard, wait: Wait) -> Result<Option<Busy>, Error> {
        for (face, share) in self.parts.values() {
            // A wait that was long enough for the first part may be over before another.
            if !taken.guards().is_empty() && self.engine.now() >= wait.end() {
                return Ok(Some(Busy::new(face.key(), None)));
            }
            let locked = tokio::select! {
                biased;
                // This branch comes first, since it knows of a shutdown, by which the leases taken before are lost too.
                locked = face.lock_within(*share, wait) => locked?,
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

    fn face(&self, key: LockKey, kind: Kind) -> Result<Face, Error> {
        Face::new(Arc::clone(&self.engine), key, Arc::clone(&self.options), kind)
    }

    fn with(mut self, face: Face, share: Share) -> Result<Self, Error> {
        match self.parts.entry(face.key().clone()) {
            Entry::Vacant(place) => {
                place.insert((face, share));
                Ok(self)
            }
            Entry::Occupied(_) => {
                let message = "it is a part already: the second would wait for the first";
                Err(Error::new(ErrorKind::Invalid, message).with_key(face.key()))
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
