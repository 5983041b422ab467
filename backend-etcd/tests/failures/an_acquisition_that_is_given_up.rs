//! Callers that give up an acquisition with an unknown outcome.

use super::*;

fn claim(name: &str) -> Claim {
    Claim::new(Lease::new(&LockKey::new(name).unwrap(), LONG).with_tenure(Tenure::Kept))
}

/// One server by two ways, the first of which comes first.
async fn two_ways(etcd: &Etcd) -> (FaultProxy, FaultProxy, String) {
    let server = etcd.endpoints().remove(0);
    let (one, other) = (FaultProxy::start(server.clone()).await, FaultProxy::start(server).await);
    let url = format!("etcd://{},{}", one.address(), other.address());
    (one, other, url)
}

#[tokio::test]
async fn leaves_nothing_when_its_request_arrives_after_the_release() {
    let etcd = Etcd::start().await;
    let store = store(&etcd).await;
    let (slow, _fast, url) = two_ways(&etcd).await;
    let backend = EtcdBackend::connect(&url).await.unwrap();
    let warm_up = claim("warm-up");
    backend.acquire(&warm_up).await.unwrap();
    backend.release(warm_up.lease()).await.unwrap();
    let claim = claim("job");

    slow.set_network_fault(NetworkFault::BlackHole);
    let patience = Duration::from_millis(400);
    assert!(timeout(patience, backend.acquire(&claim)).await.is_err());
    assert_eq!(backend.release(claim.lease()).await.unwrap(), Release::NotHeld);
    slow.set_network_fault(NetworkFault::None);

    // The same request by another client, which knows nothing of the release.
    let late = EtcdBackend::connect(&etcd.url()).await.unwrap();
    let attempt = late.acquire(&claim).await.unwrap();
    assert!(matches!(attempt, Attempt::Held(_)), "{attempt:?}");
    assert!(entries(&store, "job").await.is_empty());
    let client = client(&etcd.url(), LONG).await;
    for _ in 0..20 {
        lock(&client, "job").await.release().await.unwrap();
    }
    assert!(entries(&store, "job").await.is_empty());
}

#[tokio::test]
async fn leaves_no_place_that_comes_beside_its_later_grant() {
    let etcd = Etcd::start().await;
    let mut store = store(&etcd).await;
    let (slow, _fast, url) = two_ways(&etcd).await;
    let backend = EtcdBackend::connect(&url).await.unwrap();
    let warm_up = claim("warm-up");
    backend.acquire(&warm_up).await.unwrap();
    backend.release(warm_up.lease()).await.unwrap();
    let claim = claim("job");
    slow.set_network_fault(NetworkFault::BlackHole);
    let patience = Duration::from_millis(400);
    assert!(timeout(patience, backend.acquire(&claim)).await.is_err());
    let attempt = backend.acquire(&claim).await.unwrap();
    assert!(matches!(attempt, Attempt::Granted(_)), "{attempt:?}");

    // The place that an earlier attempt asked for, at a key of its own.
    let granted = entries(&store, "job").await.remove(0);
    let place = granted.value_str().unwrap().replacen("held", "queued", 1);
    store.put("lock/job/0123-0", place, None).await.unwrap();

    assert_eq!(backend.release(claim.lease()).await.unwrap(), Release::Released);
    assert!(entries(&store, "job").await.is_empty());
}

#[tokio::test]
async fn is_cleaned_up_in_the_background() {
    let etcd = Etcd::start().await;
    let store = store(&etcd).await;
    let (slow, _fast, url) = two_ways(&etcd).await;
    let client = client(&url, LONG).await;
    lock(&client, "warm-up").await.release().await.unwrap();

    // The request arrives, and its reply does not.
    slow.set_network_fault(NetworkFault::HoldReplies);
    let acquiring = waiting(&client, "job");
    until_there_are(&store, "job", 1).await;
    sleep(Duration::from_millis(400)).await;
    acquiring.abort();

    until_there_are(&store, "job", 0).await;
    slow.set_network_fault(NetworkFault::None);
    lock(&client, "job").await.release().await.unwrap();
}

/// Lets `acquiring` go on until `condition` holds, and no further.
async fn goes_on_until(acquiring: &mut Pin<&mut impl Future>, condition: impl Future<Output = ()>) {
    tokio::select! {
        _ = acquiring => panic!("it goes on, and ends"),
        () = condition => {}
    }
}

#[tokio::test]
async fn knows_that_it_has_left_a_place_though_its_next_request_was_not_applied() {
    const DELAY: Duration = Duration::from_millis(100);
    let etcd = Etcd::start().await;
    let mut store = store(&etcd).await;
    let proxy = FaultProxy::start(etcd.endpoints().remove(0)).await;
    let backend = EtcdBackend::connect(&format!("etcd://{}", proxy.address())).await.unwrap();
    let warm_up = claim("warm-up");
    backend.acquire(&warm_up).await.unwrap();
    store.put("lock/job/other", "", None).await.unwrap();
    let watching = store.clone();
    let requests = async || etcd.metric(0, r#"grpc_server_handled_total{grpc_method="Txn"}"#).await;
    let before = requests().await;
    let claim = claim("job").with_patience(Patience::Queues(LONG));
    proxy.set_network_fault(NetworkFault::Slow(DELAY));
    let mut acquiring = pin!(backend.acquire(&claim));

    // The lock is seen to be held, and then it is free, and then there is a place in line.
    let refused = until("it is refused", async || requests().await > before);
    goes_on_until(&mut acquiring, refused).await;
    store.delete("lock/job/other", None).await.unwrap();
    goes_on_until(&mut acquiring, until_there_are(&watching, "job", 1)).await;
    // The answer is on its way. Then there is no way to the server any more, and the connection is known to be broken.
    sleep(DELAY * 2).await;
    proxy.disconnect().await;
    drop(proxy);
    sleep(DELAY).await;
    let error = acquiring.await.unwrap_err();

    assert_eq!(error.kind(), ErrorKind::Indeterminate, "{error}");
}
