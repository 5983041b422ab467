//! In which order.

use super::*;

#[tokio::test(start_paused = true)]
async fn is_that_of_the_keys_and_back() {
    for added in [["a", "b", "c"], ["c", "b", "a"], ["b", "c", "a"]] {
        let fixture = Fixture::one_by_one();
        let whole = fixture.client.multi_lock().mutexes(added).unwrap();
        assert!(whole.keys().map(|key| key.as_str()).eq(KEYS));

        whole.lock().await.unwrap().release().await.unwrap();

        assert_eq!(fixture.log(), ["+a", "+b", "+c", "-c", "-b", "-a"]);
    }
}

#[tokio::test(start_paused = true)]
async fn is_kept_when_the_guard_is_dropped() {
    let fixture = Fixture::one_by_one();

    drop(three(&fixture).lock().await.unwrap());

    assert_eq!(fixture.left().await, 0);
    assert_eq!(fixture.log(), ["+a", "+b", "+c", "-c", "-b", "-a"]);
}

#[tokio::test(start_paused = true)]
async fn is_kept_when_the_last_part_is_not_to_be_had() {
    let fixture = Fixture::one_by_one();
    let _held = fixture.other.mutex("c").unwrap().lock().await.unwrap();

    assert!(matches!(three(&fixture).try_lock().await, Err(TryLockError::Busy(_))));

    assert_eq!(fixture.left().await, 1);
    assert_eq!(fixture.log(), ["+a", "+b", "-b", "-a"]);
}

#[tokio::test(start_paused = true)]
async fn is_kept_when_the_release_is_dropped() {
    let fixture = Fixture::one_by_one();
    let guard = three(&fixture).lock().await.unwrap();
    fixture.faults.inject(Operation::Release, Fault::SwallowRequest, 3);

    assert!(dropped_after(1, guard.release()).await.is_none());

    assert_eq!(fixture.left().await, 0);
    assert_eq!(fixture.log(), ["+a", "+b", "+c", "-c", "-b", "-a"]);
}

/// {a, b} against {b, a}, from two processes with many tasks each.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn lets_no_caller_wait_in_a_circle_and_no_two_in_at_once() {
    const TASKS: u32 = 8;
    const TIMES: u32 = 25;

    let store = MemoryBackend::new();
    let clients = [LockClient::new(store.clone()), LockClient::new(store.clone())];
    let inside = Arc::new(AtomicU32::new(0));
    let tasks = (0..TASKS).map(|task| {
        let client = clients[task as usize % 2].clone();
        let keys = if task % 4 < 2 { ["a", "b"] } else { ["b", "a"] };
        let inside = Arc::clone(&inside);
        tokio::spawn(async move {
            let whole = client.multi_lock().mutexes(keys).unwrap();
            for _ in 0..TIMES {
                let guard = whole.lock().await.unwrap();
                assert_eq!(inside.fetch_add(1, Ordering::SeqCst), 0, "two at once");
                tokio::task::yield_now().await;
                inside.fetch_sub(1, Ordering::SeqCst);
                guard.release().await.unwrap();
            }
            TIMES
        })
    });
    let tasks: Vec<_> = tasks.collect();

    let mut done = 0;
    for task in tasks {
        let task = tokio::time::timeout(Duration::from_secs(60), task).await;
        done += task.expect("they wait for each other").unwrap();
    }

    assert_eq!(done, TASKS * TIMES);
    assert_eq!(store.keys(), 0);
}
