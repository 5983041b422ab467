//! The client rejects invalid requests before any I/O, and unusual names are treated as plain data.

use std::time::Duration;

use leasehold_core::admin::ForcedRelease;
use leasehold_core::backend::{Claim, Fencing, LockBackend, Mode, Operation, Renewal, StoreAdmin};
use leasehold_core::retry::Retry;
use leasehold_core::{Description, ErrorKind, Holder, LockKey, RenewalMode};

use super::grant;
use crate::scene::Scene;

pub(crate) async fn odd_names_are_locks_of_their_own(scene: &Scene) {
    let client = scene.client().await;
    let stem = scene.key().as_str().to_owned();
    let odd: Vec<Vec<u8>> = [
        &b"\0"[..],
        b"\r\n",
        b"{}",
        b"{a}b",
        b"*",
        b"?[a-z]",
        b"../..",
        b"~fence",
        b"%00",
        b"\xff\xfe",
        "\u{1F512}".as_bytes(),
        b"\"]]..redis.call('flushall')--",
        b"$6\r\nSELECT\r\n",
        b"a b\tc",
    ]
    .iter()
    .map(|name| [stem.as_bytes(), name].concat())
    .collect();

    let mut guards = Vec::new();
    for name in &odd {
        let guard = client.mutex(name.as_slice()).unwrap().try_lock().await;
        guards.push(guard.unwrap_or_else(|error| {
            panic!("the lock {name:?}: found the error {error}, expected a free lock")
        }));
    }
    for (name, guard) in odd.iter().zip(guards) {
        found!(client.mutex(name.as_slice()).unwrap().try_lock().await).is_busy();
        found!(scene.probe(guard.key()).await.is_some()).is(true);
        guard.release().await.unwrap();
    }
}

pub(crate) async fn long_names_are_kept_whole_or_refused(scene: &Scene) {
    let (client, faults) = scene.faulty().await;
    for (byte, other) in [(b'x', b'y'), (0, 1), (b'%', b'{')] {
        let mut longest = vec![byte; LockKey::MAX_LEN];
        longest[..16].copy_from_slice(&scene.key().as_str().as_bytes()[12..28]);
        let guard = client.mutex(longest.as_slice()).unwrap().try_lock().await.unwrap();
        *longest.last_mut().unwrap() = other;
        let differs = client.mutex(longest.as_slice()).unwrap().try_lock().await.unwrap();
        differs.release().await.unwrap();
        guard.release().await.unwrap();
    }

    let calls = faults.calls(Operation::Acquire);
    for name in [vec![], vec![b'x'; LockKey::MAX_LEN + 1], vec![b'x'; 1 << 20]] {
        found!(client.mutex(name.as_slice()).unwrap_err().kind()).is(ErrorKind::Invalid);
    }
    found!(faults.calls(Operation::Acquire)).is(calls);
}

pub(crate) async fn odd_descriptions_are_refused_or_kept_whole(scene: &Scene) {
    let key = scene.key();
    let long = "x".repeat(Description::MAX_LEN + 1);
    for text in ["", &long, "a\nb", "\u{1b}[31m", "a\0b"] {
        found!(Description::new(text).unwrap_err().kind(), "{text:?}").is(ErrorKind::Invalid);
    }

    for text in ["x".repeat(Description::MAX_LEN), "web-1/42 \u{1F512} a:b {c} 'd'".to_owned()] {
        let description = Description::new(text).unwrap();
        let client = scene.client_with(scene.options().description(description.clone())).await;
        let guard = client.mutex(&key).unwrap().lock().await.unwrap();
        let inspection = client.backend().inspect(&key).await.unwrap();
        found!(inspection.holders()[0].description()).is(Some(&description));
        guard.release().await.unwrap();
    }
}

pub(crate) async fn impossible_settings_are_refused_before_any_request(scene: &Scene) {
    let (client, faults) = scene.faulty().await;
    let options = scene.options();
    for impossible in [
        options.clone().ttl(Duration::ZERO),
        options.clone().ttl(Duration::from_nanos(1)),
        options.clone().ttl(Duration::MAX),
        options.clone().max_hold(Duration::ZERO),
        options.clone().min_hold(Duration::MAX),
        options.clone().min_hold(scene.ttl() * 2).max_hold(scene.ttl()),
        options.clone().reentry_limit(0),
        options.clone().retry(Retry::unlimited().every(Duration::ZERO)),
        options.clone().retry(Retry::unlimited().between(scene.ttl(), scene.ttl() / 2)),
    ] {
        let mutex = client.mutex(scene.key()).unwrap();
        let refused = mutex.with_options(impossible.clone()).unwrap_err();
        found!(refused.kind(), "{impossible:?}").is(ErrorKind::Invalid);
    }
    if client.backend().capabilities().fencing() < Fencing::Strict {
        let strict = options.require_fencing(Fencing::Strict);
        let refused = client.mutex(scene.key()).unwrap().with_options(strict).unwrap_err();
        found!(refused.kind()).is(ErrorKind::Unsupported);
    }
    found!(faults.calls(Operation::Acquire)).is(0);
}

pub(crate) async fn the_longest_durations_do_not_overflow(scene: &Scene) {
    let key = scene.key();
    let options = scene
        .options()
        .wait(Duration::MAX)
        .outage_wait(Duration::MAX)
        .max_hold(Duration::MAX)
        .retry(Retry::unlimited().growing(Duration::from_secs(1), Duration::MAX))
        .renewal(RenewalMode::Off);
    let client = scene.client_with(options).await;
    let mutex = client.mutex(&key).unwrap();

    let guard = mutex.try_lock_for(Duration::MAX).await.unwrap();

    found!(guard.extend(Duration::MAX).await.unwrap_err().kind()).is(ErrorKind::Invalid);
    found!(guard.ensure_held(Duration::MAX).unwrap_err().kind()).is(ErrorKind::ExpiresSoon);
    guard.release().await.unwrap();
    mutex.lock().await.unwrap().release().await.unwrap();
}

pub(crate) async fn lease_ids_stay_secret(scene: &Scene) {
    let key = scene.key();
    let backend = scene.backend().await;
    let lease = scene.lease(&key);
    let secret = lease.id().secret();
    super::grant(&backend, &lease).await;
    let contention = super::refusal(&backend, &scene.lease(&key)).await;
    let client = scene.client().await;
    let wait = scene.options().wait(Duration::from_millis(20));
    let mutex = client.mutex(&key).unwrap().with_options(wait).unwrap();
    let error = mutex.lock().await.unwrap_err();

    let shown =
        format!("{backend:?} {lease:?} {contention:?} {client:?} {mutex:?} {error} {error:?}");

    found!(shown.contains(&secret)).is(false);
    found!(shown.contains(&secret[..12])).is(false);
    backend.release(&lease).await.unwrap();
}

pub(crate) async fn a_forced_release_is_the_operators_and_names_the_holder(scene: &Scene) {
    let key = scene.key();
    let client = scene.client().await;
    let admin = client.admin();
    found!(admin.force_release(&key, "the key is free").await.unwrap().ended().is_empty()).is(true);
    let guard = client.mutex(&key).unwrap().lock().await.unwrap();
    found!(admin.inspect(&key).await.unwrap().is_held()).is(true);

    let forced = admin.force_release(&key, "conformance").await.unwrap();

    found!(forced.ended().len()).is(1);
    let fingerprint = forced.ended()[0].fingerprint().to_string();
    found!(format!("{guard:?}").contains(&fingerprint)).is(true);
    found!(admin.inspect(&key).await.unwrap().is_held()).is(false);
    found!(client.mutex(&key).unwrap().is_locked().await.unwrap()).is(false);
    drop(guard);
}

pub(crate) async fn a_forced_release_of_one_lease_spares_its_successor(scene: &Scene) {
    let key = scene.key();
    let backend = scene.backend().await;
    let [former, next] = [(); 2].map(|()| scene.lease(&key).with_ttl(scene.long_ttl()));
    let meant = former.id().fingerprint();
    grant(&backend, &former).await;
    let forced = backend.force_release(&key, Some(meant)).await.unwrap();
    found!(forced.ended().iter().map(Holder::fingerprint).collect::<Vec<_>>()).is([meant]);
    found!(backend.renew(&former).await.unwrap()).is(Renewal::Vanished);
    grant(&backend, &next).await;

    let forced = backend.force_release(&key, Some(meant)).await.unwrap();

    found!(forced).is(ForcedRelease::new());
    found!(backend.renew(&next).await.unwrap()).is(Renewal::Renewed);
    backend.release(&next).await.unwrap();
}

pub(crate) async fn a_forced_release_of_one_lease_spares_the_other_holders(scene: &Scene) {
    let key = scene.key();
    let backend = scene.backend().await;
    let leases @ [one, meant, other] = &[(); 3].map(|()| {
        let lease = scene.lease(&key).with_ttl(scene.long_ttl());
        lease.with_mode(Mode::Units { units: 1, limit: 3 })
    });
    for lease in leases {
        grant(&backend, lease).await;
    }
    let refused = scene.lease(&key).with_mode(one.mode());
    let attempt = backend.acquire(&Claim::new(refused.clone())).await.unwrap();
    found!(attempt).is_refused();

    let only = meant.id().fingerprint();
    let forced = backend.force_release(&key, Some(only)).await.unwrap();

    found!(forced.ended().iter().map(Holder::fingerprint).collect::<Vec<_>>()).is([only]);
    found!(forced.min_token(), "the release of one lease reported a minimum token, although the remaining holders have lower tokens").is(None);
    found!(backend.renew(meant).await.unwrap()).is(Renewal::Taken);
    for lease in [one, other] {
        found!(backend.renew(lease).await.unwrap()).is(Renewal::Renewed);
    }
    found!(backend.inspect(&key).await.unwrap().units()).is(2);
    grant(&backend, &refused).await;
    for lease in [one, other, &refused] {
        backend.release(lease).await.unwrap();
    }
}
