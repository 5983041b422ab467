//! Until when a lease is believed in.

use super::*;

#[tokio::test(start_paused = true)]
async fn counts_from_before_the_request_and_not_from_the_reply() {
    let Fixture { client, faults, clock, .. } = Fixture::new();
    faults.inject(Operation::Acquire, Fault::DelayReply(ms(4_000)), 1);

    let sent_at = clock.now();
    let guard = lock(&client).await;

    assert_eq!(clock.now(), sent_at + ms(4_000));
    assert_eq!(guard.deadline(), sent_at + TTL - DRIFT);
    assert_eq!(guard.remaining(), TTL - DRIFT - ms(4_000));
}

#[tokio::test(start_paused = true)]
async fn counts_from_before_the_attempt_that_was_granted() {
    let Fixture { client, faults, clock, .. } = Fixture::new();
    let once = Retry::unlimited().every(ms(500));
    let mutex = client.mutex("k").unwrap().with_options(options().retry(once)).unwrap();
    faults.inject(Operation::Acquire, Fault::LoseReply, 1);

    let asked_at = clock.now();
    let guard = mutex.lock().await.unwrap();

    // The first attempt was granted unseen; the second put the TTL in force again.
    let sent_at = clock.now();
    assert!(sent_at > asked_at);
    assert_eq!(guard.deadline(), sent_at + TTL - DRIFT);
}

#[tokio::test(start_paused = true)]
async fn is_where_belief_ends_to_the_millisecond() {
    let Fixture { client, .. } = Fixture::with(options().renewal(RenewalMode::Off));
    let guard = lock(&client).await;

    pass(TTL - DRIFT - ms(1)).await;
    assert_eq!(guard.state(), LeaseState::Held);
    assert_eq!(guard.remaining(), ms(1));
    guard.ensure_held(ms(1)).unwrap();
    assert_eq!(guard.ensure_held(ms(2)).unwrap_err().kind(), ErrorKind::ExpiresSoon);

    pass(ms(1)).await;
    assert_eq!(guard.state(), LeaseState::Lost(LossReason::Expired));
}

#[tokio::test(start_paused = true)]
async fn moves_with_a_renewal_to_where_that_was_sent() {
    let Fixture { client, faults, clock, .. } = Fixture::new();
    let guard = lock(&client).await;
    faults.inject(Operation::Renew, Fault::DelayReply(ms(3_000)), 1);

    pass(TTL / 3).await;
    let sent_at = clock.now();
    let before = guard.deadline();
    pass(ms(2_999)).await;
    assert_eq!(guard.deadline(), before, "nothing is confirmed yet");
    pass(ms(2)).await;

    assert_eq!(guard.deadline(), sent_at + TTL - DRIFT);
}

#[tokio::test(start_paused = true)]
async fn is_no_later_than_a_shorter_extension_allows_that_got_no_answer() {
    let Fixture { client, faults, .. } = Fixture::new();
    let guard = lock(&client).await;
    // It arrives after the longer one.
    faults.inject(Operation::Renew, Fault::Late(ms(8_000)), 1);
    let short = guard.extend(ms(3_000)).await.unwrap_err();
    assert_eq!(short.kind(), ErrorKind::Indeterminate);
    guard.extend(ms(60_000)).await.unwrap();
    assert!(guard.remaining() <= ms(3_000));

    let foreign = Claim::new(Lease::new(guard.key(), TTL));
    for _ in 0..200 {
        pass(ms(100)).await;
        let attempt = client.backend().acquire(&foreign).await.unwrap();
        assert!(guard.is_held() && matches!(attempt, Attempt::Held(_)), "{attempt:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn of_an_extension_is_no_later_than_an_attempt_allows_that_got_no_answer() {
    let Fixture { client, faults, .. } = Fixture::with(options().ttl(ms(3_000)));
    faults.inject(Operation::Acquire, Fault::Late(ms(8_000)), 1);
    let guard = lock(&client).await;

    guard.extend(ms(60_000)).await.unwrap();

    assert!(guard.remaining() <= ms(3_000));
    pass(ms(20_000)).await;
    assert!(guard.is_held());
}

#[tokio::test(start_paused = true)]
async fn of_an_extension_is_full_after_one_that_was_not_sent() {
    let Fixture { client, faults, .. } = Fixture::new();
    let guard = lock(&client).await;
    faults.inject(Operation::Renew, Fault::Fail(ErrorKind::Unavailable), 1);
    guard.extend(ms(3_000)).await.unwrap_err();

    guard.extend(ms(60_000)).await.unwrap();

    assert!(guard.remaining() > ms(50_000));
}

#[tokio::test(start_paused = true)]
async fn of_an_extension_is_refused_that_leaves_less_than_the_grace() {
    let Fixture { client, .. } = Fixture::with(options().loss_grace(ms(14_000)));
    let guard = lock(&client).await;

    assert_eq!(guard.extend(ms(15_000)).await.unwrap_err().kind(), ErrorKind::Invalid);

    assert!(guard.remaining() > ms(29_000));
    guard.extend(ms(30_000)).await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn that_an_extension_failed_to_shorten_is_that_of_the_release() {
    let Fixture { client, faults, store, .. } = Fixture::new();
    let guard = lock(&client).await;
    guard.extend(ms(300_000)).await.unwrap();
    faults.set_lasting(Some(Fault::Fail(ErrorKind::Unavailable)));
    guard.extend(ms(10_000)).await.unwrap_err();

    drop(guard);
    pass(ms(20_000)).await;
    assert_eq!(store.keys(), 1);
    faults.heal();

    pass(ms(5_000)).await;
    assert_eq!(store.keys(), 0);
}

#[tokio::test(start_paused = true)]
async fn ends_lost_even_if_the_watchdog_stands_still() {
    let Fixture { client, faults, clock, .. } = Fixture::new();
    let guard = lock(&client).await;
    let deadline = guard.deadline();
    faults.inject(Operation::Renew, Fault::SwallowRequest, 1_000);

    assert_eq!(guard.lost().await, Some(LossReason::Expired));

    assert_eq!(clock.now(), deadline);
}

#[tokio::test(start_paused = true)]
async fn of_a_store_that_grants_less_is_earlier_and_of_one_that_grants_more_is_not_later() {
    for (granted, believed) in [(ms(10_000), ms(10_000)), (ms(60_000), TTL)] {
        let Fixture { client, faults, clock, .. } = Fixture::new();
        faults.on_reply(move |_request, reply| {
            Ok(match reply {
                Reply::Attempt(Attempt::Granted(grant)) => {
                    Reply::Attempt(Attempt::Granted(grant.with_ttl(granted)))
                }
                reply => reply,
            })
        });

        let sent_at = clock.now();
        let guard = lock(&client).await;

        let drift = believed / 100 + ms(2);
        assert_eq!(guard.deadline(), sent_at + believed - drift);
    }
}

#[tokio::test(start_paused = true)]
async fn is_as_long_as_a_release_waits_for_a_store_that_does_not_answer() {
    for ttl in [ms(2_000), TTL] {
        let Fixture { client, faults, clock, .. } = Fixture::with(options().ttl(ttl));
        let guard = lock(&client).await;
        let (deadline, asked_at) = (guard.deadline(), clock.now());
        faults.inject(Operation::Release, Fault::SwallowRequest, 1);

        let error = guard.release().await.unwrap_err();

        assert_eq!(error.kind(), ErrorKind::Indeterminate);
        assert_eq!(clock.now(), deadline.min(asked_at + ms(5_000)));
    }
}

#[tokio::test(start_paused = true)]
async fn that_has_passed_leaves_a_release_nothing_to_wait_for() {
    let Fixture { client, faults, clock, .. } = Fixture::with(options().renewal(RenewalMode::Off));
    let guard = lock(&client).await;
    faults.inject(Operation::Release, Fault::SwallowRequest, 100);
    pass(TTL).await;

    let asked_at = clock.now();
    let error = guard.release().await.unwrap_err();

    assert_eq!((error.kind(), clock.now()), (ErrorKind::LeaseLost, asked_at));
}
