//! The stores, each of which a Cargo feature builds in.

use std::sync::Arc;

use leasehold_core::Error;
use leasehold_core::backend::LockBackend;

use super::invalid;

#[cfg(feature = "etcd")]
pub(super) async fn etcd(url: &str) -> Result<Arc<dyn LockBackend>, Error> {
    Ok(Arc::new(leasehold_etcd::EtcdBackend::connect(url).await?))
}

#[cfg(feature = "etcd")]
pub(super) fn etcd_lazily(url: &str) -> Result<Arc<dyn LockBackend>, Error> {
    use leasehold_etcd::{EtcdBackend, EtcdConfig};
    Ok(Arc::new(EtcdBackend::connect_lazily(EtcdConfig::from_url(url)?)))
}

#[cfg(not(feature = "etcd"))]
pub(super) async fn etcd(url: &str) -> Result<Arc<dyn LockBackend>, Error> {
    etcd_lazily(url)
}

#[cfg(not(feature = "etcd"))]
pub(super) fn etcd_lazily(_url: &str) -> Result<Arc<dyn LockBackend>, Error> {
    Err(unsupported(
        "etcd is not built into this program: build it with the Cargo feature `etcd`, with TLS `etcd-tls`",
    ))
}

#[cfg(feature = "postgres")]
pub(super) async fn postgres(url: &str) -> Result<Arc<dyn LockBackend>, Error> {
    Ok(Arc::new(leasehold_postgres::PostgresBackend::connect(url).await?))
}

#[cfg(feature = "postgres")]
pub(super) fn postgres_lazily(url: &str) -> Result<Arc<dyn LockBackend>, Error> {
    use leasehold_postgres::{PostgresBackend, PostgresConfig};
    Ok(Arc::new(PostgresBackend::connect_lazily(PostgresConfig::from_url(url)?)))
}

#[cfg(not(feature = "postgres"))]
pub(super) async fn postgres(url: &str) -> Result<Arc<dyn LockBackend>, Error> {
    postgres_lazily(url)
}

#[cfg(not(feature = "postgres"))]
pub(super) fn postgres_lazily(_url: &str) -> Result<Arc<dyn LockBackend>, Error> {
    Err(unsupported(
        "PostgreSQL is not built into this program: build it with the Cargo feature `postgres`, with TLS `postgres-tls`",
    ))
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

#[cfg(feature = "redis")]
async fn with_redis(url: &str) -> Result<Arc<dyn LockBackend>, Error> {
    Ok(Arc::new(leasehold_redis::RedisBackend::connect(url).await?))
}

#[cfg(feature = "redis")]
fn with_redis_lazily(url: &str) -> Result<Arc<dyn LockBackend>, Error> {
    use leasehold_redis::{RedisBackend, RedisConfig};
    Ok(Arc::new(RedisBackend::connect_lazily(RedisConfig::from_url(url)?)))
}

#[cfg(not(feature = "redis"))]
async fn with_redis(url: &str) -> Result<Arc<dyn LockBackend>, Error> {
    with_redis_lazily(url)
}

#[cfg(not(feature = "redis"))]
fn with_redis_lazily(_url: &str) -> Result<Arc<dyn LockBackend>, Error> {
    Err(unsupported(
        "Redis is not built into this program: build it with the Cargo feature `redis`, with TLS `redis-tls`",
    ))
}

#[cfg(feature = "fred")]
async fn with_fred(url: &str) -> Result<Arc<dyn LockBackend>, Error> {
    Ok(Arc::new(leasehold_fred::FredBackend::connect(url).await?))
}

#[cfg(feature = "fred")]
fn with_fred_lazily(url: &str) -> Result<Arc<dyn LockBackend>, Error> {
    use leasehold_fred::{FredBackend, FredConfig};
    Ok(Arc::new(FredBackend::connect_lazily(FredConfig::from_url(url)?)))
}

#[cfg(not(feature = "fred"))]
async fn with_fred(url: &str) -> Result<Arc<dyn LockBackend>, Error> {
    with_fred_lazily(url)
}

#[cfg(not(feature = "fred"))]
fn with_fred_lazily(_url: &str) -> Result<Arc<dyn LockBackend>, Error> {
    Err(unsupported(
        "client=fred is not built into this program: build it with the Cargo feature `fred`, with TLS `fred-tls`",
    ))
}

#[cfg(feature = "mysql")]
pub(super) async fn mysql(url: &str) -> Result<Arc<dyn LockBackend>, Error> {
    Ok(Arc::new(leasehold_mysql::MysqlBackend::connect(url).await?))
}

#[cfg(feature = "mysql")]
pub(super) fn mysql_lazily(url: &str) -> Result<Arc<dyn LockBackend>, Error> {
    use leasehold_mysql::{MysqlBackend, MysqlConfig};
    Ok(Arc::new(MysqlBackend::connect_lazily(MysqlConfig::from_url(url)?)))
}

#[cfg(not(feature = "mysql"))]
pub(super) async fn mysql(url: &str) -> Result<Arc<dyn LockBackend>, Error> {
    mysql_lazily(url)
}

#[cfg(not(feature = "mysql"))]
pub(super) fn mysql_lazily(_url: &str) -> Result<Arc<dyn LockBackend>, Error> {
    Err(unsupported(
        "MySQL and MariaDB are not built into this program: build it with the Cargo feature `mysql`, with TLS `mysql-tls`",
    ))
}

#[cfg(feature = "sqlite")]
pub(super) async fn sqlite(url: &str) -> Result<Arc<dyn LockBackend>, Error> {
    Ok(Arc::new(leasehold_sqlite::SqliteBackend::connect(url).await?))
}

#[cfg(feature = "sqlite")]
pub(super) fn sqlite_lazily(url: &str) -> Result<Arc<dyn LockBackend>, Error> {
    use leasehold_sqlite::{SqliteBackend, SqliteConfig};
    Ok(Arc::new(SqliteBackend::connect_lazily(SqliteConfig::from_url(url)?)))
}

#[cfg(not(feature = "sqlite"))]
pub(super) async fn sqlite(url: &str) -> Result<Arc<dyn LockBackend>, Error> {
    sqlite_lazily(url)
}

#[cfg(not(feature = "sqlite"))]
pub(super) fn sqlite_lazily(_url: &str) -> Result<Arc<dyn LockBackend>, Error> {
    Err(unsupported(
        "SQLite is not built into this program: build it with the Cargo feature `sqlite`",
    ))
}

#[cfg(feature = "zookeeper")]
pub(super) async fn zookeeper(url: &str) -> Result<Arc<dyn LockBackend>, Error> {
    Ok(Arc::new(leasehold_zookeeper::ZooKeeperBackend::connect(url).await?))
}

#[cfg(not(feature = "zookeeper"))]
pub(super) async fn zookeeper(_url: &str) -> Result<Arc<dyn LockBackend>, Error> {
    Err(unsupported(
        "ZooKeeper is not built into this program: build it with the Cargo feature `zookeeper`, with TLS `zookeeper-tls`",
    ))
}

#[cfg(not(all(
    feature = "etcd",
    feature = "fred",
    feature = "mysql",
    feature = "postgres",
    feature = "redis",
    feature = "sqlite",
    feature = "zookeeper"
)))]
fn unsupported(message: &'static str) -> Error {
    use leasehold_core::ErrorKind;
    use leasehold_core::backend::Operation;
    Error::new(ErrorKind::Unsupported, message).with_operation(Operation::Connect)
}
