//! Steps that many tests take.

use std::time::Duration;

use leasehold_core::retry::Retry;
use leasehold_core::{LeaseState, LockClient, LockGuard};
use leasehold_testbed::{Redis, until};
use tokio::task::JoinHandle;

use crate::Backend;

pub(crate) async fn lock(client: &LockClient<Backend>, name: &str) -> LockGuard {
    client.mutex(name).unwrap().lock().await.unwrap()
}

/// Waits for a lock in the background, and does not look again by itself while it is held.
pub(crate) fn waiting(client: &LockClient<Backend>, name: &str) -> JoinHandle<LockGuard> {
    let told = client.options().retry(Retry::unlimited().every(Duration::from_secs(60)));
    let mutex = client.mutex(name).unwrap().with_options(told).unwrap();
    tokio::spawn(async move { mutex.lock().await.unwrap() })
}

/// Waits for the next renewal.
pub(crate) async fn renewed(guard: &LockGuard) {
    let deadline = guard.deadline();
    until("it is renewed", async || guard.deadline() > deadline || !guard.is_held()).await;
    assert_eq!(guard.state(), LeaseState::Held);
}

/// Checks that free locks leave nothing but the counters of tokens, and marks in the crowd, which end by themselves.
pub(crate) async fn assert_nothing_is_left(redis: &Redis) {
    assert_eq!(redis.command(&["KEYS", "lock:~[^cf]*"]).await, "*0");
}

/// The number of scripts that the server has run, by any command.
pub(crate) async fn scripts_run(redis: &Redis) -> u64 {
    redis.calls(&["eval", "evalsha"]).await
}
