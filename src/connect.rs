//! Creates a client from a URL.

mod stores;

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};

use crate::redlock;
use leasehold_core::backend::{LockBackend, Operation};
use leasehold_core::memory::MemoryBackend;
use leasehold_core::{Error, ErrorKind, LockClient, LockOptions};

pub(crate) use stores::redis_lazily;

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
/// | `valkey://…`, also with the endings and prefixes of `redis://` below | the same | `redis` or `fred` |
/// | `unix:///path/to/socket` | the same | `redis` or `fred` |
/// | `redis-sentinel://[user:password@]host[:port][,host[:port]…]/master[/database]` | the server that these sentinels name | `redis` or `fred` |
/// | `redis-cluster://[user:password@]host[:port][,host[:port]…]` | a cluster, by some or all of its servers | `redis` or `fred` |
/// | `redlock+redis://[user:password@]host[:port],host[:port],host[:port][,…][/database]` | a [`Quorum`](leasehold_core::quorum::Quorum) of 3, 5, 7 or 9 servers | `redis` or `fred` |
/// | `rediss://…`, `redlock+rediss://…`, `rediss-sentinel://…`, `rediss-cluster://…` | the same, over TLS | `redis-tls` or `fred-tls` |
/// | `sqlite:/path/to/locks.db`, `sqlite:relative.db` | a SQLite file, for the processes of this machine | `sqlite` |
/// | `zookeeper://[user:password@]host[:port][,host[:port]…][/prefix]` | a ZooKeeper ensemble, by some or all of its servers | `zookeeper`, with `auth=sasl` also `zookeeper-sasl` |
/// | `zookeepers://…` | the same, over TLS | `zookeeper-tls` |
///
/// With both features, the client crate `redis` is used, unless the parameter `client` says `fred`. All other parameters, after
/// `?`, are those of `EtcdConfig::from_url`, `FredConfig::from_url`, `MysqlConfig::from_url`, `PostgresConfig::from_url`,
/// `RedisConfig::from_url`, `SqliteConfig::from_url` and `ZooKeeperConfig::from_url`. The members of a quorum share them, beside `max-ttl-ms` and `member-timeout-ms`, which
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
/// The errors of [`connect_with`] that need no store: mistakes in the URL or the options.
/// [`ErrorKind::Unsupported`] too if the options require strict fencing of a database, of which no request has found out yet whether it has that,
/// and for ZooKeeper, which is asked which TTLs it allows before it is used.
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
        "etcd" | "etcds" => stores::etcd_lazily(url),
        "postgres" | "postgresql" => stores::postgres_lazily(url),
        "mysql" | "mariadb" => stores::mysql_lazily(url),
        "sqlite" => stores::sqlite_lazily(url),
        "zookeeper" | "zookeepers" => Err(Error::new(
            ErrorKind::Unsupported,
            "ZooKeeper does not support lazy connections, because the client asks for the supported TTLs first; use connect",
        )
        .with_operation(Operation::Connect)),
        _ if redlock::is_redlock(scheme) => Ok(Arc::new(redlock::quorum(url)?)),
        _ if is_redis(scheme) => redis_lazily(url),
        _ => Err(unknown_scheme(url)),
    }
}

fn client(backend: Arc<dyn LockBackend>, options: LockOptions) -> Result<LockClient, Error> {
    Ok(LockClient::builder(backend).options(options).build()?.into_dyn())
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

/// Repeats a host with its port, and nothing else: other texts may hold a password.
fn no_scheme(url: &str) -> Error {
    let is_host = |text: &str| text.chars().all(|c| c.is_ascii_alphanumeric() || ".-".contains(c));
    let message = match url.split_once(':') {
        Some((host, rest)) if is_host(host) && is_port(rest) => {
            let port = rest.split('/').next().unwrap_or_default();
            Cow::from(format!("the URL has no scheme; did you mean redis://{host}:{port}?"))
        }
        _ => "the URL has no scheme; write for example redis://host:port".into(),
    };
    Error::new(ErrorKind::Invalid, message).with_operation(Operation::Connect)
}

fn unknown_scheme(url: &str) -> Error {
    if url.split_once(':').is_some_and(|(_, rest)| is_port(rest)) {
        return no_scheme(url);
    }
    // Text without `//` may be anything, including a password.
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

/// Whether it is the port after a host, where the scheme was left out.
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

pub(crate) fn invalid(message: &'static str) -> Error {
    Error::new(ErrorKind::Invalid, message).with_operation(Operation::Connect)
}

#[cfg(test)]
mod tests;
