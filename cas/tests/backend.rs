//! Tests of the conditional writes, the clock, and lost requests.

mod memory;

use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use async_trait::async_trait;
use leasehold_cas::{CasBackend, CasStore, Facts, Loaded, Reading, Version, Written};
use leasehold_core::backend::{
    Attempt, Claim, Lease, LockBackend as _, Release, Renewal, StoreAdmin as _,
};
use leasehold_core::clock::ManualClock;
use leasehold_core::{Error, ErrorKind, LockKey};

use memory::{MemoryStore, Options};

const TTL: Duration = Duration::from_secs(30);

/// A store that counts its requests, and that a test disturbs.
#[derive(Clone, Debug)]
struct Store {
    inner: MemoryStore,
    clock: ManualClock,
    loads: Arc<AtomicU64>,
    writes: Arc<AtomicU64>,
    /// By how many seconds the clock of the store was set forward.
    ahead: Arc<AtomicI64>,
    /// Whether writes wait, so that a test can drop them.
    holds_writes: Arc<AtomicBool>,
    ignores_conditions: bool,
    /// Whether the next write is delayed for a whole TTL, and has no reply.
    delays_a_write: Arc<AtomicBool>,
    /// Whether other requests run before the reply to a write.
    yields: Arc<AtomicBool>,
    /// The claim that another process acquires after the next write, whose reply is lost.
    intruder: Arc<Mutex<Option<Claim>>>,
}

impl Store {
    fn new(clock: &ManualClock) -> Self {
        Self {
            inner: MemoryStore::new(clock.clone(), Options::exact("documents")),
            clock: clock.clone(),
            loads: Arc::default(),
            writes: Arc::default(),
            ahead: Arc::default(),
            holds_writes: Arc::default(),
            ignores_conditions: false,
            delays_a_write: Arc::default(),
            yields: Arc::default(),
            intruder: Arc::default(),
        }
    }

    fn shifted(&self, time: Reading) -> Reading {
        let by = self.ahead.load(Ordering::Relaxed) * 1_000_000;
        Reading { earliest: time.earliest + by, latest: time.latest + by }
    }

    /// Returns the numbers of reads and writes since the last call.
    fn requests(&self) -> (u64, u64) {
        (self.loads.swap(0, Ordering::Relaxed), self.writes.swap(0, Ordering::Relaxed))
    }
}

#[async_trait]
impl CasStore for Store {
    fn facts(&self) -> Facts {
        self.inner.facts()
    }

    async fn load(&self, key: &LockKey) -> Result<Loaded, Error> {
        self.loads.fetch_add(1, Ordering::Relaxed);
        let loaded = self.inner.load(key).await?;
        Ok(Loaded { time: self.shifted(loaded.time), ..loaded })
    }

    async fn write(
        &self,
        key: &LockKey,
        expected: &Version,
        document: &str,
    ) -> Result<Written, Error> {
        self.writes.fetch_add(1, Ordering::Relaxed);
        if self.delays_a_write.swap(false, Ordering::Relaxed) {
            self.clock.advance(TTL);
            return Err(Error::new(ErrorKind::Indeterminate, "the reply was lost"));
        }
        if self.holds_writes.load(Ordering::Relaxed) {
            std::future::pending::<()>().await;
        }
        let expected = match self.ignores_conditions {
            true => self.inner.load(key).await?.version,
            false => expected.clone(),
        };
        let written = self.inner.write(key, &expected, document).await?;
        if self.yields.load(Ordering::Relaxed) {
            tokio::task::yield_now().await;
        }
        let intruder = self.intruder.lock().unwrap().take();
        if let Some(claim) = intruder {
            let other = CasBackend::with_clock(self.inner.clone(), self.clock.clone());
            assert!(matches!(other.acquire(&claim).await?, Attempt::Granted(_)));
            return Err(Error::new(ErrorKind::Indeterminate, "the reply was lost"));
        }
        Ok(match written {
            Written::Written { version, time } => {
                Written::Written { version, time: self.shifted(time) }
            }
            Written::Conflict => Written::Conflict,
        })
    }
}

struct Scene {
    clock: ManualClock,
    store: Store,
    key: LockKey,
}

impl Scene {
    fn new() -> Self {
        let clock = ManualClock::new();
        Self { store: Store::new(&clock), clock, key: LockKey::new("job").unwrap() }
    }

    /// Returns the backend of another process.
    fn process(&self) -> CasBackend<Store> {
        CasBackend::with_clock(self.store.clone(), self.clock.clone())
    }

    fn claim(&self) -> Claim {
        Claim::new(Lease::new(&self.key, TTL))
    }
}

async fn is_granted(process: &CasBackend<Store>, claim: &Claim) -> bool {
    matches!(process.acquire(claim).await.unwrap(), Attempt::Granted(_))
}

#[tokio::test]
async fn a_store_that_ignores_conditions_is_refused() {
    let scene = Scene::new();
    let store = Store { ignores_conditions: true, ..scene.store.clone() };
    let process = CasBackend::with_clock(store, scene.clock.clone());

    let error = process.acquire(&scene.claim()).await.unwrap_err();

    assert_eq!(error.kind(), ErrorKind::Unsupported);
    assert!(error.to_string().contains("ignores the condition"), "{error}");
}

#[tokio::test]
async fn a_key_that_a_process_used_last_is_acquired_renewed_and_released_without_reads() {
    let (scene, claim) = (Scene::new(), Scene::new().claim());
    let process = scene.process();
    assert!(is_granted(&process, &claim).await);
    assert_eq!(process.release(claim.lease()).await.unwrap(), Release::Released);
    scene.store.requests();

    let claim = scene.claim();
    assert!(is_granted(&process, &claim).await);
    scene.clock.advance(TTL / 3);
    assert_eq!(process.renew(claim.lease()).await.unwrap(), Renewal::Renewed);
    assert_eq!(process.release(claim.lease()).await.unwrap(), Release::Released);

    assert_eq!(scene.store.requests(), (0, 3));
}

#[tokio::test]
async fn a_refused_claim_of_a_caller_that_leaves_writes_nothing() {
    let scene = Scene::new();
    let (holder, other) = (scene.process(), scene.process());
    assert!(is_granted(&holder, &scene.claim()).await);
    assert!(!is_granted(&other, &scene.claim()).await);
    scene.store.requests();

    assert!(!is_granted(&other, &scene.claim()).await);

    assert_eq!(scene.store.requests(), (1, 0));
}

/// The clock of the store is set forward by an hour while a lease is in force. A process that has
/// read the key before the lease was renewed does not believe the clock.
#[tokio::test]
async fn a_clock_that_was_set_does_not_end_a_lease_for_a_process_that_knows_the_key() {
    let scene = Scene::new();
    let (holder, other, stranger) = (scene.process(), scene.process(), scene.process());
    assert!(!other.inspect(&scene.key).await.unwrap().is_held());
    let claim = scene.claim();
    assert!(is_granted(&holder, &claim).await);

    scene.store.ahead.store(3_600, Ordering::Relaxed);

    assert!(!is_granted(&other, &scene.claim()).await);
    scene.clock.advance(TTL / 2);
    assert!(!is_granted(&other, &scene.claim()).await);
    assert!(!stranger.inspect(&scene.key).await.unwrap().is_held(), "it has only the clock");
    scene.clock.advance(TTL / 2);
    assert!(is_granted(&other, &scene.claim()).await);
}

/// The process does not know whether the store will still apply the write of the dropped
/// acquisition.
#[tokio::test]
async fn the_write_of_a_dropped_acquisition_is_not_applied_after_the_release() {
    let scene = Scene::new();
    let (process, claim) = (scene.process(), scene.claim());
    assert!(is_granted(&process, &claim).await);
    assert_eq!(process.release(claim.lease()).await.unwrap(), Release::Released);
    let before = scene.store.inner.load(&scene.key).await.unwrap().version;

    let claim = scene.claim();
    scene.store.holds_writes.store(true, Ordering::Relaxed);
    let acquisition = tokio::time::timeout(Duration::from_millis(10), process.acquire(&claim));
    assert!(acquisition.await.is_err(), "the write is on its way");
    scene.store.holds_writes.store(false, Ordering::Relaxed);

    assert_eq!(process.release(claim.lease()).await.unwrap(), Release::NotHeld);
    let late = scene.store.inner.write(&scene.key, &before, "{}").await.unwrap();
    assert!(matches!(late, Written::Conflict), "the late write grants nothing");
}

/// The renewal finds that the lease has expired, but its first write may still arrive.
#[tokio::test]
async fn the_write_of_a_renewal_is_not_applied_after_its_outcome_is_known() {
    let scene = Scene::new();
    let (process, claim) = (scene.process(), scene.claim());
    assert!(is_granted(&process, &claim).await);
    let before = scene.store.inner.load(&scene.key).await.unwrap().version;

    scene.store.delays_a_write.store(true, Ordering::Relaxed);
    assert_eq!(process.renew(claim.lease()).await.unwrap(), Renewal::Vanished);

    let late = scene.store.inner.write(&scene.key, &before, "{}").await.unwrap();
    assert!(matches!(late, Written::Conflict), "the late write renews nothing");
}

#[tokio::test]
async fn a_document_that_is_not_valid_is_replaced_only_by_a_forced_release() {
    let scene = Scene::new();
    let process = scene.process();
    let written = scene.store.inner.write(&scene.key, &Version::Absent, "{}").await.unwrap();
    assert!(matches!(written, Written::Written { .. }));

    let error = process.acquire(&scene.claim()).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::WrongType);
    assert!(error.to_string().contains("force the release"), "{error}");

    let forced = process.force_release(&scene.key, None).await.unwrap();
    let min_token = forced.min_token().unwrap();
    let Attempt::Granted(grant) = process.acquire(&scene.claim()).await.unwrap() else {
        panic!("the key is free");
    };
    assert!(grant.token() > min_token);
}

#[tokio::test]
async fn tokens_increase_even_if_the_document_was_lost() {
    let scene = Scene::new();
    let Attempt::Granted(first) = scene.process().acquire(&scene.claim()).await.unwrap() else {
        panic!("the key is free");
    };
    scene.clock.advance(Duration::from_secs(1));
    scene.store.inner.documents.lock().unwrap().clear();

    let Attempt::Granted(second) = scene.process().acquire(&scene.claim()).await.unwrap() else {
        panic!("the key is free");
    };

    assert!(second.token() > first.token());
}

/// The clock shows whole seconds, so the end of the lease appears to be a whole TTL away for a
/// second.
#[tokio::test]
async fn each_renewal_is_written_even_if_the_end_seems_to_be_the_same() {
    let clock = ManualClock::new();
    let options = Options { is_coarse: true, ..Options::exact("documents") };
    let inner = MemoryStore::new(clock.clone(), options);
    let store = Store { inner, ..Store::new(&clock) };
    let process = CasBackend::with_clock(store.clone(), clock.clone());
    let claim = Claim::new(Lease::new(&LockKey::new("job").unwrap(), TTL));
    assert!(is_granted(&process, &claim).await);
    store.requests();

    for _ in 0..5 {
        clock.advance(Duration::from_millis(10));
        assert_eq!(process.renew(claim.lease()).await.unwrap(), Renewal::Renewed);
    }

    assert_eq!(store.requests(), (0, 5));
}

/// The process was paused with its machine, so its clock is an hour behind the clock of the store.
#[tokio::test]
async fn a_lease_that_is_acquired_after_a_pause_is_in_force_for_all_processes() {
    let scene = Scene::new();
    let (process, stranger) = (scene.process(), scene.process());
    assert!(!process.inspect(&scene.key).await.unwrap().is_held());

    scene.store.ahead.store(3_600, Ordering::Relaxed);
    assert!(is_granted(&process, &scene.claim()).await);

    assert!(!is_granted(&stranger, &scene.claim()).await);
}

#[tokio::test]
async fn a_step_does_not_wait_long_for_a_caller_that_is_not_polled() {
    let scene = Scene::new();
    let (process, claim) = (scene.process(), scene.claim());
    assert!(is_granted(&process, &claim).await);
    scene.store.holds_writes.store(true, Ordering::Relaxed);
    let mut stuck = Box::pin(process.renew(claim.lease()));
    let polled = tokio::time::timeout(Duration::from_millis(10), &mut stuck).await;
    assert!(polled.is_err(), "the write is on its way");
    scene.store.holds_writes.store(false, Ordering::Relaxed);

    assert_eq!(process.renew(claim.lease()).await.unwrap(), Renewal::Renewed);
    assert_eq!(process.release(claim.lease()).await.unwrap(), Release::Released);
}

/// The first reply is lost, and then another process acquires the key.
#[tokio::test]
async fn a_forced_release_does_not_report_a_free_key_if_it_may_have_ended_a_lease() {
    let scene = Scene::new();
    let (process, other) = (scene.process(), scene.process());
    assert!(is_granted(&other, &scene.claim()).await);
    assert!(process.inspect(&scene.key).await.unwrap().is_held());
    *scene.store.intruder.lock().unwrap() = Some(scene.claim());

    let error = process.force_release(&scene.key, None).await.unwrap_err();

    assert_eq!(error.kind(), ErrorKind::Indeterminate);
}

#[tokio::test]
async fn the_name_of_the_check_cannot_be_locked() {
    let scene = Scene { key: LockKey::new("leasehold:probe").unwrap(), ..Scene::new() };

    let error = scene.process().acquire(&scene.claim()).await.unwrap_err();

    assert_eq!(error.kind(), ErrorKind::Invalid);
}

/// Only the first of two replies shows that the clock of the store is ahead of what both requests
/// have assumed.
#[tokio::test]
async fn concurrent_renewals_after_a_pause_keep_their_leases_in_force() {
    let scene = Scene::new();
    let (process, stranger) = (scene.process(), scene.process());
    let keys = ["one", "other"].map(|name| LockKey::new(name).unwrap());
    let claims = keys.each_ref().map(|key| Claim::new(Lease::new(key, TTL)));
    for claim in &claims {
        assert!(is_granted(&process, claim).await);
    }

    scene.store.ahead.store(3_600, Ordering::Relaxed);
    scene.store.yields.store(true, Ordering::Relaxed);
    let [one, other] = &claims;
    let renewed = tokio::join!(process.renew(one.lease()), process.renew(other.lease()));

    assert_eq!((renewed.0.unwrap(), renewed.1.unwrap()), (Renewal::Renewed, Renewal::Renewed));
    for key in &keys {
        assert!(stranger.inspect(key).await.unwrap().is_held(), "{key}");
    }
}
