//! Locks without a watchdog.

use super::*;

fn options(ttl: Duration) -> LockOptions {
    LockOptions::new().ttl(ttl).renewal(RenewalMode::Off)
}

#[tokio::test]
async fn locks_have_a_lease_each_and_each_lease_ends() {
    let etcd = Etcd::start().await;
    let store = store(&etcd).await;
    let client = client(&etcd.url(), options(TTL)).await;

    let guards = hold(&client, 5).await;
    assert_eq!(leases(&store).await.len(), 5);
    for guard in guards {
        guard.release().await.unwrap();
    }

    // Some are kept to spare until they end by themselves.
    until("the leases are gone", async || leases(&store).await.is_empty()).await;
}

#[tokio::test]
async fn one_lease_is_enough_for_one_lock_after_the_other() {
    let etcd = Etcd::start().await;
    let store = store(&etcd).await;
    let client = client(&etcd.url(), options(LONG)).await;

    for guard in 0..20 {
        let guard = client.mutex(format!("job-{guard}")).unwrap().lock().await.unwrap();
        assert!(guard.remaining() > LONG / 2);
        guard.release().await.unwrap();
    }

    assert_eq!(leases(&store).await.len(), 1);
}

#[tokio::test]
async fn hundreds_of_locks_leave_few_leases() {
    let etcd = Etcd::start().await;
    let store = store(&etcd).await;
    let client = client(&etcd.url(), options(LONG)).await;

    for guard in hold(&client, 100).await {
        guard.release().await.unwrap();
    }

    let left = leases(&store).await.len();
    assert!(left <= 10, "{left}");
}

#[tokio::test]
async fn a_refused_attempt_leaves_no_lease() {
    let etcd = Etcd::start().await;
    let store = store(&etcd).await;
    let client = client(&etcd.url(), options(LONG)).await;
    let _guard = client.semaphore("job", 1).unwrap().acquire(1).await.unwrap();

    for _ in 0..10 {
        assert!(matches!(
            client.semaphore("job", 1).unwrap().try_acquire(1).await,
            Err(TryLockError::Busy(_))
        ));
    }

    assert_eq!(leases(&store).await.len(), 1);
}

#[tokio::test]
async fn an_attempt_that_was_overtaken_leaves_a_lease_to_use_again() {
    let etcd = Etcd::start().await;
    let mut store = store(&etcd).await;
    let proxy = FaultProxy::start(etcd.endpoints().remove(0)).await;
    let backend = EtcdBackend::connect(&format!("etcd://{}", proxy.address())).await.unwrap();
    let claim = |name: &str| {
        let lease = Lease::new(&LockKey::new(name).unwrap(), LONG);
        Claim::new(lease).with_patience(Patience::Queues(LONG))
    };
    let looks = async || etcd.metric(0, r#"grpc_server_handled_total{grpc_method="Txn"}"#).await;
    let (before, overtaken) = (looks().await, claim("job"));
    proxy.set_network_fault(NetworkFault::Slow(Duration::from_millis(100)));
    let mut acquiring = pin!(backend.acquire(&overtaken));

    // It has seen that the lock is free, and does not go on before another has it.
    tokio::select! {
        attempt = &mut acquiring => panic!("{attempt:?}"),
        () = until("it looks", async || looks().await > before) => {}
    }
    store.put("lock/job/other", "", None).await.unwrap();
    assert!(matches!(acquiring.await.unwrap(), Attempt::Held(_)));
    proxy.set_network_fault(NetworkFault::None);
    let left = leases(&store).await.len();

    assert!(matches!(backend.acquire(&claim("free")).await.unwrap(), Attempt::Granted(_)));

    assert_eq!(leases(&store).await.len(), left);
}

#[tokio::test]
async fn waiters_that_give_up_leave_no_places_and_few_leases() {
    let etcd = Etcd::start().await;
    let store = store(&etcd).await;
    let url = patiently(&etcd.url());
    let holder = client(&url, options(LONG)).await;
    let (waiter, mut waits) = client_that_waits(&url, options(LONG)).await;
    let _guard = holder.mutex("job").unwrap().lock().await.unwrap();

    for _ in 0..5 {
        let mutex = waiter.mutex("job").unwrap();
        let waiting = tokio::spawn(async move { mutex.lock().await });
        until_queued(&mut waits).await;
        assert_eq!(keys(&store).await, 2);
        waiting.abort();
        until("its place is gone", async || keys(&store).await == 1).await;
    }

    let left = leases(&store).await.len();
    assert!(left <= 1 + 5, "{left}");
}

#[tokio::test]
async fn an_extension_by_hand_moves_the_lock_to_one_new_lease() {
    let etcd = Etcd::start().await;
    let store = store(&etcd).await;
    let client = client(&etcd.url(), options(TTL)).await;
    let guard = client.mutex("job").unwrap().lock().await.unwrap();
    let (token, before) = (guard.token().clone(), holder(&store, "job").await.unwrap());

    guard.extend(LONG).await.unwrap();

    let after = holder(&store, "job").await.unwrap();
    assert_ne!(after.lease(), before.lease());
    assert_eq!(after.create_revision(), before.create_revision());
    assert_eq!(*guard.token(), token);
    assert!(guard.remaining() > LONG / 2);
    until("the other ends", async || leases(&store).await == [after.lease()]).await;
    assert!(guard.is_held());
    guard.release().await.unwrap();
}
