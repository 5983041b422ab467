//! How servers with sentinels are started.

use std::time::Duration;

use super::super::RedisOptions;
use super::super::settings::NodeOptions;

/// How a primary, its replicas and their sentinels are started.
#[derive(Clone, Debug)]
pub struct SentinelOptions {
    pub(super) node: NodeOptions,
    pub(super) replicas: usize,
    pub(super) sentinels: usize,
    pub(super) down_after: Duration,
    pub(super) sentinel_password: Option<String>,
    pub(super) proxied: bool,
    pub(super) fast: bool,
}

impl SentinelOptions {
    /// One replica and three sentinels, which everybody may use.
    pub fn new() -> Self {
        Self {
            node: NodeOptions::default(),
            replicas: 1,
            sentinels: 3,
            down_after: Duration::from_millis(500),
            sentinel_password: None,
            proxied: false,
            fast: false,
        }
    }

    /// So many replicas.
    #[must_use]
    pub fn replicas(mut self, replicas: usize) -> Self {
        self.replicas = replicas;
        self
    }

    /// So many sentinels.
    #[must_use]
    pub fn sentinels(mut self, sentinels: usize) -> Self {
        self.sentinels = sentinels;
        self
    }

    /// Sets for how long a server is silent until a sentinel takes it for gone. By default, that is half a second.
    #[must_use]
    pub fn down_after(mut self, silence: Duration) -> Self {
        self.down_after = silence;
        self
    }

    /// Lets the sentinels look around more often than they do by themselves.
    ///
    /// A failover takes about two thirds of the usual time, and a former primary is reconfigured
    /// one second after its return instead of ten. Requires Redis 7.0.
    #[must_use]
    pub fn fast(mut self) -> Self {
        self.fast = true;
        self
    }

    /// Sets how each of the servers that hold data is started; by default, plainly.
    ///
    /// If it has users, the testbed adds one of its own, which replicas and sentinels log in as. If it speaks TLS, all speak
    /// nothing else, also with each other.
    #[must_use]
    pub fn nodes(mut self, options: RedisOptions) -> Self {
        self.node = options.node;
        self
    }

    /// Sets the password that the sentinels ask for.
    #[must_use]
    pub fn sentinel_password(mut self, password: impl Into<String>) -> Self {
        self.sentinel_password = Some(password.into());
        self
    }

    /// Puts a proxy in front of each server and each sentinel. Clients, servers and sentinels know
    /// only the proxies' addresses.
    #[must_use]
    pub fn proxied(mut self) -> Self {
        self.proxied = true;
        self
    }
}

impl Default for SentinelOptions {
    fn default() -> Self {
        Self::new()
    }
}
