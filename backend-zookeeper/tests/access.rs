//! Users, passwords, rights and TLS.

use std::time::Duration;

use leasehold_core::backend::{Claim, Lease, LockBackend, Patience, Share, Tenure};
use leasehold_core::{Error, ErrorKind, LockKey};
use leasehold_testbed::{ZooKeeper, ZooKeeperOptions, patiently, until_some};
use leasehold_zookeeper::ZooKeeperBackend;

const SECRET: &str = "S3CR3T-CANARY";

const TTL: Duration = Duration::from_secs(10);

fn url_of(user: &str, zookeeper: &ZooKeeper, rest: &str) -> String {
    patiently(&format!("zookeeper://{user}@{}{rest}", zookeeper.endpoints().join(",")))
}

/// Connects, perhaps not at once: a server that has just started takes long for its first handshake.
async fn connect(url: &str) -> ZooKeeperBackend {
    until_some("connected", async || match ZooKeeperBackend::connect(url).await {
        Err(error) if error.kind() == ErrorKind::Unavailable => None,
        connected => Some(connected.unwrap()),
    })
    .await
}

async fn all_operations(backend: &ZooKeeperBackend) -> Result<(), Error> {
    let lease = |name: &str| Lease::new(&LockKey::new(name).unwrap(), TTL);
    let units = || lease("units").with_share(Share::Units { units: 1, limit: 1 });
    for (held, waits) in [(lease("job"), lease("job")), (units(), units())] {
        let [held, waits] = [held, waits].map(|lease| lease.with_tenure(Tenure::Kept));
        backend.try_acquire(&Claim::new(held.clone())).await?;
        let queued = Claim::new(waits.clone()).with_patience(Patience::Queues(TTL));
        backend.try_acquire(&queued).await?;
        backend.renew(&held).await?;
        backend.inspect(held.key()).await?;
        backend.request_revocation(held.key(), None).await?;
        backend.release(&held).await?;
        backend.try_acquire(&queued).await?;
        backend.force_release(held.key(), None).await?;
        backend.release(&waits).await?;
    }
    Ok(())
}

/// Asserts that the error is a denial that tells no secret.
fn assert_denied(refused: Result<impl std::fmt::Debug, Error>) {
    let error = refused.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Denied, "{error:?}");
    let shown = format!("{error} {error:?}");
    assert!(!shown.contains(SECRET), "{shown}");
}

#[tokio::test]
async fn a_user_of_digest_has_its_locks_for_itself() {
    let zookeeper = ZooKeeper::start().await;
    let ours = connect(&url_of(&format!("locker:{SECRET}"), &zookeeper, "")).await;

    all_operations(&ours).await.unwrap();

    for other in [
        connect(&url_of("locker:guess", &zookeeper, "")).await,
        connect(&patiently(&zookeeper.url())).await,
    ] {
        assert_denied(all_operations(&other).await);
    }
}

#[cfg(feature = "sasl")]
#[tokio::test]
async fn a_user_of_sasl_needs_its_password_and_has_its_locks_for_itself() {
    let zookeeper = ZooKeeperOptions::new().sasl_user("locker", SECRET).start().await;
    let ours = connect(&url_of(&format!("locker:{SECRET}"), &zookeeper, "?auth=sasl")).await;

    all_operations(&ours).await.unwrap();

    let guess = url_of(&format!("locker:{SECRET}-guess"), &zookeeper, "?auth=sasl");
    assert_denied(ZooKeeperBackend::connect(&guess).await);
    let stranger = connect(&patiently(&zookeeper.url())).await;
    assert_denied(all_operations(&stranger).await);
}

#[cfg(feature = "tls")]
#[tokio::test]
async fn tls_needs_trust_on_both_sides() {
    let zookeeper = ZooKeeperOptions::new().tls_with_client_certificates().start().await;
    let theirs = zookeeper.certificates();
    let (authority, certificate, key) =
        (theirs.authority(), theirs.client_certificate(), theirs.client_key());
    let [authority, certificate, key] =
        [&authority, &certificate, &key].map(|path| path.display().to_string());
    let url = |rest: String| format!("{}?{rest}", zookeeper.tls_url());

    let trusted = url(format!("ca={authority}&cert={certificate}&key={key}"));
    all_operations(&connect(&patiently(&trusted)).await).await.unwrap();

    let without_certificate = url(format!("ca={authority}"));
    let other_authority = url(format!("ca={certificate}&cert={certificate}&key={key}"));
    for untrusted in [without_certificate, other_authority] {
        let error = ZooKeeperBackend::connect(&untrusted).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Unavailable, "{error:?}");
    }
    let plain = trusted
        .replace(&zookeeper.tls_url(), &zookeeper.url().replace("zookeeper:", "zookeepers:"));
    let error = ZooKeeperBackend::connect(&plain).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unavailable, "{error:?}");
}
