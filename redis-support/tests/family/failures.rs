//! Tests with servers that are down, paused, busy or full, that lose data, or that are not Redis.

mod canned_replies;
mod descriptors;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use leasehold_conformance::stalls::{Stalls, measure};
use leasehold_core::backend::{
    Claim, Feature, Lease, LockBackend, Release, Renewal, StoreAdmin as _,
};
use leasehold_core::observe::{Observer, Store, StoreChange};
use leasehold_core::{Error, ErrorKind, LeaseState, LockClient, LockKey, LockOptions, LossReason};
use leasehold_testbed::{FaultProxy, NetworkFault, Redis, RedisOptions, free_port, until};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinHandle;
use tokio::time::{Instant, timeout};

use super::connect;
use super::steps::{lock, renewed, waiting};
use crate::{Backend, Config};

const LONG: Duration = Duration::from_secs(60);

/// The maximum delay on a machine that does not stall.
const PROMPT: Duration = Duration::from_millis(250);

async fn backend(redis: &Redis) -> Backend {
    connect(&redis.url()).await.unwrap()
}

fn lease(name: &str) -> Lease {
    Lease::new(&LockKey::new(name).unwrap(), LONG)
}

async fn acquire(backend: &Backend, lease: &Lease) -> Result<(), leasehold_core::Error> {
    backend.acquire(&Claim::new(lease.clone())).await.map(|_attempt| ())
}

#[tokio::test]
async fn a_server_that_is_down_is_an_error_at_once_and_every_time() {
    measure(async || {
        let stalls = Stalls::watch();
        let url = format!("redis://127.0.0.1:{}", free_port());
        let refused = connect(&url).await.unwrap_err();
        assert_eq!(refused.kind(), ErrorKind::Unavailable);

        let lazy = Backend::connect_lazily(Config::from_url(&url).unwrap());
        for _ in 0..20 {
            let start = Instant::now();
            let error = acquire(&lazy, &lease("job")).await.unwrap_err();
            assert_eq!(error.kind(), ErrorKind::Unavailable);
            stalls.in_time("an error at once", start.elapsed(), PROMPT)?;
        }
        Ok(())
    })
    .await;
}

#[tokio::test]
async fn a_host_that_swallows_connections_is_an_error_in_time_for_all_callers() {
    measure(async || {
        // The listener never accepts connections, so the kernel completes connections only until
        // the backlog is full.
        let silent = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("redis://{}", silent.local_addr().unwrap());
        let backend = Backend::connect_lazily(Config::from_url(&url).unwrap());

        let (stalls, start) = (Stalls::watch(), Instant::now());
        let mut calls = tokio::task::JoinSet::new();
        for n in 0..50 {
            let backend = backend.clone();
            calls
                .spawn(async move { acquire(&backend, &lease(&n.to_string())).await.unwrap_err() });
        }
        while let Some(error) = calls.join_next().await {
            assert_eq!(error.unwrap().kind(), ErrorKind::Unavailable);
        }

        stalls.in_time("errors", start.elapsed(), Duration::from_secs(1) + PROMPT)?;
        Ok(())
    })
    .await;
}

#[tokio::test]
async fn a_restarted_server_is_found_again() {
    let mut redis = Redis::start().await;
    let backend = backend(&redis).await;
    for round in 0..3 {
        redis.kill();
        let error = acquire(&backend, &lease("job")).await.unwrap_err();
        assert!(error.is_retryable(), "{error}");

        redis.restart().await;

        acquire(&backend, &lease("job")).await.unwrap_or_else(|error| panic!("{round}: {error}"));
    }
}

#[cfg(target_os = "linux")]
#[tokio::test]
async fn idle_connections_are_kept_alive() {
    let redis = leasehold_testbed::RedisSentinel::start().await;
    let backend = connect(&redis.url()).await.unwrap();
    acquire(&backend, &lease("job")).await.unwrap();

    for address in [redis.node_address(0), redis.sentinel_address(0)] {
        let port: u16 = address.rsplit(':').next().unwrap().parse().unwrap();
        until("TCP keeps the connection alive", async || is_kept_alive(port)).await;
    }
}

/// Returns whether the kernel runs a TCP keep-alive timer of at most 15 s for a connection to this
/// local port.
#[cfg(target_os = "linux")]
fn is_kept_alive(port: u16) -> bool {
    let connections = std::fs::read_to_string("/proc/net/tcp").unwrap();
    let suffix = format!(":{port:04X}");
    connections.lines().any(|line| {
        let fields: Vec<&str> = line.split_whitespace().collect();
        let [_, _local, remote, _state, _queues, timer, ..] = fields[..] else { return false };
        let Some(hundredths) = timer.strip_prefix("02:") else { return false };
        remote.ends_with(&suffix) && u64::from_str_radix(hundredths, 16).unwrap() <= 1_500
    })
}

#[tokio::test]
async fn a_hung_server_costs_each_call_its_timeout_and_is_left_after_three() {
    measure(async || {
        let redis = Redis::start().await;
        let proxy = FaultProxy::start(redis.address()).await;
        let url = format!("redis://{}?timeout-ms=200", proxy.address());
        let backend = connect(&url).await.unwrap();
        // A reply may take longer on a machine that stalls.
        let answers = async || acquire(&backend, &lease("job")).await.is_ok();
        until("the connection works", answers).await;

        // The connection is permanently interrupted, but neither end is notified. New connections
        // work.
        proxy.set_network_fault(NetworkFault::BlackHole);
        let (stalls, start) = (Stalls::watch(), Instant::now());
        for n in 0..3 {
            let error = acquire(&backend, &lease(&n.to_string())).await.unwrap_err();
            assert_eq!(error.kind(), ErrorKind::Indeterminate);
        }
        let took = start.elapsed();
        assert!(took >= Duration::from_millis(600), "{took:?}");
        stalls.in_time("three timeouts", took, Duration::from_millis(600) + PROMPT)?;
        let error = acquire(&backend, &lease("while")).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Unavailable, "it is still on the dead connection");

        proxy.set_network_fault(NetworkFault::None);
        until("another connection works", answers).await;
        Ok(())
    })
    .await;
}

#[tokio::test]
async fn a_paused_server_is_waited_out_and_its_late_grants_are_cleaned_up() {
    let redis = Redis::start().await;
    let client = LockClient::new(backend(&redis).await);
    let mutex = client.mutex("job").unwrap();
    redis.pause();

    let error = Error::from(mutex.try_lock_for(Duration::from_millis(700)).await.unwrap_err());
    assert!(error.is_retryable(), "{error}");

    // The abandoned request is still in the server's socket, so the server now runs it.
    redis.resume();
    let start = Instant::now();
    while redis.command(&["EXISTS", "lock:job"]).await == ":1" {
        assert!(start.elapsed() < Duration::from_secs(5), "the lease stays");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    mutex.lock().await.unwrap().release().await.unwrap();
}

#[tokio::test]
async fn a_server_that_forgot_everything_ends_the_lease_at_the_next_renewal() {
    let mut redis = Redis::start().await;
    let client = LockClient::new(backend(&redis).await);
    let guard = client.mutex("job").unwrap().lock().await.unwrap();

    redis.restart().await;

    let lost = timeout(Duration::from_secs(5), guard.lost()).await.expect("it looks at once");
    assert_eq!(lost, Some(LossReason::Vanished));
    drop(guard);
}

#[tokio::test]
async fn a_server_that_saves_everything_keeps_the_lease_over_a_crash() {
    let mut redis = RedisOptions::new().append_only().start().await;
    let client = LockClient::new(backend(&redis).await);
    let guard = client.mutex("job").unwrap().lock().await.unwrap();

    redis.restart().await;
    guard.extend(LONG).await.unwrap();

    assert_eq!(guard.state(), LeaseState::Held);
    guard.release().await.unwrap();
}

#[tokio::test]
async fn a_full_server_grants_nothing_and_still_renews_and_releases() {
    let redis = Redis::start().await;
    let (backend, ours) = (backend(&redis).await, lease("ours"));
    acquire(&backend, &ours).await.unwrap();
    redis.command(&["CONFIG", "SET", "maxmemory", "1"]).await;

    let error = acquire(&backend, &lease("new")).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Refused);
    assert_eq!(backend.ping().await.unwrap_err().kind(), ErrorKind::Refused);
    assert!(
        error.to_string().contains("OOM") && error.to_string().contains("maxmemory"),
        "{error}"
    );
    assert_eq!(redis.command(&["EXISTS", "lock:new"]).await, ":0");

    assert_eq!(backend.renew(&ours).await.unwrap(), Renewal::Renewed);
    assert!(backend.inspect(ours.key()).await.unwrap().is_held());
    assert_eq!(backend.release(&ours).await.unwrap(), Release::Released);
    redis.command(&["SET", "lock:theirs", "x"]).await;
    assert!(backend.force_release(&LockKey::new("theirs").unwrap(), None).await.is_ok());
}

#[tokio::test]
async fn a_full_server_lets_inner_and_outer_guards_go() {
    let redis = Redis::start().await;
    let client = LockClient::new(backend(&redis).await);
    let mutex = client.reentrant_mutex("job").unwrap();
    let (outer, inner) = (mutex.lock().await.unwrap(), mutex.lock().await.unwrap());
    redis.command(&["CONFIG", "SET", "maxmemory", "1"]).await;

    inner.release().await.unwrap();
    outer.release().await.unwrap();

    assert_eq!(redis.command(&["EXISTS", "lock:job"]).await, ":0");
}

#[tokio::test]
async fn a_server_that_cannot_save_says_so() {
    let redis = Redis::start().await;
    let (backend, ours) = (backend(&redis).await, lease("ours"));
    acquire(&backend, &ours).await.unwrap();
    // A snapshot fails if its path is a directory. After the failure, the server rejects writes.
    redis.command(&["CONFIG", "SET", "save", "3600 1"]).await;
    std::fs::create_dir(redis.folder().join("dump.rdb")).unwrap();
    redis.command(&["BGSAVE"]).await;
    let start = Instant::now();
    while !redis.command(&["SET", "probe", "x"]).await.starts_with("-MISCONF") {
        assert!(start.elapsed() < Duration::from_secs(10), "the snapshot does not fail");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }

    let error = acquire(&backend, &lease("new")).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Refused);
    assert!(error.to_string().contains("MISCONF"), "{error}");
    let error = backend.release(&ours).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Refused, "a failed release is no success");
}

#[tokio::test]
async fn a_replica_takes_no_locks() {
    let redis = Redis::start().await;
    let backend = backend(&redis).await;
    redis.command(&["REPLICAOF", "127.0.0.1", "1"]).await;

    let error = acquire(&backend, &lease("job")).await.unwrap_err();

    assert_eq!(error.kind(), ErrorKind::NotWritable);
    assert!(error.to_string().contains("READONLY"), "{error}");
    assert_eq!(backend.ping().await.unwrap_err().kind(), ErrorKind::NotWritable);
    redis.command(&["REPLICAOF", "NO", "ONE"]).await;
    acquire(&backend, &lease("job")).await.unwrap();
    backend.ping().await.unwrap();
    assert_eq!(redis.command(&["KEYS", "lock:~ping*"]).await, "*0", "a ping writes nothing");
}

#[tokio::test]
async fn a_primary_without_enough_replicas_answers_no_ping() {
    let redis = Redis::start().await;
    let backend = backend(&redis).await;
    backend.ping().await.unwrap();

    redis.command(&["CONFIG", "SET", "min-replicas-to-write", "1"]).await;

    let error = backend.ping().await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::NotWritable);
    assert!(error.to_string().contains("NOREPLICAS"), "{error}");
}

/// Records the state of the store that a client reports: 1 if the store is up, and 0 if it is down.
#[derive(Clone, Default)]
struct Gauge(Arc<AtomicBool>);

impl Observer for Gauge {
    fn on_store(&self, event: &Store<'_>) {
        self.0.store(matches!(event.change, StoreChange::Up { .. }), Ordering::Relaxed);
    }
}

#[tokio::test]
async fn a_full_server_is_reported_as_down_until_it_grants_a_lock() {
    let redis = Redis::start().await;
    let gauge = Gauge::default();
    let is_up = || gauge.0.load(Ordering::Relaxed);
    let client = LockClient::builder(backend(&redis).await).observer(gauge.clone());
    let client = client.build().unwrap();
    let held = lock(&client, "held").await;
    assert!(is_up());

    redis.command(&["CONFIG", "SET", "maxmemory", "1"]).await;
    client.mutex("new").unwrap().try_lock().await.unwrap_err();
    assert!(!is_up());
    held.extend(LONG).await.unwrap();
    held.release().await.unwrap();
    assert!(!is_up(), "a full server renews and releases");

    redis.command(&["CONFIG", "SET", "maxmemory", "0"]).await;
    lock(&client, "new").await.release().await.unwrap();
    assert!(is_up());
}

#[tokio::test]
async fn at_its_limit_of_connections_a_server_says_so_and_serves_its_holders() {
    let redis = Redis::start().await;
    let client = LockClient::new(backend(&redis).await);
    let guard = lock(&client, "job").await;

    // Existing connections remain open.
    redis.command(&["CONFIG", "SET", "maxclients", "1"]).await;

    let error = Backend::connect(&redis.url()).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unavailable);
    assert!(error.to_string().contains("maxclients"), "{error}");
    guard.extend(LONG).await.unwrap();
    renewed(&guard).await;
    guard.release().await.unwrap();
}

#[tokio::test]
async fn a_demoted_server_is_left_for_the_one_that_its_name_leads_to() {
    let (old, new) = (Redis::start().await, Redis::start().await);
    let port = |redis: &Redis| redis.address().rsplit(':').next().unwrap().to_owned();
    let proxy = FaultProxy::start(old.address()).await;
    let client = async || {
        let backend = connect(&format!("redis://{}", proxy.address())).await.unwrap();
        let options = LockOptions::new().ttl(Duration::from_secs(12)).outage_wait(LONG);
        LockClient::builder(backend).options(options).build().unwrap()
    };
    let (holder, waiter) = (client().await, client().await);
    let guard = lock(&holder, "job").await;
    let waits = waiting(&waiter, "job");
    new.command(&["REPLICAOF", "127.0.0.1", &port(&old)]).await;
    let has_copy = async || new.command(&["GET", "lock:job"]).await.len() > 5;
    until("the replica has a copy", has_copy).await;

    new.command(&["REPLICAOF", "NO", "ONE"]).await;
    proxy.lead_to(new.address());
    old.command(&["REPLICAOF", "127.0.0.1", &port(&new)]).await;

    renewed(&guard).await;
    guard.release().await.unwrap();
    let granted = timeout(LONG, waits).await.expect("it goes on").unwrap();
    assert!(granted.is_held());
    granted.release().await.unwrap();
}

#[tokio::test]
async fn a_replica_is_not_stormed_with_connections() {
    let redis = Redis::start().await;
    let connect = async || LockClient::new(connect(&redis.url()).await.unwrap());
    let (holder, waiter) = (connect().await, connect().await);
    let guard = lock(&holder, "job").await;
    let waits = waiting(&waiter, "job");
    let connections = async || {
        let stats = redis.command(&["INFO", "stats"]).await;
        let count = stats.lines().find_map(|line| line.strip_prefix("total_connections_received:"));
        count.unwrap().parse::<u64>().unwrap()
    };

    let before = connections().await;
    redis.command(&["REPLICAOF", "127.0.0.1", "1"]).await;
    tokio::time::sleep(Duration::from_secs(2)).await;
    let made = connections().await - before;
    redis.command(&["REPLICAOF", "NO", "ONE"]).await;

    // The holder and the waiter each retry at most about 20 times per second. The test runs for
    // more seconds on a slow machine.
    assert!(made < 500, "{made}");
    renewed(&guard).await;
    guard.release().await.unwrap();
    timeout(LONG, waits).await.expect("it goes on").unwrap().release().await.unwrap();
}

#[tokio::test]
async fn a_replica_without_its_primary_takes_no_locks_either() {
    let options = RedisOptions::new().args(["--replica-serve-stale-data", "no"]);
    let redis = options.start().await;
    let backend = backend(&redis).await;
    redis.command(&["REPLICAOF", "127.0.0.1", "1"]).await;

    let error = acquire(&backend, &lease("job")).await.unwrap_err();

    assert_eq!(error.kind(), ErrorKind::Unavailable);
    assert!(error.to_string().contains("MASTERDOWN"), "{error}");
}

#[tokio::test]
async fn a_primary_that_wants_replicas_refuses_for_now() {
    let redis = RedisOptions::new().args(["--min-replicas-to-write", "1"]).start().await;

    let error = acquire(&backend(&redis).await, &lease("job")).await.unwrap_err();

    assert_eq!(error.kind(), ErrorKind::NotWritable);
    assert!(error.to_string().contains("NOREPLICAS"), "{error}");
}

#[tokio::test]
async fn an_endless_script_of_another_client_makes_the_server_busy_and_no_lease_lost() {
    let redis = RedisOptions::new().args(["--lua-time-limit", "50"]).start().await;
    let client = LockClient::new(backend(&redis).await);
    let guard = client.mutex("job").unwrap().lock().await.unwrap();
    let spinning = keep_busy(&redis).await;

    let error = acquire(client.backend(), &lease("new")).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unavailable);
    assert!(error.to_string().contains("BUSY"), "{error}");
    let error = guard.extend(LONG).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unavailable);
    assert!(guard.is_held());

    redis.command(&["SCRIPT", "KILL"]).await;
    spinning.await.unwrap();
    guard.extend(LONG).await.unwrap();
    guard.release().await.unwrap();
}

#[tokio::test]
async fn a_server_that_was_busy_when_it_was_asked_for_news_is_asked_again() {
    let redis = RedisOptions::new().args(["--lua-time-limit", "50"]).start().await;
    let backend = Backend::connect_lazily(Config::from_url(&redis.url()).unwrap());
    let spinning = keep_busy(&redis).await;

    let error = acquire(&backend, &lease("job")).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unavailable);
    assert!(error.to_string().contains("BUSY"), "{error}");
    redis.command(&["SCRIPT", "KILL"]).await;
    spinning.await.unwrap();

    acquire(&backend, &lease("job")).await.unwrap();
    assert!(backend.capabilities().supports(Feature::Push));
}

#[tokio::test]
async fn a_closed_backend_says_so() {
    let redis = Redis::start().await;
    let backend = backend(&redis).await;

    backend.close().await;

    let error = acquire(&backend, &lease("job")).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Closed);
}

#[tokio::test]
async fn connections_that_an_operator_kills_are_made_anew() {
    let redis = Redis::start().await;
    let options = LockOptions::new().ttl(Duration::from_secs(2));
    let client = LockClient::builder(backend(&redis).await).options(options).build().unwrap();
    for _ in 0..20 {
        let guard = client.mutex("job").unwrap().lock().await.unwrap();
        redis.command(&["CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes"]).await;
        guard.extend(Duration::from_secs(2)).await.or_else(retryable).unwrap();
        redis.command(&["CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes"]).await;
        assert!(guard.is_held());
        guard.release().await.or_else(retryable).unwrap();
    }
    assert_eq!(redis.command(&["EXISTS", "lock:job"]).await, ":0");
}

/// Runs an endless script of another client on the server, until the script is killed.
async fn keep_busy(redis: &Redis) -> JoinHandle<()> {
    let mut stream = TcpStream::connect(redis.address()).await.unwrap();
    stream.write_all(b"EVAL \"while true do end\" 0\r\n").await.unwrap();
    until("it is busy", async || redis.command(&["PING"]).await.starts_with("-BUSY")).await;
    tokio::spawn(async move { drop(stream.read_u8().await) })
}

fn retryable(error: leasehold_core::Error) -> Result<(), leasehold_core::Error> {
    if error.is_retryable() { Ok(()) } else { Err(error) }
}
