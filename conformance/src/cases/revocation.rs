//! A holder can be asked to finish early.

use std::time::Duration;

use leasehold_core::admin::Revocation;
use leasehold_core::backend::{Claim, LockBackend, Mode, Patience, Renewal, StoreAdmin};
use leasehold_core::{LeaseState, LockGuard};

use super::{grant, pass_the_end, told_within};
use crate::scene::Scene;

/// Waits until the holder has received the revocation request.
async fn learns(scene: &Scene, guard: &LockGuard, within: Duration) {
    let told = scene.within(within, guard.revocation_requested()).await;
    found!(told.is_some(), "the holder receives the revocation request within {within:?}").is(true);
    found!(guard.is_revocation_requested()).is(true);
}

pub(crate) async fn a_holder_that_is_asked_back_learns_of_it_and_goes_on(scene: &Scene) {
    let key = scene.key();
    let (client, other) = (scene.client().await, scene.client().await);
    let outcome = other.request_revocation(&key).await.unwrap();
    found!(outcome).is(Revocation::NotHeld);
    let guard = client.mutex(&key).unwrap().lock().await.unwrap();
    found!(guard.is_revocation_requested()).is(false);

    let asked = other.request_revocation(&key).await.unwrap();

    found!(asked).is(Revocation::Requested);
    learns(scene, &guard, scene.ttl()).await;
    scene.pass(scene.ttl() * 2).await;
    found!(guard.state(), "a revocation request ended the lease").is(LeaseState::Held);
    found!(guard.is_revocation_requested(), "the revocation is still requested").is(true);
    guard.release().await.unwrap();
}

pub(crate) async fn a_holder_is_told_at_once_where_the_store_tells(scene: &Scene) {
    let key = scene.key();
    let long = scene.options().ttl(scene.long_ttl());
    let (client, other) = (scene.client_with(long).await, scene.client().await);
    let guard = client.mutex(&key).unwrap().lock().await.unwrap();

    other.request_revocation(&key).await.unwrap();

    learns(scene, &guard, told_within(scene, scene.long_ttl())).await;
    guard.release().await.unwrap();
}

pub(crate) async fn the_next_holder_is_not_asked(scene: &Scene) {
    let key = scene.key();
    let (client, other) = (scene.client().await, scene.client().await);
    let mutex = client.mutex(&key).unwrap();
    let guard = mutex.lock().await.unwrap();
    other.request_revocation(&key).await.unwrap();
    learns(scene, &guard, scene.ttl()).await;
    guard.release().await.unwrap();

    let next = mutex.lock().await.unwrap();

    scene.pass(scene.ttl()).await;
    found!(next.is_revocation_requested()).is(false);
    next.release().await.unwrap();
}

pub(crate) async fn a_request_ends_with_the_lease_that_it_was_for(scene: &Scene) {
    let key = scene.key();
    let backend = scene.backend().await;
    let lease = scene.lease(&key).with_ttl(scene.long_ttl());
    grant(&backend, &lease).await;
    backend.request_revocation(&key, None).await.unwrap();

    // At the time of the request, the lease was valid for longer.
    let short = lease.with_ttl(scene.ttl() / 2);
    found!(backend.renew(&short).await.unwrap()).is(Renewal::RevocationRequested);
    pass_the_end(scene, &backend, short.ttl()).await;

    let next = scene.lease(&key);
    grant(&backend, &next).await;
    found!(backend.renew(&next).await.unwrap()).is(Renewal::Renewed);
    backend.release(&next).await.unwrap();
}

pub(crate) async fn a_request_stands_until_the_last_lease_would_end(scene: &Scene) {
    let key = scene.key();
    let backend = scene.backend().await;
    let permit =
        |ttl| scene.lease(&key).with_ttl(ttl).with_mode(Mode::Units { units: 1, limit: 2 });
    let (short, long) = (permit(scene.ttl() / 2), permit(scene.long_ttl()));
    grant(&backend, &long).await;
    grant(&backend, &short).await;

    backend.request_revocation(&key, None).await.unwrap();
    scene.pass(scene.ttl()).await;

    found!(backend.renew(&long).await.unwrap()).is(Renewal::RevocationRequested);
    backend.release(&long).await.unwrap();
}

pub(crate) async fn a_waiter_that_queued_meanwhile_is_not_asked(scene: &Scene) {
    let key = scene.key();
    let backend = scene.backend().await;
    let [lease, next] =
        [scene.lease(&key), scene.lease(&key)].map(|l| l.with_ttl(scene.long_ttl()));
    let queued = Claim::new(next.clone()).with_patience(Patience::Queues(scene.long_ttl()));
    grant(&backend, &lease).await;
    let refused = backend.acquire(&queued).await.unwrap();
    found!(refused).is_refused();
    backend.request_revocation(&key, None).await.unwrap();
    let short = lease.with_ttl(scene.ttl() / 2);
    found!(backend.renew(&short).await.unwrap()).is(Renewal::RevocationRequested);

    pass_the_end(scene, &backend, short.ttl()).await;
    let served = backend.acquire(&queued).await.unwrap();

    found!(served).is_granted();
    found!(backend.renew(&next).await.unwrap()).is(Renewal::Renewed);
    backend.release(&next).await.unwrap();
}

pub(crate) async fn all_holders_of_a_key_are_told_at_once_where_the_store_tells(scene: &Scene) {
    let key = scene.key();
    let long = scene.options().ttl(scene.long_ttl());
    let (one, other) = (scene.client_with(long.clone()).await, scene.client_with(long).await);
    let guards = [
        one.semaphore(&key, 3).unwrap().acquire(1).await.unwrap(),
        other.semaphore(&key, 3).unwrap().acquire(1).await.unwrap(),
        other.semaphore(&key, 3).unwrap().acquire(1).await.unwrap(),
    ];
    // The request must also reach the holder after a renewal, so a renewal must keep the store's
    // notifications enabled.
    guards[2].extend(scene.long_ttl()).await.unwrap();

    one.request_revocation(&key).await.unwrap();

    for guard in guards {
        learns(scene, &guard, told_within(scene, scene.long_ttl())).await;
        guard.release().await.unwrap();
    }
}

pub(crate) async fn all_holders_of_a_key_are_asked(scene: &Scene) {
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
    found!(next.is_revocation_requested()).is(false);
    next.release().await.unwrap();
}

pub(crate) async fn one_holder_can_be_asked_without_the_others(scene: &Scene) {
    let key = scene.key();
    let backend = scene.backend().await;
    let permit = || {
        let lease = scene.lease(&key).with_ttl(scene.long_ttl());
        lease.with_mode(Mode::Units { units: 1, limit: 4 })
    };
    let [one, meant, other] = [(); 3].map(|()| permit());
    for lease in [&one, &meant, &other] {
        grant(&backend, lease).await;
    }

    let only = Some(meant.id().fingerprint());
    let asked = backend.request_revocation(&key, only).await.unwrap();

    found!(asked).is(Revocation::Requested);
    let late = permit();
    grant(&backend, &late).await;
    found!(backend.renew(&meant).await.unwrap()).is(Renewal::RevocationRequested);
    for lease in [&one, &other, &late] {
        found!(backend.renew(lease).await.unwrap()).is(Renewal::Renewed);
    }
    let unknown = Some(permit().id().fingerprint());
    let asked = backend.request_revocation(&key, unknown).await.unwrap();
    found!(asked).is(Revocation::NotHeld);
    for lease in [&one, &meant, &other, &late] {
        backend.release(lease).await.unwrap();
    }
}

pub(crate) async fn a_request_to_one_holder_spares_its_successor(scene: &Scene) {
    let key = scene.key();
    let backend = scene.backend().await;
    let [former, next] = [(); 2].map(|()| scene.lease(&key).with_ttl(scene.long_ttl()));
    let meant = Some(former.id().fingerprint());
    grant(&backend, &former).await;
    found!(backend.request_revocation(&key, meant).await.unwrap()).is(Revocation::Requested);
    found!(backend.renew(&former).await.unwrap()).is(Renewal::RevocationRequested);
    backend.release(&former).await.unwrap();
    grant(&backend, &next).await;

    let asked = backend.request_revocation(&key, meant).await.unwrap();

    found!(asked).is(Revocation::NotHeld);
    found!(backend.renew(&next).await.unwrap()).is(Renewal::Renewed);
    backend.release(&next).await.unwrap();
}
