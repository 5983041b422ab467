//! Leasehold's locks in a PostgreSQL database, through the [`tokio_postgres`] crate.
//!
//! If your application already has a PostgreSQL database, you do not need another server.
//! Acquiring, renewing or releasing a lock takes one message and one transaction. `NOTIFY` wakes
//! the waiters.
//!
//! ```no_run
//! # async fn example() -> Result<(), leasehold_core::Error> {
//! use leasehold_core::LockClient;
//! use leasehold_postgres::PostgresBackend;
//!
//! let client = LockClient::new(PostgresBackend::connect("postgres://app@127.0.0.1/app").await?);
//! let guard = client.mutex("invoice:42")?.lock().await?;
//! // UPDATE invoice SET paid = true, fence = $token WHERE id = 42 AND fence <= $token
//! let token = guard.token();
//! # let _ = token;
//! # Ok(())
//! # }
//! ```
//!
//! # Guarantees
//!
//! A lock is exclusive as long as the server's clock does not jump and every new primary has all
//! commits. Fencing tokens strictly increase as long as the server keeps acknowledged commits. The
//! token of a grant is the last token plus 1, or the server's current time if that is larger. Each
//! microsecond of the server's clock has two tokens.
//!
//! A failover to a synchronous replica does not lose a grant. If the commit is cancelled while it
//! waits for the replica, the server still acknowledges the commit, but with a warning, and
//! Leasehold reports an unknown outcome.
//!
//! # Tables and permissions
//!
//! The store consists of three tables of bounded size: `leasehold_stripe`, `leasehold_lease` and
//! `leasehold_member`. The first connection creates the tables if the user has the permission. If
//! the user lacks the permission, an administrator must run the statements of
//! [`PostgresConfig::migration`], and grant the user these permissions:
//!
//! ```sql
#![doc = include_str!("../tests/rights.sql")]
//! ```
//!
//! To use another schema or other table names, set [`PostgresConfig::schema`] and
//! [`PostgresConfig::prefix`]. The backend requires PostgreSQL 12 or newer.
//!
//! # Quorums
//!
//! A database can be a member of a [`Quorum`](leasehold_core::quorum::Quorum). The database loses
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
//! A transaction does not depend on its session, so it can run through a pooler such as PgBouncer
//! in transaction mode. A pooler does not forward notifications, so set `push=off`. Each connection
//! prepares the statements of a lock once. If a pooler has changed the session of one connection,
//! the client stops preparing statements.
//!
//! Implement [`Run`] to run the transactions on connections that your application already has, with
//! `deadpool`, `sqlx` or any other crate. Send each [`Text`] as *one message of the simple query
//! protocol* (`tokio_postgres::Client::simple_query` or `sqlx::raw_sql`). Waiters then poll.
//!
//! ```no_run
//! use std::time::Duration;
//!
//! use leasehold_postgres::tokio_postgres::{self, Client, SimpleQueryMessage, SimpleQueryRow}; use
//! leasehold_postgres::{PostgresBackend, PostgresConfig, Row, Run, RunError, Text, Urgency,
//! reported};
//!
//! /// One connection, which the application makes and drives.
//! struct Mine(Client);
//! # impl std::fmt::Debug for Mine {
//! #     fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result { f.write_str("Mine") }
//! # }
//!
//! #[async_trait::async_trait]
//! impl Run for Mine {
//!     async fn run(&self, text: &Text, _: Urgency, limit: Duration) -> Result<Vec<Row>, RunError> {
//!         let reply = self.0.simple_query(&text.at(limit * 4 / 5)).await;
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

mod connector;
mod servers;

mod error;
mod tls;

pub use database::Postgres;
pub use leasehold_sql_support::postgres::reported;
pub use leasehold_sql_support::remote::{Row, Run, RunError, Text, Urgency};

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
