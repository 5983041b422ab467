//! One client on several runtimes, some of which end or are driven no more.

use std::time::Duration;

use async_trait::async_trait;
use leasehold_core::backend::{Attempt, Capabilities, Claim, Lease, LockBackend, Release, Renewal};
use leasehold_core::clock::{Clock, ManualClock};
use leasehold_core::memory::MemoryBackend;
use leasehold_core::{Error, LockClient, LockGuard, LockOptions};
use tokio::runtime::{Builder, Runtime};

use crate::fixture::{TTL, ms};

/// How long a slow store takes: less than a renewal or a release is waited for.
const REPLY: Duration = ms(1_000);

/// A store that takes its time to renew and to release.
#[derive(Clone, Debug)]
struct Store {
    inner: MemoryBackend,
    clock: ManualClock,
    replies_in: Duration,
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
        self.clock.sleep_until(self.clock.now() + self.replies_in).await;
        self.inner.renew(lease).await
    }

    async fn release(&self, lease: &Lease) -> Result<Release, Error> {
        self.clock.sleep_until(self.clock.now() + self.replies_in).await;
        self.inner.release(lease).await
    }
}

struct TwoRuntimes {
    client: LockClient<Store>,
    clock: ManualClock,
    one: Runtime,
    other: Runtime,
}

impl TwoRuntimes {
    fn new(replies_in: Duration) -> Self {
        let clock = ManualClock::new();
        let inner = MemoryBackend::with_clock(clock.clone());
        let store = Store { inner, clock: clock.clone(), replies_in };
        let options = LockOptions::new().ttl(TTL);
        let client = LockClient::builder(store).clock(clock.clone()).options(options);
        Self { client: client.build().unwrap(), clock, one: runtime(), other: runtime() }
    }

    /// A lock that was taken on each runtime.
    fn guards(&self) -> [LockGuard; 2] {
        [(&self.one, "one"), (&self.other, "other")]
            .map(|(runtime, key)| runtime.block_on(self.client.mutex(key).unwrap().lock()).unwrap())
    }

    /// Lets time pass, in which this runtime alone does the due work.
    fn pass(&self, runtime: &Runtime, time: Duration) {
        const STEP: Duration = ms(100);

        for _ in 0..time.as_millis() / STEP.as_millis() {
            self.clock.advance(STEP);
            runtime.block_on(async {
                for _ in 0..10 {
                    tokio::task::yield_now().await;
                }
            });
        }
    }

    fn one(&self) -> &Runtime {
        &self.one
    }

    fn other(&self) -> &Runtime {
        &self.other
    }

    fn keys(&self) -> usize {
        self.client.backend().inner.keys()
    }
}

fn runtime() -> Runtime {
    Builder::new_current_thread().build().unwrap()
}

fn assert_held(guards: &[LockGuard]) {
    for guard in guards {
        assert!(guard.is_held(), "{}", guard.key());
    }
}

#[test]
fn leases_outlive_the_first_runtime_that_locked() {
    let mut two = TwoRuntimes::new(Duration::ZERO);
    let guards = two.guards();

    // The assignment ends the former one.
    two.one = runtime();
    two.pass(&two.other, TTL * 3);

    assert_held(&guards);
}

#[test]
fn leases_outlive_a_later_runtime_that_locked() {
    let mut two = TwoRuntimes::new(Duration::ZERO);
    let guards = two.guards();

    // The assignment ends the former one.
    two.other = runtime();
    two.pass(&two.one, TTL * 3);

    assert_held(&guards);
}

#[test]
fn leases_are_renewed_while_any_runtime_is_driven() {
    for driven in [TwoRuntimes::one, TwoRuntimes::other] {
        let two = TwoRuntimes::new(REPLY);
        let guards = two.guards();

        two.pass(driven(&two), TTL * 3);

        assert_held(&guards);
    }
}

#[test]
fn a_renewal_that_its_runtime_abandons_is_repeated_by_another() {
    let two = TwoRuntimes::new(REPLY);
    let guards = two.guards();
    // It is sent, and its reply is not read.
    two.pass(&two.one, TTL / 3);

    two.pass(&two.other, TTL * 3);
    assert_held(&guards);

    // That reply is late by now.
    two.pass(&two.one, TTL * 3);
    assert_held(&guards);
}

#[test]
fn a_dropped_guard_is_released_by_any_runtime_that_is_driven() {
    let two = TwoRuntimes::new(REPLY);
    drop(two.guards());

    two.pass(&two.other, REPLY * 2);

    assert_eq!(two.keys(), 0);
}

#[test]
fn a_release_that_its_runtime_abandons_is_repeated_by_another() {
    let two = TwoRuntimes::new(REPLY);
    drop(two.guards());
    // They are sent, and their replies are not read.
    two.pass(&two.one, REPLY / 2);
    two.clock.advance(REPLY);
    assert_eq!(two.keys(), 2);

    two.pass(&two.other, TTL / 3);

    assert_eq!(two.keys(), 0);
    two.other.block_on(two.client.shutdown(Duration::ZERO)).unwrap();
}
