//! Creates clients and backends from a URL.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};

use leasehold_core::backend::{LockBackend, Operation};
use leasehold_core::memory::MemoryBackend;
use leasehold_core::{Error, ErrorKind, LockClient, LockOptions};

use crate::{redlock, stores};

/// Connects to the store at `url`.
///
/// | URL | store | Cargo feature |
/// | --- | --- | --- |
/// | `memory:` | a new in-memory store | – |
/// | `memory:name` | the in-memory store `name` of this process, shared by all clients that use this name | – |
/// | `etcd://[user:password@]host[:port][,host[:port]…]` | an etcd cluster; list some or all of its members | `etcd` |
/// | `etcds://…` | an etcd cluster, over TLS | `etcd-tls` |
/// | `postgres://[user[:password]@]host[:port][/database]` | tables in a PostgreSQL database | `postgres` |
/// | `postgres://…?sslmode=verify-full` | tables in a PostgreSQL database, over TLS | `postgres-tls` |
/// | `mysql://user[:password]@host[:port]/database`, also `mariadb://…` | tables in a MySQL or MariaDB database | `mysql` |
/// | `mysql://…?ssl-mode=verify_identity` | tables in a MySQL or MariaDB database, over TLS | `mysql-tls` |
/// | `redis://[user:password@]host[:port][/database]` | one Redis or Valkey server | `redis` or `fred` |
/// | `unix:///path/to/socket` | one Redis or Valkey server, over a Unix socket | `redis` or `fred` |
/// | `redis-sentinel://[user:password@]host[:port][,host[:port]…]/master[/database]` | the primary that the listed sentinels report | `redis` or `fred` |
/// | `redis-cluster://[user:password@]host[:port][,host[:port]…]` | a cluster; list some or all of its servers | `redis` or `fred` |
/// | `redlock+redis://[user:password@]host[:port],host[:port],host[:port][,…][/database]` | a quorum of 3, 5, 7 or 9 servers | `quorum`, with `redis` or `fred` |
/// | `rediss://…`, `redlock+rediss://…`, `rediss-sentinel://…`, `rediss-cluster://…` | Redis or Valkey, over TLS | `redis-tls` or `fred-tls` (and `quorum`) |
/// | `sqlite:/path/to/locks.db`, `sqlite:relative.db` | a SQLite file, for the processes of this machine | `sqlite` |
/// | `zookeeper://[user:password@]host[:port][,host[:port]…][/prefix]` | a ZooKeeper ensemble; list some or all of its servers | `zookeeper`; also `zookeeper-sasl` for `auth=sasl` |
/// | `zookeepers://…` | a ZooKeeper ensemble, over TLS | `zookeeper-tls` |
///
/// In the scheme of every Redis URL, `valkey` and `valkeys` can be used instead of `redis` and
/// `rediss`. If both the `redis` and the `fred` feature are enabled, URLs use the `redis` crate
/// unless they contain `client=fred`.
///
/// The remaining parameters, after `?`, are described at `EtcdConfig::from_url`,
/// `FredConfig::from_url`, `MysqlConfig::from_url`, `PostgresConfig::from_url`,
/// `RedisConfig::from_url`, `SqliteConfig::from_url` and `ZooKeeperConfig::from_url`. All members
/// of a quorum use the same parameters. A quorum also supports `max-ttl-ms` and
/// `member-timeout-ms`, which are described at `leasehold::quorum::QuorumBuilder`. A quorum
/// identifies its members by host and port, so all clients must use the same host names.
///
/// # Errors
///
/// Returns [`ErrorKind::Invalid`] if the URL is not valid, and [`ErrorKind::Unsupported`] if the
/// store's Cargo feature is disabled. Returns [`ErrorKind::Unavailable`] if the store cannot be
/// reached, and [`ErrorKind::Denied`] if the store rejects the credentials. No error shows the URL,
/// because it may contain a password.
///
/// # Cancel safety
///
/// This function is cancel safe.
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

/// Connects to the store at `url` like [`connect`], and uses `options` for all locks that do not
/// set their own.
///
/// # Errors
///
/// Returns the errors of [`connect`]. Also returns [`ErrorKind::Invalid`] if the options are not
/// valid, and [`ErrorKind::Unsupported`] if the store does not support them.
///
/// # Cancel safety
///
/// This function is cancel safe.
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

/// Creates a client for the store at `url`. The client connects on its first request, so a service
/// can start before its store does.
///
/// This function does no I/O. While the store is unavailable, a call that waits for a lock retries
/// for at most [`LockOptions::outage_wait`]. Each subsequent call tries to connect again.
/// [`LockClient::ping`] checks whether the store is available.
///
/// To add observers, call [`backend::connect_lazily`](crate::backend::connect_lazily) instead.
///
/// # Errors
///
/// Returns [`ErrorKind::Invalid`] if the URL or the options are not valid, and
/// [`ErrorKind::Unsupported`] if the store's Cargo feature is disabled.
///
/// Also returns [`ErrorKind::Unsupported`] if the options require strict fencing and the store is a
/// database. The client knows whether a database supports strict fencing only after the first
/// request. ZooKeeper URLs always return [`ErrorKind::Unsupported`], because the client must first
/// query which TTLs the ensemble supports.
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

/// Returns a backend for the store at `url`, for [`LockClient::builder`]. The first request
/// connects to the store.
///
/// Use this function for a client that has both a lazy connection and observers:
///
/// ```
/// use leasehold::observe::{Lost, Observer};
/// use leasehold::{LockClient, LockOptions};
///
/// struct Pager;
///
/// impl Observer for Pager {
///     fn on_lost(&self, lost: &Lost<'_>) {
///         eprintln!("page the operator: {} is lost: {}", lost.lock.key, lost.reason);
///     }
/// }
///
/// let store = leasehold::backend::connect_lazily("memory:")?;
/// let client: LockClient = LockClient::builder(store)
///     .options(LockOptions::new())
///     .observer(Pager)
///     .build()?
///     .into_dyn();
/// # let _ = client;
/// # Ok::<(), leasehold::Error>(())
/// ```
///
/// # Errors
///
/// Returns [`ErrorKind::Invalid`] if the URL is not valid. Returns [`ErrorKind::Unsupported`] if
/// the store's Cargo feature is disabled, and for ZooKeeper, because its client must first ask the
/// ensemble which TTLs it supports.
pub fn backend_lazily(url: &str) -> Result<Arc<dyn LockBackend>, Error> {
    let scheme = scheme(url)?;
    match scheme {
        "memory" => Ok(memory(url)),
        "etcd" | "etcds" => stores::etcd_lazily(url),
        "postgres" | "postgresql" => stores::postgres_lazily(url),
        "mysql" | "mariadb" => stores::mysql_lazily(url),
        "sqlite" => stores::sqlite_lazily(url),
        "zookeeper" | "zookeepers" => Err(Error::new(
            ErrorKind::Unsupported,
            "ZooKeeper does not support lazy connections, because the client asks for the supported TTLs first; use connect",
        )
        .with_operation(Operation::Connect)),
        _ if redlock::is_redlock(scheme) => redlock::connect_lazily(url),
        _ if is_redis(scheme) => stores::redis_lazily(url),
        _ => Err(unknown_scheme(url)),
    }
}

fn client(backend: Arc<dyn LockBackend>, options: LockOptions) -> Result<LockClient, Error> {
    Ok(LockClient::builder(backend).options(options).build()?.into_dyn())
}

/// Connects to the store at `url` and returns a backend for [`LockClient::builder`].
///
/// # Errors
///
/// Returns [`ErrorKind::Invalid`] if the URL is not valid, and [`ErrorKind::Unsupported`] if the
/// store's Cargo feature is disabled. Returns [`ErrorKind::Unavailable`] if the store cannot be
/// reached, and [`ErrorKind::Denied`] if the store rejects the credentials.
///
/// # Cancel safety
///
/// This function is cancel safe.
///
/// ```
/// # tokio::runtime::Builder::new_current_thread().enable_all().build()?.block_on(async {
/// let store = leasehold::backend::connect("memory:").await?;
/// let client = leasehold::LockClient::builder(store).build()?;
/// # let _ = client;
/// # Ok::<(), leasehold::Error>(())
/// # })?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub async fn backend(url: &str) -> Result<Arc<dyn LockBackend>, Error> {
    let scheme = scheme(url)?;
    match scheme {
        "memory" => Ok(memory(url)),
        "etcd" | "etcds" => stores::etcd(url).await,
        "zookeeper" | "zookeepers" => stores::zookeeper(url).await,
        "postgres" | "postgresql" => stores::postgres(url).await,
        "mysql" | "mariadb" => stores::mysql(url).await,
        "sqlite" => stores::sqlite(url).await,
        _ if redlock::is_redlock(scheme) => redlock::connect(url).await,
        _ if is_redis(scheme) => stores::redis(url).await,
        _ => Err(unknown_scheme(url)),
    }
}

fn scheme(url: &str) -> Result<&str, Error> {
    let Some((scheme, _)) = url.split_once(':') else {
        return Err(no_scheme(url));
    };
    Ok(scheme)
}

/// The error repeats only a host and its port, because any other text may contain a password.
fn no_scheme(url: &str) -> Error {
    let is_host = |text: &str| text.chars().all(|c| c.is_ascii_alphanumeric() || ".-".contains(c));
    let message = match url.split_once(':') {
        Some((host, rest)) if is_host(host) && is_port(rest) => {
            let port = rest.split('/').next().unwrap_or_default();
            Cow::from(format!("the URL has no scheme; did you mean redis://{host}:{port}?"))
        }
        _ => "the URL has no scheme; use, for example, redis://host:port".into(),
    };
    Error::new(ErrorKind::Invalid, message).with_operation(Operation::Connect)
}

fn unknown_scheme(url: &str) -> Error {
    if url.split_once(':').is_some_and(|(_, rest)| is_port(rest)) {
        return no_scheme(url);
    }
    // Text without `//` may contain a password, so the error does not repeat it.
    let named = match url.split_once("://") {
        Some((scheme, _)) => format!(" \"{scheme}://\""),
        None => String::new(),
    };
    let message = format!(
        "unknown store{named} in the URL; expected memory:, sqlite:, redis://, rediss://, redis-sentinel://, redis-cluster://, \
         redlock+redis://, unix://, etcd://, etcds://, zookeeper://, zookeepers://, postgres://, mysql:// or mariadb://"
    );
    Error::new(ErrorKind::Invalid, message).with_operation(Operation::Connect)
}

/// Returns whether `rest` starts with a port. If so, the URL does not have a scheme.
fn is_port(rest: &str) -> bool {
    let port = rest.split('/').next().unwrap_or_default();
    !port.is_empty() && port.bytes().all(|byte| byte.is_ascii_digit())
}

/// Returns the named in-memory store of `url`, or a new store if `url` does not contain a name.
fn memory(url: &str) -> Arc<dyn LockBackend> {
    /// Named stores live until the process exits, just as a server would keep its data.
    static NAMED: Mutex<BTreeMap<String, MemoryBackend>> = Mutex::new(BTreeMap::new());

    let name = url.trim_start_matches("memory:");
    if name.is_empty() {
        return Arc::new(MemoryBackend::new());
    }
    let mut named = NAMED.lock().unwrap_or_else(PoisonError::into_inner);
    Arc::new(named.entry(name.to_owned()).or_default().clone())
}

/// Returns whether the `redis` and `fred` crates support this scheme.
fn is_redis(scheme: &str) -> bool {
    let (base, topology) = scheme.split_once('-').unwrap_or((scheme, ""));
    match base {
        "redis" | "rediss" | "valkey" | "valkeys" => {
            matches!(topology, "" | "sentinel" | "cluster")
        }
        _ => matches!(scheme, "unix" | "redis+unix"),
    }
}

#[cfg(test)]
mod tests;
