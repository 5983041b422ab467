//! How a cluster is started.

use std::time::Duration;

use crate::certificates::TlsClients;

use super::super::settings::NodeOptions;
use super::RedisCluster;

/// How a cluster is started.
#[derive(Clone, Debug)]
pub struct ClusterOptions {
    pub(super) node: NodeOptions,
    pub(super) primaries: usize,
    pub(super) replicas: usize,
    pub(super) node_timeout: Duration,
    pub(super) proxied: bool,
}

impl ClusterOptions {
    /// Three primaries with one replica each, which everybody may use.
    pub fn new() -> Self {
        Self {
            node: NodeOptions::default(),
            primaries: 3,
            replicas: 1,
            node_timeout: Duration::from_millis(500),
            proxied: false,
        }
    }

    /// So many primaries. It takes three to notice that one is gone.
    #[must_use]
    pub fn primaries(mut self, primaries: usize) -> Self {
        self.primaries = primaries;
        self
    }

    /// So many replicas for each primary; there may be none.
    #[must_use]
    pub fn replicas(mut self, replicas: usize) -> Self {
        self.replicas = replicas;
        self
    }

    /// Sets for how long a node is silent until another suspects it. By default, that is half a second.
    #[must_use]
    pub fn node_timeout(mut self, silence: Duration) -> Self {
        self.node_timeout = silence;
        self
    }

    /// Adds arguments of `redis-server` for every node, such as `["--maxmemory", "1mb"]`.
    #[must_use]
    pub fn args<A: Into<String>>(mut self, args: impl IntoIterator<Item = A>) -> Self {
        self.node.args.extend(args.into_iter().map(Into::into));
        self
    }

    /// Adds a line of the ACL file of every node, such as `user default off`.
    ///
    /// There is then also a user of the testbed's own, as whom replicas come.
    #[must_use]
    pub fn acl(mut self, line: impl Into<String>) -> Self {
        self.node.acl.push(line.into());
        self
    }

    /// All nodes speak only TLS, also with each other, with certificates made on the spot.
    #[must_use]
    pub fn tls(mut self) -> Self {
        self.node.tls = Some(TlsClients::NeedNoCertificate);
        self
    }

    /// Puts a proxy in front of each node, whose addresses are the only ones that clients and replicas know.
    ///
    /// What the nodes say to each other to keep the cluster together goes past the proxies.
    #[must_use]
    pub fn proxied(mut self) -> Self {
        self.proxied = true;
        self
    }

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
            // Somebody else took one of the ports.
        }
        panic!("redis-server does not start, see its output above");
    }
}

impl Default for ClusterOptions {
    fn default() -> Self {
        Self::new()
    }
}
