//! A multi-lock acquires either all of its keys or none.

use std::future::pending;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use leasehold_core::backend::{LockBackend, Operation};
use leasehold_core::fault::Fault;
use leasehold_core::retry::Retry;
use leasehold_core::{ErrorKind, LockClient, LockKey, LockOptions, LossReason};
use tokio::task::JoinSet;

use super::cancellation::{MANY, polled};
use crate::scene::Scene;

fn long(scene: &Scene) -> LockOptions {
    scene.options().ttl(scene.long_ttl())
}

/// Returns `count` keys, in the order in which a multi-lock acquires them.
fn keys(scene: &Scene, count: usize) -> Vec<LockKey> {
    let mut keys: Vec<_> = (0..count).map(|_| scene.key()).collect();
    keys.sort();
    keys
}

async fn all_become_free<'a>(scene: &Scene, keys: impl IntoIterator<Item = &'a LockKey>) {
    for key in keys {
        scene.until_free(key, Duration::ZERO).await;
    }
}

pub(crate) async fn several_locks_are_all_taken_or_none(scene: &Scene) {
    let keys = keys(scene, 3);
    let (client, other) = (scene.client_with(long(scene)).await, scene.client().await);
    let whole = client.multi_lock().mutexes(&keys).unwrap();

    for held in &keys {
        let guard = other.mutex(held).unwrap().lock().await.unwrap();
        for refused in [whole.try_lock().await, whole.try_lock_for(scene.slack()).await] {
            found!(refused.unwrap_err().into_busy().is_ok()).is(true);
            all_become_free(scene, keys.iter().filter(|key| *key != held)).await;
        }
        guard.release().await.unwrap();
    }

    // A cancelled caller may leave a queue entry behind for a moment.
    let guard = whole.try_lock_for(scene.slack()).await.unwrap();
    let guard = guard;
    for key in &keys {
        found!(other.mutex(key).unwrap().try_lock().await).is_busy();
    }
    guard.release().await.unwrap();
    for key in &keys {
        found!(scene.probe(key).await, "a key was still held after the release had returned")
            .is(None);
    }
}

pub(crate) async fn a_part_that_fails_leaves_nothing(scene: &Scene) {
    let keys = keys(scene, 3);
    let (client, faults) = scene.faulty_with(long(scene)).await;
    let holder = scene.client_with(long(scene)).await;
    let whole = client.multi_lock().mutexes(&keys).unwrap();

    for failing in &keys {
        // One key is held, so the keys cannot be acquired together and are acquired one at a time.
        let held = holder.mutex(&keys[2]).unwrap().lock().await.unwrap();
        faults.inject_on(failing, Operation::Acquire, Fault::Fail(ErrorKind::Denied), 1);

        let error = whole.lock().await.unwrap_err();

        found!((error.kind(), error.key()), "{error}").is((ErrorKind::Denied, Some(failing)));
        held.release().await.unwrap();
        all_become_free(scene, &keys).await;
    }
}

pub(crate) async fn several_locks_may_be_dropped_at_any_point(scene: &Scene) {
    let client = scene.client_with(long(scene)).await;
    for polls in 0..MANY {
        let keys = keys(scene, 3);
        let whole = client.multi_lock().mutexes(&keys).unwrap();

        let completed = polled(scene, polls, whole.lock()).await;

        let done = completed.is_some();
        drop(completed);
        all_become_free(scene, &keys).await;
        if done {
            return;
        }
    }
    panic!("the acquisition did not finish: found no result after {MANY} polls, expected one");
}

pub(crate) async fn a_wait_for_the_last_part_may_be_dropped_at_any_point(scene: &Scene) {
    let keys = keys(scene, 3);
    let often = Retry::unlimited().every(Duration::from_millis(5));
    let client = scene.client_with(long(scene).retry(often)).await;
    let holder = scene.client_with(long(scene)).await;
    let whole = client.multi_lock().mutexes(&keys).unwrap();
    let guard = holder.mutex(&keys[2]).unwrap().lock().await.unwrap();

    for polls in 0..20 {
        let (one, other) =
            tokio::join!(polled(scene, polls, whole.lock()), polled(scene, polls, whole.lock()));

        found!(one.is_none()).is(true);
        found!(other.is_none()).is(true);
        all_become_free(scene, &keys[..2]).await;
    }

    guard.release().await.unwrap();
    let next = whole.try_lock_for(scene.ttl()).await.unwrap();
    next.release().await.unwrap();
}

/// An account, with the number of writes that were made under its lock.
struct Account {
    key: LockKey,
    balance: AtomicU64,
}

/// Repeatedly increments two accounts, whose keys are given in either order.
async fn transfer<B: LockBackend>(client: LockClient<B>, accounts: Arc<[Account]>, rounds: usize) {
    for _ in 0..rounds {
        let one = fastrand::usize(..accounts.len());
        let other = (one + fastrand::usize(1..accounts.len())) % accounts.len();
        let pair = [&accounts[one], &accounts[other]];
        let whole = client.multi_lock().mutexes(pair.map(|account| &account.key)).unwrap();

        let guard = whole.lock().await.unwrap();
        let before = pair.map(|account| account.balance.load(Ordering::SeqCst));
        tokio::task::yield_now().await;
        for (account, before) in pair.into_iter().zip(before) {
            account.balance.store(before + 1, Ordering::SeqCst);
        }
        guard.release().await.unwrap();
    }
}

pub(crate) async fn keys_named_in_opposite_orders_never_deadlock(scene: &Scene) {
    const CLIENTS: usize = 3;
    const TASKS: usize = 3;
    const ROUNDS: usize = 12;

    let account = |_| Account { key: scene.key(), balance: AtomicU64::new(0) };
    let accounts: Arc<[Account]> = (0..3).map(account).collect();
    let mut set = JoinSet::new();
    for _ in 0..CLIENTS {
        let client = scene.client_with(long(scene)).await;
        for _ in 0..TASKS {
            set.spawn(transfer(client.clone(), Arc::clone(&accounts), ROUNDS));
        }
    }
    while let Some(done) = set.join_next().await {
        done.unwrap();
    }

    let total: u64 = accounts.iter().map(|account| account.balance.load(Ordering::SeqCst)).sum();
    found!(total, "an update was lost, so two callers held the same locks at the same time")
        .is((CLIENTS * TASKS * ROUNDS * 2) as u64);
}

pub(crate) async fn one_wait_covers_all_parts(scene: &Scene) {
    let keys = keys(scene, 2);
    let (client, other) = (scene.client_with(long(scene)).await, scene.client().await);
    let first = other.mutex(&keys[0]).unwrap().lock().await.unwrap();
    let second = other.mutex(&keys[1]).unwrap().lock().await.unwrap();
    let whole = client.multi_lock().mutexes(&keys).unwrap();
    let wait = scene.ttl() * 2;

    let asked_at = scene.now();
    let freed = async {
        scene.pass(wait * 3 / 4).await;
        first.release().await.unwrap();
    };
    let (refused, ()) = tokio::join!(whole.try_lock_for(wait), freed);

    found!(refused.unwrap_err().into_busy().is_ok()).is(true);
    let waited = scene.now().since(asked_at);
    found!(waited).at_least(wait);
    found!(waited).less_than(wait + scene.slack());
    all_become_free(scene, &keys[..1]).await;
    second.release().await.unwrap();
}

pub(crate) async fn the_loss_of_one_part_is_the_loss_of_the_whole(scene: &Scene) {
    let keys = keys(scene, 3);
    let (client, operator) = (scene.client().await, scene.client().await);
    let guard = client.multi_lock().mutexes(&keys).unwrap().lock().await.unwrap();
    found!(guard.is_held()).is(true);

    operator.admin().force_release(&keys[1], "conformance").await.unwrap();
    let told = scene.within(scene.ttl() / 3 + scene.slack(), guard.lost()).await;

    found!(told.expect("the holder was not notified of the forced release in time"))
        .is(Some((keys[1].clone(), LossReason::Vanished)));
    found!(guard.is_held()).is(false);
    let error = guard.while_held(pending::<()>()).await.unwrap_err();
    found!((error.kind(), error.key()), "{error}").is((ErrorKind::LeaseLost, Some(&keys[1])));
    // The remaining keys stay held until the multi-lock is released.
    scene.pass(scene.ttl() * 3 / 2).await;
    for key in [&keys[0], &keys[2]] {
        found!(guard.get(key).unwrap().is_held()).is(true);
        found!(scene.probe(key).await.is_some()).is(true);
    }
    found!(guard.release().await.unwrap_err().kind()).is(ErrorKind::LeaseLost);
    all_become_free(scene, &keys).await;
}

pub(crate) async fn tokens_of_each_part_increase(scene: &Scene) {
    let keys = keys(scene, 3);
    let clients = [scene.client().await, scene.client().await];
    let mut last = [0; 3];

    for round in 0..4 {
        let whole = clients[round % 2].multi_lock().mutexes(&keys).unwrap();
        let guard = whole.lock().await.unwrap();

        for (key, last) in keys.iter().zip(&mut last) {
            let token = guard.get(key).unwrap().token();
            found!(token.key()).is(key);
            found!(token.number(), "the next token").more_than(*last);
            *last = token.number();
        }
        guard.release().await.unwrap();
    }
}

pub(crate) async fn parts_may_be_of_different_kinds(scene: &Scene) {
    let [mutex, read, write, permits] = [scene.key(), scene.key(), scene.key(), scene.key()];
    let all = [&mutex, &read, &write, &permits];
    let (client, other) = (scene.client_with(long(scene)).await, scene.client().await);
    let whole = client.multi_lock().mutex(&mutex).unwrap().read(&read).unwrap();
    let whole = whole.write(&write).unwrap().permits(&permits, 2, 3).unwrap();

    let guard = whole
        .try_lock()
        .await
        .expect("the locks could not be acquired, although all keys were free");

    found!(other.mutex(&mutex).unwrap().try_lock().await).is_busy();
    found!(other.rw_lock(&write).unwrap().try_read().await).is_busy();
    found!(other.rw_lock(&read).unwrap().try_write().await).is_busy();
    let beside = other
        .rw_lock(&read)
        .unwrap()
        .try_read()
        .await
        .expect("a second reader was rejected, although the lock was held only for reading");
    let semaphore = other.semaphore(&permits, 3).unwrap();
    found!(semaphore.try_acquire(2).await).is_busy();
    let third = semaphore
        .try_acquire(1)
        .await
        .expect("the third permit was rejected, although only two of three were held");
    beside.release().await.unwrap();
    guard.release().await.unwrap();

    // The remaining two permits are free for other callers.
    whole
        .try_lock()
        .await
        .expect("the locks could not be acquired, although two of three permits were free")
        .release()
        .await
        .unwrap();
    let second = semaphore.try_acquire(1).await.unwrap();
    found!(whole.try_lock_for(scene.slack()).await).is_busy();
    all_become_free(scene, all.into_iter().filter(|key| **key != permits)).await;
    second.release().await.unwrap();
    third.release().await.unwrap();
}
