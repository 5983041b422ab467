//! A lock has at most one holder.

use std::collections::HashSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use futures_util::future::join_all;
use leasehold_core::backend::{Attempt, Claim, LockBackend, Operation};
use leasehold_core::fault::Fault;
use leasehold_core::{Error, ErrorKind, Holder, LockClient, Mutex, RenewalMode};
use tokio::task::JoinSet;

use super::{grant, refusal};
use crate::scene::Scene;

/// Increments `counter` `times` times under the lock, each time with a separate read and write.
async fn increment(mutex: Mutex, counter: Arc<AtomicU64>, times: u64) {
    for _ in 0..times {
        let guard = mutex.lock().await.unwrap();
        let before = counter.load(Ordering::SeqCst);
        tokio::task::yield_now().await;
        counter.store(before + 1, Ordering::SeqCst);
        guard.release().await.unwrap();
    }
}

/// Increments a counter in several tasks of each client, and checks that no increment is lost.
async fn contend<B: LockBackend>(scene: &Scene, clients: Vec<LockClient<B>>, tasks: u64) {
    let counter = Arc::new(AtomicU64::new(0));
    let mut set = JoinSet::new();
    let all = tasks * u64::try_from(clients.len()).unwrap();
    let (key, times) = (scene.key(), u64::try_from(scene.rounds(125)).unwrap());
    for client in &clients {
        for _ in 0..tasks {
            set.spawn(increment(client.mutex(&key).unwrap(), Arc::clone(&counter), times));
        }
    }
    while let Some(done) = set.join_next().await {
        done.unwrap();
    }
    found!(
        counter.load(Ordering::SeqCst),
        "increments were lost, so two callers held the lock at the same time"
    )
    .is(all * times);
}

pub(crate) async fn many_tasks_never_overlap(scene: &Scene) {
    contend(scene, vec![scene.client().await], 32).await;
}

pub(crate) async fn many_clients_never_overlap(scene: &Scene) {
    let mut clients = Vec::new();
    for _ in 0..4 {
        clients.push(scene.client().await);
    }

    contend(scene, clients, 4).await;
}

pub(crate) async fn a_held_lock_is_refused_at_once(scene: &Scene) {
    let key = scene.key();
    // The client renews early if a notification about a lease arrives late.
    let options = scene.options().ttl(scene.long_ttl()).renewal(RenewalMode::Off);
    let holder = scene.client_with(options).await;
    let guard = holder.mutex(&key).unwrap().lock().await.unwrap();
    let before = scene.probe(&key).await.unwrap();

    let asked_at = scene.now();
    let other = scene.client().await;
    let refused = other.mutex(&key).unwrap().try_lock().await;

    found!(refused).is_busy();
    found!(scene.now().since(asked_at)).less_than(scene.ttl());
    let after = scene.probe(&key).await.unwrap();
    found!(before.fingerprint()).is(after.fingerprint());
    found!(after.remaining(), "the remaining time after a rejected attempt")
        .at_most(before.remaining());
    found!(guard.is_held()).is(true);
    guard.release().await.unwrap();
}

pub(crate) async fn a_refusal_names_the_holder_and_the_time_left(scene: &Scene) {
    let key = scene.key();
    let (backend, other) = (scene.backend().await, scene.backend().await);
    let held = scene.lease(&key);
    grant(&backend, &held).await;

    let contention = refusal(&other, &scene.lease(&key)).await;

    let holder = contention.holder().expect("the store did not report the holder of a held key");
    found!(holder.fingerprint()).is(held.id().fingerprint());
    let remaining = holder.remaining().unwrap();
    found!(remaining).at_most(scene.ttl());
    found!(remaining).more_than(scene.ttl() / 2);
    backend.release(&held).await.unwrap();
}

pub(crate) async fn a_refused_caller_is_told_the_holder(scene: &Scene) {
    let key = scene.key();
    let options = scene.options().ttl(scene.long_ttl());
    let clients = [scene.client_with(options).await, scene.client().await];
    let mutexes = clients.each_ref().map(|client| client.mutex(&key).unwrap());
    let guard = mutexes[0].lock().await.unwrap();
    let ours = scene.probe(&key).await.unwrap();

    // The second client sends a request to the store, but the holder's client knows the holder
    // without a request.
    for mutex in mutexes {
        for wait in [Duration::ZERO, scene.slack()] {
            let busy = mutex.try_lock_for(wait).await.unwrap_err().into_busy().unwrap();
            found!(busy.key()).is(&key);
            let holder = busy.holder().expect("the store did not report the holder of a held key");
            found!(holder.fingerprint()).is(ours.fingerprint());
            found!(holder.description()).is(ours.description());
            // When a waiter refreshes its queue entry, etcd reports the holder but not the
            // remaining time.
            let remaining = busy.remaining().or((wait > Duration::ZERO).then_some(scene.ttl() * 2));
            let is_true = |time| time > scene.ttl() && time <= scene.long_ttl();
            found!(
                remaining.is_some_and(is_true),
                "the refusal reports the remaining time: {busy:?}"
            )
            .is(true);

            let mutex = mutex.clone().with_options(scene.options().wait(wait)).unwrap();
            let error = mutex.lock().await.unwrap_err();
            found!(error.kind()).is(ErrorKind::Timeout);
            found!(error.holder().map(Holder::fingerprint)).is(Some(ours.fingerprint()));
        }
    }
    guard.release().await.unwrap();
}

pub(crate) async fn similar_names_are_different_locks(scene: &Scene) {
    let client = scene.client().await;
    let name = scene.key().as_str().to_owned();
    let mut guards = Vec::new();
    for similar in [
        name.clone(),
        format!("{name}/"),
        format!("{name}0"),
        format!("{name} "),
        format!(" {name}"),
        name.to_uppercase(),
        name.replace('/', ":"),
        name[..name.len() - 1].to_owned(),
        name.replace('/', "%2F"),
    ] {
        let guard = client.mutex(&similar).unwrap().try_lock().await;
        guards.push(guard.unwrap_or_else(|error| {
            panic!("the lock {similar:?}: found the error {error}, expected a free lock")
        }));
    }

    for guard in guards {
        guard.release().await.unwrap();
    }
}

pub(crate) async fn one_name_is_one_lock_for_all_clients(scene: &Scene) {
    let key = scene.key();
    let (one, other) = (scene.client().await, scene.client().await);
    let guard = one.mutex(&key).unwrap().lock().await.unwrap();

    found!(other.mutex(key.as_str()).unwrap().try_lock().await).is_busy();

    guard.release().await.unwrap();
    let guard = other.mutex(key.as_str()).unwrap().try_lock().await.unwrap();
    found!(one.mutex(&key).unwrap().try_lock().await).is_busy();
    guard.release().await.unwrap();
}

pub(crate) async fn an_expired_lease_has_one_successor(scene: &Scene) {
    const ROUNDS: usize = 4;

    /// A few attempts are made before the lease expires.
    const BEFORE: Duration = Duration::from_millis(5);

    let key = scene.key();
    let mut backends = Vec::new();
    for _ in 0..8 {
        backends.push(scene.backend().await);
    }
    for _ in 0..ROUNDS {
        // A quorum waits for replies from its members for a part of the TTL, and a store with
        // sessions must keep a session for at least that time.
        let short = scene.lease(&key).with_ttl(scene.ttl() / 4);
        grant(&backends[0], &short).await;

        // Several clients make attempts at the same time, from shortly before until shortly after
        // the lease expires.
        scene.pass(short.ttl() - BEFORE).await;
        let mut successors = Vec::new();
        while successors.is_empty() {
            let attempts = backends.iter().map(async |backend| {
                let lease = scene.lease(&key);
                let attempt = backend.acquire(&Claim::new(lease.clone())).await.unwrap();
                matches!(attempt, Attempt::Granted(_)).then_some(lease)
            });
            successors.extend(join_all(attempts).await.into_iter().flatten());
            scene.pass(Duration::from_millis(1)).await;
        }

        found!(successors.len(), "{successors:?}").is(1);
        backends[0].release(&successors[0]).await.unwrap();
    }
}

pub(crate) async fn a_grant_whose_reply_is_lost_is_the_same_acquisition(scene: &Scene) {
    let key = scene.key();
    let (client, faults) = scene.faulty().await;
    faults.inject(Operation::Acquire, Fault::LoseReply, 1);

    let guard = client.mutex(&key).unwrap().lock().await.unwrap();

    found!(faults.calls(Operation::Acquire)).is(2);
    let other = scene.client().await;
    found!(other.mutex(&key).unwrap().try_lock().await).is_busy();
    guard.release().await.unwrap();
    found!(scene.probe(&key).await).is(None);
}

pub(crate) async fn a_grant_without_a_reply_is_given_back(scene: &Scene) {
    let key = scene.key();
    let (client, faults) = scene.faulty_with(scene.options().ttl(scene.long_ttl())).await;
    faults.inject(Operation::Acquire, Fault::LoseReply, 1);
    faults.inject(Operation::Acquire, Fault::Fail(ErrorKind::Unavailable), 1_000);

    // The errors of later attempts do not show the outcome of the first attempt.
    let error =
        Error::from(client.mutex(&key).unwrap().try_lock_for(scene.ttl()).await.unwrap_err());

    found!(error.kind()).is(ErrorKind::Unavailable);
    scene.until_free(&key, Duration::ZERO).await;
}

pub(crate) async fn a_request_that_arrives_late_is_not_reported_as_held(scene: &Scene) {
    let key = scene.key();
    let (client, faults) = scene.faulty().await;
    let late = scene.ttl() / 4;
    faults.inject(Operation::Acquire, Fault::Late(late), 1);
    faults.inject(Operation::Release, Fault::SwallowRequest, 9);

    let error = Error::from(client.mutex(&key).unwrap().try_lock_for(late / 2).await.unwrap_err());

    found!(error.kind()).is(ErrorKind::Indeterminate);
    scene
        .until("the store applies the late request", late, async || {
            scene.probe(&key).await.is_some()
        })
        .await;
    scene.until_free(&key, scene.ttl()).await;
}

pub(crate) async fn a_grant_that_comes_too_late_is_refused_and_given_back(scene: &Scene) {
    let key = scene.key();
    let (client, faults) = scene.faulty().await;
    faults.inject(Operation::Acquire, Fault::DelayReply(scene.ttl()), 1);

    let error = Error::from(client.mutex(&key).unwrap().try_lock().await.unwrap_err());

    found!(error.kind()).is(ErrorKind::Indeterminate);
    scene.until_free(&key, Duration::ZERO).await;
}

pub(crate) async fn locks_of_one_client_do_not_mix(scene: &Scene) {
    let (client, other) = (scene.client().await, scene.client().await);
    let keys: Vec<_> = (0..40).map(|_| scene.key()).collect();
    let mut guards = Vec::new();
    for key in &keys {
        guards.push(client.mutex(key).unwrap().lock().await.unwrap());
    }

    for (key, guard) in keys.iter().zip(&guards) {
        found!(guard.key()).is(key);
        found!(other.mutex(key).unwrap().try_lock().await).is_busy();
    }
    let holders: HashSet<_> = {
        let mut holders = HashSet::new();
        for key in &keys {
            holders.insert(scene.probe(key).await.unwrap().fingerprint());
        }
        holders
    };
    found!(holders.len(), "two locks have the same lease ID").is(keys.len());

    // Releasing some leases does not affect the remaining ones.
    let kept = guards.split_off(20);
    for guard in guards {
        guard.release().await.unwrap();
    }
    for (key, guard) in keys[20..].iter().zip(kept) {
        found!(scene.probe(key).await.is_some()).is(true);
        guard.release().await.unwrap();
    }
}

pub(crate) async fn a_guard_may_be_released_by_another_task(scene: &Scene) {
    let key = scene.key();
    let client = scene.client().await;
    let guard = client.mutex(&key).unwrap().lock().await.unwrap();

    tokio::spawn(guard.release()).await.unwrap().unwrap();

    found!(scene.probe(&key).await).is(None);
}
