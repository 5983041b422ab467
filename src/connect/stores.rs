//! The stores. Each of them needs a Cargo feature.

use std::sync::Arc;

use leasehold_core::backend::{LockBackend, Operation};
use leasehold_core::{Error, ErrorKind};

use super::invalid;

/// Two functions that return the store at a URL: connected, and to be connected by the first request. Both refuse if the program is built
/// without the feature.
macro_rules! store {
    ($store:literal, $feature:literal: $connect:ident, $connect_lazily:ident, $backend:path, $config:path) => {
        pub(super) async fn $connect(url: &str) -> Result<Arc<dyn LockBackend>, Error> {
            #[cfg(feature = $feature)]
            return Ok(Arc::new(<$backend>::connect(url).await?));
            #[cfg(not(feature = $feature))]
            $connect_lazily(url)
        }

        pub(super) fn $connect_lazily(url: &str) -> Result<Arc<dyn LockBackend>, Error> {
            #[cfg(feature = $feature)]
            return Ok(Arc::new(<$backend>::connect_lazily(<$config>::from_url(url)?)));
            #[cfg(not(feature = $feature))]
            {
                let _ = url;
                Err(not_built_in($store, $feature))
            }
        }
    };
}

store!("etcd", "etcd": etcd, etcd_lazily, leasehold_etcd::EtcdBackend, leasehold_etcd::EtcdConfig);
store!("client=fred", "fred": with_fred, with_fred_lazily, leasehold_fred::FredBackend, leasehold_fred::FredConfig);
store!("MySQL and MariaDB", "mysql": mysql, mysql_lazily, leasehold_mysql::MysqlBackend, leasehold_mysql::MysqlConfig);
store!("PostgreSQL", "postgres": postgres, postgres_lazily, leasehold_postgres::PostgresBackend, leasehold_postgres::PostgresConfig);
store!("Redis", "redis": with_redis, with_redis_lazily, leasehold_redis::RedisBackend, leasehold_redis::RedisConfig);
store!("SQLite", "sqlite": sqlite, sqlite_lazily, leasehold_sqlite::SqliteBackend, leasehold_sqlite::SqliteConfig);

pub(super) async fn zookeeper(url: &str) -> Result<Arc<dyn LockBackend>, Error> {
    #[cfg(feature = "zookeeper")]
    return Ok(Arc::new(leasehold_zookeeper::ZooKeeperBackend::connect(url).await?));
    #[cfg(not(feature = "zookeeper"))]
    {
        let _ = url;
        Err(not_built_in("ZooKeeper", "zookeeper"))
    }
}

/// The crate that speaks to Redis.
enum RedisClient {
    Redis,
    Fred,
}

impl RedisClient {
    fn of(url: &str) -> Result<Self, Error> {
        let (_, query) = url.split_once('?').unwrap_or_default();
        let mut clients = query.split('&').filter_map(|pair| pair.strip_prefix("client="));
        match clients.next_back() {
            Some("redis") => Ok(Self::Redis),
            Some("fred") => Ok(Self::Fred),
            Some(_) => Err(invalid("client in the URL must be redis or fred")),
            None if cfg!(feature = "redis") || !cfg!(feature = "fred") => Ok(Self::Redis),
            None => Ok(Self::Fred),
        }
    }
}

pub(super) async fn redis(url: &str) -> Result<Arc<dyn LockBackend>, Error> {
    match RedisClient::of(url)? {
        RedisClient::Redis => with_redis(url).await,
        RedisClient::Fred => with_fred(url).await,
    }
}

/// The store at `url`, to which the first request connects.
pub(crate) fn redis_lazily(url: &str) -> Result<Arc<dyn LockBackend>, Error> {
    match RedisClient::of(url)? {
        RedisClient::Redis => with_redis_lazily(url),
        RedisClient::Fred => with_fred_lazily(url),
    }
}

/// The refusal of a URL whose store the program does not have.
#[cfg_attr(not(test), allow(dead_code, reason = "a program with all stores refuses none"))]
pub(super) fn not_built_in(store: &str, feature: &str) -> Error {
    let is = if store.contains(" and ") { "are" } else { "is" };
    let with_tls = if feature == "sqlite" { "" } else { &format!(", with TLS `{feature}-tls`") };
    let message = format!(
        "{store} {is} not built into this program: build it with the Cargo feature `{feature}`{with_tls}"
    );
    Error::new(ErrorKind::Unsupported, message).with_operation(Operation::Connect)
}
