//! The fixture of a case: a store, its clients, and unique keys.

use std::pin::pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::time::Duration;

use futures_util::future::{Either, select};
use leasehold_core::backend::{Lease, LockBackend};
use leasehold_core::clock::{Clock, Instant, ManualClock, SystemClock, TokioClock};
use leasehold_core::fault::{FaultBackend, Faults};
use leasehold_core::{Holder, LockClient, LockGuard, LockKey, LockOptions};

use crate::driven::{self, Calls, Observed};
use crate::fault::FaultKind;
use crate::harness::Time;
use crate::pool::{self, Sharing, Use};
use crate::profile::Profile;
use crate::silences::Silences;
use crate::stalls::{Measured, Stalls, Void};

/// How often a condition is checked per TTL. Each check may send a request on a separate
/// connection.
const LOOKS: u32 = 400;

/// A store and everything that a case needs to use it.
pub(crate) struct Scene {
    store: Profile,
    used: Use,
    clock: Arc<dyn Clock>,
    /// The clock, if the suite advances it.
    driven: Option<ManualClock>,
    calls: Calls,
    silences: Silences,
    keys: Mutex<Vec<LockKey>>,
    /// Observes the machine from the start of the case.
    machine: Stalls,
    stalls: OnceLock<Stalls>,
    /// Whether a disturbance prevents the store from replying, which does not count as a stall.
    silent: Arc<AtomicBool>,
}

impl Scene {
    /// Creates a scene on a store that other cases may also use.
    pub(crate) async fn start(store: Profile, sharing: Sharing) -> Self {
        let used = pool::take(&store, sharing).await;
        let driven = (store.time == Time::Driven).then(ManualClock::new);
        let clock: Arc<dyn Clock> = match (store.time, &driven) {
            (Time::Virtual, _) => Arc::new(TokioClock::new()),
            (_, Some(driven)) => Arc::new(driven.clone()),
            (_, None) => Arc::new(SystemClock),
        };
        Self {
            store,
            used,
            clock,
            driven,
            calls: Calls::default(),
            silences: Silences::default(),
            keys: Mutex::default(),
            machine: match store.time {
                Time::Real => Stalls::watch_processors(),
                Time::Driven | Time::Virtual => Stalls::none(),
            },
            stalls: OnceLock::new(),
            silent: Arc::default(),
        }
    }

    /// Runs `case`. In driven time, also advances the clocks.
    pub(crate) async fn run<T>(&self, case: impl Future<Output = T>) -> T {
        match &self.driven {
            Some(clock) => driven::run(&*self.used.harness, clock, &self.calls, case).await,
            None => case.await,
        }
    }

    /// Returns the kind of time that the store uses.
    pub(crate) fn time(&self) -> Time {
        self.store.time
    }

    /// Returns how many of `all` rounds of a long case run on this store.
    pub(crate) fn rounds(&self, all: usize) -> usize {
        self.store.rounds(all)
    }

    /// Returns a key that no other case uses. After the case, the key must no longer exist.
    pub(crate) fn key(&self) -> LockKey {
        let key = LockKey::new(format!("conformance/{:016x}", fastrand::u64(..)));
        let key = key.expect("it is short and plain");
        self.keys.lock().unwrap_or_else(PoisonError::into_inner).push(key.clone());
        key
    }

    /// Returns the backend of a new client.
    pub(crate) async fn backend(&self) -> Observed {
        self.observed(self.used.harness.connect_patiently()).await
    }

    /// Returns a new client with the suite's options.
    pub(crate) async fn client(&self) -> LockClient<Observed> {
        self.client_with(self.options()).await
    }

    /// Returns a new client with these options.
    pub(crate) async fn client_with(&self, options: LockOptions) -> LockClient<Observed> {
        self.layers(self.observed(self.used.harness.connect()).await, options)
    }

    /// Returns a new client whose backend fails on command.
    pub(crate) async fn faulty(&self) -> (LockClient<FaultBackend<Observed>>, Faults) {
        self.faulty_with(self.options()).await
    }

    /// Returns a new client with these options whose backend fails on command.
    pub(crate) async fn faulty_with(
        &self,
        options: LockOptions,
    ) -> (LockClient<FaultBackend<Observed>>, Faults) {
        let backend = self.observed(self.used.harness.connect()).await;
        let backend = FaultBackend::new(backend).with_clock(self.clock());
        let faults = backend.faults().clone();
        (self.layers(backend, options), faults)
    }

    async fn observed(&self, connects: impl Future<Output = Arc<dyn LockBackend>>) -> Observed {
        Observed::new(self.busy(connects).await, self.calls.clone(), self.silences.clone())
    }

    /// Awaits a direct request to the store, during which driven time does not advance.
    async fn busy<T>(&self, asking: impl Future<Output = T>) -> T {
        let _call = self.calls.begin().await;
        asking.await
    }

    fn layers<B: LockBackend>(&self, backend: B, options: LockOptions) -> LockClient<B> {
        let builder = LockClient::builder(backend).clock(Arc::clone(&self.clock));
        builder.options(options).build().expect("the suite's options suit every store")
    }

    /// Returns the harness's options with the suite's TTL.
    pub(crate) fn options(&self) -> LockOptions {
        self.used.harness.options().ttl(self.ttl())
    }

    /// Returns the TTL of most leases.
    pub(crate) fn ttl(&self) -> Duration {
        self.used.harness.timing().ttl
    }

    /// Returns a TTL that is longer than any case.
    pub(crate) fn long_ttl(&self) -> Duration {
        let timing = self.used.harness.timing();
        (timing.ttl * 20).min(timing.longest)
    }

    /// Returns how late an event may be.
    pub(crate) fn slack(&self) -> Duration {
        self.used.harness.timing().slack
    }

    /// Checks an event that has just occurred, `took` after it was due. The event should have
    /// occurred within `bound`.
    ///
    /// # Errors
    ///
    /// Returns [`Void`] if the event was late and the machine stalled for at least that long since
    /// the event was due.
    ///
    /// # Panics
    ///
    /// Panics if the stalls do not explain the delay, or if the event was due before the case
    /// started.
    pub(crate) fn in_time(&self, event: &str, took: Duration, bound: Duration) -> Measured {
        self.machine.in_time(event, took, bound)
    }

    /// Returns a [`Void`] if the case waited for the store in vain and a stall of the machine
    /// explains the wait.
    pub(crate) fn void(&self) -> Option<Void> {
        self.silences.explained_by(&self.machine)
    }

    /// Returns how late an event may be while the machine does not stall.
    pub(crate) fn prompt(&self) -> Duration {
        self.used.harness.timing().prompt
    }

    /// Starts to observe the machine and the store on the first call. Cases that measure time use
    /// the returned stalls.
    ///
    /// In virtual and driven time, nothing stalls.
    pub(crate) fn stalls(&self) -> &Stalls {
        self.stalls.get_or_init(|| match self.store.time {
            Time::Real => Stalls::watch_with(self.heartbeat()),
            Time::Driven | Time::Virtual => Stalls::none(),
        })
    }

    fn heartbeat(&self) -> impl FnMut() + Send + use<> {
        let (mut heartbeat, silent) = (self.used.harness.heartbeat(), Arc::clone(&self.silent));
        move || {
            if !silent.load(Ordering::Relaxed) {
                heartbeat();
            }
        }
    }

    /// Checks that all `guards` were kept by renewals during the last `time`. The case must call
    /// [`stalls`](Self::stalls) before this period starts.
    ///
    /// # Errors
    ///
    /// Returns [`Void`](crate::stalls::Void) if a guard was lost and the machine stalled for one
    /// sixth of a TTL, which may cause the loss of a lease.
    ///
    /// # Panics
    ///
    /// Panics if a guard was lost without such a stall.
    pub(crate) fn kept<'a>(
        &self,
        guards: impl IntoIterator<Item = &'a LockGuard>,
        time: Duration,
    ) -> Measured {
        let lost = guards.into_iter().filter(|guard| !guard.is_held()).count();
        if lost > 0 {
            self.stalls().steady("the leases stay valid", time, self.ttl() / 6)?;
        }
        found!(lost, "the number of lost leases").is(0);
        Ok(())
    }

    /// Creates a lease that the case can request from a backend.
    pub(crate) fn lease(&self, key: &LockKey) -> Lease {
        Lease::new(key, self.ttl())
    }

    /// Returns the clock of the store and its clients.
    pub(crate) fn clock(&self) -> Arc<dyn Clock> {
        Arc::clone(&self.clock)
    }

    /// Returns the current time.
    pub(crate) fn now(&self) -> Instant {
        self.clock.now()
    }

    /// Waits while `time` passes on the scene's clock.
    pub(crate) async fn pass(&self, time: Duration) {
        self.clock.sleep_until(self.now() + time).await;
    }

    /// Awaits `future` for at most this time. Returns `None` if the future did not complete in time
    /// and was dropped.
    pub(crate) async fn within<T>(
        &self,
        time: Duration,
        future: impl Future<Output = T>,
    ) -> Option<T> {
        let give_up = self.clock.sleep_until(self.now() + time);
        match select(pin!(future), give_up).await {
            Either::Left((output, _)) => Some(output),
            Either::Right(_) => None,
        }
    }

    /// Advances the clocks of the client and the store by `time`, while no task of the client runs.
    /// The scene must not be in real time.
    pub(crate) async fn skip(&self, time: Duration) {
        match &self.driven {
            Some(clock) => {
                clock.skip(time);
                self.used.harness.advance_store(time).await;
            }
            None => tokio::time::advance(time).await,
        }
    }

    /// Waits in real time, so that requests and replies can make progress. In driven time, the
    /// clock does not advance.
    pub(crate) async fn blink(&self, time: Duration) {
        self.busy(tokio::time::sleep(time)).await;
    }

    /// Ages all leases of `keys` by slightly more than `time`, because a lease may still be valid
    /// at its exact end.
    pub(crate) async fn age(&self, keys: &[LockKey], time: Duration) {
        // Outside of driven time, the calls themselves take some time. Redis expires a lease at the
        // next millisecond.
        const A_LITTLE: Duration = Duration::from_millis(2);

        match self.store.time {
            Time::Driven => self.pass(time + A_LITTLE).await,
            Time::Real | Time::Virtual => self.used.harness.advance(keys, time).await,
        }
    }

    /// Returns the holder of `key`, read directly from the store.
    pub(crate) async fn probe(&self, key: &LockKey) -> Option<Holder> {
        self.busy(self.used.harness.probe(key)).await
    }

    /// Causes a fault of the store or of the connections.
    pub(crate) async fn disturb(&self, fault: FaultKind) {
        self.silent.store(fault == FaultKind::ServerStopped, Ordering::Relaxed);
        self.busy(self.used.disturb(fault)).await;
    }

    /// Ends all faults.
    pub(crate) async fn heal(&self) {
        self.silent.store(false, Ordering::Relaxed);
        self.busy(self.used.heal()).await;
    }

    /// Waits until `condition` is true.
    ///
    /// # Panics
    ///
    /// Panics if the condition is not true after `within` plus the slack.
    pub(crate) async fn until(
        &self,
        event: &str,
        within: Duration,
        condition: impl AsyncFn() -> bool,
    ) {
        let give_up = self.now() + within + self.slack();
        let waited = self.silences.ask();
        while !condition().await {
            assert!(
                self.now() < give_up,
                "{event}: found nothing, expected within {within:?} (and a slack of {:?})",
                self.slack()
            );
            self.pass(self.ttl() / LOOKS).await;
        }
        waited.ends(None);
    }

    /// Waits until the store shows no holder of `key`.
    ///
    /// # Panics
    ///
    /// Panics if the key is not free after `within` plus the slack.
    pub(crate) async fn until_free(&self, key: &LockKey, within: Duration) {
        let condition = async || self.probe(key).await.is_none();
        self.until("the key is free", within, condition).await;
    }

    /// Returns the store after a case that passed, so that the next case can use it.
    pub(crate) fn give_back(self) {
        pool::give_back(&self.store, self.used);
    }

    /// Checks the conditions that must hold after every case: its keys can be locked within one
    /// TTL, and the store keeps no data for them.
    pub(crate) async fn epilogue(&self) {
        let keys = self.keys.lock().unwrap_or_else(PoisonError::into_inner).clone();
        let client = self.client().await;
        let late = client.backend().capabilities().ttl_granularity();
        let wait = self.ttl() + Duration::from_secs(1).max(late) + self.slack();
        for key in keys {
            let mutex = client.mutex(&key).expect("the key was good before");
            let guard = mutex.try_lock_for(wait).await;
            let guard = guard.unwrap_or_else(|error| {
                panic!("{key} after the case: found {error}, expected a free key")
            });
            guard.release().await.expect("the lock can be released after the case");
            found!(self.probe(&key).await, "the holder of {key} after the case").is(None);
        }
    }
}
