//! Leases that are renewed together.

use std::time::Duration;

use leasehold_core::backend::{Lease, LockBackend, Operation, Reply, StoreAdmin};
use leasehold_core::fault::{Fault, FaultBackend, Notifications};
use leasehold_core::memory::MemoryBackend;
use leasehold_core::{ErrorKind, LeaseState, LockGuard, LockKey, LossReason};

use crate::fixture::{Fixture, TTL, ms};

impl Fixture {
    /// The store replies to each batch of renewals after `delay`.
    fn slow(delay: Duration) -> Self {
        let fixture = Self::new();
        fixture.reply_in(delay);
        fixture
    }

    fn reply_in(&self, delay: Duration) {
        self.faults.heal();
        self.faults.inject(Operation::Renew, Fault::DelayReply(delay), usize::MAX);
    }

    async fn lock_many(&self, count: usize) -> Vec<LockGuard> {
        let mut guards = Vec::new();
        for n in 0..count {
            guards.push(self.lock(&format!("k{n}"), TTL).await);
        }
        guards
    }

    /// The number of leases in each batch of renewals.
    fn batches(&self) -> Vec<usize> {
        self.requests.renewals().iter().map(Vec::len).collect()
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
    fixture.reply_in(TTL);
    tokio::time::sleep(TTL / 3 + ms(1)).await;
    assert!(!fixture.batches().is_empty());
    fixture.reply_in(ms(1));
    tokio::time::sleep(TTL / 3).await;

    let requests = fixture.batches().len();
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
    let requests = fixture.batches();
    assert!(requests.last().is_some_and(|leases| *leases > 200), "{requests:?}");
}

#[tokio::test(start_paused = true)]
async fn faults_of_some_leases_leave_the_others_one_request() {
    let fixture = Fixture::slow(ms(1));
    fixture.faults.set_notifications(Notifications::Muted);
    let guards = fixture.lock_many(10).await;
    let fault = Fault::Fail(ErrorKind::Unavailable);
    fixture.faults.inject_on(guards[3].key(), Operation::Renew, fault, 1);
    fixture.store.force_release(guards[5].key(), None).await.unwrap();

    tokio::time::sleep(TTL / 3 + ms(100)).await;

    assert_eq!(fixture.batches(), [9]);
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

#[tokio::test]
async fn renewals_all_fail_if_a_layer_returns_the_wrong_number_of_them() {
    let store = FaultBackend::new(MemoryBackend::new());
    store.faults().on_reply(|_request, reply| {
        Ok(match reply {
            Reply::Renewals(mut renewals) => {
                renewals.pop();
                Reply::Renewals(renewals)
            }
            reply => reply,
        })
    });
    let leases = ["a", "b"].map(|name| Lease::new(&LockKey::new(name).unwrap(), TTL));

    let renewals = store.renew_all(&leases).await;

    for (lease, renewal) in leases.iter().zip(renewals) {
        let error = renewal.unwrap_err();
        assert_eq!((error.kind(), error.key()), (ErrorKind::Unexpected, Some(lease.key())));
    }
}
