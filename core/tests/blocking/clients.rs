//! Clients.

use super::*;

const fn assert_send_sync_static<T: Send + Sync + 'static>(_: &T) {}

#[test]
fn are_used_by_many_threads() {
    let client = client();
    assert_send_sync_static(&client);
    assert_send_sync_static(&client.admin());
    assert_send_sync_static(&client.mutex("k").unwrap());
    assert_send_sync_static(&client.reentrant_mutex("k").unwrap());
    assert_send_sync_static(&client.semaphore("k", 1).unwrap());
    let lock = client.rw_lock("rw").unwrap();
    assert_send_sync_static(&lock);
    assert_send_sync_static(&lock.write().unwrap());
    assert_send_sync_static(&client.mutex("k").unwrap().lock().unwrap());

    thread::scope(|scope| {
        for thread in 0..8 {
            let client = client.clone();
            scope.spawn(move || {
                client.mutex(format!("k{thread}")).unwrap().run(|_guard| {}).unwrap();
            });
        }
    });
}

#[test]
fn that_cannot_be_built_say_why() {
    let refused = LockClient::from_async(async || {
        tokio::time::sleep(Duration::from_millis(1)).await;
        Err(Error::new(ErrorKind::Denied, "part of the test"))
    });

    assert_eq!(kind(refused), Some(ErrorKind::Denied));
}

#[test]
fn keep_the_tasks_going_that_building_them_started() {
    let beats = Arc::new(AtomicU32::new(0));
    let beating = Arc::clone(&beats);

    let _client = LockClient::from_async(async || {
        tokio::spawn(async move {
            loop {
                beating.fetch_add(1, Ordering::Relaxed);
                tokio::time::sleep(Duration::from_millis(1)).await;
            }
        });
        Ok(leasehold_core::LockClient::new(MemoryBackend::new()).into_dyn())
    });

    wait_until(|| beats.load(Ordering::Relaxed) > 10);
}

#[test]
fn shut_down_release_all_and_end_all_waits() {
    let (client, store, _faults) = client_with(LockOptions::new());
    let mutex = client.mutex("k").unwrap();
    let guard = mutex.lock().unwrap();

    thread::scope(|scope| {
        let waiting = scope.spawn(|| kind(mutex.lock()));
        // It holds in either order; as a rule, the other thread waits by then.
        thread::sleep(SHORT);
        client.shutdown(LONG).unwrap();
        assert_eq!(waiting.join().unwrap(), Some(ErrorKind::Closed));
    });

    assert_eq!(store.keys(), 0);
    assert_eq!(guard.state(), LeaseState::Lost(LossReason::Shutdown));
    assert_eq!(kind(mutex.lock()), Some(ErrorKind::Closed));
}
