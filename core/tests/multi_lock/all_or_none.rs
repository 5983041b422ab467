//! All, or none.

use super::*;

#[tokio::test(start_paused = true)]
async fn one_attempt_waits_for_nothing_and_keeps_nothing() {
    for held in KEYS {
        let fixture = Fixture::one_by_one();
        let _held = fixture.other.mutex(held).unwrap().lock().await.unwrap();

        let asked_at = fixture.clock.now();
        assert!(matches!(three(&fixture).try_lock().await, Err(TryLockError::Busy(_))));
        assert_eq!(fixture.clock.now(), asked_at);

        assert_eq!(closed(&fixture).await, [held], "at once");
        assert_eq!(fixture.left().await, 1);
    }
}

#[tokio::test(start_paused = true)]
async fn one_attempt_does_not_wait_for_callers_of_this_process() {
    for held in KEYS {
        let fixture = Fixture::one_by_one();
        let held = fixture.client.mutex(held).unwrap().lock().await.unwrap();

        let asked_at = fixture.clock.now();
        assert!(matches!(three(&fixture).try_lock().await, Err(TryLockError::Busy(_))));
        assert!(matches!(
            three(&fixture).try_lock_for(Duration::ZERO).await,
            Err(TryLockError::Busy(_))
        ));
        assert_eq!(fixture.clock.now(), asked_at);

        held.release().await.unwrap();
        assert!(three(&fixture).try_lock_for(Duration::ZERO).await.is_ok());
    }
}

#[tokio::test(start_paused = true)]
async fn a_part_that_fails_is_the_error_and_nothing_is_kept() {
    for (n, failing) in KEYS.into_iter().enumerate() {
        for (fault, kind) in [
            (Fault::Fail(ErrorKind::Denied), ErrorKind::Denied),
            (Fault::Fail(ErrorKind::Unavailable), ErrorKind::Unavailable),
            (Fault::Fail(ErrorKind::Refused), ErrorKind::Refused),
            (Fault::LoseReply, ErrorKind::Indeterminate),
            (Fault::SwallowReply, ErrorKind::Indeterminate),
            (Fault::SwallowRequest, ErrorKind::Indeterminate),
        ] {
            let fixture = Fixture::one_by_one();
            fixture.faults.inject_on(&key(failing), Operation::Acquire, fault, 1);

            let error = Error::from(three(&fixture).try_lock().await.unwrap_err());

            assert_eq!(error.kind(), kind, "{fault:?} on {failing}");
            assert_eq!(error.key(), Some(&key(failing)));
            assert_eq!(error.operation(), Some(Operation::Acquire));
            assert_eq!(fixture.faults.calls(Operation::Acquire), n + 1);
            assert_eq!(fixture.left().await, 0, "{fault:?} on {failing}");
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_part_of_another_kind_is_the_error_and_nothing_is_kept() {
    for other in KEYS {
        let fixture = Fixture::one_by_one();
        let _held = fixture.other.semaphore(other, 2).unwrap().acquire(1).await.unwrap();

        let error = three(&fixture).lock().await.unwrap_err();

        assert_eq!((error.kind(), error.key()), (ErrorKind::WrongType, Some(&key(other))));
        assert_eq!(fixture.left().await, 1);
    }
}

#[tokio::test(start_paused = true)]
async fn a_store_that_is_back_in_time_is_no_error() {
    for failing in KEYS {
        let fixture = Fixture::one_by_one();
        fixture.faults.inject_on(&key(failing), Operation::Acquire, Fault::LoseReply, 2);

        let guard = three(&fixture).lock().await.unwrap();

        assert_eq!(guard.guards().len(), 3);
        guard.release().await.unwrap();
        assert_eq!(fixture.left().await, 0);
    }
}

#[tokio::test(start_paused = true)]
async fn a_future_may_be_dropped_at_any_point() {
    drop_contended_calls_at_any_point(Fixture::one_by_one).await;
}

#[tokio::test(start_paused = true)]
async fn a_future_that_gives_back_may_be_dropped_at_any_point() {
    for polls in 0.. {
        let fixture = Fixture::one_by_one();
        fixture.faults.inject(Operation::Acquire, Fault::DelayReply(ms(10)), 3);
        fixture.faults.inject(Operation::Release, Fault::DelayRequest(ms(10)), 2);
        let _held = fixture.other.mutex("c").unwrap().lock().await.unwrap();

        let tried = dropped_after(polls, three(&fixture).try_lock()).await;

        assert_eq!(fixture.left().await, 1, "dropped after {polls} polls");
        assert_eq!(closed(&fixture).await, ["c"]);
        if let Some(tried) = tried {
            assert!(tried.unwrap_err().into_busy().is_ok());
            assert!(polls > 4, "{polls}");
            break;
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_lock_that_is_given_back_is_not_kept_closed() {
    let fixture = Fixture::one_by_one_with(options().min_hold(ms(20_000)));
    let held = fixture.other.mutex("c").unwrap().lock().await.unwrap();

    assert!(matches!(three(&fixture).try_lock().await, Err(TryLockError::Busy(_))));
    assert!(dropped_after(1, three(&fixture).lock()).await.is_none());
    assert_eq!(fixture.left().await, 1);

    held.release().await.unwrap();
    three(&fixture).lock().await.unwrap().release().await.unwrap();
    assert_eq!(closed(&fixture).await, KEYS, "min_hold counts once all parts are held");
}

#[tokio::test(start_paused = true)]
async fn a_shutdown_ends_the_waiting() {
    let fixture = Fixture::one_by_one();
    let _held = fixture.other.mutex("c").unwrap().lock().await.unwrap();
    let whole = three(&fixture);
    let waiting = tokio::spawn(async move { whole.lock().await.unwrap_err().kind() });
    tokio::time::sleep(ms(100)).await;

    fixture.client.shutdown(TTL).await.unwrap();

    assert_eq!(waiting.await.unwrap(), ErrorKind::Closed);
    assert_eq!(closed(&fixture).await, ["c"]);
}
