//! An owner can reacquire a lock that it already holds; no other owner can.

use leasehold_core::backend::Operation;
use leasehold_core::fault::Fault;
use leasehold_core::{ErrorKind, LossReason, OwnerId};

use crate::scene::Scene;

pub(crate) async fn an_owner_enters_again_and_others_wait_for_its_last_guard(scene: &Scene) {
    let key = scene.key();
    let (client, other) = (scene.client().await, scene.client().await);
    let (mutex, theirs) = (client.reentrant_mutex(&key).unwrap(), other.mutex(&key).unwrap());

    let outer = mutex.lock().await.unwrap();
    let inner = mutex.try_lock().await.expect("the owner could not acquire its lock again");
    found!(theirs.try_lock().await).is_busy();
    outer.release().await.unwrap();
    found!(theirs.try_lock().await, "an attempt while the owner still has a guard").is_busy();
    found!(inner.is_held()).is(true);
    inner.release().await.unwrap();

    theirs
        .try_lock()
        .await
        .expect("the lock was still held after the owner's last guard was released")
        .release()
        .await
        .unwrap();
}

pub(crate) async fn another_owner_in_the_same_task_is_kept_out(scene: &Scene) {
    let key = scene.key();
    let client = scene.client().await;
    let mutex = client.reentrant_mutex(&key).unwrap();
    let guard = mutex.lock().await.unwrap();

    let refused = OwnerId::new().scope(mutex.try_lock()).await;
    found!(refused).is_busy();
    let spawned = mutex.clone();
    let refused = tokio::spawn(async move { spawned.try_lock().await }).await.unwrap();
    found!(refused).is_busy();

    guard.release().await.unwrap();
}

pub(crate) async fn an_owner_may_be_many_tasks(scene: &Scene) {
    let key = scene.key();
    let client = scene.client().await;
    let mutex = client.reentrant_mutex(&key).unwrap();
    let owner = OwnerId::new();
    let guard = owner.scope(mutex.lock()).await.unwrap();

    let again = tokio::spawn(async move { owner.scope(mutex.try_lock()).await });
    let again = again.await.unwrap().unwrap();

    found!(guard.token()).is(again.token());
    again.release().await.unwrap();
    guard.release().await.unwrap();
}

pub(crate) async fn entering_again_is_no_request_and_no_new_token(scene: &Scene) {
    let key = scene.key();
    let (client, faults) = scene.faulty().await;
    let mutex = client.reentrant_mutex(&key).unwrap();
    let outer = mutex.lock().await.unwrap();

    let mut inner = Vec::new();
    for _ in 0..10 {
        let guard = mutex.lock().await.unwrap();
        found!(guard.token()).is(outer.token());
        inner.push(guard);
    }
    for guard in inner {
        guard.release().await.unwrap();
    }

    found!(faults.calls(Operation::Acquire)).is(1);
    found!(faults.calls(Operation::Release)).is(0);
    outer.release().await.unwrap();
}

pub(crate) async fn an_inner_release_leaves_the_lock_and_its_renewal(scene: &Scene) {
    let key = scene.key();
    let client = scene.client().await;
    let mutex = client.reentrant_mutex(&key).unwrap();
    let outer = mutex.lock().await.unwrap();
    mutex.lock().await.unwrap().release().await.unwrap();
    drop(mutex.lock().await.unwrap());

    scene.pass(scene.ttl() * 3 / 2).await;

    found!(outer.is_held()).is(true);
    found!(scene.probe(&key).await.is_some()).is(true);
    outer.release().await.unwrap();
    found!(scene.probe(&key).await).is(None);
}

pub(crate) async fn the_depth_limit_is_an_error_at_once(scene: &Scene) {
    let key = scene.key();
    let client = scene.client_with(scene.options().reentry_limit(3)).await;
    let mutex = client.reentrant_mutex(&key).unwrap();
    let mut guards = Vec::new();
    for _ in 0..3 {
        guards.push(mutex.lock().await.unwrap());
    }

    let refused = mutex.lock().await.unwrap_err();

    found!(refused.kind()).is(ErrorKind::ReentryLimit);
    guards.pop().unwrap().release().await.unwrap();
    mutex.lock().await.unwrap().release().await.unwrap();
    for guard in guards {
        guard.release().await.unwrap();
    }
}

pub(crate) async fn a_loss_is_the_loss_of_all_levels(scene: &Scene) {
    let key = scene.key();
    let (client, _faults) = scene.faulty().await;
    let mutex = client.reentrant_mutex(&key).unwrap();
    let outer = mutex.lock().await.unwrap();
    let inner = mutex.lock().await.unwrap();

    client.backend().expire(&key).await.unwrap();

    found!(inner.lost().await).is(Some(LossReason::Vanished));
    found!(outer.is_held()).is(false);
    let refused = mutex.lock().await.unwrap_err();
    found!(
        refused.kind(),
        "the owner acquired a new lease while a guard of the lost lease existed"
    )
    .is(ErrorKind::LeaseLost);
    for guard in [inner, outer] {
        found!(guard.release().await.unwrap_err().kind()).is(ErrorKind::LeaseLost);
    }
    mutex
        .lock()
        .await
        .expect("the lock could not be acquired after all guards of the lost lease were gone")
        .release()
        .await
        .unwrap();
}

pub(crate) async fn a_lost_reply_does_not_spoil_the_count(scene: &Scene) {
    let key = scene.key();
    let (client, faults) = scene.faulty().await;
    let mutex = client.reentrant_mutex(&key).unwrap();
    faults.inject(Operation::Acquire, Fault::LoseReply, 2);

    let outer = mutex.lock().await.unwrap();
    let inner = mutex.lock().await.unwrap();
    inner.release().await.unwrap();
    found!(scene.probe(&key).await.is_some()).is(true);
    outer.release().await.unwrap();

    found!(scene.probe(&key).await).is(None);
}

pub(crate) async fn a_plain_mutex_never_enters_again(scene: &Scene) {
    let key = scene.key();
    let client = scene.client().await;
    let mutex = client.mutex(&key).unwrap();
    let guard = mutex.lock().await.unwrap();

    found!(mutex.try_lock().await).is_busy();
    let impatient = mutex.with_options(scene.options().wait(scene.ttl() / 10)).unwrap();
    let refused = impatient.lock().await.unwrap_err();

    found!(refused.kind()).is(ErrorKind::Timeout);
    guard.release().await.unwrap();
}

pub(crate) async fn joined_calls_of_one_owner_share_the_lock(scene: &Scene) {
    let key = scene.key();
    let client = scene.client().await;
    let mutex = client.reentrant_mutex(&key).unwrap();

    let (one, other) = tokio::join!(mutex.lock(), mutex.lock());
    let (one, other) = (one.unwrap(), other.unwrap());

    found!(one.token()).is(other.token());
    one.release().await.unwrap();
    other.release().await.unwrap();
    found!(scene.probe(&key).await).is(None);
}
