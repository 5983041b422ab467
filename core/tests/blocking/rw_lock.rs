//! Readers and writers.

use super::*;

#[test]
fn lets_readers_share_and_a_writer_be_alone() {
    let lock = client().rw_lock("k").unwrap();

    let readers = [
        lock.read().unwrap(),
        lock.try_read().unwrap().unwrap(),
        elsewhere(|| lock.try_read_for(LONG).unwrap().unwrap()),
        lock.try_read_until(now() + LONG).unwrap().unwrap(),
    ];
    assert!(lock.try_write().unwrap().is_err());
    assert!(lock.try_write_for(SHORT).unwrap().is_err());
    assert!(lock.try_write_until(now() + SHORT).unwrap().is_err());
    for reader in readers {
        reader.release().unwrap();
    }

    let writer = lock.write().unwrap();
    assert!(lock.try_read().unwrap().is_err());
    assert!(lock.try_read_for(SHORT).unwrap().is_err());
    writer.release().unwrap();
    lock.try_write().unwrap().unwrap().release().unwrap();
    lock.try_write_for(LONG).unwrap().unwrap().release().unwrap();
    let writer = lock.try_write_until(now() + LONG).unwrap().unwrap();
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
    assert!(elsewhere(|| lock.try_read().unwrap().is_ok()));
    assert!(lock.try_write().unwrap().is_err());
}

#[test]
fn that_is_reentrant_lets_the_thread_in_again_and_never_a_reader_write() {
    let lock = client().rw_lock("k").unwrap().reentrant();

    let writer = lock.write().unwrap();
    lock.read().unwrap().release().unwrap();
    assert!(elsewhere(|| lock.try_read().unwrap().is_err()));
    writer.release().unwrap();

    let _reader = lock.read().unwrap();
    assert_eq!(kind(lock.write()), Some(ErrorKind::WouldDeadlock));
}
