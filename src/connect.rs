//! From a URL to a client.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};

use crate::redlock;
use leasehold_core::backend::{LockBackend, Operation};
use leasehold_core::memory::MemoryBackend;
use leasehold_core::{Error, ErrorKind, LockClient, LockOptions};

/// Connects to the store at `url`.
///
/// | URL | store | Cargo feature |
/// | --- | --- | --- |
/// | `memory:` | a new store in this process | – |
/// | `memory:name` | the store of that name in this process, which all that name it share | – |
/// | `etcd://[user:password@]host[:port][,host[:port]…]` | one etcd cluster, by some or all of its members | `etcd` |
/// | `etcds://…` | the same, over TLS | `etcd-tls` |
/// | `postgres://[user[:password]@]host[:port][/database]` | tables in a PostgreSQL database | `postgres` |
/// | `postgres://…?sslmode=verify-full` | the same, over TLS | `postgres-tls` |
/// | `mysql://user[:password]@host[:port]/database`, also `mariadb://…` | a MySQL or MariaDB database | `mysql` |
/// | `mysql://…?ssl-mode=verify_identity` | the same, over TLS | `mysql-tls` |
/// | `redis://[user:password@]host[:port][/database]` | one Redis or Valkey server | `redis` or `fred` |
/// | `unix:///path/to/socket` | the same | `redis` or `fred` |
/// | `redis-sentinel://[user:password@]host[:port][,host[:port]…]/master[/database]` | the server that these sentinels name | `redis` or `fred` |
/// | `redis-cluster://[user:password@]host[:port][,host[:port]…]` | a cluster, by some or all of its servers | `redis` or `fred` |
/// | `redlock+redis://[user:password@]host[:port],host[:port],host[:port][,…][/database]` | a [`Quorum`](leasehold_core::quorum::Quorum) of 3, 5, 7 or 9 servers | `redis` or `fred` |
/// | `rediss://…`, `redlock+rediss://…`, `rediss-sentinel://…`, `rediss-cluster://…` | the same, over TLS | `redis-tls` or `fred-tls` |
/// | `sqlite:/path/to/locks.db`, `sqlite:relative.db` | a SQLite file, for the processes of this machine | `sqlite` |
///
/// With both features, the client crate `redis` is used, unless the parameter `client` says `fred`. All other parameters, after
/// `?`, are those of `EtcdConfig::from_url`, `FredConfig::from_url`, `MysqlConfig::from_url`, `PostgresConfig::from_url`,
/// `RedisConfig::from_url` and `SqliteConfig::from_url`. The members of a quorum share them, beside `max-ttl-ms` and `member-timeout-ms`, which
/// are those of [`QuorumBuilder`](leasehold_core::quorum::QuorumBuilder). All clients write the hosts alike: a quorum knows its members by host and port.
///
/// # Errors
///
/// [`ErrorKind::Invalid`] if the URL cannot be understood, [`ErrorKind::Unsupported`] if its feature is
/// off, [`ErrorKind::Unavailable`] if the store cannot be reached, [`ErrorKind::Denied`] if it does not
/// let us in. None of them shows the URL, which may hold a password.
///
/// # Cancel safety
///
/// Safe to drop.
///
/// ```
/// # tokio::runtime::Builder::new_current_thread().enable_all().build()?.block_on(async {
/// let client = leasehold::connect("memory:").await?;
/// let guard = client.mutex("invoice:42")?.lock().await?;
/// guard.release().await?;
/// # Ok::<(), leasehold::Error>(())
/// # })?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub async fn connect(url: &str) -> Result<LockClient, Error> {
    connect_with(url, LockOptions::new()).await
}

/// Connects to the store at `url`, as [`connect`] does, with `options` for all locks that are not given others.
///
/// # Errors
///
/// As [`connect`]. [`ErrorKind::Invalid`] and [`ErrorKind::Unsupported`] too if the options are not possible, or not on this store.
///
/// # Cancel safety
///
/// Safe to drop.
///
/// ```
/// # tokio::runtime::Builder::new_current_thread().enable_all().build()?.block_on(async {
/// use std::time::Duration;
/// use leasehold::{LockClient, LockOptions};
///
/// let short = LockOptions::new().ttl(Duration::from_secs(10));
/// let client: LockClient = leasehold::connect_with("memory:", short).await?;
/// # let _ = client;
/// # Ok::<(), leasehold::Error>(())
/// # })?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub async fn connect_with(url: &str, options: LockOptions) -> Result<LockClient, Error> {
    client(backend(url).await?, options)
}

/// A client of the store at `url`, which the first request connects to: for a service that may start before its store does.
///
/// It does no I/O. A call that waits for a lock waits for the store, too, for as long as [`LockOptions::outage_wait`] says, and each later call
/// tries again. [`LockClient::ping`] tells whether the store serves by now.
///
/// # Errors
///
/// The errors of [`connect_with`] that need no store: what is wrong with the URL or the options.
/// [`ErrorKind::Unsupported`] too if the options require strict fencing of a database, of which no request has found out yet whether it has that.
///
/// ```
/// # tokio::runtime::Builder::new_current_thread().enable_all().build()?.block_on(async {
/// use std::time::Duration;
/// use leasehold::LockOptions;
///
/// let client = leasehold::connect_lazily("memory:", LockOptions::new())?;
/// let is_ready = client.ping(Duration::from_secs(1)).await.is_ok();
/// assert!(is_ready);
/// # Ok::<(), leasehold::Error>(())
/// # })?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub fn connect_lazily(url: &str, options: LockOptions) -> Result<LockClient, Error> {
    client(backend_lazily(url)?, options)
}

/// The store at `url`, which the first request connects to.
pub(crate) fn backend_lazily(url: &str) -> Result<Arc<dyn LockBackend>, Error> {
    let scheme = scheme(url)?;
    match scheme {
        "memory" => Ok(memory(url)),
        "etcd" | "etcds" => etcd_lazily(url),
        "postgres" | "postgresql" => postgres_lazily(url),
        "mysql" | "mariadb" => mysql_lazily(url),
        "sqlite" => sqlite_lazily(url),
        _ if redlock::is_redlock(scheme) => Ok(Arc::new(redlock::quorum(url)?)),
        _ if is_redis(scheme) => redis_lazily(url),
        _ => Err(unknown_scheme(url)),
    }
}

fn client(backend: Arc<dyn LockBackend>, options: LockOptions) -> Result<LockClient, Error> {
    Ok(LockClient::builder(backend).options(options).build()?.erase())
}

/// Connects to the store at `url`, to be used with [`LockClient::builder`].
///
/// # Errors
///
/// As [`connect`].
pub async fn backend(url: &str) -> Result<Arc<dyn LockBackend>, Error> {
    let scheme = scheme(url)?;
    match scheme {
        "memory" => Ok(memory(url)),
        "etcd" | "etcds" => etcd(url).await,
        "postgres" | "postgresql" => postgres(url).await,
        "mysql" | "mariadb" => mysql(url).await,
        "sqlite" => sqlite(url).await,
        _ if redlock::is_redlock(scheme) => redlock::connect(url).await,
        _ if is_redis(scheme) => redis(url).await,
        _ => Err(unknown_scheme(url)),
    }
}

fn scheme(url: &str) -> Result<&str, Error> {
    let Some((scheme, _)) = url.split_once(':') else {
        return Err(invalid(NO_SCHEME));
    };
    Ok(scheme)
}

const NO_SCHEME: &str =
    "the URL has no scheme: write redis://host:port, or another that says which store it is";

fn unknown_scheme(url: &str) -> Error {
    if url.split_once(':').is_some_and(|(_, rest)| is_port(rest)) {
        return invalid(NO_SCHEME);
    }
    invalid(
        "the URL has an unknown scheme: known are memory, sqlite, postgres, mysql, mariadb, etcd, redis, \
         redis-sentinel, redis-cluster, redlock+redis, unix, and with TLS etcds and rediss",
    )
}

/// Whether it is what follows a host, where the scheme was left out.
fn is_port(rest: &str) -> bool {
    let port = rest.split('/').next().unwrap_or_default();
    !port.is_empty() && port.bytes().all(|byte| byte.is_ascii_digit())
}

/// The store that `url` names, or a new one without a name.
fn memory(url: &str) -> Arc<dyn LockBackend> {
    /// Kept for as long as the process lives, as a server would keep them.
    static NAMED: Mutex<BTreeMap<String, MemoryBackend>> = Mutex::new(BTreeMap::new());

    let name = url.trim_start_matches("memory:");
    if name.is_empty() {
        return Arc::new(MemoryBackend::new());
    }
    let mut named = NAMED.lock().unwrap_or_else(PoisonError::into_inner);
    Arc::new(named.entry(name.to_owned()).or_default().clone())
}

/// Whether it is one of Redis, and so for `redis` or `fred` to read.
fn is_redis(scheme: &str) -> bool {
    let (base, topology) = scheme.split_once('-').unwrap_or((scheme, ""));
    match base {
        "redis" | "rediss" | "valkey" | "valkeys" => {
            matches!(topology, "" | "sentinel" | "cluster")
        }
        _ => matches!(scheme, "unix" | "redis+unix"),
    }
}

#[cfg(feature = "etcd")]
async fn etcd(url: &str) -> Result<Arc<dyn LockBackend>, Error> {
    Ok(Arc::new(leasehold_etcd::EtcdBackend::connect(url).await?))
}

#[cfg(feature = "etcd")]
fn etcd_lazily(url: &str) -> Result<Arc<dyn LockBackend>, Error> {
    use leasehold_etcd::{EtcdBackend, EtcdConfig};
    Ok(Arc::new(EtcdBackend::connect_lazily(EtcdConfig::from_url(url)?)))
}

#[cfg(not(feature = "etcd"))]
async fn etcd(url: &str) -> Result<Arc<dyn LockBackend>, Error> {
    etcd_lazily(url)
}

#[cfg(not(feature = "etcd"))]
fn etcd_lazily(_url: &str) -> Result<Arc<dyn LockBackend>, Error> {
    Err(unsupported(
        "etcd is not built into this program: build it with the Cargo feature `etcd`, with TLS `etcd-tls`",
    ))
}

#[cfg(feature = "postgres")]
async fn postgres(url: &str) -> Result<Arc<dyn LockBackend>, Error> {
    Ok(Arc::new(leasehold_postgres::PostgresBackend::connect(url).await?))
}

#[cfg(feature = "postgres")]
fn postgres_lazily(url: &str) -> Result<Arc<dyn LockBackend>, Error> {
    use leasehold_postgres::{PostgresBackend, PostgresConfig};
    Ok(Arc::new(PostgresBackend::connect_lazily(PostgresConfig::from_url(url)?)))
}

#[cfg(not(feature = "postgres"))]
async fn postgres(url: &str) -> Result<Arc<dyn LockBackend>, Error> {
    postgres_lazily(url)
}

#[cfg(not(feature = "postgres"))]
fn postgres_lazily(_url: &str) -> Result<Arc<dyn LockBackend>, Error> {
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

async fn redis(url: &str) -> Result<Arc<dyn LockBackend>, Error> {
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
async fn mysql(url: &str) -> Result<Arc<dyn LockBackend>, Error> {
    Ok(Arc::new(leasehold_mysql::MysqlBackend::connect(url).await?))
}

#[cfg(feature = "mysql")]
fn mysql_lazily(url: &str) -> Result<Arc<dyn LockBackend>, Error> {
    use leasehold_mysql::{MysqlBackend, MysqlConfig};
    Ok(Arc::new(MysqlBackend::connect_lazily(MysqlConfig::from_url(url)?)))
}

#[cfg(not(feature = "mysql"))]
async fn mysql(url: &str) -> Result<Arc<dyn LockBackend>, Error> {
    mysql_lazily(url)
}

#[cfg(not(feature = "mysql"))]
fn mysql_lazily(_url: &str) -> Result<Arc<dyn LockBackend>, Error> {
    Err(unsupported(
        "MySQL and MariaDB are not built into this program: build it with the Cargo feature `mysql`, with TLS `mysql-tls`",
    ))
}

#[cfg(feature = "sqlite")]
async fn sqlite(url: &str) -> Result<Arc<dyn LockBackend>, Error> {
    Ok(Arc::new(leasehold_sqlite::SqliteBackend::connect(url).await?))
}

#[cfg(feature = "sqlite")]
fn sqlite_lazily(url: &str) -> Result<Arc<dyn LockBackend>, Error> {
    use leasehold_sqlite::{SqliteBackend, SqliteConfig};
    Ok(Arc::new(SqliteBackend::connect_lazily(SqliteConfig::from_url(url)?)))
}

#[cfg(not(feature = "sqlite"))]
async fn sqlite(url: &str) -> Result<Arc<dyn LockBackend>, Error> {
    sqlite_lazily(url)
}

#[cfg(not(feature = "sqlite"))]
fn sqlite_lazily(_url: &str) -> Result<Arc<dyn LockBackend>, Error> {
    Err(unsupported(
        "SQLite is not built into this program: build it with the Cargo feature `sqlite`",
    ))
}

#[cfg(not(all(
    feature = "etcd",
    feature = "fred",
    feature = "mysql",
    feature = "postgres",
    feature = "redis",
    feature = "sqlite"
)))]
fn unsupported(message: &'static str) -> Error {
    Error::new(ErrorKind::Unsupported, message).with_operation(Operation::Connect)
}

pub(crate) fn invalid(message: &'static str) -> Error {
    Error::new(ErrorKind::Invalid, message).with_operation(Operation::Connect)
}

#[cfg(test)]
mod tests {
    use super::*;

    async fn refusal(url: &str) -> Error {
        backend(url).await.unwrap_err()
    }

    #[tokio::test]
    async fn unknown_urls_are_refused_without_showing_them() {
        for url in ["", "S3CR3T", "ftp://S3CR3T@host", "http:S3CR3T"] {
            let error = refusal(url).await;
            assert_eq!(error.kind(), ErrorKind::Invalid);
            assert!(!format!("{error:?}").contains("S3CR3T"));
        }
    }

    #[tokio::test]
    async fn scheme_that_was_left_out_is_asked_for() {
        for url in ["localhost:6379", "db.example:6379/3", "localhost"] {
            let error = refusal(url).await;
            assert!(error.to_string().contains("write redis://host:port"), "{url}: {error}");
        }
    }

    #[tokio::test]
    async fn stores_in_memory_of_one_name_are_one_store() {
        let mutex = async |url| connect(url).await.unwrap().mutex("k").unwrap();
        let _held = mutex("memory:one").await.lock().await.unwrap();

        assert!(mutex("memory:one").await.try_lock().await.unwrap().is_err());
        assert!(mutex("memory:other").await.try_lock().await.unwrap().is_ok());
        assert!(mutex("memory:").await.try_lock().await.unwrap().is_ok());
    }

    #[tokio::test]
    async fn options_are_those_of_all_locks_and_are_checked() {
        let ttl = |secs| LockOptions::new().ttl(std::time::Duration::from_secs(secs));
        let client: LockClient = connect_with("memory:", ttl(7)).await.unwrap();
        assert_eq!(client.options(), ttl(7));

        let refused = connect_with("memory:", ttl(0)).await.unwrap_err();
        assert_eq!(refused.kind(), ErrorKind::Invalid);
    }

    #[test]
    fn a_lazy_client_does_no_io_and_checks_its_url() {
        let kind = |url| connect_lazily(url, LockOptions::new()).map_err(|error| error.kind());

        assert!(kind("memory:").is_ok());
        #[cfg(feature = "redis")]
        assert!(kind("redis://127.0.0.1:1").is_ok());
        #[cfg(feature = "redis")]
        assert!(kind("redlock+redis://a,b,c").is_ok());
        #[cfg(feature = "redis")]
        assert_eq!(kind("redlock+redis://a,b").unwrap_err(), ErrorKind::Invalid);
        #[cfg(feature = "etcd")]
        assert!(kind("etcd://127.0.0.1:1").is_ok());
        for url in ["", "ftp://host"] {
            assert_eq!(kind(url).unwrap_err(), ErrorKind::Invalid, "{url}");
        }
        #[cfg(feature = "postgres")]
        assert!(kind("postgres://127.0.0.1:1").is_ok());
        #[cfg(feature = "mysql")]
        assert!(kind("mysql://u@127.0.0.1:1/db").is_ok());
        #[cfg(feature = "sqlite")]
        assert!(kind("sqlite:/no/such/folder/locks.db").is_ok());
    }

    #[cfg(not(feature = "etcd"))]
    #[tokio::test]
    async fn without_its_feature_an_etcd_url_is_refused_and_names_it() {
        for url in ["etcd://u:S3CR3T@host", "etcds://u:S3CR3T@host"] {
            assert_names(&refusal(url).await, "`etcd`");
        }
    }

    #[cfg(all(feature = "etcd", not(feature = "etcd-tls")))]
    #[tokio::test]
    async fn without_its_feature_an_etcd_url_with_tls_is_refused_and_names_it() {
        assert_names(&refusal("etcds://u:S3CR3T@host").await, "`etcd-tls`");
    }

    #[cfg(feature = "etcd")]
    #[tokio::test]
    async fn etcd_urls_reach_the_backend() {
        let unserved = format!("etcd://127.0.0.1:{}", leasehold_testbed::free_port());
        assert_eq!(refusal(&unserved).await.kind(), ErrorKind::Unavailable);
        assert_eq!(refusal("etcd://u:S3CR3T@").await.kind(), ErrorKind::Invalid);
    }

    #[cfg(not(any(feature = "redis", feature = "fred")))]
    #[tokio::test]
    async fn without_its_feature_a_redis_url_is_refused_and_names_it() {
        for scheme in ["redis", "rediss", "redis-sentinel", "redlock+redis", "valkeys-cluster"] {
            assert_names(&refusal(&format!("{scheme}://:S3CR3T@host")).await, "`redis`");
        }
    }

    #[cfg(not(feature = "postgres"))]
    #[tokio::test]
    async fn without_its_feature_a_postgres_url_is_refused_and_names_it() {
        for scheme in ["postgres", "postgresql"] {
            assert_names(&refusal(&format!("{scheme}://u:S3CR3T@host")).await, "`postgres`");
        }
    }

    #[cfg(feature = "postgres")]
    #[tokio::test]
    async fn postgres_urls_reach_the_backend() {
        let unserved = format!("postgresql://127.0.0.1:{}", leasehold_testbed::free_port());
        assert_eq!(refusal(&unserved).await.kind(), ErrorKind::Unavailable);
        assert_eq!(refusal("postgres://u:S3CR3T@host:x").await.kind(), ErrorKind::Invalid);
    }

    #[cfg(not(feature = "mysql"))]
    #[tokio::test]
    async fn without_its_feature_a_mysql_url_is_refused_and_names_it() {
        for scheme in ["mysql", "mariadb"] {
            assert_names(&refusal(&format!("{scheme}://u:S3CR3T@host/db")).await, "`mysql`");
        }
    }

    #[cfg(feature = "mysql")]
    #[tokio::test]
    async fn mysql_urls_reach_the_backend() {
        let unserved = format!("mysql://u@127.0.0.1:{}/db", leasehold_testbed::free_port());
        assert_eq!(refusal(&unserved).await.kind(), ErrorKind::Unavailable);
        assert_eq!(refusal("mariadb://u:S3CR3T@host").await.kind(), ErrorKind::Invalid);
    }

    #[cfg(not(feature = "sqlite"))]
    #[tokio::test]
    async fn without_its_feature_a_sqlite_url_is_refused_and_names_it() {
        assert_names(&refusal("sqlite:S3CR3T.db").await, "`sqlite`");
    }

    #[cfg(feature = "sqlite")]
    #[tokio::test]
    async fn sqlite_urls_reach_the_backend() {
        let folder = tempfile::tempdir().unwrap();
        let url = format!("sqlite:{}", folder.path().join("locks.db").display());
        assert_eq!(backend(&url).await.unwrap().capabilities().name(), "sqlite");
        assert_eq!(refusal("sqlite::memory:").await.kind(), ErrorKind::Invalid);
    }

    #[cfg(not(feature = "fred"))]
    #[tokio::test]
    async fn a_client_that_is_not_there_is_refused_and_named() {
        assert_names(&refusal("redis://:S3CR3T@host?client=fred").await, "`fred`");
    }

    #[cfg(any(feature = "redis", feature = "fred"))]
    #[tokio::test]
    async fn redlock_urls_reach_all_members() {
        let ports = [(); 3].map(|()| leasehold_testbed::free_port());
        let hosts = ports.map(|port| format!("127.0.0.1:{port}"));
        let error = refusal(&format!("redlock+redis://:S3CR3T@{}", hosts.join(","))).await;

        assert_eq!(error.kind(), ErrorKind::Unavailable, "{error}");
        let shown = format!("{error} {error:?}");
        assert!(hosts.iter().all(|host| shown.contains(host.as_str())), "{shown}");
        assert!(!shown.contains("S3CR3T"), "{shown}");
        for url in ["redlock+redis://a,b", "redlock+redis://a,b,a:6379", "redlock+redis:a"] {
            assert_eq!(refusal(url).await.kind(), ErrorKind::Invalid, "{url}");
        }
    }

    #[cfg(all(feature = "redis", feature = "fred"))]
    #[tokio::test]
    async fn the_url_picks_the_client() {
        let unserved = format!("redis://127.0.0.1:{}?", leasehold_testbed::free_port());
        for (parameter, client) in
            [("", "redis"), ("client=redis", "redis"), ("client=fred", "fred")]
        {
            let error = refusal(&format!("{unserved}{parameter}")).await;
            assert_eq!((error.kind(), error.backend()), (ErrorKind::Unavailable, Some(client)));
        }
        assert_eq!(refusal("redis://:S3CR3T@host?client=ioredis").await.kind(), ErrorKind::Invalid);
    }

    #[cfg(not(all(
        feature = "etcd-tls",
        feature = "fred",
        feature = "mysql",
        feature = "postgres",
        feature = "redis",
        feature = "sqlite"
    )))]
    fn assert_names(error: &Error, feature: &str) {
        assert_eq!(error.kind(), ErrorKind::Unsupported);
        let shown = format!("{error} {error:?}");
        assert!(shown.contains(feature) && !shown.contains("S3CR3T"), "{shown}");
    }
}
