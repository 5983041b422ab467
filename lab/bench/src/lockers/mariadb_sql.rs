//! The locks that a MariaDB database has of its own, and the least that a lock in one can be.

use std::sync::Arc;

use leasehold_mysql::mysql_async::prelude::Queryable;
use leasehold_mysql::mysql_async::{Conn, Opts, Statement};
use serde::{Deserialize, Serialize};
use tokio::sync::Mutex;

use super::{Lock, Locker};

/// Rows for those that lock by changing one.
const TABLES: [&str; 4] = [
    "CREATE TABLE IF NOT EXISTS floor (id int PRIMARY KEY, value bigint NOT NULL)",
    "INSERT IGNORE INTO floor VALUES (1, 0)",
    "CREATE TABLE IF NOT EXISTS shedlock (
        name varchar(64) PRIMARY KEY, lock_until timestamp(3) NOT NULL, locked_at timestamp(3) NOT NULL, locked_by varchar(255) NOT NULL
    )",
    "INSERT IGNORE INTO shedlock VALUES ('job', '2000-01-01', '2000-01-01', '')",
];

/// How to lock, and how to release.
#[derive(Clone, Copy, Debug, Deserialize, Eq, PartialEq, Serialize)]
pub(crate) enum How {
    /// Two transactions that change one row each, and lock nothing.
    Floor,
    GetLock,
    /// As ShedLock does it once the row is there.
    Shedlock,
}

impl How {
    pub(super) const fn name(self) -> &'static str {
        match self {
            Self::Floor => "two UPDATEs, mariadb",
            Self::GetLock => "GET_LOCK",
            Self::Shedlock => "ShedLock's statements, mariadb",
        }
    }

    const fn statements(self) -> [&'static str; 2] {
        match self {
            Self::Floor => ["UPDATE floor SET value = value + length(?) WHERE id = 1"; 2],
            Self::GetLock => ["DO GET_LOCK(?, 1000)", "DO RELEASE_LOCK(?)"],
            Self::Shedlock => [
                "UPDATE shedlock SET lock_until = TIMESTAMPADD(MICROSECOND, 30000000, UTC_TIMESTAMP(3)),
                    locked_at = UTC_TIMESTAMP(3), locked_by = ?
                    WHERE name = 'job' AND lock_until <= UTC_TIMESTAMP(3)",
                "UPDATE shedlock SET lock_until = UTC_TIMESTAMP(3) WHERE name = 'job' AND locked_by = ?",
            ],
        }
    }

    /// Whether each statement changes a row.
    const fn changes_rows(self) -> bool {
        !matches!(self, Self::GetLock)
    }
}

#[derive(Clone)]
pub(super) struct MariaDbSql {
    connection: Arc<Mutex<Conn>>,
    how: How,
    acquire: Statement,
    release: Statement,
}

impl MariaDbSql {
    pub(super) async fn connect(url: &str, how: How) -> Self {
        let options = Opts::from_url(url).expect("it is a server's URL");
        let mut connection = Conn::new(options).await.expect("the server is up");
        for table in TABLES {
            connection.query_drop(table).await.expect("the server is up");
        }
        let [acquire, release] = how.statements();
        let acquire = connection.prep(acquire).await.expect("the server is up");
        let release = connection.prep(release).await.expect("the server is up");
        Self { connection: Arc::new(Mutex::new(connection)), how, acquire, release }
    }

    async fn execute(&self, statement: &Statement, key: &str) {
        let mut connection = self.connection.lock().await;
        connection.exec_drop(statement, (key,)).await.expect("the server is up");
        let changed = connection.affected_rows();
        assert_eq!(changed, u64::from(self.how.changes_rows()), "the key is free");
    }
}

impl Locker for MariaDbSql {
    type Lock = Key;

    fn lock(&self, key: &str) -> Key {
        Key { sql: self.clone(), key: key.to_owned() }
    }
}

pub(super) struct Key {
    sql: MariaDbSql,
    key: String,
}

impl Lock for Key {
    async fn turn<W>(&self, work: W) -> W::Output
    where
        W: Future<Output: Send + 'static> + Send + 'static,
    {
        let Self { sql, key } = self;
        sql.execute(&sql.acquire, key).await;
        let done = work.await;
        sql.execute(&sql.release, key).await;
        done
    }
}
