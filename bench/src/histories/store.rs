//! The stores that processes share, and one that they only seem to.

use clap::ValueEnum;
use leasehold_testbed::{MariaDb, Postgres};
use tempfile::TempDir;

/// A kind of store.
#[derive(Clone, Copy, Debug, ValueEnum)]
pub(crate) enum Kind {
    /// A file.
    Sqlite,
    /// A PostgreSQL server.
    Postgres,
    /// A MariaDB server.
    Mariadb,
    /// A store in each process, so that none excludes another: to see that this is found.
    Memory,
}

/// A store, which dies when dropped.
#[derive(Debug)]
pub(crate) enum Store {
    Sqlite(TempDir),
    Postgres(Box<Postgres>),
    MariaDb(Box<MariaDb>),
    Memory,
    /// One that was there before, and stays.
    At(String),
}

impl Store {
    pub(crate) async fn start(kind: Kind) -> Self {
        match kind {
            Kind::Sqlite => {
                Self::Sqlite(tempfile::tempdir().expect("temporary folders can be made"))
            }
            Kind::Postgres => Self::Postgres(Box::new(Postgres::start().await)),
            Kind::Mariadb => Self::MariaDb(Box::new(MariaDb::start().await)),
            Kind::Memory => Self::Memory,
        }
    }

    /// Its name in reports, without its URL, which may have a password.
    pub(crate) fn name(&self) -> &'static str {
        match self {
            Self::Sqlite(_) => "SQLite",
            Self::Postgres(_) => "PostgreSQL",
            Self::MariaDb(_) => "MariaDB",
            Self::Memory => "memory",
            Self::At(_) => "the store given",
        }
    }

    pub(crate) fn url(&self) -> String {
        match self {
            Self::Sqlite(folder) => format!("sqlite:{}/locks.db", folder.path().display()),
            Self::Postgres(server) => server.url(),
            Self::MariaDb(server) => server.url(),
            Self::Memory => "memory:".to_owned(),
            Self::At(url) => url.clone(),
        }
    }
}
