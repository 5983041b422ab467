//! The suite on real etcd, through proxies that can fail: one member and three, and with mutexes made of other kinds of lock.

use std::convert::identity;
use std::process::ExitCode;
use std::time::Duration;

use async_trait::async_trait;
use futures_util::future::join_all;
use leasehold_conformance::{AsMutex, FaultKind, Groups, Harness, Need, Subject, Suites};
use leasehold_core::{Description, ErrorKind, Holder, LockKey};
use leasehold_etcd::etcd_client::{
    AlarmAction, AlarmType, Client, GetOptions, KeyValue, PutOptions,
};
use leasehold_etcd::{EtcdBackend, EtcdConfig};
use leasehold_testbed::{Etcd, EtcdOptions, FaultProxy, NetworkFault, until_some};
use tokio::sync::RwLock;

/// A cluster, and a proxy before each of its members.
struct Cluster {
    etcd: RwLock<Etcd>,
    proxies: Vec<FaultProxy>,
    /// Past the proxies.
    client: Client,
}

impl Cluster {
    async fn start(members: usize) -> Self {
        let etcd = EtcdOptions::new().members(members).start().await;
        let proxies = etcd.proxies().await;
        let client = Client::connect(etcd.endpoints(), None).await.unwrap();
        Self { etcd: RwLock::new(etcd), proxies, client }
    }

    /// A backend that waits so long for replies. Servers that have just started may be slower than that.
    async fn connect(&self, timeout: Duration) -> EtcdBackend {
        let addresses: Vec<String> = self.proxies.iter().map(FaultProxy::address).collect();
        let config = EtcdConfig::from_url(&format!("etcd://{}", addresses.join(","))).unwrap();
        let config = config.timeout(timeout).unwrap();
        until_some("connected", async || match EtcdBackend::connect_with(config.clone()).await {
            Err(error) if error.kind() == ErrorKind::Unavailable => None,
            connected => Some(connected.unwrap()),
        })
        .await
    }

    /// The first holder of `key`.
    async fn probe(&self, key: &LockKey) -> Option<Holder> {
        // A connection to a member that was restarted fails once.
        let found = until_some("the members answer", async || {
            let range = GetOptions::new().with_prefix();
            self.client.kv_client().get(format!("lock/{key}/"), Some(range)).await.ok()
        });
        let found = found.await;
        let held = found.kvs().iter().find(|kv| kv.value().starts_with(b"held "))?;
        let mut parts = held.value_str().unwrap().splitn(5, ' ').skip(2);
        let fingerprint = parts.next().unwrap();
        let description = parts.nth(1).and_then(|text| Description::new(text).ok());
        let left = self.client.lease_client().time_to_live(held.lease(), None).await.unwrap();
        // The server rounds the remaining time down to a second.
        let left = u64::try_from(left.ttl() + 1).ok().map(Duration::from_secs);
        let holder = Holder::new(fingerprint.parse().unwrap());
        Some(holder.with_description(description).with_remaining(left))
    }

    async fn disturb(&self, fault: FaultKind) {
        let mut etcd = self.etcd.write().await;
        let set_network_fault = |fault: NetworkFault| {
            self.proxies.iter().for_each(|proxy| proxy.set_network_fault(fault));
        };
        match fault {
            FaultKind::ConnectionsKilled => {
                join_all(self.proxies.iter().map(FaultProxy::disconnect)).await;
            }
            FaultKind::NetworkSilent => set_network_fault(NetworkFault::BlackHole),
            FaultKind::ServerStopped => etcd.pause(),
            FaultKind::ServerKilled => etcd.restart().await,
            FaultKind::ReadOnly => self.set_alarm(AlarmAction::Activate).await,
            other => unreachable!("{other} is not in the hooks"),
        }
    }

    async fn heal(&self) {
        self.proxies.iter().for_each(|proxy| proxy.set_network_fault(NetworkFault::None));
        self.etcd.write().await.resume();
        self.set_alarm(AlarmAction::Deactivate).await;
    }

    /// Raises or clears the alarm for a full disk, with which etcd rejects writes.
    async fn set_alarm(&self, action: AlarmAction) {
        // A connection to a member that was restarted fails once.
        until_some("the alarm is set", async || {
            let mut maintenance = self.client.maintenance_client();
            maintenance.alarm(action, AlarmType::Nospace, None).await.ok()
        })
        .await;
    }

    fn heartbeat(&self) -> Box<dyn FnMut() + Send> {
        Box::new(self.etcd.try_read().expect("one disturbance at a time").heartbeat())
    }

    /// Attaches all keys to leases that end so much earlier, or deletes those that have ended.
    async fn advance(&self, keys: &[LockKey], time: Duration) {
        let mut store = self.client.kv_client();
        for key in keys {
            let range = GetOptions::new().with_prefix();
            let entries = store.get(format!("lock/{key}/"), Some(range)).await.unwrap();
            let request = store.get(format!("lock/~revoke/{key}"), None).await.unwrap();
            let mut held = false;
            for kv in entries.kvs() {
                let stays = self.age(kv, time).await;
                held |= stays && kv.value().starts_with(b"held ");
            }
            for kv in request.kvs() {
                if self.age(kv, time).await && !held {
                    store.delete(kv.key(), None).await.unwrap();
                }
            }
        }
    }

    /// Makes one key older; `false` if it has ended.
    async fn age(&self, kv: &KeyValue, time: Duration) -> bool {
        let (mut leases, mut keys) = (self.client.lease_client(), self.client.kv_client());
        // The server tells whole seconds that are left, and cuts off the rest.
        let left = leases.time_to_live(kv.lease(), None).await.unwrap().ttl() + 1;
        let left = left - i64::try_from(time.as_secs()).unwrap();
        // Steps are long compared to the work between them.
        if left <= 100 {
            keys.delete(kv.key(), None).await.unwrap();
            return false;
        }
        let lease = leases.grant(left, None).await.unwrap().id();
        let options = PutOptions::new().with_lease(lease);
        keys.put(kv.key(), kv.value(), Some(options)).await.unwrap();
        true
    }
}

/// Implements the harness on a [`Cluster`], for mutexes made in some way; with items that differ from the trait's.
macro_rules! harness {
    ($harness:ident, $name:literal, $members:literal, $backend:ty, $connect:expr, $hooks:expr, { $($item:item)* }) => {
        struct $harness(Cluster);

        #[async_trait]
        impl Harness for $harness {
            type Backend = $backend;

            const NAME: &str = $name;
            const POOLED: bool = true;
            const HOOKS: &[Need] = $hooks;

            $($item)*

            async fn start() -> Self {
                Self(Cluster::start($members).await)
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

            async fn advance(&self, keys: &[LockKey], time: Duration) {
                self.0.advance(keys, time).await;
            }
        }
    };
}

const FAILS_AND_ADVANCES: &[Need] = &[
    Need::Advance,
    Need::Fault(FaultKind::ConnectionsKilled),
    Need::Fault(FaultKind::NetworkSilent),
    Need::Fault(FaultKind::ReadOnly),
    Need::Fault(FaultKind::ServerKilled),
    Need::Fault(FaultKind::ServerStopped),
];

harness!(OneMember, "etcd", 1, EtcdBackend, identity, FAILS_AND_ADVANCES, {
    const LACKS: &[Need] = &[Need::Member];
});
harness!(ThreeMembers, "etcd, three members", 3, EtcdBackend, identity, &Need::FAULTS, {
    const GROUPS: Groups = Groups::OF_TOPOLOGY;
});
harness!(
    WriteLock,
    "etcd, write lock",
    1,
    AsMutex<EtcdBackend>,
    AsMutex::write_lock,
    &Need::FAULTS,
    {
        const GROUPS: Groups = Groups::OF_KIND;
        const SUBJECTS: &[Subject] = &[Subject::Store];
        const LACKS: &[Need] = AsMutex::<EtcdBackend>::LACKS;
    }
);

fn main() -> ExitCode {
    Suites::new()
        .with::<OneMember>("")
        .with::<ThreeMembers>("three_members")
        .with::<WriteLock>("write_lock")
        .documented_in(include_str!("../../docs/conformance-cases.md"))
        .main()
}
