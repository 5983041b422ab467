//! The `rslock` crate.

use std::time::Duration;

use rslock::LockManager;

use super::{Lock, Locker, TTL, native_redis};

pub(super) struct Rslock(LockManager);

impl Rslock {
    /// The defaults: a waiter tries again after up to 200 ms.
    pub(super) fn new(url: &str) -> Self {
        Self(LockManager::from_clients(vec![native_redis(url)]))
    }

    /// A waiter tries again after up to 5 ms.
    pub(super) fn eager(url: &str) -> Self {
        let Self(mut manager) = Self::new(url);
        // After so many, it begins anew.
        manager.set_retry(1_000, Duration::from_millis(5));
        Self(manager)
    }
}

impl Locker for Rslock {
    type Lock = Key;

    fn lock(&self, key: &str) -> Key {
        Key { manager: self.0.clone(), key: key.to_owned() }
    }
}

pub(super) struct Key {
    manager: LockManager,
    key: String,
}

impl Lock for Key {
    async fn turn<W>(&self, work: W) -> W::Output
    where
        W: Future<Output: Send + 'static> + Send + 'static,
    {
        let locked = self.manager.acquire(self.key.as_str(), TTL).await;
        let guard = locked.expect("it tries until it succeeds");
        let done = work.await;
        guard.release().await;
        done
    }
}
