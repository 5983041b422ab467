//! A reader-writer lock has many readers or one writer.

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::Duration;

use futures_util::FutureExt;
use leasehold_core::backend::{Claim, Lease, LockBackend, Mode, Operation, Release};
use leasehold_core::fault::Fault;
use leasehold_core::retry::Retry;
use leasehold_core::{ErrorKind, Holder, LockKey, LockOptions, OwnerId, RwLock};
use tokio::task::JoinSet;

use super::cancellation::{MANY, polled};
use super::{grant, longest, promptly, start_to_wait, woken_within};
use crate::scene::Scene;
use crate::stalls::Measured;

fn long(scene: &Scene) -> LockOptions {
    scene.options().ttl(scene.long_ttl())
}

fn reader(scene: &Scene, key: &LockKey) -> Lease {
    scene.lease(key).with_mode(Mode::READER)
}

/// Reads and writes alternately. Checks that a writer never overlaps with any other holder.
async fn read_and_write(lock: RwLock, inside: Arc<AtomicI64>, rounds: usize) {
    const WRITER: i64 = 1_000_000;

    for round in 0..rounds {
        if (round + fastrand::usize(..3)) % 3 == 0 {
            let guard = lock.write().await.unwrap();
            found!(inside.fetch_add(WRITER, Ordering::SeqCst), "a writer was not the only holder")
                .is(0);
            tokio::task::yield_now().await;
            inside.fetch_sub(WRITER, Ordering::SeqCst);
            guard.release().await.unwrap();
        } else {
            let guard = lock.read().await.unwrap();
            found!(
                inside.fetch_add(1, Ordering::SeqCst),
                "the number of readers, or WRITER, that hold the lock"
            )
            .less_than(WRITER);
            tokio::task::yield_now().await;
            inside.fetch_sub(1, Ordering::SeqCst);
            guard.release().await.unwrap();
        }
    }
}

pub(crate) async fn readers_share_and_a_writer_is_alone(scene: &Scene) {
    let key = scene.key();
    let inside = Arc::new(AtomicI64::new(0));
    let mut set = JoinSet::new();
    for fair in [false, false, true] {
        let client = scene.client_with(long(scene).fair(fair)).await;
        for _ in 0..3 {
            set.spawn(read_and_write(
                client.rw_lock(&key).unwrap(),
                Arc::clone(&inside),
                scene.rounds(125),
            ));
        }
    }
    while let Some(done) = set.join_next().await {
        done.unwrap();
    }

    let (one, other) = (scene.client().await, scene.client().await);
    let (one, other) = (one.rw_lock(&key).unwrap(), other.rw_lock(&key).unwrap());
    let guards = (one.read().await.unwrap(), other.read().await.unwrap());
    found!(one.try_write().await).is_busy();
    guards.0.release().await.unwrap();
    found!(one.try_write().await, "the writer's attempt while a reader holds the lock").is_busy();
    guards.1.release().await.unwrap();
    let writer =
        one.try_write().await.expect("a writer was rejected, although no reader held the lock");
    found!(other.try_read().await).is_busy();
    found!(other.try_write().await).is_busy();
    writer.release().await.unwrap();
}

pub(crate) async fn a_refused_reader_or_writer_is_told_a_holder(scene: &Scene) {
    let key = scene.key();
    let (one, other) = (scene.client().await, scene.client().await);
    let (one, other) = (one.rw_lock(&key).unwrap(), other.rw_lock(&key).unwrap());
    let writer = one.write().await.unwrap();
    for busy in [
        other.try_read().await.unwrap_err().into_busy().unwrap(),
        other.try_write().await.unwrap_err().into_busy().unwrap(),
        one.try_read().await.unwrap_err().into_busy().unwrap(),
        one.try_write_for(scene.slack()).await.unwrap_err().into_busy().unwrap(),
    ] {
        found!(busy.holder().map(Holder::units), "{busy}").is(Some(u32::MAX));
    }
    writer.release().await.unwrap();

    let reader = one.read().await.unwrap();
    for refused in [other.try_write().await, one.try_write_for(scene.slack()).await] {
        let busy = refused.unwrap_err().into_busy().unwrap();
        found!(busy.holder().map(Holder::units), "{busy}").is(Some(1));
        found!(busy.remaining().is_some_and(|time| time <= scene.ttl() + scene.slack())).is(true);
    }
    reader.release().await.unwrap();
}

pub(crate) async fn waiting_readers_enter_together(scene: &Scene) {
    let key = scene.key();
    let holder = scene.client_with(long(scene)).await;
    let writer = holder.rw_lock(&key).unwrap().write().await.unwrap();
    let mut waiting = Vec::new();
    for number in 0..4 {
        let (client, _faults) = scene.faulty_with(long(scene).fair(number % 2 == 0)).await;
        let lock = client.rw_lock(&key).unwrap();
        waiting.push(start_to_wait(scene, &client, async move { lock.read().await }).await);
    }

    writer.release().await.unwrap();

    // No reader releases the lock before the last reader has acquired it.
    let mut readers = Vec::new();
    for reader in waiting {
        let entered = scene
            .within(woken_within(scene, holder.backend()), reader)
            .await
            .expect("a reader was not admitted together with the other waiting readers");
        readers.push(entered.unwrap().unwrap());
    }
    for reader in readers {
        reader.release().await.unwrap();
    }
}

pub(crate) async fn a_dead_reader_keeps_a_writer_out_for_its_own_ttl_only(
    scene: &Scene,
) -> Measured {
    let key = scene.key();
    let backend = scene.backend().await;
    let client = scene.client().await;
    let alive = client.rw_lock(&key).unwrap().read().await.unwrap();
    let dead = reader(scene, &key).with_ttl(scene.ttl() * 3);
    let died_at = scene.now();
    grant(&backend, &dead).await;

    // The live reader is renewed several times in the meantime and then releases the lock.
    scene.pass(scene.ttl() * 2).await;
    alive.release().await.unwrap();
    let writer = client.rw_lock(&key).unwrap().write().await.unwrap();

    let after = scene.now().since(died_at);
    found!(
        after + Duration::from_millis(50),
        "the time until the writer was admitted, with a tolerance"
    )
    .at_least(scene.ttl() * 3);
    scene.in_time("the writer is admitted", after, longest(scene, &backend, scene.ttl() * 3))?;
    writer.release().await.unwrap();
    Ok(())
}

pub(crate) async fn readers_that_come_and_go_do_not_starve_a_writer(scene: &Scene) {
    let key = scene.key();
    let (client, _faults) = scene.faulty_with(long(scene)).await;
    let readers = scene.client_with(long(scene)).await;
    let first = readers.rw_lock(&key).unwrap().read().await.unwrap();
    let lock = client.rw_lock(&key).unwrap();
    let writer = start_to_wait(scene, &client, async move { lock.write().await.unwrap() }).await;

    // If the lock ignored waiting writers, there would always be at least one reader.
    let another = readers.rw_lock(&key).unwrap();
    found!(another.try_read().await).is_busy();
    let late = tokio::spawn(async move { another.read().await.unwrap() });
    first.release().await.unwrap();

    let writer = scene
        .within(woken_within(scene, readers.backend()), writer)
        .await
        .expect("the writer waited for a reader that arrived later");
    let writer = writer.unwrap();
    found!(late.is_finished()).is(false);
    writer.release().await.unwrap();
    late.await.unwrap().release().await.unwrap();
}

pub(crate) async fn a_waiting_writer_does_not_starve_readers(scene: &Scene) {
    let key = scene.key();
    let holder = scene.client_with(long(scene)).await;
    let first = holder.rw_lock(&key).unwrap().write().await.unwrap();
    let (client, _faults) = scene.faulty_with(long(scene)).await;
    let lock = client.rw_lock(&key).unwrap();
    let reader = start_to_wait(scene, &client, async move { lock.read().await.unwrap() }).await;
    let (client, _faults) = scene.faulty_with(long(scene)).await;
    let lock = client.rw_lock(&key).unwrap();
    let second = start_to_wait(scene, &client, async move { lock.write().await.unwrap() }).await;

    first.release().await.unwrap();

    let reader = scene
        .within(woken_within(scene, holder.backend()), reader)
        .await
        .expect("a reader that arrived before the second writer was not admitted first")
        .unwrap();
    found!(second.is_finished()).is(false);
    reader.release().await.unwrap();
    second.await.unwrap().release().await.unwrap();
}

pub(crate) async fn a_reader_that_would_write_is_told_of_the_deadlock(scene: &Scene) {
    let key = scene.key();
    let client = scene.client_with(long(scene)).await;
    let lock = client.rw_lock(&key).unwrap().reentrant();
    let would_write = async || {
        let outer = lock.read().await.unwrap();
        let inner = lock.read().await.unwrap();
        found!(outer.token()).is(inner.token());
        let error = lock.write().await.unwrap_err();
        found!(error.kind(), "{error}").is(ErrorKind::WouldDeadlock);
        found!(outer.is_held()).is(true);
        found!(inner.is_held()).is(true);
        inner.release().await.unwrap();
        outer.release().await.unwrap();
    };

    tokio::join!(OwnerId::new().scope(would_write()), OwnerId::new().scope(would_write()));

    lock.try_write()
        .await
        .expect("a writer was rejected after the readers had released the lock")
        .release()
        .await
        .unwrap();
}

pub(crate) async fn an_owner_that_writes_may_read_and_write_again(scene: &Scene) {
    let key = scene.key();
    let (client, other) = (scene.client_with(long(scene)).await, scene.client().await);
    let lock = client.rw_lock(&key).unwrap().reentrant();
    let other = other.rw_lock(&key).unwrap();

    let outer = lock.write().await.unwrap();
    let (again, inner) = (lock.write().await.unwrap(), lock.read().await.unwrap());
    found!((again.token(), inner.token())).is((outer.token(), outer.token()));
    let error = again.downgrade().await.unwrap_err();
    found!(error.kind(), "{error}").is(ErrorKind::Invalid);
    outer.release().await.unwrap();

    found!(other.try_read().await, "the reader's attempt while a writer has a guard").is_busy();
    inner.release().await.unwrap();
    other
        .try_read()
        .await
        .expect("a reader was rejected after the writer's last guard was released")
        .release()
        .await
        .unwrap();
}

pub(crate) async fn a_downgrade_lets_readers_in_and_no_writer_between(scene: &Scene) {
    let key = scene.key();
    let holder = scene.client_with(long(scene)).await;
    let writer = holder.rw_lock(&key).unwrap().write().await.unwrap();
    let (token, deadline) = (writer.token().clone(), writer.deadline());
    let (client, _faults) = scene.faulty_with(long(scene)).await;
    let lock = client.rw_lock(&key).unwrap();
    let reads = start_to_wait(scene, &client, async move { lock.read().await.unwrap() }).await;
    let (client, _faults) = scene.faulty_with(long(scene)).await;
    let lock = client.rw_lock(&key).unwrap();
    let writes = start_to_wait(scene, &client, async move { lock.write().await.unwrap() }).await;

    let downgraded = writer.downgrade().await.unwrap();

    found!((downgraded.token(), downgraded.units())).is((&token, 1));
    found!(downgraded.deadline()).at_least(deadline);
    let other = scene
        .within(woken_within(scene, holder.backend()), reads)
        .await
        .expect("a waiting reader was not admitted after the downgrade")
        .unwrap();
    found!(writes.is_finished()).is(false);
    other.release().await.unwrap();
    scene.pass(Duration::from_millis(20)).await;
    found!(downgraded.is_held()).is(true);
    found!(writes.is_finished()).is(false);
    downgraded.release().await.unwrap();
    writes.await.unwrap().release().await.unwrap();
}

pub(crate) async fn a_downgrade_wakes_waiting_readers(scene: &Scene) {
    let key = scene.key();
    let rarely = Retry::unlimited().every(scene.ttl() * 60);
    let holder = scene.client_with(long(scene)).await;
    let (client, _faults) = scene.faulty_with(long(scene).retry(rarely)).await;
    let writer = holder.rw_lock(&key).unwrap().write().await.unwrap();
    let lock = client.rw_lock(&key).unwrap();
    let reads = start_to_wait(scene, &client, async move { lock.read().await.unwrap() }).await;

    let downgraded = writer.downgrade().await.unwrap();

    let other = scene
        .within(promptly(scene), reads)
        .await
        .expect("a waiting reader was not notified of the downgrade in time")
        .unwrap();
    other.release().await.unwrap();
    downgraded.release().await.unwrap();
}

pub(crate) async fn a_downgrade_lets_readers_of_its_own_process_in(scene: &Scene) {
    let key = scene.key();
    let client = scene.client_with(long(scene)).await;
    let lock = client.rw_lock(&key).unwrap();
    let writer = lock.write().await.unwrap();
    let mut reads = Box::pin(lock.read());
    found!((&mut reads).now_or_never().is_none()).is(true);

    let downgraded = writer.downgrade().await.unwrap();

    let other = scene
        .within(scene.slack(), reads)
        .await
        .expect("a waiting reader was not admitted after the downgrade")
        .unwrap();
    found!(downgraded.is_held()).is(true);
    other.release().await.unwrap();
    downgraded.release().await.unwrap();
}

pub(crate) async fn a_downgrade_that_the_store_did_not_hear_of_is_repeated(scene: &Scene) {
    let key = scene.key();
    let (client, faults) = scene.faulty().await;
    let other = scene.client().await;
    let writer = client.rw_lock(&key).unwrap().write().await.unwrap();
    faults.inject(Operation::Renew, Fault::Fail(ErrorKind::Unavailable), 1);

    let downgraded = writer.downgrade().await.unwrap();

    let wait = scene.ttl() + scene.slack();
    let reader = other.rw_lock(&key).unwrap().try_read_for(wait).await.unwrap();
    reader.release().await.unwrap();
    found!(downgraded.is_held()).is(true);
    downgraded.release().await.unwrap();
}

pub(crate) async fn a_downgrade_may_be_dropped_at_any_point(scene: &Scene) {
    let client = scene.client_with(long(scene)).await;
    for polls in 0..MANY {
        let key = scene.key();
        let writer = client.rw_lock(&key).unwrap().write().await.unwrap();

        let downgraded = polled(scene, polls, writer.downgrade()).await;

        if let Some(downgraded) = downgraded {
            return downgraded.unwrap().release().await.unwrap();
        }
        scene.until_free(&key, Duration::ZERO).await;
    }
    panic!("the downgrade did not finish: found no result after {MANY} polls, expected one");
}

pub(crate) async fn a_reader_and_a_writer_cannot_release_each_other(scene: &Scene) {
    let key = scene.key();
    let backend = scene.backend().await;
    let writer = scene.lease(&key).with_mode(Mode::WRITER);
    let one = reader(scene, &key);
    grant(&backend, &one).await;
    let refused = backend.acquire(&Claim::new(writer.clone())).await.unwrap();
    found!(refused).is_refused();

    found!(backend.release(&writer).await.unwrap()).is(Release::NotHeld);
    found!(backend.release(&reader(scene, &key)).await.unwrap()).is(Release::NotHeld);
    found!(scene.probe(&key).await.is_some()).is(true);
    found!(backend.release(&one).await.unwrap()).is(Release::Released);

    grant(&backend, &writer).await;
    found!(backend.release(&one).await.unwrap()).is(Release::NotHeld);
    found!(backend.release(&writer).await.unwrap()).is(Release::Released);
}
