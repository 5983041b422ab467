//! Leasehold locks in a MySQL or MariaDB database, with the [`mysql_async`] crate.
//!
//! ```no_run
//! # async fn example() -> Result<(), leasehold_core::Error> {
//! use leasehold_core::LockClient;
//! use leasehold_mysql::MysqlBackend;
//!
//! let backend = MysqlBackend::connect("mysql://locker:secret@db.example/app").await?;
//! let client = LockClient::new(backend);
//! let guard = client.mutex("invoice:42")?.lock().await?;
//! // … `guard.token()` goes with each write, see the guide …
//! guard.release().await?;
//! # Ok(())
//! # }
//! ```
//!
//! It needs MySQL 8.0 or MariaDB 10.6, or a later one, and two InnoDB tables, which it creates where it may. Where it may not, an
//! administrator runs [`MysqlConfig::migration`] and gives the user the rights that all operations take:
//!
//! ```sql
#![doc = include_str!("../tests/rights.sql")]
//! ```
//!
//! All clients write to *one* server, the primary. In a cluster with several writers (Galera, group replication with several primaries), leases
//! would end by several clocks: one of its nodes must get all the writes of Leasehold.
//!
//! The server sends no news. Those who wait poll, in intervals with jitter; those in this process hear of each other at once.

mod database;

mod pool;
mod run;
mod under_way;

mod config;
mod connector;
mod error;

pub use config::MysqlConfig;
pub use database::Mysql;
pub use error::RunError;
pub use leasehold_sql_support::remote::{Row, Text};
pub use run::{Run, Urgency};

/// Locks in a MySQL or MariaDB database. Clones share connections.
pub type MysqlBackend = leasehold_sql_support::Backend<Mysql>;

/// The driver, to make the [`mysql_async::OptsBuilder`] that [`MysqlConfig::from_options`] takes.
pub use mysql_async;
