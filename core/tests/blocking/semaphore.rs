//! Semaphores.

use super::*;

#[test]
fn has_so_many_permits_and_no_more() {
    let permits = client().semaphore("k", 3).unwrap();

    let two = permits.acquire(2).unwrap();
    assert_eq!(two.units(), 2);
    assert!(matches!(permits.try_acquire(2), Err(TryLockError::Busy(_))));
    assert!(matches!(permits.try_acquire_for(2, SHORT), Err(TryLockError::Busy(_))));
    assert!(matches!(permits.try_acquire_until(2, now() + SHORT), Err(TryLockError::Busy(_))));
    assert_eq!(permits.run(1, |_guard| permits.available().unwrap()).unwrap(), 0);
    assert_eq!(kind(permits.acquire(4)), Some(ErrorKind::Invalid));

    two.release().unwrap();
    assert_eq!(permits.available().unwrap(), permits.limit());
}
