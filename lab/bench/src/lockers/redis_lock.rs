//! Locks of one key, through the `redis-lock` crate. Locks of several keys make two connections per lock.

use std::sync::Arc;
use std::time::Duration;

use redis_lock::{DEFAULT_RETRY_DELAY, LockAcrossOptions, lock_across};
use redis_of_redis_lock::Client;
use redis_of_redis_lock::aio::MultiplexedConnection;
use tokio::sync::Mutex;

use super::{Lock, Locker, TTL};

/// Longer than any round.
const PATIENCE: Duration = Duration::from_secs(3_600);

pub(super) struct RedisLock(MultiplexedConnection);

impl RedisLock {
    pub(super) async fn connect(url: &str) -> Self {
        let client = Client::open(url).expect("it is a server's URL");
        Self(client.get_multiplexed_async_connection().await.expect("the server is up"))
    }
}

impl Locker for RedisLock {
    type Lock = Key;

    fn lock(&self, key: &str) -> Key {
        // All share one connection, but not the mutex around it.
        Key { connection: Arc::new(Mutex::new(self.0.clone())), key: key.to_owned() }
    }
}

pub(super) struct Key {
    connection: Arc<Mutex<MultiplexedConnection>>,
    key: String,
}

impl Lock for Key {
    async fn turn<W>(&self, work: W) -> W::Output
    where
        W: Future<Output: Send + 'static> + Send + 'static,
    {
        let connections = [Arc::clone(&self.connection)];
        let options =
            LockAcrossOptions { ttl: TTL, retry: DEFAULT_RETRY_DELAY, duration: PATIENCE };
        lock_across(&connections, &self.key, work, options).await.expect("the server is up")
    }
}
