//! The `async-redis-lock` crate.

use async_redis_lock::{Locker as Native, Options};

use super::{Lock, Locker, TTL, native_redis};

pub(crate) struct AsyncRedisLock(Native);

impl AsyncRedisLock {
    pub(crate) async fn connect(url: &str) -> Self {
        let connecting = Native::from_client(native_redis(url));
        Self(connecting.await.expect("the server is up"))
    }

    /// Our TTL and our pace of renewal, and no end of waiting; else the defaults: a waiter tries again every 100 ms.
    pub(crate) fn options() -> Options {
        Options::new().timeout(None).ttl(TTL).extend(TTL / 3)
    }
}

impl Locker for AsyncRedisLock {
    type Lock = Key;

    fn lock(&self, key: &str) -> Key {
        Key { locker: self.0.clone(), options: Self::options(), key: key.to_owned() }
    }
}

pub(crate) struct Key {
    locker: Native,
    options: Options,
    key: String,
}

impl Lock for Key {
    async fn turn<W>(&self, work: W) -> W::Output
    where
        W: Future<Output: Send + 'static> + Send + 'static,
    {
        let locked = self.locker.acquire_with_options(&self.options, self.key.as_str()).await;
        let guard = locked.expect("the server is up");
        let done = work.await;
        guard.release().await.expect("the server is up");
        done
    }
}
