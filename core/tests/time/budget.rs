//! The budget of a wait.

use super::*;

#[tokio::test(start_paused = true)]
async fn is_one_for_the_queue_and_the_store() {
    let Fixture { client, clock, .. } = Fixture::new();
    let store = client.backend();
    let foreign = Lease::new(client.mutex("k").unwrap().key(), ms(100_000));
    store.acquire(&Claim::new(foreign)).await.unwrap();
    let mutex = client.mutex("k").unwrap();

    let asked_at = clock.now();
    let (first, second) =
        tokio::join!(mutex.try_lock_for(ms(2_000)), mutex.try_lock_for(ms(3_000)));

    assert!(first.unwrap_err().into_busy().is_ok() && second.unwrap_err().into_busy().is_ok());
    assert_eq!(clock.now(), asked_at + ms(3_000));
}

#[tokio::test(start_paused = true)]
async fn that_is_over_when_the_turn_comes_leaves_nothing_to_ask_the_store_for() {
    let Fixture { client, faults, .. } = Fixture::with(options().hand_over(false));
    let first = lock(&client).await;
    let mutex = client.mutex("k").unwrap();
    let mut second = Box::pin(mutex.try_lock_for(ms(1_000)));
    assert!((&mut second).now_or_never().is_none());
    drop(first);

    // The runtime is stalled for a second, and then both the turn and the end are there.
    tokio::time::advance(ms(1_000)).await;

    assert!(second.await.unwrap_err().into_busy().is_ok());
    assert_eq!(faults.calls(Operation::Acquire), 1);
    drop(lock(&client).await);
}

#[tokio::test(start_paused = true)]
async fn is_spent_on_a_silent_store_too_and_then_the_silence_is_the_error() {
    let Fixture { client, faults, clock, .. } = Fixture::new();
    faults.inject(Operation::Acquire, Fault::SwallowRequest, 1);
    let mutex = client.mutex("k").unwrap();

    let asked_at = clock.now();
    let error = Error::from(mutex.try_lock_for(ms(2_000)).await.unwrap_err());

    assert_eq!(error.kind(), ErrorKind::Indeterminate);
    assert_eq!(clock.now(), asked_at + ms(2_000));
}

/// In real time, which goes on while a request is being made.
#[tokio::test]
async fn of_a_moment_is_over_in_a_moment() {
    let client = LockClient::new(FaultBackend::new(MemoryBackend::new()));
    client.backend().faults().inject(Operation::Acquire, Fault::SwallowRequest, 1);
    let options = options().ttl(ms(8_000));
    let mutex = client.mutex("k").unwrap().with_options(options).unwrap();

    let asked_at = client.now();
    let error = Error::from(mutex.try_lock_for(Duration::from_nanos(100)).await.unwrap_err());

    assert_eq!(error.kind(), ErrorKind::Indeterminate);
    let took = client.now().since(asked_at);
    assert!(took <= ms(4_000), "{took:?}");
}

#[tokio::test(start_paused = true)]
async fn is_spent_in_the_pauses_that_were_stated() {
    let Fixture { client, faults, .. } =
        Fixture::with(options().retry(Retry::unlimited().every(ms(1))));
    let foreign = Lease::new(client.mutex("k").unwrap().key(), ms(100_000));
    client.backend().acquire(&Claim::new(foreign)).await.unwrap();
    let before = faults.calls(Operation::Acquire);

    assert!(matches!(
        client.mutex("k").unwrap().try_lock_for(ms(1_000)).await,
        Err(TryLockError::Busy(_))
    ));

    // Timers are up to a millisecond late.
    let attempts = faults.calls(Operation::Acquire) - before;
    assert!((400..=1_001).contains(&attempts), "{attempts} attempts");
}

#[tokio::test(start_paused = true)]
async fn of_a_counted_retry_is_its_pauses() {
    let Fixture { client, faults, clock, .. } =
        Fixture::with(options().retry(Retry::attempts(5).every(ms(200))));
    faults.inject(Operation::Acquire, Fault::Fail(ErrorKind::Unavailable), 1_000);

    let asked_at = clock.now();
    let error = lock_error(&client).await;

    assert_eq!(error.kind(), ErrorKind::Unavailable);
    let took = clock.now().since(asked_at);
    assert!(took >= ms(800) && took <= ms(810), "{took:?}");
}

async fn lock_error<B: LockBackend>(client: &LockClient<B>) -> Error {
    client.mutex("k").unwrap().lock().await.unwrap_err()
}
