//! A lease expires on its own, and its holder considers it expired before the store does.

use std::time::Duration;

use leasehold_core::backend::{Attempt, Claim, LockBackend, Operation};
use leasehold_core::fault::Fault;
use leasehold_core::{ErrorKind, LeaseState, LossReason, RenewalMode};

use super::{grant, granularity, longest, refusal};
use crate::scene::Scene;

/// The clock drift for which deadlines leave a margin: 1 % of the TTL in whole milliseconds, plus
/// 2 ms.
fn drift(ttl: Duration) -> Duration {
    let percent = u64::try_from((ttl / 100).as_nanos().div_ceil(1_000_000)).unwrap();
    Duration::from_millis(percent + 2)
}

pub(crate) async fn an_unrenewed_lease_ends_after_its_ttl_and_not_before(scene: &Scene) {
    let key = scene.key();
    let (backend, other) = (scene.backend().await, scene.backend().await);
    let sent_at = scene.now();
    grant(&backend, &scene.lease(&key)).await;
    let answered_at = scene.now();

    // If the lease expired too early, this check would find it expired.
    let shortly_before = sent_at + scene.ttl().saturating_sub(Duration::from_millis(100));
    scene.pass(shortly_before.since(scene.now())).await;
    let next = scene.lease(&key);
    let mut refused_at = sent_at;
    loop {
        let tried_at = scene.now();
        let attempt = other.acquire(&Claim::new(next.clone())).await.unwrap();
        if let Attempt::Granted(_) = attempt {
            break;
        }
        refused_at = tried_at;
        scene.pass(Duration::from_millis(1)).await;
    }

    // The store's clock advances in ticks and may be slightly slow.
    let earliest = scene.ttl().saturating_sub(Duration::from_millis(1));
    found!(scene.now().since(sent_at), "the time until the lease expired").at_least(earliest);
    let latest = answered_at + scene.ttl() + granularity(&backend) * 2 + scene.ttl() / 1_000;
    found!(refused_at, "the time of the last refusal").at_most(latest);
    other.release(&next).await.unwrap();
}

pub(crate) async fn the_deadline_counts_from_before_the_request(scene: &Scene) {
    let key = scene.key();
    let options = scene.options().renewal(RenewalMode::Off);
    let (client, faults) = scene.faulty_with(options).await;
    faults.inject(Operation::Acquire, Fault::DelayRequest(scene.ttl() / 4), 1);

    let asked_at = scene.now();
    let guard = client.mutex(&key).unwrap().lock().await.unwrap();

    // If the deadline were calculated from the arrival of the request, it would be later by twice
    // this time.
    let latest = asked_at + (scene.ttl() - drift(scene.ttl())) + scene.ttl() / 8;
    found!(guard.deadline(), "the deadline, which counts from before the request").at_most(latest);
    guard.release().await.unwrap();
}

pub(crate) async fn a_slow_reply_leaves_less_of_the_lease(scene: &Scene) {
    let key = scene.key();
    let (client, faults) = scene.faulty_with(scene.options().renewal(RenewalMode::Off)).await;
    let slow = scene.ttl() * 7 / 10;
    faults.inject(Operation::Acquire, Fault::DelayReply(slow), 1);

    let guard = client.mutex(&key).unwrap().lock().await.unwrap();

    found!(guard.remaining()).at_most(scene.ttl() - drift(scene.ttl()) - slow);
    drop(guard);
}

pub(crate) async fn a_ttl_that_drift_eats_up_is_refused_before_any_request(scene: &Scene) {
    let (client, faults) = scene.faulty().await;

    for ttl in [Duration::ZERO, Duration::from_nanos(1), Duration::from_millis(4)] {
        let mutex = client.mutex(scene.key()).unwrap();
        let refused = mutex.with_options(scene.options().ttl(ttl)).unwrap_err();
        found!(refused.kind(), "{ttl:?}").is(ErrorKind::Invalid);
    }
    found!(faults.calls(Operation::Acquire)).is(0);
}

pub(crate) async fn the_longest_ttl_is_stored_exactly_and_a_longer_one_refused(scene: &Scene) {
    let key = scene.key();
    let client = scene.client().await;
    let longest = client.backend().capabilities().max_ttl();
    let mutex = client.mutex(&key).unwrap();
    let too_long = scene.options().ttl(longest + Duration::from_millis(1));
    found!(mutex.clone().with_options(too_long).unwrap_err().kind()).is(ErrorKind::Invalid);

    let mutex = mutex.with_options(scene.options().ttl(longest)).unwrap();
    let guard = mutex.lock().await.unwrap();

    let remaining = scene.probe(&key).await.unwrap().remaining().unwrap();
    found!(remaining).at_most(longest);
    found!(remaining).more_than(longest - scene.slack() - Duration::from_secs(1));
    found!(guard.remaining()).at_most(longest - drift(longest));
    guard.release().await.unwrap();
}

pub(crate) async fn belief_ends_at_the_deadline_though_the_store_still_has_the_lease(
    scene: &Scene,
) {
    let key = scene.key();
    let (client, faults) = scene.faulty().await;
    let guard = client.mutex(&key).unwrap().lock().await.unwrap();

    // The store renews the lease without the client's knowledge and does not receive releases.
    faults.inject(Operation::Renew, Fault::SwallowReply, 100);
    faults.inject(Operation::Release, Fault::SwallowRequest, 100);
    scene.pass(guard.remaining()).await;

    found!(guard.state()).is(LeaseState::Lost(LossReason::Expired));
    found!(scene.probe(&key).await.is_some()).is(true);
    found!(guard.is_held()).is(false);
    faults.heal();
    drop(guard);
}

pub(crate) async fn a_release_overtaken_by_expiry_leaves_the_successor(scene: &Scene) {
    let key = scene.key();
    let (client, faults) = scene.faulty_with(scene.options().renewal(RenewalMode::Off)).await;
    let guard = client.mutex(&key).unwrap().lock().await.unwrap();
    let other = scene.backend().await;
    let next = scene.lease(&key).with_ttl(scene.ttl() * 5);

    // The first release is lost in transit. The second release arrives after the successor was
    // granted the lock.
    faults.inject(Operation::Release, Fault::Late(scene.ttl() * 2), 1);
    scene.pass(guard.remaining() / 2).await;
    let outcome = guard.release().await;
    scene.until_free(&key, scene.ttl()).await;
    grant(&other, &next).await;
    scene.pass(scene.ttl() * 2).await;

    found!(outcome.is_err(), "a release without a reply is an error").is(true);
    let holder = scene.probe(&key).await.expect("the late release removed the successor's lease");
    found!(holder.fingerprint()).is(next.id().fingerprint());
    other.release(&next).await.unwrap();
}

pub(crate) async fn a_guard_past_its_deadline_only_says_that_it_is_lost(scene: &Scene) {
    let key = scene.key();
    let client = scene.client_with(scene.options().renewal(RenewalMode::Off)).await;
    let guard = client.mutex(&key).unwrap().lock().await.unwrap();

    scene.pass(scene.ttl()).await;

    found!(guard.state()).is(LeaseState::Lost(LossReason::Expired));
    found!(guard.remaining()).is(Duration::ZERO);
    found!(guard.ensure_held(Duration::ZERO).unwrap_err().kind()).is(ErrorKind::LeaseLost);
    found!(guard.extend(scene.ttl()).await.unwrap_err().kind()).is(ErrorKind::LeaseLost);
    found!(guard.while_held(async {}).await.unwrap_err().kind()).is(ErrorKind::LeaseLost);
    found!(guard.lost().await).is(Some(LossReason::Expired));
    scene.until_free(&key, granularity(client.backend())).await;
    found!(guard.release().await.unwrap_err().loss()).is(Some(LossReason::Expired));
}

pub(crate) async fn a_holder_that_is_gone_frees_the_key_within_a_ttl(scene: &Scene) {
    let key = scene.key();
    let (gone, next) = (scene.backend().await, scene.client().await);
    grant(&gone, &scene.lease(&key)).await;
    drop(gone);

    refusal(next.backend(), &scene.lease(&key)).await;
    let wait = longest(scene, next.backend(), scene.ttl());
    let guard = next.mutex(&key).unwrap().try_lock_for(wait).await.unwrap();

    guard.release().await.unwrap();
}
