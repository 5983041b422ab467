//! A striped lock grants a caller any one of several slots.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use leasehold_core::retry::Retry;
use leasehold_core::{LockOptions, Striped};
use tokio::task::JoinSet;

use super::cancellation::polled;
use super::start_to_wait;
use crate::scene::Scene;

const SEGMENTS: u32 = 4;

fn long(scene: &Scene) -> LockOptions {
    scene.options().ttl(scene.long_ttl())
}

async fn all_become_free(scene: &Scene, striped: &Striped) {
    for segment in striped.segments() {
        scene.until_free(segment, Duration::ZERO).await;
    }
}

pub(crate) async fn each_segment_has_one_holder_and_all_can_be_had(scene: &Scene) {
    let key = scene.key();
    let clients = [scene.client_with(long(scene)).await, scene.client_with(long(scene)).await];
    let striped = clients.each_ref().map(|client| client.striped(&key, SEGMENTS).unwrap());

    let mut guards = Vec::new();
    for number in 0..SEGMENTS as usize {
        let guard = striped[number % 2].try_lock().await;
        guards.push(guard.unwrap_or_else(|error| {
            panic!("segment {number}: found the error {error}, expected a free segment")
        }));
    }

    let held: BTreeSet<u32> = guards.iter().map(|guard| guard.segment()).collect();
    found!(held, "two guards hold the same segment").is((0..SEGMENTS).collect());
    for striped in &striped {
        found!(striped.try_lock().await).is_busy();
    }
    let freed = guards.swap_remove(1);
    let segment = freed.segment();
    freed.release().await.unwrap();
    let again =
        striped[0].try_lock().await.expect("the released segment could not be acquired again");
    found!(again.segment()).is(segment);
    guards.push(again);
    for guard in guards {
        guard.release().await.unwrap();
    }
    all_become_free(scene, &striped[0]).await;
}

pub(crate) async fn no_two_meet_in_a_segment(scene: &Scene) {
    let key = scene.key();
    let inside: Arc<[AtomicUsize]> = (0..SEGMENTS).map(|_| AtomicUsize::new(0)).collect();
    let mut set = JoinSet::new();
    for _ in 0..3 {
        let client = scene.client_with(long(scene)).await;
        for _ in 0..3 {
            let striped = client.striped(&key, SEGMENTS).unwrap();
            let inside = Arc::clone(&inside);
            set.spawn(async move {
                for _ in 0..12 {
                    let guard = striped.lock().await.unwrap();
                    let inside = &inside[guard.segment() as usize];
                    found!(
                        inside.fetch_add(1, Ordering::SeqCst),
                        "two callers held the same segment at the same time"
                    )
                    .is(0);
                    tokio::task::yield_now().await;
                    inside.fetch_sub(1, Ordering::SeqCst);
                    guard.release().await.unwrap();
                }
            });
        }
    }

    while let Some(done) = set.join_next().await {
        done.unwrap();
    }

    let client = scene.client().await;
    all_become_free(scene, &client.striped(&key, SEGMENTS).unwrap()).await;
}

pub(crate) async fn a_waiter_gets_the_first_segment_that_is_freed(scene: &Scene) {
    let key = scene.key();
    let holder = scene.client_with(long(scene)).await;
    // While the waiter is queued for one slot, it checks the remaining slots twice before its wait
    // ends.
    let often = Retry::unlimited().every(scene.ttl() / 20);
    let (client, _faults) = scene.faulty_with(long(scene).retry(often)).await;
    let striped = holder.striped(&key, SEGMENTS).unwrap();
    let mut guards = Vec::new();
    for _ in 0..SEGMENTS {
        guards.push(striped.try_lock().await.unwrap());
    }

    for _ in 0..3 {
        let waiting = client.striped(&key, SEGMENTS).unwrap();
        let waits = async move { waiting.lock().await.unwrap() };
        let waiter = start_to_wait(scene, &client, waits).await;
        found!(waiter.is_finished()).is(false);
        let freed = guards.swap_remove(fastrand::usize(..guards.len()));
        let segment = freed.segment();

        freed.release().await.unwrap();

        let served = scene.within(scene.ttl() / 10 + scene.slack(), waiter).await;
        let served = served.expect("the waiter did not acquire the released segment").unwrap();
        found!(served.segment()).is(segment);
        served.release().await.unwrap();
        scene.until_free(&striped.segments()[segment as usize], Duration::ZERO).await;
        guards.push(
            striped
                .try_lock()
                .await
                .expect("a segment was still held after its guard was released"),
        );
    }
    drop(guards);
    all_become_free(scene, &striped).await;
}

pub(crate) async fn a_wait_for_a_segment_may_be_dropped_at_any_point(scene: &Scene) {
    let key = scene.key();
    let holder = scene.client_with(long(scene)).await;
    let often = Retry::unlimited().every(Duration::from_millis(5));
    let client = scene.client_with(long(scene).retry(often)).await;
    let (held, waiting) = (holder.striped(&key, 2).unwrap(), client.striped(&key, 2).unwrap());
    let guards = (held.try_lock().await.unwrap(), held.try_lock().await.unwrap());

    for polls in 0..20 {
        let (one, other) = tokio::join!(
            polled(scene, polls, waiting.lock()),
            polled(scene, polls, waiting.lock())
        );
        found!(one.is_none()).is(true);
        found!(other.is_none()).is(true);
    }
    guards.0.release().await.unwrap();
    guards.1.release().await.unwrap();
    all_become_free(scene, &held).await;

    // The slots also become free if the calls are cancelled while a slot is free.
    for polls in 0..20 {
        drop(polled(scene, polls, waiting.lock()).await);
        all_become_free(scene, &held).await;
    }
}
