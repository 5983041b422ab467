//! Leases that come with the news: who waits need not ask for them.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use leasehold_core::clock::{Clock, Instant, TokioClock};
use leasehold_core::fault::{Fault, FaultBackend, Faults};
use leasehold_core::{
    Attempt, Capabilities, Claim, Contention, Error, ErrorKind, Grant, KeyWatch, KeyWatches, Lease,
    LeaseState, LockBackend, LockClient, LockGuard, LockKey, LockOptions, LossReason,
    MemoryBackend, Mutex, Offer, Operation, Release, Renewal, RenewalMode, Retry,
};
use tokio::task::{JoinHandle, yield_now};

const TTL: Duration = ms(30_000);
const SHORT: Duration = ms(5_000);

const fn ms(millis: u64) -> Duration {
    Duration::from_millis(millis)
}

/// What may be believed of a time that the store has counted.
fn sure(time: Duration) -> Duration {
    let percent = u64::try_from(time.as_millis().div_ceil(100)).unwrap();
    time.saturating_sub(ms(percent + 2))
}

/// A store that says nothing but what the test says.
#[derive(Clone, Debug)]
struct Store {
    inner: MemoryBackend,
    news: KeyWatches,
    asked: Arc<std::sync::Mutex<Vec<Claim>>>,
}

#[async_trait]
impl LockBackend for Store {
    fn capabilities(&self) -> Capabilities {
        self.inner.capabilities()
    }

    async fn try_acquire(&self, claim: &Claim) -> Result<Attempt, Error> {
        let number = {
            let mut asked = self.asked.lock().unwrap();
            asked.push(claim.clone());
            u64::try_from(asked.len()).unwrap()
        };
        Ok(match self.inner.try_acquire(claim).await? {
            Attempt::Held(contention) => Attempt::Held(contention.with_attempt(number)),
            granted @ Attempt::Granted(_) => granted,
        })
    }

    async fn renew(&self, lease: &Lease) -> Result<Renewal, Error> {
        self.inner.renew(lease).await
    }

    async fn release(&self, lease: &Lease) -> Result<Release, Error> {
        self.inner.release(lease).await
    }

    fn watch(&self, key: &LockKey) -> KeyWatch {
        self.news.watch(key)
    }

    fn watch_lease(&self, _lease: &Lease) -> KeyWatch {
        KeyWatch::silent()
    }
}

/// One who holds `k` in the store, and one who waits for it.
struct Scene {
    store: Store,
    clock: TokioClock,
    faults: Faults,
    holder: Lease,
    mutex: Mutex,
    waiting: JoinHandle<LockGuard>,
    asked_at: Instant,
}

impl Scene {
    async fn start(options: LockOptions) -> Self {
        let clock = TokioClock::new();
        let (inner, news) = (MemoryBackend::with_clock(clock), KeyWatches::default());
        let store = Store { inner, news, asked: Arc::default() };
        let holder = Lease::new(&LockKey::new("k").unwrap(), ms(600_000));
        store.inner.try_acquire(&Claim::new(holder.clone())).await.unwrap();
        let backend = FaultBackend::new(store.clone());
        let faults = backend.faults().clone();
        let client = LockClient::builder(backend).clock(clock).options(options).build().unwrap();
        let mutex = client.mutex("k").unwrap();
        let asked_at = clock.now();
        let waiting = wait(&mutex);
        let scene = Self { store, clock, faults, holder, mutex, waiting, asked_at };
        while scene.asked() == 0 {
            yield_now().await;
        }
        scene
    }

    /// How often the store was asked.
    fn asked(&self) -> usize {
        self.store.asked.lock().unwrap().len()
    }

    fn claim(&self) -> Claim {
        self.store.asked.lock().unwrap()[0].clone()
    }

    /// Has the store make who waits the holder.
    async fn grant(&self) -> Grant {
        self.store.inner.release(&self.holder).await.unwrap();
        match self.store.inner.try_acquire(&self.claim()).await.unwrap() {
            Attempt::Granted(grant) => grant.without_news(),
            Attempt::Held(contention) => panic!("{contention:?}"),
        }
    }

    fn offer(&self, offer: Offer) {
        self.store.news.offer("k", &self.claim().id().secret(), offer);
    }

    async fn guard(&mut self) -> LockGuard {
        (&mut self.waiting).await.unwrap()
    }
}

fn wait(mutex: &Mutex) -> JoinHandle<LockGuard> {
    let mutex = mutex.clone();
    tokio::spawn(async move { mutex.lock().await.unwrap() })
}

fn options() -> LockOptions {
    LockOptions::new().ttl(TTL).retry(Retry::unlimited().every(ms(60_000)))
}

async fn pass(time: Duration) {
    tokio::time::sleep(time).await;
}

#[tokio::test(start_paused = true)]
async fn are_taken_without_asking() {
    let mut scene = Scene::start(options()).await;
    pass(ms(1_000)).await;
    let grant = scene.grant().await;
    scene.offer(Offer::new(grant.clone(), 1, ms(1_000)));

    let guard = scene.guard().await;

    assert_eq!(guard.token().number(), grant.token());
    assert_eq!(scene.asked(), 1);
    // As if it had been asked for as much later as the store says, less what clocks may differ by.
    assert_eq!(guard.deadline(), scene.asked_at + sure(ms(1_000)) + sure(TTL));
    guard.release().await.unwrap();
    assert_eq!(scene.store.inner.keys(), 0);
}

/// Until then the store does not know that its holder wants to hear of its end.
#[tokio::test(start_paused = true)]
async fn are_renewed_as_soon_as_it_seems_that_they_are_needed_for_longer() {
    let mut scene = Scene::start(options()).await;
    scene.offer(Offer::new(scene.grant().await, 1, ms(0)));
    let guard = scene.guard().await;

    pass(ms(30)).await;
    assert_eq!(scene.faults.calls(Operation::Renew), 0);
    pass(ms(30)).await;
    assert_eq!(scene.faults.calls(Operation::Renew), 1);
    pass(ms(9_000)).await;
    assert_eq!(scene.faults.calls(Operation::Renew), 1, "and then as any other");
    assert!(guard.is_held());
}

#[tokio::test(start_paused = true)]
async fn end_as_early_as_the_store_says() {
    let mut scene = Scene::start(options()).await;
    scene.faults.inject(Operation::Renew, Fault::SwallowRequest, 1_000);
    scene.offer(Offer::new(scene.grant().await.with_ttl(SHORT), 1, ms(0)));
    let guard = scene.guard().await;

    pass(sure(SHORT) - ms(1)).await;
    assert!(guard.is_held());
    pass(ms(1)).await;

    assert_eq!(guard.state(), LeaseState::Lost(LossReason::Expired));
}

/// A renewal cannot make them last longer, but asks for news of their end.
#[tokio::test(start_paused = true)]
async fn that_are_capped_are_renewed_once() {
    let mut scene = Scene::start(options().max_hold(ms(10_000))).await;
    scene.offer(Offer::new(scene.grant().await, 1, ms(0)));
    let guard = scene.guard().await;

    pass(ms(9_000)).await;
    assert_eq!(scene.faults.calls(Operation::Renew), 1);
    assert!(guard.is_held());
    pass(ms(1_000)).await;
    assert_eq!(guard.state(), LeaseState::Lost(LossReason::MaxHold));
}

/// The store's clock may jump.
#[tokio::test(start_paused = true)]
async fn are_not_believed_to_be_from_the_future() {
    let mut scene = Scene::start(options()).await;
    pass(ms(1_000)).await;
    scene.offer(Offer::new(scene.grant().await, 1, ms(3_600_000)));

    let guard = scene.guard().await;

    assert_eq!(guard.deadline(), scene.clock.now() + sure(TTL));
}

#[tokio::test(start_paused = true)]
async fn that_are_half_over_are_asked_for() {
    let mut scene = Scene::start(options()).await;
    pass(ms(500)).await;
    scene.offer(Offer::new(scene.grant().await.with_ttl(ms(1_000)), 1, ms(0)));

    let guard = scene.guard().await;

    assert_eq!(scene.asked(), 2);
    assert_eq!(guard.deadline(), scene.clock.now() + sure(TTL));
}

#[tokio::test(start_paused = true)]
async fn are_taken_where_nothing_is_renewed() {
    let mut scene = Scene::start(options().renewal(RenewalMode::Off)).await;
    scene.offer(Offer::new(scene.grant().await, 1, ms(0)));

    let guard = scene.guard().await;
    pass(ms(1_000)).await;

    assert_eq!((scene.asked(), scene.faults.calls(Operation::Renew)), (1, 0));
    assert_eq!(guard.deadline(), scene.asked_at + sure(TTL));
}

#[tokio::test(start_paused = true)]
async fn are_asked_for_where_the_store_is_to_keep_them_longer_than_they_are_believed_in() {
    let mut scene = Scene::start(options().lock_delay(SHORT)).await;
    scene.offer(Offer::new(scene.grant().await.with_ttl(SHORT), 1, ms(0)));

    let guard = scene.guard().await;

    assert_eq!(scene.asked(), 2);
    assert_eq!(guard.deadline(), scene.clock.now() + sure(TTL));
}

/// Nobody knows when the store received the last.
#[tokio::test(start_paused = true)]
async fn are_asked_for_after_an_attempt_without_an_answer() {
    let mut scene = Scene::start(options()).await;
    scene.faults.inject(Operation::Acquire, Fault::Fail(ErrorKind::Indeterminate), 1);
    scene.store.news.notify("k");
    pass(ms(1)).await;
    assert_eq!(scene.faults.calls(Operation::Acquire), 2);
    let grant = scene.grant().await;
    scene.offer(Offer::new(grant.clone(), 1, ms(0)));

    let guard = scene.guard().await;

    assert_eq!(scene.faults.calls(Operation::Acquire), 3);
    assert!(guard.token().number() > grant.token());
}

/// Its news may come as late as its lease has ended and another attempt was made.
#[tokio::test(start_paused = true)]
async fn that_follow_another_attempt_are_asked_for() {
    for number in [1, 3] {
        let mut scene = Scene::start(options()).await;
        scene.store.news.notify("k");
        while scene.asked() < 2 {
            yield_now().await;
        }
        scene.offer(Offer::new(scene.grant().await, number, ms(0)));

        let guard = scene.guard().await;

        assert_eq!(scene.asked(), 3);
        assert_eq!(guard.deadline(), scene.clock.now() + sure(TTL));
    }
}

#[tokio::test(start_paused = true)]
async fn are_waited_for_without_looking_again_before_the_place_is_due() {
    let scene = Scene::start(LockOptions::new().ttl(TTL)).await;
    pass(SHORT / 3 - ms(10)).await;
    assert_eq!(scene.asked(), 1);
    pass(ms(20)).await;
    assert_eq!(scene.asked(), 2);

    // Unless pauses were asked for.
    let retry = Retry::unlimited().every(ms(100));
    let scene = Scene::start(LockOptions::new().ttl(TTL).retry(retry)).await;
    pass(ms(1_050)).await;
    assert_eq!(scene.asked(), 11);
}

/// A store that makes the next one the holder, as it says, and does not tell how long it remembers who that is.
#[derive(Clone, Debug)]
struct Terse(MemoryBackend);

#[async_trait]
impl LockBackend for Terse {
    fn capabilities(&self) -> Capabilities {
        self.0.capabilities()
    }

    async fn try_acquire(&self, claim: &Claim) -> Result<Attempt, Error> {
        Ok(match self.0.try_acquire(claim).await? {
            Attempt::Held(_) => Attempt::Held(Contention::new().with_attempt(1)),
            granted @ Attempt::Granted(_) => granted,
        })
    }

    async fn renew(&self, lease: &Lease) -> Result<Renewal, Error> {
        self.0.renew(lease).await
    }

    async fn release(&self, lease: &Lease) -> Result<Release, Error> {
        self.0.release(lease).await
    }
}

#[tokio::test(start_paused = true)]
async fn are_not_relied_on_without_a_place_and_are_owed_back_all_the_same() {
    let clock = TokioClock::new();
    let store = MemoryBackend::with_clock(clock);
    let holder = Lease::new(&LockKey::new("k").unwrap(), ms(600_000));
    store.try_acquire(&Claim::new(holder)).await.unwrap();
    let backend = FaultBackend::new(Terse(store));
    let faults = backend.faults().clone();
    let client = LockClient::builder(backend).clock(clock).build().unwrap();

    assert!(client.mutex("k").unwrap().try_lock_for(TTL).await.unwrap().is_none());
    pass(ms(1)).await;

    assert!(faults.calls(Operation::Acquire) > 10);
    assert_eq!(faults.calls(Operation::Release), 1);
}

#[tokio::test(start_paused = true)]
async fn of_others_are_left_to_them() {
    let scene = Scene::start(options()).await;
    let grant = Grant::new(std::num::NonZeroU64::MIN).with_ttl(SHORT);
    scene.store.news.offer("k", &scene.holder.id().secret(), Offer::new(grant, 1, ms(0)));
    pass(ms(1)).await;

    assert_eq!(scene.asked(), 2, "there was news");
    assert!(!scene.waiting.is_finished());
}

#[tokio::test(start_paused = true)]
async fn that_nobody_waits_for_any_more_are_released() {
    let scene = Scene::start(options()).await;
    scene.offer(Offer::new(scene.grant().await, 1, ms(0)));

    scene.waiting.abort();
    assert!(scene.waiting.await.is_err());
    pass(ms(1)).await;

    assert_eq!(scene.store.inner.keys(), 0);
}

#[tokio::test(start_paused = true)]
async fn are_passed_on_within_the_process_like_others() {
    let mut scene = Scene::start(options()).await;
    let next = wait(&scene.mutex);
    let grant = scene.grant().await;
    scene.offer(Offer::new(grant.clone(), 1, ms(0)));
    let guard = scene.guard().await;

    guard.release().await.unwrap();
    let guard = next.await.unwrap();

    assert_eq!(scene.asked(), 1);
    assert_eq!(guard.token().number(), grant.token() + 1);
}
