//! The crate `distributed-lock-redis`. It does not wait for a lock that is held, whatever it is asked.

use distributed_lock_core::traits::{DistributedLock as _, LockHandle as _, LockProvider as _};
use distributed_lock_redis::{RedisDistributedLock, RedisLockProvider};

use super::{Lock, Locker};

pub(super) struct DistributedLock(RedisLockProvider);

impl DistributedLock {
    /// As its documentation does it; its TTL is 30 s, too.
    pub(super) async fn connect(url: &str) -> Self {
        Self(RedisLockProvider::new(url).await.expect("the server is up"))
    }
}

impl Locker for DistributedLock {
    type Lock = RedisDistributedLock;

    fn lock(&self, key: &str) -> RedisDistributedLock {
        self.0.create_lock(key)
    }
}

impl Lock for RedisDistributedLock {
    async fn turn<W>(&self, work: W) -> W::Output
    where
        W: Future<Output: Send + 'static> + Send + 'static,
    {
        let locked = self.try_acquire().await.expect("the server is up");
        let handle = locked.expect("nobody else locks it");
        let done = work.await;
        handle.release().await.expect("the server is up");
        done
    }
}
