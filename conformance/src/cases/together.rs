//! One atomic step acquires several keys.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use leasehold_core::backend::{
    AttemptAll, Claim, Contention, Grant, Lease, LockBackend, Mode, Patience, Release, Renewal,
};
use leasehold_core::{ErrorKind, LockKey};

use super::{grant, refusal};
use crate::scene::Scene;

/// Returns leases for `count` keys, which do not expire during a case.
fn leases(scene: &Scene, count: usize) -> Vec<Lease> {
    (0..count).map(|_| long_lease(scene, &scene.key())).collect()
}

fn long_lease(scene: &Scene, key: &LockKey) -> Lease {
    scene.lease(key).with_ttl(scene.long_ttl())
}

fn claims(leases: &[Lease]) -> Vec<Claim> {
    leases.iter().cloned().map(Claim::new).collect()
}

/// Makes one attempt to acquire all leases, which must succeed.
async fn grant_all<B: LockBackend>(backend: &B, leases: &[Lease]) -> Vec<Grant> {
    match backend.acquire_all(&claims(leases)).await.unwrap() {
        AttemptAll::Granted(grants) => {
            found!(grants.len()).is(leases.len());
            grants
        }
        AttemptAll::Held { key, contention } => {
            panic!("the free key {key}: found a refusal, {contention:?}, expected a grant")
        }
    }
}

/// Makes one attempt to acquire all leases, which must fail because one key is held.
async fn refusal_of_all<B: LockBackend>(backend: &B, claims: &[Claim]) -> (LockKey, Contention) {
    match backend.acquire_all(claims).await.unwrap() {
        AttemptAll::Granted(grants) => {
            panic!("a request that includes a held key: found {grants:?}, expected a refusal")
        }
        AttemptAll::Held { key, contention } => (key, contention),
    }
}

async fn release_all<B: LockBackend>(backend: &B, leases: &[Lease]) {
    for lease in leases {
        found!(backend.release(lease).await.unwrap()).is(Release::Released);
    }
}

pub(crate) async fn all_keys_are_granted_or_none(scene: &Scene) {
    let (backend, other) = (scene.backend().await, scene.backend().await);
    for in_the_way in 0..3 {
        let wanted = leases(scene, 3);
        let held = long_lease(scene, wanted[in_the_way].key());
        grant(&other, &held).await;

        let (key, contention) = refusal_of_all(&backend, &claims(&wanted)).await;

        found!(&key).is(held.key());
        if let Some(holder) = contention.holder() {
            found!(holder.fingerprint()).is(held.id().fingerprint());
        }
        for lease in &wanted {
            let holder = scene.probe(lease.key()).await.map(|holder| holder.fingerprint());
            let expected = (lease.key() == held.key()).then(|| held.id().fingerprint());
            found!(holder).is(expected);
        }

        other.release(&held).await.unwrap();
        grant_all(&backend, &wanted).await;

        for lease in &wanted {
            let holder = scene.probe(lease.key()).await.unwrap();
            found!(holder.fingerprint()).is(lease.id().fingerprint());
            refusal(&other, &long_lease(scene, lease.key())).await;
            found!(backend.renew(lease).await.unwrap()).is(Renewal::Renewed);
        }
        release_all(&backend, &wanted).await;
    }
}

pub(crate) async fn a_refusal_leaves_nothing_not_even_a_place(scene: &Scene) {
    let backend = scene.backend().await;
    let (wanted, held) = (leases(scene, 3), 1);
    let holder = long_lease(scene, wanted[held].key());
    grant(&backend, &holder).await;
    let queues = Patience::Queues(scene.long_ttl());
    let queued: Vec<Claim> =
        claims(&wanted).into_iter().map(|claim| claim.with_patience(queues)).collect();

    refusal_of_all(&backend, &queued).await;
    backend.release(&holder).await.unwrap();

    // Rejected claims do not block later claims.
    for lease in &wanted {
        let later = long_lease(scene, lease.key());
        grant(&backend, &later).await;
        backend.release(&later).await.unwrap();
    }
}

pub(crate) async fn a_repeated_request_for_several_is_the_same_acquisition(scene: &Scene) {
    let backend = scene.backend().await;
    let wanted = leases(scene, 3);
    // An earlier request may have been granted some or all of the leases.
    grant(&backend, &wanted[1]).await;

    let first = grant_all(&backend, &wanted).await;
    let again = grant_all(&backend, &wanted).await;

    for (first, again) in first.iter().zip(&again) {
        found!(again.token(), "the token of a repeated grant").at_least(first.token());
    }
    release_all(&backend, &wanted).await;
    let later = long_lease(scene, wanted[0].key());
    found!(grant(&backend, &later).await.token()).more_than(again[0].token());
    backend.release(&later).await.unwrap();
}

pub(crate) async fn a_grant_of_several_passes_no_queue(scene: &Scene) {
    let backend = scene.backend().await;
    let wanted = leases(scene, 3);
    let (holder, waiter) = (long_lease(scene, wanted[2].key()), long_lease(scene, wanted[2].key()));
    let queued = Claim::new(waiter.clone()).with_patience(Patience::Queues(scene.long_ttl()));
    grant(&backend, &holder).await;
    backend.acquire(&queued).await.unwrap();
    backend.release(&holder).await.unwrap();

    let (key, _contention) = refusal_of_all(&backend, &claims(&wanted)).await;
    found!(&key).is(waiter.key());
    for lease in &wanted {
        found!(scene.probe(lease.key()).await).is(None);
    }

    // The first waiter does not overtake other claims and is no longer in the queue.
    let own = [wanted[0].clone(), waiter.clone()];
    grant_all(&backend, &own).await;
    release_all(&backend, &own).await;
    grant_all(&backend, &wanted).await;
    release_all(&backend, &wanted).await;
}

pub(crate) async fn a_key_of_another_kind_is_named_and_none_is_granted(scene: &Scene) {
    let backend = scene.backend().await;
    for other in 0..3 {
        let wanted = leases(scene, 3);
        let units = Mode::Units { units: 1, limit: 2 };
        let units = long_lease(scene, wanted[other].key()).with_mode(units);
        grant(&backend, &units).await;

        let error = backend.acquire_all(&claims(&wanted)).await.unwrap_err();

        found!((error.kind(), error.key())).is((ErrorKind::WrongType, Some(units.key())));
        backend.release(&units).await.unwrap();
        for lease in &wanted {
            found!(scene.probe(lease.key()).await).is(None);
        }
    }
}

pub(crate) async fn as_many_as_are_promised_are_granted_at_once(scene: &Scene) {
    let backend = scene.backend().await;
    let wanted = leases(scene, 64);

    let grants = grant_all(&backend, &wanted).await;

    found!(grants.iter().all(|grant| grant.token() > 0)).is(true);
    for lease in &wanted {
        let holder = scene.probe(lease.key()).await.unwrap();
        found!(holder.fingerprint()).is(lease.id().fingerprint());
    }
    release_all(&backend, &wanted).await;
}

/// Each key is in several sets, and callers request complete sets.
pub(crate) async fn crossing_sets_never_overlap(scene: &Scene) {
    const SETS: [[usize; 2]; 4] = [[0, 1], [1, 2], [2, 0], [1, 0]];
    const TIMES: u32 = 20;

    let keys: [LockKey; 3] = std::array::from_fn(|_| scene.key());
    let inside: Arc<[AtomicU32; 3]> = Arc::default();
    let mut tasks = Vec::new();
    for set in SETS {
        let client = scene.client().await;
        let (inside, names) = (Arc::clone(&inside), set.map(|key| keys[key].clone()));
        tasks.push(tokio::spawn(async move {
            let whole = client.multi_lock().mutexes(names).unwrap();
            for _ in 0..TIMES {
                let guard = whole.lock().await.unwrap();
                for key in set {
                    found!(
                        inside[key].fetch_add(1, Ordering::SeqCst),
                        "two callers held the same lock at the same time"
                    )
                    .is(0);
                }
                tokio::task::yield_now().await;
                for key in set {
                    inside[key].fetch_sub(1, Ordering::SeqCst);
                }
                guard.release().await.unwrap();
            }
        }));
    }

    for task in tasks {
        let done = scene.within(Duration::from_secs(60), task).await;
        done.expect("the callers waited for each other").unwrap();
    }
}
