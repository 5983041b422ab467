//! A part that is lost.

use super::*;

#[tokio::test(start_paused = true)]
async fn of_a_part_ends_the_waiting_for_the_others() {
    for (lost, held) in [("a", "b"), ("a", "c"), ("b", "c")] {
        let fixture = Fixture::one_by_one();
        let _held = fixture.other.mutex(held).unwrap().lock().await.unwrap();
        let whole = three(&fixture);
        let lose = async {
            tokio::time::sleep(ms(1_000)).await;
            fixture.client.backend().steal(&key(lost), TTL).await.unwrap();
        };

        let asked_at = fixture.clock.now();
        let (locked, ()) = tokio::join!(whole.lock(), lose);

        let error = locked.unwrap_err();
        assert_eq!((error.kind(), error.key()), (ErrorKind::LeaseLost, Some(&key(lost))));
        assert_eq!(error.operation(), Some(Operation::Acquire));
        assert!(error.loss().is_some());
        assert!(fixture.clock.now().since(asked_at) <= ms(1_010));
        assert_eq!(fixture.left().await, 2, "the leases of others stay, and no more");
        assert_eq!(closed(&fixture).await, [lost, held]);
    }
}

#[tokio::test(start_paused = true)]
async fn of_a_part_that_expires_while_another_is_waited_for_is_an_error() {
    let fixture = Fixture::one_by_one_with(options().renewal(RenewalMode::Off));
    let keeper = fixture.other.mutex("b").unwrap().lock().await.unwrap();

    let asked_at = fixture.clock.now();
    let error = three(&fixture).lock().await.unwrap_err();

    assert_eq!((error.kind(), error.key()), (ErrorKind::LeaseLost, Some(&key("a"))));
    assert_eq!(error.loss(), Some(LossReason::Expired));
    assert_eq!(fixture.clock.now(), asked_at + TTL - DRIFT);
    drop(keeper);
    assert_eq!(fixture.left().await, 0);
}

#[tokio::test(start_paused = true)]
async fn of_a_part_as_the_last_one_is_granted_is_an_error() {
    let fixture = Fixture::one_by_one_with(options().renewal(RenewalMode::Off));
    let whole = fixture.client.multi_lock().mutexes(["a", "b"]).unwrap();
    // Both were asked for by then, and the second is granted at the deadline of the first.
    let late = TTL - DRIFT - ms(1_000);
    fixture.faults.inject_on(&key("a"), Operation::Acquire, Fault::DelayReply(ms(1_000)), 1);
    fixture.faults.inject_on(&key("b"), Operation::Acquire, Fault::DelayReply(late), 1);

    let error = whole.lock().await.unwrap_err();

    assert_eq!((error.kind(), error.key()), (ErrorKind::LeaseLost, Some(&key("a"))));
    assert_eq!(error.operation(), Some(Operation::Acquire));
    assert_eq!(fixture.left().await, 0);
}

#[tokio::test(start_paused = true)]
async fn of_any_part_is_that_of_the_whole() {
    for lost in KEYS {
        let fixture = Fixture::one_by_one();
        let guard = three(&fixture).lock().await.unwrap();
        let told = tokio::spawn(guard.lost());
        assert!(guard.is_held());

        fixture.client.backend().expire(&key(lost)).await.unwrap();

        assert_eq!(told.await.unwrap(), Some((key(lost), LossReason::Vanished)));
        assert_eq!(guard.lost().await, Some((key(lost), LossReason::Vanished)), "told again");
        assert!(!guard.is_held());
        assert_eq!(guard.remaining(), Duration::ZERO);
        let error = guard.ensure_held(Duration::ZERO).unwrap_err();
        assert_eq!((error.kind(), error.key()), (ErrorKind::LeaseLost, Some(&key(lost))));
        let held = guard.guards().iter().filter(|part| part.is_held()).count();
        assert_eq!(held, 2, "the others are kept until it is released");

        let error = guard.release().await.unwrap_err();
        assert_eq!((error.kind(), error.key()), (ErrorKind::LeaseLost, Some(&key(lost))));
        assert_eq!(fixture.left().await, 0);
    }
}

#[tokio::test(start_paused = true)]
async fn of_any_part_ends_the_work() {
    for lost in KEYS {
        let fixture = Fixture::one_by_one();
        let whole = three(&fixture);

        let error = whole
            .run(async |_guard| {
                fixture.client.backend().expire(&key(lost)).await.unwrap();
                std::future::pending::<()>().await;
            })
            .await
            .unwrap_err();

        assert_eq!((error.kind(), error.key()), (ErrorKind::LeaseLost, Some(&key(lost))));
        assert_eq!(error.operation(), Some(Operation::Run));
        assert_eq!(fixture.left().await, 0);
    }
}

#[tokio::test(start_paused = true)]
async fn by_a_clock_that_jumps_ends_the_work_before_its_next_poll() {
    let clock = TestClock::new();
    let Fixture { client, .. } = Fixture::on(clock.clone(), options());
    let guard = client.multi_lock().mutexes(KEYS).unwrap().lock().await.unwrap();

    let mut work = pin!(guard.while_held(std::future::pending::<()>()));
    let mut cx = std::task::Context::from_waker(std::task::Waker::noop());
    assert!(work.as_mut().poll(&mut cx).is_pending());
    clock.jump(TTL);

    assert!(work.as_mut().poll(&mut cx).is_ready(), "it waits for timers");
    assert!(!guard.is_held());
}
