//! A minimal lock on Redis, through the `redis` crate, without fencing, waiting or renewal.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use redis::aio::MultiplexedConnection;

use super::{Lock, Locker, TTL, native_connection};

/// Deletes a key if it has this value.
pub(super) const RELEASE: &str =
    "if redis.call('GET', KEYS[1]) == ARGV[1] then return redis.call('DEL', KEYS[1]) end return 0";

pub(super) struct RedisFloor {
    connection: MultiplexedConnection,
    release: Arc<str>,
}

impl RedisFloor {
    pub(super) async fn connect(url: &str) -> Self {
        let mut connection = native_connection(url).await;
        let mut load = redis::cmd("SCRIPT");
        load.arg("LOAD").arg(RELEASE);
        let hash: String = load.query_async(&mut connection).await.expect("the server is up");
        Self { connection, release: hash.into() }
    }
}

impl Locker for RedisFloor {
    type Lock = Key;

    fn lock(&self, key: &str) -> Key {
        Key {
            connection: self.connection.clone(),
            release: Arc::clone(&self.release),
            key: key.to_owned(),
            count: AtomicU64::new(0),
        }
    }
}

pub(super) struct Key {
    connection: MultiplexedConnection,
    release: Arc<str>,
    key: String,
    count: AtomicU64,
}

impl Lock for Key {
    async fn turn<W>(&self, work: W) -> W::Output
    where
        W: Future<Output: Send + 'static> + Send + 'static,
    {
        let mut connection = self.connection.clone();
        let value = format!("holder {}", self.count.fetch_add(1, Ordering::Relaxed));
        let mut set = redis::cmd("SET");
        set.arg(&self.key).arg(&value).arg("NX").arg("PX").arg(TTL.as_millis() as u64);
        let locked: Option<String> = set.query_async(&mut connection).await.expect("it is up");
        assert!(locked.is_some(), "the key is free");
        let done = work.await;
        let mut delete = redis::cmd("EVALSHA");
        delete.arg(&*self.release).arg(1).arg(&self.key).arg(&value);
        let deleted: u32 = delete.query_async(&mut connection).await.expect("it is up");
        assert_eq!(deleted, 1, "the key is still locked");
        done
    }
}
