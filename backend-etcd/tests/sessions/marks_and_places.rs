//! Marks of lost replies, and places in line.

use super::*;

fn kept(name: &str) -> Lease {
    Lease::new(&LockKey::new(name).unwrap(), LONG).with_tenure(Tenure::Kept)
}

/// etcd's lease with which a key ends.
async fn hangs_on(store: &Client, prefix: &str) -> i64 {
    let range = GetOptions::new().with_prefix();
    store.kv_client().get(prefix, Some(range)).await.unwrap().kvs()[0].lease()
}

async fn held(backend: &EtcdBackend, ttl: Duration) -> Lease {
    let held = Lease::new(&LockKey::new("held").unwrap(), ttl).with_tenure(Tenure::Kept);
    backend.acquire(&Claim::new(held.clone())).await.unwrap();
    held
}

#[tokio::test]
async fn are_not_kept_alive_by_locks_of_the_same_ttl() {
    let etcd = Etcd::start().await;
    let store = store(&etcd).await;
    let proxy = FaultProxy::start(etcd.endpoints().remove(0)).await;
    let url = format!("etcd://{}", proxy.address());
    let backend = EtcdBackend::connect(&url).await.unwrap();
    let minute = held(&backend, Duration::from_secs(60)).await;

    // A client that releases a lease which may still come leaves a mark.
    let doubtful = kept("doubtful");
    proxy.set_network_fault(NetworkFault::HoldReplies);
    backend.acquire(&Claim::new(doubtful.clone())).await.unwrap_err();
    proxy.disconnect().await;
    proxy.set_network_fault(NetworkFault::None);
    until("it is released", async || backend.release(&doubtful).await.is_ok()).await;
    assert_eq!(backend.renew(&minute).await.unwrap(), Renewal::Renewed);
    assert_ne!(hangs_on(&store, "lock/~gone/").await, hangs_on(&store, "lock/held/").await);
    backend.release(&minute).await.unwrap();

    held(&backend, Duration::from_secs(10)).await;
    let waiting = kept("held");
    backend.acquire(&Claim::new(waiting).with_patience(Patience::Waits)).await.unwrap();
    let leases = leases_of(&store, "held").await;
    assert_eq!(leases.len(), 2);
    assert_ne!(leases[0], leases[1]);
}

/// etcd's leases of all holders and waiters of a lock, in the order in which they came.
async fn leases_of(store: &Client, name: &str) -> Vec<i64> {
    let range = GetOptions::new().with_prefix();
    let found = store.kv_client().get(format!("lock/{name}/"), Some(range)).await;
    let mut found = found.unwrap().take_kvs();
    found.sort_by_key(KeyValue::create_revision);
    found.iter().map(KeyValue::lease).collect()
}

#[tokio::test]
async fn do_without_a_session_that_an_operator_has_ended() {
    let etcd = Etcd::start().await;
    let store = store(&etcd).await;
    let proxy = FaultProxy::start(etcd.endpoints().remove(0)).await;
    let url = format!("etcd://{}", proxy.address());
    let backend = EtcdBackend::connect(&url).await.unwrap();
    let held = held(&backend, LONG).await;
    let waiting = Claim::new(kept("held")).with_patience(Patience::Waits);
    for _ in 0..2 {
        let attempt = backend.acquire(&waiting).await.unwrap();
        assert!(matches!(attempt, Attempt::Held(contention) if contention.queue_entry().is_some()));
        let place = leases_of(&store, "held").await;
        store.lease_client().revoke(*place.last().unwrap()).await.unwrap();
    }

    for _ in 0..2 {
        let doubtful = kept("doubtful");
        proxy.set_network_fault(NetworkFault::HoldReplies);
        backend.acquire(&Claim::new(doubtful.clone())).await.unwrap_err();
        proxy.disconnect().await;
        proxy.set_network_fault(NetworkFault::None);
        // The renewal begins the session that the next attempt needs after the new connection.
        until("the server answers", async || backend.renew(&held).await.is_ok()).await;

        backend.release(&doubtful).await.unwrap();

        let mark = hangs_on(&store, "lock/~gone/").await;
        store.lease_client().revoke(mark).await.unwrap();
    }
}

/// The client may be a copy of the process that began the session. The original knows the session, too, and may end it.
#[tokio::test]
async fn of_a_former_connection_get_no_more_locks() {
    let etcd = Etcd::start().await;
    let store = store(&etcd).await;
    let proxy = FaultProxy::start(etcd.endpoints().remove(0)).await;
    let url = format!("etcd://{}", proxy.address());
    let backend = EtcdBackend::connect(&url).await.unwrap();
    let before = held(&backend, LONG).await;
    let session = hangs_on(&store, "lock/held/").await;

    proxy.disconnect().await;
    until("the server answers", async || backend.inspect(before.key()).await.is_ok()).await;
    backend.acquire(&Claim::new(kept("next"))).await.unwrap();

    assert_ne!(hangs_on(&store, "lock/next/").await, session);
    assert_eq!(backend.renew(&before).await.unwrap(), Renewal::Renewed);
    assert_ne!(hangs_on(&store, "lock/held/").await, session);
}
