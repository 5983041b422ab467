//! How a cluster comes up.

use std::fs;
use std::time::{Duration, Instant};

use crate::certificates::Certificates;
use crate::until::until;

use super::super::server::version;
use super::super::settings::flags;
use super::member::{Member, new_id};
use super::{ClusterOptions, RedisCluster, SLOTS};

/// After this long, a replica without a primary has looked around. If it is not content by then, it never will be.
const CONTENT_WAIT: Duration = Duration::from_millis(500);

/// From this version on, a primary and its replicas have the id of their shard in common.
///
/// Without it, each node invents some at first, and saves a file for a while that it could not read again.
const WITH_SHARDS: (u32, u32) = (7, 2);

const FULL_COVERAGE: &str = "cluster-require-full-coverage";

impl ClusterOptions {
    /// Starts the cluster and waits until all nodes agree on it and the replicas have their copies.
    ///
    /// # Panics
    ///
    /// If it cannot be started, see [`RedisOptions::start`](crate::RedisOptions::start). It takes Redis 7.0.
    pub async fn start(self) -> RedisCluster {
        for _ in 0..10 {
            if let Some(cluster) = RedisCluster::launch(self.clone()).await {
                return cluster;
            }
            // Another program took one of the ports.
        }
        panic!("redis-server does not start, see its output above");
    }
}

impl RedisCluster {
    /// Starts a new cluster, unless a different program already uses one of its ports.
    ///
    /// A cluster that is made by commands takes a second to get to know itself. And a primary that has just started
    /// refuses writes for two seconds, lest it have been replaced meanwhile. So the nodes start with files that tell
    /// them all; and the primaries start as replicas of a node that never was, and take over from it.
    async fn launch(mut options: ClusterOptions) -> Option<Self> {
        let folder = tempfile::Builder::new().prefix("leasehold-cluster-").tempdir();
        let folder = folder.expect("a temporary folder can be made");
        let tls = options.node.tls;
        let certificates =
            tls.map(|_| Certificates::create(folder.path(), &["localhost", "127.0.0.1"]));
        let login = options.node.let_in_ourselves();
        let members = (0..options.primaries * (1 + options.replicas))
            .map(|i| Member::new(folder.path().join(format!("node-{i}")), login.clone()))
            .collect();
        let mut cluster = Self { options, members, folder, login, certificates };
        if cluster.options.proxied {
            for (n, member) in cluster.members.iter_mut().enumerate() {
                member.hide(n).await;
            }
        }
        cluster.try_launch().await.then_some(cluster)
    }

    async fn try_launch(&mut self) -> bool {
        let predecessors: Vec<_> = (0..self.options.primaries).map(|_| new_id()).collect();
        let shards = (version() >= WITH_SHARDS).then_some(&predecessors[..]);
        for (i, member) in self.members.iter().enumerate() {
            let file = member.node.server.folder().join("nodes.conf");
            let view = self.first_view(i, predecessors.get(i), shards);
            fs::write(file, view).expect("temporary files can be written");
        }
        for i in 0..self.options.primaries {
            self.spawn_founder(i);
        }
        for (i, predecessor) in predecessors.iter().enumerate() {
            if !self.members[i].node.server.comes_up().await {
                return false;
            }
            self.take_over(i, predecessor).await;
        }
        // A replica that finds its primary not up yet looks again after a second.
        for i in self.options.primaries..self.members.len() {
            self.spawn_founder(i);
        }
        for member in &mut self.members[self.options.primaries..] {
            if !member.node.server.comes_up().await {
                return false;
            }
        }
        self.until_settled().await;
        self.require_full_coverage().await;
        true
    }

    pub(super) fn spawn(&mut self, i: usize) {
        let args = self.args(i);
        self.members[i].node.server.spawn(args);
    }

    /// Starts a node of a cluster in which no node has any slots as long as all are replicas.
    fn spawn_founder(&mut self, i: usize) {
        let mut args = self.args(i);
        args.extend(flags([(FULL_COVERAGE, "no".to_owned())]));
        self.members[i].node.server.spawn(args);
    }

    /// Makes a node that starts as a replica a primary. As it was content already, it takes writes at once.
    async fn take_over(&self, i: usize, predecessor: &str) {
        let start = Instant::now();
        until("a replica without a primary is content", async || {
            let info = self.command(i, &["CLUSTER", "INFO"]).await;
            // A node of Valkey 9 never is; there it takes two seconds after all.
            info.contains("cluster_state:ok") || start.elapsed() > CONTENT_WAIT
        })
        .await;
        self.demand(i, &["CLUSTER", "FAILOVER", "TAKEOVER"]).await;
        self.demand(i, &["CLUSTER", "FORGET", predecessor]).await;
    }

    async fn require_full_coverage(&self) {
        let mut args = self.options.node.args.iter();
        let given = args.find(|arg| arg.strip_prefix("--") == Some(FULL_COVERAGE));
        let value = given.and_then(|_| args.next()).map_or("yes", String::as_str);
        for i in 0..self.members.len() {
            self.demand(i, &["CONFIG", "SET", FULL_COVERAGE, value]).await;
        }
    }

    fn args(&self, i: usize) -> Vec<String> {
        let member @ Member { node, bus_port, .. } = &self.members[i];
        let node_timeout = self.options.node_timeout.as_millis().to_string();
        let mut args = self.options.node.replicated_args(node, self.certificates.as_ref());
        args.extend(flags([
            ("cluster-enabled", "yes".to_owned()),
            ("cluster-config-file", "nodes.conf".to_owned()),
            ("cluster-node-timeout", node_timeout),
            ("cluster-port", bus_port.to_string()),
            ("cluster-announce-ip", "127.0.0.1".to_owned()),
            ("cluster-announce-bus-port", member.announced_bus_port().to_string()),
            // A replica takes over however long ago it last heard of its primary.
            ("cluster-replica-validity-factor", "0".to_owned()),
        ]));
        args.extend(if self.certificates.is_some() {
            let port = node.announced_port();
            flags([("tls-cluster", "yes".to_owned()), ("cluster-announce-tls-port", port)])
        } else {
            flags([("cluster-announce-port", node.announced_port())])
        });
        args.extend(self.options.node.args.iter().cloned());
        args
    }

    /// The view that a node starts with: the other primaries have their slots, and its own slots belong to the
    /// predecessor.
    fn first_view(
        &self,
        myself: usize,
        predecessor: Option<&String>,
        shards: Option<&[String]>,
    ) -> String {
        let primaries = self.options.primaries;
        let shard = |i: usize| {
            shards.map(|ids| format!(",,shard-id={}", ids[i % primaries])).unwrap_or_default()
        };
        let mut lines = Vec::new();
        for (i, member @ Member { node, id, .. }) in self.members.iter().enumerate() {
            let bus_port = member.announced_bus_port();
            let address = format!("{}@{bus_port}{}", node.address(), shard(i));
            let (flag, epoch) = (if i == myself { "myself," } else { "" }, i % primaries + 1);
            let role = match predecessor {
                Some(predecessor) if i == myself => format!("slave {predecessor}"),
                _ if i < primaries => "master -".to_owned(),
                _ => format!("slave {}", self.members[i % primaries].id),
            };
            let slots = if role == "master -" { self.first_slots(i) } else { String::new() };
            lines.push(format!("{id} {address} {flag}{role} 0 0 {epoch} connected {slots}"));
        }
        if let Some(id) = predecessor {
            // The nodes neither look for a node without an address nor talk about it, and never suspect it.
            let (epoch, slots) = (myself + 1, self.first_slots(myself));
            let shard = shard(myself);
            lines
                .push(format!("{id} :0@0{shard} master,noaddr - 0 0 {epoch} disconnected {slots}"));
        }
        lines.push(format!("vars currentEpoch {primaries} lastVoteEpoch 0\n"));
        lines.join("\n")
    }

    fn first_slots(&self, primary: usize) -> String {
        let start = |i: usize| usize::from(SLOTS) * i / self.options.primaries;
        format!("{}-{}", start(primary), start(primary + 1) - 1)
    }
}
