//! Tests of the keys in the server for semaphores, read-write locks and queues.

use std::time::Duration;

use futures_util::future::join_all;
use leasehold_core::backend::{
    Attempt, Claim, Lease, LockBackend, Mode, Patience, Release, Renewal, StoreAdmin as _,
};
use leasehold_core::{ErrorKind, LockClient, LockKey};
use leasehold_testbed::{Pace, Redis, RedisOptions};

use super::connect;
use super::steps::scripts_run;
use crate::Backend;

const LONG: Duration = Duration::from_secs(60);
const SHORT: Duration = Duration::from_secs(2);

async fn backend(redis: &Redis) -> Backend {
    // Some tests send a thousand requests at the same time, on a busy machine.
    connect(&redis.url()).await.unwrap()
}

fn permits(units: u32, limit: u32) -> Lease {
    Lease::new(&LockKey::new("job").unwrap(), LONG).with_mode(Mode::Units { units, limit })
}

async fn is_granted(backend: &Backend, claim: &Claim) -> bool {
    matches!(backend.acquire(claim).await.unwrap(), Attempt::Granted(_))
}

async fn grant(backend: &Backend, lease: &Lease) {
    assert!(is_granted(backend, &Claim::new(lease.clone())).await);
}

fn queued(lease: &Lease) -> Claim {
    Claim::new(lease.clone()).with_patience(Patience::Queues(LONG))
}

/// Returns all keys in the server, except token counters and notification keys.
async fn names(redis: &Redis) -> Vec<String> {
    let keys = redis.command(&["KEYS", "*"]).await;
    let keys = keys.lines().filter(|line| line.starts_with("lock:"));
    keys.filter(|key| !["~fence", "~crowd", "~news:"].iter().any(|part| key.contains(part)))
        .map(ToOwned::to_owned)
        .collect()
}

#[tokio::test]
async fn returned_units_leave_nothing_and_the_rest_ends_by_itself() {
    let redis = Redis::start().await;
    let backend = backend(&redis).await;
    let (held, waits) = (permits(2, 3), permits(2, 3));
    grant(&backend, &held).await;
    assert!(!is_granted(&backend, &queued(&waits)).await);
    backend.request_revocation(held.key(), None).await.unwrap();

    let names_in_use = names(&redis).await;
    assert_eq!(names_in_use.len(), 5, "{names_in_use:?}");
    for name in &names_in_use {
        let ttl = redis.command(&["PTTL", name]).await;
        let ttl: i64 = ttl.trim_start_matches(':').parse().unwrap();
        assert!(ttl > 0 && ttl <= 120_000, "{name}: {ttl}");
    }

    backend.release(&waits).await.unwrap();
    backend.release(&held).await.unwrap();
    grant(&backend, &permits(3, 3)).await;
    backend.force_release(held.key(), None).await.unwrap();
    assert_eq!(names(&redis).await, Vec::<String>::new());
}

#[tokio::test]
async fn a_waiter_that_is_served_leaves_nothing_in_the_queue() {
    let redis = Redis::start().await;
    let backend = backend(&redis).await;
    let mutex = || Lease::new(&LockKey::new("mutex").unwrap(), LONG);
    for (held, waits) in [(mutex(), mutex()), (permits(3, 3), permits(1, 3))] {
        grant(&backend, &held).await;
        assert!(!is_granted(&backend, &queued(&waits)).await);
        backend.release(&held).await.unwrap();

        assert!(is_granted(&backend, &queued(&waits)).await);

        let left = names(&redis).await;
        let of_the_queue = |name: &&String| name.contains("~queue:") || name.contains("~places:");
        assert_eq!(left.iter().find(of_the_queue), None);
        backend.release(&waits).await.unwrap();
    }
    assert_eq!(names(&redis).await, Vec::<String>::new());
}

#[tokio::test]
async fn records_of_holders_and_waiters_go_with_them() {
    const BRIEF: Duration = Duration::from_millis(20);

    let redis = Redis::start().await;
    let backend = backend(&redis).await;
    let (stays, waits) = (permits(1, 3), permits(3, 3));
    grant(&backend, &stays).await;
    assert!(!is_granted(&backend, &queued(&waits)).await);
    for _ in 0..3 {
        // One holder releases its permits and one crashes. One waiter gives up and one crashes.
        let (leaver, dies, tired) = (permits(1, 9), permits(1, 9).with_ttl(BRIEF), permits(3, 3));
        grant(&backend, &leaver).await;
        grant(&backend, &dies).await;
        assert!(!is_granted(&backend, &queued(&tired)).await);
        let dies_waiting = Claim::new(permits(3, 3)).with_patience(Patience::Queues(BRIEF));
        assert!(!is_granted(&backend, &dies_waiting).await);
        backend.release(&leaver).await.unwrap();
        backend.release(&tired).await.unwrap();
        tokio::time::sleep(BRIEF * 2).await;
    }
    let last = permits(3, 3);
    assert!(!is_granted(&backend, &queued(&last)).await, "the refusal clears ended leases");
    backend.release(&last).await.unwrap();

    let size = async |part: &str, command: &str| {
        let names = names(&redis).await;
        let name = names.iter().find(|name| name.contains(part)).unwrap();
        redis.command(&[command, name]).await.trim().to_owned()
    };
    assert_eq!(size("~held:", "ZCARD").await, ":1");
    assert_eq!(size("~units:", "HLEN").await, ":2", "the one that stays, and the sum");
    assert_eq!(size("~queue:", "ZCARD").await, ":1");
    assert_eq!(size("~places:", "HLEN").await, ":1");
}

#[tokio::test]
async fn each_operation_is_one_request() {
    let redis = Redis::start().await;
    let backend = backend(&redis).await;
    // The first request loads the scripts into the server.
    let (held, waits) = (permits(2, 3), permits(2, 3));
    let all = async || {
        grant(&backend, &held).await;
        assert!(!is_granted(&backend, &queued(&waits)).await);
        assert_eq!(backend.renew(&held).await.unwrap(), Renewal::Renewed);
        backend.release(&waits).await.unwrap();
        backend.release(&held).await.unwrap();
    };
    all().await;
    let before = scripts_run(&redis).await;

    all().await;

    assert_eq!(scripts_run(&redis).await - before, 5);
}

#[tokio::test]
async fn a_full_server_lets_units_be_renewed_and_given_back() {
    let redis = Redis::start().await;
    let backend = backend(&redis).await;
    let writer = permits(1, 1).with_mode(Mode::WRITER);
    let waits = permits(1, 1).with_mode(Mode::READER);
    grant(&backend, &writer).await;
    assert!(!is_granted(&backend, &queued(&waits)).await);
    redis.command(&["CONFIG", "SET", "maxmemory", "1"]).await;

    let other = permits(1, 1).with_mode(Mode::READER);
    let error = backend.acquire(&queued(&other)).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Refused, "{error}");
    assert_eq!(backend.renew(&writer).await.unwrap(), Renewal::Renewed);
    assert_eq!(backend.release(&waits).await.unwrap(), Release::NotHeld);
    let downgraded = writer.clone().with_mode(Mode::READER);
    assert_eq!(backend.renew(&downgraded).await.unwrap(), Renewal::Renewed);
    let inspection = backend.inspect(writer.key()).await.unwrap();
    assert_eq!(inspection.units(), 1);
    assert_eq!(backend.release(&downgraded).await.unwrap(), Release::Released);

    redis.command(&["CONFIG", "SET", "maxmemory", "0"]).await;
    grant(&backend, &writer).await;
    redis.command(&["CONFIG", "SET", "maxmemory", "1"]).await;
    assert_eq!(backend.force_release(writer.key(), None).await.unwrap().ended().len(), 1);
    assert_eq!(names(&redis).await, Vec::<String>::new());
}

#[tokio::test]
async fn thousands_of_dead_holders_are_cleared_little_by_little() {
    let redis = RedisOptions::new().clock(Pace::Still).start().await;
    let backend = backend(&redis).await;
    let claims: Vec<Claim> =
        (0..1_000).map(|_| Claim::new(permits(1, 1_000).with_ttl(SHORT))).collect();
    let granted = join_all(claims.iter().map(|claim| is_granted(&backend, claim))).await;
    assert!(granted.into_iter().all(|granted| granted));
    let inspection = backend.inspect(permits(1, 1).key()).await.unwrap();
    assert_eq!((inspection.units(), inspection.holders().len()), (1_000, 128));

    // A lease that is still in force prevents the key from expiring.
    let client = LockClient::new(backend);
    let living = permits(1, 1_001);
    grant(client.backend(), &living).await;
    redis.clock().advance(SHORT);
    let all = client.semaphore("job", 1_001).unwrap();
    let all = all.try_acquire_for(1_000, Duration::from_secs(10)).await.unwrap();

    assert_eq!(client.admin().inspect("job").await.unwrap().units(), 1_001);
    all.release().await.unwrap();
    client.backend().release(&living).await.unwrap();
    assert_eq!(names(&redis).await, Vec::<String>::new());
}

#[tokio::test]
async fn a_long_queue_keeps_its_order_and_enters_as_it_comes_near() {
    let redis = Redis::start().await;
    let backend = backend(&redis).await;
    let writer = permits(1, 1).with_mode(Mode::WRITER);
    grant(&backend, &writer).await;
    let readers: Vec<Claim> =
        (0..300).map(|_| queued(&permits(1, 1).with_mode(Mode::READER))).collect();
    for reader in &readers {
        assert!(!is_granted(&backend, reader).await);
    }
    backend.release(&writer).await.unwrap();

    for too_far_back in [299, 129] {
        assert!(!is_granted(&backend, &readers[too_far_back]).await);
    }
    assert!(is_granted(&backend, &readers[128]).await);
    for reader in readers.iter().filter(|reader| reader.id() != readers[128].id()) {
        assert!(is_granted(&backend, reader).await);
    }
    assert_eq!(backend.inspect(writer.key()).await.unwrap().units(), 300);
}

#[tokio::test]
async fn a_deleted_record_of_holders_counts_as_full() {
    let redis = Redis::start().await;
    let backend = backend(&redis).await;
    let (held, more) = (permits(1, 3), permits(1, 3));
    grant(&backend, &held).await;
    grant(&backend, &more).await;
    let units = names(&redis).await.into_iter().find(|name| name.contains("~units:")).unwrap();
    redis.command(&["DEL", &units]).await;

    assert!(!is_granted(&backend, &Claim::new(permits(1, 3))).await);
    assert_eq!(backend.renew(&held).await.unwrap(), Renewal::Renewed);
    assert_eq!(backend.release(&more).await.unwrap(), Release::Released);
    assert_eq!(backend.release(&held).await.unwrap(), Release::Released);
    assert!(is_granted(&backend, &Claim::new(permits(3, 3))).await);
}

#[tokio::test]
async fn a_release_after_the_end_of_a_lease_is_none_while_others_hold() {
    let redis = RedisOptions::new().clock(Pace::Still).start().await;
    let backend = backend(&redis).await;
    let (ended, held) = (permits(1, 3).with_ttl(SHORT), permits(1, 3));
    grant(&backend, &ended).await;
    grant(&backend, &held).await;

    redis.clock().advance(SHORT);

    assert_eq!(backend.release(&ended).await.unwrap(), Release::NotHeld);
    assert_eq!(backend.release(&held).await.unwrap(), Release::Released);
}

#[tokio::test]
async fn a_dead_waiter_delays_the_next_by_its_patience_only_once_a_holder_has_died() {
    let redis = RedisOptions::new().clock(Pace::Still).start().await;
    let backend = backend(&redis).await;
    let [dead, next] = [(); 2].map(|()| Claim::new(permits(1, 1)).with_patience(Patience::Waits));
    grant(&backend, &permits(1, 1).with_ttl(Patience::RESERVATION)).await;
    assert!(!is_granted(&backend, &dead).await);
    assert!(!is_granted(&backend, &next).await);

    // No release has woken the first claim.
    redis.clock().advance(Patience::RESERVATION);
    assert!(!is_granted(&backend, &next).await, "the first came before");
    redis.clock().advance(Patience::RESERVATION);

    assert!(is_granted(&backend, &next).await);
}

#[tokio::test]
async fn a_clock_that_goes_back_lets_no_claim_pass() {
    let redis = Redis::start().await;
    let backend = backend(&redis).await;
    let (held, first, second) = (permits(1, 1), permits(1, 1), permits(1, 1));
    grant(&backend, &held).await;
    assert!(!is_granted(&backend, &queued(&first)).await);
    // Changes the queue as if the claim had arrived one hour later by the server's clock.
    let queue = names(&redis).await.into_iter().find(|name| name.contains("~queue:")).unwrap();
    redis.command(&["ZINCRBY", &queue, "3600000000", &first.id().secret()]).await;

    assert!(!is_granted(&backend, &queued(&second)).await);
    backend.release(&held).await.unwrap();

    assert!(!is_granted(&backend, &queued(&second)).await, "it passed the first");
    assert!(is_granted(&backend, &queued(&first)).await);
}
