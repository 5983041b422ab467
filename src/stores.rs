//! Functions that connect to each store. Every store needs a Cargo feature.

use std::sync::Arc;

use leasehold_core::backend::{LockBackend, Operation};
use leasehold_core::{Error, ErrorKind};
use leasehold_settings::StoreUrl;

/// Defines two functions that return the store at a URL. The first function connects immediately,
/// and the second function returns a store that connects on the first request. Both functions
/// return an error if the store's feature is disabled.
macro_rules! store {
    ($store:literal, $feature:literal: $connect:ident, $connect_lazily:ident, $backend:path, $config:path) => {
        pub(crate) async fn $connect(url: &str) -> Result<Arc<dyn LockBackend>, Error> {
            #[cfg(feature = $feature)]
            return Ok(Arc::new(<$backend>::connect(url).await?));
            #[cfg(not(feature = $feature))]
            $connect_lazily(url)
        }

        pub(crate) fn $connect_lazily(url: &str) -> Result<Arc<dyn LockBackend>, Error> {
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

pub(crate) async fn zookeeper(url: &str) -> Result<Arc<dyn LockBackend>, Error> {
    #[cfg(feature = "zookeeper")]
    return Ok(Arc::new(leasehold_zookeeper::ZooKeeperBackend::connect(url).await?));
    #[cfg(not(feature = "zookeeper"))]
    {
        let _ = url;
        Err(not_built_in("ZooKeeper", "zookeeper"))
    }
}

/// The client crate for Redis.
enum RedisClient {
    Redis,
    Fred,
}

impl RedisClient {
    fn of(url: &str) -> Result<Self, Error> {
        let clients = [("redis", Self::Redis), ("fred", Self::Fred)];
        let chosen = StoreUrl::parse(url).and_then(|url| url.options()?.choice("client", clients));
        match chosen.map_err(refused)? {
            Some(client) => Ok(client),
            None if cfg!(feature = "redis") || !cfg!(feature = "fred") => Ok(Self::Redis),
            None => Ok(Self::Fred),
        }
    }
}

pub(crate) async fn redis(url: &str) -> Result<Arc<dyn LockBackend>, Error> {
    match RedisClient::of(url)? {
        RedisClient::Redis => with_redis(url).await,
        RedisClient::Fred => with_fred(url).await,
    }
}

/// Returns the store at `url`. The first request connects to it.
pub(crate) fn redis_lazily(url: &str) -> Result<Arc<dyn LockBackend>, Error> {
    match RedisClient::of(url)? {
        RedisClient::Redis => with_redis_lazily(url),
        RedisClient::Fred => with_fred_lazily(url),
    }
}

/// Returns the error for a URL whose store needs a feature that is disabled.
#[cfg_attr(
    not(test),
    allow(dead_code, reason = "not used if the features of all stores are enabled")
)]
pub(crate) fn not_built_in(store: &str, feature: &str) -> Error {
    let tls = if matches!(feature, "quorum" | "sqlite") {
        ""
    } else {
        &format!(", or \"{feature}-tls\" for TLS")
    };
    let message = format!(
        "{store} support is disabled; enable the feature \"{feature}\" of the crate leasehold{tls}"
    );
    Error::new(ErrorKind::Unsupported, message).with_operation(Operation::Connect)
}

/// Adds the operation to the error for a URL.
pub(crate) fn refused(error: Error) -> Error {
    error.with_operation(Operation::Connect)
}
