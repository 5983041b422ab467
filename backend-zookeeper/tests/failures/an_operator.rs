//! Other hands in the same nodes.

use std::time::Duration;

use leasehold_core::admin::Revocation;
use leasehold_core::backend::{
    Attempt, Claim, Lease, LockBackend, Mode, Patience, Release, Renewal, StoreAdmin,
};
use leasehold_core::{ErrorKind, LockKey};
use leasehold_testbed::{FaultProxy, NetworkFault, ZooKeeper, ZooKeeperOptions};
use tokio::time::sleep;
use zookeeper_client::{Acls, Client, CreateMode};

use super::{TICK, TTL, connect_patiently, is_granted, kept};

async fn client(servers: &ZooKeeper) -> Client {
    Client::connect(&servers.endpoints().join(",")).await.unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_revocation_request_is_not_lost_while_a_renewal_moves_the_lease() {
    /// The delay of a message in each direction.
    const DELAY: Duration = Duration::from_millis(10);

    let servers = ZooKeeperOptions::new().tick(TICK).start().await;
    let proxy = FaultProxy::start(servers.endpoints().remove(0)).await;
    let (ours, others) =
        (connect_patiently([proxy.address()]).await, connect_patiently(servers.endpoints()).await);
    proxy.set_network_fault(NetworkFault::Slow(DELAY));

    // The requests arrive before, between and after the requests of the renewal.
    for i in 0..20 {
        let lease = kept(&format!("job/{i}"));
        assert!(is_granted(&ours, &lease).await);
        // A session has one TTL, so this lease moves to another session.
        let longer = lease.clone().with_ttl(TTL * 2);
        let (renewed, requested) = tokio::join!(ours.renew(&longer), async {
            sleep(DELAY / 2 * i).await;
            others.request_revocation(lease.key(), None).await
        });

        assert!(renewed.is_ok(), "{renewed:?}");
        assert_eq!(requested.unwrap(), Revocation::Requested);
        assert_eq!(ours.renew(&longer).await.unwrap(), Renewal::RevocationRequested, "{i}");
        assert_eq!(ours.release(&longer).await.unwrap(), Release::Released);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn nodes_of_curator_hold_and_wait_and_are_asked_to_finish() {
    let servers = ZooKeeperOptions::new().tick(TICK).start().await;
    let (backend, curator) = (connect_patiently(servers.endpoints()).await, client(&servers).await);
    let key = LockKey::new("a/job").unwrap();
    let all = Acls::anyone_all();
    let ephemeral = CreateMode::EphemeralSequential.with_acls(all);
    curator.mkdir("/lock/a%2Fjob", &CreateMode::Persistent.with_acls(all)).await.unwrap();
    let create = |path: &'static str| curator.create(path, b"10.0.0.9", &ephemeral);

    let (_, first) = create("/lock/a%2Fjob/lock-").await.unwrap();
    let lease = Lease::new(&key, TTL);
    let claim = Claim::new(lease.clone()).with_patience(Patience::Waits);
    let held = backend.acquire(&claim).await.unwrap();

    let Attempt::Held(contention) = held else { panic!("{held:?}") };
    let holder = contention.holder().unwrap();
    assert_eq!(holder.description().map(ToString::to_string).as_deref(), Some("10.0.0.9"));
    assert_eq!(backend.request_revocation(&key, None).await.unwrap(), Revocation::Requested);
    let first = format!("/lock/a%2Fjob/lock-{first}");
    assert_eq!(curator.get_data(&first).await.unwrap().0, b"__REVOKE__");

    // Another comes behind us, and has to wait, as a reader would.
    let (_, behind) =
        create("/lock/a%2Fjob/_c_5cf27c2e-5b34-4cb2-a1b0-6d1ae4a61f0e-lock-").await.unwrap();
    curator.delete(&first, None).await.unwrap();
    assert!(is_granted(&backend, &lease).await);
    let mut names = curator.list_children("/lock/a%2Fjob").await.unwrap();
    names.retain(|name| name.contains("lock-"));
    let ours = names.iter().find(|name| !name.ends_with(&behind.to_string())).unwrap();
    assert!(ours.starts_with("_c_") && ours[39..].starts_with("-lock-"), "{ours}");

    // Curator asks us.
    let ours = format!("/lock/a%2Fjob/{ours}");
    curator.set_data(&ours, b"__REVOKE__", None).await.unwrap();
    assert_eq!(backend.renew(&lease).await.unwrap(), Renewal::RevocationRequested);
    let units = Lease::new(&key, TTL).with_mode(Mode::Units { units: 1, limit: 2 });
    let error = backend.acquire(&Claim::new(units)).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::WrongType, "{error}");

    // An operator deletes our node.
    curator.delete(&ours, None).await.unwrap();
    assert_eq!(backend.renew(&lease).await.unwrap(), Renewal::Taken);
    assert_eq!(backend.release(&lease).await.unwrap(), Release::NotHeld);
    assert!(!is_granted(&backend, &Lease::new(&key, TTL)).await, "the other holds it now");
}
