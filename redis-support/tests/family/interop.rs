//! Tests of the keys in the server, and of other clients that use the same locks.

use std::time::Duration;

use leasehold_conformance::stalls::{Stalls, measure};
use leasehold_core::backend::{Attempt, Claim, Lease, LockBackend, Release};
use leasehold_core::retry::Retry;
use leasehold_core::{
    Description, ErrorKind, LeaseState, LockClient, LockGuard, LockKey, LockOptions, LossReason,
    RenewalMode, TryLockError,
};
use leasehold_testbed::{Redis, patiently};
use tokio::time::{Instant, timeout};

use super::connect;
use super::steps::scripts_run;
use crate::{Backend, Config, HEARS_OF_FLUSHES, READS_OF_A_BATCH, native};

const LONG: Duration = Duration::from_secs(60);
const SOON: Duration = Duration::from_secs(5);

async fn client(redis: &Redis) -> LockClient<Backend> {
    let options = LockOptions::new().ttl(LONG).without_description();
    let backend = connect(&redis.url()).await.unwrap();
    LockClient::builder(backend).options(options).build().unwrap()
}

async fn lock(client: &LockClient<Backend>, name: &str) -> LockGuard {
    client.mutex(name).unwrap().lock().await.unwrap()
}

/// Returns a retry policy whose delay is longer than the test.
fn told() -> Retry {
    Retry::unlimited().every(LONG)
}

#[tokio::test]
async fn a_lock_is_the_plain_string_that_set_nx_px_makes() {
    let redis = Redis::start().await;
    let client = client(&redis).await;
    let description = Description::new("web-1/42 nightly").unwrap();
    let bare = lock(&client, "bare").await;
    let options = client.options().description(description);
    let described = client.mutex("described").unwrap().with_options(options).unwrap();
    let described = described.lock().await.unwrap();

    assert_eq!(redis.command(&["TYPE", "lock:bare"]).await, "+string");
    let value = redis.command(&["GET", "lock:bare"]).await;
    assert!(!value.split_once("\r\n").unwrap().1.contains(' '), "{value}");
    let value = redis.command(&["GET", "lock:described"]).await;
    assert_eq!(value.split_once(' ').unwrap().1, "web-1/42 nightly");
    let remaining = redis.command(&["PTTL", "lock:bare"]).await;
    let remaining: u64 = remaining.trim_start_matches(':').parse().unwrap();
    assert!(remaining > 59_000 && remaining <= 60_000);
    bare.release().await.unwrap();
    described.release().await.unwrap();
}

#[tokio::test]
async fn a_client_that_does_set_nx_px_and_compare_and_delete_shares_our_locks() {
    const COMPARE_AND_DELETE: &str = "if redis.call('get', KEYS[1]) == ARGV[1] then return redis.call('del', KEYS[1]) end return 0";
    let redis = Redis::start().await;
    let client = client(&redis).await;
    let set = ["SET", "lock:job", "theirs", "NX", "PX", "60000"];
    let delete = ["EVAL", COMPARE_AND_DELETE, "1", "lock:job", "theirs"];

    // A lock of Leasehold excludes the plain client.
    let guard = lock(&client, "job").await;
    assert_eq!(redis.command(&set).await, "$-1");
    assert_eq!(redis.command(&delete).await, ":0");
    assert!(guard.is_held());
    guard.release().await.unwrap();

    // A lock of the plain client excludes Leasehold, and its deletion wakes the waiter.
    assert_eq!(redis.command(&set).await, "+OK");
    let mutex = client.mutex("job").unwrap();
    assert!(matches!(mutex.try_lock().await, Err(TryLockError::Busy(_))));
    assert!(mutex.is_locked().await.unwrap());
    let patient = mutex.with_options(client.options().retry(told())).unwrap();
    let waiting = tokio::spawn(async move { patient.lock().await.unwrap() });
    tokio::time::sleep(Duration::from_millis(50)).await;
    assert!(!waiting.is_finished());
    assert_eq!(redis.command(&delete).await, ":1");
    let guard = timeout(SOON, waiting).await.expect("their DEL wakes us").unwrap();
    guard.release().await.unwrap();
}

#[tokio::test]
async fn a_foreign_lock_without_a_ttl_is_waited_for_too() {
    let redis = Redis::start().await;
    let client = client(&redis).await;
    redis.command(&["SET", "lock:job", "for ever"]).await;
    let mutex = client.mutex("job").unwrap().with_options(client.options().retry(told())).unwrap();

    let waiting = tokio::spawn(async move { mutex.lock().await.unwrap() });
    tokio::time::sleep(Duration::from_millis(50)).await;
    redis.command(&["DEL", "lock:job"]).await;

    timeout(SOON, waiting).await.expect("the DEL wakes us").unwrap().release().await.unwrap();
}

#[tokio::test]
async fn expiry_wakes_a_waiter() {
    measure(async || {
        let redis = Redis::start().await;
        let client = client(&redis).await;
        let mutex =
            client.mutex("job").unwrap().with_options(client.options().retry(told())).unwrap();

        let (stalls, start) = (Stalls::watch(), Instant::now());
        redis.command(&["SET", "lock:job", "theirs", "PX", "300"]).await;
        let guard = mutex.lock().await.unwrap();

        let waited = start.elapsed();
        assert!(waited >= Duration::from_millis(290), "{waited:?}");
        stalls.in_time("it is woken", waited, Duration::from_millis(550))?;
        guard.release().await.unwrap();
        Ok(())
    })
    .await;
}

#[tokio::test]
async fn a_holder_learns_at_once_that_its_key_was_overwritten_or_deleted() {
    let redis = Redis::start().await;
    let client = client(&redis).await;
    let spoil = [
        (vec!["SET", "lock:job", "theirs"], LossReason::Taken),
        (vec!["DEL", "lock:job"], LossReason::Vanished),
        (vec!["FLUSHALL"], LossReason::Vanished),
    ];
    let spoil = &spoil[..if HEARS_OF_FLUSHES { 3 } else { 2 }];
    for renewed in [false, true] {
        for (command, reason) in spoil {
            redis.command(&["DEL", "lock:job"]).await;
            let guard = lock(&client, "job").await;
            if renewed {
                guard.extend(LONG).await.unwrap();
            }

            redis.command(command).await;

            let lost = timeout(SOON, guard.lost()).await;
            assert_eq!(lost.unwrap_or_else(|_| panic!("{command:?} is not told")), Some(*reason));
            drop(guard);
        }
    }
}

#[tokio::test]
async fn tokens_grow_over_a_flush_and_over_a_clock_that_went_back() {
    let redis = Redis::start().await;
    let client = client(&redis).await;
    let guard = lock(&client, "job").await;
    let mut last = guard.token().number();
    guard.release().await.unwrap();

    // If the counter is lost, tokens continue from the clock.
    redis.command(&["FLUSHALL"]).await;
    let guard = lock(&client, "job").await;
    assert!(guard.token().number() > last);
    guard.release().await.unwrap();

    // The counter is ahead of the clock, as if the clock had gone back by a century.
    let fence = fence_of(&redis).await;
    last = 4_900_000_000_000_000;
    redis.command(&["SET", &fence, &last.to_string()]).await;
    for _ in 0..3 {
        let guard = lock(&client, "job").await;
        assert_eq!(guard.token().number(), last + 1);
        last += 1;
        guard.release().await.unwrap();
    }
}

#[tokio::test]
async fn tokens_are_exact_up_to_2_to_the_53_and_end_there() {
    let redis = Redis::start().await;
    let client = client(&redis).await;
    lock(&client, "job").await.release().await.unwrap();
    let fence = fence_of(&redis).await;
    redis.command(&["SET", &fence, "9007199254740989"]).await;

    for expected in [9_007_199_254_740_990, 9_007_199_254_740_991] {
        let guard = lock(&client, "job").await;
        assert_eq!(guard.token().number(), expected);
        guard.release().await.unwrap();
    }

    let error = client.mutex("job").unwrap().lock().await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unexpected);
    assert!(error.to_string().contains("no fencing token is left"), "{error}");
    assert_eq!(redis.command(&["EXISTS", "lock:job"]).await, ":0", "a lock without a token");
}

async fn fence_of(redis: &Redis) -> String {
    let keys = redis.command(&["KEYS", "lock:~fence*"]).await;
    keys.lines().find(|line| line.starts_with("lock:~")).expect("there is a fence").to_owned()
}

#[tokio::test]
async fn something_else_under_our_keys_is_an_error_and_is_left_alone() {
    let redis = Redis::start().await;
    let client = client(&redis).await;
    redis.command(&["LPUSH", "lock:list", "a", "b"]).await;
    let mutex = client.mutex("list").unwrap();

    for error in [
        mutex.lock().await.unwrap_err(),
        mutex.is_locked().await.unwrap_err(),
        client.admin().force_release("list", "test").await.unwrap_err(),
    ] {
        assert_eq!(error.kind(), ErrorKind::WrongType);
        assert!(error.to_string().contains("\"list\""), "{error}");
    }
    assert_eq!(redis.command(&["LLEN", "lock:list"]).await, ":2");

    // The list replaces a lock that the client holds.
    let guard = lock(&client, "job").await;
    redis.command(&["LPUSH", "list", "a"]).await;
    redis.command(&["RENAME", "list", "lock:job"]).await;
    assert_eq!(timeout(SOON, guard.lost()).await.unwrap(), Some(LossReason::Taken));
    drop(guard);
    assert_eq!(redis.command(&["LLEN", "lock:job"]).await, ":1");

    // The list replaces the token counter.
    let fence = fence_of(&redis).await;
    redis.command(&["DEL", &fence]).await;
    redis.command(&["LPUSH", &fence, "a"]).await;
    redis.command(&["DEL", "lock:job"]).await;
    let error = client.mutex("job").unwrap().lock().await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::WrongType);
    redis.command(&["SET", &fence, "a number"]).await;
    let error = client.mutex("job").unwrap().lock().await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::WrongType);
    assert_eq!(redis.command(&["EXISTS", "lock:job"]).await, ":0", "a lock without a token");
}

#[tokio::test]
async fn prefixes_are_namespaces() {
    let redis = Redis::start().await;
    let connect = async |prefix: &str| {
        let config = Config::from_url(&patiently(&redis.url())).unwrap().prefix(prefix).unwrap();
        LockClient::new(Backend::connect_with(config).await.unwrap())
    };
    let (one, other) = (connect("one:").await, connect("other:").await);

    let ours = one.mutex("job").unwrap().lock().await.unwrap();
    let theirs = other.mutex("job").unwrap().try_lock().await.unwrap();

    let keys = redis.command(&["KEYS", "*"]).await;
    let mut keys: Vec<_> = keys.lines().filter(|line| line.contains(':')).collect();
    keys.sort_unstable();
    assert!(keys.iter().all(|key| key.starts_with("one:") || key.starts_with("other:")));
    assert!(keys.contains(&"one:job") && keys.contains(&"other:job"));
    ours.release().await.unwrap();
    theirs.release().await.unwrap();
}

#[tokio::test]
async fn nothing_is_left_behind_per_key() {
    let redis = Redis::start().await;
    let client = client(&redis).await;
    for n in 0..2_000 {
        lock(&client, &format!("job/{n}")).await.release().await.unwrap();
    }

    let keys = redis.command(&["KEYS", "*"]).await;
    let left: Vec<_> = keys.lines().filter(|line| line.contains(':')).collect();
    assert!(left.iter().all(|key| key.starts_with("lock:~fence")), "{left:?}");
    let channels = redis.command(&["PUBSUB", "CHANNELS"]).await;
    assert!(channels.starts_with("*1\r\n"), "{channels}: one for the connection");
}

#[tokio::test]
async fn each_operation_is_one_request_and_nothing_repeats_it() {
    let redis = Redis::start().await;
    let client = client(&redis).await;
    // The first request loads the scripts into the server.
    lock(&client, "warm").await.release().await.unwrap();
    let backend = client.backend();
    let leases: Vec<_> =
        (0..100).map(|n| Lease::new(&LockKey::new(format!("job/{n}")).unwrap(), LONG)).collect();
    backend.renew_all(&leases[..2]).await;
    redis.command(&["CONFIG", "RESETSTAT"]).await;

    for lease in &leases {
        let attempt = backend.acquire(&Claim::new(lease.clone())).await.unwrap();
        assert!(matches!(attempt, Attempt::Granted(_)));
    }
    assert_eq!(scripts_run(&redis).await, 100);

    let reads = network_reads(&redis).await;
    assert!(backend.renew_all(&leases).await.iter().all(Result::is_ok));
    assert_eq!(scripts_run(&redis).await, 101, "many are one request");
    let reads = network_reads(&redis).await - reads;
    // A batch may arrive in several parts, and the two requests for statistics are also counted.
    assert!(reads <= READS_OF_A_BATCH, "{reads} reads for one batch of renewals");

    for lease in &leases {
        assert_eq!(backend.release(lease).await.unwrap(), Release::Released);
    }
    assert_eq!(scripts_run(&redis).await, 201);
    assert_eq!(redis.calls(&["eval"]).await, 0, "a source was sent again");
}

async fn network_reads(redis: &Redis) -> u64 {
    let stats = redis.command(&["INFO", "stats"]).await;
    let reads = stats.lines().find_map(|line| line.strip_prefix("total_reads_processed:"));
    reads.unwrap().parse().unwrap()
}

#[tokio::test]
async fn scripts_that_the_server_forgot_are_sent_again_also_within_batches() {
    let redis = Redis::start().await;
    let client = client(&redis).await;
    let backend = client.backend();
    let leases: Vec<_> =
        (0..10).map(|n| Lease::new(&LockKey::new(format!("job/{n}")).unwrap(), LONG)).collect();
    for lease in &leases {
        redis.command(&["SCRIPT", "FLUSH"]).await;
        backend.acquire(&Claim::new(lease.clone())).await.unwrap();
    }

    redis.command(&["SCRIPT", "FLUSH"]).await;
    let renewals = backend.renew_all(&leases).await;
    assert!(renewals.iter().all(Result::is_ok), "{renewals:?}");

    for lease in &leases {
        redis.command(&["SCRIPT", "FLUSH"]).await;
        assert_eq!(backend.release(lease).await.unwrap(), Release::Released);
    }
}

#[tokio::test]
async fn one_bad_key_in_a_batch_leaves_its_neighbours_alone() {
    let redis = Redis::start().await;
    let client = client(&redis).await;
    let guards = [lock(&client, "a").await, lock(&client, "b").await, lock(&client, "c").await];
    redis.command(&["LPUSH", "list", "not a lock"]).await;
    redis.command(&["RENAME", "list", "lock:b"]).await;

    assert_eq!(timeout(SOON, guards[1].lost()).await.unwrap(), Some(LossReason::Taken));

    assert_eq!(guards[0].state(), LeaseState::Held);
    assert_eq!(guards[2].state(), LeaseState::Held);
    drop(guards);
}

#[tokio::test]
async fn locks_may_be_taken_through_any_address() {
    let redis = Redis::start().await;
    let socket = format!("unix://{}", redis.socket().display());
    let over_socket = LockClient::new(connect(&socket).await.unwrap());
    let theirs = native(&redis);
    let config = Config::from_client(theirs).unwrap();
    let from_client = Backend::connect_with(config).await.unwrap();
    let from_client = LockClient::new(from_client);
    let database = format!("{}/5", redis.url());
    let in_database = LockClient::new(connect(&database).await.unwrap());

    let guard = over_socket.mutex("job").unwrap().lock().await.unwrap();
    assert!(matches!(
        from_client.mutex("job").unwrap().try_lock().await,
        Err(TryLockError::Busy(_))
    ));
    let other = in_database.mutex("job").unwrap().try_lock().await.unwrap();
    other.release().await.unwrap();

    // Notifications arrive with each protocol.
    let unrenewed = LockOptions::new().renewal(RenewalMode::Off).retry(told());
    let mutex = from_client.mutex("job").unwrap().with_options(unrenewed).unwrap();
    let waiting = tokio::spawn(async move { mutex.lock().await.unwrap() });
    tokio::time::sleep(Duration::from_millis(50)).await;
    guard.release().await.unwrap();
    timeout(SOON, waiting).await.expect("it is told").unwrap().release().await.unwrap();
}
