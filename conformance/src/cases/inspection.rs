//! The view of operators.

use std::time::{Duration, Instant};

use leasehold_core::{
    Attempt, Claim, Description, Lease, LockBackend, LockKind, Patience, Share, Waiter,
};

use super::grant;
use crate::harness::{Harness, Time};
use crate::scene::Scene;

pub(crate) async fn each_kind_of_lock_is_told<H: Harness>(scene: &Scene<H>) {
    let backend = scene.backend().await;
    let permits = Share::Units { units: 2, limit: 3 };
    for (share, kind) in [
        (Share::Whole, LockKind::Mutex),
        (permits, LockKind::Permits),
        (Share::Units { units: 1, limit: 1 }, LockKind::Permits),
        (Share::READER, LockKind::Reader),
        (Share::WRITER, LockKind::Writer),
    ] {
        let lease = scene.lease(&scene.key()).with_share(share);
        assert_eq!(backend.inspect(lease.key()).await.unwrap().kind(), None);
        grant(&backend, &lease).await;

        let held = backend.inspect(lease.key()).await.unwrap();
        backend.renew(&lease).await.unwrap();
        let renewed = backend.inspect(lease.key()).await.unwrap();

        for seen in [held, renewed] {
            assert_eq!((seen.kind(), seen.holders().len()), (Some(kind), 1), "{seen:?}");
            assert_eq!(seen.holders()[0].units(), share.units());
        }
        backend.release(&lease).await.unwrap();
    }
}

pub(crate) async fn a_downgrade_is_seen<H: Harness>(scene: &Scene<H>) {
    let (key, client) = (scene.key(), scene.client().await);
    let writer = client.rw_lock(&key).unwrap().write().await.unwrap();

    let reader = writer.downgrade().await.unwrap();

    let seen = client.admin().inspect(&key).await.unwrap();
    assert_eq!(seen.kind(), Some(LockKind::Reader), "{seen:?}");
    assert_eq!(seen.waiting(), Some(0));
    reader.release().await.unwrap();
}

pub(crate) async fn a_holder_has_the_token_of_its_guard<H: Harness>(scene: &Scene<H>) {
    let (mutex, permit) = (scene.key(), scene.key());
    let client = scene.client().await;
    let mutex = client.mutex(&mutex).unwrap().lock().await.unwrap();
    let permit = client.semaphore(&permit, 3).unwrap().acquire(2).await.unwrap();

    // Redis does not keep that of a mutex.
    for (guard, is_known) in [(&mutex, false), (&permit, true)] {
        let seen = client.admin().inspect(guard.key()).await.unwrap();
        let token = seen.holders()[0].token();
        assert!(!is_known || token.is_some(), "{seen:?}");
        assert!(token.is_none_or(|token| token == guard.token().number()), "{seen:?}");
    }
    mutex.release().await.unwrap();
    permit.release().await.unwrap();
}

pub(crate) async fn a_holder_is_seen_to_age<H: Harness>(scene: &Scene<H>) {
    // So exactly does a token tell the time.
    const NEARLY: Duration = Duration::from_millis(100);

    let (key, client) = (scene.key(), scene.client().await);
    let semaphore = client.semaphore(&key, 2).unwrap();
    let (asked_at, began) = (scene.now(), Instant::now());
    let guard = semaphore.acquire(1).await.unwrap();
    let granted_at = scene.now();
    scene.pass(scene.ttl() / 2).await;

    let passed = scene.now().since(granted_at);
    let seen = client.admin().inspect(&key).await.unwrap();
    let at_most = scene.now().since(asked_at).max(began.elapsed());

    if let Some(time) = seen.holders()[0].held_for() {
        assert!(time <= at_most + NEARLY, "{time:?} in {at_most:?}");
        // In driven time, not every store's wall clock goes along.
        let at_least = if H::TIME == Time::Driven { Duration::ZERO } else { passed };
        assert!(time + NEARLY >= at_least, "{time:?} in {at_least:?}");
    }
    guard.release().await.unwrap();
}

pub(crate) async fn claims_in_the_queue_are_listed_in_order<H: Harness>(scene: &Scene<H>) {
    let key = scene.key();
    let (backend, other) = (scene.backend().await, scene.backend().await);
    let (long, who) = (scene.ttl() * 20, |name: &str| Some(Description::new(name).unwrap()));
    let lease = |name| scene.lease(&key).with_ttl(long).with_description(who(name));
    let (holder, first, second) = (lease("holder"), lease("first"), lease("second"));
    grant(&backend, &holder).await;
    for (lease, patience) in [(&first, Patience::Queues(long)), (&second, Patience::Waits)] {
        let claim = Claim::new(lease.clone()).with_patience(patience);
        let refused = other.try_acquire(&claim).await.unwrap();
        assert!(matches!(refused, Attempt::Held(_)), "{refused:?}");
    }

    let seen = backend.inspect(&key).await.unwrap();

    let fingerprint = |lease: &Lease| lease.id().fingerprint();
    let waiting: Vec<_> = seen.queue().iter().map(Waiter::fingerprint).collect();
    assert_eq!(waiting, [&first, &second].map(fingerprint));
    assert_eq!(seen.waiting(), Some(2));
    assert!(seen.queue().iter().all(|waiter| waiter.kind() == LockKind::Mutex), "{seen:?}");
    let described = |number: usize| seen.queue()[number].description().cloned();
    assert!(described(0).is_none_or(|it| Some(it) == who("first")), "{seen:?}");
    assert_eq!(described(1), who("second"));

    for (lease, left) in [(&first, 1), (&second, 0)] {
        other.release(lease).await.unwrap();
        assert_eq!(backend.inspect(&key).await.unwrap().waiting(), Some(left));
    }
    backend.release(&holder).await.unwrap();
}
