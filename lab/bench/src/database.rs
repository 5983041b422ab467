//! Databases of the bench's own, and the figures that they give of their work.

use std::any::Any;
use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use clap::ValueEnum;
use leasehold_mysql::mysql_async::prelude::Queryable;
use leasehold_mysql::mysql_async::{Conn, Opts};
use leasehold_postgres::tokio_postgres::{self, NoTls};
use leasehold_testbed::{MariaDb, MariaDbOptions, Postgres, PostgresOptions};
use rusqlite::Connection;
use serde::{Deserialize, Serialize};
use tempfile::TempDir;

use crate::machine::cpu_time_of;

/// A kind of database.
#[derive(Clone, Copy, Debug, Deserialize, Eq, PartialEq, Serialize, ValueEnum)]
pub(crate) enum Database {
    Postgres,
    MariaDb,
    Sqlite,
}

impl Database {
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Postgres => "postgres",
            Self::MariaDb => "mariadb",
            Self::Sqlite => "sqlite",
        }
    }
}

/// A database. It is gone when dropped.
#[derive(Debug)]
pub(crate) enum Server {
    Postgres(Box<Postgres>),
    MariaDb(Box<MariaDb>),
    Sqlite(TempDir),
}

impl Server {
    /// Starts one that does not wait for its disk.
    pub(crate) async fn start(database: Database) -> Self {
        match database {
            Database::Postgres => Self::Postgres(Box::new(Postgres::start().await)),
            Database::MariaDb => Self::MariaDb(Box::new(MariaDb::start().await)),
            Database::Sqlite => {
                Self::Sqlite(tempfile::tempdir().expect("temporary folders can be made"))
            }
        }
    }

    /// Starts one that waits for its disk at each commit, as databases do by default. SQLite does not, as far as we use it.
    pub(crate) async fn start_durable(database: Database) -> Self {
        match database {
            Database::Postgres => {
                Self::Postgres(Box::new(PostgresOptions::new().durable().start().await))
            }
            Database::MariaDb => {
                Self::MariaDb(Box::new(MariaDbOptions::new().durable().start().await))
            }
            Database::Sqlite => Self::start(database).await,
        }
    }

    pub(crate) fn url(&self) -> String {
        match self {
            Self::Postgres(server) => server.url(),
            Self::MariaDb(server) => server.url(),
            Self::Sqlite(folder) => format!("sqlite:{}", file(folder.path()).display()),
        }
    }

    /// The time that the server kept cores busy; zero for SQLite, which has none.
    pub(crate) fn cpu_time(&self) -> Duration {
        match self {
            Self::Postgres(server) => {
                let pid = fs::read_to_string(server.folder().join("data/postmaster.pid"));
                let pid = pid.expect("it is up");
                cpu_time_of(pid.lines().next().expect("it has a number"))
            }
            Self::MariaDb(server) => {
                let pid = fs::read_to_string(server.folder().join("pid")).expect("it is up");
                cpu_time_of(pid.trim())
            }
            Self::Sqlite(_) => Duration::ZERO,
        }
    }

    /// The rows that all clients have changed, where the server counts them.
    pub(crate) async fn rows_changed(&self) -> Option<f64> {
        let count = match self {
            Self::Postgres(server) => {
                let sum = "SELECT sum(n_tup_upd) FROM pg_stat_user_tables";
                server.sql(sum).await
            }
            Self::MariaDb(server) => {
                let status = server.sql("SHOW GLOBAL STATUS LIKE 'Handler_update'").await;
                status.split_whitespace().last().expect("it has a value").to_owned()
            }
            Self::Sqlite(_) => return None,
        };
        Some(count.parse().expect("it is a number"))
    }

    /// Begins a transaction with a snapshot of the table of keys. The transaction ends when the returned connection is
    /// dropped.
    pub(crate) async fn open_snapshot(&self) -> Box<dyn Any + Send> {
        let read = "SELECT count(*) FROM leasehold_key";
        match self {
            Self::Postgres(server) => {
                let connected = tokio_postgres::connect(&server.url(), NoTls).await;
                let (client, connection) = connected.expect("the server is up");
                tokio::spawn(connection);
                let begin = format!("BEGIN ISOLATION LEVEL REPEATABLE READ; {read}");
                client.batch_execute(&begin).await.expect("the table exists");
                Box::new(client)
            }
            Self::MariaDb(server) => {
                let options = Opts::from_url(&server.url()).expect("the URL is valid");
                let mut conn = Conn::new(options).await.expect("the server is up");
                let begin = "START TRANSACTION WITH CONSISTENT SNAPSHOT";
                conn.query_drop(begin).await.expect("the server is up");
                conn.query_drop(read).await.expect("the table exists");
                Box::new(conn)
            }
            Self::Sqlite(_) => panic!("the scenario measures only servers"),
        }
    }

    /// The number of rows in the table of keys.
    pub(crate) async fn rows(&self) -> f64 {
        let count = "SELECT count(*) FROM leasehold_key";
        match self {
            Self::Postgres(server) => {
                server.sql(count).await.trim().parse().expect("the count is a number")
            }
            Self::MariaDb(server) => {
                server.sql(count).await.trim().parse().expect("the count is a number")
            }
            Self::Sqlite(folder) => {
                let open = Connection::open(file(folder.path())).expect("the file exists");
                open.query_row(count, [], |row| row.get(0)).expect("the table exists")
            }
        }
    }

    /// The size of the tables of locks on the disk, in bytes.
    pub(crate) async fn bytes(&self) -> f64 {
        match self {
            Self::Postgres(server) => {
                let sizes = "SELECT sum(pg_total_relation_size(oid)) FROM pg_class
                    WHERE relkind = 'r' AND relname LIKE 'leasehold%'";
                server.sql(sizes).await.parse().expect("it is a number")
            }
            Self::MariaDb(server) => size_of(&server.folder().join("data/leasehold")),
            Self::Sqlite(folder) => size_of(folder.path()),
        }
    }
}

fn file(folder: &Path) -> PathBuf {
    folder.join("locks.db")
}

/// The sizes of all files in a folder.
fn size_of(folder: &Path) -> f64 {
    let files = fs::read_dir(folder).expect("the database has a folder");
    let sizes = files.map(|file| file.and_then(|file| file.metadata()).map(|file| file.len()));
    let sum: u64 = sizes.map(|size| size.expect("the folder can be read")).sum();
    sum as f64
}
