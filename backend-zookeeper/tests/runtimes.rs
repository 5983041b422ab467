//! A client that outlives the runtime on which it was made.

use std::time::Duration;

use leasehold_core::backend::LockBackend;
use leasehold_core::{LockClient, LockKey};
use leasehold_testbed::{ZooKeeper, patiently, until};
use leasehold_zookeeper::ZooKeeperBackend;
use tokio::runtime::Runtime;
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
