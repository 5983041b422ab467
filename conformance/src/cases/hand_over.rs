//! If the store can reserve tokens, a process hands off a lease from task to task without
//! contacting the store.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use leasehold_core::backend::{Attempt, Claim, Feature, LockBackend, Mode, Operation, Reply};
use leasehold_core::clock::Clock;
use leasehold_core::fault::FaultBackend;
use leasehold_core::{Error, LockClient, LockGuard, LockOptions, Mutex, OwnerId};
use tokio::sync::Notify;
use tokio::task::JoinSet;

use super::contention_of_waiter;
use crate::scene::Scene;

fn long(scene: &Scene) -> LockOptions {
    scene.options().ttl(scene.long_ttl()).hand_over(true)
}

fn calls<B: LockBackend>(client: &LockClient<FaultBackend<B>>) -> usize {
    let faults = client.backend().faults();
    faults.calls(Operation::Acquire) + faults.calls(Operation::Release)
}

/// Starts calls that lock `mutex` in this order, and awaits `release`, which releases the lock. When the first
/// call is granted the lock, the remaining calls are already waiting in this process. Only waiting
/// calls can receive a lease by hand-off.
async fn calls_behind<'a>(
    release: impl Future<Output = Result<(), Error>>,
    mutex: &'a Mutex,
    count: usize,
) -> (LockGuard, VecDeque<Call<'a>>) {
    let mut calls: VecDeque<_> = (0..count).map(|_| mutex.lock().boxed()).collect();
    for call in &mut calls {
        found!(call.now_or_never().is_none()).is(true);
    }
    let first = calls.pop_front().expect("at least one call is waiting");
    let (released, guard) = tokio::join!(release, first);
    released.unwrap();
    (guard.unwrap(), calls)
}

type Call<'a> = BoxFuture<'a, Result<LockGuard, Error>>;

pub(crate) async fn a_lease_passes_to_the_next_task_without_a_request(scene: &Scene) {
    let key = scene.key();
    let (client, faults) = scene.faulty_with(long(scene)).await;
    let (mutex, other) = (client.mutex(&key).unwrap(), scene.client().await);
    let refused = Arc::new(Notify::new());
    let notify = Arc::clone(&refused);
    faults.on_reply(move |_, reply| {
        if matches!(reply, Reply::Attempt(Attempt::Held(_))) {
            notify.notify_one();
        }
        Ok(reply)
    });
    // If tokens are based on a clock, a key has spare tokens only after the clock has advanced
    // since the first grant.
    let held = other.mutex(&key).unwrap().lock().await.unwrap();
    scene.pass(Duration::from_millis(10)).await;
    // The first caller has to wait, so the client receives the store's notifications when it is granted
    // the lock. A client that starts to receive them asks the store before its next hand-off.
    let release = async {
        refused.notified().await;
        held.release().await
    };
    let (mut guard, next) = calls_behind(release, &mutex, 4).await;
    let before = calls(&client);

    for next in next {
        let token = guard.token().clone();
        guard.release().await.unwrap();
        guard = next.await.unwrap();
        found!(*guard.token(), "the next holder's token").more_than(token);
    }

    found!(calls(&client), "the hand-off sent a request to the store").is(before);
    found!(scene.probe(&key).await.is_some()).is(true);
    let last = guard.token().clone();
    guard.release().await.unwrap();
    found!(scene.probe(&key).await.is_none()).is(true);
    let guard = other.mutex(&key).unwrap().lock().await.unwrap();
    found!(*guard.token(), "the store's next token").more_than(last);
    guard.release().await.unwrap();
}

pub(crate) async fn spare_tokens_belong_to_one_grant(scene: &Scene) {
    let (key, backend) = (scene.key(), scene.backend().await);
    let mut last = 0;
    for spare in [0, 5, 1_000, 0, 3].into_iter().cycle().take(50) {
        let claim = Claim::new(scene.lease(&key)).with_spare_tokens(spare);
        let Attempt::Granted(grant) = backend.acquire(&claim).await.unwrap() else {
            panic!("a claim for a free lock: found a refusal, expected a grant");
        };
        found!(grant.token()).more_than(last);
        found!(grant.spare_tokens()).at_most(spare);
        last = grant.token() + u64::from(grant.spare_tokens());
        backend.release(claim.lease()).await.unwrap();
    }
}

pub(crate) async fn a_caller_that_leaves_with_the_lease_in_hand_passes_it_on(scene: &Scene) {
    let key = scene.key();
    let client = scene.client_with(long(scene)).await;
    let (mutex, other) = (client.mutex(&key).unwrap(), scene.client().await);
    let held = other.mutex(&key).unwrap().lock().await.unwrap();
    let (guard, mut leaves) = calls_behind(held.release(), &mutex, 5).await;
    let stays = leaves.pop_back().unwrap();

    guard.release().await.unwrap();
    drop(leaves);

    stays.await.unwrap().release().await.unwrap();
    scene.until_free(&key, Duration::ZERO).await;
}

pub(crate) async fn the_last_caller_to_leave_gives_the_lease_back(scene: &Scene) {
    let key = scene.key();
    let client = scene.client_with(long(scene)).await;
    let (mutex, other) = (client.mutex(&key).unwrap(), scene.client().await);
    let held = other.mutex(&key).unwrap().lock().await.unwrap();
    let (guard, leaves) = calls_behind(held.release(), &mutex, 2).await;

    guard.release().await.unwrap();
    drop(leaves);

    scene.until_free(&key, Duration::ZERO).await;
    mutex.lock().await.unwrap().release().await.unwrap();
}

pub(crate) async fn a_lost_lease_is_not_passed_on(scene: &Scene) {
    let key = scene.key();
    let (client, other) = (scene.client().await, scene.client().await);
    let mutex = client.mutex(&key).unwrap();
    let held = other.mutex(&key).unwrap().lock().await.unwrap();
    let (guard, mut next) = calls_behind(held.release(), &mutex, 2).await;
    let next = next.pop_front().unwrap();

    let operator = scene.client().await;
    operator.admin().force_release(&key, "conformance").await.unwrap();
    let lost = scene.within(scene.ttl() * 2, guard.lost()).await;
    lost.expect("the holder did not notice the forced release in time");
    let token = guard.token().clone();
    drop(guard);

    let guard = next.await.unwrap();
    found!(guard.is_held()).is(true);
    found!(*guard.token()).more_than(token);
    found!(scene.probe(&key).await.is_some(), "the store shows a lease of the next holder")
        .is(true);
    guard.release().await.unwrap();
}

pub(crate) async fn a_loss_is_only_the_present_holders(scene: &Scene) {
    let key = scene.key();
    let (client, other) = (scene.client().await, scene.client().await);
    let mutex = client.mutex(&key).unwrap();
    let held = other.mutex(&key).unwrap().lock().await.unwrap();
    let (guard, mut next) = calls_behind(held.release(), &mutex, 2).await;
    let (mut former, next) = (Box::pin(guard.lost()), next.pop_front().unwrap());
    guard.release().await.unwrap();
    let guard = next.await.unwrap();

    let operator = scene.client().await;
    operator.admin().force_release(&key, "conformance").await.unwrap();

    let lost = scene.within(scene.ttl() * 2, guard.lost()).await;
    lost.expect("the new holder did not notice the forced release in time");
    found!(
        (&mut former).now_or_never(),
        "a holder that had handed off its lease received a loss notification"
    )
    .is(Some(None));
}

/// Holds the lock for one millisecond.
async fn work_under(mutex: &Mutex, clock: &dyn Clock) {
    let guard = mutex.lock().await.unwrap();
    clock.sleep_until(clock.now() + Duration::from_millis(1)).await;
    guard.release().await.unwrap();
}

pub(crate) async fn other_processes_get_their_turn(scene: &Scene) {
    let key = scene.key();
    let (busy, other) =
        (scene.client_with(long(scene)).await, scene.client_with(long(scene)).await);
    let mut tasks = JoinSet::new();
    for _ in 0..4 {
        let (mutex, clock) = (busy.mutex(&key).unwrap(), scene.clock());
        tasks.spawn(async move {
            loop {
                work_under(&mutex, &*clock).await;
            }
        });
    }

    let mutex = other.mutex(&key).unwrap();
    for _ in 0..5 {
        let served = mutex.try_lock_for(scene.ttl() * 10).await.unwrap();
        served.release().await.unwrap();
    }
    tasks.shutdown().await;
}

pub(crate) async fn processes_that_want_it_all_the_time_get_fair_shares(scene: &Scene) {
    const LOCKS: usize = 300;

    let contention = contention_of_waiter(scene, Mode::Exclusive).await;
    found!(contention.queue_entry().is_some(), "a waiting claim is queued").is(true);
    let has_push = scene.backend().await.capabilities().supports(Feature::Push);
    // A waiter that polls often misses the reservation, but must not starve.
    let factor = if has_push || contention.woken_by().is_some() { 2 } else { 30 };
    let key = scene.key();
    let clients = [scene.client_with(long(scene)).await, scene.client_with(long(scene)).await];
    let counts = Arc::new([AtomicUsize::new(0), AtomicUsize::new(0)]);
    let mut tasks = JoinSet::new();
    for task in 0..6 {
        let process = task % clients.len();
        let mutex = clients[process].mutex(&key).unwrap();
        let (counts, clock) = (Arc::clone(&counts), scene.clock());
        tasks.spawn(async move {
            while counts.iter().map(|count| count.load(Ordering::Relaxed)).sum::<usize>() < LOCKS {
                work_under(&mutex, &*clock).await;
                counts[process].fetch_add(1, Ordering::Relaxed);
            }
        });
    }
    tasks.join_all().await;

    let [one, other] = counts.each_ref().map(|count| count.load(Ordering::Relaxed));
    for (more, less) in [(one, other), (other, one)] {
        found!(more, "the acquisitions of one process, with {less} of the other process")
            .at_most(less * factor);
    }
}

pub(crate) async fn a_former_owner_does_not_enter_again(scene: &Scene) {
    let key = scene.key();
    let client = scene.client_with(long(scene)).await;
    let mutex = client.reentrant_mutex(&key).unwrap();
    let (first, second) = (OwnerId::new(), OwnerId::new());
    let guard = first.scope(mutex.lock()).await.unwrap();
    let mut next = Box::pin(second.scope(mutex.lock()));
    found!((&mut next).now_or_never().is_none()).is(true);

    guard.release().await.unwrap();
    let guard: LockGuard = next.await.unwrap();

    found!(
        first.scope(mutex.try_lock()).await.unwrap_err().into_busy().is_ok(),
        "the first owner is refused a lock that was handed off to another owner"
    )
    .is(true);
    let again = second.scope(mutex.try_lock()).await.unwrap();
    found!(again.token()).is(guard.token());
    guard.release().await.unwrap();
    found!(first.scope(mutex.try_lock()).await.unwrap_err().into_busy().is_ok()).is(true);
    again.release().await.unwrap();
    let guard = first.scope(mutex.try_lock()).await.unwrap();
    guard.release().await.unwrap();
}

pub(crate) async fn without_it_every_holder_asks_the_store(scene: &Scene) {
    for apart in [
        long(scene).hand_over(false),
        long(scene).max_hold(scene.ttl() * 10),
        long(scene).lock_delay(scene.ttl()),
    ] {
        let key = scene.key();
        let (client, faults) = scene.faulty_with(apart).await;
        let (mutex, other) = (client.mutex(&key).unwrap(), scene.client().await);
        let held = other.mutex(&key).unwrap().lock().await.unwrap();
        let (guard, mut next) = calls_behind(held.release(), &mutex, 2).await;
        let next = next.pop_front().unwrap();
        let before = faults.calls(Operation::Acquire);

        guard.release().await.unwrap();
        next.await.unwrap().release().await.unwrap();

        found!(faults.calls(Operation::Acquire)).more_than(before);
    }
}

pub(crate) async fn a_caller_that_wants_another_lease_asks_the_store(scene: &Scene) {
    let key = scene.key();
    let (client, faults) = scene.faulty_with(long(scene)).await;
    let (mutex, holder) = (client.mutex(&key).unwrap(), scene.client().await);
    let holder = holder.mutex(&key).unwrap();
    let shorter = scene.ttl() * 2;
    let with_grace = long(scene).loss_grace(scene.ttl() / 4);
    for (others, ttl) in [(long(scene).ttl(shorter), shorter), (with_grace, scene.long_ttl())] {
        let other = mutex.clone().with_options(others).unwrap();
        let held = holder.lock().await.unwrap();
        let mut first = mutex.lock().boxed();
        found!((&mut first).now_or_never().is_none()).is(true);
        // Only calls that wait when the grant arrives can receive a lease by hand-off.
        let mut next = other.lock().boxed();
        found!((&mut next).now_or_never().is_none()).is(true);
        let (released, guard) = tokio::join!(held.release(), first);
        released.unwrap();
        let before = faults.calls(Operation::Acquire);

        guard.unwrap().release().await.unwrap();
        let guard = next.await.unwrap();

        found!(faults.calls(Operation::Acquire)).more_than(before);
        found!(guard.remaining()).at_most(ttl);
        guard.release().await.unwrap();
    }
}
