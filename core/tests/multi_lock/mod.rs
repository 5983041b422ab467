//! Several locks at once: all or none, in one order, within one wait.

mod all_or_none;
mod guard;
mod loss;
mod order;
mod parts;
mod together;
mod wait;

use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use leasehold_core::backend::{Feature, LockBackend, Operation, Request};
use leasehold_core::clock::Clock;
use leasehold_core::fault::Fault;
use leasehold_core::memory::MemoryBackend;
use leasehold_core::{
    Error, ErrorKind, LockClient, LossReason, MultiGuard, MultiLock, RenewalMode, TryLockError,
};

use crate::fixture::{DRIFT, Fixture, TTL, TestClock, dropped_after, key, ms, options};

const KEYS: [&str; 3] = ["a", "b", "c"];

fn three(fixture: &Fixture) -> MultiLock {
    fixture.client.multi_lock().mutexes(KEYS).unwrap()
}

/// The parts of which no other client gets a lock.
async fn closed(fixture: &Fixture) -> Vec<&'static str> {
    let mut closed = Vec::new();
    for key in KEYS {
        match fixture.other.mutex(key).unwrap().try_lock().await {
            Ok(guard) => guard.release().await.unwrap(),
            Err(TryLockError::Busy(_)) => closed.push(key),
            Err(TryLockError::Failed(error)) => panic!("{error}"),
        }
    }
    closed
}

/// Calls until the wait of two seconds is over, since another process holds that part.
async fn wait_out(fixture: &Fixture, held: &str) {
    let asked_at = fixture.clock.now();
    let error = three(fixture).lock().await.unwrap_err();

    assert_eq!((error.kind(), error.key()), (ErrorKind::Timeout, Some(&key(held))));
    assert!(error.to_string().contains("not available within 2.0s: held by"), "{error}");
    assert_eq!(fixture.clock.now(), asked_at + ms(2_000));
    assert_eq!(fixture.left().await, 1);
}

/// A call that has to wait for a part, and is dropped after so many polls, for all numbers of them.
async fn drop_contended_calls_at_any_point(fixture: impl Fn() -> Fixture) {
    for polls in 0.. {
        let fixture = fixture();
        fixture.faults.inject(Operation::Acquire, Fault::DelayReply(ms(10)), 100);
        let held = fixture.other.mutex("b").unwrap().lock().await.unwrap();
        let release = async {
            tokio::time::sleep(ms(50)).await;
            held.release().await.unwrap();
        };

        let whole = three(&fixture);
        let (locked, ()) = tokio::join!(dropped_after(polls, whole.lock()), release);

        let done = locked.is_some();
        drop(locked.map(Result::unwrap));
        assert_eq!(fixture.left().await, 0, "dropped after {polls} polls");
        assert!(whole.try_lock().await.is_ok());
        if done {
            assert!(polls > 5, "{polls}");
            break;
        }
    }
}
