//! An owner can reacquire a lock that it already holds; no other owner can.

use leasehold_core::backend::Operation;
use leasehold_core::fault::Fault;
use leasehold_core::{ErrorKind, LossReason, OwnerId, TryLockError};

use crate::scene::Scene;

pub(crate) async fn an_owner_enters_again_and_others_wait_for_its_last_guard(scene: &Scene) {
    let key = scene.key();
    let (client, other) = (scene.client().await, scene.client().await);
    let (mutex, theirs) = (client.reentrant_mutex(&key).unwrap(), other.mutex(&key).unwrap());

    let outer = mutex.lock().await.unwrap();
    let inner = mutex.try_lock().await.expect("the owner could not acquire its lock again");
    assert!(matches!(theirs.try_lock().await, Err(TryLockError::Busy(_))));
    outer.release().await.unwrap();
    assert!(
        matches!(theirs.try_lock().await, Err(TryLockError::Busy(_))),
        "the lock was released while the owner still had a guard"
    );
    assert!(inner.is_held());
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
    assert!(matches!(refused, Err(TryLockError::Busy(_))));
    let spawned = mutex.clone();
    let refused = tokio::spawn(async move { spawned.try_lock().await }).await.unwrap();
    assert!(matches!(refused, Err(TryLockError::Busy(_))));

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

    assert_eq!(guard.token(), again.token());
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
        assert_eq!(guard.token(), outer.token());
        inner.push(guard);
    }
    for guard in inner {
        guard.release().await.unwrap();
    }

    assert_eq!(faults.calls(Operation::Acquire), 1);
    assert_eq!(faults.calls(Operation::Release), 0);
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

    assert!(outer.is_held());
    assert!(scene.witness(&key).await.is_some());
    outer.release().await.unwrap();
    assert_eq!(scene.witness(&key).await, None);
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

    assert_eq!(refused.kind(), ErrorKind::ReentryLimit);
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

    assert_eq!(inner.lost().await, Some(LossReason::Vanished));
    assert!(!outer.is_held());
    let refused = mutex.lock().await.unwrap_err();
    assert_eq!(
        refused.kind(),
        ErrorKind::LeaseLost,
        "the owner acquired a new lease while a guard of the lost lease existed"
    );
    for guard in [inner, outer] {
        assert_eq!(guard.release().await.unwrap_err().kind(), ErrorKind::LeaseLost);
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
    assert!(scene.witness(&key).await.is_some());
    outer.release().await.unwrap();

    assert_eq!(scene.witness(&key).await, None);
}

pub(crate) async fn a_plain_mutex_never_enters_again(scene: &Scene) {
    let key = scene.key();
    let client = scene.client().await;
    let mutex = client.mutex(&key).unwrap();
    let guard = mutex.lock().await.unwrap();

    assert!(matches!(mutex.try_lock().await, Err(TryLockError::Busy(_))));
    let impatient = mutex.with_options(scene.options().wait(scene.ttl() / 10)).unwrap();
    let refused = impatient.lock().await.unwrap_err();

    assert_eq!(refused.kind(), ErrorKind::Timeout);
    guard.release().await.unwrap();
}

pub(crate) async fn joined_calls_of_one_owner_share_the_lock(scene: &Scene) {
    let key = scene.key();
    let client = scene.client().await;
    let mutex = client.reentrant_mutex(&key).unwrap();

    let (one, other) = tokio::join!(mutex.lock(), mutex.lock());
    let (one, other) = (one.unwrap(), other.unwrap());

    assert_eq!(one.token(), other.token());
    one.release().await.unwrap();
    other.release().await.unwrap();
    assert_eq!(scene.witness(&key).await, None);
}
