//! Dropping a future at any point leaks at most one grant for one TTL.

use std::pin::pin;
use std::task::Poll;
use std::time::Duration;

use futures_util::FutureExt;
use futures_util::future::poll_fn;
use leasehold_core::ErrorKind;
use leasehold_core::backend::Operation;
use leasehold_core::fault::Fault;
use leasehold_core::retry::Retry;

use super::promptly;
use crate::scene::Scene;

/// A number of polls that exceeds what any operation of the suite needs.
pub(super) const MANY: usize = 60;

/// Polls `future` at most `polls` times and then drops it. In half of the calls, a pending reply
/// first has time to arrive before `future` is dropped.
pub(super) async fn polled<F: Future>(scene: &Scene, polls: usize, future: F) -> Option<F::Output> {
    let mut future = pin!(future);
    let mut left = polls;
    let output = poll_fn(|cx| {
        if left == 0 {
            return Poll::Ready(None);
        }
        left -= 1;
        match future.as_mut().poll(cx) {
            Poll::Ready(output) => Poll::Ready(Some(output)),
            Poll::Pending if left == 0 => Poll::Ready(None),
            Poll::Pending => Poll::Pending,
        }
    });
    let output = output.await;
    if output.is_none() && polls % 2 == 1 {
        scene.blink(Duration::from_millis(3)).await;
    }
    output
}

pub(crate) async fn an_acquisition_may_be_dropped_at_any_point(scene: &Scene) {
    let client = scene.client_with(scene.options().ttl(scene.long_ttl())).await;
    for polls in 0..MANY {
        let key = scene.key();
        let mutex = client.mutex(&key).unwrap();

        let completed = polled(scene, polls, mutex.lock()).await;

        let done = completed.is_some();
        drop(completed);
        scene.until_free(&key, Duration::ZERO).await;
        if done {
            return;
        }
    }
    panic!("the acquisition did not finish: found no result after {MANY} polls, expected one");
}

pub(crate) async fn a_wait_may_be_dropped_at_any_point(scene: &Scene) {
    let key = scene.key();
    let (holder, client) = (scene.client().await, scene.client().await);
    let often = Retry::unlimited().every(Duration::from_millis(5));
    let mutex = client.mutex(&key).unwrap().with_options(scene.options().retry(often)).unwrap();
    let guard = holder.mutex(&key).unwrap().lock().await.unwrap();

    for polls in 0..20 {
        found!(polled(scene, polls, mutex.lock()).await.is_none()).is(true);
        let queued = polled(scene, polls, mutex.lock());
        let behind = polled(scene, polls, mutex.lock());
        let (queued, behind) = tokio::join!(queued, behind);
        found!(queued.is_none()).is(true);
        found!(behind.is_none()).is(true);
    }

    guard.release().await.unwrap();
    let next = mutex.try_lock_for(promptly(scene)).await.unwrap();
    next.release().await.unwrap();
}

pub(crate) async fn a_grant_that_no_caller_takes_is_given_back(scene: &Scene) {
    let key = scene.key();
    let (client, faults) = scene.faulty_with(scene.options().ttl(scene.long_ttl())).await;
    let mutex = client.mutex(&key).unwrap();
    faults.inject(Operation::Acquire, Fault::SwallowReply, 1);

    let gone = scene.within(scene.ttl() / 10, mutex.lock()).await;

    found!(gone.is_none()).is(true);
    scene.until_free(&key, Duration::ZERO).await;
}

pub(crate) async fn a_release_may_be_dropped_at_any_point(scene: &Scene) {
    let client = scene.client_with(scene.options().ttl(scene.long_ttl())).await;
    for polls in 0..MANY {
        let key = scene.key();
        let guard = client.mutex(&key).unwrap().lock().await.unwrap();

        let released = polled(scene, polls, guard.release()).await;

        scene.until_free(&key, Duration::ZERO).await;
        if let Some(released) = released {
            return released.unwrap();
        }
    }
    panic!("the release did not finish: found no result after {MANY} polls, expected one");
}

pub(crate) async fn an_extension_may_be_dropped_at_any_point(scene: &Scene) {
    let (client, faults) = scene.faulty().await;
    for polls in 0..MANY {
        let key = scene.key();
        let guard = client.mutex(&key).unwrap().lock().await.unwrap();
        // The delayed reply creates a point between the request and the reply, even without a
        // network.
        faults.inject(Operation::Renew, Fault::DelayReply(Duration::from_millis(2)), 1);

        let done = polled(scene, polls, guard.extend(scene.ttl() * 2)).await.is_some();

        let stored = scene.probe(&key).await.unwrap().remaining().unwrap();
        found!(guard.remaining(), "the time for which the client considers the lease valid")
            .at_most(stored);
        guard
            .extend(scene.ttl() * 3)
            .await
            .expect("the guard could not be extended after a cancelled extension");
        guard.release().await.unwrap();
        if done {
            return;
        }
    }
    panic!("the extension did not finish: found no result after {MANY} polls, expected one");
}

pub(crate) async fn a_dropped_waiter_gives_way_to_the_next(scene: &Scene) {
    let key = scene.key();
    let client = scene.client().await;
    let mutex = client.mutex(&key).unwrap();
    let guard = mutex.lock().await.unwrap();
    let mut first = Box::pin(mutex.lock());
    let mut second = Box::pin(mutex.lock());
    let mut third = Box::pin(mutex.lock());
    for waiter in [&mut first, &mut second, &mut third] {
        found!(waiter.now_or_never().is_none()).is(true);
    }

    drop(first);
    guard.release().await.unwrap();
    drop(second);

    let third = scene
        .within(promptly(scene), third)
        .await
        .expect("the remaining waiter did not acquire the lock after the other waiter was dropped")
        .unwrap();
    third.release().await.unwrap();
}

pub(crate) async fn a_timeout_that_races_the_grant_leaves_a_guard_or_nothing(scene: &Scene) {
    let key = scene.key();
    let (client, faults) = scene.faulty_with(scene.options().ttl(scene.long_ttl())).await;
    let mutex = client.mutex(&key).unwrap();
    let (mut granted, mut cut_off) = (0, 0);
    // The caller gives up before the reply, at the same time as the reply, and long after the
    // reply.
    for patience in [0, 2, 3, 100].into_iter().cycle().take(200) {
        faults.inject(Operation::Acquire, Fault::DelayReply(Duration::from_millis(2)), 1);

        match scene.within(Duration::from_millis(patience), mutex.lock()).await {
            Some(guard) => {
                guard.unwrap().release().await.unwrap();
                granted += 1;
            }
            None => {
                scene.until_free(&key, Duration::ZERO).await;
                cut_off += 1;
            }
        }
    }
    found!(granted).more_than(0);
    found!(cut_off).more_than(0);
}

pub(crate) async fn a_loop_that_starts_over_leaves_nothing_behind(scene: &Scene) {
    let key = scene.key();
    let (holder, client) = (scene.client().await, scene.client().await);
    let guard = holder.mutex(&key).unwrap().lock().await.unwrap();
    let mutex = client.mutex(&key).unwrap();
    for _ in 0..200 {
        tokio::select! {
            locked = mutex.lock() => panic!("a wait for a held lock: found {locked:?}, expected no end"),
            () = scene.blink(Duration::from_micros(300)) => {}
        }
    }

    guard.release().await.unwrap();

    let next = mutex.try_lock_for(promptly(scene)).await.unwrap();
    next.release().await.unwrap();
}

pub(crate) async fn an_aborted_task_releases_its_lock(scene: &Scene) {
    let key = scene.key();
    let client = scene.client_with(scene.options().ttl(scene.long_ttl())).await;
    let mutex = client.mutex(&key).unwrap();
    let (sender, locked) = tokio::sync::oneshot::channel();
    let holder = tokio::spawn(async move {
        let _guard = mutex.lock().await.unwrap();
        sender.send(()).unwrap();
        std::future::pending::<()>().await;
    });
    locked.await.unwrap();

    holder.abort();

    found!(holder.await.unwrap_err().is_cancelled()).is(true);
    scene.until_free(&key, Duration::ZERO).await;
}

pub(crate) async fn dropped_calls_do_not_mix_up_later_replies(scene: &Scene) {
    let client = scene.client_with(scene.options().ttl(scene.long_ttl())).await;
    let keys: Vec<_> = (0..20).map(|_| scene.key()).collect();
    let holder = scene.client().await;
    let guard = holder.mutex(&keys[0]).unwrap().lock().await.unwrap();
    for round in 0..5 {
        for key in &keys {
            drop(polled(scene, 1 + round % 3, client.mutex(key).unwrap().lock()).await);
        }
        let locked = client.mutex(&keys[0]).unwrap().try_lock().await;
        found!(locked).is_busy();
    }

    for key in &keys[1..] {
        let guard = client.mutex(key).unwrap().try_lock_for(promptly(scene)).await.unwrap();
        found!(guard.key()).is(key);
        let holder = scene.probe(key).await.unwrap();
        found!(format!("{guard:?}").contains(&holder.fingerprint().to_string())).is(true);
        guard.release().await.unwrap();
    }
    guard.release().await.unwrap();
}

pub(crate) async fn any_fault_at_any_step_leaves_the_key_usable(scene: &Scene) {
    let short = scene.ttl() / 10;
    let faults_to_suffer = [
        Fault::Fail(ErrorKind::Unavailable),
        Fault::Fail(ErrorKind::Indeterminate),
        Fault::Fail(ErrorKind::Unexpected),
        Fault::LoseReply,
        Fault::DelayRequest(short),
        Fault::DelayReply(short),
        Fault::SwallowRequest,
        Fault::SwallowReply,
        Fault::Late(short),
    ];
    for operation in [Operation::Acquire, Operation::Renew, Operation::Release] {
        for fault in faults_to_suffer {
            let key = scene.key();
            let long = scene.options().ttl(scene.long_ttl());
            let (client, faults) = scene.faulty_with(long).await;
            faults.inject(operation, fault, 1);

            let mutex = client.mutex(&key).unwrap();
            if let Ok(guard) = mutex.try_lock_for(scene.ttl() / 2).await {
                drop(guard.extend(scene.ttl()).now_or_never());
                drop(scene.within(scene.ttl() / 2, guard.release()).await);
            }

            scene.until_free(&key, scene.ttl()).await;
        }
    }
}
