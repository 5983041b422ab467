//! How a cluster is started.

use std::time::Duration;

use super::super::RedisOptions;
use super::super::settings::NodeOptions;

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

    /// The number of primaries. At least three primaries are needed to detect the failure of a
    /// primary.
    #[must_use]
    pub fn primaries(mut self, primaries: usize) -> Self {
        self.primaries = primaries;
        self
    }

    /// The number of replicas for each primary, which may be 0.
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

    /// Sets how each node is started; by default, plainly.
    ///
    /// If it has users, the testbed adds one of its own, which replicas log in as. If it speaks TLS, all nodes speak nothing else,
    /// also with each other.
    #[must_use]
    pub fn nodes(mut self, options: RedisOptions) -> Self {
        self.node = options.node;
        self
    }

    /// Puts a proxy in front of each node. Clients and replicas know only the proxies' addresses.
    ///
    /// The cluster's bus goes through other proxies of its own.
    #[must_use]
    pub fn proxied(mut self) -> Self {
        self.proxied = true;
        self
    }
}

impl Default for ClusterOptions {
    fn default() -> Self {
        Self::new()
    }
}
