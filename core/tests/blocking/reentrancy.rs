//! Owners that enter again.

use super::*;

#[test]
fn is_the_threads() {
    let mutex = client().reentrant_mutex("k").unwrap();
    let outer = mutex.lock().unwrap();

    let inner = [
        mutex.lock().unwrap(),
        mutex.try_lock().unwrap(),
        mutex.try_lock_for(SHORT).unwrap(),
        mutex.try_lock_until(now()).unwrap(),
    ];
    let inside = mutex.run(|guard| guard.token().number()).unwrap();

    assert!(inner.iter().all(|inner| inner.token() == outer.token()));
    assert_eq!(inside, outer.token().number());
    assert!(elsewhere(|| mutex.try_lock().unwrap_err().into_busy().is_ok()));
    assert!(elsewhere(|| mutex.try_lock_for(SHORT).unwrap_err().into_busy().is_ok()));
    drop(inner);
    assert!(outer.is_held() && mutex.is_locked().unwrap());
    elsewhere(|| outer.release()).unwrap();
    assert!(elsewhere(|| mutex.try_lock().is_ok()));
}

#[test]
fn is_shared_by_the_threads_of_a_scope_and_by_no_others() {
    let mutex = client().reentrant_mutex("k").unwrap();
    let owner = OwnerId::new();

    let outer = owner.sync_scope(|| mutex.lock().unwrap());

    let inner = elsewhere(|| owner.sync_scope(|| mutex.try_lock().unwrap()));
    assert_eq!(inner.token(), outer.token());
    assert!(matches!(mutex.try_lock(), Err(TryLockError::Busy(_))));
    assert!(OwnerId::new().sync_scope(|| mutex.try_lock().unwrap_err().into_busy().is_ok()));
}

#[test]
fn has_a_limit() {
    let once = LockOptions::new().reentry_limit(1);
    let mutex = client().reentrant_mutex("k").unwrap().with_options(once).unwrap();
    let _guard = mutex.lock().unwrap();

    assert_eq!(kind(mutex.lock()), Some(ErrorKind::ReentryLimit));
}
