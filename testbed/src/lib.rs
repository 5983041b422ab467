//! Starts, stops, pauses and cuts off real servers, for the tests of this workspace.
//!
//! Every server runs on a free loopback port, in a temporary folder of its own, and dies with its
//! handle, also when the test panics. A server whose program is missing is a failure and never skipped:
//! `scripts/test` installs the programs.

mod cache;
mod certificates;
mod clock;
mod database;
mod disk;
mod etcd;
mod instance;
mod mariadb;
mod memory;
mod patience;
mod port;
mod postgres;
mod process;
mod proxy;
mod pulse;
mod redis;
mod template;
mod unprivileged;
mod until;
mod zookeeper;

pub use certificates::Certificates;
pub use clock::{Pace, ServerClock};
pub use database::{DatabaseKind, DatabaseOptions, DatabaseServer};
pub use disk::fill_up;
pub use etcd::{CtlLock, Etcd, EtcdOptions};
pub use mariadb::{MariaDb, MariaDbOptions};
pub use memory::Folder;
pub use patience::patiently;
pub use port::free_port;
pub use postgres::{PgBouncer, Postgres, PostgresOptions};
pub use process::{Process, give_groups, group_of};
pub use proxy::{FaultProxy, Weather};
pub use redis::{
    ClusterOptions, Redis, RedisCluster, RedisOptions, RedisSentinel, SentinelOptions,
};
pub use until::{until, until_some};
pub use zookeeper::{Curator, CuratorEvent, ZooKeeper, ZooKeeperOptions};
