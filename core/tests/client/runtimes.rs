//! Runtimes that come and go.

use super::*;

#[test]
fn a_client_may_be_made_before_there_is_one() {
    let client = LockClient::new(MemoryBackend::new());

    let token = runtime()
        .block_on(async { client.mutex("k").unwrap().lock().await.unwrap().token().number() });

    assert_eq!(token, 1);
}

#[test]
fn that_end_during_a_release_have_it_sent_again() {
    let (store, backend) = {
        let store = MemoryBackend::new();
        (store.clone(), FaultBackend::new(store))
    };
    let faults = backend.faults().clone();
    let client = LockClient::new(backend);
    let runtime = runtime();
    runtime.block_on(async {
        let guard = client.mutex("k").unwrap().lock().await.unwrap();
        faults.inject(Operation::Release, Fault::SwallowRequest, 1);
        drop(guard);
        while faults.calls(Operation::Release) == 0 {
            tokio::task::yield_now().await;
        }
    });
    assert_eq!(store.keys(), 1);

    drop(runtime);

    assert_eq!(store.keys(), 0);
    assert_eq!(faults.calls(Operation::Release), 2);
}

#[test]
fn a_client_outlives_them() {
    let short = LockOptions::new().ttl(Duration::from_secs(2));
    let client = LockClient::builder(MemoryBackend::new()).options(short).build().unwrap();
    for _ in 0..3 {
        runtime().block_on(async {
            let guard = client.mutex("k").unwrap().lock().await.unwrap();
            let first = guard.deadline();
            while guard.deadline() == first {
                assert!(guard.is_held(), "no task renews on the new runtime");
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
            guard.release().await.unwrap();
        });
    }
}

#[test]
fn a_guard_whose_runtime_is_gone_is_honest_and_harmless() {
    let short = LockOptions::new().ttl(Duration::from_millis(100));
    let client = LockClient::builder(MemoryBackend::new()).options(short).build().unwrap();
    let guard = runtime().block_on(async { client.mutex("k").unwrap().lock().await.unwrap() });
    assert!(guard.is_held());

    std::thread::sleep(guard.remaining());

    assert_eq!(guard.state(), LeaseState::Lost(LossReason::Expired));
    drop(guard);
    // The next runtime sees to the rest.
    let next = runtime().block_on(async { client.mutex("k").unwrap().lock().await.unwrap() });
    assert!(next.is_held());
}

#[tokio::test]
async fn are_shared_by_a_task_that_locks_again_and_again_without_having_to_wait() {
    let mutex = LockClient::new(MemoryBackend::new()).mutex("k").unwrap();
    let other = tokio::spawn(async {});

    for _ in 0..1_000 {
        mutex.lock().await.unwrap().release().await.unwrap();
    }

    assert!(other.is_finished());
}

#[test]
fn without_one_locking_is_a_clear_error() {
    let client = LockClient::new(MemoryBackend::new());
    let mutex = client.mutex("k").unwrap();
    let mut locking = Box::pin(mutex.try_lock());
    let mut cx = std::task::Context::from_waker(std::task::Waker::noop());

    let std::task::Poll::Ready(Err(TryLockError::Failed(error))) = locking.as_mut().poll(&mut cx)
    else {
        panic!()
    };

    assert_eq!(error.kind(), ErrorKind::Unsupported);
    assert!(error.to_string().contains("tokio runtime"), "{error}");
}
