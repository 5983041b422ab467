//! A semaphore has a fixed number of permits.

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::Duration;

use leasehold_core::backend::{
    Attempt, Claim, Lease, LockBackend, Mode, Operation, Patience, Release, Renewal,
};
use leasehold_core::retry::Retry;
use leasehold_core::{
    Error, ErrorKind, Holder, LeaseState, LockKey, LockOptions, Semaphore, TryLockError,
};
use tokio::task::JoinSet;

use super::cancellation::{MANY, polled};
use super::{
    grant, granularity, pass_the_end, promptly, refusal, start_to_wait, told_within,
    waiting_is_queueing,
};
use crate::scene::Scene;

/// The mode of a claim for a semaphore permit.
const UNIT: Mode = Mode::Units { units: 1, limit: 1 };

fn long(scene: &Scene) -> LockOptions {
    scene.options().ttl(scene.long_ttl())
}

fn permits(scene: &Scene, key: &LockKey, units: u32, limit: u32) -> Lease {
    scene.lease(key).with_mode(Mode::Units { units, limit })
}

/// Repeatedly acquires one to three permits, and checks that at most `limit` permits are in use at
/// any time.
async fn take(semaphore: Semaphore, out: Arc<AtomicI64>, rounds: usize) {
    for _ in 0..rounds {
        let count = fastrand::u32(1..=3);
        // Some callers do not wait long enough to acquire a permit.
        let wait = Duration::from_millis(fastrand::u64(..30));
        let acquired = if fastrand::u8(..4) == 0 {
            match semaphore.try_acquire_for(count, wait).await.map_err(TryLockError::into_busy) {
                Ok(guard) => Some(guard),
                Err(Ok(_busy)) => None,
                // The store did not reply within the caller's short wait.
                Err(Err(error)) if error.kind() == ErrorKind::Indeterminate => None,
                Err(Err(error)) => {
                    panic!("an attempt: found the error {error}, expected a grant or a refusal")
                }
            }
        } else {
            Some(semaphore.acquire(count).await.unwrap())
        };
        let Some(guard) = acquired else { continue };
        let count = i64::from(count);
        let total = out.fetch_add(count, Ordering::SeqCst) + count;
        found!(total, "the number of permits that are held at the same time")
            .at_most(i64::from(semaphore.limit()));
        tokio::task::yield_now().await;
        out.fetch_sub(count, Ordering::SeqCst);
        if fastrand::bool() {
            guard.release().await.unwrap();
        }
    }
}

pub(crate) async fn no_more_permits_are_out_than_there_are(scene: &Scene) {
    let key = scene.key();
    let out = Arc::new(AtomicI64::new(0));
    let mut set = JoinSet::new();
    for _ in 0..3 {
        let client = scene.client_with(long(scene)).await;
        for _ in 0..3 {
            set.spawn(take(
                client.semaphore(&key, 5).unwrap(),
                Arc::clone(&out),
                scene.rounds(125),
            ));
        }
    }
    while let Some(done) = set.join_next().await {
        done.unwrap();
    }

    let client = scene.client_with(long(scene)).await;
    let all = client.semaphore(&key, 5).unwrap().try_acquire_for(5, scene.slack()).await.unwrap();
    all.release().await.unwrap();
}

pub(crate) async fn all_permits_of_a_request_are_granted_or_none(scene: &Scene) {
    let key = scene.key();
    let client = scene.client_with(long(scene)).await;
    let semaphore = client.semaphore(&key, 5).unwrap();
    let three = semaphore.acquire(3).await.unwrap();
    found!(three.units()).is(3);

    found!(semaphore.try_acquire(3).await).is_busy();
    found!(semaphore.try_acquire_for(3, scene.slack()).await).is_busy();
    // The queue entry of a caller that has given up is removed in the background.
    let patience =
        if waiting_is_queueing(scene, UNIT).await { scene.slack() } else { Duration::ZERO };
    let two = semaphore.try_acquire_for(2, patience).await.unwrap();
    let two = two;

    found!(semaphore.try_acquire(1).await).is_busy();
    found!(two.token()).more_than(three.token());
    three.release().await.unwrap();
    two.release().await.unwrap();
}

pub(crate) async fn an_acquisition_of_permits_may_be_dropped_at_any_point(scene: &Scene) {
    let client = scene.client_with(long(scene)).await;
    for polls in 0..MANY {
        let key = scene.key();
        let semaphore = client.semaphore(&key, 3).unwrap();

        let completed = polled(scene, polls, semaphore.acquire(2)).await;

        let done = completed.is_some();
        drop(completed);
        let all = semaphore.try_acquire_for(3, scene.slack()).await.unwrap();
        all.release().await.unwrap();
        if done {
            return;
        }
    }
    panic!("the acquisition did not finish: found no result after {MANY} polls, expected one");
}

pub(crate) async fn a_lost_permit_comes_back_once(scene: &Scene) {
    let key = scene.key();
    let backend = scene.backend().await;
    let (lost, other) = (permits(scene, &key, 1, 2), permits(scene, &key, 1, 2));
    grant(&backend, &lost).await;
    grant(&backend, &other.clone().with_ttl(scene.long_ttl())).await;
    pass_the_end(scene, &backend, scene.ttl()).await;
    let third = permits(scene, &key, 1, 2).with_ttl(scene.long_ttl());
    grant(&backend, &third).await;

    // A lost lease does not return its permit twice, even if its owner releases or renews it late.
    for _ in 0..2 {
        found!(backend.release(&lost).await.unwrap()).is(Release::NotHeld);
        found!(backend.renew(&lost).await.unwrap()).is(Renewal::Taken);
        refusal(&backend, &permits(scene, &key, 1, 2)).await;
    }

    found!(backend.release(&other).await.unwrap()).is(Release::Released);
    found!(backend.release(&third).await.unwrap()).is(Release::Released);
}

pub(crate) async fn a_stolen_permit_is_a_loss_at_once_where_the_store_tells(scene: &Scene) {
    let key = scene.key();
    let client = scene.client_with(long(scene)).await;
    let semaphore = client.semaphore(&key, 3).unwrap();
    let (one, other) = (semaphore.acquire(1).await.unwrap(), semaphore.acquire(1).await.unwrap());
    // The notification must also arrive after a renewal, so a renewal must keep the store's
    // notifications enabled.
    other.extend(scene.long_ttl()).await.unwrap();

    let operator = scene.client().await;
    operator.admin().force_release(&key, "conformance").await.unwrap();

    for guard in [one, other] {
        let within = told_within(scene, scene.long_ttl());
        scene
            .within(within, guard.lost())
            .await
            .expect("the holder was not notified of the forced release in time");
    }
}

pub(crate) async fn each_holder_has_its_own_ttl(scene: &Scene) {
    let key = scene.key();
    let backend = scene.backend().await;
    let ttl = scene.ttl();
    let (short, long) =
        (permits(scene, &key, 1, 2), permits(scene, &key, 1, 2).with_ttl(scene.long_ttl()));
    grant(&backend, &long).await;
    let granted_at = scene.now();
    grant(&backend, &short).await;

    // Renewing one lease does not affect the other lease.
    for _ in 0..2 {
        scene.pass(ttl / 4).await;
        found!(backend.renew(&long).await.unwrap()).is(Renewal::Renewed);
        refusal(&backend, &permits(scene, &key, 1, 2)).await;
    }
    let next = permits(scene, &key, 1, 2).with_ttl(scene.long_ttl());
    let free = async || {
        found!(backend.renew(&long).await.unwrap()).is(Renewal::Renewed);
        let attempt = backend.acquire(&Claim::new(next.clone())).await.unwrap();
        matches!(attempt, Attempt::Granted(_))
    };
    scene.until("the short lease has expired", ttl / 2 + granularity(&backend), free).await;

    let after = scene.now().since(granted_at);
    found!(
        after + Duration::from_millis(50),
        "the time until the short lease expired, with a tolerance"
    )
    .at_least(ttl);
    found!(backend.renew(&long).await.unwrap()).is(Renewal::Renewed);
    backend.release(&long).await.unwrap();
    backend.release(&next).await.unwrap();
}

pub(crate) async fn permits_are_renewed_while_they_are_held(scene: &Scene) {
    let key = scene.key();
    let (client, faults) = scene.faulty().await;
    let semaphore = client.semaphore(&key, 4).unwrap();
    let (one, three) = (semaphore.acquire(1).await.unwrap(), semaphore.acquire(3).await.unwrap());

    scene.pass(scene.ttl() * 3 / 2).await;

    found!((one.state(), three.state())).is((LeaseState::Held, LeaseState::Held));
    found!(faults.calls(Operation::Renew)).at_least(3);
    found!(semaphore.try_acquire(1).await).is_busy();
    one.release().await.unwrap();
    three.release().await.unwrap();
}

pub(crate) async fn a_renewal_gives_units_back_and_takes_none(scene: &Scene) {
    let key = scene.key();
    let backend = scene.backend().await;
    let all = permits(scene, &key, 3, 3).with_ttl(scene.long_ttl());
    let one = all.clone().with_mode(Mode::Units { units: 1, limit: 3 });
    let others = permits(scene, &key, 2, 3).with_ttl(scene.long_ttl());
    grant(&backend, &all).await;

    found!(backend.renew(&one).await.unwrap()).is(Renewal::Renewed);
    for _ in 0..2 {
        // A renewal never increases the number of permits, whether or not more permits are free.
        found!(backend.renew(&all).await.unwrap()).is(Renewal::Renewed);
        grant(&backend, &others).await;
        found!(backend.renew(&all).await.unwrap()).is(Renewal::Renewed);
        refusal(&backend, &permits(scene, &key, 1, 3)).await;
        found!(backend.release(&others).await.unwrap()).is(Release::Released);
    }

    found!(backend.release(&one).await.unwrap()).is(Release::Released);
}

pub(crate) async fn a_free_permit_is_refused_only_for_the_sake_of_a_waiter(scene: &Scene) {
    let key = scene.key();
    let waiting_is_queueing = waiting_is_queueing(scene, UNIT).await;
    let (client, _faults) = scene.faulty_with(long(scene)).await;
    let semaphore = client.semaphore(&key, 3).unwrap();
    let two = semaphore.acquire(2).await.unwrap();
    let large = semaphore.clone();
    let waits = start_to_wait(scene, &client, async move { large.acquire(3).await }).await;
    if waiting_is_queueing {
        let refused = async || semaphore.try_acquire(1).await.unwrap_err().into_busy().is_ok();
        scene.until("the claim was queued", Duration::ZERO, refused).await;
    }

    let mut tries = JoinSet::new();
    for _ in 0..8 {
        let semaphore = semaphore.clone();
        tries.spawn(async move { semaphore.try_acquire(1).await });
    }
    let tries = tries.join_all().await;

    let or_busy = |tried: Result<_, TryLockError>| match tried {
        Ok(guard) => Some(guard),
        Err(error) => error.into_busy().map(|_busy| None).unwrap(),
    };
    let granted: Vec<_> = tries.into_iter().filter_map(or_busy).collect();
    let free = if waiting_is_queueing { 0 } else { 1 };
    found!(granted.len(), "a free permit was granted although another claim was queued, or was refused although none was queued").is(free);
    drop(granted);
    two.release().await.unwrap();
    waits.await.unwrap().unwrap().release().await.unwrap();
}

pub(crate) async fn a_release_wakes_a_waiter(scene: &Scene) {
    let key = scene.key();
    let rarely = Retry::unlimited().every(scene.ttl() * 60);
    let holder = scene.client_with(long(scene)).await;
    let (client, _faults) = scene.faulty_with(long(scene).retry(rarely)).await;
    let held = holder.semaphore(&key, 2).unwrap().acquire(2).await.unwrap();
    let semaphore = client.semaphore(&key, 2).unwrap();
    let waits = async move { semaphore.acquire(1).await.unwrap() };
    let waits = start_to_wait(scene, &client, waits).await;

    held.release().await.unwrap();

    let guard = scene
        .within(promptly(scene), waits)
        .await
        .expect("the waiter was not notified in time")
        .unwrap();
    guard.release().await.unwrap();
}

pub(crate) async fn a_refusal_tells_of_the_lease_that_ends_first(scene: &Scene) {
    let (short, long) = (scene.ttl() * 2, scene.long_ttl());
    let backend = scene.backend().await;
    for ttls in [[short, long], [long, short]] {
        let key = scene.key();
        let leases = ttls.map(|ttl| permits(scene, &key, 1, 2).with_ttl(ttl));
        for lease in &leases {
            grant(&backend, lease).await;
        }

        let contention = refusal(&backend, &permits(scene, &key, 1, 2)).await;

        let told = contention.holder().and_then(Holder::remaining);
        found!(
            told.is_some_and(|remaining| remaining <= short),
            "the refusal reports at most the TTL of the short lease: {contention:?}"
        )
        .is(true);
        let retry_after = contention.retry_after();
        found!(
            retry_after.is_none_or(|time| time <= short),
            "the refusal reports at most the TTL of the short lease: {contention:?}"
        )
        .is(true);
        for lease in &leases {
            backend.release(lease).await.unwrap();
        }
    }
}

pub(crate) async fn a_waiter_that_is_served_has_left_the_queue(scene: &Scene) {
    let key = scene.key();
    let backend = scene.backend().await;
    let lease = |units| permits(scene, &key, units, 3).with_ttl(scene.long_ttl());
    let (all, one, two) = (lease(3), lease(1), lease(2));
    let queued = Claim::new(one.clone()).with_patience(Patience::Queues(scene.long_ttl()));
    grant(&backend, &all).await;
    let refused = backend.acquire(&queued).await.unwrap();
    found!(refused).is_refused();
    backend.release(&all).await.unwrap();

    let served = backend.acquire(&queued).await.unwrap();
    found!(served).is_granted();

    // The store counts the permit of this lease only once.
    grant(&backend, &two).await;
    backend.release(&one).await.unwrap();
    backend.release(&two).await.unwrap();
}

pub(crate) async fn clients_may_name_different_limits(scene: &Scene) {
    let key = scene.key();
    let (small, large) = (scene.client().await, scene.client().await);
    let (small, large) = (small.semaphore(&key, 2).unwrap(), large.semaphore(&key, 4).unwrap());

    let three = large.acquire(3).await.unwrap();
    found!(
        small.try_acquire(1).await,
        "the attempt at a semaphore with a limit of two while three permits are held"
    )
    .is_busy();
    let fourth = large.try_acquire(1).await.expect("the fourth of four permits was rejected");
    found!(large.try_acquire(1).await).is_busy();
    three.release().await.unwrap();

    let second = small.try_acquire(1).await.expect("the second of two permits was rejected");
    found!(small.try_acquire(1).await).is_busy();
    let others = large.try_acquire(2).await.expect("the last two of four permits were rejected");
    for guard in [fourth, second, others] {
        guard.release().await.unwrap();
    }
    large.acquire(4).await.unwrap().release().await.unwrap();
}

pub(crate) async fn impossible_numbers_are_refused_at_once(scene: &Scene) {
    let key = scene.key();
    let (client, faults) = scene.faulty().await;
    for limit in [0, Semaphore::MAX_LIMIT + 1] {
        found!(client.semaphore(&key, limit).unwrap_err().kind()).is(ErrorKind::Invalid);
    }
    for (permits, limit) in [(0, 1), (2, 1), (u32::MAX, Semaphore::MAX_LIMIT)] {
        let semaphore = client.semaphore(&key, limit).unwrap();
        let error = semaphore.acquire(permits).await.unwrap_err();
        found!(error.kind(), "{error}").is(ErrorKind::Invalid);
        let error = Error::from(semaphore.try_acquire(permits).await.unwrap_err());
        found!(error.kind(), "{error}").is(ErrorKind::Invalid);
    }
    found!(faults.calls(Operation::Acquire)).is(0);

    let most = client.semaphore(&key, Semaphore::MAX_LIMIT).unwrap();
    let all = most.acquire(Semaphore::MAX_LIMIT).await.unwrap();
    found!(most.try_acquire(1).await).is_busy();
    all.release().await.unwrap();
}

pub(crate) async fn an_unknown_permit_is_not_released(scene: &Scene) {
    let key = scene.key();
    let backend = scene.backend().await;
    let known = permits(scene, &key, 1, 1);
    grant(&backend, &known).await;

    for unknown in [permits(scene, &key, 1, 1), permits(scene, &key, 5, 9)] {
        found!(backend.release(&unknown).await.unwrap()).is(Release::NotHeld);
        found!(backend.renew(&unknown).await.unwrap()).is(Renewal::Taken);
    }

    refusal(&backend, &permits(scene, &key, 1, 1)).await;
    found!(backend.release(&known).await.unwrap()).is(Release::Released);
    let vanished = backend.renew(&known).await.unwrap();
    found!(vanished).is(Renewal::Vanished);
}

pub(crate) async fn a_key_is_one_kind_of_lock_at_a_time(scene: &Scene) {
    let key = scene.key();
    let client = scene.client_with(long(scene)).await;
    let (mutex, semaphore) = (client.mutex(&key).unwrap(), client.semaphore(&key, 1).unwrap());

    let other = scene.client().await;
    let (other_mutex, other_semaphore) =
        (other.mutex(&key).unwrap(), other.semaphore(&key, 1).unwrap());

    // A caller in the holder's process and a caller in a different process get the same result.
    let permit = semaphore.acquire(1).await.unwrap();
    for mutex in [&mutex, &other_mutex] {
        let error = mutex.lock().await.unwrap_err();
        found!(error.kind(), "{error}").is(ErrorKind::WrongType);
        let error = Error::from(mutex.try_lock().await.unwrap_err());
        found!(error.kind(), "{error}").is(ErrorKind::WrongType);
    }
    permit.release().await.unwrap();

    let guard = mutex.lock().await.unwrap();
    for semaphore in [&semaphore, &other_semaphore] {
        let error = semaphore.acquire(1).await.unwrap_err();
        found!(error.kind(), "{error}").is(ErrorKind::WrongType);
        let error = Error::from(semaphore.try_acquire(1).await.unwrap_err());
        found!(error.kind(), "{error}").is(ErrorKind::WrongType);
    }
    guard.release().await.unwrap();
    semaphore.acquire(1).await.unwrap().release().await.unwrap();
}
