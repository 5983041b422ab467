//! A segment that the store does not grant.

use super::*;

#[tokio::test(start_paused = true)]
async fn is_not_said_to_be_held() {
    let fixture = Fixture::new();
    let striped = segments(&fixture, 4);
    let mut held = hold_all(&fixture, &striped).await;
    held.remove(3).release().await.unwrap();
    fixture.faults.inject_on(&key("stock/3"), Operation::Acquire, Fault::LoseReply, 1_000);

    let error = Error::from(striped.try_lock().await.unwrap_err());
    assert_eq!(error.kind(), ErrorKind::Indeterminate);
    assert_eq!(error.key(), Some(&key("stock/3")));
    let error = Error::from(striped.try_lock_for(ms(2_000)).await.unwrap_err());
    assert_eq!(error.kind(), ErrorKind::Indeterminate);

    fixture.faults.heal();
    drop(held);
    assert_eq!(fixture.left().await, 0);
}

#[tokio::test(start_paused = true)]
async fn at_first_may_be_the_one_that_is_taken() {
    let fixture = Fixture::new();
    let striped = segments(&fixture, 3);
    let mut held = hold_all(&fixture, &striped).await;
    held.remove(1).release().await.unwrap();
    let fault = Fault::Fail(ErrorKind::Unavailable);
    fixture.faults.inject_on(&key("stock/1"), Operation::Acquire, fault, 2);

    assert_eq!(striped.lock().await.unwrap().segment(), 1);
}

#[tokio::test(start_paused = true)]
async fn at_first_and_was_held_at_last_is_held() {
    let fixture = Fixture::new();
    let striped = segments(&fixture, 3);
    let _held = hold_all(&fixture, &striped).await;
    fixture.faults.inject(Operation::Acquire, Fault::Fail(ErrorKind::Unavailable), 2);

    assert!(matches!(striped.try_lock_for(ms(2_000)).await, Err(TryLockError::Busy(_))));
}

#[tokio::test(start_paused = true)]
async fn does_not_end_the_waiting_for_the_others() {
    let fixture = Fixture::new();
    let striped = segments(&fixture, 3);
    let mut held = hold_all(&fixture, &striped).await;
    let fault = Fault::Fail(ErrorKind::Denied);
    fixture.faults.inject_on(&key("stock/0"), Operation::Acquire, fault, 1_000);
    let release = async {
        tokio::time::sleep(ms(500)).await;
        held.remove(2).release().await.unwrap();
    };

    let (locked, ()) = tokio::join!(striped.lock(), release);

    assert_eq!(locked.unwrap().segment(), 2);
}

#[tokio::test(start_paused = true)]
async fn keeps_no_caller_from_the_others_while_another_is_silent() {
    let fixture = Fixture::new();
    let striped = segments(&fixture, 3);
    let (fails, silent) = (key("stock/0"), key("stock/1"));
    // A caller waits in the line of any segment: in one of three rounds of the one that fails, and looks at the silent one meanwhile.
    for _ in 0..20 {
        let mut held = hold_all(&fixture, &striped).await;
        let release = async {
            tokio::time::sleep(ms(500)).await;
            let unavailable = Fault::Fail(ErrorKind::Unavailable);
            fixture.faults.inject_on(&fails, Operation::Acquire, unavailable, 100_000);
            fixture.faults.inject_on(&silent, Operation::Acquire, Fault::SwallowRequest, 100_000);
            tokio::time::sleep(LockOptions::DEFAULT_OUTAGE_WAIT * 2).await;
            held.remove(2).release().await.unwrap();
        };

        let (locked, ()) = tokio::join!(striped.lock(), release);

        assert_eq!(locked.unwrap().segment(), 2);
        fixture.faults.heal();
        drop(held);
        assert_eq!(fixture.left().await, 0);
    }
}

#[tokio::test(start_paused = true)]
async fn is_asked_for_again_while_others_are_waited_for() {
    let fixture = Fixture::new();
    let striped = segments(&fixture, 3);
    let mut held = hold_all(&fixture, &striped).await;
    held.remove(2).release().await.unwrap();
    let fault = Fault::Fail(ErrorKind::Unavailable);
    fixture.faults.inject_on(&key("stock/2"), Operation::Acquire, fault, 100_000);
    let outage = async {
        tokio::time::sleep(LockOptions::DEFAULT_OUTAGE_WAIT * 2).await;
        fixture.faults.heal();
    };

    let (locked, ()) = tokio::join!(striped.try_lock_for(ms(60_000)), outage);

    assert_eq!(locked.unwrap().segment(), 2);
}

#[tokio::test(start_paused = true)]
async fn is_not_asked_for_after_the_wait() {
    let fixture = Fixture::new();
    let striped = segments(&fixture, 3);
    let mut held = hold_all(&fixture, &striped).await;
    held.remove(2).release().await.unwrap();
    let refused = Fault::Fail(ErrorKind::Unavailable);
    fixture.faults.inject_on(&key("stock/2"), Operation::Acquire, refused, 100_000);
    fixture.faults.inject(Operation::Release, Fault::SwallowRequest, 100_000);
    let before = fixture.faults.calls(Operation::Acquire);

    let locked = striped.try_lock_for(ms(1_000)).await;

    assert_eq!(Error::from(locked.unwrap_err()).kind(), ErrorKind::Unavailable);
    let attempts = fixture.faults.calls(Operation::Acquire) - before;
    assert!(attempts < 100, "{attempts} attempts in a second");
}

#[tokio::test(start_paused = true)]
async fn is_looked_at_once_the_store_answers() {
    let fixture = Fixture::new();
    let striped = segments(&fixture, 3);
    let mut held = hold_all(&fixture, &striped).await;
    let fault = Fault::Fail(ErrorKind::Unavailable);
    fixture.faults.inject_on(&key("stock/2"), Operation::Acquire, fault, 100_000);
    let outage = async {
        tokio::time::sleep(LockOptions::DEFAULT_OUTAGE_WAIT * 2).await;
        fixture.faults.heal();
        tokio::time::sleep(ms(5_000)).await;
        held.remove(2).release().await.unwrap();
        fixture.clock.now()
    };
    let waiting = async {
        let locked = striped.try_lock_for(ms(60_000)).await;
        (locked, fixture.clock.now())
    };

    let ((locked, locked_at), freed_at) = tokio::join!(waiting, outage);

    assert_eq!(locked.unwrap().segment(), 2);
    assert!(locked_at.since(freed_at) <= ms(1_001), "the caller looks once a second");
}

#[tokio::test(start_paused = true)]
async fn is_the_error_if_all_do() {
    let fixture = Fixture::new();
    let fault = Fault::Fail(ErrorKind::Unavailable);
    fixture.faults.inject(Operation::Acquire, fault, 100_000);
    let striped = segments(&fixture, 3);

    let asked_at = fixture.clock.now();
    let error = striped.lock().await.unwrap_err();

    assert_eq!(error.kind(), ErrorKind::Unavailable);
    let waited = fixture.clock.now().since(asked_at);
    assert!(waited >= LockOptions::DEFAULT_OUTAGE_WAIT && waited <= ms(12_000), "{waited:?}");
}
