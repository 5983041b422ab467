//! The locks that a PostgreSQL database has of its own, and the least that a lock in one can be.

use std::sync::Arc;

use leasehold_postgres::tokio_postgres::types::ToSql;
use leasehold_postgres::tokio_postgres::{self, Client, NoTls, Statement};
use serde::{Deserialize, Serialize};

use super::{Lock, Locker};

/// Rows for those that lock by changing one.
const TABLES: &str = "
    CREATE TABLE IF NOT EXISTS floor (id int PRIMARY KEY, value bigint NOT NULL) WITH (fillfactor = 50);
    INSERT INTO floor VALUES (1, 0) ON CONFLICT DO NOTHING;
    CREATE TABLE IF NOT EXISTS shedlock (
        name varchar(64) PRIMARY KEY, lock_until timestamp NOT NULL, locked_at timestamp NOT NULL, locked_by varchar(255) NOT NULL
    );
    INSERT INTO shedlock VALUES ('job', 'epoch', 'epoch', '') ON CONFLICT DO NOTHING";

/// How to lock, and how to release.
#[derive(Clone, Copy, Debug, Deserialize, Eq, PartialEq, Serialize)]
pub(crate) enum How {
    /// Two transactions that change one row each, and lock nothing.
    Floor,
    AdvisorySession,
    AdvisoryTransaction,
    /// As ShedLock does it once the row is there.
    Shedlock,
}

impl How {
    pub(super) const fn name(self) -> &'static str {
        match self {
            Self::Floor => "two UPDATEs, postgres",
            Self::AdvisorySession => "pg_advisory_lock",
            Self::AdvisoryTransaction => "pg_advisory_xact_lock",
            Self::Shedlock => "ShedLock's statements, postgres",
        }
    }

    const fn statements(self) -> [&'static str; 2] {
        match self {
            Self::Floor => {
                ["UPDATE floor SET value = value + length($1) WHERE id = 1"; 2]
            }
            Self::AdvisorySession => [
                "SELECT pg_advisory_lock(hashtextextended($1, 0))",
                "SELECT pg_advisory_unlock(hashtextextended($1, 0))",
            ],
            Self::AdvisoryTransaction => {
                ["SELECT pg_advisory_xact_lock(hashtextextended($1, 0))", "SELECT $1"]
            }
            Self::Shedlock => [
                "UPDATE shedlock SET lock_until = timezone('utc', CURRENT_TIMESTAMP) + interval '30 s',
                    locked_at = timezone('utc', CURRENT_TIMESTAMP), locked_by = $1
                    WHERE name = 'job' AND lock_until <= timezone('utc', CURRENT_TIMESTAMP)",
                "UPDATE shedlock SET lock_until = timezone('utc', CURRENT_TIMESTAMP)
                    WHERE name = 'job' AND locked_by = $1",
            ],
        }
    }
}

#[derive(Clone)]
pub(super) struct PostgresSql {
    client: Arc<Client>,
    how: How,
    acquire: Statement,
    release: Statement,
}

impl PostgresSql {
    pub(super) async fn connect(url: &str, how: How) -> Self {
        let (client, connection) = tokio_postgres::connect(url, NoTls).await.expect("it is up");
        tokio::spawn(connection);
        // Two processes that create a table at once get in each other's way.
        let alone = "SELECT pg_advisory_lock(0)";
        client.batch_execute(alone).await.expect("it is up");
        client.batch_execute(TABLES).await.expect("it is up");
        client.batch_execute("SELECT pg_advisory_unlock(0)").await.expect("it is up");
        let [acquire, release] = how.statements();
        let acquire = client.prepare(acquire).await.expect("it is up");
        let release = client.prepare(release).await.expect("it is up");
        Self { client: Arc::new(client), how, acquire, release }
    }
}

impl Locker for PostgresSql {
    type Lock = Key;

    fn lock(&self, key: &str) -> Key {
        Key { sql: self.clone(), key: key.to_owned() }
    }
}

pub(super) struct Key {
    sql: PostgresSql,
    key: String,
}

impl Lock for Key {
    async fn turn<W>(&self, work: W) -> W::Output
    where
        W: Future<Output: Send + 'static> + Send + 'static,
    {
        let Self { sql: PostgresSql { client, how, acquire, release }, key } = self;
        if let How::AdvisoryTransaction = how {
            // In one round trip.
            let values: [&(dyn ToSql + Sync); 1] = [key];
            let (begun, locked) =
                tokio::join!(client.batch_execute("BEGIN"), client.execute(acquire, &values));
            begun.expect("the server is up");
            locked.expect("the server is up");
            let done = work.await;
            client.batch_execute("COMMIT").await.expect("the server is up");
            return done;
        }
        let changed = client.execute(acquire, &[key]).await.expect("the server is up");
        assert_eq!(changed, 1, "the key is free");
        let done = work.await;
        let changed = client.execute(release, &[key]).await.expect("the server is up");
        assert_eq!(changed, 1, "the key is still locked");
        done
    }
}
