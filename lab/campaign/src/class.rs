//! The classes of stores.

use std::borrow::Cow;
use std::time::Duration;

use clap::ValueEnum;
use leasehold_conformance::history::checker::Bounds;

/// A class of store.
#[derive(Clone, Copy, Debug, Eq, PartialEq, ValueEnum)]
pub enum Class {
    /// One Redis server.
    Redis,
    /// A Redis server with a replica and three sentinels.
    Sentinel,
    /// A Redis Cluster of three primaries with a replica each.
    Cluster,
    /// A quorum of five Redis servers.
    Quorum,
    /// An etcd cluster of three members.
    Etcd,
    /// A PostgreSQL server with a synchronous replica.
    Postgres,
    /// A MariaDB server.
    Mariadb,
    /// A SQLite file.
    Sqlite,
    /// A ZooKeeper ensemble of three members.
    Zookeeper,
    /// A store in each process, so that none excludes another: to see that this is found.
    Memory,
    /// A store that was there before, and stays.
    #[value(skip)]
    Given,
}

impl Class {
    /// All of them.
    pub const ALL: [Self; 11] = [
        Self::Redis,
        Self::Sentinel,
        Self::Cluster,
        Self::Quorum,
        Self::Etcd,
        Self::Postgres,
        Self::Mariadb,
        Self::Sqlite,
        Self::Zookeeper,
        Self::Memory,
        Self::Given,
    ];

    /// All that a campaign visits unless it is told otherwise.
    pub const REAL: [Self; 9] = *Self::ALL.first_chunk().unwrap();

    /// The name in one word, as on the command line.
    pub fn name(self) -> Cow<'static, str> {
        match self.to_possible_value() {
            Some(value) => value.get_name().to_owned().into(),
            None => "given".into(),
        }
    }

    /// The title of its page.
    pub fn title(self) -> &'static str {
        match self {
            Self::Redis => "One Redis",
            Self::Sentinel => "Redis with Sentinel",
            Self::Cluster => "Redis Cluster",
            Self::Quorum => "A quorum of five Redis",
            Self::Etcd => "etcd, three members",
            Self::Postgres => "PostgreSQL with a replica",
            Self::Mariadb => "MariaDB",
            Self::Sqlite => "A SQLite file",
            Self::Zookeeper => "ZooKeeper, three members",
            Self::Memory => "A store in each process",
            // Without its URL, which may have a password.
            Self::Given => "The store given",
        }
    }

    /// The TTL of leases, and the time that the store may need after a fault.
    ///
    /// etcd and ZooKeeper elect a leader first, and count leases from then on; a primary of Redis is replaced within seconds, and the old one must hear of it.
    pub fn bounds(self) -> Bounds {
        let (ttl_ms, recovery_s) = match self {
            Self::Sentinel | Self::Cluster => (2_000, 8),
            Self::Quorum => (2_000, 4),
            Self::Etcd | Self::Zookeeper => (3_000, 8),
            _ => (1_000, 4),
        };
        let (ttl, recovery) = (Duration::from_millis(ttl_ms), Duration::from_secs(recovery_s));
        Bounds { ttl, recovery, after_effects: None }
    }
}
