//! Holders and waiters of some of the keys.

use super::*;

#[tokio::test(start_paused = true)]
async fn refuses_one_attempt_by_one_request() {
    for held in KEYS {
        let scene = scene();
        let _held = scene.other.mutex(held).unwrap().lock().await.unwrap();

        assert!(three(&scene).try_lock().await.unwrap().is_err());

        assert_eq!(scene.faults.calls(Operation::Acquire), 1);
        assert_eq!(scene.faults.calls(Operation::Release), 0);
        assert_eq!(scene.store.keys(), 1);
        assert_eq!(scene.story(), [""; 0]);
    }
}

#[tokio::test(start_paused = true)]
async fn is_waited_out_part_by_part() {
    for held in KEYS {
        let scene = scene();
        let held = scene.other.mutex(held).unwrap().lock().await.unwrap();
        let release = async {
            tokio::time::sleep(ms(1_000)).await;
            held.release().await.unwrap();
        };

        let asked_at = scene.clock.now();
        let whole = three(&scene);
        let (locked, ()) = tokio::join!(whole.lock(), release);

        let guard = locked.unwrap();
        assert!(scene.clock.now().since(asked_at) < ms(1_010));
        assert_eq!(scene.story(), ["+a", "+b", "+c"]);
        guard.release().await.unwrap();
        assert_eq!(scene.left().await, 0);
    }
}

#[tokio::test(start_paused = true)]
async fn is_waited_out_for_one_wait_in_all() {
    for held in KEYS {
        let scene = scene_with(options().wait(ms(2_000)));
        let _held = scene.other.mutex(held).unwrap().lock().await.unwrap();
        scene.faults.inject(Operation::Acquire, Fault::DelayReply(ms(500)), 1);

        wait_out(&scene, held).await;
    }
}

#[tokio::test(start_paused = true)]
async fn with_attempts_that_are_counted_takes_one_for_all_and_then_those_for_each() {
    let scene = scene_with(options().retry(Retry::attempts(2).every(ms(10))));
    let _held = scene.other.mutex("b").unwrap().lock().await.unwrap();

    let error = three(&scene).lock().await.unwrap_err();

    assert_eq!((error.kind(), error.key()), (ErrorKind::Timeout, Some(&key("b"))));
    assert_eq!(scene.faults.calls(Operation::Acquire), 1 + 1 + 2);
}

#[tokio::test(start_paused = true)]
async fn in_this_process_is_no_request_for_one_attempt() {
    for held in KEYS {
        let scene = scene();
        let held = scene.client.mutex(held).unwrap().lock().await.unwrap();

        let asked_at = scene.clock.now();
        assert!(three(&scene).try_lock().await.unwrap().is_err());
        assert_eq!(scene.clock.now(), asked_at);

        assert_eq!(scene.faults.calls(Operation::Acquire), 1, "that of the holder");
        held.release().await.unwrap();
        for free in KEYS {
            // No turn was kept.
            let guard = scene.client.mutex(free).unwrap().try_lock().await.unwrap();
            guard.unwrap().release().await.unwrap();
        }
    }
}

#[tokio::test(start_paused = true)]
async fn in_this_process_is_waited_out_in_turn() {
    for held in KEYS {
        let scene = scene();
        let held = scene.client.mutex(held).unwrap().lock().await.unwrap();
        let release = async {
            tokio::time::sleep(ms(1_000)).await;
            held.release().await.unwrap();
        };

        let whole = three(&scene);
        let (locked, ()) = tokio::join!(whole.lock(), release);

        locked.unwrap().release().await.unwrap();
        assert!(!scene.story().contains(&ALL.to_owned()));
        assert_eq!(scene.left().await, 0);
    }
}

#[tokio::test(start_paused = true)]
async fn passes_no_waiter_in_the_store() {
    let scene = scene();
    let queues = Patience::Queues(ms(5_000));
    let (holder, waiter) = (Lease::new(&key("b"), TTL), Lease::new(&key("b"), TTL));
    scene.store.try_acquire(&Claim::new(holder.clone())).await.unwrap();
    let waiting = Claim::new(waiter).with_patience(queues);
    scene.store.try_acquire(&waiting).await.unwrap();
    scene.store.release(&holder).await.unwrap();

    assert!(three(&scene).try_lock().await.unwrap().is_err());
    assert_eq!(scene.story(), [""; 0]);
    let asked_at = scene.clock.now();
    let guard = three(&scene).lock().await.unwrap();

    let waited = scene.clock.now().since(asked_at);
    assert!(waited >= ms(5_000) && waited < ms(5_100), "the place was kept: {waited:?}");
    guard.release().await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn of_fair_callers_is_settled_in_the_store() {
    let scene = scene_with(options().fair(true));
    let first = three(&scene).lock().await.unwrap();
    assert_eq!(scene.story(), [ALL]);

    // Fair callers take no turns here, and the one attempt for all takes no place there.
    assert!(dropped_after(1, three(&scene).lock()).await.is_none());
    tokio::time::sleep(ms(100)).await;
    let whole = three(&scene);
    let second = tokio::spawn(async move { whole.lock().await.unwrap() });
    tokio::time::sleep(ms(100)).await;
    first.release().await.unwrap();

    second.await.unwrap().release().await.unwrap();
    assert_eq!(scene.left().await, 0);
}
