//! The classic annotation of Java, `@RedisLock(value, keepMills, action, sleepMills, retryTimes)`, on a real server.

use std::time::{Duration, Instant};

use leasehold::{LockClient, connect, locked};
use leasehold_testbed::{Redis, patiently};

use super::AppError;

struct Shop {
    redis: Redis,
    locks: LockClient,
}

impl Shop {
    /// `keepMills = 30000, action = CONTINUE, sleepMills = 200, retryTimes = 5`
    #[locked(key = "order:{id}", client = self.locks, ttl = "30s", retry = 5, every = "200ms", on_busy = skip)]
    async fn settle(&self, id: u64) -> Result<Option<u64>, AppError> {
        let left = self.redis.command(&["PTTL", &format!("lock:order:{id}")]).await;
        Ok(Some(left.trim_start_matches(':').parse()?))
    }

    /// `keepMills = 30000, action = GIVEUP`
    #[locked(key = "order:{id}", client = self.locks, ttl = "30s", on_busy = skip)]
    async fn settle_or_give_up(&self, id: u64) -> Result<Option<()>, AppError> {
        Ok(Some(()))
    }
}

#[tokio::test]
async fn the_classic_annotation_works_as_it_does_in_java() {
    let redis = Redis::start().await;
    let url = patiently(&redis.url());
    let (locks, other) = (connect(&url).await.unwrap(), connect(&url).await.unwrap());
    let shop = Shop { redis, locks };

    let left = shop.settle(42).await.unwrap().expect("it is free");
    assert!((1..=30_000).contains(&left), "{left} ms of the lease are left");
    assert_eq!(shop.redis.command(&["GET", "lock:order:42"]).await, "$-1");

    let held = other.mutex("order:42").unwrap().lock().await.unwrap();
    assert_eq!(shop.settle_or_give_up(42).await.unwrap(), None);
    assert_eq!(shop.settle_or_give_up(43).await.unwrap(), Some(()));
    let start = Instant::now();
    assert_eq!(shop.settle(42).await.unwrap(), None);
    assert!(start.elapsed() >= Duration::from_secs(1), "five pauses of 200 ms");

    let (done, released) = tokio::join!(shop.settle(42), held.release());
    released.unwrap();
    assert!(done.unwrap().is_some());
}
