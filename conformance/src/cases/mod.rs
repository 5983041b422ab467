//! The cases: plain generic functions, each a sentence that can be false.

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
    Attempt, Claim, Contention, Grant, Lease, LockBackend, Patience, Share,
};
use leasehold_core::fault::FaultBackend;
use leasehold_core::{LeaseState, LockClient, LockGuard, LockOptions};
use tokio::task::JoinHandle;

use crate::driven::Observed;
use crate::harness::Time;
use crate::scene::Scene;

/// Attempts, and expects a grant.
pub(crate) async fn grant<B: LockBackend>(backend: &B, lease: &Lease) -> Grant {
    match backend.try_acquire(&Claim::new(lease.clone())).await.unwrap() {
        Attempt::Granted(grant) => grant,
        Attempt::Held(contention) => panic!("held: {contention:?}"),
    }
}

/// Attempts, and expects that others hold the key.
pub(crate) async fn refusal<B: LockBackend>(backend: &B, lease: &Lease) -> Contention {
    match backend.try_acquire(&Claim::new(lease.clone())).await.unwrap() {
        Attempt::Granted(grant) => panic!("granted: {grant:?}"),
        Attempt::Held(contention) => contention,
    }
}

/// Whether a waiter stands in the store's queue though it did not ask for a place, so that no later claim passes it.
pub(crate) async fn waiting_is_queueing(scene: &Scene, share: Share) -> bool {
    let (key, backend) = (scene.key(), scene.backend().await);
    let lease = || scene.lease(&key).with_share(share);
    let (holder, waiter) = (lease(), lease());
    grant(&backend, &holder).await;
    let claim = Claim::new(waiter.clone()).with_patience(Patience::Waits);
    let Attempt::Held(contention) = backend.try_acquire(&claim).await.unwrap() else {
        panic!("it is held");
    };
    backend.release(&waiter).await.unwrap();
    backend.release(&holder).await.unwrap();
    contention.place().is_some()
}

/// How late the store may end a lease: it rounds TTLs up to this.
pub(crate) fn granularity<B: LockBackend>(backend: &B) -> Duration {
    backend.capabilities().ttl_granularity()
}

/// The longest first pause of a caller that waits without news: [`Retry::default`](leasehold_core::retry::Retry) draws one of up to 50 ms.
const FIRST_PAUSE: Duration = Duration::from_millis(50);

/// How late news of the store may reach a client. Without news, the client finds out when it looks: after its first pause, or after
/// a third of this TTL, as a lease or a place with it makes the client do. A machine that is busy is late, and seldom as late as that.
pub(crate) fn told_within(scene: &Scene, ttl: Duration) -> Duration {
    match scene.time() {
        Time::Real => ttl * 3 / 10,
        Time::Driven | Time::Virtual => FIRST_PAUSE + scene.slack(),
    }
}

/// How late news of the store may reach a waiter.
pub(crate) fn promptly(scene: &Scene) -> Duration {
    told_within(scene, LockOptions::PLACE_TTL)
}

/// The longest time for which the store may keep an unrenewed lease with this TTL.
pub(crate) fn longest<B: LockBackend>(scene: &Scene, backend: &B, ttl: Duration) -> Duration {
    ttl + granularity(backend) + scene.slack()
}

/// Lets time pass until a lease with this TTL has surely ended by itself.
pub(crate) async fn pass_the_end<B: LockBackend>(scene: &Scene, backend: &B, ttl: Duration) {
    scene.pass(longest(scene, backend, ttl)).await;
}

/// Waits until a lease is surely held: it may be unconfirmed meanwhile, and one that is lost never is again.
pub(crate) async fn until_held(scene: &Scene, guard: &LockGuard, within: Duration, event: &str) {
    scene.until(event, within, async || guard.state() == LeaseState::Held).await;
}

/// A call that has begun: one that waits stands in its client's queue already.
pub(crate) fn begun<T: Send>(
    call: impl Future<Output = T> + Send,
) -> impl Future<Output = T> + Send {
    let mut call = Box::pin(call);
    let mut output = call.as_mut().now_or_never();
    poll_fn(move |cx| output.take().map_or_else(|| call.as_mut().poll(cx), Poll::Ready))
}

/// Starts to wait for a lock of `client` in another task, and returns once it waits.
pub(crate) async fn start_to_wait<T: Send + 'static>(
    scene: &Scene,
    client: &LockClient<FaultBackend<Observed>>,
    lock: impl Future<Output = T> + Send + 'static,
) -> JoinHandle<T> {
    let faults = client.backend().faults().clone();
    // Earlier waiters may ask again meanwhile.
    let before = faults.asked_for();
    let task = tokio::spawn(lock);
    let waits = async || faults.asked_for() > before;
    scene.until("it waits", scene.ttl() * 2, waits).await;
    task
}
