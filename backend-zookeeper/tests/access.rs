//! Users, passwords, rights and TLS.

use std::time::Duration;

use leasehold_core::backend::{Claim, Lease, LockBackend, Mode, Patience, StoreAdmin, Tenure};
use leasehold_core::{Error, ErrorKind, LockClient, LockKey, TryLockError};
use leasehold_testbed::{ZooKeeper, ZooKeeperOptions, patiently, until, until_some};
use leasehold_zookeeper::ZooKeeperBackend;
use tokio::time::timeout;
use zookeeper_client::{Acls, Client, CreateMode};

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
    let units = || lease("units").with_mode(Mode::Units { units: 1, limit: 1 });
    for (held, waits) in [(lease("job"), lease("job")), (units(), units())] {
        let [held, waits] = [held, waits].map(|lease| lease.with_tenure(Tenure::Kept));
        backend.acquire(&Claim::new(held.clone())).await?;
        let queued = Claim::new(waits.clone()).with_patience(Patience::Queues(TTL));
        backend.acquire(&queued).await?;
        backend.renew(&held).await?;
        backend.inspect(held.key()).await?;
        backend.request_revocation(held.key(), None).await?;
        backend.release(&held).await?;
        backend.acquire(&queued).await?;
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

/// A user and a client without one, on servers whose node above all locks is open to everybody.
async fn two_users(zookeeper: &ZooKeeper) -> [ZooKeeperBackend; 2] {
    let anybody = connect(&patiently(&zookeeper.url())).await;
    all_operations(&anybody).await.unwrap();
    [connect(&url_of(&format!("locker:{SECRET}"), zookeeper, "")).await, anybody]
}

#[tokio::test(flavor = "multi_thread")]
async fn two_users_of_one_url_exclude_each_other() {
    let zookeeper = ZooKeeper::start().await;
    let [user, anybody] = two_users(&zookeeper).await;

    for (first, second) in [(&user, &anybody), (&anybody, &user)] {
        let holder = LockClient::new(first.clone());
        let waiter = LockClient::new(second.clone());
        // Its node was made by the client without a user.
        let guard = holder.mutex("job").unwrap().lock().await.unwrap();
        assert!(
            matches!(waiter.mutex("job").unwrap().try_lock().await, Err(TryLockError::Busy(_))),
            "both hold it"
        );

        let waiting = tokio::spawn(async move { waiter.mutex("job").unwrap().lock().await });
        let name = LockKey::new("job").unwrap();
        let is_queued = async || anybody_waits(&zookeeper, &name).await;
        until("it waits", is_queued).await;
        guard.release().await.unwrap();
        let served = timeout(TTL / 5, waiting).await.expect("it is served");
        served.unwrap().unwrap().release().await.unwrap();
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_lock_of_another_user_is_refused_with_the_reason_and_listed() {
    let zookeeper = ZooKeeper::start().await;
    let [user, anybody] = two_users(&zookeeper).await;
    let lease =
        |name: &str| Lease::new(&LockKey::new(name).unwrap(), TTL).with_tenure(Tenure::Kept);
    let (theirs, ours) = (lease("a-theirs"), lease("b-ours"));
    user.acquire(&Claim::new(theirs.clone())).await.unwrap();
    anybody.acquire(&Claim::new(ours.clone())).await.unwrap();
    // Another program keeps something there, too.
    let other = Client::connect(&zookeeper.endpoints()[0]).await.unwrap();
    let persistent = CreateMode::Persistent.with_acls(Acls::anyone_all());
    other.create("/lock/c-other", b"data", &persistent).await.unwrap();
    other.create("/lock/c-other/child", b"data", &persistent).await.unwrap();

    let refused = anybody.acquire(&Claim::new(lease("a-theirs"))).await;
    let listed = anybody.list("", None).await.unwrap();

    assert!(refused.as_ref().unwrap_err().to_string().contains("another user"), "{refused:?}");
    assert_denied(refused);
    assert_denied(anybody.inspect(theirs.key()).await);
    let names: Vec<_> = listed.keys().iter().map(ToString::to_string).collect();
    assert_eq!(names, ["a-theirs", "b-ours"]);
}

/// Whether a claim waits for a lock, by the names of its nodes.
async fn anybody_waits(zookeeper: &ZooKeeper, key: &LockKey) -> bool {
    let client = Client::connect(&zookeeper.endpoints()[0]).await.unwrap();
    client.list_children(&format!("/lock/{key}")).await.unwrap().len() == 2
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
