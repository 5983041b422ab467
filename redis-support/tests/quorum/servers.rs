//! Starts the servers of a quorum.

use std::time::Duration;

use futures_util::future::join_all;
use leasehold_core::backend::{Attempt, Claim, Grant, Lease, LockBackend};
use leasehold_core::{Error, LockClient, LockKey, LockOptions};
use leasehold_quorum::Quorum;
use leasehold_redis::{RedisBackend, RedisConfig};
use leasehold_testbed::{Redis, RedisOptions, until};

/// Servers without a proxy in front of them.
pub(crate) struct Servers(pub(crate) Vec<Redis>);

impl Servers {
    pub(crate) async fn start(count: usize, options: &RedisOptions) -> Self {
        Self(join_all((0..count).map(|_| options.clone().start())).await)
    }

    /// Returns a new quorum. It waits for members for as long as the TTL of a lease allows.
    pub(crate) fn quorum(&self, max_ttl: Duration) -> Quorum<RedisBackend> {
        let members = self.0.iter().map(|redis| (redis.address(), member(&redis.url())));
        Quorum::builder(members).max_ttl(max_ttl).member_timeout(max_ttl).build().unwrap()
    }

    /// Establishes the quorum, and returns a client whose leases have this TTL.
    pub(crate) async fn client(&self, ttl: Duration) -> LockClient<Quorum<RedisBackend>> {
        let quorum = self.quorum(ttl);
        quorum.establish().await.unwrap();
        LockClient::builder(quorum).options(LockOptions::new().ttl(ttl)).build().unwrap()
    }

    /// Waits until the current process of a server is a member of the quorum.
    pub(crate) async fn has_vote(&self, number: usize) {
        let redis = &self.0[number];
        until(format!("server {number} has a vote"), async || {
            let run = redis.command(&["HGET", "lock:~member", "run"]).await;
            let charter = redis.command(&["HEXISTS", "lock:~member", "charter"]).await;
            let about = redis.command(&["INFO", "server"]).await;
            let run = run.split_once("\r\n").map(|(_, run)| format!("run_id:{run}\r\n"));
            charter == ":1" && run.is_some_and(|run| about.contains(&run))
        })
        .await;
    }

    /// Returns the value of a lock's key.
    pub(crate) async fn value(&self, number: usize, key: &str) -> String {
        self.0[number].command(&["GET", &format!("lock:{key}")]).await
    }
}

/// Returns a member, which may be down.
pub(crate) fn member(url: &str) -> RedisBackend {
    RedisBackend::connect_lazily(RedisConfig::from_url(url).unwrap())
}

pub(crate) fn lease(key: &str, ttl: Duration) -> Lease {
    Lease::new(&LockKey::new(key).unwrap(), ttl)
}

/// Tries once to acquire the lease.
pub(crate) async fn grant(
    quorum: &impl LockBackend,
    lease: &Lease,
) -> Result<Option<Grant>, Error> {
    match quorum.acquire(&Claim::new(lease.clone())).await? {
        Attempt::Granted(grant) => Ok(Some(grant)),
        Attempt::Held(_) => Ok(None),
    }
}
