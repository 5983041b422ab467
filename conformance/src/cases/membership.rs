//! A store can be a member of a quorum. The store supports minimum tokens and records the quorum
//! configuration that it has joined.

use std::time::Duration;

use leasehold_core::ErrorKind;
use leasehold_core::backend::{
    Attempt, Claim, Grant, JoinRequest, Lease, LockBackend, Member, MemberStatus,
    QuorumConfiguration, Release, Renewal, StoreId, Vote,
};

use super::refusal;
use crate::driven::Observed;
use crate::scene::Scene;

/// A minimum token that is much larger than the tokens of all other grants in a case.
const JUMP: u64 = 100_000;

fn quorum() -> QuorumConfiguration {
    QuorumConfiguration::new(["conformance"], Duration::from_secs(60))
}

async fn status(backend: &Observed) -> MemberStatus {
    backend.status(StoreId::new()).await.unwrap()
}

/// Returns a client of a store that has joined a quorum with the suite's configuration.
async fn member(scene: &Scene) -> Observed {
    let backend = scene.backend().await;
    let request = JoinRequest::new(status(&backend).await.store(), quorum());
    found!(backend.join(&request).await.unwrap().configuration()).is(Some(&quorum()));
    backend
}

fn vote(lease: &Lease) -> Vote {
    Vote::new(Claim::new(lease.clone()), quorum())
}

async fn granted(backend: &Observed, vote: &Vote) -> Grant {
    match backend.vote(vote).await.unwrap() {
        Attempt::Granted(grant) => grant,
        Attempt::Held(contention) => {
            panic!("a vote for a free key: found a refusal, {contention:?}, expected a grant")
        }
    }
}

/// Acquires a lease with the quorum configuration, releases it immediately, and returns its token.
async fn next_token(scene: &Scene, backend: &Observed) -> u64 {
    let lease = scene.lease(&scene.key());
    let token = granted(backend, &vote(&lease)).await.token();
    backend.release(&lease).await.unwrap();
    token
}

pub(crate) async fn a_renewal_raises_the_minimum_token(scene: &Scene) {
    let (key, backend) = (scene.key(), member(scene).await);
    let lease = scene.lease(&key);
    let min_token = granted(&backend, &vote(&lease)).await.token() + JUMP;

    found!(backend.raise(&lease, min_token).await.unwrap()).is(Renewal::Renewed);

    found!(status(&backend).await.min_token()).at_least(min_token);
    found!(backend.release(&lease).await.unwrap()).is(Release::Released);
    let next = scene.lease(&key);
    found!(granted(&backend, &vote(&next)).await.token()).more_than(min_token);
    backend.release(&next).await.unwrap();
}

pub(crate) async fn a_minimum_token_without_its_lease_is_refused(scene: &Scene) {
    let (key, backend) = (scene.key(), member(scene).await);
    let (former, lease) = (scene.lease(&key), scene.lease(&key));
    // This value exceeds the number of tokens that any store grants, and the error of any clock.
    let min_token = 1 << 52;
    granted(&backend, &vote(&former)).await;
    backend.release(&former).await.unwrap();
    granted(&backend, &vote(&lease)).await;

    found!(backend.raise(&former, min_token).await.unwrap()).is(Renewal::Taken);

    found!(status(&backend).await.min_token()).less_than(min_token);
    backend.release(&lease).await.unwrap();
    let next = scene.lease(&key);
    found!(granted(&backend, &vote(&next)).await.token()).less_than(min_token);
    backend.release(&next).await.unwrap();
}

pub(crate) async fn a_requested_token_within_reach_is_granted(scene: &Scene) {
    let (key, backend) = (scene.key(), member(scene).await);
    let lease = scene.lease(&key);
    let requested = next_token(scene, &backend).await + JUMP;

    let token = granted(&backend, &vote(&lease).with_requested_token(requested)).await.token();

    found!(token, "the token, for a requested minimum token").at_least(requested);
    backend.release(&lease).await.unwrap();
    found!(granted(&backend, &vote(&lease)).await.token()).more_than(token);
    backend.release(&lease).await.unwrap();
}

pub(crate) async fn a_requested_token_far_ahead_is_ignored(scene: &Scene) {
    let (key, backend) = (scene.key(), member(scene).await);
    let lease = scene.lease(&key);
    // This value corresponds to a clock that is years ahead.
    let requested = next_token(scene, &backend).await + (1 << 50);

    let token = granted(&backend, &vote(&lease).with_requested_token(requested)).await.token();

    found!(token).less_than(requested);
    backend.release(&lease).await.unwrap();
    found!(next_token(scene, &backend).await).less_than(requested);
}

pub(crate) async fn a_store_reports_its_identity_and_its_minimum_token(scene: &Scene) {
    let (one, other) = (member(scene).await, scene.backend().await);
    let before = status(&one).await;
    let lease = scene.lease(&scene.key());
    let claim = Claim::new(lease.clone()).with_spare_tokens(100);
    let grant = granted(&one, &Vote::new(claim, quorum())).await;
    one.release(&lease).await.unwrap();
    scene.pass(scene.ttl() / 4).await;

    let after = status(&other).await;

    found!(after.store()).is(before.store());
    found!(after.min_token()).at_least(grant.token() + u64::from(grant.spare_tokens()));
    found!(after.age()).at_least(before.age() + scene.ttl() / 8);
    found!(after.age()).at_most(before.age() + scene.ttl() / 4 + scene.slack());
}

pub(crate) async fn a_vote_needs_a_member_of_its_quorum(scene: &Scene) {
    let (key, backend) = (scene.key(), scene.backend().await);
    let lease = scene.lease(&key);
    let other = QuorumConfiguration::new(["other"], Duration::from_secs(60));
    let refused = async || {
        let vote = Vote::new(Claim::new(lease.clone()), other.clone());
        let error = backend.vote(&vote).await.unwrap_err();
        found!(error.kind(), "{error}").is(ErrorKind::Unavailable);
        found!(scene.probe(&key).await, "the store granted a vote that it had rejected").is(None);
    };
    refused().await;

    let store = status(&backend).await.store();
    let joined = backend.join(&JoinRequest::new(store, quorum())).await.unwrap();

    found!(joined.configuration()).is(Some(&quorum()));
    refused().await;
    granted(&backend, &vote(&lease)).await;
    refusal(&backend, &scene.lease(&key)).await;
    backend.release(&lease).await.unwrap();
}

pub(crate) async fn a_join_request_raises_the_minimum_token_of_all_keys(scene: &Scene) {
    let backend = member(scene).await;
    let min_token = next_token(scene, &backend).await + JUMP;
    let store = status(&backend).await.store();

    let request = JoinRequest::new(store, quorum()).with_min_token(min_token);
    let joined = backend.join(&request).await.unwrap();

    found!(joined.min_token()).at_least(min_token);
    for _ in 0..3 {
        found!(next_token(scene, &backend).await).more_than(min_token);
    }
}

pub(crate) async fn a_join_request_for_another_store_changes_nothing(scene: &Scene) {
    let backend = member(scene).await;
    let before = status(&backend).await;
    let min_token = before.min_token().max(next_token(scene, &backend).await) + (1 << 50);
    let elsewhere = JoinRequest::new(StoreId::new(), quorum());

    let after = backend.join(&elsewhere.with_min_token(min_token)).await.unwrap();

    found!((after.store(), after.configuration())).is((before.store(), before.configuration()));
    found!(after.min_token()).less_than(min_token);
}

pub(crate) async fn a_join_request_of_another_quorum_changes_nothing(scene: &Scene) {
    let backend = member(scene).await;
    let store = status(&backend).await.store();
    let min_token = next_token(scene, &backend).await + (1 << 50);
    let other = QuorumConfiguration::new(["other"], scene.ttl());
    let request = JoinRequest::new(store, other).with_min_token(min_token);

    let after = backend.join(&request).await.unwrap();

    found!(after.configuration()).is(Some(&quorum()));
    found!(after.min_token()).less_than(min_token);
    found!(next_token(scene, &backend).await).less_than(min_token);
}
