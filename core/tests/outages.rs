//! Stores that fail for some leases, and not for the others.

use std::time::Duration;

use async_trait::async_trait;
use leasehold_core::clock::TokioClock;
use leasehold_core::fault::{Fault, FaultBackend, Faults};
use leasehold_core::{
    Attempt, Capabilities, Claim, Error, ErrorKind, KeyWatch, KeyWatches, Lease, LockBackend,
    LockClient, LockGuard, LockKey, LockOptions, MemoryBackend, Operation, Release, Renewal,
};

const TTL: Duration = ms(30_000);

const fn ms(millis: u64) -> Duration {
    Duration::from_millis(millis)
}

/// One store, and a client of it that suffers.
struct Scene {
    client: LockClient<FaultBackend<MemoryBackend>>,
    faults: Faults,
    clock: TokioClock,
    store: MemoryBackend,
}

impl Scene {
    fn new() -> Self {
        let clock = TokioClock::new();
        let store = MemoryBackend::with_clock(clock);
        let backend = FaultBackend::new(store.clone());
        let faults = backend.faults().clone();
        let options = LockOptions::new().ttl(TTL);
        let builder = LockClient::builder(backend).clock(clock).options(options);
        Self { client: builder.build().unwrap(), faults, clock, store }
    }

    fn other(&self) -> LockClient<MemoryBackend> {
        LockClient::builder(self.store.clone()).clock(self.clock).build().unwrap()
    }

    async fn lock(&self, name: &str, ttl: Duration) -> LockGuard {
        let mutex = self.client.mutex(name).unwrap();
        mutex.with_options(self.client.options().ttl(ttl)).unwrap().lock().await.unwrap()
    }

    /// A lock whose requests of this kind all suffer the fault.
    async fn lock_in_trouble(
        &self,
        name: &str,
        ttl: Duration,
        operation: Operation,
        fault: Fault,
    ) -> LockGuard {
        self.faults.inject_on(&LockKey::new(name).unwrap(), operation, fault, 100);
        self.lock(name, ttl).await
    }
}

#[tokio::test(start_paused = true)]
async fn renewals_that_hang_keep_no_others_waiting() {
    let scene = Scene::new();
    let (mut hung, mut healthy) = (Vec::new(), Vec::new());
    for n in 0..2_000 {
        let name = format!("k{n}");
        if n % 10 == 0 {
            let (operation, fault) = (Operation::Renew, Fault::SwallowRequest);
            hung.push(scene.lock_in_trouble(&name, TTL, operation, fault).await);
        } else {
            healthy.push(scene.lock(&name, TTL).await);
        }
    }

    tokio::time::sleep(TTL * 2).await;

    assert_eq!(hung.iter().filter(|guard| guard.is_held()).count(), 0);
    assert_eq!(healthy.iter().filter(|guard| guard.is_held()).count(), 1_800);
}

#[tokio::test(start_paused = true)]
async fn renewals_that_hang_for_long_keep_no_others_waiting() {
    const LONG: Duration = Duration::from_secs(3_600);

    let scene = Scene::new();
    let mut hung = Vec::new();
    for n in 0..9 {
        let (operation, fault) = (Operation::Renew, Fault::SwallowRequest);
        hung.push(scene.lock_in_trouble(&format!("k{n}"), LONG, operation, fault).await);
        // Each is due by itself.
        tokio::time::sleep(LONG / 100).await;
    }
    tokio::time::sleep(LONG / 3 - LONG / 100 * 9).await;

    let guard = scene.lock("other", TTL).await;

    assert!(tokio::time::timeout(LONG / 6, guard.lost()).await.is_err());
}

#[tokio::test(start_paused = true)]
async fn releases_that_fail_keep_no_others_waiting() {
    let scene = Scene::new();
    let mut failing = Vec::new();
    for n in 0..200 {
        let (operation, fault) = (Operation::Release, Fault::Fail(ErrorKind::Unavailable));
        failing.push(scene.lock_in_trouble(&format!("k{n}"), TTL, operation, fault).await);
    }
    drop(failing);
    tokio::time::sleep(ms(100)).await;

    drop(scene.lock("other", TTL).await);
    tokio::time::sleep(ms(1)).await;

    assert!(scene.other().mutex("other").unwrap().try_lock().await.unwrap().is_some());
    // The others are free when their TTL is over, and nothing is owed any more.
    tokio::time::sleep(TTL).await;
    scene.client.shutdown(Duration::ZERO).await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn releases_that_hang_are_tried_again() {
    let scene = Scene::new();
    let guard = scene.lock("k", TTL).await;
    scene.faults.inject(Operation::Release, Fault::SwallowRequest, 1);

    drop(guard);
    tokio::time::sleep(TTL / 5).await;

    assert!(scene.other().mutex("k").unwrap().try_lock().await.unwrap().is_some());
}

/// A store that breaks off when it is asked to renew, and is there again at once, of which it tells.
#[derive(Debug)]
struct Breaking {
    inner: MemoryBackend,
    news: KeyWatches,
}

#[async_trait]
impl LockBackend for Breaking {
    fn capabilities(&self) -> Capabilities {
        self.inner.capabilities()
    }

    async fn try_acquire(&self, claim: &Claim) -> Result<Attempt, Error> {
        self.inner.try_acquire(claim).await
    }

    async fn renew(&self, _lease: &Lease) -> Result<Renewal, Error> {
        tokio::time::sleep(ms(1)).await;
        self.news.notify_all();
        Err(Error::new(ErrorKind::Indeterminate, "it broke off"))
    }

    async fn release(&self, lease: &Lease) -> Result<Release, Error> {
        self.inner.release(lease).await
    }

    fn watch_lease(&self, lease: &Lease) -> KeyWatch {
        self.news.watch(lease.key())
    }
}

#[tokio::test(start_paused = true)]
async fn renewals_that_fail_with_news_each_time_have_pauses_between_them() {
    let clock = TokioClock::new();
    let inner = MemoryBackend::with_clock(clock);
    let backend = FaultBackend::new(Breaking { inner, news: KeyWatches::default() });
    let faults = backend.faults().clone();
    let client = LockClient::builder(backend).clock(clock).build().unwrap();
    let _guard = client.mutex("k").unwrap().lock().await.unwrap();

    tokio::time::sleep(TTL / 3 + ms(1_000)).await;

    let renewals = faults.calls(Operation::Renew);
    assert!((5..=10).contains(&renewals), "{renewals}");
}
