//! A plain client of Redlock, and ours: both have the same keys.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use futures_util::future::join_all;
use leasehold_redis::redis::aio::MultiplexedConnection;
use leasehold_redis::redis::{self, RedisResult};
use leasehold_testbed::{RedisOptions, until};
use tokio::time::sleep;

use super::servers::Servers;

const TTL: Duration = Duration::from_secs(5);

/// The page of the algorithm has this script.
const RELEASE: &str = r#"if redis.call("get",KEYS[1]) == ARGV[1] then return redis.call("del",KEYS[1]) else return 0 end"#;

/// Redlock as its page has it.
struct Redlock(Vec<MultiplexedConnection>);

impl Redlock {
    async fn connect(servers: &Servers) -> Self {
        let connections = servers.0.iter().map(async |redis| {
            let client = redis::Client::open(redis.url()).unwrap();
            client.get_multiplexed_async_connection().await.unwrap()
        });
        Self(join_all(connections).await)
    }

    /// Asks all servers once; releases on all if no majority has granted in time.
    async fn try_lock(&self, key: &str, value: &str) -> bool {
        let start = Instant::now();
        let votes = self.0.iter().map(async |connection| {
            let mut set = redis::cmd("SET");
            set.arg(key).arg(value).arg("NX").arg("PX").arg(TTL.as_millis() as u64);
            let reply: RedisResult<Option<String>> = set.query_async(&mut connection.clone()).await;
            reply.is_ok_and(|reply| reply.is_some())
        });
        let votes = join_all(votes).await.into_iter().filter(|vote| *vote).count();
        let has_won = votes > self.0.len() / 2 && start.elapsed() < TTL / 2;
        if !has_won {
            self.unlock(key, value).await;
        }
        has_won
    }

    async fn unlock(&self, key: &str, value: &str) {
        join_all(self.0.iter().map(async |connection| {
            let mut release = redis::cmd("EVAL");
            release.arg(RELEASE).arg(1).arg(key).arg(value);
            let _: RedisResult<u32> = release.query_async(&mut connection.clone()).await;
        }))
        .await;
    }
}

/// Counts the holders inside, and the visits of each client.
#[derive(Default)]
struct Room {
    inside: AtomicUsize,
    theirs: AtomicUsize,
    ours: AtomicUsize,
}

impl Room {
    async fn stay(&self, count: &AtomicUsize) {
        assert_eq!(self.inside.fetch_add(1, Ordering::SeqCst), 0, "two hold the key");
        sleep(Duration::from_millis(1)).await;
        self.inside.fetch_sub(1, Ordering::SeqCst);
        count.fetch_add(1, Ordering::SeqCst);
    }
}

#[tokio::test]
async fn a_plain_client_and_ours_never_hold_a_key_at_once() {
    let mut servers = Servers::start(5, &RedisOptions::new()).await;
    let (room, stop) = (Arc::new(Room::default()), Arc::new(AtomicBool::new(false)));
    let plain = Redlock::connect(&servers).await;
    let client = servers.client(TTL).await;

    let theirs = tokio::spawn({
        let (room, stop) = (Arc::clone(&room), Arc::clone(&stop));
        async move {
            for count in 0.. {
                let value = format!("theirs {count}");
                if plain.try_lock("lock:job", &value).await {
                    room.stay(&room.theirs).await;
                    plain.unlock("lock:job", &value).await;
                }
                if stop.load(Ordering::Relaxed) {
                    return;
                }
                sleep(Duration::from_micros(fastrand::u64(..5_000))).await;
            }
        }
    });
    let ours = tokio::spawn({
        let (room, stop) = (Arc::clone(&room), Arc::clone(&stop));
        async move {
            let mutex = client.mutex("job").unwrap();
            while !stop.load(Ordering::Relaxed) {
                let guard = mutex.lock().await.unwrap();
                room.stay(&room.ours).await;
                if let Err(error) = guard.release().await {
                    assert!(error.is_retryable(), "{error}");
                }
                sleep(Duration::from_micros(fastrand::u64(..5_000))).await;
            }
        }
    });

    for is_one_dead in [false, true] {
        if is_one_dead {
            servers.0[2].kill();
        }
        let before = [&room.theirs, &room.ours].map(|count| count.load(Ordering::SeqCst));
        until("both have held it often", async || {
            let is_over = theirs.is_finished() || ours.is_finished();
            let now = [&room.theirs, &room.ours].map(|count| count.load(Ordering::SeqCst));
            is_over || now.iter().zip(before).all(|(now, before)| *now >= before + 50)
        })
        .await;
    }
    stop.store(true, Ordering::Relaxed);
    theirs.await.unwrap();
    ours.await.unwrap();
}
