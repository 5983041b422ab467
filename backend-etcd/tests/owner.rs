//! Writes to the same etcd that only a lock's holder gets through.

use std::time::Duration;

use futures_util::FutureExt;
use leasehold_core::{LockClient, LockGuard, LockOptions, RenewalMode};
use leasehold_etcd::etcd_client::{Client, DeleteOptions, GetOptions, Txn, TxnOp};
use leasehold_etcd::{EtcdBackend, EtcdGuard};
use leasehold_testbed::{Etcd, until};

const LONG: Duration = Duration::from_secs(60);

/// A client, its backend, and the store itself.
async fn start() -> (Etcd, LockClient<EtcdBackend>, Client) {
    let etcd = Etcd::start().await;
    let backend = EtcdBackend::connect(&etcd.url()).await.unwrap();
    let options = LockOptions::new().ttl(LONG);
    let client = LockClient::builder(backend).options(options).build().unwrap();
    let store = Client::connect(etcd.endpoints(), None).await.unwrap();
    (etcd, client, store)
}

/// Writes as the holder of a lock; whether it gets through.
async fn writes(store: &Client, client: &LockClient<EtcdBackend>, guard: &LockGuard) -> bool {
    let write = Txn::new().when(guard.etcd_compare(client.backend())).and_then([TxnOp::put(
        "written",
        guard.token().to_string(),
        None,
    )]);
    store.kv_client().txn(write).await.unwrap().succeeded()
}

async fn delete_all(store: &Client) {
    let all = DeleteOptions::new().with_prefix();
    store.kv_client().delete("lock/", Some(all)).await.unwrap();
}

#[tokio::test]
async fn a_holder_gets_through_until_it_releases() {
    let (_etcd, client, store) = start().await;
    let guard = client.mutex("job").unwrap().lock().await.unwrap();
    assert!(writes(&store, &client, &guard).await);

    guard.extend(LONG * 2).await.unwrap();
    assert!(writes(&store, &client, &guard).await, "an extension changes nothing");
    client.request_revocation("job").await.unwrap();
    assert!(writes(&store, &client, &guard).await, "nor does a request to finish");

    let compare = guard.etcd_compare(client.backend());
    guard.release().await.unwrap();
    let write = Txn::new().when(compare).and_then([TxnOp::put("written", "late", None)]);
    assert!(!store.kv_client().txn(write).await.unwrap().succeeded());
}

#[tokio::test]
async fn a_holder_that_has_waited_gets_through() {
    let (_etcd, client, store) = start().await;
    let first = client.mutex("job").unwrap().lock().await.unwrap();
    let mutex = client.mutex("job").unwrap().with_options(client.options().fair(true)).unwrap();
    let waiting = tokio::spawn(async move { mutex.lock().await.unwrap() });
    until("it queues", async || {
        let all = GetOptions::new().with_prefix().with_count_only();
        store.kv_client().get("lock/job/", Some(all)).await.unwrap().count() == 2
    })
    .await;

    first.release().await.unwrap();

    let second = waiting.await.unwrap();
    assert!(writes(&store, &client, &second).await);
    second.release().await.unwrap();
}

#[tokio::test]
async fn a_holder_that_lost_the_lock_unawares_does_not() {
    let (etcd, client, store) = start().await;
    let unaware = client.options().renewal(RenewalMode::Off);
    let mutex = client.mutex("job").unwrap().with_options(unaware).unwrap();
    let old = mutex.lock().await.unwrap();

    delete_all(&store).await;
    assert!(!writes(&store, &client, &old).await);

    let other = LockClient::new(EtcdBackend::connect(&etcd.url()).await.unwrap());
    let new = other.mutex("job").unwrap().lock().await.unwrap();
    assert!(!writes(&store, &client, &old).await);
    assert!(writes(&store, &other, &new).await);
    new.release().await.unwrap();
}

#[tokio::test]
async fn readers_writers_permits_and_leaders_get_through() {
    let (_etcd, client, store) = start().await;
    let lock = client.rw_lock("table").unwrap();

    let write = lock.write().await.unwrap();
    assert!(writes(&store, &client, &write).await);
    let read = write.downgrade().await.unwrap();
    assert!(writes(&store, &client, &read).await);
    let permit = client.semaphore("permits", 2).unwrap().acquire(1).await.unwrap();
    assert!(writes(&store, &client, &permit).await);
    let leader = client.election("leader").unwrap().campaign("a").await.unwrap();
    leader.proclaim("b").await.unwrap();
    assert!(writes(&store, &client, &leader).await);

    delete_all(&store).await;
    for guard in [&read, &permit, &leader] {
        assert!(!writes(&store, &client, guard).await);
    }
}

#[tokio::test]
async fn a_holder_that_knows_of_its_loss_does_not() {
    let (_etcd, client, store) = start().await;
    let guard = client.mutex("job").unwrap().lock().await.unwrap();
    // A holder of less than a moment is not told.
    until("it is told", async || {
        delete_all(&store).await;
        !guard.is_held()
    })
    .await;

    assert!(!writes(&store, &client, &guard).await);
}

#[tokio::test]
async fn a_holder_gets_through_after_a_hand_over_in_its_process() {
    let (_etcd, client, store) = start().await;
    let mutex = client.mutex("job").unwrap();
    // The second call waits when the grant of the first one arrives.
    let mut first = Box::pin(mutex.lock());
    assert!((&mut first).now_or_never().is_none());
    let mut waiting = Box::pin(mutex.lock());
    assert!((&mut waiting).now_or_never().is_none());
    let first = first.await.unwrap();

    let token = first.token().clone();
    first.release().await.unwrap();

    let second = waiting.await.unwrap();
    assert_eq!(second.token().number(), token.number() + 1);
    assert!(writes(&store, &client, &second).await);
    let compare = second.etcd_compare(client.backend());
    second.release().await.unwrap();
    let write = Txn::new().when(compare).and_then([TxnOp::put("written", "late", None)]);
    assert!(!store.kv_client().txn(write).await.unwrap().succeeded());
}
