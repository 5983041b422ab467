//! Distributed locks for Rust. Leasehold renews a lock while your code runs, cancels your code if
//! the lock is lost, and gives every holder a [fencing token](FencingToken).
//!
//! ```
//! # tokio::runtime::Builder::new_current_thread().enable_all().build()?.block_on(async {
//! // Or `redis://127.0.0.1`, `sqlite:locks.db`, `postgres://…` or `etcd://…`, each with its feature.
//! let client = leasehold::connect("memory:").await?;
//!
//! // Waits for the lock and renews it while the work runs. Stops the work if the lock is lost.
//! let invoice = client.mutex("invoice:42")?;
//! invoice.run(async |guard| println!("held with token {}", guard.token())).await?;
//! # Ok::<(), leasehold::Error>(())
//! # })?;
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! A lock is a *lease*. The store keeps the lease for a limited time, and the client's watchdog
//! renews it. If a process is paused for longer than its lease, another process may acquire the
//! lock in the meantime. No lock can stop the first process from writing when it wakes up. If such
//! a late write would do damage, check the [fencing token](FencingToken) in every write.
//!
//! # Where to start
//!
//! | task | see |
//! | --- | --- |
//! | Create a client | [`connect`], [`connect_with`], [`connect_lazily`], [`LockClient::builder`] |
//! | Acquire a lock | [`Mutex::run`], [`Mutex::try_run`], [`Mutex::lock`], [`Mutex::try_lock`] |
//! | Use a guard | [`LockGuard`]: the token, the deadline, the loss notification |
//! | Configure timeouts, waiting and fairness | [`LockOptions`], [`retry`] |
//! | Handle failures | [`Busy`] means that the lock is held, and [`ErrorKind`] lists the failures |
//! | Shut down a service | [`LockClient::shutdown`]; readiness probes use [`LockClient::ping`] |
//! | Inspect a store or force the release of a lock | [`admin`] |
//! | Get logs, metrics and events | [`observe`] |
//! | Test an application | [`memory`], [`fault`], [`clock`] |
//! | Write a backend | [`backend::LockBackend`] and the `leasehold-conformance` crate |
//!
//! # Lock types
//!
//! | type | holders |
//! | --- | --- |
//! | [`Mutex`] | one at a time |
//! | [`ReentrantMutex`] | one owner at a time, which can lock it again |
//! | [`RwLock`] | many readers or one writer, in order of arrival |
//! | [`Semaphore`] | a fixed number of permits in total; each holder acquires one or more |
//! | [`MultiLock`] | several keys of any lock type, all or none |
//! | [`Striped`] | any one of several interchangeable slots |
//! | [`election`] | one leader, which publishes a value that other processes can read |
//!
//! # Features
//!
//! No feature is enabled by default. A feature only adds API and never changes existing behavior.
//!
//! | feature | adds |
//! | --- | --- |
//! | `redis`, `fred`, `etcd`, `zookeeper`, `postgres`, `mysql`, `sqlite` | a store: its URLs in [`connect`], and a module named after the store |
//! | `redis-tls`, `fred-tls`, `etcd-tls`, `zookeeper-tls`, `postgres-tls`, `mysql-tls` | TLS connections to the store |
//! | `zookeeper-sasl` | SASL authentication for ZooKeeper |
//! | `blocking` | [`blocking`]: the same lock types for threads without an async runtime |
//! | `macros` | [`locked`]: an attribute that runs a function under a lock |
//! | `config` | [`config`]: named locks from a configuration |
//! | `metrics` | [`observe::Metrics`]: metrics for a recorder of the `metrics` crate |
//!
//! The `etcd` feature needs `protoc` at build time. The `docs/` directory of the repository is a
//! book that covers choosing a store, fencing tokens, common patterns, migration, and the exact
//! guarantees of each store.
#![cfg_attr(docsrs, feature(doc_cfg))]
// The futures of the store clients exceed the compiler's default recursion limit.
#![recursion_limit = "256"]

mod connect;
mod redlock;
mod stores;

// The guide is tested only if all of these features are enabled, because its pages use all of them.
#[cfg(all(
    doctest,
    feature = "blocking",
    feature = "etcd",
    feature = "mysql",
    feature = "postgres",
    feature = "redis",
    feature = "sqlite",
    feature = "zookeeper",
))]
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

/// The contract between the lock types and a store. Use it to write a backend.
///
/// This module re-exports [`leasehold_core::backend`] and adds [`connect`](backend::connect) and
/// [`connect_lazily`](backend::connect_lazily), which create a backend from a URL.
pub mod backend {
    pub use crate::connect::{backend as connect, backend_lazily as connect_lazily};
    pub use leasehold_core::backend::*;
}

/// Locks on an etcd cluster.
///
/// The `etcd-client` crate needs `protoc` at build time. The README explains how to install
/// `protoc`.
#[cfg(feature = "etcd")]
pub mod etcd {
    pub use leasehold_etcd::{EtcdBackend, EtcdConfig, EtcdGuard};
}

/// Locks on Redis and Valkey, through the `fred` crate. Supports single servers, Sentinel and
/// Cluster.
#[cfg(feature = "fred")]
pub mod fred {
    pub use leasehold_fred::{FredBackend, FredConfig, Replicas};
}

/// Locks in a MySQL or MariaDB database.
#[cfg(feature = "mysql")]
pub mod mysql {
    pub use leasehold_mysql::{
        Call, MysqlBackend, MysqlConfig, Row, Run, RunError, Urgency, reported,
    };
}

/// Locks in a PostgreSQL database.
#[cfg(feature = "postgres")]
pub mod postgres {
    pub use leasehold_postgres::{
        Call, PostgresBackend, PostgresConfig, Row, Run, RunError, Urgency, reported,
    };
}

/// Locks on a majority of independent stores.
#[cfg(feature = "quorum")]
pub mod quorum {
    pub use leasehold_quorum::{Quorum, QuorumBuilder};
}

/// Locks on Redis and Valkey, through the `redis` crate. Supports single servers, Sentinel and
/// Cluster.
#[cfg(feature = "redis")]
pub mod redis {
    pub use leasehold_redis::{RedisBackend, RedisConfig, Replicas};
}

/// Locks in a SQLite file, for processes on the same machine.
#[cfg(feature = "sqlite")]
pub mod sqlite {
    pub use leasehold_sqlite::{SqliteBackend, SqliteConfig};
}

/// Locks on a ZooKeeper ensemble, with the node layout of Apache Curator.
#[cfg(feature = "zookeeper")]
pub mod zookeeper {
    pub use leasehold_zookeeper::{ZooKeeperBackend, ZooKeeperConfig};
}
