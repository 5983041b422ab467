//! Functions that connect to each store. Every store needs a Cargo feature.

use std::sync::Arc;

use leasehold_core::backend::{LockBackend, Operation};
use leasehold_core::{Error, ErrorKind};

use super::invalid;

/// Defines two functions that return the store at a URL. The first function connects immediately,
/// and the second function returns a store that connects on the first request. Both functions
/// return an error if the store's feature is disabled.
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

/// The client crate for Redis.
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
            Some(_) => Err(invalid("the URL parameter client must be redis or fred")),
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
pub(super) fn not_built_in(store: &str, feature: &str) -> Error {
    let tls = if feature == "sqlite" { "" } else { &format!(", or \"{feature}-tls\" for TLS") };
    let message = format!(
        "{store} support is disabled; enable the feature \"{feature}\" of the crate leasehold{tls}"
    );
    Error::new(ErrorKind::Unsupported, message).with_operation(Operation::Connect)
}
