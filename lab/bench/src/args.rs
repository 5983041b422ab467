//! The arguments of the bench.

use std::path::PathBuf;
use std::time::Duration;

use clap::{Parser, ValueEnum};

/// Measures locks, side by side in one run, on servers that it starts itself.
#[derive(Clone, Debug, Parser)]
#[command(name = "leasehold-bench")]
pub(crate) struct Args {
    /// The scenarios to measure. Without any, the bench measures all, which takes an hour and a half.
    scenarios: Vec<Scenario>,
    /// How often each contestant is measured, in turns.
    #[arg(long, default_value_t = 5, value_parser = clap::value_parser!(u32).range(1..))]
    pub(crate) rounds: u32,
    /// Too short to mean anything: only to see that all of it works.
    #[arg(long)]
    pub(crate) quick: bool,
    /// Only contestants with this in their names, for a profiler.
    #[arg(long, value_name = "TEXT", default_value = "")]
    pub(crate) only: String,
    /// Threads of the runtime, in each process.
    #[arg(long, value_name = "THREADS", default_value_t = 2, value_parser = at_least_one)]
    pub(crate) workers: usize,
    /// Prints tables for `docs/performance.md`.
    #[arg(long)]
    pub(crate) markdown: bool,
    /// Writes all figures of all rounds to a file.
    #[arg(long, value_name = "FILE")]
    pub(crate) json: Option<PathBuf>,
    /// Draws a plot of each scenario into a folder.
    #[arg(long, value_name = "DIR")]
    pub(crate) svg: Option<PathBuf>,
    /// The plan of this process, which the parent process provides.
    #[arg(long, hide = true)]
    pub(crate) child: Option<String>,
}

impl Args {
    pub(crate) fn scenarios(&self) -> &[Scenario] {
        match &self.scenarios[..] {
            [] => Scenario::value_variants(),
            chosen => chosen,
        }
    }

    /// Returns these arguments with one round.
    pub(crate) fn once(&self) -> Self {
        Self { rounds: 1, ..self.clone() }
    }

    /// `full`, or `quick` if it is only to be seen that all works.
    pub(crate) fn scale<T>(&self, full: T, quick: T) -> T {
        if self.quick { quick } else { full }
    }

    /// How long a contestant is measured in a round, where that can be chosen.
    pub(crate) fn time(&self) -> Duration {
        self.scale(Duration::from_millis(1_500), Duration::from_millis(300))
    }
}

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
    /// PostgreSQL and MariaDB, 200,000 locks of one key under an old snapshot: how much the cost of a lock grows.
    SqlSnapshot,
    /// ZooKeeper, one task with one key, beside Apache Curator: lock and release.
    ZookeeperLock,
    /// ZooKeeper, two clients with one key, beside Apache Curator.
    ZookeeperHandOver,
    /// ZooKeeper, 1,000 leases, beside Apache Curator: the cost of holding them.
    ZookeeperHeld,
}

fn at_least_one(text: &str) -> Result<usize, String> {
    match text.parse() {
        Ok(0) => Err("there must be one".to_owned()),
        Ok(count) => Ok(count),
        Err(error) => Err(error.to_string()),
    }
}
