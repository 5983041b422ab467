//! Starts, stops, pauses and disconnects real servers for the tests of this workspace.
//!
//! Every server listens on a free loopback port and uses its own temporary directory. The server is killed when its handle is dropped, even if the
//! test panics. If a server program is missing, the test fails and is not skipped. `scripts/test` installs the programs.

mod cache;
mod certificates;
mod clock;
mod database;
mod disk;
mod etcd;
mod galera;
mod heartbeat;
mod instance;
mod mariadb;
mod memory;
mod patience;
mod port;
mod postgres;
mod process;
mod proxy;
mod redis;
mod template;
mod unprivileged;
mod until;
mod warnings;
mod zookeeper;

pub use certificates::Certificates;
pub use clock::{Pace, ServerClock};
pub use database::{DatabaseKind, DatabaseOptions, DatabaseServer};
pub use disk::fill_up;
pub use etcd::{CtlLock, Etcd, EtcdOptions};
pub use galera::Galera;
pub use mariadb::{MariaDb, MariaDbOptions};
pub use memory::Folder;
pub use patience::patiently;
pub use port::free_port;
pub use postgres::{PgBouncer, PoolMode, Postgres, PostgresOptions};
pub use process::{Process, give_groups, group_of};
pub use proxy::{FaultProxy, NetworkFault};
pub use redis::{
    ClusterOptions, Redis, RedisCluster, RedisOptions, RedisSentinel, SentinelOptions,
};
pub use until::{until, until_some};
pub use warnings::Warnings;
pub use zookeeper::{Curator, CuratorEvent, ZooKeeper, ZooKeeperOptions};
