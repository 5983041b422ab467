//! Leases from the grant to the end.

use super::*;
use crate::fixture::{key, options};
use leasehold_core::backend::StoreAdmin as _;

const SHORTEST: Duration = Duration::from_secs(1);

#[tokio::test(start_paused = true)]
async fn that_are_capped_are_looked_after_when_there_is_news_and_otherwise_left_alone() {
    let Fixture { client, faults, .. } = Fixture::new();
    let capped = LockOptions::new().ttl(TTL).max_hold(TTL);
    let mutex = client.mutex("k").unwrap().with_options(capped).unwrap();
    let guard = mutex.lock().await.unwrap();
    tokio::time::sleep(TTL / 2).await;
    assert_eq!(faults.calls(Operation::Renew), 0);

    client.backend().expire(mutex.key()).await.unwrap();
    tokio::time::sleep(Duration::from_millis(10)).await;

    assert_eq!(guard.state(), LeaseState::Lost(LossReason::Vanished));
    assert_eq!(faults.calls(Operation::Renew), 1);
}

#[tokio::test(start_paused = true)]
async fn that_keep_a_key_closed_do_so_for_the_shortest_ttl_at_least() {
    const MIN_HOLD: Duration = Duration::from_secs(5);
    let all = MemoryBackend::new().capabilities();
    let coarse = all.with_ttl_range(SHORTEST, Capabilities::DEFAULT_MAX_TTL);
    let fixture = Fixture::declaring(coarse, LockOptions::new().min_hold(MIN_HOLD));
    let Fixture { client, faults, store, .. } = fixture;
    faults.on_request(|request| match &request {
        Request::Renew(lease) if lease.ttl() < SHORTEST => {
            Err(Error::new(ErrorKind::Refused, "the TTL is too short"))
        }
        _ => Ok(request),
    });
    let guard = client.mutex("k").unwrap().lock().await.unwrap();

    tokio::time::sleep(MIN_HOLD - SHORTEST / 10).await;
    guard.release().await.unwrap();

    let closed = store.inspect(&"k".try_into().unwrap()).await.unwrap();
    assert_eq!(closed.holders()[0].remaining(), Some(SHORTEST));
}

#[tokio::test(start_paused = true)]
async fn that_keep_a_key_closed_outlive_a_renewal_under_way() {
    for is_dropped in [false, true] {
        let Fixture { client, faults, store, .. } = Fixture::with(options().min_hold(TTL * 4));
        let guard = client.mutex("k").unwrap().lock().await.unwrap();
        // The watchdog's first renewal reaches the store a second late.
        faults.inject(Operation::Renew, Fault::DelayRequest(ms(1_000)), 1);
        tokio::time::sleep(TTL / 3 + ms(100)).await;

        if is_dropped {
            drop(guard);
        } else {
            guard.release().await.unwrap();
        }

        tokio::time::sleep(TTL * 2).await;
        let is_held = async || store.inspect(&key("k")).await.unwrap().is_held();
        assert!(is_held().await, "it is open early");
        tokio::time::sleep(TTL * 2).await;
        assert!(!is_held().await);
    }
}

#[tokio::test(start_paused = true)]
async fn that_are_released_do_not_wait_for_a_renewal_under_way() {
    for is_dropped in [false, true] {
        let Fixture { client, faults, store, .. } = Fixture::new();
        faults.inject(Operation::Renew, Fault::SwallowRequest, usize::MAX);
        let guard = client.mutex("k").unwrap().lock().await.unwrap();
        tokio::time::sleep(TTL / 3 + ms(100)).await;
        assert_eq!(faults.calls(Operation::Renew), 1);
        let begun_at = tokio::time::Instant::now();

        if is_dropped {
            drop(guard);
        } else {
            guard.release().await.unwrap();
            assert_eq!(begun_at.elapsed(), Duration::ZERO);
        }

        tokio::time::sleep(ms(1)).await;
        assert!(!store.inspect(&key("k")).await.unwrap().is_held(), "dropped: {is_dropped}");
    }
}

#[tokio::test(start_paused = true)]
async fn that_are_released_end_every_wait_for_their_loss() {
    let client = LockClient::new(MemoryBackend::new());
    for is_dropped in [false, true] {
        let guard = client.mutex("k").unwrap().lock().await.unwrap();
        let lost = tokio::spawn(guard.lost());
        let asked = tokio::spawn(guard.revocation_requested());
        tokio::task::yield_now().await;

        if is_dropped {
            drop(guard);
        } else {
            guard.release().await.unwrap();
        }

        assert_eq!(lost.await.unwrap(), None);
        assert!(!asked.await.unwrap());
    }
}

#[tokio::test(start_paused = true)]
async fn that_are_shared_end_the_waits_for_their_loss_with_the_last_guard() {
    let client = LockClient::new(MemoryBackend::new());
    let mutex = client.reentrant_mutex("k").unwrap();
    let (outer, inner) = (mutex.lock().await.unwrap(), mutex.lock().await.unwrap());
    let lost = tokio::spawn(inner.lost());

    inner.release().await.unwrap();
    tokio::time::sleep(TTL).await;
    assert!(!lost.is_finished());

    outer.release().await.unwrap();
    assert_eq!(lost.await.unwrap(), None);
}

#[tokio::test(start_paused = true)]
async fn that_are_lost_end_a_wait_for_a_request_with_the_guard() {
    let client = Fixture::new().client;
    let guard = client.mutex("k").unwrap().lock().await.unwrap();
    let asked = tokio::spawn(guard.revocation_requested());
    client.backend().expire(guard.key()).await.unwrap();
    assert_eq!(guard.lost().await, Some(LossReason::Vanished));

    drop(guard);

    assert!(!asked.await.unwrap());
}

#[tokio::test(start_paused = true)]
async fn that_are_waited_for_keep_no_client_alive() {
    let backend = Arc::new(MemoryBackend::new());
    let client = LockClient::new(Arc::clone(&backend));
    let guard = client.mutex("k").unwrap().lock().await.unwrap();
    let (_lost, _asked) = (guard.lost(), guard.revocation_requested());

    guard.release().await.unwrap();
    drop(client);
    tokio::time::sleep(TTL).await;

    assert_eq!(Arc::strong_count(&backend), 1);
}

#[tokio::test]
async fn of_a_hundred_thousand_names_leave_nothing_behind() {
    let store = MemoryBackend::new();
    let client = LockClient::new(store.clone());
    for n in 0..100_000 {
        let guard = client.mutex(format!("k{n}")).unwrap().try_lock().await.unwrap();
        guard.release().await.unwrap();
    }

    assert_eq!(store.keys(), 0);
}

#[tokio::test(start_paused = true)]
async fn that_have_ended_are_cleared_from_memory_by_later_calls() {
    let clock = TokioClock::new();
    let store = MemoryBackend::with_clock(clock);
    for n in 0..1_000 {
        let key = leasehold_core::LockKey::new(format!("k{n}")).unwrap();
        let claim =
            leasehold_core::backend::Claim::new(leasehold_core::backend::Lease::new(&key, TTL));
        store.acquire(&claim).await.unwrap();
    }
    assert_eq!(store.keys(), 1_000);
    tokio::time::sleep(TTL).await;

    let key = leasehold_core::LockKey::new("other").unwrap();
    let lease = leasehold_core::backend::Lease::new(&key, TTL);
    for _ in 0..500 {
        assert_eq!(store.release(&lease).await.unwrap(), Release::NotHeld);
    }

    assert_eq!(store.keys(), 0);
}

#[tokio::test]
async fn are_shared_by_clients_of_any_backend() {
    let store = MemoryBackend::new();
    let typed: LockClient<MemoryBackend> = LockClient::new(store.clone());
    let untyped: LockClient = LockClient::new(store.clone()).into_dyn();
    let shared: LockClient<Arc<dyn LockBackend>> =
        LockClient::new(Arc::new(store) as Arc<dyn LockBackend>);

    let guard = typed.mutex("k").unwrap().lock().await.unwrap();

    assert!(matches!(untyped.mutex("k").unwrap().try_lock().await, Err(TryLockError::Busy(_))));
    assert!(matches!(shared.mutex("k").unwrap().try_lock().await, Err(TryLockError::Busy(_))));
    assert_eq!(typed.backend().keys(), 1);
    drop(guard);
}
