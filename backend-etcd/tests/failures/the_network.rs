//! Replies that are lost or late.

use super::*;

/// The time limit of a request, which a busy machine must not exceed while the network works.
const LIMIT: Duration = Duration::from_secs(1);

/// Longer than the limit.
const TOO_LONG: Duration = Duration::from_millis(1_300);

async fn behind(etcd: &Etcd) -> (FaultProxy, LockClient<EtcdBackend>) {
    let proxy = FaultProxy::start(etcd.endpoints().remove(0)).await;
    let url = format!("etcd://{}?timeout-ms={}", proxy.address(), LIMIT.as_millis());
    let client = client(&url, LONG).await;
    lock(&client, "warm-up").await.release().await.unwrap();
    (proxy, client)
}

async fn a_waiter_is_woken_after(fault: NetworkFault) {
    let etcd = Etcd::start().await;
    let store = store(&etcd).await;
    let guard = lock(&client(&etcd.url(), LONG).await, "job").await;
    let (proxy, waiter) = behind(&etcd).await;
    let mut waits = waiting(&waiter, "job");
    until_there_are(&store, "job", 2).await;

    proxy.set_network_fault(fault);
    guard.release().await.unwrap();
    assert!(timeout(Duration::from_millis(100), &mut waits).await.is_err());
    proxy.set_network_fault(NetworkFault::None);

    let granted = timeout(SOON, waits).await;
    granted.expect("it looks again").unwrap().release().await.unwrap();
}

#[tokio::test]
async fn that_resets_connections_during_a_release_lets_no_waiter_sleep() {
    a_waiter_is_woken_after(NetworkFault::Reset).await;
}

#[tokio::test]
async fn that_swallows_the_news_of_a_release_lets_no_waiter_sleep() {
    let etcd = Etcd::start().await;
    let store = store(&etcd).await;
    let guard = lock(&client(&etcd.url(), LONG).await, "job").await;
    let (proxy, waiter) = behind(&etcd).await;
    // It polls, and finds that the member does not answer: no news comes.
    let mutex = waiter.mutex("job").unwrap();
    let waits = tokio::spawn(async move { mutex.lock().await.unwrap() });
    until_there_are(&store, "job", 2).await;

    proxy.set_network_fault(NetworkFault::BlackHole);
    guard.release().await.unwrap();
    sleep(TOO_LONG).await;
    proxy.set_network_fault(NetworkFault::None);

    let granted = timeout(SOON, waits).await;
    granted.expect("it looks again").unwrap().release().await.unwrap();
}

/// Acquires through `fault`, which takes the reply or the request away and then resets open connections.
async fn is_granted_once_through(fault: NetworkFault) {
    let etcd = Etcd::start().await;
    let store = store(&etcd).await;
    let (proxy, client) = behind(&etcd).await;

    proxy.set_network_fault(fault);
    let acquiring = waiting(&client, "job");
    match fault {
        NetworkFault::HoldReplies => until_there_are(&store, "job", 1).await,
        _ => sleep(TOO_LONG).await,
    }
    assert!(!acquiring.is_finished());
    proxy.set_network_fault(NetworkFault::Reset);
    tokio::task::yield_now().await;
    proxy.set_network_fault(NetworkFault::None);

    let granted = timeout(SOON, acquiring).await;
    let guard = granted.expect("it asks again").unwrap();
    let entries = entries(&store, "job").await;
    assert_eq!(entries.len(), 1, "{entries:?}");
    let created = u64::try_from(entries[0].create_revision()).unwrap();
    assert!(guard.token().number() >= created << 16);
    guard.release().await.unwrap();
    until_there_are(&store, "job", 0).await;
    lock(&client, "job").await.release().await.unwrap();
}

#[tokio::test]
async fn that_loses_the_reply_of_a_grant_grants_once() {
    is_granted_once_through(NetworkFault::HoldReplies).await;
}

#[tokio::test]
async fn that_loses_the_request_of_a_grant_grants_once() {
    is_granted_once_through(NetworkFault::BlackHole).await;
}

#[tokio::test]
async fn that_delivers_requests_late_grants_once() {
    let etcd = Etcd::start().await;
    let store = store(&etcd).await;
    let (proxy, client) = behind(&etcd).await;

    proxy.set_network_fault(NetworkFault::BlackHole);
    let acquiring = waiting(&client, "job");
    sleep(TOO_LONG).await;
    proxy.set_network_fault(NetworkFault::None);

    let granted = timeout(SOON, acquiring).await;
    let guard = granted.expect("it asks again").unwrap();
    assert_eq!(entries(&store, "job").await.len(), 1);
    guard.release().await.unwrap();
    until_there_are(&store, "job", 0).await;
    lock(&client, "job").await.release().await.unwrap();
}

#[tokio::test]
async fn that_breaks_for_a_moment_ends_no_watch_however_many_there_are() {
    const NUMBER: u16 = 20_000;
    let etcd = Etcd::start().await;
    let proxy = FaultProxy::start(etcd.endpoints().remove(0)).await;
    let url = format!("etcd://{}?timeout-ms=200", proxy.address());
    let backend = EtcdBackend::connect_lazily(EtcdConfig::from_url(&url).unwrap());
    let watch = |n: u16| backend.watch(Subject::Key(&LockKey::new(format!("job-{n}")).unwrap()));
    let watched = async || etcd.metric(0, "etcd_debugging_mvcc_watcher_total").await;
    let all = async || watched().await >= f64::from(NUMBER);
    let _watches: Vec<_> = (0..NUMBER).map(watch).collect();
    until("all are watched", all).await;

    proxy.set_network_fault(NetworkFault::Reset);
    until("none is watched", async || watched().await == 0.0).await;
    proxy.set_network_fault(NetworkFault::None);

    until("all are watched again", all).await;
}
