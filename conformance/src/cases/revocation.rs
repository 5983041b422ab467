//! Asking a holder to finish early.

use std::time::Duration;

use leasehold_core::{LeaseState, LockGuard, Revocation};
use tokio::time::timeout;

use crate::harness::Harness;
use crate::scene::Scene;

/// Waits until the holder has learnt that it is asked back, `within` that time and slack.
async fn learns<H: Harness>(scene: &Scene<H>, guard: &LockGuard, within: Duration) {
    let told = timeout(within + scene.slack(), guard.revocation_requested()).await;
    assert!(told.is_ok(), "it was not told within {within:?}");
    assert!(guard.is_revocation_requested());
}

pub(crate) async fn a_holder_that_is_asked_back_learns_of_it_and_goes_on<H: Harness>(
    scene: &Scene<H>,
) {
    let key = scene.key();
    let (client, other) = (scene.client().await, scene.client().await);
    let nobody = other.request_revocation(&key).await.unwrap();
    assert_eq!(nobody, Revocation::NotHeld);
    let guard = client.mutex(&key).unwrap().lock().await.unwrap();
    assert!(!guard.is_revocation_requested());

    let asked = other.request_revocation(&key).await.unwrap();

    assert_eq!(asked, Revocation::Requested);
    learns(scene, &guard, scene.ttl()).await;
    scene.pass(scene.ttl() * 2).await;
    assert_eq!(guard.state(), LeaseState::Held, "nothing else happens to it");
    guard.release().await.unwrap();
}

pub(crate) async fn a_holder_is_told_at_once_where_the_store_tells<H: Harness>(scene: &Scene<H>) {
    let key = scene.key();
    let long = scene.options().ttl(scene.ttl() * 60);
    let (client, other) = (scene.client_with(long).await, scene.client().await);
    let guard = client.mutex(&key).unwrap().lock().await.unwrap();

    other.request_revocation(&key).await.unwrap();

    learns(scene, &guard, Duration::ZERO).await;
    guard.release().await.unwrap();
}

pub(crate) async fn the_next_holder_is_not_asked<H: Harness>(scene: &Scene<H>) {
    let key = scene.key();
    let (client, other) = (scene.client().await, scene.client().await);
    let mutex = client.mutex(&key).unwrap();
    let guard = mutex.lock().await.unwrap();
    other.request_revocation(&key).await.unwrap();
    learns(scene, &guard, scene.ttl()).await;
    guard.release().await.unwrap();

    let next = mutex.lock().await.unwrap();

    scene.pass(scene.ttl()).await;
    assert!(!next.is_revocation_requested());
    next.release().await.unwrap();
}

pub(crate) async fn all_who_share_a_key_are_asked<H: Harness>(scene: &Scene<H>) {
    let key = scene.key();
    let (one, other) = (scene.client().await, scene.client().await);
    let guards = [
        one.semaphore(&key, 3).unwrap().acquire(1).await.unwrap(),
        one.semaphore(&key, 3).unwrap().acquire(1).await.unwrap(),
        other.semaphore(&key, 3).unwrap().acquire(1).await.unwrap(),
    ];

    one.request_revocation(&key).await.unwrap();

    for guard in &guards {
        learns(scene, guard, scene.ttl()).await;
    }
    for guard in guards {
        guard.release().await.unwrap();
    }
    let next = one.semaphore(&key, 3).unwrap().acquire(1).await.unwrap();
    scene.pass(scene.ttl()).await;
    assert!(!next.is_revocation_requested());
    next.release().await.unwrap();
}
