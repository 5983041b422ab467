//! The lockers: the locks of Leasehold, basic store operations and other lock libraries.

mod async_redis_lock;
mod fred_floor;
mod leasehold;
mod local;
mod locker;
mod mariadb_sql;
mod native;
mod postgres_sql;
mod redis_floor;
mod redis_lock;
mod rslock;
mod sqlite_sql;

pub(crate) use self::locker::{Lock, Locker, TTL};
pub(crate) use self::native::{native_connection, native_redis};

use futures_util::future::BoxFuture;
use leasehold_core::LockClient;
use leasehold_core::memory::MemoryBackend;
use leasehold_fred::FredBackend;
use leasehold_redis::RedisBackend;
use leasehold_testbed::patiently;
use serde::{Deserialize, Serialize};

use self::mariadb_sql::{How as OnMariaDb, MariaDbSql};
use self::postgres_sql::{How as OnPostgres, PostgresSql};
use self::sqlite_sql::{How as OnSqlite, SqliteSql};
use crate::database::Database;

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

    /// Returns the lockers on a database that so many tasks of one process can use, beginning with the baseline.
    pub(crate) fn on(database: Database, tasks: usize) -> Vec<Self> {
        let all: &[Self] = match database {
            Database::Postgres => &[
                Self::Postgres(OnPostgres::Floor),
                Self::Sql(Database::Postgres),
                Self::Postgres(OnPostgres::AdvisorySession),
                Self::Postgres(OnPostgres::AdvisoryTransaction),
                Self::Postgres(OnPostgres::Shedlock),
            ],
            Database::MariaDb => &[
                Self::MariaDb(OnMariaDb::Floor),
                Self::Sql(Database::MariaDb),
                Self::MariaDb(OnMariaDb::GetLock),
                Self::MariaDb(OnMariaDb::Shedlock),
            ],
            Database::Sqlite => &[
                Self::Sqlite(OnSqlite::Floor),
                Self::Sql(Database::Sqlite),
                Self::Sqlite(OnSqlite::Immediate),
                Self::Sqlite(OnSqlite::Shedlock),
            ],
        };
        all.iter().copied().filter(|kind| tasks == 1 || kind.serves_many_tasks()).collect()
    }

    /// Returns whether tasks can hold locks at the same time. All tasks use one connection, and ShedLock's statements
    /// use one row.
    const fn serves_many_tasks(self) -> bool {
        !matches!(
            self,
            Self::Postgres(OnPostgres::AdvisoryTransaction | OnPostgres::Shedlock)
                | Self::MariaDb(OnMariaDb::Shedlock)
                | Self::Sqlite(OnSqlite::Immediate | OnSqlite::Shedlock)
        )
    }

    /// Returns the baseline on a database, and ShedLock's statements.
    pub(crate) const fn baselines_on(database: Database) -> [Self; 2] {
        match database {
            Database::Postgres => {
                [Self::Postgres(OnPostgres::Floor), Self::Postgres(OnPostgres::Shedlock)]
            }
            Database::MariaDb => {
                [Self::MariaDb(OnMariaDb::Floor), Self::MariaDb(OnMariaDb::Shedlock)]
            }
            Database::Sqlite => [Self::Sqlite(OnSqlite::Floor), Self::Sqlite(OnSqlite::Shedlock)],
        }
    }

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
