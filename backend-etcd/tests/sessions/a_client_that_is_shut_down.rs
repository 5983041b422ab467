//! A client after its shutdown.

use super::*;

#[tokio::test]
async fn leaves_no_lease() {
    let etcd = Etcd::start().await;
    let store = store(&etcd).await;
    // Leases that a busy server ends too late are left to their TTL.
    let url = patiently(&etcd.url());
    let holder = client(&url, LockOptions::new().ttl(LONG)).await;
    let (client, mut waits) = client_that_waits(&url, LockOptions::new().ttl(LONG)).await;
    let _guard = holder.mutex("held").unwrap().lock().await.unwrap();
    let before = leases(&store).await;

    let fixed = client.options().renewal(RenewalMode::Off);
    for options in [client.options(), fixed] {
        let mutex = client.mutex("free").unwrap().with_options(options).unwrap();
        mutex.lock().await.unwrap().release().await.unwrap();
    }
    let held = client.mutex("held").unwrap();
    assert!(matches!(held.try_lock().await, Err(TryLockError::Busy(_))));
    let waiting = tokio::spawn(async move { held.lock().await });
    until_queued(&mut waits).await;
    assert_eq!(keys_under(&store, "lock/held/").await, 2);
    waiting.abort();
    assert!(waiting.await.unwrap_err().is_cancelled());
    let _left = client.mutex("left").unwrap().lock().await.unwrap();
    assert!(leases(&store).await.len() > before.len());
    client.shutdown(LONG).await.unwrap();

    assert_eq!(leases(&store).await, before);
}

#[tokio::test]
async fn leaves_none_whose_caller_gave_up() {
    let etcd = Etcd::start().await;
    let store = store(&etcd).await;
    let proxy = FaultProxy::start(etcd.endpoints()[0].clone()).await;
    let url = format!("etcd://{}", proxy.address());
    let client = self::client(&url, LockOptions::new().ttl(LONG)).await;
    assert_eq!(leases(&store).await, [0; 0]);

    proxy.set_network_fault(NetworkFault::HoldReplies);
    let mutex = client.mutex("left").unwrap();
    let locking = tokio::spawn(async move { mutex.lock().await });
    until("etcd has begun a lease", async || !leases(&store).await.is_empty()).await;
    locking.abort();
    assert!(locking.await.unwrap_err().is_cancelled());
    proxy.set_network_fault(NetworkFault::None);
    client.shutdown(LONG).await.unwrap();

    assert_eq!(leases(&store).await, [0; 0]);
}

#[tokio::test]
async fn leaves_to_their_ttl_the_leases_of_others_that_it_did_not_release() {
    let etcd = Etcd::start().await;
    let store = store(&etcd).await;
    let backend = EtcdBackend::connect(&etcd.url()).await.unwrap();
    let kept = Lease::new(&LockKey::new("kept").unwrap(), LONG).with_tenure(Tenure::Kept);
    backend.acquire(&Claim::new(kept)).await.unwrap();

    backend.close().await;

    assert_eq!(keys(&store).await, 1);
}
