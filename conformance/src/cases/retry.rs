//! Retries stop eventually and do not cause harm.

use std::time::Duration;

use futures_util::future::{join, join_all};
use leasehold_core::backend::{Claim, LockBackend, Operation, Release, Renewal};
use leasehold_core::fault::{Fault, Notifications};
use leasehold_core::retry::Retry;
use leasehold_core::{Error, ErrorKind};

use super::grant;
use crate::fault::FaultKind;
use crate::scene::Scene;

pub(crate) async fn pauses_grow_and_are_random(scene: &Scene) {
    let key = scene.key();
    let holder = scene.client_with(scene.options().ttl(scene.long_ttl())).await;
    let guard = holder.mutex(&key).unwrap().lock().await.unwrap();
    let (min, max) = (Duration::from_millis(2), scene.ttl() / 10);
    let retry = Retry::unlimited().growing(min, max);
    let waits = (0..3).map(async |_| {
        let (client, faults) = scene.faulty_with(scene.options().retry(retry.clone())).await;
        faults.set_notifications(Notifications::Muted);
        let mutex = client.mutex(&key).unwrap();
        let attempts = async {
            let mut attempts = Vec::new();
            for _ in 0..100 {
                scene.pass(scene.ttl() / 100).await;
                attempts.push(faults.calls(Operation::Acquire));
            }
            attempts
        };
        let (waited, attempts) = join(mutex.try_lock_for(scene.ttl()), attempts).await;
        found!(waited.unwrap_err().into_busy().is_ok()).is(true);
        attempts
    });
    let attempts = join_all(waits).await;

    for attempts in &attempts {
        let (early, all) = (attempts[0], attempts[99]);
        // The first pauses are at most 4, 8, 16 and 32 ms. In total, there are about twenty pauses,
        // which last half of the maximum length on average.
        found!(early, "the number of attempts").at_least(5);
        found!(all, "the number of attempts").less_than(80);
    }
    found!(attempts[0]).is_not(attempts[1].clone());
    guard.release().await.unwrap();
}

pub(crate) async fn a_permanent_error_is_not_repeated(scene: &Scene) {
    for kind in [
        ErrorKind::Denied,
        ErrorKind::Invalid,
        ErrorKind::Refused,
        ErrorKind::Unexpected,
        ErrorKind::Unsupported,
        ErrorKind::WrongType,
    ] {
        let key = scene.key();
        let (client, faults) = scene.faulty().await;
        faults.inject(Operation::Acquire, Fault::Fail(kind), 1);

        let error = client.mutex(&key).unwrap().lock().await.unwrap_err();

        found!(error.kind()).is(kind);
        found!(faults.calls(Operation::Acquire)).is(1);
    }
}

pub(crate) async fn a_passing_error_is_waited_out(scene: &Scene) {
    let key = scene.key();
    let (client, faults) = scene.faulty().await;
    faults.inject(Operation::Acquire, Fault::Fail(ErrorKind::Unavailable), 3);

    let guard = client.mutex(&key).unwrap().lock().await.unwrap();

    found!(faults.calls(Operation::Acquire)).is(4);
    guard.release().await.unwrap();
}

pub(crate) async fn an_outage_is_waited_out_only_so_long(scene: &Scene) {
    let key = scene.key();
    let patience = scene.ttl() / 2;
    let (client, faults) = scene.faulty_with(scene.options().outage_wait(patience)).await;
    let mutex = client.mutex(&key).unwrap();
    faults.inject(Operation::Acquire, Fault::Fail(ErrorKind::Unavailable), 10_000);

    let asked_at = scene.now();
    let error = mutex.lock().await.unwrap_err();
    let waited = scene.now().since(asked_at);
    found!(error.kind()).is(ErrorKind::Unavailable);
    found!(waited).at_least(patience);
    found!(waited).at_most(patience + scene.slack());

    // The caller's shorter wait ends first. The result is not `None`, because the client did not
    // receive a reply that named a holder.
    let asked_at = scene.now();
    let error = Error::from(mutex.try_lock_for(patience / 2).await.unwrap_err());
    found!(error.kind()).is(ErrorKind::Unavailable);
    found!(scene.now().since(asked_at)).at_most(patience / 2 + scene.slack());
    faults.heal();
}

pub(crate) async fn no_wait_is_one_attempt(scene: &Scene) {
    let key = scene.key();
    let (client, faults) = scene.faulty().await;
    let mutex = client.mutex(&key).unwrap();
    for kind in [ErrorKind::Unavailable, ErrorKind::Indeterminate] {
        faults.inject(Operation::Acquire, Fault::Fail(kind), 1);
        let attempts = faults.calls(Operation::Acquire);

        found!(Error::from(mutex.try_lock().await.unwrap_err()).kind()).is(kind);

        found!(faults.calls(Operation::Acquire)).is(attempts + 1);
    }
    let guard =
        mutex.try_lock_for(Duration::ZERO).await.expect("a free lock could not be acquired");
    guard.release().await.unwrap();
}

pub(crate) async fn attempts_can_be_counted(scene: &Scene) {
    let key = scene.key();
    let holder = scene.client_with(scene.options().ttl(scene.long_ttl())).await;
    let guard = holder.mutex(&key).unwrap().lock().await.unwrap();
    let pause = scene.ttl() / 20;
    let retry = Retry::attempts(5).every(pause);
    let (client, faults) = scene.faulty_with(scene.options().retry(retry)).await;
    faults.set_notifications(Notifications::Muted);

    let asked_at = scene.now();
    let error = client.mutex(&key).unwrap().lock().await.unwrap_err();

    found!(error.kind()).is(ErrorKind::Timeout);
    found!(faults.calls(Operation::Acquire)).is(5);
    let waited = scene.now().since(asked_at);
    found!(waited).at_least(pause * 4);
    found!(waited).at_most(pause * 4 + scene.slack());
    guard.release().await.unwrap();
}

pub(crate) async fn a_repeated_request_is_not_in_its_own_way(scene: &Scene) {
    let key = scene.key();
    let backend = scene.backend().await;
    let lease = scene.lease(&key);
    let first = grant(&backend, &lease).await;
    scene.pass(scene.ttl() / 2).await;

    let again = grant(&backend, &lease).await;

    found!(again.token()).at_least(first.token());
    let remaining = scene.probe(&key).await.unwrap().remaining().unwrap();
    found!(remaining, "the remaining time after a repeated claim").more_than(scene.ttl() / 2);
    backend.release(&lease).await.unwrap();
}

pub(crate) async fn releases_and_renewals_may_be_repeated_for_ever(scene: &Scene) {
    let key = scene.key();
    let (backend, other) = (scene.backend().await, scene.backend().await);
    let (ours, theirs) = (scene.lease(&key), scene.lease(&key));
    grant(&backend, &ours).await;
    backend.release(&ours).await.unwrap();
    grant(&other, &theirs).await;

    for _ in 0..10 {
        found!(backend.release(&ours).await.unwrap()).is(Release::NotHeld);
        found!(backend.renew(&ours).await.unwrap()).is(Renewal::Taken);
    }

    let holder = scene.probe(&key).await.unwrap();
    found!(holder.fingerprint()).is(theirs.id().fingerprint());
    other.release(&theirs).await.unwrap();
}

pub(crate) async fn a_write_that_the_store_rejects_is_not_an_unknown_outcome(scene: &Scene) {
    let (held, free) = (scene.key(), scene.key());
    let backend = scene.backend().await;
    let (lease, claim) = (scene.lease(&held), Claim::new(scene.lease(&free)));
    grant(&backend, &lease).await;
    scene.disturb(FaultKind::ReadOnly).await;

    let acquired = backend.acquire(&claim).await;
    // etcd accepts a renewal, because a renewal does not write any data.
    let renewed = backend.renew(&lease).await;
    scene.heal().await;

    let refused = acquired.expect_err("the store granted a lease while it rejects writes");
    for error in [Some(refused), renewed.err()].into_iter().flatten() {
        let is_definite =
            matches!(error.kind(), ErrorKind::NotWritable | ErrorKind::Refused | ErrorKind::Denied);
        found!(is_definite, "whether the error names the refusal: {error:?}").is(true);
    }
    found!(scene.probe(&free).await).is(None);
    found!(backend.renew(&lease).await.unwrap()).is(Renewal::Renewed);
    grant(&backend, claim.lease()).await;
    for lease in [&lease, claim.lease()] {
        found!(backend.release(lease).await.unwrap()).is(Release::Released);
    }
}
