//! The fixture of a case: one store, clients of it, keys of its own.

use std::pin::pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::time::Duration;

use futures_util::future::{Either, select};
use leasehold_core::backend::{Lease, LockBackend};
use leasehold_core::clock::{Clock, Instant, SystemClock, TokioClock};
use leasehold_core::fault::{FaultBackend, Faults};
use leasehold_core::{Holder, LockClient, LockGuard, LockKey, LockOptions};

use crate::driven::{self, Calls, DrivenClock, Observed};
use crate::harness::{Disturbance, Time};
use crate::pool::{self, Sharing, Use};
use crate::profile::Profile;
use crate::silences::Silences;
use crate::stalls::{Measured, Stalls, Void};

/// So many looks in a TTL tell when a condition holds: each may be a request on a connection of its own.
const LOOKS: u32 = 400;

/// A store, with the surroundings that a case needs.
pub(crate) struct Scene {
    store: Profile,
    used: Use,
    clock: Arc<dyn Clock>,
    /// The same clock, if the suite drives it.
    driven: Option<DrivenClock>,
    calls: Calls,
    silences: Silences,
    keys: Mutex<Vec<LockKey>>,
    /// The machine, from the beginning of the case.
    machine: Stalls,
    stalls: OnceLock<Stalls>,
    /// Whether the store is disturbed so that it answers no client: not a stall.
    silent: Arc<AtomicBool>,
}

impl Scene {
    /// On a store that other cases may use as well.
    pub(crate) async fn start(store: Profile, sharing: Sharing) -> Self {
        let used = pool::take(&store, sharing).await;
        let driven = (store.time == Time::Driven).then(DrivenClock::new);
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

    /// Runs `case`, and drives its time if that is the suite's.
    pub(crate) async fn run<T>(&self, case: impl Future<Output = T>) -> T {
        match &self.driven {
            Some(clock) => driven::run(&*self.used.harness, clock, &self.calls, case).await,
            None => case.await,
        }
    }

    /// Whose time the store goes by.
    pub(crate) fn time(&self) -> Time {
        self.store.time
    }

    /// How many of all rounds of a long case this store runs.
    pub(crate) fn rounds(&self, all: usize) -> usize {
        self.store.rounds(all)
    }

    /// A key that no other case uses. When the case is over, nothing may be left under it.
    pub(crate) fn key(&self) -> LockKey {
        let key = LockKey::new(format!("conformance/{:016x}", fastrand::u64(..)));
        let key = key.expect("it is short and plain");
        self.keys.lock().unwrap_or_else(PoisonError::into_inner).push(key.clone());
        key
    }

    /// A new client of the store, bare.
    pub(crate) async fn backend(&self) -> Observed {
        self.observed(self.used.harness.connect_patiently()).await
    }

    /// A new client of the store, with the layers, and with the suite's options.
    pub(crate) async fn client(&self) -> LockClient<Observed> {
        self.client_with(self.options()).await
    }

    /// A new client of the store, with the layers, and with these options.
    pub(crate) async fn client_with(&self, options: LockOptions) -> LockClient<Observed> {
        self.layers(self.observed(self.used.harness.connect()).await, options)
    }

    /// A new client of the store whose backend fails on command.
    pub(crate) async fn faulty(&self) -> (LockClient<FaultBackend<Observed>>, Faults) {
        self.faulty_with(self.options()).await
    }

    /// The same, with these options.
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

    /// Has driven time stand still during something that the store is asked past the clients.
    async fn busy<T>(&self, asking: impl Future<Output = T>) -> T {
        let _call = self.calls.begin().await;
        asking.await
    }

    fn layers<B: LockBackend>(&self, backend: B, options: LockOptions) -> LockClient<B> {
        let builder = LockClient::builder(backend).clock(Arc::clone(&self.clock));
        builder.options(options).build().expect("the suite's options suit every store")
    }

    /// The harness's options with the suite's TTL.
    pub(crate) fn options(&self) -> LockOptions {
        self.used.harness.options().ttl(self.ttl())
    }

    /// The TTL of most leases.
    pub(crate) fn ttl(&self) -> Duration {
        self.used.harness.timing().ttl
    }

    /// A TTL that outlasts the steps of any case.
    pub(crate) fn long_ttl(&self) -> Duration {
        let timing = self.used.harness.timing();
        (timing.ttl * 20).min(timing.longest)
    }

    /// How late things may happen.
    pub(crate) fn slack(&self) -> Duration {
        self.used.harness.timing().slack
    }

    /// Judges an event that came just now, `took` after it was due, and was to come within `bound`.
    ///
    /// # Errors
    ///
    /// [`Void`] if it came late, and the machine stalled for that long since it was due.
    ///
    /// # Panics
    ///
    /// If it came later than that, or was due before the case began.
    pub(crate) fn in_time(&self, event: &str, took: Duration, bound: Duration) -> Measured {
        self.machine.in_time(event, took, bound)
    }

    /// The case says nothing if it waited for the store in vain, and the machine explains that.
    pub(crate) fn void(&self) -> Option<Void> {
        self.silences.explained_by(&self.machine)
    }

    /// How late things may happen while nothing stalls.
    pub(crate) fn prompt(&self) -> Duration {
        self.used.harness.timing().prompt
    }

    /// Watches the machine and the store from the first call on, for the verdicts of a case that measures time.
    ///
    /// In virtual time and in driven time nothing stalls.
    pub(crate) fn stalls(&self) -> &Stalls {
        self.stalls.get_or_init(|| match self.store.time {
            Time::Real => Stalls::watch_with(self.pulse()),
            Time::Driven | Time::Virtual => Stalls::none(),
        })
    }

    fn pulse(&self) -> impl FnMut() + Send + use<> {
        let (mut pulse, silent) = (self.used.harness.pulse(), Arc::clone(&self.silent));
        move || {
            if !silent.load(Ordering::Relaxed) {
                pulse();
            }
        }
    }

    /// Judges whether all of `guards` were kept by renewals for the last `time`, throughout which [`stalls`](Self::stalls) watched.
    ///
    /// # Errors
    ///
    /// [`Void`](crate::stalls::Void) if one is lost, and the machine stalled for as long as may cost a lease: a sixth of a TTL.
    ///
    /// # Panics
    ///
    /// If one is lost without that.
    pub(crate) fn kept<'a>(
        &self,
        guards: impl IntoIterator<Item = &'a LockGuard>,
        time: Duration,
    ) -> Measured {
        let lost = guards.into_iter().filter(|guard| !guard.is_held()).count();
        if lost > 0 {
            self.stalls().steady("leases are kept", time, self.ttl() / 6)?;
        }
        assert_eq!(lost, 0, "lost leases");
        Ok(())
    }

    /// A lease to be asked for without the layers.
    pub(crate) fn lease(&self, key: &LockKey) -> Lease {
        Lease::new(key, self.ttl())
    }

    /// The clock that the store and its clients go by.
    pub(crate) fn clock(&self) -> Arc<dyn Clock> {
        Arc::clone(&self.clock)
    }

    /// The time now.
    pub(crate) fn now(&self) -> Instant {
        self.clock.now()
    }

    /// Lets time pass.
    pub(crate) async fn pass(&self, time: Duration) {
        self.clock.sleep_until(self.now() + time).await;
    }

    /// Awaits `future`, but for no longer than this: `None` means that it was dropped unfinished.
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

    /// Lets real time pass, so that requests and replies that are under way get on. In driven time the clock stands still meanwhile.
    pub(crate) async fn blink(&self, time: Duration) {
        self.busy(tokio::time::sleep(time)).await;
    }

    /// Makes all leases of `keys` older by `time`, and by a little: a lease that is over at this very time is over.
    pub(crate) async fn age(&self, keys: &[LockKey], time: Duration) {
        // In other times, the calls themselves take a little. Redis ends a lease with the next millisecond.
        const A_LITTLE: Duration = Duration::from_millis(2);

        match self.store.time {
            Time::Driven => self.pass(time + A_LITTLE).await,
            Time::Real | Time::Virtual => self.used.harness.advance(keys, time).await,
        }
    }

    /// The holder of `key`, straight from the store.
    pub(crate) async fn witness(&self, key: &LockKey) -> Option<Holder> {
        self.busy(self.used.harness.witness(key)).await
    }

    /// Does something to the store.
    pub(crate) async fn disturb(&self, disturbance: Disturbance) {
        self.silent.store(disturbance == Disturbance::Pause, Ordering::Relaxed);
        self.busy(self.used.disturb(disturbance)).await;
    }

    /// Waits until `condition` holds, and fails the case if it does not `within` that time and slack.
    ///
    /// # Panics
    ///
    /// If it does not.
    pub(crate) async fn until(
        &self,
        event: &str,
        within: Duration,
        condition: impl AsyncFn() -> bool,
    ) {
        let give_up = self.now() + within + self.slack();
        let waited = self.silences.ask();
        while !condition().await {
            assert!(self.now() < give_up, "not within {within:?}: {event}");
            self.pass(self.ttl() / LOOKS).await;
        }
        waited.ends(None);
    }

    /// Waits until the store shows no holder of `key`.
    ///
    /// # Panics
    ///
    /// If it does not `within` that time and slack.
    pub(crate) async fn until_free(&self, key: &LockKey, within: Duration) {
        let condition = async || self.witness(key).await.is_none();
        self.until("the key is free", within, condition).await;
    }

    /// Leaves the store to the next case, after one that passed.
    pub(crate) fn give_back(self) {
        pool::give_back(&self.store, self.used);
    }

    /// The conditions that hold after every case: its keys can be locked within a TTL, and nothing is left under them.
    pub(crate) async fn epilogue(&self) {
        let keys = self.keys.lock().unwrap_or_else(PoisonError::into_inner).clone();
        let client = self.client().await;
        let wait = self.ttl() + Duration::from_secs(1) + self.slack();
        for key in keys {
            let mutex = client.mutex(&key).expect("the key was good before");
            let guard = mutex.try_lock_for(wait).await;
            let guard = guard.unwrap_or_else(|error| panic!("{key} after the case: {error}"));
            guard.release().await.expect("the store answers");
            assert_eq!(self.witness(&key).await, None, "something is left under {key}");
        }
    }
}
