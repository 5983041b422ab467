//! The parts of a lock on several keys.

use super::*;

#[tokio::test(start_paused = true)]
async fn there_must_be_some() {
    let fixture = Fixture::one_by_one();
    let nothing = fixture.client.multi_lock().mutexes([""; 0]).unwrap();

    for refused in [
        nothing.lock().await,
        nothing.try_lock().await.map_err(Error::from),
        nothing.try_lock_for(ms(10)).await.map_err(Error::from),
        nothing.run(async |_| unreachable!()).await,
    ] {
        assert_eq!(refused.unwrap_err().kind(), ErrorKind::Invalid);
    }
    assert_eq!(fixture.faults.calls(Operation::Acquire), 0);
}

#[tokio::test(start_paused = true)]
async fn of_one_key_are_refused_whichever_their_kinds() {
    let fixture = Fixture::one_by_one();
    let one = || fixture.client.multi_lock().mutex("a").unwrap();

    for refused in [
        one().mutex("a"),
        one().mutexes(["b", "a"]),
        one().read("a"),
        one().write("a"),
        one().permits("a", 1, 2),
        fixture.client.multi_lock().mutexes(["b", "b"]),
    ] {
        assert_eq!(refused.unwrap_err().kind(), ErrorKind::Invalid);
    }
    assert_eq!(fixture.faults.calls(Operation::Acquire), 0);
}

#[test]
fn that_can_never_be_had_are_refused() {
    let client = LockClient::new(MemoryBackend::new());

    for (permits, limit) in [(0, 1), (2, 1), (1, 0)] {
        let refused = client.multi_lock().permits("a", permits, limit);
        assert_eq!(refused.unwrap_err().kind(), ErrorKind::Invalid);
    }
    assert_eq!(client.multi_lock().mutex("").unwrap_err().kind(), ErrorKind::Invalid);
}

#[tokio::test(start_paused = true)]
async fn that_the_store_cannot_do_are_refused() {
    let all = MemoryBackend::new().capabilities();
    let capabilities = all.without(Feature::Units).without(Feature::Queue);
    let Fixture { client, .. } = Fixture::declaring(capabilities, options());
    let fair = options().fair(true);

    for refused in [
        client.multi_lock().read("a"),
        client.multi_lock().write("a"),
        client.multi_lock().permits("a", 1, 2),
        client.multi_lock().with_options(fair.clone()),
        client.multi_lock().mutex("a").unwrap().with_options(fair),
    ] {
        assert_eq!(refused.unwrap_err().kind(), ErrorKind::Unsupported);
    }
    assert!(client.multi_lock().mutex("a").unwrap().try_lock().await.is_ok());
}

#[tokio::test(start_paused = true)]
async fn all_have_the_options_of_the_whole() {
    let fixture = Fixture::one_by_one();
    let short = options().ttl(ms(10_000));
    let whole = fixture.client.multi_lock().mutex("a").unwrap();
    let whole = whole.with_options(short).unwrap().mutex("b").unwrap();

    let guard = whole.lock().await.unwrap();

    for part in guard.guards() {
        assert_eq!(part.remaining(), ms(10_000 - 102));
    }
    let impossible = whole.with_options(options().ttl(Duration::ZERO));
    assert_eq!(impossible.unwrap_err().kind(), ErrorKind::Invalid);
}

#[tokio::test(start_paused = true)]
async fn are_the_locks_that_are_had_one_by_one() {
    let fixture = Fixture::one_by_one();
    let whole = fixture.client.multi_lock().write("writer").unwrap().read("reader").unwrap();
    let whole = whole.permits("permits", 2, 3).unwrap().mutex("mutex").unwrap();
    let other = &fixture.other;

    let guard = whole.lock().await.unwrap();

    assert!(matches!(other.mutex("mutex").unwrap().try_lock().await, Err(TryLockError::Busy(_))));
    let semaphore = other.semaphore("permits", 3).unwrap();
    assert_eq!(semaphore.available().await.unwrap(), 1);
    assert!(matches!(semaphore.try_acquire(2).await, Err(TryLockError::Busy(_))));
    let reader = other.rw_lock("reader").unwrap();
    assert!(reader.try_read().await.is_ok());
    assert!(matches!(reader.try_write().await, Err(TryLockError::Busy(_))));
    assert!(matches!(
        other.rw_lock("writer").unwrap().try_read().await,
        Err(TryLockError::Busy(_))
    ));
    assert_eq!(guard.get("permits").unwrap().units(), 2);
    guard.release().await.unwrap();
    assert_eq!(fixture.left().await, 0);
}

#[tokio::test(start_paused = true)]
async fn have_tokens_of_their_own() {
    let fixture = Fixture::one_by_one();

    let guard = three(&fixture).lock().await.unwrap();

    for name in KEYS {
        assert_eq!(guard.get(name).unwrap().token().key(), &key(name));
    }
    let tokens: Vec<_> = guard.guards().iter().map(|part| part.token().number()).collect();
    assert!(tokens.is_sorted_by(|one, next| one < next), "{tokens:?}");
    assert!(guard.get("d").is_none() && guard.get("").is_none());
}
