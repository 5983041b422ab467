//! The locks that a SQLite file has of its own, and the least that a lock in one can be.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use rusqlite::{Connection, params};
use serde::{Deserialize, Serialize};
use tokio::task::yield_now;

use super::{Lock, Locker, TTL};
use crate::machine;

/// Rows for those that lock by changing one. As durable as ours.
const TABLES: &str = "
    PRAGMA journal_mode = WAL;
    PRAGMA synchronous = NORMAL;
    CREATE TABLE IF NOT EXISTS floor (id INTEGER PRIMARY KEY, value INTEGER NOT NULL);
    INSERT OR IGNORE INTO floor VALUES (1, 0);
    CREATE TABLE IF NOT EXISTS shedlock (
        name TEXT PRIMARY KEY, lock_until INTEGER NOT NULL, locked_at INTEGER NOT NULL, locked_by TEXT NOT NULL
    );
    INSERT OR IGNORE INTO shedlock VALUES ('job', 0, 0, '')";

const FLOOR: &str = "UPDATE floor SET value = value + length(?1) WHERE id = 1";

const SHEDLOCK: &str = "UPDATE shedlock SET lock_until = ?1, locked_at = ?2, locked_by = ?3
    WHERE name = 'job' AND lock_until <= ?2";

const SHEDLOCK_ENDS: &str =
    "UPDATE shedlock SET lock_until = ?1 WHERE name = 'job' AND locked_by = ?2";

/// How to lock, and how to release.
#[derive(Clone, Copy, Debug, Deserialize, Eq, PartialEq, Serialize)]
pub(crate) enum How {
    /// Two transactions that change one row each, and lock nothing.
    Floor,
    /// A transaction that goes on while the lock is held: there is one for all keys.
    Immediate,
    /// As ShedLock does it once the row is there.
    Shedlock,
}

impl How {
    pub(super) const fn name(self) -> &'static str {
        match self {
            Self::Floor => "two UPDATEs, sqlite",
            Self::Immediate => "BEGIN IMMEDIATE",
            Self::Shedlock => "ShedLock's statements, sqlite",
        }
    }
}

#[derive(Clone)]
pub(super) struct SqliteSql {
    connection: Arc<Mutex<Connection>>,
    how: How,
}

impl SqliteSql {
    /// Opens a file beside that at `url`.
    pub(super) fn open(url: &str, how: How) -> Self {
        let path = url.strip_prefix("sqlite:").expect("it is a file's URL");
        let connection = Connection::open(format!("{path}-others")).expect("it can be made");
        connection.busy_timeout(Duration::from_secs(60)).expect("connections have one");
        connection.execute_batch(TABLES).expect("the file can be written");
        Self { connection: Arc::new(Mutex::new(connection)), how }
    }

    fn acquire(&self, key: &str) {
        let changed = match self.how {
            How::Floor => self.execute(FLOOR, params![key]),
            How::Immediate => {
                self.execute("BEGIN IMMEDIATE", []);
                return;
            }
            How::Shedlock => {
                let now = machine::now();
                let (until, now) = ((now + TTL).as_millis() as i64, now.as_millis() as i64);
                self.execute(SHEDLOCK, params![until, now, key])
            }
        };
        assert_eq!(changed, 1, "the key is free");
    }

    fn release(&self, key: &str) {
        let changed = match self.how {
            How::Floor => self.execute(FLOOR, params![key]),
            How::Immediate => {
                self.execute("COMMIT", []);
                return;
            }
            How::Shedlock => {
                self.execute(SHEDLOCK_ENDS, params![machine::now().as_millis() as i64, key])
            }
        };
        assert_eq!(changed, 1, "the key is still locked");
    }

    fn execute(&self, statement: &str, values: impl rusqlite::Params) -> usize {
        let connection = self.connection.lock().unwrap_or_else(PoisonError::into_inner);
        let mut statement = connection.prepare_cached(statement).expect("it is SQL");
        statement.execute(values).expect("the file can be written")
    }
}

impl Locker for SqliteSql {
    type Lock = Key;

    fn lock(&self, key: &str) -> Key {
        Key { sql: self.clone(), key: key.to_owned() }
    }
}

pub(super) struct Key {
    sql: SqliteSql,
    key: String,
}

impl Lock for Key {
    /// Blocks its thread, as those do that use SQLite without more.
    async fn turn<W>(&self, work: W) -> W::Output
    where
        W: Future<Output: Send + 'static> + Send + 'static,
    {
        self.sql.acquire(&self.key);
        let done = work.await;
        self.sql.release(&self.key);
        // Nothing else here ever waits: other tasks of this thread would have no turn.
        yield_now().await;
        done
    }
}
