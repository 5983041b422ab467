//! Tests of Sentinel, whose servers report the address of the primary.

use std::time::Duration;

use leasehold_core::backend::{Claim, Lease, LockBackend};
use leasehold_core::{Error, ErrorKind, LockClient, LockKey, LockOptions};
use leasehold_testbed::{Redis, RedisSentinel, SentinelOptions, until};
use tokio::time::Instant;

use super::connect;
use super::steps::renewed;
use crate::Backend;

const LONG: Duration = Duration::from_secs(60);
const SECRET: &str = "S3CR3T-CANARY";

async fn locks(url: &str) {
    let client = LockClient::new(connect(url).await.unwrap());
    client.mutex("job").unwrap().lock().await.unwrap().release().await.unwrap();
}

#[tokio::test]
async fn a_majority_is_enough_and_one_names_the_others() {
    let mut redis = RedisSentinel::start().await;
    let one = format!("redis-sentinel://{}/mymaster", redis.sentinel_address(1));
    locks(&one).await;

    redis.kill_sentinel(0);
    locks(&redis.url()).await;
    locks(&one).await;

    redis.pause_sentinel(2);
    for url in [redis.url(), one] {
        let error = Backend::connect(&url).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Unavailable, "{error}");
    }
    redis.resume_sentinel(2);
}

#[tokio::test]
async fn one_that_hangs_costs_nothing() {
    let redis = RedisSentinel::start().await;
    redis.pause_sentinel(0);

    let start = Instant::now();
    locks(&format!("{}?timeout-ms=5000", redis.url())).await;

    assert!(start.elapsed() < Duration::from_secs(5), "{:?}", start.elapsed());
    redis.resume_sentinel(0);
}

#[tokio::test]
async fn that_are_gone_leave_the_server_unconfirmed_until_they_are_back() {
    let mut redis = RedisSentinel::start().await;
    let backend = connect(&redis.url()).await.unwrap();
    let options = LockOptions::new().ttl(Duration::from_secs(12));
    let client = LockClient::builder(backend).options(options).build().unwrap();
    let guard = client.mutex("job").unwrap().lock().await.unwrap();

    (0..3).for_each(|n| redis.kill_sentinel(n));
    let mutex = client.mutex("other").unwrap();
    until("locks are refused", async || {
        let refused = mutex.try_lock().await.map(drop).err();
        // The first calls may still succeed.
        refused.is_some_and(|error| Error::from(error).kind() == ErrorKind::Unavailable)
    })
    .await;

    for n in 0..3 {
        redis.restart_sentinel(n).await;
    }
    renewed(&guard).await;
    guard.release().await.unwrap();
}

#[tokio::test]
async fn that_do_not_know_the_name_say_so() {
    let redis = RedisSentinel::start().await;

    let url = redis.url().replace("mymaster", "othermaster");
    let error = connect(&url).await.unwrap_err();

    assert_eq!(error.kind(), ErrorKind::Invalid);
    assert!(error.to_string().contains("othermaster"), "{error}");
}

#[tokio::test]
async fn that_are_none_say_so() {
    let redis = Redis::start().await;

    let url = format!("redis-sentinel://{}/mymaster", redis.address());
    let error = connect(&url).await.unwrap_err();

    assert_eq!(error.kind(), ErrorKind::Unsupported, "{error}");
}

#[tokio::test]
async fn have_a_password_of_their_own() {
    let redis = SentinelOptions::new().sentinel_password(SECRET).start().await;

    locks(&format!("{}?sentinel-pass={SECRET}", redis.url())).await;
    for url in [redis.url(), format!("{}?sentinel-pass=wrong", redis.url())] {
        let error = connect(&url).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Denied, "{error}");
    }
}

#[tokio::test]
async fn that_tell_nothing_unasked_are_asked_again_in_time() {
    let redis = RedisSentinel::start().await;
    let backend = connect(&format!("{}?protocol=resp2", redis.url())).await.unwrap();
    let claim = |name: &str| Claim::new(Lease::new(&LockKey::new(name).unwrap(), LONG));
    backend.acquire(&claim("before")).await.unwrap();
    let old = redis.primary().await;

    redis.failover().await;

    until("the new primary is asked", async || {
        let name = format!("job-{}", fastrand::u32(..));
        drop(backend.acquire(&claim(&name)).await);
        let key = format!("lock:{name}");
        redis.command(1 - old, &["EXISTS", &key]).await == ":1"
    })
    .await;
}
