//! When leases are renewed.

use super::*;

/// When each call of `operation` was made, in milliseconds from now, over `time`.
async fn calls(faults: &Faults, operation: Operation, time: Duration) -> Vec<u64> {
    let mut at = Vec::new();
    for passed in 1..=u64::try_from(time.as_millis()).unwrap() {
        let before = faults.calls(operation);
        pass(ms(1)).await;
        at.extend(std::iter::repeat_n(passed, faults.calls(operation) - before));
    }
    at
}

/// Timers fire in the millisecond that they are set for, or in the next.
fn near(found: &[u64], expected: &[u64]) {
    assert_eq!(found.len(), expected.len(), "{found:?} against {expected:?}");
    for (found, expected) in found.iter().zip(expected) {
        assert!(found.abs_diff(*expected) <= 3, "{found} is not {expected}");
    }
}

#[tokio::test(start_paused = true)]
async fn comes_every_third_of_the_ttl() {
    let Fixture { client, faults, .. } = Fixture::new();
    let _guard = lock(&client).await;

    let at = calls(&faults, Operation::Renew, TTL + ms(10)).await;

    near(&at, &[10_000, 20_000, 30_000]);
}

#[tokio::test(start_paused = true)]
async fn that_hangs_is_given_up_after_a_sixth_and_repeated_after_a_twelfth() {
    let Fixture { client, faults, .. } = Fixture::new();
    let guard = lock(&client).await;
    faults.inject(Operation::Renew, Fault::SwallowRequest, 2);

    let at = calls(&faults, Operation::Renew, ms(26_000)).await;

    near(&at, &[10_000, 10_000 + 5_000 + 2_500, 10_000 + 2 * (5_000 + 2_500)]);
    assert_eq!(guard.state(), LeaseState::Held);
}

#[tokio::test(start_paused = true)]
async fn by_hand_that_hangs_leaves_time_for_the_watchdog() {
    let Fixture { client, faults, clock, .. } = Fixture::new();
    let guard = lock(&client).await;
    faults.inject(Operation::Renew, Fault::SwallowRequest, 1);

    let asked_at = clock.now();
    let error = guard.extend(TTL).await.unwrap_err();

    assert_eq!(error.kind(), ErrorKind::Indeterminate);
    assert_eq!((clock.now(), guard.state()), (asked_at + TTL / 6, LeaseState::Unconfirmed));
    pass(TTL).await;
    assert_eq!(guard.state(), LeaseState::Held);
}

#[tokio::test(start_paused = true)]
async fn by_hand_that_its_caller_abandons_leaves_time_for_the_watchdog() {
    let Fixture { client, faults, .. } = Fixture::new();
    let guard = lock(&client).await;
    faults.inject(Operation::Renew, Fault::DelayReply(ms(1)), 1);
    let mut abandoned = Box::pin(guard.extend(TTL * 2));
    assert!((&mut abandoned).now_or_never().is_none());

    pass(TTL * 3).await;

    assert_eq!(guard.state(), LeaseState::Held);
    // Renewals ask for the TTL of the extension.
    assert!(guard.remaining() > TTL);
    abandoned.await.unwrap();
    assert!(guard.remaining() > TTL);
}

#[tokio::test(start_paused = true)]
async fn by_hand_that_its_caller_abandons_keeps_no_other_waiting() {
    let Fixture { client, faults, clock, .. } = Fixture::new();
    let guard = lock(&client).await;
    faults.inject(Operation::Renew, Fault::SwallowRequest, 1);
    let mut abandoned = Box::pin(guard.extend(TTL));
    assert!((&mut abandoned).now_or_never().is_none());

    let asked_at = clock.now();
    guard.extend(TTL).await.unwrap();

    assert!(clock.now() < asked_at + TTL / 3);
}

#[tokio::test(start_paused = true)]
async fn by_hand_that_its_caller_abandons_is_repeated_in_time_for_a_shorter_ttl() {
    let Fixture { client, faults, .. } = Fixture::new();
    // Asked for without an answer, or in force.
    for shorter_is_abandoned in [true, false] {
        let guard = lock(&client).await;
        if shorter_is_abandoned {
            faults.inject(Operation::Renew, Fault::SwallowRequest, 1);
            assert!(guard.extend(TTL / 20).now_or_never().is_none());
        } else {
            guard.extend(TTL / 20).await.unwrap();
        }
        assert!(guard.remaining() < TTL / 20);

        faults.inject(Operation::Renew, Fault::SwallowRequest, 1);
        assert!(guard.extend(TTL * 2).now_or_never().is_none());
        pass(TTL).await;

        assert_eq!(guard.state(), LeaseState::Held);
        guard.release().await.unwrap();
    }
}

#[tokio::test(start_paused = true)]
async fn by_hand_that_its_caller_abandons_leaves_the_lease_unconfirmed() {
    let Fixture { client, faults, .. } = Fixture::new();
    let guard = lock(&client).await;

    faults.inject(Operation::Renew, Fault::SwallowRequest, 1);
    assert!(guard.extend(TTL).now_or_never().is_none());

    assert_eq!(guard.state(), LeaseState::Unconfirmed);
}

#[tokio::test(start_paused = true)]
async fn by_hand_that_its_caller_abandons_again_and_again_defers_no_other() {
    let Fixture { client, faults, .. } = Fixture::new();
    let guard = lock(&client).await;

    for _ in 0..40 {
        faults.inject(Operation::Renew, Fault::SwallowRequest, 1);
        assert!(guard.extend(TTL).now_or_never().is_none());
        pass(TTL / 20).await;
    }

    assert_ne!(guard.state(), LeaseState::Lost(LossReason::Expired));
    assert!(guard.is_held());
}

/// Simulation seed 117666121653682584 found a watchdog that looked at such a lease without end, and no time passed.
#[tokio::test(start_paused = true)]
async fn by_hand_that_its_caller_abandons_has_a_capped_lease_asked_for_once_more() {
    let clock = TestClock::new();
    let Fixture { client, faults, .. } = Fixture::on(clock.clone(), options().max_hold(TTL));
    faults.set_notifications(Notifications::Scripted);
    let guard = lock(&client).await;
    // Due soon because of the news, which the extension asks for as well.
    faults.notify_falsely(guard.key());
    pass(ms(2)).await;
    faults.inject(Operation::Renew, Fault::SwallowRequest, 1);
    assert!(guard.extend(TTL).now_or_never().is_none());
    let (renewals, looks) = (faults.calls(Operation::Renew), clock.looks());

    pass(TTL - DRIFT - ms(10)).await;

    assert_eq!(faults.calls(Operation::Renew), renewals + 1);
    assert!(clock.looks() - looks < 20, "{} looks at the clock", clock.looks() - looks);
    assert_eq!(guard.state(), LeaseState::Held);
}

#[tokio::test(start_paused = true)]
async fn for_news_of_a_capped_lease_is_repeated_until_it_has_an_answer() {
    let Fixture { client, faults, .. } = Fixture::with(options().max_hold(TTL));
    faults.set_notifications(Notifications::Scripted);
    let guard = lock(&client).await;
    faults.inject(Operation::Renew, Fault::Fail(ErrorKind::Unavailable), 3);
    faults.notify_falsely(guard.key());

    let at = calls(&faults, Operation::Renew, TTL / 2).await;

    let pauses: Vec<u64> = at.windows(2).map(|at| at[1] - at[0]).collect();
    near(&pauses, &[100, 100, 100]);
    assert_eq!(guard.state(), LeaseState::Held);
}

#[tokio::test(start_paused = true)]
async fn that_fails_at_once_is_repeated_until_the_deadline_and_not_after() {
    let Fixture { client, faults, .. } = Fixture::new();
    let guard = lock(&client).await;
    faults.inject(Operation::Renew, Fault::Fail(ErrorKind::Unavailable), 1_000);

    let at = calls(&faults, Operation::Renew, TTL * 2).await;

    near(&at, &[10_000, 12_500, 15_000, 17_500, 20_000, 22_500, 25_000, 27_500]);
    assert_eq!(guard.state(), LeaseState::Lost(LossReason::Expired));
}

#[tokio::test(start_paused = true)]
async fn that_is_confirmed_after_the_deadline_revives_nothing() {
    let Fixture { client, faults, .. } = Fixture::new();
    let guard = lock(&client).await;
    // Sent at 10 s and 17.5 s, lost; sent at 25 s, confirmed after the deadline at 29.7 s.
    faults.inject(Operation::Renew, Fault::SwallowRequest, 2);
    faults.inject(Operation::Renew, Fault::DelayReply(ms(4_800)), 1);

    pass(ms(29_750)).await;
    assert_eq!(guard.state(), LeaseState::Lost(LossReason::Expired));
    pass(TTL).await;

    assert_eq!(guard.state(), LeaseState::Lost(LossReason::Expired));
}

#[tokio::test(start_paused = true)]
async fn is_not_called_for_by_the_news_that_ended_a_wait() {
    let Fixture { client, faults, other, .. } = Fixture::new();
    faults.set_notifications(Notifications::Scripted);
    let (guard, mutex) = (lock(&other).await, client.mutex("k").unwrap());
    let waiting = tokio::spawn(async move { mutex.lock().await.unwrap() });
    pass(ms(100)).await;
    guard.release().await.unwrap();
    // For waiters and for holders.
    faults.notify_falsely(&LockKey::new("k").unwrap());

    let guard = waiting.await.unwrap();
    pass(ms(9_000)).await;

    assert_eq!(faults.calls(Operation::Renew), 0);
    assert!(guard.is_held());
}

#[tokio::test(start_paused = true)]
async fn is_over_with_the_last_guard() {
    let Fixture { client, faults, .. } = Fixture::new();
    let mutex = client.reentrant_mutex("k").unwrap();
    let (outer, inner) = (mutex.lock().await.unwrap(), mutex.lock().await.unwrap());

    outer.release().await.unwrap();
    assert_eq!(calls(&faults, Operation::Renew, ms(10_010)).await.len(), 1);
    inner.release().await.unwrap();
    assert_eq!(calls(&faults, Operation::Renew, TTL).await.len(), 0);
}

#[tokio::test(start_paused = true)]
async fn of_a_capped_lease_asks_for_the_rest_and_then_for_nothing() {
    let Fixture { client, faults, clock, .. } = Fixture::with(options().max_hold(ms(35_000)));
    let granted_at = clock.now();
    let guard = lock(&client).await;

    let at = calls(&faults, Operation::Renew, ms(34_000)).await;

    near(&at, &[10_000]);
    assert_eq!(guard.deadline(), granted_at + ms(35_000) - (ms(25_000) / 100 + ms(2)));
    pass(ms(1_000)).await;
    assert_eq!(guard.state(), LeaseState::Lost(LossReason::MaxHold));
}

#[tokio::test(start_paused = true)]
async fn takes_the_earliest_deadline_first() {
    let Fixture { client, requests, .. } = Fixture::new();
    // The second falls due at the same time as the first, and ends earlier.
    let long = client.mutex("long").unwrap().lock().await.unwrap();
    pass(ms(5_000)).await;
    let short = client.mutex("short").unwrap();
    let short = short.with_options(options().ttl(ms(15_000))).unwrap().lock().await.unwrap();

    pass(ms(5_010)).await;

    let renewed = requests.renewals().concat();
    let order: Vec<&str> = renewed.iter().map(|lease| lease.key().as_str()).collect();
    assert_eq!(order, ["short", "long"]);
    drop((long, short));
}
