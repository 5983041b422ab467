#![doc = include_str!("../README.md")]
// The futures of the store clients are nested deeper than the compiler's default allows.
#![recursion_limit = "256"]

mod connect;
mod redlock;

// All features: the pages show all of them.
#[cfg(all(doctest, feature = "blocking", feature = "postgres", feature = "sqlite"))]
mod guide;

#[cfg(feature = "blocking")]
pub mod blocking;

#[cfg(feature = "config")]
pub mod config;

#[cfg(feature = "macros")]
mod locked;

pub use connect::{connect, connect_lazily, connect_with};
pub use leasehold_core::*;
#[cfg(feature = "macros")]
pub use locked::{__locked, locked};

/// The contract between locks and their store, for code that brings a store of its own; and [`connect`](backend::connect), which makes one
/// from a URL.
///
/// All of [`leasehold_core::backend`].
pub mod backend {
    pub use crate::connect::backend as connect;
    pub use leasehold_core::backend::*;
}

/// Locks on one etcd cluster.
///
/// The client crate runs `protoc` when it is built, see the README.
#[cfg(feature = "etcd")]
pub mod etcd {
    pub use leasehold_etcd::{EtcdBackend, EtcdConfig, EtcdGuard, etcd_client as client};
}

/// Locks on Redis and Valkey, with the `fred` crate: one server, Sentinel, Cluster.
#[cfg(feature = "fred")]
pub mod fred {
    pub use leasehold_fred::{FredBackend, FredConfig, Replicas, fred as client};
}

/// Locks in a MySQL or MariaDB database.
#[cfg(feature = "mysql")]
pub mod mysql {
    pub use leasehold_mysql::{
        MysqlBackend, MysqlConfig, Row, Run, RunError, Text, Urgency, mysql_async as client,
        reported,
    };
}

/// Locks in a PostgreSQL database.
#[cfg(feature = "postgres")]
pub mod postgres {
    pub use leasehold_postgres::{
        PostgresBackend, PostgresConfig, Row, Run, RunError, Text, Urgency, reported,
        tokio_postgres as client,
    };
}

/// Locks on Redis and Valkey, with the `redis` crate: one server, Sentinel, Cluster.
#[cfg(feature = "redis")]
pub mod redis {
    pub use leasehold_redis::{RedisBackend, RedisConfig, Replicas, redis as client};
}

/// Locks in a SQLite file, for the processes of one machine.
#[cfg(feature = "sqlite")]
pub mod sqlite {
    pub use leasehold_sqlite::{SqliteBackend, SqliteConfig};
}

/// Locks on a ZooKeeper ensemble, in the layout of Apache Curator.
#[cfg(feature = "zookeeper")]
pub mod zookeeper {
    pub use leasehold_zookeeper::{ZooKeeperBackend, ZooKeeperConfig};
}
