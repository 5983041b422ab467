//! Leases of which the store tells nothing before they are renewed, or all the time.

use std::time::Duration;

use async_trait::async_trait;
use leasehold_core::backend::{
    Attempt, Capabilities, Claim, KeyWatch, KeyWatches, Lease, LockBackend, Operation, Release,
    Renewal,
};
use leasehold_core::clock::TokioClock;
use leasehold_core::fault::Faults;
use leasehold_core::memory::MemoryBackend;
use leasehold_core::{Error, LockGuard, LockOptions, RenewalMode};

use crate::fixture::{Client, Fixture, TTL, ms};

/// A store that marks each lease as one with news, or none, and reports the events that the test sets. It takes its
/// time to renew.
#[derive(Clone, Debug)]
struct Store {
    inner: MemoryBackend,
    has_news: bool,
    news: KeyWatches,
    renews_in: Duration,
}

#[async_trait]
impl LockBackend for Store {
    fn capabilities(&self) -> Capabilities {
        self.inner.capabilities()
    }

    async fn try_acquire(&self, claim: &Claim) -> Result<Attempt, Error> {
        Ok(match self.inner.try_acquire(claim).await? {
            Attempt::Granted(grant) if !self.has_news => Attempt::Granted(grant.without_news()),
            attempt => attempt,
        })
    }

    async fn renew(&self, lease: &Lease) -> Result<Renewal, Error> {
        tokio::time::sleep(self.renews_in).await;
        self.inner.renew(lease).await
    }

    fn watch_lease(&self, lease: &Lease) -> KeyWatch {
        self.news.watch(lease.key())
    }

    async fn release(&self, lease: &Lease) -> Result<Release, Error> {
        self.inner.release(lease).await
    }
}

impl Store {
    fn new(has_news: bool) -> Self {
        let inner = MemoryBackend::with_clock(TokioClock::new());
        Self { inner, has_news, news: KeyWatches::default(), renews_in: Duration::ZERO }
    }
}

fn client(store: Store, options: LockOptions) -> (Client<Store>, Faults) {
    let Fixture { client, faults, .. } = Fixture::over(options.ttl(TTL), |_| store);
    (client, faults)
}

/// How often a lease was renewed by then, after so long each.
async fn renewals<const N: usize>(
    has_news: bool,
    options: LockOptions,
    after: [Duration; N],
) -> [usize; N] {
    let (client, faults) = client(Store::new(has_news), options);
    let _guard = client.mutex("k").unwrap().lock().await.unwrap();
    let mut seen = [0; N];
    for (seen, time) in seen.iter_mut().zip(after) {
        tokio::time::sleep(time).await;
        *seen = faults.calls(Operation::Renew);
    }
    seen
}

#[tokio::test(start_paused = true)]
async fn are_renewed_soon_and_then_as_any_other() {
    let after = [ms(45), ms(10), ms(9_000), ms(1_100)];
    let options = LockOptions::new();

    assert_eq!(renewals(false, options.clone(), after).await, [0, 1, 1, 2]);
    assert_eq!(renewals(true, options, after).await, [0, 0, 0, 1]);
}

#[tokio::test(start_paused = true)]
async fn are_not_renewed_where_nothing_is() {
    let options = LockOptions::new().renewal(RenewalMode::Off);

    assert_eq!(renewals(false, options, [ms(20_000)]).await, [0]);
}

#[tokio::test(start_paused = true)]
async fn cost_nothing_more_if_they_are_released_before() {
    let (client, faults) = client(Store::new(false), LockOptions::new());
    for _ in 0..100 {
        client.mutex("k").unwrap().lock().await.unwrap().release().await.unwrap();
        tokio::time::sleep(ms(1)).await;
    }
    tokio::time::sleep(ms(1_000)).await;

    assert_eq!(faults.calls(Operation::Renew), 0);
}

#[tokio::test(start_paused = true)]
async fn that_are_capped_are_renewed_no_more_often_for_news_than_others() {
    let mut renewals = Vec::new();
    for options in [LockOptions::new(), LockOptions::new().max_hold(TTL)] {
        let store = Store::new(true);
        let (client, faults) = client(store.clone(), options);
        let _guard = client.mutex("k").unwrap().lock().await.unwrap();
        for _ in 0..1_000 {
            tokio::time::sleep(ms(1)).await;
            store.news.notify_all();
        }
        renewals.push(faults.calls(Operation::Renew));
    }

    let [uncapped, capped] = renewals[..] else { panic!("two were measured") };
    assert!((50..=110).contains(&uncapped), "{uncapped}");
    assert!((50..=110).contains(&capped), "{capped}");
}

/// As when the connection breaks again and again: it takes longer to renew all than until the next time.
#[tokio::test(start_paused = true)]
async fn that_news_keeps_coming_of_are_all_renewed_in_turn() {
    const MANY: usize = 5_000;
    let store = Store { renews_in: ms(1_000), ..Store::new(true) };
    let (client, _faults) = client(store.clone(), LockOptions::new());
    let mut guards = Vec::new();
    for n in 0..MANY {
        guards.push(client.mutex(format!("k{n}")).unwrap().lock().await.unwrap());
    }

    for _ in 0..60 {
        tokio::time::sleep(ms(1_000)).await;
        store.news.notify_all();
    }

    assert_eq!(guards.iter().filter(|guard| LockGuard::is_held(guard)).count(), MANY);
}
