//! A server that can write no more.

use leasehold_core::ErrorKind;
use leasehold_core::backend::{Claim, LockBackend, Release};
use leasehold_testbed::{ZooKeeperOptions, until};

use super::{TICK, connect, is_granted, kept};

#[tokio::test(flavor = "multi_thread")]
async fn a_server_whose_disk_is_full_ends_and_grants_nothing() {
    let servers = ZooKeeperOptions::new().tick(TICK).small_disks().start().await;
    let backend = connect(servers.endpoints()).await;
    let lease = kept("job");
    assert!(is_granted(&backend, &lease).await);
    assert_eq!(backend.release(&lease).await.unwrap(), Release::Released);

    servers.fill_disk(0);

    // It writes on until its file is full.
    until("it grants nothing", async || {
        let lease = kept("job");
        let attempt = backend.acquire(&Claim::new(lease.clone())).await;
        drop(backend.release(&lease).await);
        attempt.is_err_and(|error| error.kind() == ErrorKind::Unavailable)
    })
    .await;
}
