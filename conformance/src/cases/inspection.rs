//! Checks the information about locks that the store provides to operators.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use futures_util::future::try_join_all;
use leasehold_core::admin::Waiter;
use leasehold_core::backend::{Claim, Lease, LockBackend, Mode, Patience, StoreAdmin};
use leasehold_core::{Description, Error, LockClient, LockKey, LockKind, Mutex};

use super::grant;
use crate::harness::Time;
use crate::scene::Scene;

pub(crate) async fn each_kind_of_lock_is_told(scene: &Scene) {
    let backend = scene.backend().await;
    let permits = Mode::Units { units: 2, limit: 3 };
    for (mode, kind) in [
        (Mode::Exclusive, LockKind::Mutex),
        (permits, LockKind::Permits),
        (Mode::Units { units: 1, limit: 1 }, LockKind::Election),
        (Mode::READER, LockKind::Reader),
        (Mode::WRITER, LockKind::Writer),
    ] {
        let lease = scene.lease(&scene.key()).with_mode(mode);
        found!(backend.inspect(lease.key()).await.unwrap().kind()).is(None);
        grant(&backend, &lease).await;

        let held = backend.inspect(lease.key()).await.unwrap();
        backend.renew(&lease).await.unwrap();
        let renewed = backend.inspect(lease.key()).await.unwrap();

        for seen in [held, renewed] {
            found!(
                (seen.kind(), seen.holders().len()),
                "the inspection shows the specified state: {seen:?}"
            )
            .is((Some(kind), 1));
            found!(seen.holders()[0].units()).is(mode.units());
        }
        backend.release(&lease).await.unwrap();
    }
}

pub(crate) async fn a_downgrade_is_seen(scene: &Scene) {
    let (key, client) = (scene.key(), scene.client().await);
    let writer = client.rw_lock(&key).unwrap().write().await.unwrap();

    let reader = writer.downgrade().await.unwrap();

    let seen = client.admin().inspect(&key).await.unwrap();
    found!(seen.kind(), "the inspection shows the specified state: {seen:?}")
        .is(Some(LockKind::Reader));
    found!(seen.waiting()).is(Some(0));
    reader.release().await.unwrap();
}

pub(crate) async fn a_holder_has_the_token_of_its_guard(scene: &Scene) {
    let (mutex, permit) = (scene.key(), scene.key());
    let client = scene.client().await;
    let mutex = client.mutex(&mutex).unwrap().lock().await.unwrap();
    let permit = client.semaphore(&permit, 3).unwrap().acquire(2).await.unwrap();

    // Redis does not store this value for a mutex.
    for (guard, is_known) in [(&mutex, false), (&permit, true)] {
        let seen = client.admin().inspect(guard.key()).await.unwrap();
        let token = seen.holders()[0].token();
        found!(!is_known || token.is_some(), "the inspection shows the specified state: {seen:?}")
            .is(true);
        found!(
            token.is_none_or(|token| token == guard.token().number()),
            "the inspection shows the specified state: {seen:?}"
        )
        .is(true);
    }
    mutex.release().await.unwrap();
    permit.release().await.unwrap();
}

pub(crate) async fn a_holder_is_seen_to_age(scene: &Scene) {
    // The precision of the time in a token.
    const NEARLY: Duration = Duration::from_millis(100);

    let (key, client) = (scene.key(), scene.client().await);
    let semaphore = client.semaphore(&key, 2).unwrap();
    let (asked_at, began) = (scene.now(), Instant::now());
    let guard = semaphore.acquire(1).await.unwrap();
    let granted_at = scene.now();
    scene.pass(scene.ttl() / 2).await;

    let passed = scene.now().since(granted_at);
    let seen = client.admin().inspect(&key).await.unwrap();
    let at_most = scene.now().since(asked_at).max(began.elapsed());

    if let Some(time) = seen.holders()[0].held_for() {
        found!(time, "the reported holding time").at_most(at_most + NEARLY);
        // In driven time, some stores do not advance their wall clock.
        let at_least = if scene.time() == Time::Driven { Duration::ZERO } else { passed };
        found!(time + NEARLY, "the reported holding time, with a tolerance").at_least(at_least);
    }
    guard.release().await.unwrap();
}

pub(crate) async fn claims_in_the_queue_are_listed_in_order(scene: &Scene) {
    let key = scene.key();
    let (backend, other) = (scene.backend().await, scene.backend().await);
    let (long, text) = (scene.long_ttl(), |name: &str| Some(Description::new(name).unwrap()));
    let lease = |name| scene.lease(&key).with_ttl(long).with_description(text(name));
    let (holder, first, second) = (lease("holder"), lease("first"), lease("second"));
    grant(&backend, &holder).await;
    for (lease, patience) in [(&first, Patience::Queues(long)), (&second, Patience::Waits)] {
        let claim = Claim::new(lease.clone()).with_patience(patience);
        let refused = other.acquire(&claim).await.unwrap();
        found!(refused).is_refused();
    }

    let seen = backend.inspect(&key).await.unwrap();

    let fingerprint = |lease: &Lease| lease.id().fingerprint();
    let waiting: Vec<_> = seen.queue().iter().map(Waiter::fingerprint).collect();
    found!(waiting).is([&first, &second].map(fingerprint));
    found!(seen.waiting()).is(Some(2));
    found!(
        seen.queue().iter().all(|waiter| waiter.kind() == LockKind::Mutex),
        "the inspection shows the specified state: {seen:?}"
    )
    .is(true);
    let described = |number: usize| seen.queue()[number].description().cloned();
    found!(
        described(0).is_none_or(|it| Some(it) == text("first")),
        "the inspection shows the specified state: {seen:?}"
    )
    .is(true);
    found!(described(1)).is(text("second"));

    for (lease, left) in [(&first, 1), (&second, 0)] {
        other.release(lease).await.unwrap();
        found!(backend.inspect(&key).await.unwrap().waiting()).is(Some(left));
    }
    backend.release(&holder).await.unwrap();
}

/// Returns the keys in use that start with `prefix`, and how many times each key is listed.
async fn listed<B: LockBackend>(
    client: &LockClient<B>,
    prefix: &str,
) -> Result<BTreeMap<LockKey, usize>, Error> {
    let mut keys = client.admin().list(prefix)?;
    let mut found = BTreeMap::new();
    while let Some(page) = keys.next_page().await? {
        found!(page.is_empty()).is(false);
        for key in page {
            *found.entry(key).or_default() += 1;
        }
    }
    Ok(found)
}

pub(crate) async fn keys_in_use_are_listed_and_no_others(scene: &Scene) {
    let client = scene.client_with(scene.options().ttl(scene.long_ttl())).await;
    let base = scene.key().as_str().to_owned();
    let name = |rest: &str| format!("{base}{rest}");
    let held = ["/a", "/a/b", "/%7E{*}", "-"].map(name);
    let mut guards = Vec::new();
    for name in &held {
        guards.push(client.mutex(name).unwrap().lock().await.unwrap());
    }
    let released = client.mutex(name("/gone")).unwrap().lock().await.unwrap();
    released.release().await.unwrap();

    let all = listed(&client, &base).await.unwrap();
    let some = listed(&client, &name("/")).await.unwrap();
    let none = listed(&client, &name("/a/b/c")).await.unwrap();

    let keys = |names: &[String]| names.iter().map(|name| LockKey::new(name).unwrap()).collect();
    let (mut expected, mut below): (Vec<LockKey>, Vec<LockKey>) = (keys(&held), keys(&held[..3]));
    expected.sort();
    below.sort();
    found!(all.into_keys().collect::<Vec<_>>()).is(expected);
    found!(some.into_keys().collect::<Vec<_>>()).is(below);
    found!(none.is_empty(), "no keys are listed, and the store listed {none:?}").is(true);
    for guard in guards {
        guard.release().await.unwrap();
    }
}

pub(crate) async fn keys_of_all_kinds_are_listed(scene: &Scene) {
    let (permit, writer, queued) = (scene.key(), scene.key(), scene.key());
    let (client, backend) = (scene.client().await, scene.backend().await);
    let permits = client.semaphore(&permit, 3).unwrap().acquire(2).await.unwrap();
    let writes = client.rw_lock(&writer).unwrap().write().await.unwrap();
    let (holder, waiter) = (scene.lease(&queued), scene.lease(&queued).with_ttl(scene.long_ttl()));
    grant(&backend, &holder).await;
    let claim = Claim::new(waiter.clone()).with_patience(Patience::Queues(scene.long_ttl()));
    backend.acquire(&claim).await.unwrap();
    backend.release(&holder).await.unwrap();

    for key in [&permit, &writer, &queued] {
        let found = listed(&client, key.as_str()).await.unwrap();
        found!(found.keys().eq([key]), "one key is listed, and the store listed {found:?}")
            .is(true);
    }

    backend.release(&waiter).await.unwrap();
    permits.release().await.unwrap();
    writes.release().await.unwrap();
}

pub(crate) async fn many_keys_are_listed_page_by_page(scene: &Scene) {
    // More keys than the largest page holds, so that listing needs several pages.
    const KEYS: usize = 600;
    const AT_ONCE: usize = 50;

    let client = scene.client_with(scene.options().ttl(scene.long_ttl())).await;
    let base = scene.key().as_str().to_owned();
    let mutexes = (0..KEYS).map(|n| client.mutex(format!("{base}/{n}")).unwrap());
    let mutexes: Vec<_> = mutexes.collect();
    let mut guards = Vec::new();
    for some in mutexes.chunks(AT_ONCE) {
        guards.extend(try_join_all(some.iter().map(Mutex::lock)).await.unwrap());
    }

    let mut keys = client.admin().list(&base).unwrap();
    let first = keys.next_page().await.unwrap().expect("the list is empty, although keys are held");
    let all = listed(&client, &base).await.unwrap();

    found!(first.len(), "the number of keys on the first page").less_than(KEYS);
    found!(all.len()).is(KEYS);
    for guard in guards {
        guard.release().await.unwrap();
    }
}
