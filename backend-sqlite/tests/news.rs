//! The news that a client gets of the changes that another one makes to the same file.

use std::time::Duration;

use leasehold_core::LockKey;
use leasehold_core::backend::{Attempt, Claim, KeyWatch, Lease, LockBackend};
use leasehold_sqlite::{SqliteBackend, SqliteConfig};
use leasehold_testbed::Folder;
use tokio::time::timeout;

/// Looks are milliseconds apart.
const SOON: Duration = Duration::from_secs(10);

async fn backend(folder: &Folder) -> SqliteBackend {
    let config = SqliteConfig::new(folder.path().join("locks.db")).unwrap();
    SqliteBackend::connect_with(config).await.unwrap()
}

async fn grant(backend: &SqliteBackend, name: &str) -> Lease {
    let lease = Lease::new(&LockKey::new(name).unwrap(), SOON);
    let attempt = backend.try_acquire(&Claim::new(lease.clone())).await.unwrap();
    assert!(matches!(attempt, Attempt::Granted(_)), "{attempt:?}");
    lease
}

async fn hears(watch: &mut KeyWatch, within: Duration) -> bool {
    timeout(within, watch.changed()).await.is_ok()
}

#[tokio::test]
async fn holders_hear_of_an_operator_alone() {
    let folder = Folder::in_memory("sqlite-");
    let (one, other) = (backend(&folder).await, backend(&folder).await);
    let held = grant(&one, "held").await;
    let mut holder = one.watch_lease(&held);
    let mut waiter = one.watch(&LockKey::new("job").unwrap());
    // The first look at a key is news. A grant that begins and ends between two looks is none.
    assert!(hears(&mut waiter, SOON).await);

    let job = grant(&other, "job").await;
    assert!(hears(&mut waiter, SOON).await);
    other.release(&job).await.unwrap();
    assert!(hears(&mut waiter, SOON).await);
    assert!(!hears(&mut holder, Duration::ZERO).await);

    other.request_revocation(held.key(), None).await.unwrap();
    assert!(hears(&mut holder, SOON).await);
    other.force_release(held.key(), None).await.unwrap();
    assert!(hears(&mut holder, SOON).await);
}

#[tokio::test]
async fn an_observer_hears_of_a_lease_that_ends_by_itself() {
    let folder = Folder::in_memory("sqlite-");
    let (one, other) = (backend(&folder).await, backend(&folder).await);
    let lease = Lease::new(&LockKey::new("job").unwrap(), Duration::from_millis(300));
    other.try_acquire(&Claim::new(lease.clone())).await.unwrap();
    let mut observer = one.watch(lease.key());
    // Before the first look it knows nothing of the key.
    assert!(hears(&mut observer, SOON).await);

    assert!(hears(&mut observer, SOON).await);

    assert!(!one.inspect(lease.key()).await.unwrap().is_held());
}
