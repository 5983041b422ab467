//! Steps that several tests share.

use std::time::Duration;

use futures_util::future::join_all;
use leasehold_core::backend::{Attempt, Claim, Lease, LockBackend, Release, Renewal, Tenure};
use leasehold_core::retry::Retry;
use leasehold_core::{Error, LeaseState, LockClient, LockGuard, LockKey};
use leasehold_testbed::{Redis, until};
use tokio::task::JoinHandle;

use crate::Backend;

pub(crate) async fn lock(client: &LockClient<Backend>, name: &str) -> LockGuard {
    client.mutex(name).unwrap().lock().await.unwrap()
}

/// Returns a lease with a TTL of one minute that its holder renews.
pub(crate) fn kept(name: &str) -> Lease {
    let key = LockKey::new(name).unwrap();
    Lease::new(&key, Duration::from_secs(60)).with_tenure(Tenure::Kept)
}

/// Returns claims for `count` different locks.
pub(crate) fn jobs(count: usize) -> Vec<Claim> {
    (0..count).map(|n| Claim::new(kept(&format!("job/{n}")))).collect()
}

/// Sends all `claims` at the same time.
pub(crate) async fn acquire(backend: &Backend, claims: &[Claim]) -> Vec<Result<Attempt, Error>> {
    join_all(claims.iter().map(|claim| backend.acquire(claim))).await
}

/// Releases the leases of all `claims` at the same time.
pub(crate) async fn release(backend: &Backend, claims: &[Claim]) -> Vec<Release> {
    let released = join_all(claims.iter().map(|claim| backend.release(claim.lease()))).await;
    released.into_iter().map(Result::unwrap).collect()
}

/// Renews the leases of all `claims` at the same time.
pub(crate) async fn renew(backend: &Backend, claims: &[Claim]) -> Vec<Renewal> {
    let leases: Vec<Lease> = claims.iter().map(|claim| claim.lease().clone()).collect();
    backend.renew_all(&leases).await.into_iter().map(Result::unwrap).collect()
}

/// Waits for a lock in the background, and retries only after a notification.
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

/// Checks that free locks leave only the token counters, and entries in the set of contended keys,
/// which expire.
pub(crate) async fn assert_nothing_is_left(redis: &Redis) {
    assert_eq!(redis.command(&["KEYS", "lock:~[^cf]*"]).await, "*0");
}

/// Returns the number of scripts that the server has run with any command.
pub(crate) async fn scripts_run(redis: &Redis) -> u64 {
    redis.calls(&["eval", "evalsha"]).await
}
