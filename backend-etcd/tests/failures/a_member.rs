//! One of three members that fails.

use super::*;

/// Locks and releases so many times without waiting for anybody.
async fn try_locks(client: &LockClient<EtcdBackend>, times: usize) -> Vec<TryLockError> {
    let mutex = client.mutex("job").unwrap();
    let mut errors = Vec::new();
    for _ in 0..times {
        let released = match mutex.try_lock().await {
            Ok(guard) => guard.release().await.map_err(TryLockError::from),
            Err(error) => Err(error),
        };
        errors.extend(released.err());
    }
    errors
}

/// A cluster with another leader than its first member, to which the client speaks.
async fn beside_the_leader() -> (Etcd, LockClient<EtcdBackend>) {
    let etcd = three_members().await;
    etcd.move_leader(1).await;
    let client = client(&etcd.url(), LONG).await;
    assert!(try_locks(&client, 1).await.is_empty());
    (etcd, client)
}

#[tokio::test]
async fn that_is_killed_is_missed_once_at_most() {
    let (mut etcd, client) = beside_the_leader().await;

    etcd.kill_member(0);

    let errors = try_locks(&client, 200).await;
    assert!(errors.len() <= 1, "{errors:?}");
}

#[tokio::test]
async fn that_hangs_is_missed_once_and_waited_for_once() {
    measure(async || {
        let (etcd, client) = beside_the_leader().await;
        etcd.pause_member(0);

        let (stalls, start) = (Stalls::watch(), Instant::now());
        let missed = Error::from(client.mutex("job").unwrap().try_lock().await.unwrap_err());
        assert!(missed.is_retryable(), "{missed}");
        stalls.in_time("the error", start.elapsed(), Duration::from_secs(1) + PROMPT)?;

        // The client first gives up the claims that it sent to it, in the background.
        let_go(lock(&client, "job").await).await;
        let errors = try_locks(&client, 200).await;
        assert!(errors.is_empty(), "{errors:?}");
        Ok(())
    })
    .await;
}

#[tokio::test]
async fn that_is_killed_is_not_missed_by_waiters() {
    let (mut etcd, client) = beside_the_leader().await;

    etcd.kill_member(0);

    for _ in 0..20 {
        let_go(lock(&client, "job").await).await;
    }
}

#[tokio::test]
async fn that_hangs_is_not_missed_by_waiters() {
    let (etcd, client) = beside_the_leader().await;

    etcd.pause_member(0);

    for _ in 0..20 {
        let_go(lock(&client, "job").await).await;
    }
}

#[tokio::test]
async fn that_hangs_keeps_no_waiter_from_being_served() {
    let (etcd, waiter) = beside_the_leader().await;
    let store = Client::connect([&etcd.endpoints()[1]], None).await.unwrap();
    let guard = lock(&client(&url_from(&etcd, 1), LONG).await, "job").await;
    let mutex = waiter.mutex("job").unwrap();
    let waits = tokio::spawn(async move { mutex.lock().await.unwrap() });
    until_there_are(&store, "job", 2).await;

    etcd.pause_member(0);
    let_go(guard).await;

    // It polls within a second, and then it takes another second to find that the member does not answer.
    let granted = timeout(Duration::from_secs(5), waits).await;
    let_go(granted.expect("it is its turn").unwrap()).await;
}

#[tokio::test]
async fn that_is_the_only_one_and_hangs_is_an_error_in_time_and_used_again_afterwards() {
    measure(async || {
        let etcd = Etcd::start().await;
        let client = client(&etcd.url(), LONG).await;
        assert!(try_locks(&client, 1).await.is_empty());
        etcd.pause();

        // A call that was about to give up may try once more.
        let bound = EtcdConfig::DEFAULT_TIMEOUT * 2 + PROMPT;
        for _ in 0..2 {
            let mutex = client.mutex("job").unwrap();
            let tried = Stalls::watch().promptly("the error", bound, mutex.try_lock()).await?;
            let error = Error::from(tried.unwrap_err());
            assert!(error.is_retryable(), "{error}");
        }

        etcd.resume();
        lock(&client, "job").await.release().await.unwrap();
        let errors = try_locks(&client, 10).await;
        assert!(errors.is_empty(), "{errors:?}");
        Ok(())
    })
    .await;
}

#[tokio::test]
async fn of_another_cluster_is_refused_and_never_used() {
    let (mut ours, foreign) = tokio::join!(Etcd::start(), Etcd::start());
    let urls = [ours.endpoints().remove(0), foreign.endpoints().remove(0)];
    let client = client(&format!("etcd://{}", urls.join(",")), LONG).await;
    let guard = lock(&client, "held").await;

    ours.kill();

    let error = client.mutex("job").unwrap().lock().await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Invalid, "{error}");
    assert!(error.to_string().contains("different clusters"), "{error}");
    let range = GetOptions::new().with_all_keys();
    let found = store(&foreign).await.kv_client().get("", Some(range)).await.unwrap();
    assert!(found.kvs().is_empty(), "{found:?}");
    ours.restart().await;
    until("ours is used again", async || client.mutex("job").unwrap().try_lock().await.is_ok())
        .await;
    drop(guard);
}

#[tokio::test]
async fn that_cannot_be_used_is_left_for_those_that_can() {
    let (ours, foreign) = tokio::join!(Etcd::start(), Etcd::start());
    let proxy = FaultProxy::start(ours.endpoints().remove(0)).await;
    let url = format!("etcd://{},{}", proxy.address(), foreign.endpoints()[0]);
    let client = client(&url, LONG).await;
    assert!(try_locks(&client, 1).await.is_empty());

    proxy.set_network_fault(NetworkFault::Reset);
    assert!(!try_locks(&client, 2).await.is_empty());
    proxy.set_network_fault(NetworkFault::None);

    let errors = try_locks(&client, 5).await;
    assert!(errors.is_empty(), "{errors:?}");
}

#[tokio::test]
async fn that_hangs_while_it_is_connected_to_is_left_by_cancelled_callers() {
    let etcd = Etcd::start().await;
    let proxy = FaultProxy::start(etcd.endpoints().remove(0)).await;
    proxy.set_network_fault(NetworkFault::BlackHole);
    let url = format!("etcd://{},{}", proxy.address(), etcd.endpoints()[0]);
    let backend = EtcdBackend::connect_lazily(EtcdConfig::from_url(&url).unwrap());
    let mutex = LockClient::new(backend).mutex("job").unwrap();

    // Less than the time that a reply is waited for.
    let wait = Duration::from_millis(500);
    mutex.try_lock_for(wait).await.unwrap_err();

    assert!(mutex.try_lock_for(wait).await.is_ok());
}
