//! Tests with Sentinel and Cluster of primaries that are killed, stop responding, return or are
//! replaced by a planned failover.

use std::time::Duration;

use leasehold_conformance::stalls::{Measured, Stalls, measure};
use leasehold_core::backend::{Attempt, Claim, Lease, LockBackend};
use leasehold_core::{ErrorKind, LockClient, LockGuard, LockKey, LockOptions, TryLockError};
use leasehold_testbed::{RedisCluster, RedisSentinel, SentinelOptions, until};
use tokio::time::{Instant, timeout};

use super::connect_by_default;
use super::contention::Contention;
use super::steps::{lock, renewed, waiting};
use crate::Backend;

const TTL: Duration = Duration::from_secs(3);
const LONG: Duration = Duration::from_secs(60);
/// The maximum delay on a machine that does not stall.
const PROMPT: Duration = Duration::from_millis(250);
/// Longer than a failover in these tests.
const SOON: Duration = Duration::from_secs(8);

/// Servers with replicas that can replace a primary.
enum Store {
    Sentinel(RedisSentinel),
    Cluster(RedisCluster),
}

impl Store {
    async fn sentinel() -> Self {
        Self::Sentinel(SentinelOptions::new().start().await)
    }

    async fn cluster() -> Self {
        Self::Cluster(RedisCluster::start().await)
    }

    fn url(&self) -> String {
        match self {
            Self::Sentinel(redis) => redis.url(),
            Self::Cluster(redis) => redis.url(),
        }
    }

    /// Returns the server that has the lock `name`.
    async fn primary(&self, name: &str) -> usize {
        match self {
            Self::Sentinel(redis) => redis.primary().await,
            Self::Cluster(redis) => redis.owner_of(&format!("lock:{name}")).await,
        }
    }

    /// Returns a replica that has a copy of the lock `name`.
    async fn replica(&self, name: &str) -> usize {
        match self {
            Self::Sentinel(redis) => 1 - redis.primary().await,
            Self::Cluster(redis) => redis.replica_of(self.primary(name).await).await,
        }
    }

    fn pause(&self, node: usize) {
        match self {
            Self::Sentinel(redis) => redis.pause(node),
            Self::Cluster(redis) => redis.pause(node),
        }
    }

    fn resume(&self, node: usize) {
        match self {
            Self::Sentinel(redis) => redis.resume(node),
            Self::Cluster(redis) => redis.resume(node),
        }
    }

    fn isolate(&self, node: usize) {
        match self {
            Self::Sentinel(redis) => redis.isolate(node),
            Self::Cluster(redis) => redis.isolate(node),
        }
    }

    fn heal(&self) {
        match self {
            Self::Sentinel(redis) => redis.heal(),
            Self::Cluster(redis) => redis.heal(),
        }
    }

    fn kill(&mut self, node: usize) {
        match self {
            Self::Sentinel(redis) => redis.kill(node),
            Self::Cluster(redis) => redis.kill(node),
        }
    }

    async fn command(&self, node: usize, command: &[&str]) -> String {
        match self {
            Self::Sentinel(redis) => redis.command(node, command).await,
            Self::Cluster(redis) => redis.command(node, command).await,
        }
    }

    /// Waits until a server other than `node` has the lock `name`, and until all servers that
    /// clients query report this server.
    async fn until_replaced(&self, name: &str, node: usize) -> usize {
        match self {
            Self::Sentinel(redis) => {
                until("there is another primary", async || redis.primary().await != node).await;
                redis.primary().await
            }
            Self::Cluster(redis) => {
                redis.until_owned_by_another(&format!("lock:{name}"), node).await
            }
        }
    }

    /// Starts a planned failover after the replica has received a copy of the lock `name`, because
    /// sentinels do not wait for the copy.
    async fn hand_over(&self, name: &str) {
        match self {
            Self::Sentinel(redis) => {
                let (replica, key) = (self.replica(name).await, format!("lock:{name}"));
                let has_copy = async || redis.command(replica, &["EXISTS", &key]).await == ":1";
                until("the replica has a copy", has_copy).await;
                redis.failover().await;
            }
            Self::Cluster(redis) => redis.failover(self.replica(name).await).await,
        }
    }
}

/// Runs each of these tests with Sentinel and with Cluster.
macro_rules! with_both {
    ($($test:ident,)*) => {
        mod with_sentinel {
            use super::*;

            $(#[tokio::test]
            async fn $test() {
                measure(async || super::$test(Store::sentinel().await).await).await;
            })*
        }

        mod in_a_cluster {
            use super::*;

            $(#[tokio::test]
            async fn $test() {
                measure(async || super::$test(Store::cluster().await).await).await;
            })*
        }
    };
}

with_both! {
    a_primary_that_is_killed_stops_clients_only_briefly,
    a_primary_that_hangs_stops_clients_only_briefly,
    a_lock_that_no_replica_has_is_lost_by_its_deadline_and_the_next_token_is_larger,
    a_primary_that_hands_over_loses_no_lock,
    a_waiter_is_told_by_the_new_primary,
    a_primary_that_comes_back_is_not_believed_by_an_idle_client,
    an_answer_of_a_replaced_primary_is_not_believed,
    tokens_go_on_after_a_flush,
}

/// Acquires `job` on the new primary, with a TTL that is longer than the test.
async fn taken_elsewhere(client: &LockClient<Backend>) -> LockGuard {
    let long = client.options().ttl(LONG);
    let mutex = client.mutex("job").unwrap().with_options(long).unwrap();
    timeout(LONG, mutex.lock()).await.expect("the new primary grants it").unwrap()
}

async fn client(store: &Store) -> LockClient<Backend> {
    let backend = connect_by_default(&store.url()).await;
    let options = LockOptions::new().ttl(TTL).outage_wait(LONG);
    LockClient::builder(backend).options(options).build().unwrap()
}

/// Runs contending clients during a fault of the primary. Returns the longest interruption, and the
/// times when several clients held the lock.
async fn contended(
    mut store: Store,
    fail: impl FnOnce(&mut Store, usize),
    recover: impl FnOnce(&Store, usize),
) -> Measured {
    const CLIENTS: usize = 8;
    let stalls = Stalls::watch();
    let patient = client(&store).await;
    let mutex = patient.mutex("held").unwrap();
    let long = patient.options().ttl(Duration::from_secs(10));
    let held = mutex.with_options(long).unwrap().lock().await.unwrap();
    // The lease of the last holder expires before the end of the failover.
    let ttl = Duration::from_millis(1_500);
    let contention = Contention::start(&store.url(), "counter", CLIENTS, ttl).await;

    let primary = store.primary("counter").await;
    let failed_at = Instant::now();
    fail(&mut store, primary);
    store.until_replaced("counter", primary).await;
    let replaced_at = Instant::now();
    let served_at = contention.until_all_have_held_since(replaced_at).await;

    println!(
        "replaced after {:?}; {:?} later all {CLIENTS} clients had been served",
        replaced_at - failed_at,
        served_at - replaced_at
    );
    stalls.in_time("all are served", served_at - replaced_at, Duration::from_secs(2))?;
    recover(&store, primary);
    // No client held the lock for longer than one TTL without the store.
    let history = contention.history().await;
    history.assert_exclusive_but_for((failed_at - TTL, replaced_at + TTL));
    // An older lease is either still in force or reported as lost.
    let deadline = held.deadline();
    until("it is renewed or lost", async || held.deadline() > deadline || !held.is_held()).await;
    Ok(())
}

async fn a_primary_that_is_killed_stops_clients_only_briefly(store: Store) -> Measured {
    contended(store, Store::kill, |_, _| {}).await
}

async fn a_primary_that_hangs_stops_clients_only_briefly(store: Store) -> Measured {
    contended(store, |store, primary| store.pause(primary), Store::resume).await
}

/// This test needs Sentinel. In a cluster, the nodes can still reach each other if only their
/// clients are disconnected, so no node is replaced.
#[tokio::test]
async fn a_primary_that_is_isolated_stops_clients_only_briefly() {
    measure(async || {
        let store = Store::Sentinel(SentinelOptions::new().proxied().start().await);

        contended(store, |store, primary| store.isolate(primary), |store, _| store.heal()).await
    })
    .await;
}

async fn a_lock_that_no_replica_has_is_lost_by_its_deadline_and_the_next_token_is_larger(
    mut store: Store,
) -> Measured {
    let (holder, other) = (client(&store).await, client(&store).await);
    let (primary, replica) = (store.primary("job").await, store.replica("job").await);
    store.pause(replica);
    let cut_off = store.command(primary, &["CLIENT", "KILL", "TYPE", "replica"]).await;
    assert!(!cut_off.starts_with('-'), "{cut_off}");
    let guard = lock(&holder, "job").await;

    let (stalls, killed_at) = (Stalls::watch(), Instant::now());
    store.kill(primary);
    store.resume(replica);
    let next = taken_elsewhere(&other).await;

    assert!(next.token() > guard.token());
    let granted_at = Instant::now();
    stalls.promptly("its holder learns of it by its deadline", TTL, guard.lost()).await?;
    println!("two held the lock for {:?}", granted_at.elapsed());
    assert!(next.is_held());
    stalls.in_time("failover and loss", killed_at.elapsed(), SOON + TTL)
}

async fn a_primary_that_hands_over_loses_no_lock(store: Store) -> Measured {
    let client = client(&store).await;
    let guard = lock(&client, "job").await;
    renewed(&guard).await;

    store.hand_over("job").await;

    renewed(&guard).await;
    renewed(&guard).await;
    let token = guard.token().number();
    guard.release().await.unwrap();
    assert!(lock(&client, "job").await.token().number() > token);
    Ok(())
}

async fn a_waiter_is_told_by_the_new_primary(store: Store) -> Measured {
    let (holder, waiter) = (client(&store).await, client(&store).await);
    let guard = lock(&holder, "job").await;
    renewed(&guard).await;
    let waits = waiting(&waiter, "job");

    store.hand_over("job").await;
    renewed(&guard).await;
    renewed(&guard).await;
    guard.release().await.unwrap();

    let granted = Stalls::watch().promptly("it is told", PROMPT, waits).await?;
    granted.unwrap().release().await.unwrap();
    Ok(())
}

async fn a_primary_that_comes_back_is_not_believed_by_an_idle_client(store: Store) -> Measured {
    let (idle, other) = (client(&store).await, client(&store).await);
    lock(&idle, "job").await.release().await.unwrap();
    let primary = store.primary("job").await;

    store.pause(primary);
    store.until_replaced("job", primary).await;
    let guard = taken_elsewhere(&other).await;
    store.resume(primary);

    let mutex = idle.mutex("job").unwrap();
    until("it is answered", async || match mutex.try_lock().await {
        Ok(_guard) => panic!("two hold the lock"),
        Err(TryLockError::Busy(_)) => true,
        Err(TryLockError::Failed(error)) => !error.is_retryable(),
    })
    .await;
    assert!(guard.is_held());
    Ok(())
}

async fn an_answer_of_a_replaced_primary_is_not_believed(store: Store) -> Measured {
    // The timeout is long enough to receive the reply of the old primary after its return.
    let patient = Backend::connect(&format!("{}?timeout-ms=30000", store.url())).await.unwrap();
    let key = LockKey::new("job").unwrap();
    let claim = |ttl| Claim::new(Lease::new(&key, ttl));
    let other = client(&store).await;
    let warm_up = claim(LONG);
    patient.acquire(&warm_up).await.unwrap();
    patient.release(warm_up.lease()).await.unwrap();
    let primary = store.primary("job").await;

    store.pause(primary);
    let asked = tokio::spawn({
        let (patient, claim) = (patient.clone(), claim(LONG));
        async move { patient.acquire(&claim).await }
    });
    store.until_replaced("job", primary).await;
    let guard = taken_elsewhere(&other).await;
    store.resume(primary);

    match timeout(SOON, asked).await.expect("it answers").unwrap() {
        Ok(Attempt::Granted(_)) => panic!("two hold the lock"),
        Ok(_) => {}
        Err(error) => assert_eq!(error.kind(), ErrorKind::Indeterminate, "{error}"),
    }
    assert!(guard.is_held());
    Ok(())
}

async fn tokens_go_on_after_a_flush(store: Store) -> Measured {
    let client = client(&store).await;
    let guard = lock(&client, "job").await;
    let primary = store.primary("job").await;

    assert_eq!(store.command(primary, &["FLUSHALL"]).await, "+OK");

    timeout(TTL, guard.lost()).await.expect("its holder is told, or finds out");
    assert!(lock(&client, "job").await.token() > guard.token());
    Ok(())
}
