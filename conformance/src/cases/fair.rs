//! A lock with a queue in the store is first come, first served.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use leasehold_core::backend::{Attempt, Claim, Lease, LockBackend, Operation, Patience, Release};
use leasehold_core::fault::Fault;
use leasehold_core::retry::Retry;
use leasehold_core::{ErrorKind, LockKey, LockOptions};

use super::cancellation::polled;
use super::{grant, longest, pass_the_end, promptly, refusal, start_to_wait, woken_within};
use crate::scene::Scene;
use crate::stalls::Measured;

/// Requests `lease` with a queue entry that the store keeps for `queue_ttl`. Returns whether the lease
/// was granted.
async fn queue_for<B: LockBackend>(backend: &B, lease: &Lease, queue_ttl: Duration) -> bool {
    let claim = Claim::new(lease.clone()).with_patience(Patience::Queues(queue_ttl));
    matches!(backend.acquire(&claim).await.unwrap(), Attempt::Granted(_))
}

/// Returns options for a fair lock that is not lost or cancelled during a case, and whose waiters
/// depend on the store's notifications.
fn fair(scene: &Scene) -> LockOptions {
    scene.options().ttl(scene.long_ttl()).fair(true)
}

fn long_lease(scene: &Scene, key: &LockKey) -> Lease {
    scene.lease(key).with_ttl(scene.long_ttl())
}

pub(crate) async fn claims_are_served_in_order_of_arrival(scene: &Scene) {
    const ROUNDS: usize = 200;
    const WAITERS: usize = 5;

    let backend = scene.backend().await;
    let queue_ttl = scene.long_ttl();
    for _ in 0..scene.rounds(ROUNDS) {
        let key = scene.key();
        let holder = long_lease(scene, &key);
        grant(&backend, &holder).await;
        let mut queue = Vec::new();
        for _ in 0..WAITERS {
            let waiter = long_lease(scene, &key);
            found!(queue_for(&backend, &waiter, queue_ttl).await).is(false);
            queue.push(waiter);
        }
        // Some waiters leave from any position in the queue.
        for _ in 0..fastrand::usize(0..3) {
            let leaver = queue.remove(fastrand::usize(..queue.len()));
            backend.release(&leaver).await.unwrap();
        }

        let mut holder = holder;
        while !queue.is_empty() {
            backend.release(&holder).await.unwrap();
            let first = queue.remove(0);
            // A claim that arrives before the first waiter's turn is rejected, no matter how often
            // it is retried.
            for _ in 0..2 {
                if !queue.is_empty() {
                    let other = &queue[fastrand::usize(..queue.len())];
                    found!(
                        queue_for(&backend, other, queue_ttl).await,
                        "a claim was granted before its turn"
                    )
                    .is(false);
                }
            }
            found!(
                queue_for(&backend, &first, queue_ttl).await,
                "the first claim in the queue is granted"
            )
            .is(true);
            holder = first;
        }
        backend.release(&holder).await.unwrap();
    }
}

pub(crate) async fn fair_callers_are_served_in_order_across_clients(scene: &Scene) {
    let key = scene.key();
    let clients = [scene.faulty_with(fair(scene)).await.0, scene.faulty_with(fair(scene)).await.0];
    let guard = clients[0].mutex(&key).unwrap().lock().await.unwrap();
    let served = Arc::new(Mutex::new(Vec::new()));
    let mut waiting = Vec::new();
    for number in 0..6 {
        let client = &clients[number % 2];
        let (mutex, served) = (client.mutex(&key).unwrap(), Arc::clone(&served));
        let lock = async move {
            let guard = mutex.lock().await.unwrap();
            served.lock().unwrap_or_else(PoisonError::into_inner).push(number);
            guard.release().await.unwrap();
        };
        waiting.push(start_to_wait(scene, client, lock).await);
    }

    guard.release().await.unwrap();
    for waiter in waiting {
        waiter.await.unwrap();
    }

    found!(*served.lock().unwrap_or_else(PoisonError::into_inner)).is([0, 1, 2, 3, 4, 5]);
}

pub(crate) async fn no_claim_passes_the_queue(scene: &Scene) {
    let key = scene.key();
    let backend = scene.backend().await;
    let (holder, waiter, passer) =
        (long_lease(scene, &key), long_lease(scene, &key), long_lease(scene, &key));
    grant(&backend, &holder).await;
    found!(queue_for(&backend, &waiter, scene.long_ttl()).await).is(false);

    backend.release(&holder).await.unwrap();

    let contention = refusal(&backend, &passer).await;
    let retry_after = contention.retry_after();
    found!(
        retry_after.is_none_or(|time| time <= scene.long_ttl()),
        "{retry_after:?} is at most the TTL of the queue entry"
    )
    .is(true);
    found!(queue_for(&backend, &waiter, scene.ttl()).await).is(true);
    backend.release(&waiter).await.unwrap();
    grant(&backend, &passer).await;
    backend.release(&passer).await.unwrap();
}

pub(crate) async fn a_waiter_keeps_its_place_for_as_long_as_it_waits(scene: &Scene) {
    let key = scene.key();
    // Queue entries are kept for one TTL, the waiter polls less often than that, and the holder
    // keeps the lock for longer.
    let options = scene.options().fair(true).retry(Retry::unlimited().every(scene.ttl() * 60));
    let (client, _faults) = scene.faulty_with(options.clone()).await;
    let (late, _faults) = scene.faulty_with(options).await;
    let holder = scene.client_with(fair(scene)).await;
    let guard = holder.mutex(&key).unwrap().lock().await.unwrap();
    let mutex = client.mutex(&key).unwrap();
    let first = start_to_wait(scene, &client, async move { mutex.lock().await.unwrap() }).await;
    scene.pass(scene.ttl() * 3 / 2).await;
    let mutex = late.mutex(&key).unwrap();
    let second = start_to_wait(scene, &late, async move { mutex.lock().await.unwrap() }).await;
    scene.pass(scene.ttl() * 3 / 4).await;

    guard.release().await.unwrap();

    let guard = first.await.unwrap();
    found!(second.is_finished()).is(false);
    guard.release().await.unwrap();
    second.await.unwrap().release().await.unwrap();
}

pub(crate) async fn an_outage_is_no_busy_loop_for_a_queue(scene: &Scene) {
    let key = scene.key();
    let holder = scene.client_with(fair(scene)).await;
    let patient = scene.options().fair(true).outage_wait(scene.ttl() * 20);
    let (client, faults) = scene.faulty_with(patient).await;
    let guard = holder.mutex(&key).unwrap().lock().await.unwrap();
    let mutex = client.mutex(&key).unwrap();
    let waits = start_to_wait(scene, &client, async move { mutex.lock().await.unwrap() }).await;

    // The queue entry should have been refreshed in the meantime.
    faults.inject(Operation::Acquire, Fault::Fail(ErrorKind::Unavailable), 100_000);
    let before = faults.calls(Operation::Acquire);
    scene.pass(scene.ttl() * 3).await;
    let attempts = faults.calls(Operation::Acquire) - before;
    faults.heal();

    // The first attempts follow each other quickly, and later there are a few attempts per second.
    let most = 20 + usize::try_from((scene.ttl() * 3).as_millis() / 150).unwrap();
    found!((1..=most).contains(&attempts), "{attempts} attempts are between 1 and {most}").is(true);
    guard.release().await.unwrap();
    let next = scene.within(Duration::from_secs(1) + scene.slack(), waits).await;
    next.expect("the waiter did not acquire the lock after the outage")
        .unwrap()
        .release()
        .await
        .unwrap();
}

pub(crate) async fn a_dead_waiter_holds_up_the_next_for_its_place_only(scene: &Scene) -> Measured {
    let key = scene.key();
    let backend = scene.backend().await;
    let (holder, dead) = (long_lease(scene, &key), long_lease(scene, &key));
    grant(&backend, &holder).await;
    let died_at = scene.now();
    found!(queue_for(&backend, &dead, scene.ttl()).await).is(false);
    let (client, _faults) = scene.faulty_with(fair(scene)).await;
    let mutex = client.mutex(&key).unwrap();
    let next = start_to_wait(scene, &client, async move { mutex.lock().await.unwrap() }).await;

    backend.release(&holder).await.unwrap();
    let guard = next.await.unwrap();

    let after = scene.now().since(died_at);
    found!(
        after + Duration::from_millis(50),
        "the time for which the dead waiter delays the next waiter"
    )
    .at_least(scene.ttl());
    scene.in_time(
        "the next waiter holds the lock",
        after,
        longest(scene, &backend, scene.ttl()),
    )?;
    guard.release().await.unwrap();
    Ok(())
}

pub(crate) async fn a_waiter_that_gives_up_leaves_the_queue_at_once(scene: &Scene) {
    let key = scene.key();
    let (client, _faults) = scene.faulty_with(fair(scene)).await;
    let mutex = client.mutex(&key).unwrap();
    let guard = mutex.lock().await.unwrap();
    let waiting = mutex.clone();
    let dropped = start_to_wait(scene, &client, async move { waiting.lock().await }).await;
    let waiting = mutex.clone();
    // The wait is long enough for a second request to the store.
    let wait = scene.slack();
    let timed = start_to_wait(scene, &client, async move { waiting.try_lock_for(wait).await });
    let timed = timed.await;

    dropped.abort();
    found!(timed.await.unwrap().unwrap_err().into_busy().is_ok()).is(true);
    guard.release().await.unwrap();
    let released_at = scene.now();
    let next = mutex
        .try_lock_for(scene.ttl() * 20)
        .await
        .expect("a waiter that has left still blocks the queue");

    let after = scene.now().since(released_at);
    found!(after, "the delay by waiters that had left the queue").less_than(scene.slack());
    next.release().await.unwrap();
}

pub(crate) async fn a_waiter_that_comes_back_goes_to_the_end(scene: &Scene) {
    let key = scene.key();
    let backend = scene.backend().await;
    let (holder, leaver, stayer) =
        (long_lease(scene, &key), long_lease(scene, &key), long_lease(scene, &key));
    let queue_ttl = scene.long_ttl();
    grant(&backend, &holder).await;
    found!(queue_for(&backend, &leaver, queue_ttl).await).is(false);
    found!(queue_for(&backend, &stayer, queue_ttl).await).is(false);

    backend.release(&leaver).await.unwrap();
    found!(queue_for(&backend, &leaver, queue_ttl).await).is(false);
    backend.release(&holder).await.unwrap();

    found!(queue_for(&backend, &leaver, queue_ttl).await).is(false);
    found!(queue_for(&backend, &stayer, queue_ttl).await).is(true);
    backend.release(&stayer).await.unwrap();
    found!(queue_for(&backend, &leaver, queue_ttl).await).is(true);
    backend.release(&leaver).await.unwrap();
}

pub(crate) async fn a_queue_outlives_a_holder_that_dies(scene: &Scene) {
    let key = scene.key();
    let backend = scene.backend().await;
    let (dies, waiter, passer) =
        (scene.lease(&key), long_lease(scene, &key), long_lease(scene, &key));
    grant(&backend, &dies).await;
    found!(queue_for(&backend, &waiter, scene.long_ttl()).await).is(false);

    pass_the_end(scene, &backend, scene.ttl()).await;

    refusal(&backend, &passer).await;
    found!(
        queue_for(&backend, &waiter, scene.long_ttl()).await,
        "the first claim in the queue is granted"
    )
    .is(true);
    backend.release(&waiter).await.unwrap();
}

pub(crate) async fn a_waiter_that_is_served_has_left_the_queue(scene: &Scene) {
    let key = scene.key();
    let backend = scene.backend().await;
    let (holder, waiter, next) =
        (long_lease(scene, &key), scene.lease(&key), long_lease(scene, &key));
    grant(&backend, &holder).await;
    found!(queue_for(&backend, &waiter, scene.long_ttl()).await).is(false);
    backend.release(&holder).await.unwrap();

    found!(queue_for(&backend, &waiter, scene.long_ttl()).await).is(true);
    pass_the_end(scene, &backend, scene.ttl()).await;

    // The lease has expired, and its queue entry is gone.
    grant(&backend, &next).await;
    backend.release(&next).await.unwrap();
}

pub(crate) async fn a_waiter_that_leaves_wakes_the_next(scene: &Scene) {
    let key = scene.key();
    let backend = scene.backend().await;
    let (holder, first) = (long_lease(scene, &key), long_lease(scene, &key));
    let rarely = Retry::unlimited().every(scene.ttl() * 60);
    let (client, _faults) = scene.faulty_with(fair(scene).retry(rarely)).await;
    grant(&backend, &holder).await;
    found!(queue_for(&backend, &first, scene.long_ttl()).await).is(false);
    let mutex = client.mutex(&key).unwrap();
    let behind = start_to_wait(scene, &client, async move { mutex.lock().await.unwrap() }).await;
    backend.release(&holder).await.unwrap();
    scene.pass(Duration::from_millis(50)).await;
    found!(behind.is_finished()).is(false);

    backend.release(&first).await.unwrap();

    let guard = scene
        .within(promptly(scene), behind)
        .await
        .expect("the next waiter was not notified in time")
        .unwrap();
    guard.release().await.unwrap();
}

pub(crate) async fn a_place_may_be_given_up_late_and_twice(scene: &Scene) {
    let key = scene.key();
    let backend = scene.backend().await;
    let (holder, waiter) = (long_lease(scene, &key), long_lease(scene, &key));
    grant(&backend, &holder).await;
    found!(queue_for(&backend, &waiter, scene.long_ttl()).await).is(false);

    for _ in 0..3 {
        found!(backend.release(&waiter).await.unwrap()).is(Release::NotHeld);
    }
    found!(backend.release(&holder).await.unwrap()).is(Release::Released);
    found!(backend.release(&waiter).await.unwrap()).is(Release::NotHeld);
}

pub(crate) async fn a_fair_wait_may_be_dropped_at_any_point(scene: &Scene) {
    let key = scene.key();
    let often = Retry::unlimited().every(Duration::from_millis(5));
    let (holder, client) =
        (scene.client_with(fair(scene)).await, scene.client_with(fair(scene).retry(often)).await);
    let mutex = client.mutex(&key).unwrap();
    let guard = holder.mutex(&key).unwrap().lock().await.unwrap();

    for polls in 0..20 {
        let (one, other) =
            tokio::join!(polled(scene, polls, mutex.lock()), polled(scene, polls, mutex.lock()));
        found!(one.is_none()).is(true);
        found!(other.is_none()).is(true);
    }
    guard.release().await.unwrap();

    let within = woken_within(scene, holder.backend());
    let next = scene.within(within, holder.mutex(&key).unwrap().lock()).await;
    next.expect("a cancelled waiter stayed in the queue").unwrap().release().await.unwrap();
}

pub(crate) async fn a_place_that_has_ended_is_lost(scene: &Scene) {
    let key = scene.key();
    let backend = scene.backend().await;
    let (holder, late, stayer) =
        (long_lease(scene, &key), long_lease(scene, &key), long_lease(scene, &key));
    let (short, queue_ttl) = (scene.ttl() / 4, scene.long_ttl());
    grant(&backend, &holder).await;
    found!(queue_for(&backend, &late, short).await).is(false);
    found!(queue_for(&backend, &stayer, queue_ttl).await).is(false);

    pass_the_end(scene, &backend, short).await;
    found!(queue_for(&backend, &late, queue_ttl).await).is(false);
    backend.release(&holder).await.unwrap();

    found!(
        queue_for(&backend, &late, queue_ttl).await,
        "a claim was granted before a claim that was queued earlier"
    )
    .is(false);
    found!(queue_for(&backend, &stayer, queue_ttl).await).is(true);
    backend.release(&stayer).await.unwrap();
    found!(queue_for(&backend, &late, queue_ttl).await).is(true);
    backend.release(&late).await.unwrap();
}
