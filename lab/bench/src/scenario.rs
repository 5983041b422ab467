//! The scenarios of the bench.

pub(crate) mod crowd;
pub(crate) mod hand_over;
pub(crate) mod held;

mod cluster;
mod cycle;
mod etcd_hand_over;
mod etcd_keep_alive;
mod etcd_lock;
mod etcd_waiting;
mod hot;
mod many;
mod memory;
mod one;
mod quorum;
mod sql_churn;
mod sql_lock;
mod waiting;
mod zookeeper;

use clap::ValueEnum;

use crate::args::Args;
use crate::database::Database;
use crate::outcome::Outcome;

/// A scenario.
#[derive(Clone, Copy, Debug, ValueEnum)]
pub(crate) enum Scenario {
    /// Redis, one task with one key: lock and release.
    RedisOne,
    /// Redis, 64 and 512 tasks with a key each: lock and release.
    RedisMany,
    /// The same, where the server has a processor for itself and the clients have the others.
    RedisManyApart,
    /// A Redis cluster, 64 and 512 tasks with a key each, beside a server by itself: lock and release.
    RedisCluster,
    /// Redis, 64 tasks of one process with one key: lock and release.
    RedisHot,
    /// Redis, two processes with one key: from the beginning of a release to the other's lock.
    RedisHandOver,
    /// Redis, 200 waiters in four processes with one key: the cost of a hand-over.
    RedisCrowd,
    /// Redis, 100,000 leases: the cost of holding them.
    RedisHeld,
    /// Redis, 1,000,000 leases: the cost of holding them.
    RedisHeldMillion,
    /// Redis, 4,000 clients that wait for one key: the server's work, and that of each turn.
    RedisWaiting,
    /// Five Redis servers as a quorum, beside one: lock and release, with a member that is stopped, and 2 to 50 clients that compete for one key.
    Quorum,
    /// In memory, one task with one key: lock and release.
    Memory,
    /// etcd, one task with one key: lock and release.
    EtcdLock,
    /// etcd, two clients with one key: from the beginning of a release to the other's lock.
    EtcdHandOver,
    /// etcd, one lock and 1,000: how often the server hears of them.
    EtcdKeepAlive,
    /// etcd, 40, 300 and 1,000 clients that wait for one key: the server's work, and that of each turn.
    EtcdWaiting,
    /// PostgreSQL, one task with one key: lock and release.
    PostgresLock,
    /// PostgreSQL, two processes with one key: from the beginning of a release to the other's lock.
    PostgresHandOver,
    /// MariaDB, one task with one key: lock and release.
    MariadbLock,
    /// MariaDB, two processes with one key: from the beginning of a release to the other's lock.
    MariadbHandOver,
    /// SQLite, one task with one key: lock and release.
    SqliteLock,
    /// SQLite, two processes with one key: from the beginning of a release to the other's lock.
    SqliteHandOver,
    /// PostgreSQL, MariaDB and SQLite, 10,000 leases: the cost of holding them.
    SqlHeld,
    /// PostgreSQL, MariaDB and SQLite, ten minutes of locks each on keys that come and go: the size of the tables.
    SqlChurn,
    /// ZooKeeper, one task with one key, beside Apache Curator: lock and release.
    ZookeeperLock,
    /// ZooKeeper, two clients with one key, beside Apache Curator.
    ZookeeperHandOver,
    /// ZooKeeper, 1,000 leases, beside Apache Curator: the cost of holding them.
    ZookeeperHeld,
}

impl Scenario {
    /// Measures it, on servers of its own.
    pub(crate) async fn run(self, args: &Args) -> Vec<Outcome> {
        match self {
            Self::RedisOne => vec![one::run(args).await],
            Self::RedisMany => many::run(args).await,
            Self::RedisManyApart => many::run_apart(args).await,
            Self::RedisCluster => cluster::run(args).await,
            Self::RedisHot => vec![hot::run(args).await],
            Self::RedisHandOver => vec![hand_over::run(args).await],
            Self::RedisCrowd => vec![crowd::run(args).await],
            Self::RedisHeld => vec![held::run(args).await],
            Self::RedisHeldMillion => vec![held::run_million(args).await],
            Self::RedisWaiting => vec![waiting::run(args).await],
            Self::Quorum => quorum::run(args).await,
            Self::Memory => vec![memory::run(args).await],
            Self::EtcdLock => etcd_lock::run(args).await,
            Self::EtcdHandOver => vec![etcd_hand_over::run(args).await],
            Self::EtcdKeepAlive => vec![etcd_keep_alive::run(args).await],
            Self::EtcdWaiting => vec![etcd_waiting::run(args).await],
            Self::PostgresLock => sql_lock::run(Database::Postgres, args).await,
            Self::PostgresHandOver => vec![hand_over::run_on(Database::Postgres, args).await],
            Self::MariadbLock => sql_lock::run(Database::MariaDb, args).await,
            Self::MariadbHandOver => vec![hand_over::run_on(Database::MariaDb, args).await],
            Self::SqliteLock => sql_lock::run(Database::Sqlite, args).await,
            Self::SqliteHandOver => vec![hand_over::run_on(Database::Sqlite, args).await],
            Self::SqlHeld => vec![held::run_on_databases(args).await],
            Self::SqlChurn => vec![sql_churn::run(args).await],
            Self::ZookeeperLock => zookeeper::lock(args).await,
            Self::ZookeeperHandOver => vec![zookeeper::hand_over(args).await],
            Self::ZookeeperHeld => vec![zookeeper::held(args).await],
        }
    }
}
