//! A client that outlives the runtime on which it was made.

use std::time::Duration;

use leasehold_core::backend::StoreAdmin;
use leasehold_core::{LockClient, LockKey};
use leasehold_etcd::EtcdBackend;
use leasehold_testbed::{Etcd, until};
use tokio::runtime::{Builder, Runtime};
use tokio::time::timeout;

#[test]
fn another_runtime_hears_of_its_own_locks() {
    // For the server alone.
    let servers = Runtime::new().unwrap();
    let etcd = servers.block_on(Etcd::start());
    let first = Runtime::new().unwrap();
    let client = first.block_on(async {
        let client = LockClient::new(EtcdBackend::connect(&etcd.url()).await.unwrap());
        let guard = client.mutex("before").unwrap().lock().await.unwrap();
        guard.release().await.unwrap();
        client
    });
    // The task that watches was to begin a watch in a moment.
    drop(first);

    let second = Runtime::new().unwrap();
    second.block_on(async {
        let guard = client.mutex("job").unwrap().lock().await.unwrap();
        let other = LockClient::new(EtcdBackend::connect(&etcd.url()).await.unwrap());
        until("its lock is watched", async || {
            etcd.metric(0, "etcd_debugging_mvcc_watcher_total").await >= 1.0
        })
        .await;

        let forced =
            other.backend().force_release(&LockKey::new("job").unwrap(), None).await.unwrap();

        assert_eq!(forced.ended().len(), 1);
        timeout(Duration::from_secs(2), guard.lost()).await.expect("it is told at once");
    });
}

#[test]
fn a_client_serves_one_runtime_after_the_other() {
    let servers = Runtime::new().unwrap();
    let etcd = servers.block_on(Etcd::start());
    let client = servers
        .block_on(async { LockClient::new(EtcdBackend::connect(&etcd.url()).await.unwrap()) });
    for n in 1..=4 {
        let runtime = Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(async {
            let guard = client.mutex("job").unwrap().try_lock().await;
            let guard = guard.unwrap_or_else(|error| panic!("runtime {n}: {error}"));
            guard.release().await.unwrap();
        });
    }
}
