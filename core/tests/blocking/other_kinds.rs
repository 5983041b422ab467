//! All other kinds of lock.

use super::*;

#[test]
fn several_locks_are_all_taken_or_none() {
    let client = LockClient::new(MemoryBackend::new()).unwrap();
    let both = client.multi_lock().mutexes(["b", "a"]).unwrap().permits("c", 1, 2).unwrap();

    let guard = both.lock().unwrap();
    assert!(guard.is_held());
    assert_eq!(
        guard.tokens().map(|token| token.key().as_str()).collect::<Vec<_>>(),
        ["a", "b", "c"]
    );
    assert!(matches!(both.try_lock(), Err(TryLockError::Busy(_))));
    assert!(matches!(client.mutex("b").unwrap().try_lock(), Err(TryLockError::Busy(_))));
    assert_eq!(guard.wait_lost(Duration::ZERO).unwrap(), None);
    guard.release().unwrap();

    let held = client.mutex("b").unwrap().lock().unwrap();
    assert!(matches!(both.try_lock_for(Duration::from_millis(20)), Err(TryLockError::Busy(_))));
    assert!(client.mutex("a").unwrap().try_lock().is_ok(), "none is kept");
    drop(held);
    assert_eq!(both.run(|guard| guard.tokens().count()).unwrap(), 3);
}

#[test]
fn a_loss_during_the_work_is_reported_after_it() {
    let client = LockClient::new(MemoryBackend::new()).unwrap();
    let end = |key: &str| {
        assert_eq!(client.admin().force_release(key, "test").unwrap().ended().len(), 1);
    };
    let lost = |error: Error| assert_eq!(error.kind(), ErrorKind::LeaseLost, "{error}");

    let both = client.multi_lock().mutexes(["a", "b"]).unwrap();
    let ran = both.run(|guard| {
        end("b");
        assert!(guard.wait_lost(Duration::from_secs(10)).unwrap().is_some());
    });
    lost(ran.unwrap_err());
    let election = client.election("e").unwrap();
    let ran = election.run_leader("one", |term| {
        end("e");
        assert!(term.wait_lost(Duration::from_secs(10)).unwrap().is_some());
    });
    lost(ran.unwrap_err());
}

#[test]
fn each_segment_is_held_once() {
    let client = LockClient::new(MemoryBackend::new()).unwrap();
    let stock = client.striped("stock", 3).unwrap();

    let guards: Vec<_> = (0..3).map(|_| stock.lock().unwrap()).collect();
    let mut segments: Vec<u32> = guards.iter().map(|guard| guard.segment()).collect();
    segments.sort_unstable();
    assert_eq!(segments, [0, 1, 2]);
    assert!(matches!(stock.try_lock(), Err(TryLockError::Busy(_))));
    for guard in guards {
        guard.release().unwrap();
    }
    assert!(stock.run(|guard| guard.segment()).unwrap() < 3);
}

#[test]
fn a_leader_is_observed_by_other_threads() {
    let client = LockClient::new(MemoryBackend::new()).unwrap();
    let election = client.election("scheduler").unwrap();
    let mut observer = election.observe();
    let soon = Duration::from_secs(10);
    assert_eq!(observer.next_within(soon).unwrap(), Some(None));
    assert_eq!(observer.next_within(Duration::ZERO).unwrap(), None);

    let seen = thread::spawn(move || {
        let mut values = Vec::new();
        while values.last().map(String::as_str) != Some("two") {
            let leader = observer.next_within(soon).unwrap().expect("something changes");
            values.extend(leader.map(|leader| leader.value().to_string()));
        }
        values
    });
    let term = election.campaign("one").unwrap();
    assert!(matches!(election.try_campaign("another"), Err(TryLockError::Busy(_))));
    term.proclaim("two").unwrap();
    assert_eq!(term.value().as_str(), "two");

    assert_eq!(seen.join().unwrap().last().unwrap(), "two");
    assert!(term.is_held());
    term.extend(LONG).unwrap();
    assert_eq!(term.key(), election.key());
    term.resign().unwrap();
    assert!(election.leader().unwrap().is_none());
}
