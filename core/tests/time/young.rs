//! Leases that are younger than 50 ms.

use super::*;

#[tokio::test(start_paused = true)]
async fn wake_no_task_though_there_is_news_of_each() {
    // Each look of the watchdog ends with a sleep.
    let clock = TestClock::new();
    let Fixture { client, .. } = Fixture::on(clock.clone(), options());

    for _ in 0..1_000 {
        let guard = lock(&client).await;
        pass(ms(1)).await;
        client.request_revocation("k").await.unwrap();
        pass(ms(1)).await;
        guard.release().await.unwrap();
    }

    let sleeps = clock.sleeps();
    assert!(sleeps < 150, "the tasks woke up {sleeps} times in two seconds");
}

#[tokio::test(start_paused = true)]
async fn that_are_ended_by_others_are_found_lost_when_they_are_of_age() {
    let Fixture { client, .. } = Fixture::new();
    let guard = lock(&client).await;

    client.admin().force_release("k", "a test").await.unwrap();
    pass(ms(75)).await;

    assert_eq!(guard.state(), LeaseState::Lost(LossReason::Vanished));
}

#[tokio::test(start_paused = true)]
async fn are_renewed_if_their_ttl_is_short() {
    let Fixture { client, .. } = Fixture::with(options().ttl(ms(90)));
    let guard = lock(&client).await;

    for _ in 0..1_000 {
        pass(ms(1)).await;
        assert_eq!(guard.state(), LeaseState::Held);
    }
}

#[tokio::test(start_paused = true)]
async fn that_are_extended_are_renewed_in_time() {
    let Fixture { client, .. } = Fixture::new();
    let guard = lock(&client).await;

    guard.extend(ms(60)).await.unwrap();

    for _ in 0..1_000 {
        pass(ms(1)).await;
        assert_eq!(guard.state(), LeaseState::Held);
    }
}
