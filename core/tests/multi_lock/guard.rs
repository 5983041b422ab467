//! The guard of several locks.

use super::*;

#[tokio::test(start_paused = true)]
async fn ends_with_its_earliest_part() {
    let fixture = Fixture::one_by_one_with(options().renewal(RenewalMode::Off));
    fixture.faults.inject(Operation::Acquire, Fault::DelayReply(ms(1_000)), 3);

    let asked_at = fixture.clock.now();
    let guard = three(&fixture).lock().await.unwrap();

    assert_eq!(guard.deadline(), asked_at + TTL - DRIFT);
    assert_eq!(guard.remaining(), TTL - DRIFT - ms(3_000));
    guard.ensure_held(guard.remaining()).unwrap();
    let error = guard.ensure_held(guard.remaining() + ms(1)).unwrap_err();
    assert_eq!((error.kind(), error.key()), (ErrorKind::ExpiresSoon, Some(&key("a"))));
    assert_eq!(guard.lost().await, Some((key("a"), LossReason::Expired)));
    assert_eq!(fixture.clock.now(), asked_at + TTL - DRIFT);
}

#[tokio::test(start_paused = true)]
async fn is_renewed_in_all_its_parts() {
    let fixture = Fixture::one_by_one();
    let guard = three(&fixture).lock().await.unwrap();

    tokio::time::sleep(TTL * 3).await;

    assert!(guard.is_held());
    assert_eq!(closed(&fixture).await, KEYS);
}

#[tokio::test(start_paused = true)]
async fn releases_all_parts_whichever_fails_and_tells_the_first_error() {
    for failing in KEYS {
        let fixture = Fixture::one_by_one();
        let guard = three(&fixture).lock().await.unwrap();
        let fault = Fault::Fail(ErrorKind::Denied);
        fixture.faults.inject_on(&key(failing), Operation::Release, fault, 1);

        let error = guard.release().await.unwrap_err();

        assert_eq!((error.kind(), error.key()), (ErrorKind::Denied, Some(&key(failing))));
        assert_eq!(fixture.left().await, 0, "the background retries a failed release");
    }
    let fixture = Fixture::one_by_one();
    let guard = three(&fixture).lock().await.unwrap();
    fixture.faults.inject(Operation::Release, Fault::Fail(ErrorKind::Denied), 3);
    assert_eq!(guard.release().await.unwrap_err().key(), Some(&key("c")));
}

#[tokio::test(start_paused = true)]
async fn tells_of_a_loss_before_it_tells_of_a_release_that_failed() {
    let fixture = Fixture::one_by_one();
    let guard = three(&fixture).lock().await.unwrap();
    // The store has lost it and we do not know: the release finds out.
    fixture.faults.inject(Operation::Renew, Fault::SwallowRequest, 9);
    fixture.client.backend().expire(&key("a")).await.unwrap();
    let fault = Fault::Fail(ErrorKind::Denied);
    fixture.faults.inject_on(&key("c"), Operation::Release, fault, 1);

    let error = guard.release().await.unwrap_err();

    assert_eq!((error.kind(), error.key()), (ErrorKind::LeaseLost, Some(&key("a"))));
}

#[tokio::test(start_paused = true)]
async fn waits_for_a_silent_store_once_and_not_for_each_part() {
    let fixture = Fixture::one_by_one();
    let guard = three(&fixture).lock().await.unwrap();
    fixture.faults.inject(Operation::Release, Fault::SwallowRequest, 3);

    let asked_at = fixture.clock.now();
    let error = guard.release().await.unwrap_err();

    assert_eq!(error.kind(), ErrorKind::Indeterminate);
    assert_eq!(fixture.clock.now(), asked_at + ms(5_000));
    assert_eq!(fixture.left().await, 0);
}

#[tokio::test(start_paused = true)]
async fn may_be_dropped_while_it_is_released_at_any_point() {
    for polls in 0..6 {
        let fixture = Fixture::one_by_one();
        let guard = three(&fixture).lock().await.unwrap();
        for (name, delay) in KEYS.into_iter().zip([30, 20, 10]) {
            let fault = Fault::DelayRequest(ms(delay));
            fixture.faults.inject_on(&key(name), Operation::Release, fault, 1);
        }

        let released = dropped_after(polls, guard.release()).await;

        assert_eq!(released.is_some(), polls > 3, "{polls}");
        assert_eq!(fixture.left().await, 0, "dropped after {polls} polls");
    }
}

#[tokio::test(start_paused = true)]
async fn is_there_while_work_is_run_and_gone_afterwards() {
    let fixture = Fixture::one_by_one();
    fixture.faults.inject(Operation::Release, Fault::Fail(ErrorKind::Unavailable), 999);

    let whole = three(&fixture);
    let closed = whole.run(async |guard| {
        assert!(guard.is_held());
        closed(&fixture).await
    });

    assert_eq!(closed.await.unwrap(), KEYS, "a release that fails takes nothing away");
    fixture.faults.heal();
    assert_eq!(fixture.left().await, 0);
}

/// Futures that users spawn must be `Send`, the closure form included.
#[tokio::test]
async fn may_be_awaited_for_in_a_task() {
    let client = LockClient::new(MemoryBackend::new()).into_dyn();
    let whole = client.multi_lock().mutexes(KEYS).unwrap();

    let spawned = tokio::spawn(async move {
        let guard = whole.lock().await.unwrap();
        guard.while_held(async {}).await.unwrap();
        guard.release().await.unwrap();
        whole.try_lock_for(ms(1)).await.unwrap().release().await.unwrap();
        whole.run(async |guard| guard.guards().len()).await.unwrap()
    });

    assert_eq!(spawned.await.unwrap(), 3);
}

#[test]
fn shows_its_keys() {
    const fn assert_send_sync<T: Send + Sync>() {}
    assert_send_sync::<MultiLock>();
    assert_send_sync::<MultiGuard>();
    let client = LockClient::new(MemoryBackend::new());
    let whole = client.multi_lock().mutexes(KEYS).unwrap();

    assert_eq!(format!("{whole:?}"), r#"MultiLock["a", "b", "c"]"#);
}
