//! The ends of leases.

use super::*;

/// Short enough to wait for its end, long enough to be renewed on a machine that is busy.
const TTL: Duration = Duration::from_secs(1);

#[test]
fn are_renewed_while_the_thread_works() {
    let (client, _store, faults) = client_with(LockOptions::new().ttl(TTL));
    let guard = client.mutex("k").unwrap().lock().unwrap();
    let first = guard.deadline();

    // Work that calls nothing of ours which could renew it.
    wait_until(|| faults.calls(Operation::Renew) >= 3 && client.now() > first);

    assert!(guard.is_held());
    guard.release().unwrap();
}

#[test]
fn that_cannot_be_renewed_end_by_themselves() {
    let (client, _store, faults) = client_with(LockOptions::new().ttl(TTL));
    let guard = client.mutex("k").unwrap().lock().unwrap();
    faults.inject(Operation::Renew, Fault::SwallowRequest, 1_000);

    assert_eq!(guard.wait_lost(LONG).unwrap(), Some(LossReason::Expired));

    assert!(client.now() >= guard.deadline());
    assert_eq!(guard.remaining(), Duration::ZERO);
}

#[test]
fn that_are_held_can_be_asked_about_and_extended() {
    let (client, _store, _faults) = client_with(LockOptions::new().ttl(LONG));
    let guard = client.mutex("k").unwrap().lock().unwrap();

    assert_eq!(guard.wait_lost(SHORT).unwrap(), None);
    assert_eq!(guard.state(), LeaseState::Held);
    guard.ensure_held(Duration::from_secs(1)).unwrap();
    guard.extend(LONG * 10).unwrap();

    assert!(guard.remaining() > LONG * 9);
    assert!(guard.deadline() > client.now() + LONG * 9);
    assert_eq!(guard.key().as_str(), "k");
}

#[test]
fn ended_by_an_operator_are_lost_for_all_observers() {
    let client = client();
    let guard = client.mutex("k").unwrap().lock().unwrap();
    let watching = &guard;

    let seen = thread::scope(|scope| {
        let watcher = scope.spawn(|| watching.wait_lost(LONG).unwrap());
        client.admin().force_release("k", "part of the test").unwrap();
        watcher.join().unwrap()
    });

    assert_eq!(seen, Some(LossReason::Vanished));
    assert!(!guard.is_held());
    assert_eq!(kind(guard.ensure_held(Duration::ZERO)), Some(ErrorKind::LeaseLost));
    assert_eq!(kind(guard.extend(LONG)), Some(ErrorKind::LeaseLost));
    assert_eq!(kind(guard.release()), Some(ErrorKind::LeaseLost));
    assert!(!client.admin().inspect("k").unwrap().is_held());
}

#[test]
fn that_are_lost_under_work_are_an_error_once_that_has_ended() {
    let client = client();
    let mutex = client.mutex("k").unwrap();
    let mut ended = false;

    let outcome = mutex.run(|guard| {
        client.admin().force_release("k", "part of the test").unwrap();
        guard.wait_lost(LONG).unwrap();
        ended = true;
    });

    assert!(ended);
    assert_eq!(kind(outcome), Some(ErrorKind::LeaseLost));
}

#[test]
fn whose_release_gets_no_answer_take_no_result_away() {
    let (client, store, faults) = client_with(LockOptions::new());
    faults.inject(Operation::Release, Fault::LoseReply, 1);

    assert_eq!(client.mutex("k").unwrap().run(|_guard| 42).unwrap(), 42);

    assert_eq!(store.keys(), 0);
}

#[test]
fn can_be_asked_back() {
    let client = client();
    let guard = client.mutex("k").unwrap().lock().unwrap();
    assert!(!guard.is_revocation_requested());

    client.request_revocation("k").unwrap();

    wait_until(|| guard.is_revocation_requested());
    assert!(guard.is_held());
}
