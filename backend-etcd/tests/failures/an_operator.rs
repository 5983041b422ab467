//! Changes that operators make to leases, keys and history.

use leasehold_core::backend::{Operation, StoreAdmin};
use leasehold_core::fault::{FaultBackend, Notifications};

use super::*;

/// A cluster, a holder that has held for long enough to hear of changes, and a waiter.
async fn one_holds_and_one_waits() -> (Etcd, Client, LockGuard, JoinHandle<LockGuard>) {
    let etcd = Etcd::start().await;
    let store = store(&etcd).await;
    let guard = lock(&client(&etcd.url(), LONG).await, "job").await;
    let waits = waiting(&client(&etcd.url(), LONG).await, "job");
    until_there_are(&store, "job", 2).await;
    // A holder of less than a moment is not told.
    sleep(Duration::from_millis(100)).await;
    (etcd, store, guard, waits)
}

#[tokio::test]
async fn that_revokes_the_lease_ends_the_lock_and_the_next_one_is_granted() {
    let (etcd, store, guard, waits) = one_holds_and_one_waits().await;
    let lease = format!("{:x}", entries(&store, "job").await[0].lease());

    etcd.ctl(&["lease", "revoke", &lease]).await;

    let lost = timeout(SOON, guard.lost()).await.expect("it is told");
    // The next one is there already, or not yet.
    assert!(matches!(lost, Some(LossReason::Taken | LossReason::Vanished)), "{lost:?}");
    let next = timeout(SOON, waits).await.expect("it is its turn").unwrap();
    assert!(next.token() > guard.token());
    next.release().await.unwrap();
}

#[tokio::test]
async fn that_deletes_the_key_ends_the_lock_and_its_release_is_harmless() {
    let (_etcd, store, guard, waits) = one_holds_and_one_waits().await;
    let ours = entries(&store, "job").await.remove(0);

    store.kv_client().delete(ours.key(), None).await.unwrap();

    timeout(SOON, guard.lost()).await.expect("it is told");
    let next = timeout(SOON, waits).await.expect("it is its turn").unwrap();
    let before = entries(&store, "job").await;
    assert_eq!(guard.release().await.unwrap_err().kind(), ErrorKind::LeaseLost);
    let after = entries(&store, "job").await;
    assert_eq!(after.len(), 1);
    assert_eq!(after[0].mod_revision(), before[0].mod_revision());
    next.release().await.unwrap();
}

#[tokio::test]
async fn that_gives_the_key_to_another_does_not_see_it_released() {
    let etcd = Etcd::start().await;
    let store = store(&etcd).await;
    let backend = EtcdBackend::connect(&etcd.url()).await.unwrap();
    let key = LockKey::new("job").unwrap();
    let (old, new) = (Lease::new(&key, LONG), Lease::new(&key, LONG));
    backend.acquire(&Claim::new(old.clone())).await.unwrap();
    let entry = entries(&store, "job").await.remove(0);
    store.kv_client().delete(entry.key(), None).await.unwrap();
    backend.acquire(&Claim::new(new.clone())).await.unwrap();

    assert_eq!(backend.release(&old).await.unwrap(), Release::NotHeld);
    assert_eq!(backend.renew(&old).await.unwrap(), Renewal::Taken);

    assert_eq!(backend.renew(&new).await.unwrap(), Renewal::Renewed);
    assert_eq!(backend.release(&new).await.unwrap(), Release::Released);
}

#[tokio::test]
async fn that_deletes_the_key_is_noticed_by_the_next_renewal_without_any_news() {
    let etcd = Etcd::start().await;
    let store = store(&etcd).await;
    let deaf = FaultBackend::new(EtcdBackend::connect(&etcd.url()).await.unwrap());
    deaf.faults().set_notifications(Notifications::Muted);
    let options = LockOptions::new().ttl(Duration::from_secs(3));
    let client = LockClient::builder(deaf).options(options).build().unwrap();
    let guard = client.mutex("job").unwrap().lock().await.unwrap();
    let other = client.mutex("other").unwrap().lock().await.unwrap();
    let entry = entries(&store, "job").await.remove(0);

    store.kv_client().delete(entry.key(), None).await.unwrap();

    // A third of the TTL is a second.
    let lost = timeout(Duration::from_secs(1) + SOON, guard.lost()).await;
    assert_eq!(lost.expect("the next renewal finds out"), Some(LossReason::Vanished));
    renewed(&other).await;
    assert_eq!(client.backend().faults().calls(Operation::Release), 0);
}

#[tokio::test]
async fn that_deletes_a_place_in_line_delays_only_its_owner() {
    let (etcd, store, guard, waits) = one_holds_and_one_waits().await;
    let behind = waiting(&client(&etcd.url(), LONG).await, "job");
    until_there_are(&store, "job", 3).await;
    let [_, place, last] = &entries(&store, "job").await[..] else { unreachable!() };

    store.kv_client().delete(place.key(), None).await.unwrap();
    until_there_are(&store, "job", 3).await;
    let again = entries(&store, "job").await;
    assert_eq!(again[1].key(), last.key());
    assert!(again[2].create_revision() > last.create_revision());

    guard.release().await.unwrap();
    timeout(SOON, behind).await.expect("it is first now").unwrap().release().await.unwrap();
    timeout(SOON, waits).await.expect("it is next").unwrap().release().await.unwrap();
}

#[tokio::test]
async fn that_revokes_a_waiters_lease_does_not_keep_it_from_being_served() {
    let (etcd, store, guard, waits) = one_holds_and_one_waits().await;
    let place = entries(&store, "job").await.remove(1);

    etcd.ctl(&["lease", "revoke", &format!("{:x}", place.lease())]).await;
    until("it takes another place", async || {
        let entries = entries(&store, "job").await;
        entries.len() == 2 && entries[1].create_revision() > place.create_revision()
    })
    .await;

    guard.release().await.unwrap();
    timeout(SOON, waits).await.expect("it is its turn").unwrap().release().await.unwrap();
}

#[tokio::test]
async fn that_revokes_the_lease_of_permits_lets_the_next_ones_in() {
    let etcd = Etcd::start().await;
    let store = store(&etcd).await;
    let (holder, waiter) = (client(&etcd.url(), LONG).await, client(&etcd.url(), LONG).await);
    let semaphore = holder.semaphore("job", 2).unwrap();
    let _permits = [semaphore.acquire(1).await.unwrap(), semaphore.acquire(1).await.unwrap()];
    let lease = entries(&store, "job").await[0].lease();
    let told = waiter.options().retry(Retry::unlimited().every(LONG)).fair(true);
    let mut waiting = Vec::new();
    for number in 3..=4 {
        let semaphore = waiter.semaphore("job", 2).unwrap().with_options(told.clone()).unwrap();
        waiting.push(tokio::spawn(async move { semaphore.acquire(1).await.unwrap() }));
        until_there_are(&store, "job", number).await;
    }

    store.lease_client().revoke(lease).await.unwrap();

    for waiting in waiting {
        let permit = timeout(SOON, waiting).await.expect("it is told").unwrap();
        assert!(permit.is_held());
    }
}

#[tokio::test]
async fn that_compacts_keeps_no_waiter_from_being_told() {
    let (etcd, _store, guard, waits) = one_holds_and_one_waits().await;
    etcd.ctl(&["put", "x", "y"]).await;

    etcd.compact().await;
    guard.release().await.unwrap();

    timeout(SOON, waits).await.expect("it is told").unwrap().release().await.unwrap();
}

#[tokio::test]
async fn that_compacts_keeps_no_holder_from_being_told() {
    let etcd = Etcd::start().await;
    let store = store(&etcd).await;
    let guard = lock(&client(&etcd.url(), LONG).await, "job").await;

    // The lease is watched a moment after its grant, and not at once.
    let entry = entries(&store, "job").await.remove(0);
    for _ in 0..2 {
        let put = store.kv_client().put("x", "y", None).await.unwrap();
        let revision = put.header().unwrap().revision();
        store.kv_client().compact(revision, None).await.unwrap();
    }
    sleep(Duration::from_millis(150)).await;
    store.kv_client().delete(entry.key(), None).await.unwrap();

    timeout(SOON, guard.lost()).await.expect("it is told");
}

#[tokio::test]
async fn that_compacts_before_a_connection_breaks_keeps_no_holder_from_being_told() {
    let etcd = Etcd::start().await;
    let store = store(&etcd).await;
    let proxy = FaultProxy::start(etcd.endpoints().remove(0)).await;
    let client = client(&format!("etcd://{}", proxy.address()), LONG).await;
    let guards = [lock(&client, "job").await, lock(&client, "other").await];
    sleep(Duration::from_millis(150)).await;
    store.kv_client().put("x", "y", None).await.unwrap();
    etcd.compact().await;

    proxy.set_network_fault(NetworkFault::Reset);
    sleep(Duration::from_millis(20)).await;
    proxy.set_network_fault(NetworkFault::None);
    // Once the client is there again.
    let_go(lock(&client, "again").await).await;
    sleep(Duration::from_millis(300)).await;
    etcd.ctl(&["del", "--prefix", "lock/"]).await;

    for guard in guards {
        timeout(SOON, guard.lost()).await.expect("it is told");
    }
}

#[tokio::test]
async fn that_deletes_a_key_makes_the_next_token_larger_all_the_same() {
    let etcd = Etcd::start().await;
    let client = client(&etcd.url(), LONG).await;
    let guard = lock(&client, "job").await;

    etcd.ctl(&["del", "--prefix", ""]).await;
    let mutex = client.mutex("job").unwrap();
    timeout(SOON, guard.lost()).await.expect("it is told");
    let next = mutex.lock().await.unwrap();

    assert!(next.token() > guard.token());
    next.release().await.unwrap();
}

#[tokio::test]
async fn that_releases_by_force_ends_thousands_of_holders() {
    const HOLDERS: usize = 2_000;
    let etcd = Etcd::start().await;
    let store = store(&etcd).await;
    let holders: Vec<TxnOp> = (0..HOLDERS)
        .map(|n| TxnOp::put(format!("lock/job/{n}"), format!("held {n} 00000000 1/2000"), None))
        .collect();
    for together in holders.chunks(100) {
        store.kv_client().txn(Txn::new().and_then(together)).await.unwrap();
    }
    let backend = EtcdBackend::connect(&etcd.url()).await.unwrap();

    let forced = backend.force_release(&LockKey::new("job").unwrap(), None).await.unwrap();

    assert_eq!(forced.ended().len(), HOLDERS);
    assert!(entries(&store, "job").await.is_empty());
}
