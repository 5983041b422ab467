//! The cases, as generic functions whose names are statements that a store must satisfy.

pub(crate) mod bad_input;
pub(crate) mod cancellation;
pub(crate) mod election;
pub(crate) mod expiry;
pub(crate) mod fair;
pub(crate) mod fencing;
pub(crate) mod hand_over;
pub(crate) mod inspection;
pub(crate) mod lock_delay;
pub(crate) mod lost;
pub(crate) mod membership;
pub(crate) mod multi_lock;
pub(crate) mod mutual_exclusion;
pub(crate) mod reentrancy;
pub(crate) mod release;
pub(crate) mod renewal;
pub(crate) mod retry;
pub(crate) mod revocation;
pub(crate) mod rw_lock;
pub(crate) mod semaphore;
pub(crate) mod striped;
pub(crate) mod together;
pub(crate) mod waiting;

use std::future::poll_fn;
use std::task::Poll;
use std::time::Duration;

use futures_util::FutureExt;
use leasehold_core::backend::{
    Attempt, Claim, Contention, Feature, Grant, Lease, LockBackend, Mode, Patience,
};
use leasehold_core::fault::FaultBackend;
use leasehold_core::{LeaseState, LockClient, LockGuard, LockOptions};
use tokio::task::JoinHandle;

use crate::driven::Observed;
use crate::harness::Time;
use crate::scene::Scene;

/// Makes one attempt, which must succeed.
pub(crate) async fn grant<B: LockBackend>(backend: &B, lease: &Lease) -> Grant {
    match backend.acquire(&Claim::new(lease.clone())).await.unwrap() {
        Attempt::Granted(grant) => grant,
        Attempt::Held(contention) => {
            panic!("a claim for a free key: found a refusal, {contention:?}, expected a grant")
        }
    }
}

/// Makes one attempt, which must fail because the key is held.
pub(crate) async fn refusal<B: LockBackend>(backend: &B, lease: &Lease) -> Contention {
    match backend.acquire(&Claim::new(lease.clone())).await.unwrap() {
        Attempt::Granted(grant) => {
            panic!("a claim for a held key: found {grant:?}, expected a refusal")
        }
        Attempt::Held(contention) => contention,
    }
}

/// Returns whether the store queues a waiter that did not request a queue entry, so that no later
/// claim overtakes the waiter.
pub(crate) async fn waiting_is_queueing(scene: &Scene, mode: Mode) -> bool {
    contention_of_waiter(scene, mode).await.queue_entry().is_some()
}

/// Returns the details of a refused claim whose caller waits.
pub(crate) async fn contention_of_waiter(scene: &Scene, mode: Mode) -> Contention {
    let (key, backend) = (scene.key(), scene.backend().await);
    let lease = || scene.lease(&key).with_mode(mode);
    let (holder, waiter) = (lease(), lease());
    grant(&backend, &holder).await;
    let claim = Claim::new(waiter.clone()).with_patience(Patience::Waits);
    let Attempt::Held(contention) = backend.acquire(&claim).await.unwrap() else {
        panic!("a claim for a held key: found a grant, expected a refusal");
    };
    backend.release(&waiter).await.unwrap();
    backend.release(&holder).await.unwrap();
    contention
}

/// Returns how late the store may expire a lease, because the store rounds TTLs up to this unit.
pub(crate) fn granularity<B: LockBackend>(backend: &B) -> Duration {
    backend.capabilities().ttl_granularity()
}

/// The longest first pause of a caller that waits without notifications.
/// [`Retry::default`](leasehold_core::retry::Retry) chooses a pause of up to 50 ms.
const FIRST_PAUSE: Duration = Duration::from_millis(50);

/// Returns how late a notification from the store may reach a client. Without notifications, the
/// client finds out when it polls, which is after its first pause, or after one third of the TTL of
/// its lease or queue entry. Even on a busy machine, a notification is rarely this late.
pub(crate) fn told_within(scene: &Scene, ttl: Duration) -> Duration {
    match scene.time() {
        Time::Real => ttl * 3 / 10,
        Time::Driven | Time::Virtual => FIRST_PAUSE + scene.slack(),
    }
}

/// Returns how long a waiter may take to find out that it can be granted. Without notifications,
/// the waiter polls.
pub(crate) fn woken_within<B: LockBackend>(scene: &Scene, backend: &B) -> Duration {
    /// The longest pause that [`Retry::default`](leasehold_core::retry::Retry) chooses.
    const LONGEST_PAUSE: Duration = Duration::from_secs(1);
    match backend.capabilities().supports(Feature::Push) {
        true => scene.slack(),
        false => LONGEST_PAUSE + scene.slack(),
    }
}

/// Returns how late a notification from the store may reach a waiter.
pub(crate) fn promptly(scene: &Scene) -> Duration {
    told_within(scene, LockOptions::PLACE_TTL)
}

/// Returns the longest time for which the store may keep an unrenewed lease with this TTL.
pub(crate) fn longest<B: LockBackend>(scene: &Scene, backend: &B, ttl: Duration) -> Duration {
    ttl + granularity(backend) + scene.slack()
}

/// Lets time pass until a lease with this TTL has certainly expired.
pub(crate) async fn pass_the_end<B: LockBackend>(scene: &Scene, backend: &B, ttl: Duration) {
    scene.pass(longest(scene, backend, ttl)).await;
}

/// Waits until a lease is certainly held. The lease may be unconfirmed in the meantime. A lost
/// lease is never held again.
pub(crate) async fn until_held(scene: &Scene, guard: &LockGuard, within: Duration, event: &str) {
    scene.until(event, within, async || guard.state() == LeaseState::Held).await;
}

/// Starts a call. If the call has to wait, it is already in its client's queue.
pub(crate) fn begun<T: Send>(
    call: impl Future<Output = T> + Send,
) -> impl Future<Output = T> + Send {
    let mut call = Box::pin(call);
    let mut output = call.as_mut().now_or_never();
    poll_fn(move |cx| output.take().map_or_else(|| call.as_mut().poll(cx), Poll::Ready))
}

/// Starts a task that waits for a lock of `client`, and returns when the task is waiting.
pub(crate) async fn start_to_wait<T: Send + 'static>(
    scene: &Scene,
    client: &LockClient<FaultBackend<Observed>>,
    lock: impl Future<Output = T> + Send + 'static,
) -> JoinHandle<T> {
    let faults = client.backend().faults().clone();
    // Earlier waiters may retry in the meantime.
    let before = faults.asked_for();
    let task = tokio::spawn(lock);
    let waits = async || faults.asked_for() > before;
    scene.until("the call waits", scene.ttl() * 2, waits).await;
    task
}
