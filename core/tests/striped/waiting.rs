//! Waiting for a segment that becomes free.

use super::*;

/// The longest pause between two looks at the segments in whose line a caller does not wait, and a moment for the look.
const LOOK: Duration = ms(1_001);

#[tokio::test(start_paused = true)]
async fn ends_with_the_first_that_any_client_frees() {
    for freed in 0..4 {
        let fixture = Fixture::new();
        let striped = segments(&fixture, 4);
        let mut held = hold_all(&fixture, &striped).await;
        let release = async {
            tokio::time::sleep(ms(700)).await;
            held.remove(freed as usize).release().await.unwrap();
        };

        let asked_at = fixture.clock.now();
        let (guard, ()) = tokio::join!(striped.lock(), release);

        let guard = guard.unwrap();
        assert_eq!(guard.segment(), freed);
        assert!(fixture.clock.now().since(asked_at) <= ms(700) + LOOK);
        drop((guard, held));
        assert_eq!(fixture.left().await, 0);
    }
}

#[tokio::test(start_paused = true)]
async fn ends_with_the_first_that_is_freed_by_this_process() {
    let fixture = Fixture::new();
    let striped = segments(&fixture, 4);
    let mut held = Vec::new();
    for _ in 0..4 {
        held.push(striped.lock().await.unwrap());
    }
    let freed = held.swap_remove(1);
    let segment = freed.segment();
    let release = async {
        tokio::time::sleep(ms(700)).await;
        freed.release().await.unwrap();
    };

    let (guard, ()) = tokio::join!(striped.lock(), release);

    assert_eq!(guard.unwrap().segment(), segment);
    drop(held);
    assert_eq!(fixture.left().await, 0);
}

#[tokio::test(start_paused = true)]
async fn keeps_one_when_all_are_freed_at_once() {
    let fixture = Fixture::new();
    let striped = segments(&fixture, 8);
    let held = hold_all(&fixture, &striped).await;
    let release = async {
        tokio::time::sleep(ms(700)).await;
        // The replies to the line and to looks come while others are under way.
        fixture.faults.inject(Operation::Acquire, Fault::DelayReply(ms(600)), 8);
        drop(held);
    };

    let (guard, ()) = tokio::join!(striped.lock(), release);

    let guard = guard.unwrap();
    assert_eq!(fixture.left().await, 1, "the late grants are given back");
    assert!(guard.is_held());
    guard.release().await.unwrap();
    assert_eq!(fixture.left().await, 0);
}

#[tokio::test(start_paused = true)]
async fn ends_when_a_dead_holder_expires() {
    let fixture = Fixture::new();
    let striped = segments(&fixture, 3);
    let _held = hold_all(&fixture, &striped).await;
    let asked_at = fixture.clock.now();
    fixture.client.backend().steal(&key("stock/1"), TTL).await.unwrap();

    let guard = striped.lock().await.unwrap();

    assert_eq!(guard.segment(), 1);
    let waited = fixture.clock.now().since(asked_at);
    assert!(waited >= TTL && waited <= TTL + LOOK, "{waited:?}");
}

#[tokio::test(start_paused = true)]
async fn ends_with_the_wait() {
    for count in [1, 4, Striped::MAX_SEGMENTS] {
        let fixture = Fixture::with(options().wait(ms(2_000)));
        let striped = segments(&fixture, count);
        let _held = hold_all(&fixture, &striped).await;

        let asked_at = fixture.clock.now();
        let error = striped.lock().await.unwrap_err();

        assert_eq!((error.kind(), error.key()), (ErrorKind::Timeout, Some(&key("stock"))));
        assert_eq!(fixture.clock.now(), asked_at + ms(2_000));
        assert!(matches!(striped.try_lock_for(ms(500)).await, Err(TryLockError::Busy(_))));
        assert_eq!(fixture.clock.now(), asked_at + ms(2_500));
        assert_eq!(fixture.left().await, count as usize);
        assert_eq!(fixture.log(), [""; 0]);
    }
}

#[tokio::test(start_paused = true)]
async fn may_end_at_an_instant() {
    let fixture = Fixture::new();
    let striped = segments(&fixture, 2);
    let _held = hold_all(&fixture, &striped).await;

    let asked_at = fixture.clock.now();
    let soon = asked_at + ms(60_000);
    assert!(matches!(striped.try_lock_until(soon).await, Err(TryLockError::Busy(_))));

    let waited = fixture.clock.now().since(asked_at);
    assert_eq!(waited, ms(60_000));
}

#[tokio::test(start_paused = true)]
async fn is_spent_on_a_silent_store_too_and_then_the_silence_is_the_error() {
    let fixture = Fixture::new();
    let striped = segments(&fixture, 4);
    fixture.faults.inject(Operation::Acquire, Fault::SwallowReply, 1_000);

    let asked_at = fixture.clock.now();
    let error = Error::from(striped.try_lock_for(ms(2_000)).await.unwrap_err());

    assert_eq!(error.kind(), ErrorKind::Indeterminate);
    assert_eq!(fixture.clock.now(), asked_at + ms(2_000));
    assert_eq!(fixture.left().await, 0);
}

#[tokio::test(start_paused = true)]
async fn that_ends_before_the_round_does_is_over_all_the_same() {
    let fixture = Fixture::new();
    let striped = segments(&fixture, 8);
    let _held = hold_all(&fixture, &striped).await;
    fixture.faults.inject(Operation::Acquire, Fault::DelayReply(ms(400)), 1_000);

    let asked_at = fixture.clock.now();
    assert!(matches!(striped.try_lock_for(ms(1_000)).await, Err(TryLockError::Busy(_))));

    assert_eq!(fixture.clock.now(), asked_at + ms(1_000));
    assert_eq!(fixture.faults.calls(Operation::Acquire), 3);
}

#[tokio::test(start_paused = true)]
async fn by_attempts_counts_them_in_one_line() {
    let counted = Retry::attempts(3).every(ms(200));
    let fixture = Fixture::with(options().retry(counted));
    let striped = segments(&fixture, 4);
    let _held = hold_all(&fixture, &striped).await;

    let error = striped.lock().await.unwrap_err();

    assert_eq!(error.kind(), ErrorKind::Timeout);
    let (round, look, line) = (4, 3, 3);
    assert_eq!(fixture.faults.calls(Operation::Acquire), round + look + line);
}

#[tokio::test(start_paused = true)]
async fn keeps_a_crowd_of_processes_busy_in_all_segments() {
    const SEGMENTS: u32 = 10;
    const ROUNDS: u32 = 20;

    let fixture = Fixture::new();
    let started_at = fixture.clock.now();
    let callers = (0..20).map(|_| {
        let striped = fixture.process(options()).0.striped("stock", SEGMENTS).unwrap();
        tokio::spawn(async move {
            for _ in 0..ROUNDS {
                let guard = striped.lock().await.unwrap();
                pass(ms(10)).await;
                guard.release().await.unwrap();
            }
        })
    });
    for caller in callers.collect::<Vec<_>>() {
        caller.await.unwrap();
    }

    let ideal = ms(10) * ROUNDS * 20 / SEGMENTS;
    let took = fixture.clock.now().since(started_at);
    assert!(took <= ideal * 3 / 2, "{took:?} instead of {ideal:?}");
}

#[tokio::test(start_paused = true)]
async fn may_be_dropped_at_any_point() {
    for polls in 0.. {
        let fixture = Fixture::new();
        let striped = segments(&fixture, 3);
        let held = hold_all(&fixture, &striped).await;
        fixture.faults.inject(Operation::Acquire, Fault::DelayReply(ms(10)), 100);
        let release = async {
            tokio::time::sleep(ms(100)).await;
            drop(held);
        };

        let (locked, ()) = tokio::join!(dropped_after(polls, striped.lock()), release);

        let done = locked.is_some();
        drop(locked.map(Result::unwrap));
        assert_eq!(fixture.left().await, 0, "dropped after {polls} polls");
        for _ in 0..3 {
            assert!(striped.try_lock().await.is_ok(), "a turn was kept");
        }
        if done {
            assert!(polls > 6, "{polls}");
            break;
        }
    }
}

#[tokio::test(start_paused = true)]
async fn is_ended_by_a_shutdown() {
    let fixture = Fixture::new();
    let striped = segments(&fixture, 3);
    let _held = hold_all(&fixture, &striped).await;
    fixture.faults.inject_on(
        &key("stock/1"),
        Operation::Acquire,
        Fault::Fail(ErrorKind::Denied),
        1_000,
    );
    let waiting = tokio::spawn(async move { striped.lock().await.unwrap_err().kind() });
    tokio::time::sleep(ms(100)).await;

    fixture.client.shutdown(TTL).await.unwrap();

    assert_eq!(waiting.await.unwrap(), ErrorKind::Closed);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn lets_no_two_into_one_segment() {
    const SEGMENTS: u32 = 3;

    let store = MemoryBackend::new();
    let clients = [LockClient::new(store.clone()), LockClient::new(store.clone())];
    let inside: Arc<[AtomicBool]> = (0..SEGMENTS).map(|_| AtomicBool::new(false)).collect();
    let tasks = (0..12).map(|task| {
        let striped = clients[task % 2].striped("stock", SEGMENTS).unwrap();
        let inside = Arc::clone(&inside);
        tokio::spawn(async move {
            for _ in 0..25 {
                let guard = striped.lock().await.unwrap();
                let inside = &inside[guard.segment() as usize];
                assert!(!inside.swap(true, Ordering::SeqCst), "two at once");
                tokio::task::yield_now().await;
                inside.store(false, Ordering::SeqCst);
                guard.release().await.unwrap();
            }
        })
    });
    let tasks: Vec<_> = tasks.collect();

    for task in tasks {
        let task = tokio::time::timeout(Duration::from_secs(60), task).await;
        task.expect("no waiter is served").unwrap();
    }

    // A grant that comes too late is given back right after it.
    let give_up = tokio::time::Instant::now() + Duration::from_secs(5);
    while store.keys() > 0 {
        assert!(tokio::time::Instant::now() < give_up, "a segment is left");
        tokio::task::yield_now().await;
    }
}
