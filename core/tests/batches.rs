//! Leases that are renewed together.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use async_trait::async_trait;
use leasehold_core::backend::{
    Attempt, Capabilities, Claim, Lease, LockBackend, Operation, Release, Renewal,
};
use leasehold_core::fault::Fault;
use leasehold_core::memory::MemoryBackend;
use leasehold_core::{Error, ErrorKind, LeaseState, LockGuard, LockKey, LossReason};

use crate::fixture::{Fixture, TTL, ms, options};

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

impl Fixture<Store> {
    fn slow(replies_in: Duration) -> Self {
        let replies_in = Arc::new(Mutex::new(replies_in));
        Self::over(options(), |inner| Store { inner, replies_in, requests: Arc::default() })
    }

    async fn lock_many(&self, count: usize) -> Vec<LockGuard> {
        let mut guards = Vec::new();
        for n in 0..count {
            guards.push(self.lock(&format!("k{n}"), TTL).await);
        }
        guards
    }

    fn requests(&self) -> Vec<usize> {
        self.backend.requests.lock().unwrap().clone()
    }
}

#[tokio::test(start_paused = true)]
async fn a_short_lease_makes_no_long_ones_unconfirmed() {
    // Less than a renewal of the long ones is waited for, and more than one of the short lease.
    let fixture = Fixture::slow(ms(150));
    let guards = fixture.lock_many(100).await;
    // It falls due at the same moment.
    tokio::time::sleep(TTL / 3 - ms(200)).await;
    let _short = fixture.lock("short", ms(600)).await;

    for _ in 0..60 {
        tokio::time::sleep(ms(10)).await;
        assert!(guards.iter().all(|guard| guard.state() == LeaseState::Held));
    }
    assert!(guards.iter().all(|guard| guard.remaining() > TTL * 9 / 10), "they were renewed");
}

#[tokio::test(start_paused = true)]
async fn requests_without_a_reply_are_repeated_in_few_parts() {
    const MANY: usize = 5_000;

    let fixture = Fixture::slow(ms(1));
    let guards = fixture.lock_many(MANY).await;
    // The first requests find the store frozen.
    *fixture.backend.replies_in.lock().unwrap() = TTL;
    tokio::time::sleep(TTL / 3 + ms(1)).await;
    assert!(!fixture.requests().is_empty());
    *fixture.backend.replies_in.lock().unwrap() = ms(1);
    tokio::time::sleep(TTL / 3).await;

    let requests = fixture.requests().len();
    assert!(requests < 200, "{requests}");
    assert!(guards.iter().all(|guard| guard.state() == LeaseState::Held));
    assert!(guards.iter().all(|guard| guard.remaining() > TTL / 3), "they were renewed");
}

#[tokio::test(start_paused = true)]
async fn a_lease_whose_renewals_hang_costs_no_other_of_its_request() {
    let fixture = Fixture::slow(ms(1));
    let key = LockKey::new("k100").unwrap();
    fixture.faults.inject_on(&key, Operation::Renew, Fault::SwallowRequest, 100);
    let guards = fixture.lock_many(256).await;

    tokio::time::sleep(TTL * 2).await;

    let lost: Vec<_> = guards.iter().filter(|guard| !guard.is_held()).map(LockGuard::key).collect();
    assert_eq!(lost, [&key]);
    // Most of the others share one request again.
    let requests = fixture.requests();
    assert!(requests.last().is_some_and(|leases| *leases > 200), "{requests:?}");
}

#[tokio::test(start_paused = true)]
async fn faults_of_some_leases_leave_the_others_one_request() {
    let fixture = Fixture::slow(ms(1));
    let guards = fixture.lock_many(10).await;
    let fault = Fault::Fail(ErrorKind::Unavailable);
    fixture.faults.inject_on(guards[3].key(), Operation::Renew, fault, 1);
    fixture.store.force_release(guards[5].key(), None).await.unwrap();

    tokio::time::sleep(TTL / 3 + ms(100)).await;

    assert_eq!(fixture.requests(), [9]);
    assert_eq!(fixture.faults.calls(Operation::Renew), 10);
    for (n, guard) in guards.iter().enumerate() {
        let expected = match n {
            3 => LeaseState::Unconfirmed,
            5 => LeaseState::Lost(LossReason::Vanished),
            _ => LeaseState::Held,
        };
        assert_eq!(guard.state(), expected, "{n}");
    }
}
