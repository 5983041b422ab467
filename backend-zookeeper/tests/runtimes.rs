//! A client that outlives the runtime on which it was made, and connections that end while it is idle.

use std::sync::OnceLock;
use std::time::Duration;

use leasehold_core::backend::{Attempt, Claim, Lease, LockBackend, Release, StoreAdmin, Tenure};
use leasehold_core::{LockClient, LockKey};
use leasehold_testbed::{FaultProxy, ZooKeeper, patiently, until, until_some};
use leasehold_zookeeper::ZooKeeperBackend;
use tokio::runtime::{Builder, Runtime};
use tokio::time::timeout;

#[test]
fn another_runtime_is_told_of_what_happens_to_its_locks() {
    // For the server alone.
    let servers = Runtime::new().unwrap();
    let zookeeper = servers.block_on(ZooKeeper::start());
    let first = Runtime::new().unwrap();
    let client = first.block_on(async {
        let client =
            LockClient::new(ZooKeeperBackend::connect(&patiently(&zookeeper.url())).await.unwrap());
        let guard = client.mutex("before").unwrap().lock().await.unwrap();
        guard.release().await.unwrap();
        client
    });
    // The task that watches was to begin a watch in a moment.
    drop(first);

    let second = Runtime::new().unwrap();
    second.block_on(async {
        let guard = client.mutex("job").unwrap().lock().await.unwrap();
        let other =
            LockClient::new(ZooKeeperBackend::connect(&patiently(&zookeeper.url())).await.unwrap());
        until("its lock is watched", async || zookeeper.metric(0, "zk_watch_count").await >= 1.0)
            .await;

        let forced =
            other.backend().force_release(&LockKey::new("job").unwrap(), None).await.unwrap();

        assert_eq!(forced.ended().len(), 1);
        timeout(Duration::from_secs(2), guard.lost()).await.expect("it is told at once");
    });
}

#[test]
fn a_client_serves_one_runtime_after_the_other() {
    // For the server alone.
    let servers = Runtime::new().unwrap();
    let zookeeper = servers.block_on(ZooKeeper::start());
    let client = OnceLock::new();

    for _ in 0..4 {
        let runtime = Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(async {
            if client.get().is_none() {
                let backend = ZooKeeperBackend::connect(&patiently(&zookeeper.url())).await;
                client.set(LockClient::new(backend.unwrap())).unwrap();
            }
            let mutex = client.get().unwrap().mutex("job").unwrap();
            let guard = mutex.try_lock().await.expect("it is free");
            guard.release().await.unwrap();
        });
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_request_that_was_never_sent_has_no_unknown_outcome() {
    const ROUNDS: usize = 20;

    let zookeeper = ZooKeeper::start().await;
    let proxy = FaultProxy::start(zookeeper.endpoints().remove(0)).await;
    let url = patiently(&format!("zookeeper://{}", proxy.address()));
    let backend = ZooKeeperBackend::connect(&url).await.unwrap();
    let key = LockKey::new("job").unwrap();

    for _ in 0..ROUNDS {
        let lease = Lease::new(&key, Duration::from_secs(10)).with_tenure(Tenure::Kept);
        let granted = until_some("granted", async || {
            match backend.acquire(&Claim::new(lease.clone())).await {
                Ok(attempt) => Some(attempt),
                Err(error) => {
                    assert!(!error.may_have_been_applied(), "{error}");
                    None
                }
            }
        });
        assert!(matches!(granted.await, Attempt::Granted(_)));
        assert_eq!(backend.release(&lease).await.unwrap(), Release::Released);
        proxy.disconnect().await;
    }
}
