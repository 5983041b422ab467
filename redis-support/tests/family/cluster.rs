//! Tests of a cluster, which has several servers and moves slots between them.

mod together;

use std::time::Duration;

use leasehold_conformance::stalls::{Measured, Stalls, measure};
use leasehold_core::backend::{Claim, Feature, Lease, LockBackend};
use leasehold_core::{ErrorKind, LockClient, LockKey, LockOptions, TryLockError};
use leasehold_testbed::{ClusterOptions, RedisCluster, until};
use tokio::time::{Instant, timeout};

use super::connect;
use super::contention::Contention;
use super::steps::{lock, renewed, waiting};
use crate::Backend;

const TTL: Duration = Duration::from_secs(3);
const LONG: Duration = Duration::from_secs(60);

/// Starts three primaries. A primary that does not respond is not replaced.
async fn three() -> RedisCluster {
    ClusterOptions::new().replicas(0).node_timeout(LONG).start().await
}

async fn client(redis: &RedisCluster) -> LockClient<Backend> {
    let backend = connect(&redis.url()).await.unwrap();
    let options = LockOptions::new().ttl(TTL).outage_wait(LONG);
    LockClient::builder(backend).options(options).build().unwrap()
}

/// Returns one lock name per server. The nth server has the nth lock.
async fn one_with_each(redis: &RedisCluster) -> Vec<String> {
    let mut names = vec![String::new(); redis.nodes()];
    for n in 0.. {
        if names.iter().all(|name| !name.is_empty()) {
            return names;
        }
        let name = format!("job-{n}");
        let owner = redis.owner_of(&format!("lock:{name}")).await;
        names[owner] = name;
    }
    unreachable!("every server has a third of them")
}

#[tokio::test]
async fn locks_are_spread_over_all_servers() {
    let redis = three().await;
    let (one, other) = (client(&redis).await, client(&redis).await);

    for (node, name) in one_with_each(&redis).await.iter().enumerate() {
        let guard = lock(&one, name).await;
        let stored = redis.command(node, &["EXISTS", &format!("lock:{name}")]).await;
        assert_eq!(stored, ":1");
        assert!(matches!(other.mutex(name).unwrap().try_lock().await, Err(TryLockError::Busy(_))));
        guard.release().await.unwrap();
    }
}

#[tokio::test]
async fn keys_of_all_servers_are_listed() {
    let redis = three().await;
    let client = client(&redis).await;
    let mut names = one_with_each(&redis).await;
    let mut guards = Vec::new();
    for name in &names {
        guards.push(lock(&client, name).await);
    }

    let mut keys = client.admin().list("job").unwrap();
    let mut found = Vec::new();
    while let Some(page) = keys.next_page().await.unwrap() {
        found.extend(page.iter().map(ToString::to_string));
    }

    names.sort();
    found.sort();
    assert_eq!(found, names);
    for guard in guards {
        guard.release().await.unwrap();
    }
}

#[tokio::test]
async fn one_seed_is_enough() {
    let redis = three().await;
    let url = format!("redis-cluster://{}", redis.node_address(1));
    let client = LockClient::new(connect(&url).await.unwrap());

    for name in one_with_each(&redis).await {
        lock(&client, &name).await.release().await.unwrap();
    }
}

#[tokio::test]
async fn several_locks_are_taken_one_after_the_other() {
    let redis = three().await;
    let client = client(&redis).await;
    let names = one_with_each(&redis).await;

    assert!(!client.backend().capabilities().supports(Feature::Together));
    let claims: Vec<Claim> = names
        .iter()
        .map(|name| Claim::new(Lease::new(&LockKey::new(name).unwrap(), TTL)))
        .collect();
    let error = client.backend().acquire_all(&claims).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unsupported);

    let guard = client.multi_lock().mutexes(names).unwrap().lock().await.unwrap();
    guard.release().await.unwrap();
}

#[tokio::test]
async fn a_server_that_hangs_delays_no_renewal_of_others() {
    let redis = three().await;
    let client = client(&redis).await;
    let names = one_with_each(&redis).await;
    let mut guards = Vec::new();
    for name in &names {
        guards.push(lock(&client, name).await);
    }

    redis.pause(1);

    timeout(TTL, guards[1].lost()).await.expect("it cannot be renewed");
    for guard in [&guards[0], &guards[2]] {
        renewed(guard).await;
        renewed(guard).await;
    }
    redis.resume(1);
}

#[tokio::test]
async fn a_server_that_is_no_cluster_says_so() {
    let redis = leasehold_testbed::Redis::start().await;

    let error = Backend::connect(&format!("redis-cluster://{}", redis.address())).await;

    assert_eq!(error.unwrap_err().kind(), ErrorKind::Unsupported);
}

#[tokio::test]
async fn a_server_of_a_cluster_asked_as_a_single_one_says_so() {
    let redis = three().await;
    for node in 0..redis.nodes() {
        let url = format!("redis://{}", redis.node_address(node));
        let backend = connect(&url).await.unwrap();
        let claim = Claim::new(Lease::new(&LockKey::new("job").unwrap(), TTL));

        let error = backend.acquire(&claim).await.unwrap_err();

        assert_eq!(error.kind(), ErrorKind::Unsupported);
        assert!(error.to_string().contains("redis-cluster://"), "{error}");
    }
}

#[tokio::test]
async fn a_lock_outlives_the_replacement_of_all_named_servers() {
    measure(outlives_the_replacement_of_all_named_servers).await;
}

async fn outlives_the_replacement_of_all_named_servers() -> Measured {
    const PATIENT: Duration = Duration::from_secs(12);
    let mut redis = RedisCluster::start().await;
    let named: Vec<_> = (0..3).map(|node| redis.node_address(node)).collect();
    let url = format!("redis-cluster://{}", named.join(","));
    let options = LockOptions::new().ttl(PATIENT).outage_wait(LONG);
    let client = async || {
        let backend = Backend::connect(&url).await.unwrap();
        LockClient::builder(backend).options(options.clone()).build().unwrap()
    };
    let (holder, waiter) = (client().await, client().await);
    let owner = redis.owner_of("lock:job").await;
    let guard = lock(&holder, "job").await;
    let waits = waiting(&waiter, "job");

    for unused in (0..3).filter(|node| *node != owner) {
        let replica = redis.replica_of(unused).await;
        redis.failover(replica).await;
        redis.kill(unused);
    }
    let replica = redis.replica_of(owner).await;
    let has_copy = async || {
        let size = async |node| redis.command(node, &["DBSIZE"]).await;
        size(replica).await == size(owner).await
    };
    until("the replica has a copy", has_copy).await;
    // The remaining time of the lease is at least two thirds of its TTL.
    let (stalls, killed_at) = (Stalls::watch(), Instant::now());
    redis.kill(owner);
    redis.until_owned_by_another("lock:job", owner).await;
    stalls.in_time("another takes over", killed_at.elapsed(), PATIENT / 2)?;

    renewed(&guard).await;
    guard.release().await.unwrap();
    let granted = timeout(LONG, waits).await;
    granted.expect("it goes on").unwrap().release().await.unwrap();
    Ok(())
}

mod slots_that_move {
    use super::*;

    #[tokio::test]
    async fn under_load_cost_no_lock_and_no_waiter() {
        let redis = three().await;
        let (holder, waiter) = (client(&redis).await, client(&redis).await);
        let slot = redis.slot_of("lock:job").await;
        let contention = Contention::start(&redis.url(), "job", 4, TTL).await;
        let mut from = redis.owner_of("lock:job").await;

        // The slot moves to each of the other servers and then returns.
        for _ in 0..3 {
            let to = (from + 1) % 3;
            let started = Instant::now();
            redis.migrate_slot(slot, from, to).await;
            contention.until_all_have_held_since(started).await;
            assert_eq!(redis.owner_of("lock:job").await, to);
            from = to;
        }

        let history = contention.history().await;
        assert_eq!(history.overlaps(), []);
        let guard = lock(&holder, "job").await;
        let waits = waiting(&waiter, "job");
        redis.migrate_slot(slot, from, (from + 1) % 3).await;
        renewed(&guard).await;
        guard.release().await.unwrap();
        let granted = timeout(Duration::from_secs(2), waits).await;
        granted.expect("it is told").unwrap().release().await.unwrap();
    }

    #[tokio::test]
    async fn half_way_keep_locks_held_and_refuse_others() {
        let redis = three().await;
        let (holder, other) = (client(&redis).await, client(&redis).await);
        let slot = redis.slot_of("lock:job").await;
        let from = redis.owner_of("lock:job").await;
        let to = (from + 1) % 3;
        let guard = lock(&holder, "job").await;

        redis.begin_migration(slot, from, to).await;
        let mutex = other.mutex("job").unwrap();
        let is_refused = async || match mutex.try_lock().await {
            Ok(_guard) => false,
            Err(TryLockError::Busy(_)) => true,
            Err(TryLockError::Failed(error)) => error.kind() == ErrorKind::Unavailable,
        };
        assert!(is_refused().await);
        guard.extend(TTL).await.expect("where it was");
        redis.move_keys(slot, from, to).await;
        assert!(is_refused().await);
        // The holder can renew its lease for as long as the migration takes.
        guard.extend(TTL).await.expect("where it goes");
        renewed(&guard).await;
        renewed(&guard).await;
        guard.release().await.unwrap();
        assert!(is_refused().await, "the lock is held");

        redis.end_migration(slot, from, to).await;
        lock(&other, "job").await.release().await.unwrap();
    }

    #[tokio::test]
    async fn half_way_keep_permits_held_too() {
        let redis = three().await;
        let holder = client(&redis).await;
        let slot = redis.slot_of("lock:job").await;
        let from = redis.owner_of("lock:job").await;
        let to = (from + 1) % 3;
        let semaphore = holder.semaphore("job", 2).unwrap();
        let permit = async || semaphore.acquire(1).await.unwrap();

        let permits = [permit().await, permit().await];
        redis.begin_migration(slot, from, to).await;
        // Both permits can be released, including the last one.
        for permit in permits {
            permit.release().await.expect("where it was");
        }
        redis.move_keys(slot, from, to).await;
        redis.end_migration(slot, from, to).await;

        let permits = [permit().await, permit().await];
        let (from, to) = (to, from);
        redis.begin_migration(slot, from, to).await;
        for permit in &permits {
            permit.extend(TTL).await.expect("where it was");
        }
        redis.move_keys(slot, from, to).await;
        for permit in permits {
            permit.extend(TTL).await.expect("where it goes");
            renewed(&permit).await;
            permit.release().await.unwrap();
        }
        redis.end_migration(slot, from, to).await;

        semaphore.acquire(2).await.unwrap().release().await.unwrap();
    }
}
