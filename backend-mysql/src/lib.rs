// The page contains examples that use the `leasehold` crate, which this crate cannot depend on. The
// examples are tested as doctests of `leasehold`.
#![cfg_attr(not(doctest), doc = include_str!("../README.md"))]
//!
//! # Quorums
//!
//! A database can be a member of a quorum of the crate `leasehold-quorum` if every commit waits
//! for the disk. This requires `innodb_flush_log_at_trx_commit = 1` and, if the server writes a
//! binary log, `sync_binlog = 1`. If the tables move to another server, the database loses its vote
//! until earlier leases have expired. The backend identifies a server by its `server_id`, host
//! name, port and, on MySQL, `server_uuid`.
//!
//! # Connections of your application
//!
//! On its own connections, Leasehold sets the session's settings once and prepares each statement
//! once. Most transactions are a single statement (`autocommit`).
//!
//! Implement [`Run`] to run the transactions on connections that your application already has. A
//! transaction is a batch of statements ([`Call::at`]). Send each batch as *one query*
//! (`mysql_async::Queryable::query_iter` or `sqlx::raw_sql`). If a batch fails, *close* its
//! connection, because the transaction may still be open. A batch sets the time zone, the SQL modes
//! and the time limits of its session. If other code uses the same
//! pool, the pool must reset a session between two uses. The pool of `mysql_async` does this.
#![cfg_attr(docsrs, feature(doc_cfg))]

mod database;

mod connector;
mod servers;

mod error;
mod tls;

pub use database::Mysql;
pub use leasehold_sql_support::Call;
pub use leasehold_sql_support::mysql::reported;
pub use leasehold_sql_support::remote::{Row, Run, RunError, Urgency};

/// Locks in a MySQL or MariaDB database. Clones share connections. The [crate]'s example shows how
/// to connect.
pub type MysqlBackend = leasehold_sql_support::Backend<leasehold_sql_support::Remote<Mysql>>;

/// The database and its options.
///
/// The URL is `mysql://[user[:password]@]host[:port]/database[?…]` or `mariadb://…`. Both URL
/// schemes work with MySQL and MariaDB.
///
/// | parameter | value |
/// | --- | --- |
/// | `prefix`, `schema`, `timeout-ms`, `connections` | see the methods with these names |
/// | `tables=exist` | see [`without_creating_tables`](leasehold_sql_support::remote::Config::without_creating_tables) |
/// | `socket` | the path of a Unix socket |
/// | `ssl-mode` | `disabled` (the default), `required`, `verify_ca` or `verify_identity`. The last three modes require a server certificate with the server's name |
/// | `ssl-ca` | the PEM file of the certificate authority, if the system does not trust the authority |
/// | `ssl-cert`, `ssl-key` | PEM files of a client's certificate |
pub type MysqlConfig = leasehold_sql_support::remote::Config<Mysql>;

/// The driver crate, re-exported. Use this re-export to create the [`mysql_async::OptsBuilder`] for
/// [`MysqlConfig::from_options`](leasehold_sql_support::remote::Config::from_options).
pub use mysql_async;
