//! Requests of the layers to a store whose leases share a time to live, and their use of a place that such a store gives unasked.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use async_trait::async_trait;
use leasehold_core::backend::{
    Attempt, CalledBy, Capabilities, Claim, Feature, KeyWatch, Lease, LockBackend, Operation,
    Patience, Release, Renewal, Tenure,
};
use leasehold_core::clock::{Clock, TokioClock};
use leasehold_core::fault::{Fault, FaultBackend};
use leasehold_core::memory::MemoryBackend;
use leasehold_core::retry::Retry;
use leasehold_core::{
    Error, ErrorKind, LeaseState, LockClient, LockKey, LockOptions, LossReason, RenewalMode,
    TryLockError,
};

use crate::fixture::{TTL, ms, options};

/// The requests that a store received.
#[derive(Debug, Default)]
struct Asked {
    claims: Vec<Claim>,
    /// The batches of renewals.
    renewals: Vec<Vec<Lease>>,
    released: Vec<Lease>,
}

/// A store of sessions, which keeps a place in line for each waiter for a while.
#[derive(Clone, Debug)]
struct Sessions {
    inner: MemoryBackend,
    features: Capabilities,
    /// It says that it tells a claim in line of its turn.
    tells: bool,
    asked: Arc<Mutex<Asked>>,
}

const PLACE: Duration = ms(9_000);

impl Sessions {
    fn new(clock: impl Clock) -> Self {
        let inner = MemoryBackend::with_clock(clock);
        let features = inner.capabilities().with(Feature::Sessions);
        Self { inner, features, tells: false, asked: Arc::default() }
    }

    /// One whose leases have a time to live each.
    fn without_sessions(clock: impl Clock) -> Self {
        let mut this = Self::new(clock);
        this.features = this.features.without(Feature::Sessions);
        this
    }

    fn asked<T>(&self, look: impl Fn(&Asked) -> T) -> T {
        look(&self.asked.lock().unwrap())
    }
}

#[async_trait]
impl LockBackend for Sessions {
    fn capabilities(&self) -> Capabilities {
        self.features.clone()
    }

    async fn try_acquire(&self, claim: &Claim) -> Result<Attempt, Error> {
        self.asked.lock().unwrap().claims.push(claim.clone());
        let attempt = self.inner.try_acquire(claim).await?;
        Ok(match attempt {
            Attempt::Held(contention) if claim.patience() == Patience::Waits => {
                let contention = contention.with_place(PLACE);
                Attempt::Held(if self.tells {
                    contention.with_called_by(CalledBy::Key)
                } else {
                    contention
                })
            }
            attempt => attempt,
        })
    }

    async fn renew(&self, lease: &Lease) -> Result<Renewal, Error> {
        self.asked.lock().unwrap().renewals.push(vec![lease.clone()]);
        self.inner.renew(lease).await
    }

    async fn renew_all(&self, leases: &[Lease]) -> Vec<Result<Renewal, Error>> {
        self.asked.lock().unwrap().renewals.push(leases.to_vec());
        self.inner.renew_all(leases).await
    }

    async fn release(&self, lease: &Lease) -> Result<Release, Error> {
        self.asked.lock().unwrap().released.push(lease.clone());
        self.inner.release(lease).await
    }

    fn watch(&self, _key: &LockKey) -> KeyWatch {
        KeyWatch::silent()
    }
}

fn client_of(store: &Sessions, options: LockOptions) -> LockClient<Sessions> {
    LockClient::builder(store.clone()).clock(TokioClock::new()).options(options).build().unwrap()
}

fn sessions(options: LockOptions) -> (LockClient<Sessions>, Sessions) {
    let store = Sessions::new(TokioClock::new());
    (client_of(&store, options), store)
}

mod losses {
    use super::*;

    /// Which keys were given back by two TTLs after a lock was taken that cannot be renewed, while its guard is still there.
    async fn given_back(store: Sessions) -> Vec<String> {
        let backend = FaultBackend::new(store.clone());
        let faults = backend.faults().clone();
        let builder = LockClient::builder(backend).clock(TokioClock::new()).options(options());
        let client = builder.build().unwrap();
        let guard = client.mutex("k").unwrap().lock().await.unwrap();
        let other = client.mutex("other").unwrap().lock().await.unwrap();
        let fault = Fault::Fail(ErrorKind::Unavailable);
        faults.inject_on(guard.key(), Operation::Renew, fault, 100);

        tokio::time::sleep(TTL * 2).await;

        assert_eq!(guard.state(), LeaseState::Lost(LossReason::Expired));
        assert!(other.is_held());
        store.asked(|asked| asked.released.iter().map(|lease| lease.key().to_string()).collect())
    }

    #[tokio::test(start_paused = true)]
    async fn are_given_back_where_the_store_may_keep_them_alive_with_others() {
        let clock = TokioClock::new();

        assert_eq!(given_back(Sessions::new(clock)).await, ["k"]);
        assert!(given_back(Sessions::without_sessions(clock)).await.is_empty());
    }
}

#[tokio::test(start_paused = true)]
async fn a_loss_that_a_late_reply_tells_of_is_given_back() {
    let store = Sessions::new(TokioClock::new());
    let backend = FaultBackend::new(store.clone());
    let faults = backend.faults().clone();
    let builder = LockClient::builder(backend).clock(TokioClock::new()).options(options());
    let client = builder.build().unwrap();
    let guard = client.mutex("k").unwrap().lock().await.unwrap();
    faults.inject(Operation::Renew, Fault::DelayReply(ms(1_000)), 1);
    tokio::time::sleep(TTL / 3 + ms(100)).await;

    // The process stands still until long after the deadline.
    tokio::time::advance(TTL * 2).await;
    tokio::time::sleep(ms(1)).await;

    assert!(!guard.is_held());
    assert_eq!(store.asked(|asked| asked.released.len()), 1);
}

mod renewals {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn of_one_ttl_come_together_however_far_apart_the_locks_were_taken() {
        let (client, store) = sessions(options());
        let mut guards = Vec::new();
        for name in ["a", "b", "c", "d"] {
            guards.push(client.mutex(name).unwrap().lock().await.unwrap());
            tokio::time::sleep(ms(2_000)).await;
        }

        tokio::time::sleep(TTL * 2).await;

        let batches = store.asked(|asked| asked.renewals.iter().map(Vec::len).collect::<Vec<_>>());
        // Every third of the TTL, in the 68 seconds since the first.
        assert_eq!(batches, [4; 6]);
        assert!(guards.iter().all(|guard| guard.is_held()));
    }

    #[tokio::test(start_paused = true)]
    async fn of_different_ttls_keep_their_own_time() {
        let (client, store) = sessions(options());
        let short = client.mutex("short").unwrap().with_options(options().ttl(TTL / 2)).unwrap();
        let _long = client.mutex("long").unwrap().lock().await.unwrap();
        tokio::time::sleep(ms(1_000)).await;
        let _short = short.lock().await.unwrap();

        tokio::time::sleep(TTL + ms(1_000)).await;

        let of =
            |ttl| store.asked(|a| a.renewals.iter().flatten().filter(|l| l.ttl() == ttl).count());
        assert_eq!((of(TTL), of(TTL / 2)), (3, 6));
    }

    #[tokio::test(start_paused = true)]
    async fn where_nothing_is_shared_come_each_at_its_own_time() {
        let store = Sessions::without_sessions(TokioClock::new());
        let client = client_of(&store, options());
        let _first = client.mutex("a").unwrap().lock().await.unwrap();
        tokio::time::sleep(ms(2_000)).await;
        let _second = client.mutex("b").unwrap().lock().await.unwrap();

        tokio::time::sleep(TTL).await;

        assert!(store.asked(|asked| asked.renewals.iter().all(|batch| batch.len() == 1)));
    }
}

mod tenure {
    use super::*;

    /// The tenure in the claim that a lock with these options makes.
    async fn of(options: LockOptions) -> Tenure {
        let (client, store) = sessions(options);
        let _guard = client.mutex("k").unwrap().lock().await.unwrap();
        store.asked(|asked| asked.claims[0].lease().tenure())
    }

    #[tokio::test(start_paused = true)]
    async fn is_kept_only_if_nothing_ends_the_lease_but_its_release() {
        assert_eq!(of(options()).await, Tenure::Kept);
        assert_eq!(of(options().max_hold(TTL * 2)).await, Tenure::Kept);
        assert_eq!(of(options().renewal(RenewalMode::Off)).await, Tenure::Fixed);
        assert_eq!(of(options().lock_delay(ms(1_000))).await, Tenure::Fixed);
        assert_eq!(of(options().max_hold(TTL / 2)).await, Tenure::Fixed);
    }

    #[tokio::test(start_paused = true)]
    async fn of_the_last_renewal_before_max_hold_is_fixed() {
        let (client, store) = sessions(options().max_hold(TTL + TTL / 2));
        let guard = client.mutex("k").unwrap().lock().await.unwrap();

        guard.lost().await;

        let last = store.asked(|asked| asked.renewals.last().unwrap()[0].clone());
        assert!(last.ttl() < TTL);
        assert_eq!(last.tenure(), Tenure::Fixed);
    }

    #[tokio::test(start_paused = true)]
    async fn after_an_early_release_is_fixed() {
        let (client, store) = sessions(options().min_hold(TTL * 2));
        let guard = client.mutex("k").unwrap().lock().await.unwrap();

        guard.release().await.unwrap();

        let last = store.asked(|asked| asked.renewals.last().unwrap()[0].clone());
        assert_eq!(last.tenure(), Tenure::Fixed);
        assert!(store.asked(|asked| asked.released.is_empty()));
    }
}

mod place {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn that_the_store_gives_is_kept_by_asking_again_in_time() {
        let rarely = Retry::unlimited().every(TTL * 10);
        let (client, store) = sessions(options().retry(rarely));
        let other = client_of(&store, options());
        let _guard = other.mutex("k").unwrap().lock().await.unwrap();

        let waited = client.mutex("k").unwrap().try_lock_for(PLACE).await;

        assert!(matches!(waited, Err(TryLockError::Busy(_))));
        let asked = store.asked(|asked| asked.claims.len() - 1);
        assert!(
            (3..=4).contains(&asked),
            "a third of the time it is kept for, between each: {asked}"
        );
    }

    #[tokio::test(start_paused = true)]
    async fn with_news_is_polled_only_when_it_is_due() {
        for (tells, polls) in [(true, 3..=4), (false, 10..=1_000)] {
            let mut store = Sessions::new(TokioClock::new());
            store.tells = tells;
            let (client, other) = (client_of(&store, options()), client_of(&store, options()));
            let _guard = other.mutex("k").unwrap().lock().await.unwrap();

            assert!(matches!(
                client.mutex("k").unwrap().try_lock_for(PLACE).await,
                Err(TryLockError::Busy(_))
            ));

            let asked = store.asked(|asked| asked.claims.len() - 1);
            assert!(polls.contains(&asked), "news: {tells}, attempts: {asked}");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn is_given_back_by_a_caller_that_gives_up() {
        let (client, store) = sessions(options());
        let other = client_of(&store, options());
        let _guard = other.mutex("k").unwrap().lock().await.unwrap();

        assert!(matches!(
            client.mutex("k").unwrap().try_lock_for(ms(100)).await,
            Err(TryLockError::Busy(_))
        ));
        tokio::time::sleep(ms(1)).await;

        let (claim, released) =
            store.asked(|asked| (asked.claims[1].clone(), asked.released.clone()));
        assert_eq!(released.iter().map(Lease::id).collect::<Vec<_>>(), [claim.id()]);
    }

    #[tokio::test(start_paused = true)]
    async fn is_not_asked_for_without_waiting() {
        let (client, store) = sessions(options());
        let other = client_of(&store, options());
        let _guard = other.mutex("k").unwrap().lock().await.unwrap();

        assert!(matches!(client.mutex("k").unwrap().try_lock().await, Err(TryLockError::Busy(_))));
        tokio::time::sleep(ms(1)).await;

        assert_eq!(store.asked(|asked| asked.claims[1].patience()), Patience::Leaves);
        assert!(store.asked(|asked| asked.released.is_empty()));
    }
}
