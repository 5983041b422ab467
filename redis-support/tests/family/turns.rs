//! Those who wait for a mutex get it in turn, and a release wakes no more of them than it must.

use std::time::Duration;

use leasehold_core::{
    Attempt, Claim, Contention, Lease, LockBackend, LockClient, LockKey, Patience, Release,
};
use leasehold_testbed::{Redis, until};
use tokio::time::{Instant, timeout};

use super::connect;
use super::steps::{assert_nothing_is_left, lock, scripts_run, waiting};
use crate::Backend;

const LONG: Duration = Duration::from_secs(60);
const SOON: Duration = Duration::from_secs(5);

async fn backend(redis: &Redis) -> Backend {
    connect(&redis.url()).await.unwrap()
}

fn claim() -> Claim {
    Claim::new(Lease::new(&LockKey::new("job").unwrap(), LONG))
}

fn waits() -> Claim {
    claim().with_patience(Patience::Waits)
}

async fn refusal(backend: &Backend, claim: &Claim) -> Contention {
    match backend.try_acquire(claim).await.unwrap() {
        Attempt::Granted(grant) => panic!("{grant:?}"),
        Attempt::Held(contention) => contention,
    }
}

async fn is_granted(backend: &Backend, claim: &Claim) -> bool {
    matches!(backend.try_acquire(claim).await.unwrap(), Attempt::Granted(_))
}

#[tokio::test]
async fn come_before_who_has_just_released() {
    let redis = Redis::start().await;
    let clients = [LockClient::new(backend(&redis).await), LockClient::new(backend(&redis).await)];
    let mut guard = lock(&clients[0], "job").await;
    for n in 0..20 {
        let (holder, other) = (&clients[n % 2], &clients[(n + 1) % 2]);
        let scripts = scripts_run(&redis).await;
        let next = waiting(other, "job");
        until("it waits", async || scripts_run(&redis).await > scripts).await;

        guard.release().await.unwrap();
        let again = waiting(holder, "job");

        guard = timeout(SOON, next).await.expect("it is its turn").unwrap();
        assert!(!again.is_finished());
        again.abort();
        assert!(again.await.is_err(), "who asks later comes later");
        let places = "lock:~queue:{*}job";
        until("it has left the queue", async || redis.command(&["KEYS", places]).await == "*0")
            .await;
    }
    guard.release().await.unwrap();
    assert_nothing_is_left(&redis).await;
}

#[tokio::test]
async fn do_not_wait_for_the_dead() {
    let redis = Redis::start().await;
    let (dying, backend) = (backend(&redis).await, backend(&redis).await);
    let (holder, dead, next) = (claim(), waits(), waits());
    assert!(is_granted(&backend, &holder).await);
    for (backend, claim) in [(&dying, &dead), (&backend, &next)] {
        assert_eq!(refusal(backend, claim).await.place(), Some(SOON));
    }
    drop(dying);
    let channels = async || redis.command(&["PUBSUB", "CHANNELS"]).await;
    until("its connection has ended", async || channels().await.starts_with("*1\r\n")).await;

    assert_eq!(backend.release(holder.lease()).await.unwrap(), Release::Released);

    let freed = Instant::now();
    let left = refusal(&backend, &next).await.retry_after().expect("it is told when to look");
    assert!(left <= Patience::RESERVATION, "{left:?}");
    until("it is its turn", async || is_granted(&backend, &next).await).await;
    assert!(freed.elapsed() < SOON, "no longer than a place is kept");
}

#[tokio::test]
async fn do_not_wait_for_those_of_whom_nothing_was_heard_lately() {
    // So that `micros` have passed since anybody asked.
    const WAIT: &str = "
        for _, id in ipairs(redis.call('HKEYS', KEYS[1])) do
          local known = redis.call('HGET', KEYS[1], id)
          local later = function(ends, rest, asked)
            return string.format('%d%s%.0f', ends - ARGV[1] / 1000, rest, asked - ARGV[1])
          end
          redis.call('HSET', KEYS[1], id, (string.gsub(known, '^(%d+)( %d+ %d+ )(%d+)', later)))
        end";

    let redis = Redis::start().await;
    let (hanging, backend) = (backend(&redis).await, backend(&redis).await);
    for (micros, soon) in [("2400000", false), ("2600000", true)] {
        let (holder, hangs, next) = (claim(), waits(), waits());
        assert!(is_granted(&backend, &holder).await);
        refusal(&hanging, &hangs).await;
        let places = redis.command(&["KEYS", "lock:~places:*"]).await;
        let places = places.lines().last().unwrap().to_owned();
        redis.command(&["EVAL", WAIT, "1", &places, micros]).await;
        refusal(&backend, &next).await;

        backend.release(holder.lease()).await.unwrap();

        let left = refusal(&backend, &next).await.retry_after().expect("it is told when to look");
        assert_eq!(left <= Patience::RESERVATION, soon, "{left:?}");
        assert!(is_granted(&hanging, &hangs).await, "it is served if it asks");
        for claim in [&hangs, &next] {
            hanging.release(claim.lease()).await.unwrap();
        }
    }
}

#[tokio::test]
async fn give_up_their_place_at_once() {
    let redis = Redis::start().await;
    let backend = backend(&redis).await;
    let (holder, gone, next) = (claim(), waits(), waits());
    assert!(is_granted(&backend, &holder).await);
    for claim in [&gone, &next] {
        refusal(&backend, claim).await;
    }
    backend.release(gone.lease()).await.unwrap();
    backend.release(holder.lease()).await.unwrap();

    assert!(is_granted(&backend, &next).await);
}

#[tokio::test]
async fn who_hold_it_already_and_do_not_know_are_told() {
    let redis = Redis::start().await;
    let backend = backend(&redis).await;
    let holder = waits();
    assert!(is_granted(&backend, &holder).await);
    for _ in 0..5 {
        refusal(&backend, &waits()).await;
    }

    assert!(
        is_granted(&backend, &holder).await,
        "the reply to the first attempt may have been lost"
    );
}

#[tokio::test]
async fn are_let_in_where_there_is_no_memory_for_places() {
    let redis = Redis::start().await;
    let backend = backend(&redis).await;
    let (holder, other) = (claim(), waits());
    assert!(is_granted(&backend, &holder).await);
    redis.command(&["CONFIG", "SET", "maxmemory", "1"]).await;

    assert_eq!(refusal(&backend, &other).await.place(), None);
    backend.release(holder.lease()).await.unwrap();
    redis.command(&["CONFIG", "SET", "maxmemory", "0"]).await;

    assert!(is_granted(&backend, &other).await);
}

/// Whether the server tells of the lock all who have named it, and not only those who have read it, as Redis 7.0 does.
async fn tells_all(redis: &Redis) -> bool {
    let info = redis.command(&["INFO", "server"]).await;
    let version = info.lines().find_map(|line| line.strip_prefix("redis_version:")).unwrap();
    let mut parts = version.split('.').map(|part| part.parse::<u32>().unwrap());
    (parts.next(), parts.next()) < (Some(7), Some(2))
}

#[tokio::test]
async fn are_not_all_woken_by_a_release() {
    const WAITERS: u64 = 40;

    let redis = Redis::start().await;
    let mut waiters = Vec::new();
    let first = LockClient::new(backend(&redis).await);
    let guard = lock(&first, "job").await;
    for _ in 0..WAITERS {
        let scripts = scripts_run(&redis).await;
        let client = LockClient::new(backend(&redis).await);
        waiters.push((waiting(&client, "job"), client));
        until("it waits", async || scripts_run(&redis).await > scripts).await;
    }
    let before = scripts_run(&redis).await;

    guard.release().await.unwrap();
    for (waiter, _) in &mut waiters {
        timeout(SOON, waiter).await.expect("it is its turn").unwrap().release().await.unwrap();
    }

    let scripts = scripts_run(&redis).await - before;
    // If all were woken by each release, each would look as often as there are others before it.
    let most = if tells_all(&redis).await { WAITERS * WAITERS } else { 10 * WAITERS };
    assert!(scripts <= most, "{scripts} scripts for {WAITERS} hand-overs");
}
