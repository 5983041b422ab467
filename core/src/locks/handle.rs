//! The code that all lock types share: a key, its options, and the methods that acquire the lock.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use crate::clock::Instant;
use crate::contract::backend::{Capabilities, Feature, Mode, Operation};
use crate::contract::description::Description;
use crate::contract::error::Error;
use crate::contract::inspection::Inspection;
use crate::contract::key::LockKey;
use crate::contract::owner::OwnerId;
use crate::contract::try_lock_error::TryLockError;
use crate::engine::one_or_many::OneOrMany;
use crate::engine::pipeline::{Engine, Locked, Outcome};
use crate::engine::request::LockRequest;
use crate::engine::wait::Wait;
use crate::locks::guard::LockGuard;
use crate::observe::AskedKind;
use crate::options::{self, LockOptions};

/// The key and options of a lock, which each public lock type wraps. A `LockHandle` does not hold a
/// lease.
#[derive(Clone)]
pub(crate) struct LockHandle {
    engine: Arc<Engine>,
    key: LockKey,
    options: Arc<LockOptions>,
    kind: Kind,
}

/// The lock type, which determines how much of the key a caller requests.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Kind {
    /// Requests the whole key.
    Mutex,
    /// Requests one unit, or all units.
    RwLock,
    /// Requests any number of units.
    Semaphore,
    /// Requests the only unit, so that the lease's description can change.
    Election,
}

impl Kind {
    fn check(self, store: &Capabilities, has_admin: bool) -> Result<(), Error> {
        match self {
            Self::Mutex => Ok(()),
            Self::RwLock => {
                options::check_feature(Feature::Units, "reader-writer locks", store)?;
                options::check_feature(Feature::Queue, "reader-writer locks", store)
            }
            Self::Semaphore => options::check_feature(Feature::Units, "semaphores", store),
            Self::Election => {
                options::check_feature(Feature::Units, "elections", store)?;
                options::check_feature(Feature::Queue, "elections", store)?;
                options::check_support(has_admin, "elections", store)
            }
        }
    }

    /// Returns whether waiters always use the store's queue.
    ///
    /// Without the queue, a stream of readers could starve a writer. A leader that resigns and
    /// campaigns again could be elected before candidates that have waited for a long time.
    fn queues(self) -> bool {
        matches!(self, Self::RwLock | Self::Election)
    }

    fn named(self, mode: Mode) -> AskedKind {
        match self {
            Self::Mutex => AskedKind::Mutex,
            Self::RwLock => AskedKind::of_rw_lock(mode),
            Self::Semaphore => AskedKind::Permits,
            Self::Election => AskedKind::Election,
        }
    }
}

impl LockHandle {
    pub(crate) fn new(
        engine: Arc<Engine>,
        key: LockKey,
        options: Arc<LockOptions>,
        kind: Kind,
    ) -> Result<Self, Error> {
        let backend = engine.backend();
        let (store, has_admin) = (backend.capabilities(), backend.admin().is_some());
        let possible = kind.check(&store, has_admin).and_then(|()| options.validate(&store));
        possible.map_err(|error| error.with_key(&key))?;
        Ok(Self { engine, key, options, kind })
    }

    pub(crate) fn with_options(self, options: LockOptions) -> Result<Self, Error> {
        let options = options.on(&self.engine.backend().capabilities());
        self.sharing(Arc::new(options))
    }

    /// Returns the same lock with `options`, which have already been adapted to this store and may
    /// be shared between several locks.
    pub(crate) fn sharing(self, options: Arc<LockOptions>) -> Result<Self, Error> {
        Self::new(self.engine, self.key, options, self.kind)
    }

    /// Returns the same lock with options that give its leases this description.
    pub(crate) fn described(&self, description: Description) -> Self {
        let options = LockOptions::clone(&self.options).description(description);
        Self { options: Arc::new(options), ..self.clone() }
    }

    pub(crate) fn engine(&self) -> &Arc<Engine> {
        &self.engine
    }

    pub(crate) fn options(&self) -> &LockOptions {
        &self.options
    }

    pub(crate) fn key(&self) -> &LockKey {
        &self.key
    }

    /// Returns a lock for a different key, with the same type and options.
    pub(crate) fn at(&self, key: &LockKey) -> Self {
        Self { key: key.clone(), ..self.clone() }
    }

    /// Waits for as long as the options allow.
    ///
    /// The functions that acquire the lock are inlined. Returning a future copies several
    /// kilobytes, which takes a tenth of the time of acquiring an in-memory lock.
    #[inline]
    pub(crate) fn lock(
        &self,
        mode: Mode,
        owner: Option<OwnerId>,
    ) -> impl Future<Output = Result<LockGuard, Error>> {
        let asked_at = self.engine.now();
        let request = self.request(mode, owner, Wait::lasting(self.options.wait, asked_at));
        let in_time = move |outcome: Outcome| outcome.of_one().in_time(&self.engine, asked_at);
        self.engine.lock(OneOrMany::One(request), in_time)
    }

    #[inline]
    pub(crate) fn try_lock(
        &self,
        mode: Mode,
        owner: Option<OwnerId>,
    ) -> impl Future<Output = Result<LockGuard, TryLockError>> {
        let request = self.request(mode, owner, Wait::once(self.engine.now()));
        self.engine.lock(OneOrMany::One(request), |outcome| outcome.of_one().or_busy())
    }

    #[inline]
    pub(crate) fn try_lock_for(
        &self,
        mode: Mode,
        owner: Option<OwnerId>,
        wait: Duration,
    ) -> impl Future<Output = Result<LockGuard, TryLockError>> {
        let request = self.request(mode, owner, Wait::lasting(Some(wait), self.engine.now()));
        self.engine.lock(OneOrMany::One(request), |outcome| outcome.of_one().or_busy())
    }

    #[inline]
    pub(crate) fn try_lock_until(
        &self,
        mode: Mode,
        owner: Option<OwnerId>,
        instant: Instant,
    ) -> impl Future<Output = Result<LockGuard, TryLockError>> {
        self.try_lock_for(mode, owner, instant.since(self.engine.now()))
    }

    /// Acquires the lock without an owner. Several requests can share the same `wait`.
    #[inline]
    pub(crate) fn lock_within(
        &self,
        mode: Mode,
        wait: Wait,
    ) -> impl Future<Output = Result<Locked, Error>> {
        self.engine
            .lock(OneOrMany::One(self.request(mode, None, wait)), |outcome| Ok(outcome.of_one()))
    }

    pub(crate) async fn is_locked(&self) -> Result<bool, Error> {
        Ok(self.inspect().await?.is_held())
    }

    pub(crate) async fn inspect(&self) -> Result<Inspection, Error> {
        self.engine.admin(Operation::Inspect)?.inspect(&self.key).await
    }

    /// Creates the request that the engine's stages process.
    pub(crate) fn request(
        &self,
        mode: Mode,
        owner: Option<OwnerId>,
        wait: Wait,
    ) -> LockRequest<'_> {
        let (key, options, queues) = (&self.key, &self.options, self.kind.queues());
        LockRequest { key, options, mode, kind: self.kind.named(mode), queues, owner, wait }
    }
}

impl fmt::Debug for LockHandle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(&self.key, f)
    }
}
