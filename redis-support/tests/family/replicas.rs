//! Tests of grants that wait for acknowledgements of replicas.

use std::time::Duration;

use leasehold_core::backend::{
    Attempt, Claim, Lease, LockBackend, Release, Renewal, StoreAdmin as _,
};
use leasehold_core::{Error, ErrorKind, LockClient, LockKey, LockOptions};
use leasehold_testbed::{RedisCluster, RedisSentinel, SentinelOptions, until};
use tokio::time::{Instant, timeout};

use super::connect;
use crate::Backend;

const LONG: Duration = Duration::from_secs(60);
const PATIENCE: Duration = Duration::from_millis(300);

/// Starts a primary, replicas, and sentinels that do not replace a server that stops responding.
async fn sentinels(replicas: usize) -> RedisSentinel {
    SentinelOptions::new().replicas(replicas).down_after(LONG).start().await
}

async fn backend(url: &str, replicas: &str) -> Backend {
    patient_backend(url, replicas, PATIENCE).await
}

async fn patient_backend(url: &str, replicas: &str, patience: Duration) -> Backend {
    let parameters = format!("wait-replicas={replicas}&wait-replicas-ms={}", patience.as_millis());
    connect(&format!("{url}?{parameters}")).await.unwrap()
}

fn claim(name: &str) -> Claim {
    Claim::new(Lease::new(&LockKey::new(name).unwrap(), LONG))
}

async fn is_granted(backend: &Backend, claim: &Claim) -> bool {
    matches!(backend.acquire(claim).await.unwrap(), Attempt::Granted(_))
}

/// Checks that an acquisition fails in time with the number of replicas in its error, and does not
/// leave a lease.
async fn fails(backend: &Backend, name: &str, told: &str) {
    let (claim, start) = (claim(name), Instant::now());
    let error = backend.acquire(&claim).await.unwrap_err();

    assert_eq!(error.kind(), ErrorKind::NotWritable, "{error}");
    assert!(error.to_string().contains(told), "{error}");
    assert!(start.elapsed() < PATIENCE + Duration::from_secs(10), "{:?}", start.elapsed());
    assert!(backend.inspect(claim.key()).await.unwrap().holders().is_empty());
    assert_eq!(backend.release(claim.lease()).await.unwrap(), Release::NotHeld);
}

/// Acquires and releases until replicas acknowledge a grant, because a new replica first has to
/// copy all data.
async fn until_acknowledged(backend: &Backend, name: &str) {
    until("it is acknowledged", async || {
        let claim = claim(name);
        let attempt = backend.acquire(&claim).await;
        let released = backend.release(claim.lease()).await;
        released.is_ok() && matches!(attempt, Ok(Attempt::Granted(_)))
    })
    .await;
}

#[tokio::test]
async fn are_waited_for_only_with_a_connection_for_renewals_in_place() {
    let redis = sentinels(1).await;
    let address = redis.node_address(0);
    let url = leasehold_testbed::patiently(&format!("redis://{address}?wait-replicas=1"));
    until_acknowledged(&connect(&url).await.unwrap(), "job").await;
    let lazy = Backend::connect_lazily(crate::Config::from_url(&url).unwrap());
    let claim = claim("job");
    assert!(is_granted(&lazy, &claim).await);

    redis.command(0, &["CONFIG", "SET", "maxclients", "1"]).await;

    assert_eq!(lazy.renew(claim.lease()).await.unwrap(), Renewal::Renewed);
    assert_eq!(lazy.release(claim.lease()).await.unwrap(), Release::Released);
}

#[tokio::test]
async fn that_is_there_acknowledges() {
    let redis = sentinels(1).await;
    for wanted in ["1", "majority"] {
        let backend = backend(&redis.url(), wanted).await;
        until_acknowledged(&backend, "job").await;
        let claim = claim("job");

        assert!(is_granted(&backend, &claim).await);
        assert!(!is_granted(&backend, &self::claim("job")).await);
        assert_eq!(backend.release(claim.lease()).await.unwrap(), Release::Released);
    }
}

#[tokio::test]
async fn that_hangs_fails_the_grant_and_leaves_no_lock() {
    let redis = sentinels(1).await;
    let replica = 1 - redis.primary().await;
    for wanted in ["1", "majority"] {
        let backend = backend(&redis.url(), wanted).await;
        redis.pause(replica);
        fails(&backend, "job", "0 of 1").await;
        redis.resume(replica);
        redis.until_replicated().await;

        until_acknowledged(&backend, "job").await;
    }
}

#[tokio::test]
async fn that_is_dead_counts_in_the_majority_all_the_same() {
    let mut redis = sentinels(1).await;
    let replica = 1 - redis.primary().await;
    redis.kill(replica);

    fails(&backend(&redis.url(), "majority").await, "job", "0 of 1").await;
}

#[tokio::test]
async fn that_is_one_of_two_is_enough_for_a_majority() {
    let mut redis = sentinels(2).await;
    let primary = redis.primary().await;
    redis.kill((primary + 1) % 3);

    until_acknowledged(&backend(&redis.url(), "majority").await, "job").await;
    fails(&backend(&redis.url(), "2").await, "other", "1 of 2").await;
}

#[tokio::test]
async fn of_the_server_that_has_the_key_count_in_a_cluster() {
    let mut redis = RedisCluster::start().await;
    let backend = backend(&redis.url(), "majority").await;
    let owner = redis.owner_of("lock:job").await;
    let mut elsewhere = "job-0".to_owned();
    for n in 1.. {
        if redis.owner_of(&format!("lock:{elsewhere}")).await != owner {
            break;
        }
        elsewhere = format!("job-{n}");
    }
    for name in ["job", &elsewhere] {
        until_acknowledged(&backend, name).await;
    }

    let replica = redis.replica_of(owner).await;
    redis.kill(replica);

    fails(&backend, "job", "0 of 1").await;
    until_acknowledged(&backend, &elsewhere).await;
}

#[tokio::test]
async fn that_hang_hold_up_neither_renewals_nor_releases() {
    let redis = sentinels(1).await;
    let patience = Duration::from_secs(6);
    let backend = patient_backend(&redis.url(), "1", patience).await;
    let options = LockOptions::new().ttl(Duration::from_secs(6));
    let client = LockClient::builder(backend).options(options).build().unwrap();
    until_acknowledged(client.backend(), "held").await;
    let held = client.mutex("held").unwrap().lock().await.unwrap();
    redis.pause(1 - redis.primary().await);

    let failing = (0..8).map(|n| {
        let mutex = client.mutex(format!("job-{n}")).unwrap();
        tokio::spawn(async move { mutex.try_lock_for(Duration::from_secs(8)).await })
    });
    let failing: Vec<_> = failing.collect();
    let deadline = held.deadline();
    until("it is renewed", async || held.deadline() > deadline).await;
    let start = Instant::now();
    held.release().await.unwrap();
    assert!(start.elapsed() < patience, "{:?}", start.elapsed());
    for failing in failing {
        let failed = timeout(LONG, failing).await.unwrap().unwrap();
        assert!(Error::from(failed.unwrap_err()).is_retryable());
    }
}

#[tokio::test]
async fn are_waited_for_by_locks_of_units_and_several_locks_too() {
    let redis = sentinels(1).await;
    let client = LockClient::new(backend(&redis.url(), "1").await);
    until_acknowledged(client.backend(), "job").await;
    let permit = client.semaphore("permits", 2).unwrap().acquire(1).await.unwrap();
    let both = client.multi_lock().mutexes(["a", "b"]).unwrap().lock().await.unwrap();
    both.release().await.unwrap();
    permit.release().await.unwrap();
    redis.pause(1 - redis.primary().await);

    let patience = Duration::from_secs(1);
    let semaphore = client.semaphore("permits", 2).unwrap();
    assert!(semaphore.try_acquire_for(1, patience).await.is_err());
    assert!(client.multi_lock().mutexes(["a", "b"]).unwrap().try_lock_for(patience).await.is_err());
    for name in ["permits", "a", "b"] {
        let key = LockKey::new(name).unwrap();
        let is_free = async || client.backend().inspect(&key).await.unwrap().holders().is_empty();
        until("nothing is left", is_free).await;
    }
}
