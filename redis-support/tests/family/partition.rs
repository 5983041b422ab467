//! A client and its primary on one side of a partition, everything else on the other, and no connection is told.
//!
//! The page of promises bounds how long two holders believe.

use std::time::Duration;

use leasehold_conformance::stalls::{Measured, Stalls, measure};
use leasehold_core::{Error, ErrorKind, LockClient, LockGuard, LockOptions};
use leasehold_testbed::{
    ClusterOptions, FaultProxy, NetworkFault, RedisCluster, RedisSentinel, SentinelOptions, until,
};
use tokio::time::{Instant, timeout};

use super::connect_by_default;
use super::steps::lock;
use crate::Backend;

const TTL: Duration = Duration::from_secs(4);
const LONG: Duration = Duration::from_secs(60);

/// How long a server is believed after its last confirmation, as the page of promises says.
const BELIEVED_FOR: Duration = Duration::from_secs(2);

/// For a machine that does not stall to run a task that is due.
const LATE: Duration = Duration::from_millis(250);

async fn client(url: &str) -> LockClient<Backend> {
    client_with(url, TTL).await
}

async fn client_with(url: &str, ttl: Duration) -> LockClient<Backend> {
    let backend = connect_by_default(url).await;
    let options = LockOptions::new().ttl(ttl).outage_wait(LONG);
    LockClient::builder(backend).options(options).build().unwrap()
}

/// Proxies of one client's own, in front of other servers.
struct Ways(Vec<FaultProxy>);

impl Ways {
    async fn to(addresses: Vec<String>) -> Self {
        let mut proxies = Vec::new();
        for address in addresses {
            proxies.push(FaultProxy::start(address).await);
        }
        Self(proxies)
    }

    fn addresses(&self) -> String {
        self.0.iter().map(FaultProxy::address).collect::<Vec<_>>().join(",")
    }

    fn cut(&self) {
        self.0.iter().for_each(|proxy| proxy.set_network_fault(NetworkFault::BlackHole));
    }
}

/// Waits until the lock is granted on the other side, and its first holder has stopped to believe.
async fn assert_bounded(
    stalls: &Stalls,
    first: &LockGuard,
    other: &LockClient<Backend>,
    cut_at: Instant,
) -> Measured {
    let bound = BELIEVED_FOR + TTL + LATE;
    let lost = async {
        first.lost().await;
        let lost_at = Instant::now();
        stalls.in_time("the first holder believed", lost_at - cut_at, bound).map(|()| lost_at)
    };
    let granted = async {
        let guard = lock(other, "job").await;
        (Instant::now(), guard)
    };

    let lost_at = timeout(bound * 2, lost);
    let (lost_at, (granted_at, second)) = tokio::join!(lost_at, granted);

    let lost_at = lost_at.expect("the first holder believes for ever")?;
    println!(
        "the first holder believed for {:?}, the other got the lock after {:?}: overlap {:?}",
        lost_at - cut_at,
        granted_at - cut_at,
        lost_at.saturating_duration_since(granted_at)
    );
    assert!(second.token() > first.token());
    Ok(())
}

async fn assert_disbelieved(client: &LockClient<Backend>) {
    let error = Error::from(client.mutex("job").unwrap().try_lock().await.unwrap_err());
    assert_eq!(error.kind(), ErrorKind::Unavailable, "{error}");
}

mod with_sentinel {
    use super::*;

    /// A client that reaches the sentinels through proxies of its own.
    async fn apart(redis: &RedisSentinel, ttl: Duration) -> (Ways, LockClient<Backend>) {
        let sentinels = (0..redis.sentinels()).map(|i| redis.sentinel_address(i)).collect();
        let ways = Ways::to(sentinels).await;
        let url = format!("redis-sentinel://{}/mymaster", ways.addresses());
        let client = client_with(&url, ttl).await;
        (ways, client)
    }

    #[tokio::test]
    async fn an_isolated_primary_is_soon_disbelieved() {
        measure(async || {
            let redis = SentinelOptions::new().proxied().start().await;
            let ((ways, inside), outside) = (apart(&redis, TTL).await, client(&redis.url()).await);
            let stalls = Stalls::watch();
            let first = lock(&inside, "job").await;

            let cut_at = Instant::now();
            redis.isolate_with_clients(0);
            ways.cut();

            assert_bounded(&stalls, &first, &outside, cut_at).await?;
            assert_disbelieved(&inside).await;
            Ok(())
        })
        .await;
    }

    #[tokio::test]
    async fn a_partition_that_heals_costs_no_lock() {
        let redis = SentinelOptions::new().proxied().down_after(LONG).start().await;
        let (ways, inside) = apart(&redis, LONG / 2).await;
        let guard = lock(&inside, "job").await;

        ways.cut();
        let mutex = inside.mutex("new").unwrap();
        until("nothing is granted", async || mutex.try_lock().await.is_err()).await;
        ways.0.iter().for_each(|proxy| proxy.set_network_fault(NetworkFault::None));

        until("locks are granted", async || mutex.try_lock().await.is_ok()).await;
        guard.extend(LONG).await.unwrap();
        guard.release().await.unwrap();
    }
}

mod in_a_cluster {
    use super::*;

    const KEY: &str = "lock:job";

    /// No node suspects another before the test is over.
    async fn cluster() -> RedisCluster {
        ClusterOptions::new().proxied().node_timeout(LONG).start().await
    }

    /// Has the replica of the key's owner take over without asking that, and waits until all other nodes have heard of it.
    async fn replace(redis: &RedisCluster, owner: usize) {
        let replica = redis.replica_of(owner).await;
        redis.force_failover(replica).await;
        for node in (0..redis.nodes()).filter(|node| *node != owner) {
            until("the node knows the new owner", async || {
                let nodes = redis.command(node, &["CLUSTER", "NODES"]).await;
                let mut lines = nodes.lines();
                let address = redis.node_address(replica);
                lines.any(|line| line.contains(&address) && line.contains("master"))
            })
            .await;
        }
    }

    #[tokio::test]
    async fn a_replaced_owner_is_soon_disbelieved() {
        measure(async || {
            let redis = cluster().await;
            let stalls = Stalls::watch();
            let inside = client(&redis.url()).await;
            let owner = redis.owner_of(KEY).await;

            // The replica never hears of this lock.
            redis.isolate_with_clients(owner);
            let first = lock(&inside, "job").await;
            replace(&redis, owner).await;
            let replaced_at = Instant::now();

            let outside = client(&redis.url()).await;
            assert_bounded(&stalls, &first, &outside, replaced_at).await?;
            Ok(())
        })
        .await;
    }

    #[tokio::test]
    async fn a_replaced_owner_convinces_no_new_client() {
        let redis = cluster().await;
        let owner = redis.owner_of(KEY).await;
        redis.isolate_with_clients(owner);
        replace(&redis, owner).await;

        for pair in 0..8 {
            let mut guards = Vec::new();
            for _ in 0..2 {
                let client = client(&redis.url()).await;
                let attempt = client.mutex("job").unwrap().try_lock().await;
                guards.extend(attempt);
            }
            assert!(guards.len() <= 1, "two of pair {pair} hold the lock");
            for guard in guards {
                guard.release().await.unwrap();
            }
        }
    }

    #[tokio::test]
    async fn a_client_that_reaches_one_owner_alone_disbelieves_it() {
        measure(async || {
            let redis = cluster().await;
            let owner = redis.owner_of(KEY).await;
            let inside = client(&redis.url()).await;
            let first = lock(&inside, "job").await;

            (0..redis.nodes()).filter(|node| *node != owner).for_each(|node| redis.isolate(node));

            let bound = BELIEVED_FOR + TTL + LATE;
            Stalls::watch().promptly("the loss", bound, first.lost()).await?;
            assert_disbelieved(&inside).await;
            Ok(())
        })
        .await;
    }
}
