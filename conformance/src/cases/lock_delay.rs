//! A key stays locked for the configured delay after its lease is lost.

use std::time::Duration;

use leasehold_core::backend::{LockBackend, Operation};
use leasehold_core::fault::Fault;
use leasehold_core::{ErrorKind, LossReason};

use super::longest;
use crate::scene::Scene;
use crate::stalls::Measured;

pub(crate) async fn a_lost_lock_stays_closed_for_the_delay(scene: &Scene) -> Measured {
    let key = scene.key();
    let (ttl, delay) = (scene.ttl(), scene.ttl());
    let (client, faults) = scene.faulty_with(scene.options().lock_delay(delay)).await;
    let other = scene.client().await;
    let guard = client.mutex(&key).unwrap().lock().await.unwrap();
    // The lease is renewed once, and then the client is cut off.
    scene.pass(ttl / 2).await;
    faults.inject(Operation::Renew, Fault::Fail(ErrorKind::Unavailable), 1_000);

    found!(guard.lost().await).is(Some(LossReason::Expired));
    let lost_at = guard.deadline();
    drop(guard);
    let next = other.mutex(&key).unwrap().lock().await.unwrap();

    let closed = scene.now().since(lost_at);
    found!(
        closed + Duration::from_millis(20),
        "the time for which the key was locked, with a tolerance"
    )
    .at_least(delay);
    let latest = longest(scene, other.backend(), delay + ttl / 10);
    scene.in_time("the key becomes free after the lock delay", closed, latest)?;
    next.release().await.unwrap();
    Ok(())
}

pub(crate) async fn a_request_that_hangs_is_repeated_without_the_delay(scene: &Scene) {
    let key = scene.key();
    let (client, faults) =
        scene.faulty_with(scene.options().lock_delay(scene.long_ttl() - scene.ttl())).await;
    faults.inject(Operation::Acquire, Fault::SwallowRequest, 1);

    let locked =
        scene.within(scene.ttl() + scene.slack(), client.mutex(&key).unwrap().lock()).await;

    let guard = locked
        .expect("the request that hung was not retried before the lock delay had passed")
        .unwrap();
    guard.release().await.unwrap();
}

pub(crate) async fn a_background_release_goes_on_through_the_delay(scene: &Scene) {
    let key = scene.key();
    let (client, faults) =
        scene.faulty_with(scene.options().lock_delay(scene.long_ttl() - scene.ttl())).await;
    let guard = client.mutex(&key).unwrap().lock().await.unwrap();
    faults.inject(Operation::Release, Fault::Fail(ErrorKind::Unavailable), 10_000);

    drop(guard);
    scene.pass(scene.ttl() * 3 / 2).await;
    found!(scene.probe(&key).await.is_some(), "the store keeps the lock during the lock delay")
        .is(true);
    faults.heal();

    // The waiter retries every second.
    scene.until_free(&key, Duration::from_secs(1)).await;
}

pub(crate) async fn the_longest_ttl_is_that_of_the_whole(scene: &Scene) {
    let key = scene.key();
    let delay = scene.ttl();
    let client = scene.client_with(scene.options().lock_delay(delay)).await;
    let longest = client.backend().capabilities().max_ttl();
    let guard = client.mutex(&key).unwrap().lock().await.unwrap();

    let error = guard.extend(longest).await.unwrap_err();
    found!(error.kind(), "{error}").is(ErrorKind::Invalid);
    guard.extend(longest - delay).await.unwrap();

    let stored = scene.probe(&key).await.unwrap().remaining().unwrap();
    found!(stored).at_most(longest);
    found!(stored).more_than(longest - delay);
    guard.release().await.unwrap();
}

pub(crate) async fn a_released_lock_opens_at_once(scene: &Scene) {
    let key = scene.key();
    let client =
        scene.client_with(scene.options().lock_delay(scene.long_ttl() - scene.ttl())).await;
    let mutex = client.mutex(&key).unwrap();
    let guard = mutex.lock().await.unwrap();
    found!(guard.remaining(), "the remaining time of the guard, without the lock delay")
        .at_most(scene.ttl());

    guard.release().await.unwrap();
    scene.until_free(&key, Duration::ZERO).await;
    drop(mutex.lock().await.unwrap());
    scene.until_free(&key, Duration::ZERO).await;
}
