//! The page that shows the order: one `lock()` call, top to bottom.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::watch;

use crate::admin::Admin;
use crate::backend::LockBackend;
use crate::claim::{Claim, Patience};
use crate::clock::{self, Clock, Instant, SystemClock};
use crate::error::{Error, ErrorKind, Operation};
use crate::holder::Holder;
use crate::key::LockKey;
use crate::lease::{Lease, LossReason};
use crate::lock::Wait;
use crate::lock::acquire::{self, Acquired};
use crate::lock::background::Background;
use crate::lock::guard::LockGuard;
use crate::lock::hold::Hold;
use crate::lock::queue::LocalQueue;
use crate::lock::reaper::{Debt, Reaper, Unwanted};
use crate::lock::reentrancy::{Entry, HoldTable};
use crate::lock::watchdog::Watchdog;
use crate::mutex::Mutex;
use crate::options::LockOptions;
use crate::owner::OwnerId;
use crate::reentrant_mutex::ReentrantMutex;

/// Hands out locks by name, over one backend.
///
/// Clones are cheap and share everything: callers queue with each other, one task renews all
/// leases. Make one client per store and process. When all clones and guards are gone, the
/// background task ends; [`shutdown`](Self::shutdown) ends it in order.
///
/// ```
/// # tokio::runtime::Builder::new_current_thread().enable_all().build()?.block_on(async {
/// use leasehold_core::{LockClient, MemoryBackend};
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

/// What all clones of a client, its locks and its guards share.
pub(crate) struct Engine {
    backend: Arc<dyn LockBackend>,
    clock: Arc<dyn Clock>,
    options: LockOptions,
    holds: Arc<HoldTable>,
    queue: Arc<LocalQueue>,
    watchdog: Arc<Watchdog>,
    reaper: Arc<Reaper>,
    background: Background,
    closed: watch::Sender<bool>,
}

/// What a lock asks of the stages.
pub(crate) struct Request<'a> {
    pub(crate) key: &'a LockKey,
    pub(crate) options: &'a LockOptions,
    /// Who may enter again, if anybody may.
    pub(crate) owner: Option<OwnerId>,
    pub(crate) wait: Wait,
}

/// What a request came to.
pub(crate) enum Locked {
    Guard(LockGuard),
    /// Others hold the key; who, if the store told.
    Held(Option<Holder>),
}

impl Engine {
    /// Takes a lock, through all stages, unless the client is shut down meanwhile.
    ///
    /// # Cancel safety
    ///
    /// Every stage is safe to drop, so the whole is.
    pub(crate) async fn lock(self: &Arc<Self>, request: Request<'_>) -> Result<Locked, Error> {
        let mut closing = self.closed.subscribe();
        let key = request.key;
        let locked = tokio::select! {
            biased;
            _ = closing.wait_for(|closed| *closed) => Err(closed()),
            locked = self.stages(request) => locked,
        };
        locked.map_err(|error| {
            error
                .with_operation(Operation::Acquire)
                .with_key(key)
                .with_backend(self.backend.capabilities().name())
        })
    }

    async fn stages(self: &Arc<Self>, request: Request<'_>) -> Result<Locked, Error> {
        let Request { key, options, owner, wait } = request;
        let (backend, clock) = (&*self.backend, &*self.clock);
        self.background.ensure_running(&self.watchdog, &self.reaper, &self.backend)?;

        // 1 reentrancy
        let entering = match owner {
            None => None,
            Some(owner) => {
                let entry =
                    self.holds.enter(key, owner, options.reentry_limit, wait, clock).await?;
                match entry {
                    None => return Ok(Locked::Held(None)),
                    Some(Entry::Again(hold)) => return Ok(self.guard(hold)),
                    Some(Entry::First(entering)) => Some(entering),
                }
            }
        };

        // 2 queue
        let Some(turn) = self.queue.turn(key, wait, clock).await? else {
            return Ok(Locked::Held(None));
        };

        // 3 acquire
        let claim = claim(key, options, wait);
        let acquired =
            acquire::acquire(backend, &claim, wait, options, &self.reaper, clock).await?;
        let granted = match acquired {
            Acquired::Granted(granted) => granted,
            Acquired::Held(holder) => return Ok(Locked::Held(holder)),
        };

        // 4 watchdog
        let alarm = Arc::clone(self.watchdog.alarm());
        let hold = Hold::new(granted, owner, options, turn, alarm);
        self.watchdog.add(&hold);

        // 5 guard
        if let Some(entering) = entering {
            entering.publish(&hold);
        }
        let guard = self.guard(hold);
        // A shutdown that began just now may have counted its leases before this one was filed.
        if *self.closed.borrow() { Err(closed()) } else { Ok(guard) }
    }

    fn guard(self: &Arc<Self>, hold: Arc<Hold>) -> Locked {
        Locked::Guard(LockGuard::new(hold, Arc::clone(self)))
    }

    /// Forgets a hold whose last guard has gone.
    pub(crate) fn forget(&self, hold: &Hold) {
        self.watchdog.remove(hold);
        if let Some(owner) = hold.owner() {
            self.holds.tidy(hold.lease().key(), owner);
        }
    }

    async fn shutdown(&self, within: Duration) -> Result<(), Error> {
        let now = self.clock.now();
        self.closed.send_replace(true);
        self.background.ensure_running(&self.watchdog, &self.reaper, &self.backend)?;
        for hold in self.watchdog.holds() {
            if hold.is_over(now) {
                continue;
            }
            hold.lose(LossReason::Shutdown, now);
            let unwanted = Unwanted::new(hold.lease()).closed_until(hold.min_until());
            Debt::new(unwanted, &self.reaper).incur();
        }
        let settled = self.reaper.wait_settled();
        let settled = clock::until(&*self.clock, now + within, settled).await;
        self.backend.close().await;
        if settled.is_none() {
            let message = format!(
                "{} releases were not confirmed within {within:?}; those keys are free after their TTL",
                self.reaper.unsettled()
            );
            return Err(Error::new(ErrorKind::Indeterminate, message)
                .with_operation(Operation::Shutdown)
                .with_backend(self.backend.capabilities().name()));
        }
        Ok(())
    }

    pub(crate) fn now(&self) -> Instant {
        self.clock.now()
    }

    pub(crate) fn clock(&self) -> &dyn Clock {
        &*self.clock
    }

    pub(crate) fn backend(&self) -> &dyn LockBackend {
        &*self.backend
    }

    pub(crate) fn watchdog(&self) -> &Watchdog {
        &self.watchdog
    }

    pub(crate) fn reaper(&self) -> &Arc<Reaper> {
        &self.reaper
    }
}

fn closed() -> Error {
    Error::new(ErrorKind::Closed, "the client was shut down")
}

/// One id per acquisition, for all its attempts.
fn claim(key: &LockKey, options: &LockOptions, wait: Wait) -> Claim {
    let lease = Lease::new(key, options.first_ttl()).with_description(options.description.clone());
    Claim::new(lease).with_patience(match wait {
        Wait::No => Patience::Leaves,
        Wait::Until(_) => Patience::Waits,
    })
}

impl Drop for Engine {
    fn drop(&mut self) {
        self.reaper.finish();
    }
}

impl<B: LockBackend> LockClient<B> {
    /// Creates a client with default options. It does no I/O and needs no runtime yet.
    pub fn new(backend: B) -> Self {
        let engine = Builder::new(backend);
        engine.assemble()
    }

    /// Creates a client with options of its own.
    pub fn builder(backend: B) -> Builder<B> {
        Builder::new(backend)
    }

    /// The same client without its backend's type, to be kept beside others.
    pub fn erase(self) -> LockClient {
        LockClient { backend: self.backend, engine: self.engine }
    }
}

impl<B: LockBackend + ?Sized> LockClient<B> {
    /// The mutex `key`: one holder at a time, who may not enter again.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Invalid`] if the key or the client's options are not possible,
    /// [`ErrorKind::Unsupported`] if they are not on this store.
    pub fn mutex<K>(&self, key: K) -> Result<Mutex, Error>
    where
        K: TryInto<LockKey>,
        Error: From<K::Error>,
    {
        Mutex::new(Arc::clone(&self.engine), key.try_into()?, self.options())
    }

    /// The mutex `key`, whose [owner](OwnerId) may enter again while holding it.
    ///
    /// To others it is the same mutex as [`mutex`](Self::mutex) of that key.
    ///
    /// # Errors
    ///
    /// As [`mutex`](Self::mutex).
    pub fn reentrant_mutex<K>(&self, key: K) -> Result<ReentrantMutex, Error>
    where
        K: TryInto<LockKey>,
        Error: From<K::Error>,
    {
        ReentrantMutex::new(Arc::clone(&self.engine), key.try_into()?, self.options())
    }

    /// What operators may do: look into a key, and end other people's leases.
    pub fn admin(&self) -> Admin {
        Admin::new(Arc::clone(&self.engine))
    }

    /// The client's options, to start those of a lock from.
    pub fn options(&self) -> LockOptions {
        self.engine.options.clone()
    }

    /// The backend.
    pub fn backend(&self) -> &B {
        &self.backend
    }

    /// The time now, on the clock that [deadlines](LockGuard::deadline) are counted on.
    pub fn now(&self) -> Instant {
        self.engine.now()
    }

    /// Releases everything held through this client and its clones, then closes the backend.
    ///
    /// Guards learn of it ([`LossReason::Shutdown`]) before their leases are released. Calls that
    /// wait, and all later ones, fail with [`ErrorKind::Closed`].
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Indeterminate`] if not all releases were confirmed `within` that time.
    ///
    /// # Cancel safety
    ///
    /// Dropped early, the releases go on in the background, and the backend is not closed.
    pub async fn shutdown(&self, within: Duration) -> Result<(), Error> {
        self.engine.shutdown(within).await
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
            .field("options", &self.engine.options)
            .finish_non_exhaustive()
    }
}

/// Makes a [`LockClient`] with options of its own.
#[derive(Debug)]
pub struct Builder<B> {
    backend: B,
    options: LockOptions,
    clock: Arc<dyn Clock>,
    max_waiters: usize,
}

impl<B: LockBackend> Builder<B> {
    /// More callers of one process that wait for one key are a leak or an attack.
    pub const DEFAULT_MAX_WAITERS: usize = 10_000;

    fn new(backend: B) -> Self {
        Self {
            backend,
            options: LockOptions::default(),
            clock: Arc::new(SystemClock),
            max_waiters: Self::DEFAULT_MAX_WAITERS,
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

    /// How many callers of this process may wait for one key at once; more are refused with
    /// [`ErrorKind::TooManyWaiters`]. Default: [`Builder::DEFAULT_MAX_WAITERS`].
    #[must_use]
    pub fn max_waiters(mut self, limit: usize) -> Self {
        self.max_waiters = limit;
        self
    }

    /// Creates the client. It does no I/O and needs no runtime yet.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Invalid`] or [`ErrorKind::Unsupported`] if the options are not possible, or not on this store.
    pub fn build(self) -> Result<LockClient<B>, Error> {
        self.options.validate(&self.backend.capabilities())?;
        Ok(self.assemble())
    }

    fn assemble(self) -> LockClient<B> {
        let Self { backend, options, clock, max_waiters } = self;
        let backend = Arc::new(backend);
        let engine = Engine {
            backend: Arc::clone(&backend) as Arc<dyn LockBackend>,
            options,
            holds: Arc::default(),
            queue: Arc::new(LocalQueue::new(max_waiters)),
            watchdog: Arc::new(Watchdog::new(Arc::clone(&clock))),
            reaper: Arc::new(Reaper::new(Arc::clone(&clock))),
            clock,
            background: Background::default(),
            closed: watch::Sender::new(false),
        };
        LockClient { backend, engine: Arc::new(engine) }
    }
}
