//! Tests of notifications about changes that a second client makes to the same file.

use std::time::Duration;

use leasehold_core::LockKey;
use leasehold_core::backend::{
    Attempt, Claim, KeyWatch, Lease, LockBackend, StoreAdmin as _, Subject,
};
use leasehold_sqlite::{SqliteBackend, SqliteConfig};
use leasehold_testbed::Folder;
use tokio::time::timeout;

/// The backend polls every few milliseconds, so this limit is generous.
const SOON: Duration = Duration::from_secs(10);

async fn backend(folder: &Folder) -> SqliteBackend {
    let config = SqliteConfig::new(folder.path().join("locks.db")).unwrap();
    SqliteBackend::connect_with(config).await.unwrap()
}

async fn grant(backend: &SqliteBackend, name: &str) -> Lease {
    let lease = Lease::new(&LockKey::new(name).unwrap(), SOON);
    let attempt = backend.acquire(&Claim::new(lease.clone())).await.unwrap();
    assert!(matches!(attempt, Attempt::Granted(_)), "{attempt:?}");
    lease
}

async fn is_notified(watch: &mut KeyWatch, within: Duration) -> bool {
    timeout(within, watch.changed()).await.is_ok()
}

#[tokio::test]
async fn holders_are_notified_only_of_operator_requests() {
    let folder = Folder::in_memory("sqlite-");
    let (one, other) = (backend(&folder).await, backend(&folder).await);
    let held = grant(&one, "held").await;
    let mut holder = one.watch(Subject::Lease(&held));
    let mut waiter = one.watch(Subject::Key(&LockKey::new("job").unwrap()));
    // The first poll of a key notifies its watch. Without this poll, a lease could be acquired and
    // released before the first poll, and the watch would not be notified.
    assert!(is_notified(&mut waiter, SOON).await);

    let job = grant(&other, "job").await;
    assert!(is_notified(&mut waiter, SOON).await);
    other.release(&job).await.unwrap();
    assert!(is_notified(&mut waiter, SOON).await);
    assert!(!is_notified(&mut holder, Duration::ZERO).await);

    other.request_revocation(held.key(), None).await.unwrap();
    assert!(is_notified(&mut holder, SOON).await);
    other.force_release(held.key(), None).await.unwrap();
    assert!(is_notified(&mut holder, SOON).await);
}

#[tokio::test]
async fn an_observer_is_notified_when_a_lease_expires() {
    let folder = Folder::in_memory("sqlite-");
    let (one, other) = (backend(&folder).await, backend(&folder).await);
    let lease = Lease::new(&LockKey::new("job").unwrap(), Duration::from_millis(300));
    other.acquire(&Claim::new(lease.clone())).await.unwrap();
    let mut observer = one.watch(Subject::Key(lease.key()));
    // The first poll of a key notifies its watch.
    assert!(is_notified(&mut observer, SOON).await);

    assert!(is_notified(&mut observer, SOON).await);

    assert!(!one.inspect(lease.key()).await.unwrap().is_held());
}
