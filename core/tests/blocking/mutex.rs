//! Mutexes.

use super::*;

#[test]
fn keeps_threads_out_of_each_others_way() {
    let mutex = client().mutex("k").unwrap();
    let counter = AtomicU32::new(0);

    thread::scope(|scope| {
        for _ in 0..8 {
            scope.spawn(|| {
                for _ in 0..50 {
                    let guard = mutex.lock().unwrap();
                    let seen = counter.load(Ordering::Relaxed);
                    thread::yield_now();
                    counter.store(seen + 1, Ordering::Relaxed);
                    guard.release().unwrap();
                }
            });
        }
    });

    assert_eq!(counter.into_inner(), 400);
}

#[test]
fn is_not_had_while_it_is_held_however_it_is_tried() {
    let mutex = client().mutex("k").unwrap();
    let guard = mutex.lock().unwrap();
    let impatient = mutex.clone().with_options(LockOptions::new().wait(SHORT)).unwrap();

    let start = Instant::now();
    assert!(matches!(mutex.try_lock(), Err(TryLockError::Busy(_))));
    assert!(matches!(mutex.try_lock_for(SHORT), Err(TryLockError::Busy(_))));
    assert!(matches!(mutex.try_lock_until(now() + SHORT), Err(TryLockError::Busy(_))));
    assert_eq!(kind(impatient.lock()), Some(ErrorKind::Timeout));

    assert!(start.elapsed() >= SHORT * 2);
    assert!(mutex.is_locked().unwrap());
    guard.release().unwrap();
    assert!(!mutex.is_locked().unwrap());
}

#[test]
fn is_had_when_it_is_free_however_it_is_tried() {
    let mutex = client().mutex("k").unwrap();

    mutex.try_lock().unwrap().release().unwrap();
    mutex.try_lock_for(SHORT).unwrap().release().unwrap();
    mutex.try_lock_until(now() + SHORT).unwrap().release().unwrap();
    assert_eq!(mutex.key().as_str(), "k");
}

#[test]
fn is_handed_to_the_thread_that_waits() {
    let mutex = client().mutex("k").unwrap();
    let guard = mutex.lock().unwrap();

    thread::scope(|scope| {
        let waiting = scope.spawn(|| mutex.try_lock_for(LONG).unwrap().release());
        // It holds in either order; as a rule, the other thread waits by then.
        thread::sleep(SHORT);
        drop(guard);
        waiting.join().unwrap().unwrap();
    });
}

#[test]
fn runs_work_and_is_free_again_even_if_that_panics() {
    let mutex = client().mutex("k").unwrap();

    let held =
        mutex.run(|guard| guard.is_held() && mutex.try_lock().unwrap_err().into_busy().is_ok());
    let panicked = thread::scope(|scope| {
        scope.spawn(|| mutex.run(|_guard| panic!("part of the test"))).join().is_err()
    });

    assert!(held.unwrap());
    assert!(panicked);
    assert!(mutex.try_lock_for(LONG).is_ok());
}
