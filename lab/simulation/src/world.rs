//! The part of a simulation that all clients share.

use std::hash::{DefaultHasher, Hash, Hasher};
use std::mem;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use leasehold_conformance::FaultKind;
use leasehold_conformance::history::run::Run;
use leasehold_core::LockKey;
use leasehold_core::admin::Revocation;
use leasehold_core::backend::Renewal;
use leasehold_core::memory::Outcome;
use tokio::time;

use crate::clock::DriftingClock;
use crate::incident::{Incident, Target};
use crate::network::Link;
use crate::processor::Processor;
use crate::recorder::Recorder;
use crate::schedule::{LinkId, Schedule};
use crate::store::{Request, Store};
use crate::weather::Weather;

/// More than the TTL of most leases.
const CLOCK_STEP: Duration = Duration::from_millis(1_500);

pub(crate) struct World {
    pub(crate) schedule: Schedule,
    pub(crate) incidents: Vec<Incident>,
    pub(crate) recorder: Recorder,
    /// How long a client waits for a reply.
    pub(crate) reply_limit: Duration,
    /// How often followers pass on to a store the renewals that they have answered, if they do.
    pings: Option<Duration>,
    weather: Mutex<Weather>,
    zero: time::Instant,
    stores: Vec<Store>,
    links: Mutex<Vec<Link>>,
    messages: AtomicU64,
    trace: AtomicU64,
}

impl World {
    pub(crate) fn new(
        schedule: Schedule,
        incidents: Vec<Incident>,
        weather: Weather,
        reply_limit: Duration,
        stores: Vec<Store>,
        pings: Option<Duration>,
    ) -> Self {
        let zero = time::Instant::now();
        Self {
            schedule,
            recorder: Recorder::new(zero),
            incidents,
            reply_limit,
            pings,
            weather: Mutex::new(weather),
            zero,
            stores,
            links: Mutex::default(),
            messages: AtomicU64::new(0),
            trace: AtomicU64::new(0),
        }
    }

    pub(crate) fn zero(&self) -> time::Instant {
        self.zero
    }

    pub(crate) fn now(&self) -> Duration {
        self.zero.elapsed()
    }

    pub(crate) fn messages(&self) -> u64 {
        self.messages.load(Ordering::Relaxed)
    }

    /// A digest of all messages in their order: equal runs have equal traces.
    pub(crate) fn trace(&self) -> u64 {
        self.trace.load(Ordering::Relaxed)
    }

    pub(crate) fn processor(&self, client: usize) -> Processor {
        Processor::new(client, self.zero, &self.incidents, self.schedule)
    }

    /// Ends all faults of the network.
    pub(crate) fn calm_down(&self) {
        let mut weather = self.weather.lock().unwrap_or_else(PoisonError::into_inner);
        if !mem::replace(&mut *weather, Weather::CALM).is_calm() {
            self.recorder.network_disturbed();
        }
    }

    pub(crate) fn weather(&self) -> Weather {
        *self.weather.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Connects a new process in the place of a client to all stores.
    pub(crate) fn connect(
        self: &Arc<Self>,
        client: usize,
        life: u64,
        process: u32,
        clock: &DriftingClock,
        muted: bool,
    ) -> Vec<Link> {
        let ids = (0..self.stores.len()).map(|store| LinkId { client, life, store });
        let links: Vec<_> =
            ids.map(|id| Link::new(id, process, Arc::clone(self), clock.clone(), muted)).collect();
        self.links().extend(links.iter().cloned());
        links
    }

    /// Forgets all links, each of which knows the world; and how many keys were still watched over them.
    pub(crate) fn disconnect_all(&self) -> usize {
        let links = mem::take(&mut *self.links());
        links.iter().map(Link::watched_keys).sum()
    }

    /// How many keys have a lease, a place or a mark in a store.
    pub(crate) fn keys_in_stores(&self) -> usize {
        self.stores.iter().map(Store::keys).sum()
    }

    /// The outcome of the same request in each store.
    pub(crate) fn apply_everywhere(&self, request: &Request) -> Vec<Outcome> {
        (0..self.stores.len()).map(|store| self.apply(store, request)).collect()
    }

    /// Applies a request, records the outcome, and notifies all clients of the change.
    pub(crate) fn apply(&self, store: usize, request: &Request) -> Outcome {
        let now = self.now();
        self.messages.fetch_add(1, Ordering::Relaxed);
        let (outcome, changed) = self.stores[store].apply(request, now);
        self.note(store, request);
        self.record_outcome(store, request, &outcome);
        if changed || request.concerns_holders() {
            let links = self.links().clone();
            links.iter().filter(|link| link.store() == store).for_each(|link| link.tell(request));
        }
        outcome
    }

    /// The reply of a follower, which knows the leases of a store and not how long they last; and when its next ping is.
    pub(crate) fn answer_of_follower(
        &self,
        store: usize,
        request: &Request,
    ) -> Option<(Outcome, Duration)> {
        let (Request::Renew(lease), Some(pings)) = (request, self.pings) else { return None };
        let look = Request::Inspect(lease.key().clone());
        let (Outcome::Inspection(found), _) = self.stores[store].apply(&look, self.now()) else {
            unreachable!("each request has its own outcome")
        };
        let fingerprint = lease.id().fingerprint();
        let is_held = found.holders().iter().any(|holder| holder.fingerprint() == fingerprint);
        let pings_before = self.now().as_nanos() / pings.as_nanos();
        let next = pings * u32::try_from(pings_before + 1).expect("a simulation is short");
        is_held.then_some((Outcome::Renewal(Renewal::Renewed), next))
    }

    /// Applies an incident without a duration. At the start of a pause, checks all guards.
    pub(crate) fn strike(&self, incident: &Incident, keys: &[LockKey]) {
        match (incident.kind, incident.target) {
            (FaultKind::DataFlushed, Target::Store(store)) => self.stores[store].wipe(self.now()),
            (FaultKind::FailoverCommanded, Target::Store(store)) => {
                self.stores[store].fail_over(self.now());
            }
            (FaultKind::MemberWiped, Target::Store(store)) => {
                self.stores[store].lose_all();
                self.recorder.tokens_lost(store);
            }
            (FaultKind::MemberClockForward, Target::Store(store)) => {
                self.stores[store].step(CLOCK_STEP);
            }
            (FaultKind::LeasesRevoked, _) => {
                for key in keys {
                    self.apply_everywhere(&Request::ForceRelease(key.clone(), None));
                }
            }
            (FaultKind::ClientStopped, _) => self.recorder.look(),
            _ => {}
        }
    }

    /// Checks the history. The faults of the network end if the work has not ended them.
    pub(crate) fn check(&self) -> Run {
        self.calm_down();
        self.recorder.check(&self.incidents)
    }

    pub(crate) fn is_on(&self, kind: FaultKind, target: Target) -> bool {
        let now = self.now();
        self.incidents.iter().any(|incident| incident.is(kind, target) && incident.is_on(now))
    }

    /// Waits until no fault of this kind affects this target.
    pub(crate) async fn outlast(&self, kind: FaultKind, target: Target) {
        self.outlast_all(|incident| incident.is(kind, target)).await;
    }

    /// Waits until a store applies a request.
    pub(crate) async fn admits(&self, store: usize, request: &Request) {
        let keys = request.keys();
        self.outlast_all(|incident| match (incident.kind, incident.target) {
            (FaultKind::ServerStopped, Target::Store(stopped)) => stopped == store,
            (FaultKind::KeyStalled, Target::Key { store: at, key }) => {
                at == store && keys.iter().any(|it| it.as_str() == key)
            }
            _ => false,
        })
        .await;
    }

    async fn outlast_all(&self, counts: impl Fn(&Incident) -> bool) {
        loop {
            let now = self.now();
            let on = |incident: &&Incident| counts(incident) && incident.is_on(now);
            let Some(end) = self.incidents.iter().filter(on).map(Incident::end).max() else {
                return;
            };
            time::sleep_until(self.zero + end).await;
        }
    }

    fn record_outcome(&self, store: usize, request: &Request, outcome: &Outcome) {
        for (lease, grant) in request.grants(outcome) {
            self.recorder.granted(store, lease, grant);
        }
        match (request, outcome) {
            (Request::ForceRelease(key, _), Outcome::ForcedRelease(it))
                if !it.ended().is_empty() =>
            {
                self.recorder.force_released(store, key);
            }
            (Request::Revoke(key, _), Outcome::Revocation(Revocation::Requested)) => {
                self.recorder.revocation_requested(store, key);
            }
            _ => {}
        }
        self.recorder.look();
    }

    fn links(&self) -> MutexGuard<'_, Vec<Link>> {
        self.links.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn note(&self, store: usize, request: &Request) {
        let mut hasher = DefaultHasher::new();
        let kind = mem::discriminant(request);
        (self.trace(), self.now(), store, kind, request.keys()).hash(&mut hasher);
        self.trace.store(hasher.finish(), Ordering::Relaxed);
    }
}
