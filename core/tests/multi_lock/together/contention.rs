//! Holders and waiters of some of the keys.

use super::*;

#[tokio::test(start_paused = true)]
async fn refuses_one_attempt_by_one_request() {
    for held in KEYS {
        let fixture = fixture();
        let _held = fixture.other.mutex(held).unwrap().lock().await.unwrap();

        assert!(matches!(three(&fixture).try_lock().await, Err(TryLockError::Busy(_))));

        assert_eq!(fixture.faults.calls(Operation::Acquire), 1);
        assert_eq!(fixture.faults.calls(Operation::Release), 0);
        assert_eq!(fixture.store.keys(), 1);
        assert_eq!(fixture.log(), [""; 0]);
    }
}

#[tokio::test(start_paused = true)]
async fn is_waited_out_part_by_part() {
    for held in KEYS {
        let fixture = fixture();
        let held = fixture.other.mutex(held).unwrap().lock().await.unwrap();
        let release = async {
            tokio::time::sleep(ms(1_000)).await;
            held.release().await.unwrap();
        };

        let asked_at = fixture.clock.now();
        let whole = three(&fixture);
        let (locked, ()) = tokio::join!(whole.lock(), release);

        let guard = locked.unwrap();
        assert!(fixture.clock.now().since(asked_at) < ms(1_010));
        assert_eq!(fixture.log(), ["+a", "+b", "+c"]);
        guard.release().await.unwrap();
        assert_eq!(fixture.left().await, 0);
    }
}

#[tokio::test(start_paused = true)]
async fn is_waited_out_for_one_wait_in_all() {
    for held in KEYS {
        let fixture = fixture_with(options().wait(ms(2_000)));
        let _held = fixture.other.mutex(held).unwrap().lock().await.unwrap();
        fixture.faults.inject(Operation::Acquire, Fault::DelayReply(ms(500)), 1);

        wait_out(&fixture, held).await;
    }
}

#[tokio::test(start_paused = true)]
async fn with_attempts_that_are_counted_takes_one_for_all_and_then_those_for_each() {
    let fixture = fixture_with(options().retry(Retry::attempts(2).every(ms(10))));
    let _held = fixture.other.mutex("b").unwrap().lock().await.unwrap();

    let error = three(&fixture).lock().await.unwrap_err();

    assert_eq!((error.kind(), error.key()), (ErrorKind::Timeout, Some(&key("b"))));
    assert_eq!(fixture.faults.calls(Operation::Acquire), 1 + 1 + 2);
}

#[tokio::test(start_paused = true)]
async fn in_this_process_is_no_request_for_one_attempt() {
    for held in KEYS {
        let fixture = fixture();
        let held = fixture.client.mutex(held).unwrap().lock().await.unwrap();

        let asked_at = fixture.clock.now();
        assert!(matches!(three(&fixture).try_lock().await, Err(TryLockError::Busy(_))));
        assert_eq!(fixture.clock.now(), asked_at);

        assert_eq!(fixture.faults.calls(Operation::Acquire), 1, "that of the holder");
        held.release().await.unwrap();
        for free in KEYS {
            // No turn was kept.
            let guard = fixture.client.mutex(free).unwrap().try_lock().await.unwrap();
            guard.release().await.unwrap();
        }
    }
}

#[tokio::test(start_paused = true)]
async fn in_this_process_is_waited_out_in_turn() {
    for held in KEYS {
        let fixture = fixture();
        let held = fixture.client.mutex(held).unwrap().lock().await.unwrap();
        let release = async {
            tokio::time::sleep(ms(1_000)).await;
            held.release().await.unwrap();
        };

        let whole = three(&fixture);
        let (locked, ()) = tokio::join!(whole.lock(), release);

        locked.unwrap().release().await.unwrap();
        assert!(!fixture.log().contains(&ALL.to_owned()));
        assert_eq!(fixture.left().await, 0);
    }
}

#[tokio::test(start_paused = true)]
async fn passes_no_waiter_in_the_store() {
    let fixture = fixture();
    let queues = Patience::Queues(ms(5_000));
    let (holder, waiter) = (Lease::new(&key("b"), TTL), Lease::new(&key("b"), TTL));
    fixture.store.acquire(&Claim::new(holder.clone())).await.unwrap();
    let waiting = Claim::new(waiter).with_patience(queues);
    fixture.store.acquire(&waiting).await.unwrap();
    fixture.store.release(&holder).await.unwrap();

    assert!(matches!(three(&fixture).try_lock().await, Err(TryLockError::Busy(_))));
    assert_eq!(fixture.log(), [""; 0]);
    let asked_at = fixture.clock.now();
    let guard = three(&fixture).lock().await.unwrap();

    let waited = fixture.clock.now().since(asked_at);
    assert!(waited >= ms(5_000) && waited < ms(5_100), "the place was kept: {waited:?}");
    guard.release().await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn of_fair_callers_is_settled_in_the_store() {
    let fixture = fixture_with(options().fair(true));
    let first = three(&fixture).lock().await.unwrap();
    assert_eq!(fixture.log(), [ALL]);

    // Fair callers take no turns here, and the one attempt for all takes no place there.
    assert!(dropped_after(1, three(&fixture).lock()).await.is_none());
    tokio::time::sleep(ms(100)).await;
    let whole = three(&fixture);
    let second = tokio::spawn(async move { whole.lock().await.unwrap() });
    tokio::time::sleep(ms(100)).await;
    first.release().await.unwrap();

    second.await.unwrap().release().await.unwrap();
    assert_eq!(fixture.left().await, 0);
}
