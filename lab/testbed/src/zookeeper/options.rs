//! How an ensemble is started.

use std::time::Duration;

use crate::certificates::TlsClients;

/// How an ensemble is started.
#[derive(Clone, Debug)]
pub struct ZooKeeperOptions {
    pub(super) members: usize,
    pub(super) tick: Duration,
    pub(super) tls: Option<TlsClients>,
    pub(super) users: Vec<[String; 2]>,
    pub(super) small_disks: bool,
    pub(super) durable: bool,
    pub(super) optimized: bool,
    pub(super) settings: Vec<[String; 2]>,
    pub(super) properties: Vec<[String; 2]>,
    /// For the archive of classes.
    pub(super) notes_classes: bool,
}

impl ZooKeeperOptions {
    /// One server, open to all clients.
    ///
    /// It ends sessions after one tick at the least, as they ask, and after two minutes at the most.
    pub fn new() -> Self {
        Self {
            members: 1,
            tick: Duration::from_millis(500),
            tls: None,
            users: Vec::new(),
            small_disks: false,
            durable: false,
            optimized: false,
            settings: Vec::new(),
            properties: Vec::new(),
            notes_classes: false,
        }
    }

    /// So many members: one, or three and more.
    #[must_use]
    pub fn members(mut self, members: usize) -> Self {
        self.members = members;
        self
    }

    /// Sets the time that the members count in, in whole milliseconds: they end sessions at multiples of it. By default it is 500 ms.
    #[must_use]
    pub fn tick(mut self, tick: Duration) -> Self {
        self.tick = tick;
        self
    }

    /// Also speaks TLS, at [`ZooKeeper::tls_url`](super::ZooKeeper::tls_url), with certificates made on the spot.
    #[must_use]
    pub fn tls(mut self) -> Self {
        self.tls = Some(TlsClients::NeedNoCertificate);
        self
    }

    /// Also speaks TLS, at [`ZooKeeper::tls_url`](super::ZooKeeper::tls_url), and asks clients for a certificate there.
    #[must_use]
    pub fn tls_with_client_certificates(mut self) -> Self {
        self.tls = Some(TlsClients::NeedCertificate);
        self
    }

    /// Adds a user for SASL (DIGEST-MD5), whose id in access lists is `sasl:name`. Users of the
    /// scheme `digest` do not have to be added.
    #[must_use]
    pub fn sasl_user(mut self, name: &str, password: &str) -> Self {
        self.users.push([name, password].map(str::to_owned));
        self
    }

    /// Puts the log of transactions of each member on a disk of 32 MiB, which [`ZooKeeper::fill_disk`](super::ZooKeeper::fill_disk) fills.
    #[must_use]
    pub fn small_disks(mut self) -> Self {
        self.small_disks = true;
        self
    }

    /// Has its data on the disk and waits for that before it answers, as ZooKeeper does unless it is told not to.
    ///
    /// Without this, its data lies in memory, if the machine has room for it.
    #[must_use]
    pub fn durable(mut self) -> Self {
        self.durable = true;
        self
    }

    /// Has Java optimize frequent code, as it does by default, in the servers and in [`ZooKeeper::curator`](super::ZooKeeper::curator): for benchmarks.
    ///
    /// Without this option, Java loses no time on optimizations that do not pay: servers of tests live for seconds.
    #[must_use]
    pub fn optimized(mut self) -> Self {
        self.optimized = true;
        self
    }

    /// Adds a setting of `zoo.cfg` for every member, such as `syncLimit` and `4`.
    #[must_use]
    pub fn set(mut self, name: &str, value: &str) -> Self {
        self.settings.push([name, value].map(str::to_owned));
        self
    }

    /// Adds a system property for every member, such as `readonlymode.enabled` and `true`.
    #[must_use]
    pub fn property(mut self, name: &str, value: &str) -> Self {
        self.properties.push([name, value].map(str::to_owned));
        self
    }
}

impl Default for ZooKeeperOptions {
    fn default() -> Self {
        Self::new()
    }
}
