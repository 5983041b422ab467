//! Readers and writers.

use super::*;

#[test]
fn lets_readers_share_and_a_writer_be_alone() {
    let lock = client().rw_lock("k").unwrap();

    let readers = [
        lock.read().unwrap(),
        lock.try_read().unwrap(),
        elsewhere(|| lock.try_read_for(LONG).unwrap()),
        lock.try_read_until(now() + LONG).unwrap(),
    ];
    assert!(matches!(lock.try_write(), Err(TryLockError::Busy(_))));
    assert!(matches!(lock.try_write_for(SHORT), Err(TryLockError::Busy(_))));
    assert!(matches!(lock.try_write_until(now() + SHORT), Err(TryLockError::Busy(_))));
    for reader in readers {
        reader.release().unwrap();
    }

    let writer = lock.write().unwrap();
    assert!(matches!(lock.try_read(), Err(TryLockError::Busy(_))));
    assert!(matches!(lock.try_read_for(SHORT), Err(TryLockError::Busy(_))));
    writer.release().unwrap();
    lock.try_write().unwrap().release().unwrap();
    lock.try_write_for(LONG).unwrap().release().unwrap();
    let writer = lock.try_write_until(now() + LONG).unwrap();
    assert!(writer.is_held() && lock.is_locked().unwrap());
    writer.into_guard().release().unwrap();
}

#[test]
fn lets_a_writer_become_a_reader() {
    let lock = client().rw_lock("k").unwrap();
    let writer = lock.write().unwrap();
    let token = writer.token().clone();

    let reader = writer.downgrade().unwrap();

    assert_eq!(*reader.token(), token);
    assert!(elsewhere(|| lock.try_read().is_ok()));
    assert!(matches!(lock.try_write(), Err(TryLockError::Busy(_))));
}

#[test]
fn that_is_reentrant_lets_the_thread_in_again_and_never_a_reader_write() {
    let lock = client().rw_lock("k").unwrap().reentrant();

    let writer = lock.write().unwrap();
    lock.read().unwrap().release().unwrap();
    assert!(elsewhere(|| lock.try_read().unwrap_err().into_busy().is_ok()));
    writer.release().unwrap();

    let _reader = lock.read().unwrap();
    assert_eq!(kind(lock.write()), Some(ErrorKind::WouldDeadlock));
}
