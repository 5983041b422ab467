//! The loss of a lease is reported truthfully, promptly and permanently.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use leasehold_core::backend::Operation;
use leasehold_core::fault::Fault;
use leasehold_core::{ErrorKind, LeaseState, LossReason};

use super::{begun, told_within, until_held};
use crate::fault::FaultKind;
use crate::scene::Scene;
use crate::stalls::Measured;

pub(crate) async fn a_loss_shows_in_every_way(scene: &Scene) {
    let key = scene.key();
    let (client, _faults) = scene.faulty().await;
    let guard = client.mutex(&key).unwrap().lock().await.unwrap();
    let lost = tokio::spawn(guard.lost());
    let dropped = Arc::new(AtomicBool::new(false));
    let flag = SetOnDrop(Arc::clone(&dropped));

    client.backend().expire(&key).await.unwrap();
    let ran = guard.while_held(async move {
        let _flag = flag;
        std::future::pending::<()>().await;
    });
    let error = ran.await.unwrap_err();

    found!(error.kind()).is(ErrorKind::LeaseLost);
    found!(error.loss()).is(Some(LossReason::Vanished));
    found!(dropped.load(Ordering::SeqCst), "the work ends after the loss").is(true);
    found!(guard.is_held()).is(false);
    found!(lost.await.unwrap()).is(Some(LossReason::Vanished));
    found!(guard.ensure_held(Duration::ZERO).unwrap_err().kind()).is(ErrorKind::LeaseLost);
    found!(guard.release().await.unwrap_err().kind()).is(ErrorKind::LeaseLost);
}

struct SetOnDrop(Arc<AtomicBool>);

impl Drop for SetOnDrop {
    fn drop(&mut self) {
        self.0.store(true, Ordering::SeqCst);
    }
}

pub(crate) async fn a_silent_network_is_a_loss_by_the_deadline(scene: &Scene) -> Measured {
    let key = scene.key();
    let client = scene.client().await;
    let stalls = scene.stalls();
    let guard = client.mutex(&key).unwrap().lock().await.unwrap();
    scene.disturb(FaultKind::NetworkSilent).await;
    let deadline = guard.deadline();

    let reason = guard.lost().await;

    found!(reason).is(Some(LossReason::Expired));
    let late = scene.now().since(deadline);
    stalls.in_time("the loss is reported", late, scene.prompt())?;
    scene.heal().await;
    drop(guard);
    Ok(())
}

pub(crate) async fn a_frozen_store_is_a_loss_by_the_deadline(scene: &Scene) -> Measured {
    let key = scene.key();
    let client = scene.client().await;
    let stalls = scene.stalls();
    let guard = client.mutex(&key).unwrap().lock().await.unwrap();
    scene.disturb(FaultKind::ServerStopped).await;
    let deadline = guard.deadline();

    let reason = guard.lost().await;

    found!(reason).is(Some(LossReason::Expired));
    let late = scene.now().since(deadline);
    stalls.in_time("the loss is reported", late, scene.prompt())?;
    scene.heal().await;
    scene.pass(scene.ttl()).await;
    found!(guard.state(), "a lost lease became valid again")
        .is(LeaseState::Lost(LossReason::Expired));
    drop(guard);
    // The store replies again, so the client works again.
    let guard = client.mutex(&key).unwrap().lock().await.unwrap();
    guard.release().await.unwrap();
    Ok(())
}

pub(crate) async fn a_deleted_key_is_a_loss_by_the_next_renewal(scene: &Scene) {
    let key = scene.key();
    let client = scene.client().await;
    let guard = client.mutex(&key).unwrap().lock().await.unwrap();

    let operator = scene.client().await;
    operator.admin().force_release(&key, "conformance").await.unwrap();
    let forced_at = scene.now();
    let reason = guard.lost().await;

    found!(reason).is(Some(LossReason::Vanished));
    found!(scene.now().since(forced_at)).at_most(scene.ttl() / 3 + scene.slack());
    found!(guard.release().await.unwrap_err().kind()).is(ErrorKind::LeaseLost);
}

pub(crate) async fn a_stolen_key_is_a_loss_at_once_where_the_store_tells(scene: &Scene) {
    let long = scene.long_ttl();
    let client = scene.client_with(scene.options().ttl(long)).await;
    let operator = scene.client().await;
    // The notification must also arrive after a renewal, so a renewal must keep the store's
    // notifications enabled.
    for renewals in 0..2 {
        let key = scene.key();
        let guard = client.mutex(&key).unwrap().lock().await.unwrap();
        for _ in 0..renewals {
            guard.extend(long).await.unwrap();
        }

        operator.admin().force_release(&key, "conformance").await.unwrap();

        scene
            .within(told_within(scene, long), guard.lost())
            .await
            .expect("the holder was not notified of the forced release in time");
    }
}

pub(crate) async fn a_theft_during_a_renewal_is_a_loss_at_once_too(scene: &Scene) {
    let key = scene.key();
    let long = scene.long_ttl();
    let (client, faults) = scene.faulty_with(scene.options().ttl(long)).await;
    let guard = client.mutex(&key).unwrap().lock().await.unwrap();
    let operator = scene.client().await;
    faults.inject(Operation::Renew, Fault::DelayReply(scene.ttl() / 5), 1);

    // The store sends its reply before the theft, and the reply arrives late.
    let theft = async {
        scene.pass(scene.ttl() / 10).await;
        operator.admin().force_release(&key, "conformance").await.unwrap();
    };
    let (extended, ()) = tokio::join!(guard.extend(long), theft);
    drop(extended);

    scene
        .within(told_within(scene, long), guard.lost())
        .await
        .expect("the holder was not notified of the forced release in time");
}

pub(crate) async fn passing_errors_are_no_loss(scene: &Scene) {
    let key = scene.key();
    let (client, faults) = scene.faulty().await;
    let guard = client.mutex(&key).unwrap().lock().await.unwrap();
    for kind in [ErrorKind::Unavailable, ErrorKind::Indeterminate, ErrorKind::Denied] {
        faults.inject(Operation::Renew, Fault::Fail(kind), 2);

        scene.pass(scene.ttl()).await;

        until_held(
            scene,
            &guard,
            Duration::ZERO,
            &format!("the lease survives errors of the kind {kind:?}"),
        )
        .await;
    }
    guard.release().await.unwrap();
}

pub(crate) async fn a_loss_is_seen_however_late_one_asks(scene: &Scene) {
    let key = scene.key();
    let (client, _faults) = scene.faulty().await;
    let guard = client.mutex(&key).unwrap().lock().await.unwrap();
    client.backend().expire(&key).await.unwrap();
    let gone = async || !guard.is_held();
    scene.until("the client notices the loss", scene.ttl() / 3, gone).await;

    scene.pass(scene.ttl()).await;

    for _ in 0..3 {
        found!(guard.lost().await).is(Some(LossReason::Vanished));
    }
    drop(guard);
}

pub(crate) async fn a_loss_lets_others_of_the_process_in(scene: &Scene) {
    let key = scene.key();
    let (client, _faults) = scene.faulty().await;
    let mutex = client.mutex(&key).unwrap();
    let lost = mutex.lock().await.unwrap();
    let waiting = tokio::spawn(begun({
        let mutex = mutex.clone();
        async move { mutex.lock().await.unwrap() }
    }));

    client.backend().expire(&key).await.unwrap();

    let next = scene
        .within(scene.ttl() * 2, waiting)
        .await
        .expect("the waiter did not acquire the lock after the loss")
        .unwrap();
    found!(lost.is_held()).is(false);
    found!(next.is_held()).is(true);
    found!(next.token()).more_than(lost.token());
    // Releasing the lost guard does not affect the new lease.
    found!(lost.release().await.unwrap_err().kind()).is(ErrorKind::LeaseLost);
    scene.pass(scene.ttl() / 10).await;
    next.release()
        .await
        .expect("the late release of the lost guard affected the new holder's lease");
}

pub(crate) async fn work_that_ends_in_time_is_returned(scene: &Scene) {
    let key = scene.key();
    let (client, _faults) = scene.faulty().await;
    let mutex = client.mutex(&key).unwrap();

    let token = mutex.run(async |guard| guard.token().number()).await.unwrap();
    found!(token).more_than(0);
    found!(scene.probe(&key).await).is(None);

    let work = mutex.run(async |_guard| {
        client.backend().expire(&key).await.unwrap();
        "the result of work that continued after the lease was lost"
    });
    found!(work.await.unwrap_err().kind()).is(ErrorKind::LeaseLost);
}
