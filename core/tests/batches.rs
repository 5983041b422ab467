//! Leases that are renewed together.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use async_trait::async_trait;
use leasehold_core::backend::{
    Attempt, Capabilities, Claim, Lease, LockBackend, Operation, Release, Renewal,
};
use leasehold_core::clock::TokioClock;
use leasehold_core::fault::{Fault, FaultBackend, Faults};
use leasehold_core::memory::MemoryBackend;
use leasehold_core::{
    Error, ErrorKind, LeaseState, LockClient, LockGuard, LockKey, LockOptions, LossReason,
};

const TTL: Duration = ms(30_000);

const fn ms(millis: u64) -> Duration {
    Duration::from_millis(millis)
}

/// A store that takes its time to renew, and notes how many leases each request was for.
#[derive(Clone, Debug)]
struct Store {
    inner: MemoryBackend,
    replies_in: Arc<Mutex<Duration>>,
    requests: Arc<Mutex<Vec<usize>>>,
}

#[async_trait]
impl LockBackend for Store {
    fn capabilities(&self) -> Capabilities {
        self.inner.capabilities()
    }

    async fn try_acquire(&self, claim: &Claim) -> Result<Attempt, Error> {
        self.inner.try_acquire(claim).await
    }

    async fn renew(&self, lease: &Lease) -> Result<Renewal, Error> {
        self.inner.renew(lease).await
    }

    async fn renew_all(&self, leases: &[Lease]) -> Vec<Result<Renewal, Error>> {
        self.requests.lock().unwrap().push(leases.len());
        let replies_in = *self.replies_in.lock().unwrap();
        tokio::time::sleep(replies_in).await;
        self.inner.renew_all(leases).await
    }

    async fn release(&self, lease: &Lease) -> Result<Release, Error> {
        self.inner.release(lease).await
    }
}

struct Scene {
    client: LockClient<FaultBackend<Store>>,
    faults: Faults,
    store: Store,
}

impl Scene {
    fn new(replies_in: Duration) -> Self {
        let clock = TokioClock::new();
        let inner = MemoryBackend::with_clock(clock);
        let replies_in = Arc::new(Mutex::new(replies_in));
        let store = Store { inner, replies_in, requests: Arc::default() };
        let backend = FaultBackend::new(store.clone());
        let faults = backend.faults().clone();
        let options = LockOptions::new().ttl(TTL);
        let client = LockClient::builder(backend).clock(clock).options(options).build().unwrap();
        Self { client, faults, store }
    }

    async fn lock(&self, name: &str, ttl: Duration) -> LockGuard {
        let mutex = self.client.mutex(name).unwrap();
        mutex.with_options(self.client.options().ttl(ttl)).unwrap().lock().await.unwrap()
    }

    async fn lock_many(&self, count: usize) -> Vec<LockGuard> {
        let mut guards = Vec::new();
        for n in 0..count {
            guards.push(self.lock(&format!("k{n}"), TTL).await);
        }
        guards
    }

    fn requests(&self) -> Vec<usize> {
        self.store.requests.lock().unwrap().clone()
    }
}

#[tokio::test(start_paused = true)]
async fn a_short_lease_makes_no_long_ones_unsure() {
    // Less than a renewal of the long ones is waited for, and more than one of the short lease.
    let scene = Scene::new(ms(150));
    let guards = scene.lock_many(100).await;
    // It falls due at the same moment.
    tokio::time::sleep(TTL / 3 - ms(200)).await;
    let _short = scene.lock("short", ms(600)).await;

    for _ in 0..60 {
        tokio::time::sleep(ms(10)).await;
        assert!(guards.iter().all(|guard| guard.state() == LeaseState::Held));
    }
    assert!(guards.iter().all(|guard| guard.remaining() > TTL * 9 / 10), "they were renewed");
}

#[tokio::test(start_paused = true)]
async fn requests_without_a_reply_are_repeated_in_few_parts() {
    const MANY: usize = 5_000;

    let scene = Scene::new(ms(1));
    let guards = scene.lock_many(MANY).await;
    // The first requests find the store frozen.
    *scene.store.replies_in.lock().unwrap() = TTL;
    tokio::time::sleep(TTL / 3 + ms(1)).await;
    assert!(!scene.requests().is_empty());
    *scene.store.replies_in.lock().unwrap() = ms(1);
    tokio::time::sleep(TTL / 3).await;

    let requests = scene.requests().len();
    assert!(requests < 200, "{requests}");
    assert!(guards.iter().all(|guard| guard.state() == LeaseState::Held));
    assert!(guards.iter().all(|guard| guard.remaining() > TTL / 3), "they were renewed");
}

#[tokio::test(start_paused = true)]
async fn a_lease_whose_renewals_hang_costs_no_other_of_its_request() {
    let scene = Scene::new(ms(1));
    let key = LockKey::new("k100").unwrap();
    scene.faults.inject_on(&key, Operation::Renew, Fault::SwallowRequest, 100);
    let guards = scene.lock_many(256).await;

    tokio::time::sleep(TTL * 2).await;

    let lost: Vec<_> = guards.iter().filter(|guard| !guard.is_held()).map(LockGuard::key).collect();
    assert_eq!(lost, [&key]);
    // Most of the others share one request again.
    let requests = scene.requests();
    assert!(requests.last().is_some_and(|leases| *leases > 200), "{requests:?}");
}

#[tokio::test(start_paused = true)]
async fn faults_of_some_leases_leave_the_others_one_request() {
    let scene = Scene::new(ms(1));
    let guards = scene.lock_many(10).await;
    let fault = Fault::Fail(ErrorKind::Unavailable);
    scene.faults.inject_on(guards[3].key(), Operation::Renew, fault, 1);
    scene.store.inner.force_release(guards[5].key()).await.unwrap();

    tokio::time::sleep(TTL / 3 + ms(100)).await;

    assert_eq!(scene.requests(), [9]);
    assert_eq!(scene.faults.calls(Operation::Renew), 10);
    for (n, guard) in guards.iter().enumerate() {
        let expected = match n {
            3 => LeaseState::Unsure,
            5 => LeaseState::Lost(LossReason::Vanished),
            _ => LeaseState::Held,
        };
        assert_eq!(guard.state(), expected, "{n}");
    }
}
