//! A server without space.

use super::*;

/// Writes until the server takes no more, and raises the alarm.
async fn fill(store: &Client) {
    let big = vec![0; 1_000_000];
    until("the server is full", async || {
        store.kv_client().put("big", big.clone(), None).await.is_err()
    })
    .await;
}

async fn with_little_space() -> Etcd {
    EtcdOptions::new().args(["--quota-backend-bytes", "4000000"]).start().await
}

#[tokio::test]
async fn grants_nothing_and_still_renews_and_releases() {
    let etcd = with_little_space().await;
    let store = store(&etcd).await;
    let ttl = Duration::from_secs(3);
    let client = client(&etcd.url(), ttl).await;
    let (kept, released) = (lock(&client, "kept").await, lock(&client, "released").await);
    let permits = client.semaphore("permits", 2).unwrap().acquire(1).await.unwrap();
    fill(&store).await;

    let error = client.mutex("new").unwrap().lock().await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Refused, "{error}");
    assert!(error.to_string().contains("quota"), "{error}");
    released.release().await.unwrap();
    permits.release().await.unwrap();
    renewed(&kept).await;
    renewed(&kept).await;

    store.kv_client().delete("big", None).await.unwrap();
    etcd.compact().await;
    etcd.ctl(&["defrag"]).await;
    etcd.ctl(&["alarm", "disarm"]).await;
    lock(&client, "new").await.release().await.unwrap();
    kept.release().await.unwrap();
}

#[tokio::test]
async fn grants_nothing_without_renewal_either_and_leaves_nothing() {
    let etcd = with_little_space().await;
    let store = store(&etcd).await;
    let client = client(&etcd.url(), LONG).await;
    let fixed = client.options().renewal(RenewalMode::Off);
    let mutex = client.mutex("job").unwrap().with_options(fixed).unwrap();
    fill(&store).await;

    let error = Error::from(mutex.try_lock().await.unwrap_err());

    assert_eq!(error.kind(), ErrorKind::Refused, "{error}");
    assert!(entries(&store, "job").await.is_empty());
}

#[tokio::test]
async fn releases_a_grant_without_a_reply() {
    let etcd = with_little_space().await;
    let store = store(&etcd).await;
    let proxy = FaultProxy::start(etcd.endpoints().remove(0)).await;
    let url = format!("etcd://{}", proxy.address());
    let client = client(&url, LONG).await;
    let mut guards = Vec::new();
    for name in ["one", "other"] {
        // The client begins a session after each new connection, and its reply is not to be held.
        lock(&client, "warm-up").await.release().await.unwrap();
        proxy.set_network_fault(NetworkFault::HoldReplies);
        let acquiring = waiting(&client, name);
        until_there_are(&store, name, 1).await;
        proxy.set_network_fault(NetworkFault::Reset);
        tokio::task::yield_now().await;
        proxy.set_network_fault(NetworkFault::None);
        guards.push(acquiring.await.unwrap());
    }
    let (before, after) = (guards.remove(0), guards.remove(0));

    before.release().await.unwrap();
    fill(&store).await;
    after.release().await.unwrap();

    assert!(entries(&store, "one").await.is_empty());
    assert!(entries(&store, "other").await.is_empty());
}

#[tokio::test]
async fn keeps_the_locks_of_a_client_alive_after_a_release_that_failed() {
    let etcd = with_little_space().await;
    let store = store(&etcd).await;
    let proxy = FaultProxy::start(etcd.endpoints().remove(0)).await;
    let url = format!("etcd://{}", proxy.address());
    // Longer than a release that fails is tried for.
    let client = client(&url, Duration::from_secs(12)).await;
    let (kept, released) = (lock(&client, "kept").await, lock(&client, "released").await);
    fill(&store).await;
    proxy.set_network_fault(NetworkFault::Reset);
    released.release().await.unwrap_err();
    proxy.set_network_fault(NetworkFault::None);

    renewed(&kept).await;
    renewed(&kept).await;
    kept.release().await.unwrap();
}
