//! Calls for a lock that the calling thread works under.

use super::*;

#[test]
fn a_mutex_refuses_its_own_thread() {
    let mutex = client().mutex("k").unwrap();

    let own = mutex.run(|_| kind(mutex.lock())).unwrap();
    let of_another =
        mutex.run(|_| elsewhere(|| mutex.try_lock_for(SHORT).unwrap_err().into_busy().is_ok()));

    assert_eq!(own, Some(ErrorKind::WouldDeadlock));
    assert!(of_another.unwrap());
}

#[test]
fn a_part_of_several_locks_refuses_its_own_thread() {
    let client = client();
    let several = client.multi_lock().mutexes(["a", "b"]).unwrap();

    let own = several.run(|_| kind(client.mutex("b").unwrap().lock())).unwrap();

    assert_eq!(own, Some(ErrorKind::WouldDeadlock));
}

#[test]
fn the_only_segment_refuses_its_own_thread() {
    let stock = client().striped("stock", 1).unwrap();

    let own = stock.run(|_| kind(stock.lock())).unwrap();

    assert_eq!(own, Some(ErrorKind::WouldDeadlock));
}

#[test]
fn a_leader_that_campaigns_is_refused() {
    let election = client().election("e").unwrap();

    let own = election.run_leader("1", |_| kind(election.campaign("2"))).unwrap();

    assert_eq!(own, Some(ErrorKind::WouldDeadlock));
}

#[test]
fn a_lock_with_room_and_a_reentrant_one_let_their_thread_in() {
    let client = client();
    let (permits, mutex) =
        (client.semaphore("s", 2).unwrap(), client.reentrant_mutex("k").unwrap());

    permits.run(1, |_| permits.run(1, |_| ())).unwrap().unwrap();
    mutex.run(|_| mutex.run(|_| ())).unwrap().unwrap();
}
