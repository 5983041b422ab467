//! The suite on real ZooKeeper, through proxies that can fail: one server and three, and with mutexes made of other kinds of lock.

use std::convert::identity;
use std::process::ExitCode;
use std::time::{Duration, SystemTime};

use async_trait::async_trait;
use futures_util::future::join_all;
use leasehold_conformance::{AsMutex, FaultKind, Groups, Harness, Need, Subject, Suites};
use leasehold_core::{Description, ErrorKind, Holder, LockKey};
use leasehold_testbed::{FaultProxy, NetworkFault, ZooKeeper, ZooKeeperOptions, until_some};
use leasehold_zookeeper::{ZooKeeperBackend, ZooKeeperConfig};
use tokio::sync::RwLock;
use zookeeper_client::Client;

/// Short, so that little is waited for.
const TICK: Duration = Duration::from_millis(500);

/// An ensemble, and a proxy before each of its servers.
struct Ensemble {
    servers: RwLock<ZooKeeper>,
    proxies: Vec<FaultProxy>,
    /// The servers' addresses, past the proxies.
    direct: String,
}

impl Ensemble {
    async fn start(members: usize) -> Self {
        let options = ZooKeeperOptions::new().members(members).tick(TICK);
        // The suite has leases of many TTLs.
        let options = options.set("maxSessionTimeout", "36000000");
        // The probe reads times of day.
        let servers = options.property("user.timezone", "UTC").start().await;
        let (proxies, direct) = (servers.proxies().await, servers.endpoints().join(","));
        Self { servers: RwLock::new(servers), proxies, direct }
    }

    /// A backend that waits so long for replies. Servers that have just started may be slower than that.
    async fn connect(&self, timeout: Duration) -> ZooKeeperBackend {
        let addresses = self.proxies.iter().map(FaultProxy::address);
        let config = ZooKeeperConfig::from_servers(addresses).unwrap().tick(TICK).unwrap();
        let config = config.timeout(timeout).unwrap();
        until_some("connected", async || {
            match ZooKeeperBackend::connect_with(config.clone()).await {
                Err(error) if error.kind() == ErrorKind::Unavailable => None,
                connected => Some(connected.unwrap()),
            }
        })
        .await
    }

    /// The first holder of `key`.
    async fn probe(&self, key: &LockKey) -> Option<Holder> {
        let client = until_some("connected", async || Client::connect(&self.direct).await.ok());
        let (client, lock) = (client.await, format!("/lock/{}", key.as_str().replace('/', "%2F")));
        // A leader that has just begun to lead, or to end a session, does not tell the rest of it.
        until_some("the leader knows the holder's session", async || {
            self.look(&client, &lock).await
        })
        .await
    }

    /// The first holder of a lock. `None` if the leader does not know its session.
    async fn look(&self, client: &Client, lock: &str) -> Option<Option<Holder>> {
        client.sync("/").await.unwrap();
        let mut names = client.list_children(lock).await.unwrap_or_default();
        names.sort_by_key(|name| name.split_at(name.len().saturating_sub(10)).1.to_owned());
        for name in names {
            let Ok((data, stat)) = client.get_data(&format!("{lock}/{name}")).await else {
                continue;
            };
            let text = String::from_utf8(data).unwrap();
            let mut parts = text.splitn(5, ' ');
            if parts.next() != Some("held") {
                continue;
            }
            let holder = Holder::new(parts.next().unwrap().parse().unwrap());
            let ttl = Duration::from_millis(parts.next().unwrap().parse().unwrap());
            let description = parts.nth(1).and_then(|text| Description::new(text).ok());
            // The store keeps it a tick longer than that, and tells whole seconds.
            let left = self.left(stat.ephemeral_owner).await?.min(ttl);
            return Some(Some(holder.with_description(description).with_remaining(Some(left))));
        }
        Some(None)
    }

    /// The rest of a session, as the leader tells it: whole seconds, of which the last is cut off.
    async fn left(&self, session: i64) -> Option<Duration> {
        let servers = self.servers.read().await;
        let dump = servers.ask(servers.leader().await, "dump").await;
        let mut ends = "";
        for line in dump.lines() {
            if let Some((_, date)) = line.split_once(" expire at ") {
                ends = date;
            }
            if line.trim() == format!("{session:#x}") {
                let time = ends.split(' ').nth(3)?;
                let mut parts = time.split(':').map(|part| part.parse::<u64>().ok());
                let second = parts.try_fold(0, |sum, part| Some(sum * 60 + part?))?;
                let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).ok()?;
                let today = Duration::from_secs(now.as_secs() / 86_400 * 86_400);
                let ends = today + Duration::from_secs(second + 1);
                let ends = if ends < now { ends + Duration::from_secs(86_400) } else { ends };
                return Some(ends - now);
            }
        }
        None
    }

    async fn disturb(&self, fault: FaultKind) {
        let mut servers = self.servers.write().await;
        let set_network_fault = |fault: NetworkFault| {
            self.proxies.iter().for_each(|proxy| proxy.set_network_fault(fault));
        };
        match fault {
            FaultKind::ConnectionsKilled => {
                join_all(self.proxies.iter().map(FaultProxy::disconnect)).await;
            }
            FaultKind::NetworkSilent => set_network_fault(NetworkFault::BlackHole),
            FaultKind::ServerStopped => servers.pause(),
            FaultKind::ServerKilled => servers.restart().await,
            other => unreachable!("{other} is not in the hooks"),
        }
    }

    async fn heal(&self) {
        self.proxies.iter().for_each(|proxy| proxy.set_network_fault(NetworkFault::None));
        self.servers.write().await.resume();
    }

    fn heartbeat(&self) -> Box<dyn FnMut() + Send> {
        Box::new(self.servers.try_read().expect("one disturbance at a time").heartbeat())
    }
}

/// Implements the harness on an [`Ensemble`], for mutexes made in some way; with items that differ from the trait's.
macro_rules! harness {
    ($harness:ident, $name:literal, $members:literal, $backend:ty, $connect:expr, { $($item:item)* }) => {
        struct $harness(Ensemble);

        #[async_trait]
        impl Harness for $harness {
            type Backend = $backend;

            const NAME: &str = $name;
            const POOLED: bool = true;
            const HOOKS: &[Need] = &Need::FAULTS;

            $($item)*

            async fn start() -> Self {
                Self(Ensemble::start($members).await)
            }

            async fn connect(&self) -> $backend {
                $connect(self.0.connect(self.timing().ttl / 3).await)
            }

            async fn connect_patiently(&self) -> $backend {
                $connect(self.0.connect(Duration::from_secs(30)).await)
            }

            async fn probe(&self, key: &LockKey) -> Option<Holder> {
                self.0.probe(key).await
            }

            async fn disturb(&self, fault: FaultKind) {
                self.0.disturb(fault).await;
            }

            async fn heal(&self) {
                self.0.heal().await;
            }

            fn heartbeat(&self) -> Box<dyn FnMut() + Send> {
                self.0.heartbeat()
            }
        }
    };
}

harness!(OneServer, "ZooKeeper", 1, ZooKeeperBackend, identity, {
    const LACKS: &[Need] = &[Need::Member, Need::Together];
});
harness!(ThreeServers, "ZooKeeper, three servers", 3, ZooKeeperBackend, identity, {
    const GROUPS: Groups = Groups::OF_TOPOLOGY;
    const LACKS: &[Need] = &[Need::Member, Need::Together];
});
harness!(WriteLock, "ZooKeeper, write lock", 1, AsMutex<ZooKeeperBackend>, AsMutex::write_lock, {
    const GROUPS: Groups = Groups::OF_KIND;
    const SUBJECTS: &[Subject] = &[Subject::Store];
    const LACKS: &[Need] = AsMutex::<ZooKeeperBackend>::LACKS;
});

fn main() -> ExitCode {
    Suites::new()
        .with::<OneServer>("")
        .with::<ThreeServers>("three_servers")
        .with::<WriteLock>("write_lock")
        .documented_in(include_str!("../../docs/conformance-cases.md"))
        .main()
}
