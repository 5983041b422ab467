//! The part of a simulation that all clients share.

use std::borrow::Cow;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::mem;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use leasehold_conformance::FaultKind;
use leasehold_conformance::history::run::Run;
use leasehold_core::LockKey;
use leasehold_core::backend::{Inspection, Renewal, Reply, Request, Revocation};
use tokio::time;

use crate::conditions::Conditions;
use crate::endpoint::Endpoint;
use crate::incident::{Incident, Target};
use crate::processor::Processor;
use crate::recorder::Recorder;
use crate::schedule::{LinkId, Schedule, Stream};
use crate::store::{self, Answer, Message, Store};

/// More than the TTL of most leases.
const CLOCK_STEP: Duration = Duration::from_millis(1_500);

pub(crate) struct World {
    pub(crate) schedule: Schedule,
    pub(crate) incidents: Vec<Incident>,
    pub(crate) recorder: Recorder,
    /// How long a client waits for a reply.
    pub(crate) reply_limit: Duration,
    /// How often followers forward the renewals that they have answered to a store. `None` if there are no followers.
    pings: Option<Duration>,
    conditions: Mutex<Conditions>,
    zero: time::Instant,
    stores: Vec<Store>,
    endpoints: Mutex<Vec<Arc<Endpoint>>>,
    messages: AtomicU64,
    trace: AtomicU64,
}

impl World {
    pub(crate) fn new(
        schedule: Schedule,
        incidents: Vec<Incident>,
        conditions: Conditions,
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
            conditions: Mutex::new(conditions),
            zero,
            stores,
            endpoints: Mutex::default(),
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

    /// Returns a digest of all messages in their order. Equal runs have equal traces.
    pub(crate) fn trace(&self) -> u64 {
        self.trace.load(Ordering::Relaxed)
    }

    pub(crate) fn processor(&self, client: usize) -> Processor {
        Processor::new(client, self.zero, &self.incidents, self.schedule)
    }

    /// Ends all faults of the network.
    pub(crate) fn calm_down(&self) {
        let mut conditions = self.conditions.lock().unwrap_or_else(PoisonError::into_inner);
        if !mem::replace(&mut *conditions, Conditions::CALM).is_calm() {
            self.recorder.network_disturbed();
        }
    }

    pub(crate) fn conditions(&self) -> Conditions {
        *self.conditions.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn stores(&self) -> usize {
        self.stores.len()
    }

    /// Lets an endpoint receive the notifications of its store.
    pub(crate) fn connect(&self, endpoint: Arc<Endpoint>) {
        self.endpoints().push(endpoint);
    }

    /// Disconnects all endpoints. Returns how many keys the endpoints were still watching.
    pub(crate) fn disconnect_all(&self) -> usize {
        mem::take(&mut *self.endpoints()).iter().map(|endpoint| endpoint.watched_keys()).sum()
    }

    /// Returns the number of keys with a lease, a queue entry or a revocation request in a store.
    pub(crate) fn keys_in_stores(&self) -> usize {
        self.stores.iter().map(Store::keys).sum()
    }

    /// Applies a request to each store, and returns the answers.
    pub(crate) fn apply_everywhere(self: &Arc<Self>, request: &Message) -> Vec<Answer> {
        (0..self.stores.len()).map(|store| self.apply(store, request)).collect()
    }

    /// Applies a request, records the answer, and notifies all clients of the change.
    pub(crate) fn apply(self: &Arc<Self>, store: usize, request: &Message) -> Answer {
        let now = self.now();
        self.messages.fetch_add(1, Ordering::Relaxed);
        let (answer, changed) = self.stores[store].apply(request, now);
        self.note(store, request);
        self.record_answer(store, request, &answer);
        if changed || store::concerns_holders(request) {
            let endpoints = self.endpoints().clone();
            let of_store = endpoints.into_iter().filter(|endpoint| endpoint.id.store == store);
            of_store.for_each(|endpoint| self.notify(endpoint, request));
        }
        answer
    }

    /// Notifies a client of a request that the store has applied.
    fn notify(self: &Arc<Self>, endpoint: Arc<Endpoint>, request: &Message) {
        if !endpoint.receives_notifications() {
            return;
        }
        let stream = Stream::Notification(endpoint.id, endpoint.next_number());
        if let Some(delay) = self.conditions().notification(&mut self.schedule.stream(stream)) {
            let (world, request) = (Arc::clone(self), request.clone());
            tokio::spawn(async move {
                time::sleep(delay).await;
                world.deliver(&endpoint, &request).await;
            });
        }
    }

    async fn deliver(&self, endpoint: &Endpoint, request: &Message) {
        let LinkId { client, store, .. } = endpoint.id;
        if self.is_on(FaultKind::RepliesDropped, Target::Link { client, store }) {
            return;
        }
        endpoint.processor.running().await;
        for key in store::keys(request) {
            endpoint.notify_waiters(&key);
            if store::concerns_holders(request) {
                endpoint.notify_holders(&key);
                self.recorder.notified(endpoint.process, store, &key);
            }
        }
    }

    /// Returns the answer of a follower, which has the store's leases but not their expiry times, and the time of the follower's next ping.
    pub(crate) fn answer_of_follower(
        &self,
        store: usize,
        request: &Message,
    ) -> Option<(Answer, Duration)> {
        let (Request::Renew(lease), Some(pings)) = (request, self.pings) else { return None };
        let look = Request::Inspect(Cow::Owned(lease.key().clone()));
        let (answer, _) = self.stores[store].apply(&look, self.now());
        let found: Inspection =
            answer.and_then(Reply::read).expect("the state machine supports inspections");
        let fingerprint = lease.id().fingerprint();
        let is_held = found.holders().iter().any(|holder| holder.fingerprint() == fingerprint);
        let pings_before = self.now().as_nanos() / pings.as_nanos();
        let next = pings * u32::try_from(pings_before + 1).expect("a simulation is short");
        is_held.then_some((Ok(Renewal::Renewed.into()), next))
    }

    /// Applies an incident without a duration. At the start of a pause, checks all guards.
    pub(crate) fn strike(self: &Arc<Self>, incident: &Incident, keys: &[LockKey]) {
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
                    self.apply_everywhere(&Request::ForceRelease(Cow::Owned(key.clone()), None));
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
    pub(crate) async fn admits(&self, store: usize, request: &Message) {
        let keys = store::keys(request);
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

    fn record_answer(&self, store: usize, request: &Message, answer: &Answer) {
        for (lease, grant) in store::grants(request, answer) {
            self.recorder.granted(store, lease, grant);
        }
        match (request, answer) {
            (Request::ForceRelease(key, _), Ok(Reply::ForcedRelease(it)))
                if !it.ended().is_empty() =>
            {
                self.recorder.force_released(store, key);
            }
            (Request::RequestRevocation(key, _), Ok(Reply::Revocation(Revocation::Requested))) => {
                self.recorder.revocation_requested(store, key);
            }
            _ => {}
        }
        self.recorder.look();
    }

    fn endpoints(&self) -> MutexGuard<'_, Vec<Arc<Endpoint>>> {
        self.endpoints.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn note(&self, store: usize, request: &Message) {
        let mut hasher = DefaultHasher::new();
        let (kind, keys) = (number(request), store::keys(request));
        (self.trace(), self.now(), store, kind, keys).hash(&mut hasher);
        self.trace.store(hasher.finish(), Ordering::Relaxed);
    }
}

/// Returns the number of an operation in the digests. The numbers must not change, because `tests/evidence` contains digests of earlier versions.
fn number(request: &Message) -> isize {
    match request {
        Request::Join(_) => 0,
        Request::ForceRelease(..) => 1,
        Request::Inspect(_) => 2,
        Request::Release(_) => 3,
        Request::Renew(_) => 4,
        Request::RequestRevocation(..) => 5,
        Request::Status(_) => 6,
        Request::Acquire(_) => 7,
        Request::AcquireAll(_) => 8,
        Request::Raise(..) => 9,
        Request::Vote(_) => 10,
        _ => 11,
    }
}
