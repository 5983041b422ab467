//! A store can be a member of a quorum. The store supports minimum tokens and records the quorum
//! configuration that it has joined.

use std::time::Duration;

use leasehold_core::ErrorKind;
use leasehold_core::backend::{
    Attempt, Charter, Claim, Enlistment, Grant, Lease, LockBackend, Release, Renewal, Standing,
    StoreId,
};

use super::refusal;
use crate::driven::Observed;
use crate::scene::Scene;

/// A minimum token that is much larger than the tokens of all other grants in a case.
const JUMP: u64 = 100_000;

fn charter() -> Charter {
    Charter::new(["conformance"], Duration::from_secs(60))
}

async fn standing<B: LockBackend>(backend: &B) -> Standing {
    backend.standing(StoreId::new()).await.unwrap()
}

/// Returns a client of a store that has joined a quorum with the suite's configuration.
async fn member(scene: &Scene) -> Observed {
    let backend = scene.backend().await;
    let enlistment = Enlistment::new(standing(&backend).await.store(), charter());
    found!(backend.enlist(&enlistment).await.unwrap().charter()).is(Some(&charter()));
    backend
}

fn claim(lease: &Lease) -> Claim {
    Claim::new(lease.clone()).with_charter(charter())
}

async fn granted<B: LockBackend>(backend: &B, claim: &Claim) -> Grant {
    match backend.try_acquire(claim).await.unwrap() {
        Attempt::Granted(grant) => grant,
        Attempt::Held(contention) => {
            panic!("a claim for a free key: found a refusal, {contention:?}, expected a grant")
        }
    }
}

/// Acquires a lease with the quorum configuration, releases it immediately, and returns its token.
async fn next_token(scene: &Scene, backend: &impl LockBackend) -> u64 {
    let lease = scene.lease(&scene.key());
    let token = granted(backend, &claim(&lease)).await.token();
    backend.release(&lease).await.unwrap();
    token
}

pub(crate) async fn a_renewal_raises_the_floor(scene: &Scene) {
    let (key, backend) = (scene.key(), member(scene).await);
    let lease = scene.lease(&key);
    let floor = granted(&backend, &claim(&lease)).await.token() + JUMP;

    found!(backend.renew(&lease.clone().with_floor(floor)).await.unwrap()).is(Renewal::Renewed);

    found!(standing(&backend).await.floor()).at_least(floor);
    found!(backend.release(&lease).await.unwrap()).is(Release::Released);
    let next = scene.lease(&key);
    found!(granted(&backend, &claim(&next)).await.token()).more_than(floor);
    backend.release(&next).await.unwrap();
}

pub(crate) async fn a_floor_without_its_lease_is_refused(scene: &Scene) {
    let (key, backend) = (scene.key(), member(scene).await);
    let (former, lease) = (scene.lease(&key), scene.lease(&key));
    // This value exceeds the number of tokens that any store grants, and the error of any clock.
    let floor = 1 << 52;
    granted(&backend, &claim(&former)).await;
    backend.release(&former).await.unwrap();
    granted(&backend, &claim(&lease)).await;

    found!(backend.renew(&former.with_floor(floor)).await.unwrap()).is(Renewal::Taken);

    found!(standing(&backend).await.floor()).less_than(floor);
    backend.release(&lease).await.unwrap();
    let next = scene.lease(&key);
    found!(granted(&backend, &claim(&next)).await.token()).less_than(floor);
    backend.release(&next).await.unwrap();
}

pub(crate) async fn a_wish_for_a_token_is_heeded_within_reach(scene: &Scene) {
    let (key, backend) = (scene.key(), member(scene).await);
    let lease = scene.lease(&key);
    let wish = next_token(scene, &backend).await + JUMP;

    let token = granted(&backend, &claim(&lease).with_least_token(wish)).await.token();

    found!(token, "the token, for a requested minimum token").at_least(wish);
    backend.release(&lease).await.unwrap();
    found!(granted(&backend, &claim(&lease)).await.token()).more_than(token);
    backend.release(&lease).await.unwrap();
}

pub(crate) async fn a_wish_far_ahead_uses_up_no_tokens(scene: &Scene) {
    let (key, backend) = (scene.key(), member(scene).await);
    let lease = scene.lease(&key);
    // This value corresponds to a clock that is years ahead.
    let wish = next_token(scene, &backend).await + (1 << 50);

    let token = granted(&backend, &claim(&lease).with_least_token(wish)).await.token();

    found!(token).less_than(wish);
    backend.release(&lease).await.unwrap();
    found!(next_token(scene, &backend).await).less_than(wish);
}

pub(crate) async fn a_store_knows_its_identity_and_its_floor(scene: &Scene) {
    let (one, other) = (member(scene).await, scene.backend().await);
    let before = standing(&one).await;
    let lease = scene.lease(&scene.key());
    let grant = granted(&one, &claim(&lease).with_spare_tokens(100)).await;
    one.release(&lease).await.unwrap();
    scene.pass(scene.ttl() / 4).await;

    let after = standing(&other).await;

    found!(after.store()).is(before.store());
    found!(after.floor()).at_least(grant.token() + u64::from(grant.spare_tokens()));
    found!(after.age()).at_least(before.age() + scene.ttl() / 8);
    found!(after.age()).at_most(before.age() + scene.ttl() / 4 + scene.slack());
}

pub(crate) async fn a_claim_under_a_charter_needs_an_enlisted_store(scene: &Scene) {
    let (key, backend) = (scene.key(), scene.backend().await);
    let lease = scene.lease(&key);
    let other = Charter::new(["other"], Duration::from_secs(60));
    let refused = async || {
        let claim = Claim::new(lease.clone()).with_charter(other.clone());
        let error = backend.try_acquire(&claim).await.unwrap_err();
        found!(error.kind(), "{error}").is(ErrorKind::Unavailable);
        found!(scene.witness(&key).await, "the store granted a claim that it had rejected")
            .is(None);
    };
    refused().await;

    let store = standing(&backend).await.store();
    let enlisted = backend.enlist(&Enlistment::new(store, charter())).await.unwrap();

    found!(enlisted.charter()).is(Some(&charter()));
    refused().await;
    granted(&backend, &claim(&lease)).await;
    refusal(&backend, &scene.lease(&key)).await;
    backend.release(&lease).await.unwrap();
}

pub(crate) async fn an_enlistment_raises_the_floor_of_all_keys(scene: &Scene) {
    let backend = member(scene).await;
    let floor = next_token(scene, &backend).await + JUMP;
    let store = standing(&backend).await.store();

    let enlistment = Enlistment::new(store, charter()).with_floor(floor);
    let enlisted = backend.enlist(&enlistment).await.unwrap();

    found!(enlisted.floor()).at_least(floor);
    for _ in 0..3 {
        found!(next_token(scene, &backend).await).more_than(floor);
    }
}

pub(crate) async fn an_enlistment_of_another_store_changes_nothing(scene: &Scene) {
    let backend = member(scene).await;
    let before = standing(&backend).await;
    let floor = before.floor().max(next_token(scene, &backend).await) + (1 << 50);
    let elsewhere = Enlistment::new(StoreId::new(), charter());

    let after = backend.enlist(&elsewhere.with_floor(floor)).await.unwrap();

    found!((after.store(), after.charter())).is((before.store(), before.charter()));
    found!(after.floor()).less_than(floor);
}

pub(crate) async fn an_enlistment_under_another_charter_changes_nothing(scene: &Scene) {
    let backend = member(scene).await;
    let store = standing(&backend).await.store();
    let floor = next_token(scene, &backend).await + (1 << 50);
    let other = Enlistment::new(store, Charter::new(["other"], scene.ttl())).with_floor(floor);

    let after = backend.enlist(&other).await.unwrap();

    found!(after.charter()).is(Some(&charter()));
    found!(after.floor()).less_than(floor);
    found!(next_token(scene, &backend).await).less_than(floor);
}
