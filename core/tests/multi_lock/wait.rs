//! One wait for all.

use super::*;

#[tokio::test(start_paused = true)]
async fn that_is_over_names_the_part_that_was_held() {
    for held in KEYS {
        let fixture = Fixture::one_by_one_with(options().wait(ms(2_000)));
        let _held = fixture.other.mutex(held).unwrap().lock().await.unwrap();

        wait_out(&fixture, held).await;

        assert_eq!(closed(&fixture).await, [held]);
    }
}

#[tokio::test(start_paused = true)]
async fn is_one_for_all_parts() {
    let fixture = Fixture::one_by_one();
    let first = fixture.other.mutex("a").unwrap().lock().await.unwrap();
    let second = fixture.other.mutex("b").unwrap().lock().await.unwrap();
    let _third = fixture.other.mutex("c").unwrap().lock().await.unwrap();
    let release = async {
        tokio::time::sleep(ms(1_000)).await;
        first.release().await.unwrap();
        tokio::time::sleep(ms(900)).await;
        second.release().await.unwrap();
    };

    let asked_at = fixture.clock.now();
    let whole = three(&fixture);
    let (locked, ()) = tokio::join!(whole.try_lock_for(ms(2_000)), release);

    assert!(locked.unwrap_err().into_busy().is_ok());
    assert_eq!(fixture.clock.now(), asked_at + ms(2_000));
    assert_eq!(fixture.left().await, 1);
}

#[tokio::test(start_paused = true)]
async fn may_end_at_an_instant() {
    let fixture = Fixture::one_by_one();
    let held = fixture.client.mutex("c").unwrap().lock().await.unwrap();
    let whole = three(&fixture);

    let asked_at = fixture.clock.now();
    let soon = asked_at + ms(60_000);
    assert!(matches!(whole.try_lock_until(soon).await, Err(TryLockError::Busy(_))));
    let waited = fixture.clock.now().since(asked_at);
    assert_eq!(waited, ms(60_000));

    held.release().await.unwrap();
    assert!(whole.try_lock_until(fixture.clock.now()).await.is_ok());
}

#[tokio::test(start_paused = true)]
async fn is_spent_on_a_silent_store_too_and_then_the_silence_is_the_error() {
    for silent in KEYS {
        let fixture = Fixture::one_by_one();
        fixture.faults.inject_on(&key(silent), Operation::Acquire, Fault::SwallowRequest, 1);

        let asked_at = fixture.clock.now();
        let error = Error::from(three(&fixture).try_lock_for(ms(2_000)).await.unwrap_err());

        assert_eq!(error.kind(), ErrorKind::Indeterminate);
        assert_eq!(error.key(), Some(&key(silent)));
        assert_eq!(fixture.clock.now(), asked_at + ms(2_000));
    }
}

#[tokio::test(start_paused = true)]
async fn that_a_late_first_part_has_used_up_is_not_begun_again_by_the_second() {
    let clock = TestClock::new();
    let all = MemoryBackend::new().capabilities();
    let fixture = Fixture::building(all.without(Feature::Together), |builder| {
        builder.clock(clock.clone()).options(options())
    });
    // The process stalls past the end of the wait, between the first grant and the second request.
    fixture.faults.on_reply(move |request, reply| {
        if matches!(request, Request::Acquire(_)) {
            clock.jump(ms(3_000));
        }
        Ok(reply)
    });
    let whole = fixture.client.multi_lock().mutexes(["a", "b"]).unwrap();

    assert!(matches!(whole.try_lock_for(ms(2_000)).await, Err(TryLockError::Busy(_))));

    assert_eq!(fixture.requests.claims().len(), 1);
    assert_eq!(fixture.left().await, 0);
}
