//! Any segment that is free.

use super::*;

#[tokio::test(start_paused = true)]
async fn is_taken_until_all_are_held() {
    let fixture = Fixture::new();
    let striped = segments(&fixture, 5);

    let mut guards = Vec::new();
    for _ in 0..5 {
        guards.push(striped.try_lock().await.unwrap());
    }
    let held: BTreeSet<_> = guards.iter().map(StripedGuard::segment).collect();
    assert!(held.into_iter().eq(0..5));

    let asked_at = fixture.clock.now();
    assert!(matches!(striped.try_lock().await, Err(TryLockError::Busy(_))));
    assert!(matches!(striped.try_lock_for(Duration::ZERO).await, Err(TryLockError::Busy(_))));
    assert_eq!(fixture.clock.now(), asked_at);
    drop(guards);
    assert_eq!(fixture.left().await, 0);
}

#[tokio::test(start_paused = true)]
async fn is_refused_with_the_holder_whose_lease_ends_first() {
    for soonest in 0..3 {
        let fixture = Fixture::new();
        let striped = segments(&fixture, 3);
        let mut guards = Vec::new();
        for (number, segment) in (0..).zip(striped.segments()) {
            let ttl = if number == soonest { TTL } else { TTL * 2 };
            let options = options().ttl(ttl).renewal(RenewalMode::Off);
            let mutex = fixture.other.mutex(segment).unwrap().with_options(options).unwrap();
            guards.push(mutex.lock().await.unwrap());
        }

        let busy = striped.try_lock().await.unwrap_err().into_busy().unwrap();

        assert_eq!(busy.remaining(), Some(TTL));
    }
}

#[tokio::test(start_paused = true)]
async fn is_found_wherever_it_is_and_nothing_else_is_touched() {
    for free in 0..4 {
        let fixture = Fixture::new();
        let striped = segments(&fixture, 4);
        let mut held = hold_all(&fixture, &striped).await;
        held.remove(free as usize).release().await.unwrap();

        let guard = striped.lock().await.unwrap();

        assert_eq!(guard.segment(), free);
        guard.release().await.unwrap();
        assert_eq!(fixture.log(), [format!("+stock/{free}"), format!("-stock/{free}")]);
    }
}

#[tokio::test(start_paused = true)]
async fn is_another_one_for_each_caller() {
    let fixture = Fixture::new();
    let striped = segments(&fixture, 16);

    let mut taken = BTreeSet::new();
    for _ in 0..100 {
        taken.insert(striped.run(async |guard| guard.segment()).await.unwrap());
    }

    assert!(taken.len() > 4, "all callers begin at the same few: {taken:?}");
}

#[tokio::test(start_paused = true)]
async fn is_taken_though_others_fail() {
    for fault in [Fault::Fail(ErrorKind::Denied), Fault::Fail(ErrorKind::Unavailable)] {
        let fixture = Fixture::new();
        let striped = segments(&fixture, 4);
        for failing in [0, 1, 3] {
            let failing = &striped.segments()[failing];
            fixture.faults.inject_on(failing, Operation::Acquire, fault, 1_000);
        }

        assert_eq!(striped.try_lock().await.unwrap().segment(), 2);
        assert_eq!(fixture.left().await, 0);
        assert_eq!(striped.lock().await.unwrap().segment(), 2);
    }
}
