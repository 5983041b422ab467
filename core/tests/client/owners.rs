//! Owners that enter again.

use super::*;

/// In real time: a paused clock does not end the wait of a task that has used up its budget.
#[tokio::test]
async fn enter_however_much_of_their_budget_is_left() {
    let client = LockClient::new(MemoryBackend::new());
    let (held, free) = (client.reentrant_mutex("k").unwrap(), client.reentrant_mutex("f").unwrap());
    let _guard = held.lock().await.unwrap();

    // Tokio lets a task do 128 things before it must yield.
    for spent in 0..=128 {
        for mutex in [&held, &free] {
            tokio::task::yield_now().await;
            for _ in 0..spent {
                tokio::task::coop::consume_budget().await;
            }

            let entered = mutex.try_lock().await;

            assert!(entered.is_ok(), "{:?} after {spent} of the budget", mutex.key());
        }
    }
}

#[tokio::test(start_paused = true)]
async fn that_lock_twice_at_the_same_time_send_one_request() {
    let Fixture { client, faults, .. } = Fixture::new();
    faults.inject(Operation::Acquire, Fault::DelayReply(ms(10)), 1);
    let mutex = client.reentrant_mutex("k").unwrap();

    let both = async { tokio::join!(mutex.lock(), mutex.lock()) };
    let both = tokio::time::timeout(TTL, both).await.expect("the second call waits for itself");

    let (one, other) = (both.0.unwrap(), both.1.unwrap());
    assert_eq!(one.token(), other.token());
    assert_eq!(faults.calls(Operation::Acquire), 1);
}

#[tokio::test(start_paused = true)]
async fn whose_first_call_is_dropped_acquire_the_lock_with_the_second() {
    let Fixture { client, faults, .. } = Fixture::new();
    faults.inject(Operation::Acquire, Fault::SwallowRequest, 1);
    let mutex = client.reentrant_mutex("k").unwrap();
    let (mut first, mut second) = (Box::pin(mutex.lock()), Box::pin(mutex.lock()));
    assert!((&mut first).now_or_never().is_none());
    assert!((&mut second).now_or_never().is_none());
    assert_eq!(faults.calls(Operation::Acquire), 1);

    drop(first);
    let second = tokio::time::timeout(TTL, second).await.expect("nothing else is in the way");

    assert!(second.unwrap().is_held());
    assert_eq!(faults.calls(Operation::Acquire), 2);
}

#[tokio::test]
async fn do_not_enter_a_lock_that_they_hold_as_another_kind() {
    let store = MemoryBackend::new();
    let (client, other) = (LockClient::new(store.clone()), LockClient::new(store));
    let (readers, mutex) = (client.rw_lock("k").unwrap(), client.reentrant_mutex("k").unwrap());
    let beside = other.rw_lock("k").unwrap().read().await.unwrap();

    let reader = readers.clone().reentrant().read().await.unwrap();
    let refused = Error::from(mutex.try_lock().await.unwrap_err());
    assert_eq!(refused.kind(), ErrorKind::WrongType);
    reader.release().await.unwrap();
    beside.release().await.unwrap();

    let _guard = mutex.lock().await.unwrap();
    let refused = readers.reentrant().write().await.unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::WrongType);
}
