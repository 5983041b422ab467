//! A distributed lock over the store of your choice, with a fencing token for each holder and an honest signal when the lock is lost.
//!
//! ```
//! # tokio::runtime::Builder::new_current_thread().enable_all().build()?.block_on(async {
//! // Or `redis://127.0.0.1`, `sqlite:locks.db`, `postgres://…`, `etcd://…`, by a feature each.
//! let client = leasehold::connect("memory:").await?;
//!
//! // Waits for the lock, renews its lease while the work runs, and stops the work if the lease is lost.
//! let invoice = client.mutex("invoice:42")?;
//! invoice.run(async |guard| println!("held with token {}", guard.token())).await?;
//! # Ok::<(), leasehold::Error>(())
//! # })?;
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! A lock is a *lease*: the store keeps it for a time, and the watchdog of the client renews it. A lease keeps well-behaved processes apart. A process that is
//! paused writes late all the same; the [fencing token](FencingToken) lets the resource refuse that write.
//!
//! # Where to begin
//!
//! | to | see |
//! | --- | --- |
//! | make a client | [`connect`], [`connect_with`], [`connect_lazily`], [`LockClient::builder`] |
//! | take a lock | [`Mutex::run`], [`Mutex::try_run`], [`Mutex::lock`], [`Mutex::try_lock`] |
//! | hold it | [`LockGuard`]: its token, its deadline, its loss |
//! | choose times, waiting and fairness | [`LockOptions`], [`retry`] |
//! | handle failures | [`Busy`] is an outcome; [`ErrorKind`] has the failures |
//! | end a service | [`LockClient::shutdown`]; [`LockClient::ping`] for its probe of readiness |
//! | look into a store, end a lease by force | [`admin`] |
//! | have logs, metrics, events | [`observe`] |
//! | test an application | [`memory`], [`fault`], [`clock`] |
//! | write a backend | [`backend::LockBackend`], and the crate `leasehold-conformance` |
//!
//! # Kinds of lock
//!
//! | | |
//! | --- | --- |
//! | [`Mutex`] | one holder at a time |
//! | [`ReentrantMutex`] | one owner at a time, which may enter again |
//! | [`RwLock`] | many readers or one writer, in order of arrival |
//! | [`Semaphore`] | so many permits, taken some at a time |
//! | [`MultiLock`] | several keys, of any kinds, all or none |
//! | [`Striped`] | a resource in segments, of which a caller takes any |
//! | [`election`] | one leader, which proclaims a value that others observe |
//!
//! # Features
//!
//! No feature is on by default, and each adds API without changing any.
//!
//! | feature | adds |
//! | --- | --- |
//! | `redis`, `fred`, `etcd`, `zookeeper`, `postgres`, `mysql`, `sqlite` | a store: its URLs in [`connect`], and a module of its name |
//! | `redis-tls`, `fred-tls`, `etcd-tls`, `zookeeper-tls`, `postgres-tls`, `mysql-tls` | the same over TLS |
//! | `zookeeper-sasl` | users of SASL |
//! | `blocking` | [`blocking`]: the same locks for threads without a runtime |
//! | `macros` | [`locked`]: a function that runs under a lock |
//! | `config` | [`config`]: locks by name, from a configuration |
//! | `metrics` | [`observe::Metrics`]: metrics for a recorder of the crate `metrics` |
//!
//! The feature `etcd` takes `protoc` to build. The folder `docs/` of the repository is a book: the choice of a store, fencing in practice, patterns, migration,
//! and the exact promises of each store.
#![cfg_attr(docsrs, feature(doc_cfg))]
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
    pub use leasehold_etcd::{EtcdBackend, EtcdConfig, EtcdGuard};
}

/// Locks on Redis and Valkey, with the `fred` crate: one server, Sentinel, Cluster.
#[cfg(feature = "fred")]
pub mod fred {
    pub use leasehold_fred::{FredBackend, FredConfig, Replicas};
}

/// Locks in a MySQL or MariaDB database.
#[cfg(feature = "mysql")]
pub mod mysql {
    pub use leasehold_mysql::{
        MysqlBackend, MysqlConfig, Row, Run, RunError, Text, Urgency, reported,
    };
}

/// Locks in a PostgreSQL database.
#[cfg(feature = "postgres")]
pub mod postgres {
    pub use leasehold_postgres::{
        PostgresBackend, PostgresConfig, Row, Run, RunError, Text, Urgency, reported,
    };
}

/// Locks on Redis and Valkey, with the `redis` crate: one server, Sentinel, Cluster.
#[cfg(feature = "redis")]
pub mod redis {
    pub use leasehold_redis::{RedisBackend, RedisConfig, Replicas};
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
