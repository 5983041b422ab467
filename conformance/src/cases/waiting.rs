//! Waiters are woken, or retry on their own.

use std::time::Duration;

use futures_util::future::join;
use leasehold_core::backend::{LockBackend, Operation};
use leasehold_core::fault::{Fault, FaultBackend, Notifications};
use leasehold_core::retry::Retry;
use leasehold_core::{ErrorKind, LockClient, LockGuard, Mutex};
use tokio::task::{JoinHandle, JoinSet};
use tokio::time::Instant;

use super::{begun, grant, longest, promptly, refusal, start_to_wait};
use crate::driven::Observed;
use crate::fault::FaultKind;
use crate::scene::Scene;
use crate::stalls::Measured;

/// Starts a task that waits for a lock, and returns when the task is waiting.
async fn waiter(
    scene: &Scene,
    client: &LockClient<FaultBackend<Observed>>,
    mutex: Mutex,
) -> JoinHandle<LockGuard> {
    start_to_wait(scene, client, async move { mutex.lock().await.unwrap() }).await
}

/// Returns a retry policy with very long pauses between retries.
fn rarely() -> Retry {
    Retry::unlimited().every(Duration::from_secs(600))
}

pub(crate) async fn a_release_wakes_a_waiter(scene: &Scene) {
    let key = scene.key();
    let long = scene.options().ttl(scene.long_ttl()).retry(rarely());
    let holder = scene.client_with(long.clone()).await;
    let (client, _faults) = scene.faulty_with(long).await;
    for _ in 0..10 {
        let guard = holder.mutex(&key).unwrap().lock().await.unwrap();
        let waiting = waiter(scene, &client, client.mutex(&key).unwrap()).await;

        guard.release().await.unwrap();
        let released_at = scene.now();
        let guard = waiting.await.unwrap();

        let woken = scene.now().since(released_at);
        found!(woken, "the time until the waiter was notified").less_than(promptly(scene));
        guard.release().await.unwrap();
    }
}

pub(crate) async fn a_lease_after_a_wait_lasts_like_any_other(scene: &Scene) {
    let key = scene.key();
    let (holder, third) = (scene.client().await, scene.backend().await);
    let (client, _faults) = scene.faulty().await;
    let guard = holder.mutex(&key).unwrap().lock().await.unwrap();
    let waiting = waiter(scene, &client, client.mutex(&key).unwrap()).await;
    let before = guard.token().number();

    guard.release().await.unwrap();
    let guard = waiting.await.unwrap();

    // The store may have granted the lock to the waiter without a further request.
    found!(guard.token().number()).more_than(before);
    for _ in 0..4 {
        found!(guard.is_held()).is(true);
        refusal(&third, &scene.lease(&key)).await;
        scene.pass(scene.ttl() / 2).await;
    }
    guard.release().await.unwrap();
    let next = scene.lease(&key);
    grant(&third, &next).await;
    third.release(&next).await.unwrap();
}

pub(crate) async fn a_forced_release_wakes_a_waiter(scene: &Scene) {
    let key = scene.key();
    let long = scene.options().ttl(scene.long_ttl()).retry(rarely());
    let holder = scene.client_with(long.clone()).await;
    let (client, _faults) = scene.faulty_with(long).await;
    let guard = holder.mutex(&key).unwrap().lock().await.unwrap();
    let waiting = waiter(scene, &client, client.mutex(&key).unwrap()).await;

    let operator = scene.client().await;
    operator.admin().force_release(&key, "conformance").await.unwrap();

    let next = scene
        .within(promptly(scene), waiting)
        .await
        .expect("the waiter was not notified of the forced release in time")
        .unwrap();
    next.release().await.unwrap();
    drop(guard);
}

pub(crate) async fn a_waiter_without_any_news_polls(scene: &Scene) {
    let key = scene.key();
    let pause = Duration::from_millis(100);
    let options = scene.options().ttl(scene.long_ttl());
    let holder = scene.client_with(options.clone()).await;
    let (client, faults) = scene.faulty_with(options.retry(Retry::unlimited().every(pause))).await;
    faults.set_notifications(Notifications::Muted);
    let guard = holder.mutex(&key).unwrap().lock().await.unwrap();
    let waiting = waiter(scene, &client, client.mutex(&key).unwrap()).await;

    scene.pass(pause * 10).await;
    let attempts = faults.calls(Operation::Acquire);
    // In real time, each attempt also takes the time of a request.
    found!((8..=12).contains(&attempts), "{attempts} attempts in ten pauses are 8 to 12").is(true);
    guard.release().await.unwrap();
    let released_at = scene.now();
    let guard = waiting.await.unwrap();

    let woken = scene.now().since(released_at);
    found!(woken, "the time until the waiter retried").less_than(pause + scene.slack());
    guard.release().await.unwrap();
}

pub(crate) async fn a_release_just_before_the_waiting_is_not_missed(scene: &Scene) -> Measured {
    let key = scene.key();
    let long = scene.options().ttl(scene.long_ttl()).retry(rarely());
    let holder = scene.client_with(long.clone()).await;
    let (other, faults) = scene.faulty_with(long).await;
    let (ours, theirs) = (holder.mutex(&key).unwrap(), other.mutex(&key).unwrap());
    let soon = scene.ttl() / 80;
    scene.stalls();
    for round in 0..scene.rounds(500) {
        let guard = ours.lock().await.unwrap();

        // The store processes the release before, during or after the waiter's first attempt, or
        // the notification of the release arrives before the reply to that attempt.
        let overtakes = round % 20 == 0;
        if overtakes {
            faults.inject(Operation::Acquire, Fault::DelayReply(soon * 2), 1);
        }
        let started_at = scene.now();
        let release = async {
            if overtakes {
                scene.pass(soon).await;
            }
            guard.release().await.unwrap();
        };
        let lock = async { theirs.lock().await.unwrap() };
        let next =
            if round % 2 == 0 { join(lock, release).await.0 } else { join(release, lock).await.1 };

        let waited = scene.now().since(started_at);
        scene.stalls().in_time(
            "the waiter acquires the lock",
            waited,
            soon * 2 + promptly(scene),
        )?;
        next.release().await.unwrap();
    }
    Ok(())
}

pub(crate) async fn a_lost_connection_costs_a_waiter_nothing(scene: &Scene) {
    let key = scene.key();
    let long = scene.options().ttl(scene.long_ttl()).retry(rarely());
    let holder = scene.client_with(long.clone()).await;
    let (client, _faults) = scene.faulty_with(long).await;
    let guard = holder.mutex(&key).unwrap().lock().await.unwrap();
    let waiting = waiter(scene, &client, client.mutex(&key).unwrap()).await;

    scene.disturb(FaultKind::ConnectionsKilled).await;
    scene.pass(scene.ttl()).await;
    guard.release().await.unwrap();

    // A busy machine also delays other waiters.
    let next = tokio::select! {
        biased;
        next = waiting => next.unwrap(),
        () = twenty_waits(scene) => panic!("found no notification during twenty waits of other callers, expected one"),
    };
    next.release().await.unwrap();
}

/// Wakes twenty waiters of a different key, one after another. If nothing stalls, all twenty
/// wake-ups together take as long as a single wake-up should take at most.
async fn twenty_waits(scene: &Scene) {
    let key = scene.key();
    let long = scene.options().ttl(scene.long_ttl()).retry(rarely());
    let holder = scene.client_with(long.clone()).await;
    let (client, _faults) = scene.faulty_with(long).await;
    let (started, mut waits) = (Instant::now(), 0);
    while waits < 20 || started.elapsed() < scene.prompt() {
        let guard = holder.mutex(&key).unwrap().lock().await.unwrap();
        let waiting = waiter(scene, &client, client.mutex(&key).unwrap()).await;
        guard.release().await.unwrap();
        waiting.await.unwrap().release().await.unwrap();
        waits += 1;
    }
}

pub(crate) async fn a_waiter_is_served_when_a_dead_holder_expires(scene: &Scene) -> Measured {
    let key = scene.key();
    let dead = scene.backend().await;
    grant(&dead, &scene.lease(&key)).await;
    let (client, faults) = scene.faulty_with(scene.options().retry(rarely())).await;
    faults.set_notifications(Notifications::Muted);

    let asked_at = scene.now();
    let guard = client.mutex(&key).unwrap().lock().await.unwrap();

    let waited = scene.now().since(asked_at);
    let latest = longest(scene, client.backend(), scene.ttl());
    scene.in_time("the waiter acquires the lock", waited, latest)?;
    guard.release().await.unwrap();
    Ok(())
}

pub(crate) async fn one_release_serves_one_and_the_others_go_on_waiting(scene: &Scene) {
    let key = scene.key();
    let holder = scene.client().await;
    let guard = holder.mutex(&key).unwrap().lock().await.unwrap();
    let (served, mut waiting) = (tokio::sync::mpsc::unbounded_channel(), JoinSet::new());
    for _ in 0..6 {
        let client = scene.client().await;
        let (mutex, sender) = (client.mutex(&key).unwrap(), served.0.clone());
        waiting.spawn(async move {
            let guard = mutex.lock().await.unwrap();
            sender.send(guard).unwrap();
        });
    }
    let mut served = served.1;
    scene.pass(scene.ttl() / 5).await;
    found!(served.is_empty()).is(true);

    guard.release().await.unwrap();
    for _ in 0..6 {
        let guard = served.recv().await.unwrap();
        scene.pass(scene.ttl() / 20).await;
        found!(served.is_empty(), "no second caller was served at the same time").is(true);
        found!(guard.is_held()).is(true);
        guard.release().await.unwrap();
    }
}

pub(crate) async fn a_wait_ends_when_it_is_over_and_not_before(scene: &Scene) {
    let key = scene.key();
    let (holder, client) = (scene.client().await, scene.client().await);
    let guard = holder.mutex(&key).unwrap().lock().await.unwrap();
    let wait = scene.ttl() / 4;
    let mutex = client.mutex(&key).unwrap();
    let waits = mutex.clone().with_options(scene.options().wait(wait)).unwrap();

    // The case applies to the store and to another caller in the same process.
    let ours = holder.mutex(&key).unwrap();
    for mutex in [&mutex, &ours] {
        let asked_at = scene.now();
        found!(mutex.try_lock_for(wait).await).is_busy();
        let waited = scene.now().since(asked_at);
        found!(waited).at_least(wait);
        found!(waited).less_than(wait + scene.slack());
    }
    let error = waits.lock().await.unwrap_err();
    found!(error.kind()).is(ErrorKind::Timeout);
    let instant = scene.now();
    found!(mutex.try_lock_until(instant).await).is_busy();
    guard.release().await.unwrap();
}

pub(crate) async fn a_wait_that_ends_during_a_later_attempt_is_a_refusal(scene: &Scene) {
    let key = scene.key();
    let soon = scene.ttl() / 10;
    let options = scene.options().retry(Retry::unlimited().every(soon));
    let (client, faults) = scene.faulty_with(options).await;
    let guard = scene.client().await.mutex(&key).unwrap().lock().await.unwrap();
    let mutex = client.mutex(&key).unwrap();

    // The store replies to the first attempt but not to the next attempt.
    let waiting = start_to_wait(scene, &client, async move { mutex.try_lock_for(soon * 3).await });
    let waiting = waiting.await;
    faults.inject(Operation::Acquire, Fault::SwallowReply, 10);

    found!(
        waiting.await.unwrap().unwrap_err().into_busy().is_ok(),
        "the call reports the lock as busy"
    )
    .is(true);
    let attempts = faults.calls(Operation::Acquire);
    found!(attempts, "the number of attempts").at_least(2);
    guard.release().await.unwrap();
}

pub(crate) async fn one_budget_covers_the_queue_and_the_store(scene: &Scene) {
    let key = scene.key();
    let (holder, client) = (scene.client().await, scene.client().await);
    let guard = holder.mutex(&key).unwrap().lock().await.unwrap();
    let mutex = client.mutex(&key).unwrap();
    let wait = scene.ttl() / 2;

    // The first caller waits for the store. The second caller waits behind the first one, and later
    // waits for the store too.
    let asked_at = scene.now();
    let (first, second) = tokio::join!(mutex.try_lock_for(wait / 2), mutex.try_lock_for(wait));

    found!(first.unwrap_err().into_busy().is_ok()).is(true);
    found!(second.unwrap_err().into_busy().is_ok()).is(true);
    let waited = scene.now().since(asked_at);
    found!(waited).at_least(wait);
    found!(waited).less_than(wait + scene.slack());
    guard.release().await.unwrap();
}

pub(crate) async fn a_flood_of_news_is_no_busy_loop(scene: &Scene) {
    let key = scene.key();
    let holder = scene.client().await;
    let (client, faults) = scene.faulty().await;
    faults.set_notifications(Notifications::Scripted);
    let guard = holder.mutex(&key).unwrap().lock().await.unwrap();
    let waiting = waiter(scene, &client, client.mutex(&key).unwrap()).await;

    let flood_ends = scene.now() + scene.ttl() / 2;
    while scene.now() < flood_ends {
        faults.notify_falsely(&key);
        scene.pass(Duration::from_micros(200)).await;
    }

    let attempts = faults.calls(Operation::Acquire);
    // The client makes one attempt every 10 ms, plus a few attempts before it detects the flood.
    let most = usize::try_from(scene.ttl().as_millis() / 2 / 10).unwrap() + 20;
    found!(attempts, "the number of attempts").at_most(most);
    found!(waiting.is_finished(), "the waiter treated a notification as a grant").is(false);
    guard.release().await.unwrap();
    waiting.await.unwrap().release().await.unwrap();
}

pub(crate) async fn a_thousand_waiters_of_a_process_are_one_to_the_store(scene: &Scene) {
    const WAITERS: usize = 1_000;

    let key = scene.key();
    let holder = scene.client().await;
    let pause = scene.ttl() / 10;
    let options = scene.options().retry(Retry::unlimited().every(pause));
    let (client, faults) = scene.faulty_with(options).await;
    let guard = holder.mutex(&key).unwrap().lock().await.unwrap();
    let mut waiting = JoinSet::new();
    for _ in 0..WAITERS {
        let mutex = client.mutex(&key).unwrap();
        waiting.spawn(async move { mutex.lock().await.unwrap().release().await.unwrap() });
    }

    scene.pass(scene.ttl()).await;

    // All waiters together make one attempt per pause and one attempt per notification of a
    // renewal.
    let attempts = faults.calls(Operation::Acquire);
    found!(attempts, "the number of attempts by {WAITERS} waiters").at_most(30);
    guard.release().await.unwrap();
    for _ in 0..scene.rounds(WAITERS) {
        waiting.join_next().await.expect("a waiter was not served").unwrap();
    }
    waiting.shutdown().await;
}

pub(crate) async fn callers_of_a_process_are_served_in_order(scene: &Scene) {
    let key = scene.key();
    let (client, _faults) = scene.faulty().await;
    let guard = client.mutex(&key).unwrap().lock().await.unwrap();
    let (sender, mut served) = tokio::sync::mpsc::unbounded_channel();
    let mut waiting = JoinSet::new();
    for n in 0..10 {
        let (mutex, sender) = (client.mutex(&key).unwrap(), sender.clone());
        // Each caller is queued before the next caller starts.
        waiting.spawn(begun(async move {
            let guard = mutex.lock().await.unwrap();
            sender.send(n).unwrap();
            guard.release().await.unwrap();
        }));
    }

    guard.release().await.unwrap();
    while let Some(done) = waiting.join_next().await {
        done.unwrap();
    }

    drop(sender);
    let mut order = Vec::new();
    while let Some(n) = served.recv().await {
        order.push(n);
    }
    found!(order).is((0..10).collect::<Vec<_>>());
}

pub(crate) async fn too_many_waiters_are_refused_at_once(scene: &Scene) {
    let key = scene.key();
    let holder = scene.client().await;
    let guard = holder.mutex(&key).unwrap().lock().await.unwrap();
    let builder = LockClient::builder(scene.backend().await).clock(scene.clock());
    let client = builder.options(scene.options()).max_waiters(2).build().unwrap();
    let mutex = client.mutex(&key).unwrap();
    let mut waiting = JoinSet::new();
    // The caller that contacts the store also counts.
    for _ in 0..2 {
        let mutex = mutex.clone();
        let lock = async move { mutex.lock().await.unwrap().release().await.unwrap() };
        waiting.spawn(begun(lock));
    }

    let refused = mutex.lock().await.unwrap_err();

    found!(refused.kind()).is(ErrorKind::TooManyWaiters);
    guard.release().await.unwrap();
    while let Some(done) = waiting.join_next().await {
        done.unwrap();
    }
}
