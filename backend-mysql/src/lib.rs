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
//! It needs MySQL 8.0 or MariaDB 10.6, or a later one, and three InnoDB tables, which it creates where it may. Where it may not, an
//! administrator runs [`MysqlConfig::migration`] and gives the user the rights that all operations take:
//!
//! ```sql
#![doc = include_str!("../tests/rights.sql")]
//! ```
//!
//! All clients write to *one* server, the primary. In a cluster with several writers (Galera, group replication with several primaries), leases
//! would end by several clocks: one of its nodes must get all the writes of Leasehold.
//!
//! The server sends no news. Waiters poll, in intervals with jitter; waiters in this process hear of each other at once.
//!
//! # Quorums
//!
//! A database can be a member of a [`Quorum`](leasehold_core::quorum::Quorum), if the server waits for the disk: `innodb_flush_log_at_trx_commit` and, with a binary log,
//! `sync_binlog` are 1. It loses its vote, until earlier leases are over, when another server has the tables, by its `server_id`, host name,
//! port and, in MySQL, `server_uuid`.
//!
//! # Pools of the application
//!
//! [`Run`] has transactions run on connections that the application has. Each text goes to the server in *one query of several statements*
//! (`mysql_async::Queryable::query_iter`, `sqlx::raw_sql`). A connection on which a text failed must be *closed*: its transaction may be
//! open. A text sets the time zone, the modes and the limits of time of its session, and variables such as `@now`. A pool that others use,
//! too, resets the session between two uses, as that of `mysql_async` does.
#![cfg_attr(docsrs, feature(doc_cfg))]

mod database;

mod connector;
mod servers;

mod error;
mod tls;

pub use database::Mysql;
pub use leasehold_sql_support::mysql::reported;
pub use leasehold_sql_support::remote::{Row, Run, RunError, Text, Urgency};

/// Locks in a MySQL or MariaDB database. Clones share connections.
pub type MysqlBackend = leasehold_sql_support::Backend<leasehold_sql_support::Remote<Mysql>>;

/// Which database to use, and how.
///
/// A URL is `mysql://[user[:password]@]host[:port]/database[?…]`, or `mariadb://…`, for both servers.
///
/// | parameter | value |
/// | --- | --- |
/// | `prefix`, `schema`, `timeout-ms`, `connections` | as the methods of these names |
/// | `tables=exist` | as [`without_creating_tables`](leasehold_sql_support::remote::Config::without_creating_tables) |
/// | `socket` | the path of a Unix socket |
/// | `ssl-mode` | `disabled` (the default), or `required`, `verify_ca` or `verify_identity`, which all ask for a server with a certificate for its name |
/// | `ssl-ca` | the PEM file of the authority, if it is not one that the system trusts |
/// | `ssl-cert`, `ssl-key` | PEM files of a client's certificate |
pub type MysqlConfig = leasehold_sql_support::remote::Config<Mysql>;

/// The driver, to make the [`mysql_async::OptsBuilder`] that
/// [`MysqlConfig::from_options`](leasehold_sql_support::remote::Config::from_options) takes.
pub use mysql_async;
