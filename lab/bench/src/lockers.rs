//! The lockers: ours, their parts, and those of others.

mod async_redis_lock;
mod fred_floor;
mod leasehold;
mod local;
mod mariadb_sql;
mod postgres_sql;
mod redis_floor;
mod redis_lock;
mod rslock;
mod sqlite_sql;

use std::time::Duration;

use futures_util::future::BoxFuture;
use leasehold_core::LockClient;
use leasehold_core::memory::MemoryBackend;
use leasehold_fred::FredBackend;
use leasehold_redis::RedisBackend;
use leasehold_testbed::patiently;
use redis::aio::MultiplexedConnection;
use redis::io::tcp::TcpSettings;
use redis::{AsyncConnectionConfig, Client, IntoConnectionInfo};
use serde::{Deserialize, Serialize};

use self::mariadb_sql::{How as OnMariaDb, MariaDbSql};
use self::postgres_sql::{How as OnPostgres, PostgresSql};
use self::sqlite_sql::{How as OnSqlite, SqliteSql};
use crate::database::Database;

/// How long a store keeps an unrenewed lock: our default.
pub(crate) const TTL: Duration = Duration::from_secs(30);

/// One client of one store.
pub(crate) trait Locker: Send + Sync + 'static {
    type Lock: Lock;

    /// The lock of that name. No I/O.
    fn lock(&self, key: &str) -> Self::Lock;

    /// The same lock for so many tasks.
    fn locks(&self, key: &str, count: usize) -> Vec<Self::Lock> {
        (0..count).map(|_| self.lock(key)).collect()
    }
}

/// The lock of one task.
pub(crate) trait Lock: Send + Sync + 'static {
    /// Waits for the lock, does `work`, and waits until the lock is given back.
    fn turn<W>(&self, work: W) -> impl Future<Output = W::Output> + Send
    where
        W: Future<Output: Send + 'static> + Send + 'static;
}

/// Does work with a locker of any type.
pub(crate) trait Visitor: Send {
    type Output;

    fn visit<L: Locker>(self, locker: L) -> impl Future<Output = Self::Output> + Send;
}

/// A locker.
#[derive(Clone, Copy, Debug, Deserialize, Eq, PartialEq, Serialize)]
pub(crate) enum LockerKind {
    RedisFloor,
    Redis,
    RedisDyn,
    RedisCluster,
    FredFloor,
    Fred,
    FredCluster,
    Rslock,
    RslockEager,
    AsyncRedisLock,
    RedisLock,
    Memory,
    Tokio,
    /// We, on a database.
    Sql(Database),
    Postgres(OnPostgres),
    MariaDb(OnMariaDb),
    Sqlite(OnSqlite),
}

impl LockerKind {
    /// The lockers on Redis and the parts that they are made of, to be compared where none waits.
    pub(crate) const ON_REDIS: [Self; 8] = [
        Self::RedisFloor,
        Self::Redis,
        Self::RedisDyn,
        Self::FredFloor,
        Self::Fred,
        Self::Rslock,
        Self::AsyncRedisLock,
        Self::RedisLock,
    ];

    /// The lockers that also wait, to be compared where processes contend.
    pub(crate) const WAITING_ON_REDIS: [Self; 6] = [
        Self::Redis,
        Self::Fred,
        Self::Rslock,
        Self::RslockEager,
        Self::AsyncRedisLock,
        Self::RedisLock,
    ];

    /// The lockers on PostgreSQL and the parts that they are made of.
    pub(crate) const ON_POSTGRES: [Self; 5] = [
        Self::Postgres(OnPostgres::Floor),
        Self::Sql(Database::Postgres),
        Self::Postgres(OnPostgres::AdvisorySession),
        Self::Postgres(OnPostgres::AdvisoryTransaction),
        Self::Postgres(OnPostgres::Shedlock),
    ];

    /// The lockers on MariaDB and the parts that they are made of.
    pub(crate) const ON_MARIADB: [Self; 4] = [
        Self::MariaDb(OnMariaDb::Floor),
        Self::Sql(Database::MariaDb),
        Self::MariaDb(OnMariaDb::GetLock),
        Self::MariaDb(OnMariaDb::Shedlock),
    ];

    /// The lockers on SQLite and the parts that they are made of.
    pub(crate) const ON_SQLITE: [Self; 4] = [
        Self::Sqlite(OnSqlite::Floor),
        Self::Sql(Database::Sqlite),
        Self::Sqlite(OnSqlite::Immediate),
        Self::Sqlite(OnSqlite::Shedlock),
    ];

    /// The lockers on that database that wait for others: its own lock, and ours.
    pub(crate) const fn waiting_on(database: Database) -> [Self; 2] {
        let own = match database {
            Database::Postgres => Self::Postgres(OnPostgres::AdvisorySession),
            Database::MariaDb => Self::MariaDb(OnMariaDb::GetLock),
            Database::Sqlite => Self::Sqlite(OnSqlite::Immediate),
        };
        [own, Self::Sql(database)]
    }

    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::RedisFloor => "SET NX and EVALSHA, redis",
            Self::Redis => "leasehold, redis",
            Self::RedisDyn => "leasehold, redis, dyn",
            Self::RedisCluster => "leasehold, redis, cluster",
            Self::FredFloor => "SET NX and EVALSHA, fred",
            Self::Fred => "leasehold, fred",
            Self::FredCluster => "leasehold, fred, cluster",
            Self::Rslock => "rslock",
            Self::RslockEager => "rslock, retries within 5 ms",
            Self::AsyncRedisLock => "async-redis-lock",
            Self::RedisLock => "redis-lock",
            Self::Memory => "leasehold, memory",
            Self::Tokio => "tokio::sync::Mutex",
            Self::Sql(Database::Postgres) => "leasehold, postgres",
            Self::Sql(Database::MariaDb) => "leasehold, mariadb",
            Self::Sql(Database::Sqlite) => "leasehold, sqlite",
            Self::Postgres(how) => how.name(),
            Self::MariaDb(how) => how.name(),
            Self::Sqlite(how) => how.name(),
        }
    }

    /// Connects to the server at `url`, if this one needs a server.
    ///
    /// Boxed, since the compiler cannot tell of all these types together that they may be sent to other threads.
    pub(crate) fn visit<'a, V>(self, url: &'a str, visitor: V) -> BoxFuture<'a, V::Output>
    where
        V: Visitor + 'a,
    {
        Box::pin(self.visit_with(url, visitor))
    }

    async fn visit_with<V: Visitor>(self, url: &str, visitor: V) -> V::Output {
        match self {
            Self::RedisFloor => visitor.visit(redis_floor::RedisFloor::connect(url).await).await,
            Self::Redis | Self::RedisCluster => visitor.visit(redis_client(url).await).await,
            Self::RedisDyn => visitor.visit(redis_client(url).await.into_dyn()).await,
            Self::FredFloor => visitor.visit(fred_floor::FredFloor::connect(url).await).await,
            Self::Fred | Self::FredCluster => {
                let backend =
                    FredBackend::connect(&patiently(url)).await.expect("the server is up");
                visitor.visit(LockClient::new(backend)).await
            }
            Self::Rslock => visitor.visit(rslock::Rslock::new(url)).await,
            Self::RslockEager => visitor.visit(rslock::Rslock::eager(url)).await,
            Self::AsyncRedisLock => {
                visitor.visit(async_redis_lock::AsyncRedisLock::connect(url).await).await
            }
            Self::RedisLock => visitor.visit(redis_lock::RedisLock::connect(url).await).await,
            Self::Memory => visitor.visit(LockClient::new(MemoryBackend::new())).await,
            Self::Tokio => visitor.visit(local::Local).await,
            Self::Sql(_) => {
                let client = ::leasehold::connect(&patiently(url)).await;
                visitor.visit(client.expect("the server is up")).await
            }
            Self::Postgres(how) => visitor.visit(PostgresSql::connect(url, how).await).await,
            Self::MariaDb(how) => visitor.visit(MariaDbSql::connect(url, how).await).await,
            Self::Sqlite(how) => visitor.visit(SqliteSql::open(url, how)).await,
        }
    }
}

async fn redis_client(url: &str) -> LockClient<RedisBackend> {
    LockClient::new(RedisBackend::connect(&patiently(url)).await.expect("the server is up"))
}

/// A client of the `redis` crate whose requests are sent at once, which they are not by default.
pub(crate) fn native_redis(url: &str) -> Client {
    let info = url.into_connection_info().expect("it is a server's URL");
    let tcp = TcpSettings::default().set_nodelay(true);
    Client::open(info.set_tcp_settings(tcp)).expect("it is a server's URL")
}

/// The same, with nothing in the way of requests: no timers, and room for all of them.
pub(crate) async fn native_connection(url: &str) -> MultiplexedConnection {
    let unhindered = AsyncConnectionConfig::new()
        .set_connection_timeout(None)
        .set_response_timeout(None)
        .set_pipeline_buffer_size(1_024);
    let client = native_redis(url);
    let connection = client.get_multiplexed_async_connection_with_config(&unhindered).await;
    connection.expect("the server is up")
}
