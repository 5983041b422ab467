//! The token of a grant is larger than all earlier tokens of the key.

use leasehold_core::backend::{LockBackend, Operation};
use leasehold_core::fault::Fault;
use leasehold_core::{Fence, LockKey};

use super::{grant, granularity};
use crate::driven::Observed;
use crate::fault::FaultKind;
use crate::scene::Scene;

pub(crate) async fn tokens_strictly_increase(scene: &Scene) {
    const GRANTS: usize = 10_000;

    let key = scene.key();
    let mut backends = Vec::new();
    for _ in 0..8 {
        backends.push(scene.backend().await);
    }
    let mut last = 0;
    for backend in backends.iter().cycle().take(scene.rounds(GRANTS)) {
        let lease = scene.lease(&key);
        let token = grant(backend, &lease).await.token();
        found!(token, "the next token").more_than(last);
        last = token;
        backend.release(&lease).await.unwrap();
    }
}

pub(crate) async fn tokens_follow_real_time_across_clients(scene: &Scene) {
    let key = scene.key();
    let clients = [scene.client().await, scene.client().await];
    let mut last = None;
    for client in clients.iter().cycle().take(100) {
        let guard = client.mutex(&key).unwrap().lock().await.unwrap();
        let token = guard.token().clone();
        found!(last.is_none_or(|last| last < token)).is(true);
        last = Some(token);
        guard.release().await.unwrap();
    }
}

pub(crate) async fn tokens_survive_renewals(scene: &Scene) {
    let key = scene.key();
    let client = scene.client().await;
    let guard = client.mutex(&key).unwrap().lock().await.unwrap();
    let token = guard.token().clone();

    scene.pass(scene.ttl() * 3 / 2).await;
    guard.extend(scene.ttl() * 2).await.unwrap();

    found!(*guard.token()).is(token);
    guard.release().await.unwrap();
}

pub(crate) async fn tokens_increase_after_expiry(scene: &Scene) {
    let key = scene.key();
    let backend = scene.backend().await;
    let first = grant(&backend, &scene.lease(&key).with_ttl(scene.ttl() / 10)).await;
    scene.until_free(&key, scene.ttl() / 10 + granularity(&backend)).await;

    let lease = scene.lease(&key);
    let second = grant(&backend, &lease).await;

    found!(second.token()).more_than(first.token());
    backend.release(&lease).await.unwrap();
}

pub(crate) async fn tokens_increase_after_a_forced_release(scene: &Scene) {
    let key = scene.key();
    let client = scene.client().await;
    let guard = client.mutex(&key).unwrap().lock().await.unwrap();

    let forced = client.admin().force_release(&key, "conformance").await.unwrap();

    found!(forced.ended().len()).is(1);
    let other = scene.client().await;
    let next = other.mutex(&key).unwrap().lock().await.unwrap();
    found!(next.token()).more_than(guard.token());
    if let Some(min) = forced.min_token() {
        found!(guard.token().number(), "the former holder's token").less_than(min);
        found!(next.token().number(), "the next holder's token").at_least(min);
    }
    next.release().await.unwrap();
    drop(guard);
}

pub(crate) async fn a_repeated_request_has_the_token_of_the_live_grant(scene: &Scene) {
    let key = scene.key();
    let (client, faults) = scene.faulty().await;
    let before = client.mutex(&key).unwrap().lock().await.unwrap();
    let (before, released) = (before.token().clone(), before.release().await);
    released.unwrap();
    faults.inject(Operation::Acquire, Fault::LoseReply, 2);

    let guard = client.mutex(&key).unwrap().lock().await.unwrap();
    let token = guard.token().clone();
    guard.release().await.unwrap();
    let after = client.mutex(&key).unwrap().lock().await.unwrap();

    found!(token).more_than(before);
    found!(*after.token()).more_than(token);
    after.release().await.unwrap();
}

pub(crate) async fn tokens_of_different_keys_have_no_order(scene: &Scene) {
    let client = scene.client().await;
    let (one, other) = (scene.key(), scene.key());
    let one = client.mutex(&one).unwrap().lock().await.unwrap();
    let other = client.mutex(&other).unwrap().lock().await.unwrap();

    found!(one.token().partial_cmp(other.token())).is(None);
    found!(one.token()).is_not(other.token());
    one.release().await.unwrap();
    other.release().await.unwrap();
}

pub(crate) async fn a_resource_that_checks_tokens_refuses_a_late_holder(scene: &Scene) {
    let key = scene.key();
    let backend = scene.backend().await;
    let mut resource = Fence::default();
    let token = |number| leasehold_core::FencingToken::new(&key, number);
    let paused = grant(&backend, &scene.lease(&key).with_ttl(scene.ttl() / 10)).await.token();
    resource.admit(&token(paused)).unwrap();
    scene.until_free(&key, scene.ttl() / 10 + granularity(&backend)).await;

    let lease = scene.lease(&key);
    let next = grant(&backend, &lease).await.token();

    resource.admit(&token(next)).unwrap();
    found!(
        resource.admit(&token(paused)).is_err(),
        "the resource rejects the write of a former holder"
    )
    .is(true);
    resource.admit(&token(next)).expect("the resource rejected a second write of the same holder");
    backend.release(&lease).await.unwrap();
}

pub(crate) async fn tokens_increase_after_a_restart(scene: &Scene) {
    let key = scene.key();
    let backend = scene.backend().await;
    let lease = scene.lease(&key);
    let before = grant(&backend, &lease).await.token();
    backend.release(&lease).await.unwrap();

    scene.disturb(FaultKind::ServerKilled).await;

    let after = token_when_up(scene, &backend, &key).await;
    found!(after, "the token after the restart").more_than(before);
}

async fn token_when_up(scene: &Scene, backend: &Observed, key: &LockKey) -> u64 {
    let give_up = scene.now() + scene.ttl() * 10;
    loop {
        let lease = scene.lease(key);
        match backend.acquire(&leasehold_core::backend::Claim::new(lease.clone())).await {
            Ok(leasehold_core::backend::Attempt::Granted(grant)) => {
                // A second connection from before the restart may break only at this point, in
                // which case its lease expires on its own.
                drop(backend.release(&lease).await);
                return grant.token();
            }
            other => found!(scene.now(), "the time, because of {other:?}").less_than(give_up),
        }
        scene.pass(scene.ttl() / 50).await;
    }
}
