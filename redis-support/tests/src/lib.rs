//! Harnesses of the conformance suite for the Redis family: a single server, Sentinel and Cluster,
//! behind proxies that inject faults. Also contains the [permissions](rights) that the
//! documentation lists.
//!
//! Each driver passes the tests of this crate. For example, `cargo test -p leasehold-redis-tests
//! --test redis` runs the tests with the `redis` crate. Add a test for all drivers as a function in
//! `family/`.

pub mod rights;

use std::time::Duration;

use async_trait::async_trait;
use futures_util::future::join_all;
use leasehold_conformance::{FaultKind, Need, Subject, Time};
use leasehold_core::backend::Fingerprint;
use leasehold_core::{Description, ErrorKind, Holder, LockKey};
use leasehold_redis_support::{Backend, Call, Config, Driver, Layout};
use leasehold_testbed::{
    ClusterOptions, FaultProxy, NetworkFault, Pace, Redis, RedisCluster, RedisOptions,
    RedisSentinel, SentinelOptions, until_some,
};
use tokio::sync::RwLock;

use rights::{DOCUMENTED, OF_CLUSTERS, OF_LISTS, OF_MEMBERS};

/// A cluster cannot acquire locks together, because they may be on different servers. A cluster
/// cannot be a member of a quorum, because a failover can lose grants.
pub const CLUSTER_LACKS: &[Need] = &[Need::Member, Need::Together];

/// Returns the ACL rule of the suite. The suite passes with only the documented permissions.
fn user(more_rights: &str) -> String {
    format!("user locker on >secret {DOCUMENTED} {OF_LISTS} {more_rights}")
}

/// Returns options for servers that accept only the suite's user.
fn nodes(more_rights: &str) -> RedisOptions {
    RedisOptions::new().acl("user default off").acl(user(more_rights))
}

fn as_user(url: &str) -> String {
    url.replace("://", "://locker:secret@")
}

/// Servers behind proxies.
#[async_trait]
pub trait Servers: Send + Sync + Sized + 'static {
    /// The time that the servers use.
    const TIME: Time = Time::Real;

    /// Starts the servers and their proxies.
    async fn start() -> Self;

    /// Returns the URL for clients.
    fn url(&self) -> String;

    /// Sends a command directly to the server that has `key`, without a proxy.
    async fn command(&self, key: &str, command: &[&str]) -> String;

    /// Changes the network fault between clients and servers.
    fn set_network_fault(&self, fault: NetworkFault);

    /// Resets all connections.
    async fn disconnect(&self);

    /// Pauses the processes of the servers that have keys.
    async fn pause(&self);

    /// Resumes the paused processes.
    async fn resume(&self);

    /// Kills the servers that have keys, and starts them again.
    async fn restart(&self);

    /// Makes the servers reject writes, or accept them again.
    async fn set_read_only(&self, is_read_only: bool) {
        assert!(!is_read_only, "this harness does not list the fault in its hooks");
    }

    /// Advances the clocks of the servers.
    async fn advance(&self, by: Duration) {
        unreachable!("these servers go by the machine's clock, which cannot be moved by {by:?}");
    }

    /// Returns a function that waits for a reply of a server at each call.
    fn heartbeat(&self) -> Box<dyn FnMut() + Send> {
        Box::new(|| {})
    }
}

/// A single server.
#[derive(Debug)]
pub struct Single {
    redis: RwLock<Redis>,
    proxy: FaultProxy,
}

#[async_trait]
impl Servers for Single {
    async fn start() -> Self {
        let redis = RedisOptions::new().acl(user(""));
        let redis = redis.start().await;
        let proxy = FaultProxy::start(redis.address()).await;
        Self { redis: RwLock::new(redis), proxy }
    }

    fn url(&self) -> String {
        as_user(&format!("redis://{}", self.proxy.address()))
    }

    async fn command(&self, _key: &str, command: &[&str]) -> String {
        self.redis.read().await.command(command).await
    }

    fn set_network_fault(&self, fault: NetworkFault) {
        self.proxy.set_network_fault(fault);
    }

    async fn disconnect(&self) {
        self.proxy.disconnect().await;
    }

    async fn pause(&self) {
        self.redis.read().await.pause();
    }

    async fn resume(&self) {
        self.redis.read().await.resume();
    }

    async fn restart(&self) {
        self.redis.write().await.restart().await;
    }

    async fn set_read_only(&self, is_read_only: bool) {
        let replicas = if is_read_only { "1" } else { "0" };
        let set = ["CONFIG", "SET", "min-replicas-to-write", replicas];
        assert_eq!(self.command("", &set).await, "+OK");
    }

    fn heartbeat(&self) -> Box<dyn FnMut() + Send> {
        Box::new(self.redis.try_read().expect("one disturbance at a time").heartbeat())
    }
}

/// A single server whose clock only advances when a case advances it.
#[derive(Debug)]
pub struct Driven(Redis);

#[async_trait]
impl Servers for Driven {
    const TIME: Time = Time::Driven;

    async fn start() -> Self {
        Self(RedisOptions::new().acl(user(OF_MEMBERS)).clock(Pace::Still).start().await)
    }

    fn url(&self) -> String {
        as_user(&self.0.url())
    }

    async fn command(&self, _key: &str, command: &[&str]) -> String {
        self.0.command(command).await
    }

    fn set_network_fault(&self, _fault: NetworkFault) {
        unreachable!("there is no proxy");
    }

    async fn disconnect(&self) {
        unreachable!("there is no proxy");
    }

    async fn pause(&self) {
        self.0.pause();
    }

    async fn resume(&self) {
        self.0.resume();
    }

    async fn restart(&self) {
        unreachable!("a restart takes real time");
    }

    async fn advance(&self, by: Duration) {
        self.0.clock().advance(by);
    }
}

/// Longer than any case, so that a server with a fault is not replaced.
const NO_FAILOVER: Duration = Duration::from_secs(300);

/// A primary with a replica, and three sentinels.
#[derive(Debug)]
pub struct Sentinels {
    redis: RwLock<RedisSentinel>,
    url: String,
}

#[async_trait]
impl Servers for Sentinels {
    async fn start() -> Self {
        let redis = SentinelOptions::new().nodes(nodes("")).down_after(NO_FAILOVER);
        let redis = redis.proxied().start().await;
        Self { url: as_user(&redis.url()), redis: RwLock::new(redis) }
    }

    fn url(&self) -> String {
        self.url.clone()
    }

    async fn command(&self, _key: &str, command: &[&str]) -> String {
        self.redis.read().await.command(0, command).await
    }

    fn set_network_fault(&self, fault: NetworkFault) {
        let redis = self.redis.try_read().expect("one disturbance at a time");
        redis.set_network_fault(fault);
    }

    async fn disconnect(&self) {
        join_all(self.redis.read().await.proxies().into_iter().map(FaultProxy::disconnect)).await;
    }

    async fn pause(&self) {
        self.redis.read().await.pause(0);
    }

    async fn resume(&self) {
        self.redis.read().await.resume(0);
    }

    async fn restart(&self) {
        self.redis.write().await.restart(0).await;
    }

    fn heartbeat(&self) -> Box<dyn FnMut() + Send> {
        Box::new(self.redis.try_read().expect("one disturbance at a time").heartbeat(0))
    }
}

/// A cluster of three primaries.
#[derive(Debug)]
pub struct Cluster {
    redis: RwLock<RedisCluster>,
    url: String,
}

#[async_trait]
impl Servers for Cluster {
    async fn start() -> Self {
        let options = ClusterOptions::new().replicas(0).node_timeout(NO_FAILOVER);
        let options = options.nodes(nodes(OF_CLUSTERS)).proxied();
        let redis = options.start().await;
        Self { url: as_user(&redis.url()), redis: RwLock::new(redis) }
    }

    fn url(&self) -> String {
        self.url.clone()
    }

    async fn command(&self, key: &str, command: &[&str]) -> String {
        let redis = self.redis.read().await;
        redis.command(redis.owner_of(key).await, command).await
    }

    fn set_network_fault(&self, fault: NetworkFault) {
        let redis = self.redis.try_read().expect("one disturbance at a time");
        redis.set_network_fault(fault);
    }

    async fn disconnect(&self) {
        join_all(self.redis.read().await.proxies().into_iter().map(FaultProxy::disconnect)).await;
    }

    async fn pause(&self) {
        let redis = self.redis.read().await;
        (0..redis.nodes()).for_each(|node| redis.pause(node));
    }

    async fn resume(&self) {
        let redis = self.redis.read().await;
        (0..redis.nodes()).for_each(|node| redis.resume(node));
    }

    async fn restart(&self) {
        let mut redis = self.redis.write().await;
        for node in 0..redis.nodes() {
            redis.restart(node).await;
        }
    }

    fn heartbeat(&self) -> Box<dyn FnMut() + Send> {
        Box::new(self.redis.try_read().expect("one disturbance at a time").heartbeat(0))
    }
}

/// The faults that a [`Single`] server can have.
pub const FAULTS_OF_SINGLE: &[Need] = &[
    Need::Fault(FaultKind::ConnectionsKilled),
    Need::Fault(FaultKind::NetworkSilent),
    Need::Fault(FaultKind::ReadOnly),
    Need::Fault(FaultKind::ServerKilled),
    Need::Fault(FaultKind::ServerStopped),
];

/// The subjects of the cases that a server with a driven clock does not support.
pub const OF_REAL_TIME: &[Subject] = &[Subject::Load, Subject::Network];

/// Connects a backend that waits for replies for at most `timeout`. Retries, because servers that
/// have just started may be slower.
pub async fn connect<D: Driver>(servers: &impl Servers, timeout: Duration) -> Backend<D> {
    let config = Config::from_url(&servers.url()).unwrap().timeout(timeout).unwrap();
    until_some("connected", async || match Backend::connect_with(config.clone()).await {
        Err(error) if error.kind() == ErrorKind::Unavailable => None,
        connected => Some(connected.unwrap()),
    })
    .await
}

/// Injects a fault of the servers or of the connections.
pub async fn disturb(servers: &impl Servers, fault: FaultKind) {
    match fault {
        FaultKind::ConnectionsKilled => servers.disconnect().await,
        FaultKind::NetworkSilent => servers.set_network_fault(NetworkFault::BlackHole),
        FaultKind::ServerStopped => servers.pause().await,
        FaultKind::ServerKilled => servers.restart().await,
        FaultKind::ReadOnly => servers.set_read_only(true).await,
        other => unreachable!("{other} is not in the hooks"),
    }
}

/// Ends all faults.
pub async fn heal(servers: &impl Servers) {
    servers.set_network_fault(NetworkFault::None);
    servers.resume().await;
    servers.set_read_only(false).await;
}

/// Returns the holder of the mutex `key`, or the first holder of its permits.
pub async fn probe(servers: &impl Servers, key: &LockKey) -> Option<Holder> {
    const READ_HOLDER: &str = "
        local value = redis.call('GET', KEYS[1])
        if value then
          return value .. '\\n' .. redis.call('PTTL', KEYS[1])
        end
        local time = redis.call('TIME')
        local now = time[1] * 1000 + math.floor(time[2] / 1000)
        local first = redis.call('ZRANGEBYSCORE', KEYS[2], '(' .. now, '+inf', 'WITHSCORES', 'LIMIT', 0, 1)
        if first[1] then
          local _, _, _, description = cmsgpack.unpack(redis.call('HGET', KEYS[3], first[1]))
          return first[1] .. ' ' .. description .. '\\n' .. (first[2] - now)
        end";

    let of = Places::of(key);
    let probe = ["EVAL", READ_HOLDER, "3", &of.lock, &of.held, &of.units];
    let reply = bulk(&servers.command(&of.lock, &probe).await)?;
    let (value, remaining) = reply.rsplit_once('\n').unwrap();
    let remaining = remaining.trim().parse().ok().map(Duration::from_millis);
    let (id, description) = value.split_once(' ').unwrap_or((value, ""));
    let holder = Holder::new(Fingerprint::of(id.as_bytes()));
    Some(holder.with_description(Description::new(description).ok()).with_remaining(remaining))
}

/// The keys in the server that store a lock.
struct Places {
    lock: String,
    held: String,
    units: String,
}

impl Places {
    fn of(key: &LockKey) -> Self {
        let inspect = Call::inspect(&Layout::default(), key);
        let find = |part: &str| {
            let held = inspect.keys().find(|key| key.contains("~held:")).unwrap();
            held.replace("~held:", &format!("~{part}:"))
        };
        Self {
            lock: inspect.keys().next().unwrap().to_owned(),
            held: find("held"),
            units: find("units"),
        }
    }
}

/// Returns the content of a string reply, or `None` if the reply is not a string.
fn bulk(reply: &str) -> Option<String> {
    assert!(!reply.starts_with('-'), "{reply}");
    let (len, text) = reply.split_once("\r\n")?;
    len.starts_with('$').then(|| text.to_owned())
}

/// Implements the harness for these servers. `$made` wraps the backend, and `$item` overrides items
/// of the trait.
#[macro_export]
macro_rules! harness {
    ($harness:ident, $name:literal, $servers:ty, $backend:ty, $made:expr, $hooks:expr, { $($item:item)* }) => {
        struct $harness($servers);

        #[async_trait::async_trait]
        impl leasehold_conformance::Harness for $harness {
            type Backend = $backend;

            const NAME: &str = $name;
            const TIME: leasehold_conformance::Time = <$servers as $crate::Servers>::TIME;
            const POOLED: bool = true;
            const HOOKS: &[leasehold_conformance::Need] = $hooks;

            $($item)*

            async fn start() -> Self {
                Self(<$servers as $crate::Servers>::start().await)
            }

            async fn connect(&self) -> $backend {
                $made($crate::connect(&self.0, self.timing().ttl / 3).await)
            }

            async fn connect_patiently(&self) -> $backend {
                $made($crate::connect(&self.0, std::time::Duration::from_secs(30)).await)
            }

            async fn probe(&self, key: &leasehold_core::LockKey) -> Option<leasehold_core::Holder> {
                $crate::probe(&self.0, key).await
            }

            async fn disturb(&self, fault: leasehold_conformance::FaultKind) {
                $crate::disturb(&self.0, fault).await;
            }

            async fn heal(&self) {
                $crate::heal(&self.0).await;
            }

            async fn advance_store(&self, by: std::time::Duration) {
                $crate::Servers::advance(&self.0, by).await;
            }

            fn heartbeat(&self) -> Box<dyn FnMut() + Send> {
                $crate::Servers::heartbeat(&self.0)
            }
        }
    };
}
