//! Users, certificates, and servers that take no more writes.

use std::time::Duration;

use leasehold_core::{Attempt, Claim, ErrorKind, Lease, LockBackend, LockKey};
use leasehold_testbed::{ZooKeeperOptions, until, until_some};
use leasehold_zookeeper::{ZooKeeperBackend, ZooKeeperConfig};

const TICK: Duration = Duration::from_millis(500);

async fn locks(url: &str) {
    let config = ZooKeeperConfig::from_url(url).unwrap();
    let backend =
        until_some("connected", async || ZooKeeperBackend::connect_with(config.clone()).await.ok());
    let (backend, lease) = (backend.await, lease());
    let attempt = backend.try_acquire(&Claim::new(lease.clone())).await.unwrap();
    assert!(matches!(attempt, Attempt::Granted(_)), "{attempt:?}");
    backend.release(&lease).await.unwrap();
}

fn lease() -> Lease {
    Lease::new(&LockKey::new("job").unwrap(), Duration::from_secs(4))
}

#[cfg(feature = "tls")]
#[tokio::test(flavor = "multi_thread")]
async fn certificates_let_both_sides_trust_each_other() {
    let servers = ZooKeeperOptions::new().tick(TICK).tls_with_client_certificates().start().await;
    let certificates = servers.certificates();
    let path = |path: std::path::PathBuf| path.display().to_string();
    let certificate = path(certificates.client_certificate());
    let url = format!("{}?ca=", servers.tls_url());
    let ca = format!("{url}{}", path(certificates.authority()));
    locks(&format!("{ca}&cert={certificate}&key={}", path(certificates.client_key()))).await;

    // Without a certificate of ours; without trust in theirs; without TLS.
    let plain = servers.tls_url().replace("zookeepers", "zookeeper");
    for url in [ca, format!("{url}{certificate}"), plain] {
        let refused = ZooKeeperBackend::connect(&url).await.unwrap_err();
        assert_eq!(refused.kind(), ErrorKind::Unavailable, "{refused}");
    }
}

#[cfg(feature = "sasl")]
#[tokio::test(flavor = "multi_thread")]
async fn users_of_sasl_are_known_by_their_password() {
    let servers = ZooKeeperOptions::new().tick(TICK).sasl_user("locker", "S3CR3T").start().await;
    let address = servers.endpoints().remove(0);
    locks(&format!("zookeeper://locker:S3CR3T@{address}/?auth=sasl")).await;

    let url = format!("zookeeper://locker:other-S3CR3T@{address}/?auth=sasl");
    let refused = ZooKeeperBackend::connect(&url).await.unwrap_err();

    assert_eq!(refused.kind(), ErrorKind::Denied, "{refused}");
    assert!(!format!("{refused} {refused:?}").contains("S3CR3T"), "{refused:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_whose_disk_is_full_grants_nothing() {
    let servers = ZooKeeperOptions::new().tick(TICK).small_disks().start().await;
    locks(&servers.url()).await;
    let backend = ZooKeeperBackend::connect(&servers.url()).await.unwrap();

    servers.fill_disk(0);

    // The server writes on until its file is full, and ends then.
    until("it grants nothing", async || {
        let lease = lease();
        let attempt = backend.try_acquire(&Claim::new(lease.clone())).await;
        drop(backend.release(&lease).await);
        attempt.is_err_and(|error| error.kind() == ErrorKind::Unavailable)
    })
    .await;
}
