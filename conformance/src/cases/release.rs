//! Only the holder can release its lease.

use std::time::Duration;

use leasehold_core::backend::{LockBackend, Operation, Release};
use leasehold_core::fault::Fault;
use leasehold_core::{Error, ErrorKind, LossReason};

use super::{grant, granularity, longest};
use crate::scene::Scene;
use crate::stalls::Measured;

pub(crate) async fn a_released_lock_is_free_and_a_second_release_is_nothing(scene: &Scene) {
    let key = scene.key();
    let (backend, other) = (scene.backend().await, scene.backend().await);
    let (first, second) = (scene.lease(&key), scene.lease(&key));
    grant(&backend, &first).await;

    found!(backend.release(&first).await.unwrap()).is(Release::Released);
    grant(&other, &second).await;
    found!(backend.release(&first).await.unwrap()).is(Release::NotHeld);

    let holder =
        scene.probe(&key).await.expect("a repeated release removed another holder's lease");
    found!(holder.fingerprint()).is(second.id().fingerprint());
    other.release(&second).await.unwrap();
}

pub(crate) async fn a_release_whose_reply_is_lost_stays_unknown_and_is_harmless(scene: &Scene) {
    let key = scene.key();
    let (client, faults) = scene.faulty().await;
    let guard = client.mutex(&key).unwrap().lock().await.unwrap();
    faults.inject(Operation::Release, Fault::LoseReply, 1);

    let error = guard.release().await.unwrap_err();

    // The second attempt did not find the lease. Either the first attempt released the lease, or
    // the lease had been lost before. The client cannot distinguish the two cases.
    found!(error.kind()).is(ErrorKind::Indeterminate);
    found!(faults.calls(Operation::Release)).is(2);
    found!(scene.probe(&key).await).is(None);
}

pub(crate) async fn a_release_that_was_not_sent_is_repeated(scene: &Scene) {
    let key = scene.key();
    let (client, faults) = scene.faulty().await;
    let guard = client.mutex(&key).unwrap().lock().await.unwrap();
    faults.inject(Operation::Release, Fault::Fail(ErrorKind::Unavailable), 2);

    guard.release().await.unwrap();

    found!(scene.probe(&key).await).is(None);
}

pub(crate) async fn a_stale_release_leaves_the_successor(scene: &Scene) {
    let key = scene.key();
    let (backend, other) = (scene.backend().await, scene.backend().await);
    let stale = scene.lease(&key).with_ttl(scene.ttl() / 10);
    grant(&backend, &stale).await;
    scene.until_free(&key, scene.ttl() / 10 + granularity(&backend)).await;
    let next = scene.lease(&key);
    grant(&other, &next).await;

    found!(backend.release(&stale).await.unwrap()).is(Release::NotHeld);

    let holder = scene.probe(&key).await.expect("a late release removed the successor's lease");
    found!(holder.fingerprint()).is(next.id().fingerprint());
    other.release(&next).await.unwrap();
}

pub(crate) async fn a_forged_id_releases_nothing(scene: &Scene) {
    let key = scene.key();
    let backend = scene.backend().await;
    let lease = scene.lease(&key);
    grant(&backend, &lease).await;

    let forged = scene.lease(&key);
    found!(backend.release(&forged).await.unwrap()).is(Release::NotHeld);

    found!(scene.probe(&key).await.is_some()).is(true);
    backend.release(&lease).await.unwrap();
}

pub(crate) async fn renewals_end_even_if_the_release_fails(scene: &Scene) {
    let key = scene.key();
    let (client, faults) = scene.faulty().await;
    let guard = client.mutex(&key).unwrap().lock().await.unwrap();
    faults.inject(Operation::Release, Fault::Fail(ErrorKind::Denied), 100);

    let error = guard.release().await.unwrap_err();

    found!(error.kind()).is(ErrorKind::Denied);
    let renewals = faults.calls(Operation::Renew);
    scene.until_free(&key, scene.ttl()).await;
    found!(faults.calls(Operation::Renew)).is(renewals);
}

pub(crate) async fn a_release_to_a_silent_store_ends_in_time_and_goes_on_behind(scene: &Scene) {
    let key = scene.key();
    let long = scene.options().ttl(scene.long_ttl());
    let (client, faults) = scene.faulty_with(long).await;
    let guard = client.mutex(&key).unwrap().lock().await.unwrap();
    faults.inject(Operation::Release, Fault::SwallowRequest, 1);

    let asked_at = scene.now();
    let error = guard.release().await.unwrap_err();

    found!(error.kind()).is(ErrorKind::Indeterminate);
    let took = scene.now().since(asked_at);
    found!(took, "the duration of the release").at_most(Duration::from_secs(5) + scene.slack());
    scene.until_free(&key, Duration::from_secs(1)).await;
}

pub(crate) async fn a_dropped_guard_is_released_in_the_background(scene: &Scene) {
    let key = scene.key();
    let client = scene.client_with(scene.options().ttl(scene.long_ttl())).await;

    drop(client.mutex(&key).unwrap().lock().await.unwrap());

    scene.until_free(&key, Duration::ZERO).await;
}

pub(crate) async fn a_background_release_is_repeated_until_it_is_heard(scene: &Scene) {
    let key = scene.key();
    let (client, faults) = scene.faulty_with(scene.options().ttl(scene.long_ttl())).await;
    let guard = client.mutex(&key).unwrap().lock().await.unwrap();
    faults.inject(Operation::Release, Fault::Fail(ErrorKind::Unavailable), 3);

    drop(guard);

    scene.until_free(&key, Duration::from_secs(3)).await;
}

pub(crate) async fn a_guard_dropped_by_a_panic_is_released(scene: &Scene) {
    let key = scene.key();
    let client = scene.client_with(scene.options().ttl(scene.long_ttl())).await;
    let mutex = client.mutex(&key).unwrap();

    let panicked = tokio::spawn(async move {
        let _guard = mutex.lock().await.unwrap();
        std::panic::resume_unwind(Box::new("as a holder's bug does"));
    });

    found!(panicked.await.unwrap_err().is_panic()).is(true);
    scene.until_free(&key, Duration::ZERO).await;
}

pub(crate) async fn a_guard_may_be_dropped_outside_of_any_runtime(scene: &Scene) {
    let key = scene.key();
    let client = scene.client_with(scene.options().ttl(scene.long_ttl())).await;
    let guard = client.mutex(&key).unwrap().lock().await.unwrap();

    std::thread::spawn(move || drop(guard))
        .join()
        .expect("dropping the guard outside of a runtime panicked");

    scene.until_free(&key, Duration::ZERO).await;
}

pub(crate) async fn a_guard_may_outlive_its_client(scene: &Scene) {
    let key = scene.key();
    let client = scene.client().await;
    let guard = client.mutex(&key).unwrap().lock().await.unwrap();

    drop(client);
    scene.pass(scene.ttl() * 2).await;

    found!(guard.is_held()).is(true);
    drop(guard);
    scene.until_free(&key, Duration::ZERO).await;
}

pub(crate) async fn a_release_has_happened_when_it_returns(scene: &Scene) {
    let key = scene.key();
    let (client, other) = (scene.client().await, scene.client().await);
    for _ in 0..50 {
        let guard = client.mutex(&key).unwrap().lock().await.unwrap();
        guard.release().await.unwrap();

        let guard = other.mutex(&key).unwrap().try_lock().await.unwrap();
        guard.release().await.unwrap();
    }
}

pub(crate) async fn a_shutdown_releases_all_that_it_can(scene: &Scene) {
    let (client, faults) = scene.faulty_with(scene.options().ttl(scene.long_ttl())).await;
    let keys: Vec<_> = (0..20).map(|_| scene.key()).collect();
    let mut guards = Vec::new();
    for key in &keys {
        guards.push(client.mutex(key).unwrap().lock().await.unwrap());
    }
    faults.inject(Operation::Release, Fault::Fail(ErrorKind::Unavailable), 3);

    client.shutdown(Duration::from_secs(5)).await.unwrap();

    for key in &keys {
        found!(scene.probe(key).await).is(None);
    }
    for guard in guards {
        found!(guard.lost().await).is(Some(LossReason::Shutdown));
        found!(guard.release().await.unwrap_err().loss()).is(Some(LossReason::Shutdown));
    }
    let refused = Error::from(client.mutex(&keys[0]).unwrap().try_lock().await.unwrap_err());
    found!(refused.kind()).is(ErrorKind::Closed);
}

pub(crate) async fn a_shutdown_that_cannot_finish_says_so_in_time(scene: &Scene) {
    let key = scene.key();
    let (client, faults) = scene.faulty().await;
    let _guard = client.mutex(&key).unwrap().lock().await.unwrap();
    faults.inject(Operation::Release, Fault::SwallowRequest, 100);

    let asked_at = scene.now();
    let error = client.shutdown(scene.ttl() / 4).await.unwrap_err();

    found!(error.kind()).is(ErrorKind::Indeterminate);
    found!(scene.now().since(asked_at)).at_most(scene.ttl() / 4 + scene.slack());
}

pub(crate) async fn min_hold_keeps_the_key_closed_after_the_release(scene: &Scene) -> Measured {
    let key = scene.key();
    let time = scene.ttl() * 3 / 2;
    let client = scene.client_with(scene.options().min_hold(time)).await;
    let other = scene.client().await;
    for drops in [false, true] {
        let locked_at = scene.now();
        let guard = client.mutex(&key).unwrap().lock().await.unwrap();
        if drops {
            drop(guard);
        } else {
            guard.release().await.unwrap();
        }

        let next = other.mutex(&key).unwrap().try_lock_for(time * 2).await.unwrap();

        let closed = scene.now().since(locked_at);
        let early = Duration::from_millis(5);
        let latest = longest(scene, other.backend(), time);
        found!(closed + early, "the time for which the key was locked, with a tolerance")
            .at_least(time);
        scene.in_time("the key becomes free", closed, latest)?;
        next.release().await.unwrap();
    }
    Ok(())
}
