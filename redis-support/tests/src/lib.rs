//! The harnesses of the Redis family for the conformance suite: one server, one that sentinels name, a cluster; all behind proxies that can
//! fail. And the [rights] that the documentation gives.
//!
//! The tests of this crate are those that each driver passes: `cargo test -p leasehold-redis-tests --test redis` runs them with the `redis`
//! crate. A new test for all drivers is a function in `family/`.

pub mod rights;

use std::time::Duration;

use async_trait::async_trait;
use futures_util::future::join_all;
use leasehold_conformance::{FaultKind, Need, Subject, Time};
use leasehold_core::backend::Fingerprint;
use leasehold_core::{Description, ErrorKind, Holder, LockKey};
use leasehold_redis_support::{Backend, Call, Config, Driver, Layout};
use leasehold_testbed::{
    ClusterOptions, FaultProxy, Pace, Redis, RedisCluster, RedisOptions, RedisSentinel,
    SentinelOptions, Weather, until_some,
};
use tokio::sync::RwLock;

use rights::{DOCUMENTED, OF_CLUSTERS, OF_LISTS, OF_MEMBERS};

/// Several keys at once are for one server to grant, and a failover loses grants.
pub const CLUSTER_LACKS: &[Need] = &[Need::Membership, Need::Together];

/// All pass the suite with just the rights that are documented.
fn user(more_rights: &str) -> String {
    format!("user locker on >secret {DOCUMENTED} {OF_LISTS} {more_rights}")
}

/// Servers that let in the suite's user alone.
fn nodes(more_rights: &str) -> RedisOptions {
    RedisOptions::new().acl("user default off").acl(user(more_rights))
}

fn as_user(url: &str) -> String {
    url.replace("://", "://locker:secret@")
}

/// Servers behind proxies.
#[async_trait]
pub trait Servers: Send + Sync + Sized + 'static {
    /// Whose time they go by.
    const TIME: Time = Time::Real;

    /// Starts them.
    async fn start() -> Self;

    /// The URL for clients.
    fn url(&self) -> String;

    /// Sends a command to the server that has `key`, past the proxies.
    async fn command(&self, key: &str, command: &[&str]) -> String;

    /// Changes the weather between clients and servers.
    fn set_weather(&self, weather: Weather);

    /// Resets all connections.
    async fn disconnect(&self);

    /// Stops the processes of the servers that have keys.
    async fn pause(&self);

    /// Lets them go on.
    async fn resume(&self);

    /// Kills the servers that have keys, and starts them again.
    async fn restart(&self);

    /// Moves their clocks forward.
    async fn advance(&self, by: Duration) {
        unreachable!("these servers go by the machine's clock, which cannot be moved by {by:?}");
    }

    /// Has a server reply at each call.
    fn pulse(&self) -> Box<dyn FnMut() + Send> {
        Box::new(|| {})
    }
}

/// One server.
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

    fn set_weather(&self, weather: Weather) {
        self.proxy.set_weather(weather);
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

    fn pulse(&self) -> Box<dyn FnMut() + Send> {
        Box::new(self.redis.try_read().expect("one disturbance at a time").pulse())
    }
}

/// One server with a clock that stands still until it is moved.
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

    fn set_weather(&self, _weather: Weather) {
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

/// Longer than any case: a disturbed server is not replaced here.
const NO_FAILOVER: Duration = Duration::from_secs(300);

/// A master with a replica, and three sentinels.
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

    fn set_weather(&self, weather: Weather) {
        let redis = self.redis.try_read().expect("one disturbance at a time");
        redis.set_weather(weather);
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

    fn pulse(&self) -> Box<dyn FnMut() + Send> {
        Box::new(self.redis.try_read().expect("one disturbance at a time").pulse(0))
    }
}

/// Three primaries.
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

    fn set_weather(&self, weather: Weather) {
        let redis = self.redis.try_read().expect("one disturbance at a time");
        redis.set_weather(weather);
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

    fn pulse(&self) -> Box<dyn FnMut() + Send> {
        Box::new(self.redis.try_read().expect("one disturbance at a time").pulse(0))
    }
}

/// The subjects of the cases that a server in driven time cannot stand.
pub const OF_REAL_TIME: &[Subject] = &[Subject::Load, Subject::Network];

/// A backend that waits so long for replies. Servers that have just started may be slower than that.
pub async fn connect<D: Driver>(servers: &impl Servers, timeout: Duration) -> Backend<D> {
    let config = Config::from_url(&servers.url()).unwrap().timeout(timeout).unwrap();
    until_some("connected", async || match Backend::connect_with(config.clone()).await {
        Err(error) if error.kind() == ErrorKind::Unavailable => None,
        connected => Some(connected.unwrap()),
    })
    .await
}

/// Causes a fault of the servers or of the connections.
pub async fn disturb(servers: &impl Servers, fault: FaultKind) {
    match fault {
        FaultKind::ConnectionsKilled => servers.disconnect().await,
        FaultKind::NetworkSilent => servers.set_weather(Weather::BlackHole),
        FaultKind::ServerStopped => servers.pause().await,
        FaultKind::ServerKilled => servers.restart().await,
        other => unreachable!("{other} is not in the hooks"),
    }
}

/// Ends all faults.
pub async fn heal(servers: &impl Servers) {
    servers.set_weather(Weather::Fair);
    servers.resume().await;
}

/// The holder of `key`: as a mutex, or the first of the holders of units.
pub async fn witness(servers: &impl Servers, key: &LockKey) -> Option<Holder> {
    const WITNESS: &str = "
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
    let witness = ["EVAL", WITNESS, "3", &of.lock, &of.held, &of.units];
    let reply = bulk(&servers.command(&of.lock, &witness).await)?;
    let (value, remaining) = reply.rsplit_once('\n').unwrap();
    let remaining = remaining.trim().parse().ok().map(Duration::from_millis);
    let (id, description) = value.split_once(' ').unwrap_or((value, ""));
    let holder = Holder::new(Fingerprint::of(id.as_bytes()));
    Some(holder.with_description(Description::new(description).ok()).with_remaining(remaining))
}

/// The keys of the server that belong to a lock's key.
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

/// The text of a string reply; `None` if there is none.
fn bulk(reply: &str) -> Option<String> {
    assert!(!reply.starts_with('-'), "{reply}");
    let (len, text) = reply.split_once("\r\n")?;
    len.starts_with('$').then(|| text.to_owned())
}

/// Implements the harness on servers, for mutexes made in some way; with items that differ from the trait's.
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

            async fn witness(&self, key: &leasehold_core::LockKey) -> Option<leasehold_core::Holder> {
                $crate::witness(&self.0, key).await
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

            fn pulse(&self) -> Box<dyn FnMut() + Send> {
                $crate::Servers::pulse(&self.0)
            }
        }
    };
}
