//! Calls for locks, and their outcomes.

use super::*;
use futures_util::FutureExt;
use futures_util::future::join_all;

#[tokio::test(start_paused = true)]
async fn for_a_free_lock_end_with_the_grant() {
    let observed = Observed::new();

    let guard = observed.client.mutex("k").unwrap().lock().await.unwrap();
    pass(ms(5)).await;
    guard.release().await.unwrap();

    assert_eq!(observed.told(), ["up", "granted mutex k#1", "released #1 after 5ms"]);
}

#[tokio::test(start_paused = true)]
async fn name_the_kind_of_lock() {
    let observed = Observed::new();
    let client = &observed.client;

    drop(client.rw_lock("r").unwrap().read().await.unwrap());
    drop(client.rw_lock("w").unwrap().write().await.unwrap());
    drop(client.semaphore("s", 3).unwrap().acquire(2).await.unwrap());
    drop(client.election("e").unwrap().campaign("host-1").await.unwrap());

    let told = observed.told();
    let granted: Vec<_> = told.iter().filter(|line| line.starts_with("granted")).collect();
    assert_eq!(
        granted,
        ["granted read r#1", "granted write w#2", "granted permits s#3", "granted election e#4"]
    );
}

#[tokio::test(start_paused = true)]
async fn without_a_wait_are_refused_as_busy() {
    let observed = Observed::new();
    let held = observed.other.mutex("k").unwrap().lock().await.unwrap();

    assert!(matches!(
        observed.client.mutex("k").unwrap().try_lock().await,
        Err(TryLockError::Busy(_))
    ));

    assert_eq!(observed.told(), ["up", "busy k behind vm/5422"]);
    drop(held);
}

#[tokio::test(start_paused = true)]
async fn that_wait_tell_so_once_and_name_the_holder() {
    let observed = Observed::new();
    let held = observed.other.mutex("k").unwrap().lock().await.unwrap();
    let mutex = observed.client.mutex("k").unwrap();

    let mut call = Box::pin(mutex.lock());
    assert!(tokio::time::timeout(ms(90_000), &mut call).await.is_err());
    let told = observed.told();
    held.release().await.unwrap();
    let guard = call.await.unwrap();

    let polls = told.iter().filter(|line| *line == "woken by poll").count();
    let rest: Vec<_> = told.into_iter().filter(|line| line != "woken by poll").collect();
    assert_eq!(rest, ["up", "waiting k behind vm/5422", "long wait of 30s behind vm/5422"]);
    assert!(polls > 0);
    assert_eq!(observed.told(), ["woken by push", "granted mutex k#2 after 90s"]);
    drop(guard);
}

#[tokio::test(start_paused = true)]
async fn that_wait_for_their_own_task_say_so() {
    let observed = Observed::new();
    let mutex = observed.client.mutex("k").unwrap();
    let other = OwnerId::new();
    // The second call waits when the grant of the first one arrives.
    observed.faults.inject(Operation::Acquire, Fault::DelayReply(ms(1)), 1);
    let first = async { drop(other.scope(mutex.lock()).await.unwrap()) };
    let ((), handed_over) = tokio::join!(first, mutex.lock());
    let handed_over = handed_over.unwrap();

    let waits = async |call| assert!(tokio::time::timeout(ms(40_000), call).await.is_err());
    waits(mutex.lock()).await;
    let told = observed.told().join("; ");
    assert!(told.contains("handed over"), "{told}");
    assert!(told.contains("long wait of 30s behind us/1, perhaps itself"), "{told}");

    other.scope(waits(mutex.lock())).await;
    let told = observed.told().join("; ");
    assert!(told.contains("long wait of 30s behind") && !told.contains("itself"), "{told}");
    drop(handed_over);
}

#[tokio::test(start_paused = true)]
async fn in_a_process_without_news_are_woken_by_polls() {
    let observed = Observed::new();
    observed.faults.set_notifications(Notifications::Muted);
    let held = observed.other.mutex("k").unwrap().lock().await.unwrap();
    let mutex = observed.client.mutex("k").unwrap();
    let mut call = Box::pin(mutex.lock());
    assert!((&mut call).now_or_never().is_none());

    held.release().await.unwrap();
    let _guard = call.await.unwrap();

    let told = observed.told();
    assert!(told.contains(&"woken by poll".to_owned()), "{told:?}");
    assert!(!told.contains(&"woken by push".to_owned()), "{told:?}");
}

#[tokio::test(start_paused = true)]
async fn whose_wait_ends_are_timed_out() {
    let observed = Observed::new();
    let _held = observed.other.mutex("k").unwrap().lock().await.unwrap();

    let waited = observed.client.mutex("k").unwrap().try_lock_for(ms(10)).await;

    assert!(matches!(waited, Err(TryLockError::Busy(_))));
    let told = observed.told();
    assert_eq!(told[..2], ["up", "waiting k behind vm/5422"]);
    assert_eq!(told.last().unwrap(), "timed_out k behind vm/5422 after 10ms");
}

#[tokio::test(start_paused = true)]
async fn that_are_dropped_are_cancelled() {
    let observed = Observed::new();
    let held = observed.client.mutex("k").unwrap().lock().await.unwrap();
    observed.told();

    let waited = tokio::time::timeout(ms(7), observed.client.mutex("k").unwrap().lock()).await;

    assert!(waited.is_err());
    assert_eq!(observed.told(), ["waiting k behind us/1", "cancelled k behind - after 7ms"]);
    drop(held);
}

#[tokio::test(start_paused = true)]
async fn that_fail_tell_of_the_failure() {
    let observed = Observed::new();
    observed.faults.inject(Operation::Acquire, Fault::Fail(ErrorKind::Denied), 1);

    let failed = observed.client.mutex("k").unwrap().lock().await;

    assert_eq!(failed.unwrap_err().kind(), ErrorKind::Denied);
    assert_eq!(observed.told(), ["acquire failed: Denied", "up", "failed k behind -"]);
}

#[tokio::test(start_paused = true)]
async fn of_one_process_pass_the_lease_on() {
    let observed = Observed::new();
    let mutex = observed.client.mutex("k").unwrap();
    // The second call waits when the grant of the first one arrives.
    observed.faults.inject(Operation::Acquire, Fault::DelayReply(ms(1)), 1);
    let [first, next] = [0; 2].map(|_| {
        let mutex = mutex.clone();
        tokio::spawn(async move { mutex.lock().await.unwrap() })
    });
    let first = first.await.unwrap();
    pass(ms(2)).await;
    observed.told();

    first.release().await.unwrap();
    let next = next.await.unwrap();
    pass(ms(2)).await;
    next.release().await.unwrap();

    assert_eq!(
        observed.told(),
        [
            "#1 handed over to #2 after 3ms",
            "handed_over mutex k#2 after 3ms",
            "released #2 after 2ms"
        ]
    );
}

#[tokio::test(start_paused = true)]
async fn of_one_owner_enter_again() {
    let observed = Observed::new();
    let mutex = observed.client.reentrant_mutex("k").unwrap();

    OwnerId::new()
        .scope(async {
            let outer = mutex.lock().await.unwrap();
            mutex.lock().await.unwrap().release().await.unwrap();
            outer.release().await.unwrap();
        })
        .await;

    assert_eq!(
        observed.told(),
        ["up", "granted mutex k#1", "reentered mutex k#1", "released #1 after 0ns"]
    );
}

#[tokio::test(start_paused = true)]
async fn for_several_locks_count_for_each_part() {
    let observed =
        Observed::with(|builder| builder.options(LockOptions::new().ttl(TTL).hand_over(false)));
    let several = observed.client.multi_lock().mutexes(["a", "b"]).unwrap();

    drop(several.lock().await.unwrap());
    assert_eq!(observed.told()[..3], ["up", "granted mutex a#1", "granted mutex b#2"]);
    pass(ms(1)).await;

    let held = observed.other.mutex("b").unwrap().lock().await.unwrap();
    assert!(matches!(several.try_lock().await, Err(TryLockError::Busy(_))));
    assert_eq!(observed.told(), ["busy a behind -", "busy b behind vm/5422"]);

    // The attempt for both at once is none of the calls for each.
    let waited = several.try_lock_for(ms(10)).await;
    assert!(matches!(waited, Err(TryLockError::Busy(_))));
    let told = observed.told();
    assert_eq!(told[..2], ["granted mutex a#4", "waiting b behind vm/5422"]);
    assert!(told.contains(&"timed_out b behind vm/5422 after 10ms".to_owned()), "{told:?}");
    assert_eq!(told.last().unwrap(), "released #4 after 10ms");
    drop(held);
}

#[tokio::test(start_paused = true)]
async fn leave_no_count_behind_when_they_are_dropped_at_any_point() {
    let observed = Observed::new();
    let mutex = observed.client.mutex("k").unwrap();

    for polls in 1..8 {
        let calls = (0..16).map(|n| {
            let mutex = mutex.clone();
            async move {
                let mut call = Box::pin(mutex.lock());
                for _ in 0..(polls + n) % 7 {
                    if let Some(guard) = (&mut call).now_or_never() {
                        tokio::task::yield_now().await;
                        return drop(guard);
                    }
                    tokio::task::yield_now().await;
                }
            }
        });
        join_all(calls.map(tokio::spawn)).await;
    }
    pass(TTL).await;

    let told = observed.told();
    let count = |starts: &str| told.iter().filter(|line| line.starts_with(starts)).count();
    assert_eq!(count("granted"), count("released"), "the difference is the leases held");
    let after_waits = told.iter().filter(|line| {
        let ends = ["granted", "handed_over", "cancelled"].iter().any(|end| line.starts_with(end));
        ends && line.contains(" after ")
    });
    assert_eq!(count("waiting"), after_waits.count(), "the difference is the calls that wait");
    let outcomes = count("granted") + count("handed_over") + count("cancelled");
    assert!(count("cancelled") > 20 && count("handed_over") > 5, "{told:?}");
    assert!(outcomes <= 7 * 16, "{outcomes} outcomes");
}
