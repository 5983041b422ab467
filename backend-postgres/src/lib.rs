// The page contains examples that use the `leasehold` crate, which this crate cannot depend on. The
// examples are tested as doctests of `leasehold`.
#![cfg_attr(not(doctest), doc = include_str!("../README.md"))]
//!
//! # Quorums
//!
//! A database can be a member of a quorum of the crate `leasehold-quorum`. The database loses
//! its vote until earlier leases have expired in these cases:
//!
//! - A server was promoted or recovered from a backup (its timeline changed).
//! - The tables were restored on another server (the system identifier changed).
//! - A server with `fsync = off` was restarted.
//!
//! The transactions request `synchronous_commit` themselves.
//!
//! # Poolers, pools and other drivers
//!
//! On a connection to the server, Leasehold sets the session's settings once and prepares each
//! statement once. Behind a pooler such as PgBouncer, each transaction is a complete query batch with
//! its own settings, which a pooler in transaction mode may run on any session. If the pooler does not
//! forward notifications, waiters poll, and the client logs a warning.
//!
//! Implement [`Run`] to run the transactions on connections that your application already has, with
//! `deadpool`, `sqlx` or any other crate. Send each query batch ([`Call::at`]) as *one message of the
//! simple query protocol* (`tokio_postgres::Client::simple_query` or `sqlx::raw_sql`). Waiters then
//! poll.
//!
//! ```no_run
//! use std::time::Duration;
//!
//! use leasehold_postgres::tokio_postgres::{Client, SimpleQueryMessage, SimpleQueryRow};
//! use leasehold_postgres::{
//!     Call, PostgresBackend, PostgresConfig, Row, Run, RunError, Urgency, reported,
//! };
//!
//! /// One connection, which the application makes and drives.
//! struct Mine(Client);
//! # impl std::fmt::Debug for Mine {
//! #     fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result { f.write_str("Mine") }
//! # }
//!
//! #[async_trait::async_trait]
//! impl Run for Mine {
//!     async fn run(&self, call: &Call, _: Urgency, limit: Duration) -> Result<Vec<Row>, RunError> {
//!         let reply = self.0.simple_query(&call.at(limit * 4 / 5)).await;
//!         let messages = reply.map_err(|error| match error.code().cloned() {
//!             Some(code) => reported(code.code(), error),
//!             None => RunError::no_reply(error),
//!         })?;
//!         let columns = |row: &SimpleQueryRow| (0..row.len()).map(|i| row.get(i).map(str::to_owned)).collect();
//!         let rows = messages.iter().filter_map(|message| match message {
//!             SimpleQueryMessage::Row(row) => Some(columns(row)),
//!             _ => None,
//!         });
//!         Ok(rows.collect())
//!     }
//! }
//!
//! # async fn example(client: Client) -> Result<(), leasehold_core::Error> {
//! let backend = PostgresBackend::connect_with(PostgresConfig::from_run(Mine(client))).await?;
//! # Ok(())
//! # }
//! ```
//!
//! Without [`Run`], a client opens up to [`connections`](PostgresConfig::connections) + 2
//! connections. It opens one more connection for notifications as long as a lock is held or waited
//! for.
#![cfg_attr(docsrs, feature(doc_cfg))]

mod database;

mod listener;
mod pooler;

mod connector;
mod servers;

mod error;
mod texts;
mod tls;

pub use database::Postgres;
pub use leasehold_sql_support::Call;
pub use leasehold_sql_support::postgres::reported;
pub use leasehold_sql_support::remote::{Row, Run, RunError, Urgency};

/// Locks in a PostgreSQL database. Clones share connections. The [crate]'s example shows how to
/// connect.
pub type PostgresBackend = leasehold_sql_support::Backend<leasehold_sql_support::Remote<Postgres>>;

/// The database and its options.
///
/// The URL has the format of `libpq`:
/// `postgres://[user[:password]@][host][:port][,…][/database][?…]`, or `postgresql://…`. If you
/// list several hosts, add `target_session_attrs=read-write` to find the primary. The time limit
/// for connecting is divided equally among the hosts.
///
/// | parameter | value |
/// | --- | --- |
/// | `prefix`, `schema`, `timeout-ms`, `connections` | see the methods with these names |
/// | `push=off` | see [`without_push`](leasehold_sql_support::remote::Config::without_push) |
/// | `release=lazy` | see [`with_lazy_releases`](leasehold_sql_support::remote::Config::with_lazy_releases) |
/// | `tables=exist` | see [`without_creating_tables`](leasehold_sql_support::remote::Config::without_creating_tables) |
/// | `sslmode` | `disable` (the default), `require`, `verify-ca` or `verify-full`. The last three modes require a server certificate with the server's name |
/// | `sslrootcert` | the PEM file of the certificate authority, if the system does not trust the authority |
/// | `sslcert`, `sslkey` | PEM files of a client's certificate |
///
/// If you pass a [`tokio_postgres::Config`] instead of a URL, connections are not encrypted.
pub type PostgresConfig = leasehold_sql_support::remote::Config<Postgres>;

/// The driver crate, re-exported. Use this re-export to create the [`tokio_postgres::Config`] for
/// [`PostgresConfig::from_options`](leasehold_sql_support::remote::Config::from_options).
pub use tokio_postgres;
