//! One client on several runtimes, some of which end or are driven no more.

use std::time::Duration;

use leasehold_core::backend::Operation;
use leasehold_core::clock::ManualClock;
use leasehold_core::fault::{Fault, FaultBackend};
use leasehold_core::memory::MemoryBackend;
use leasehold_core::{LeaseState, LockClient, LockGuard, LossReason};
use tokio::runtime::{Builder, Runtime};

use crate::fixture::{TTL, ms, options};

/// How long a slow store takes: less than a renewal or a release is waited for.
const REPLY: Duration = ms(1_000);

struct TwoRuntimes {
    client: LockClient,
    store: MemoryBackend,
    clock: ManualClock,
    one: Runtime,
    other: Runtime,
}

impl TwoRuntimes {
    fn new(replies_in: Duration) -> Self {
        let clock = ManualClock::new();
        let store = MemoryBackend::with_clock(clock.clone());
        let backend = FaultBackend::new(store.clone()).with_clock(clock.clone());
        for operation in [Operation::Renew, Operation::Release] {
            backend.faults().inject(operation, Fault::DelayRequest(replies_in), usize::MAX);
        }
        let client = LockClient::builder(backend).clock(clock.clone()).options(options());
        let client = client.build().unwrap().into_dyn();
        Self { client, store, clock, one: runtime(), other: runtime() }
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
            runtime.block_on(yields());
        }
    }

    fn one(&self) -> &Runtime {
        &self.one
    }

    fn other(&self) -> &Runtime {
        &self.other
    }

    fn keys(&self) -> usize {
        self.store.keys()
    }
}

fn runtime() -> Runtime {
    Builder::new_current_thread().build().unwrap()
}

/// Lets the tasks of this runtime do what is due.
async fn yields() {
    for _ in 0..10 {
        tokio::task::yield_now().await;
    }
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

#[test]
fn a_shutdown_needs_no_runtime_that_locked() {
    let two = TwoRuntimes::new(Duration::ZERO);
    let mutex = two.client.mutex("k").unwrap();
    let guard = two.one().block_on(mutex.lock()).unwrap();

    let ended = two.other().block_on(async {
        tokio::select! {
            biased;
            ended = two.client.shutdown(TTL) => Some(ended),
            () = yields() => None,
        }
    });

    ended.expect("the release waits for a runtime that is not driven").unwrap();
    assert_eq!(two.keys(), 0);
    assert_eq!(guard.state(), LeaseState::Lost(LossReason::Shutdown));
}
