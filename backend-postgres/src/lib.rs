//! Leasehold locks in a PostgreSQL database, with the [`tokio_postgres`] crate.
//!
//! An application that has a database needs nothing else. Acquiring, renewing and releasing are one message and one transaction each;
//! `NOTIFY` tells waiters.
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
//! # Promises
//!
//! Mutual exclusion holds while the server's clock does not jump and no server takes over without the last commits. Fencing tokens
//! strictly increase while the server keeps acknowledged commits: the token of a grant is the larger of the last one + 1 and the
//! server's clock, of which each microsecond has two tokens.
//!
//! A failover to a synchronous replica loses no grant. The server acknowledges a commit whose wait for that replica was cancelled, with a
//! warning: the outcome is unknown then.
//!
//! # Tables and rights
//!
//! The store has three tables of bounded size: `leasehold_stripe`, `leasehold_lease` and `leasehold_member`. The first connection creates
//! them. Otherwise an administrator runs the statements of [`PostgresConfig::migration`], and the user needs these rights:
//!
//! ```sql
#![doc = include_str!("../tests/rights.sql")]
//! ```
//!
//! [`PostgresConfig::schema`] and [`PostgresConfig::prefix`] put them elsewhere. Version 12 or newer is needed.
//!
//! # Quorums
//!
//! A database can be a member of a [`Quorum`](leasehold_core::quorum::Quorum). It loses its vote, until earlier leases are over, when a server was promoted or recovered from a
//! backup (another timeline), or the tables were restored on another server (another system identifier). A server with
//! `fsync = off` loses its vote with each start. The texts ask for `synchronous_commit` themselves.
//!
//! # Poolers, pools and other drivers
//!
//! Transactions need no session of their own, so they go through poolers such as PgBouncer in transaction mode. Nothing is heard there: say
//! `push=off`. Connections prepare the statements of a lock once, and none any more as soon as a pooler has changed the session of one.
//!
//! [`Run`] lets an application run them on connections that it has, with `deadpool`, `sqlx` or any other crate. Each text goes to the server
//! in *one message of the simple query protocol* (`tokio_postgres::Client::simple_query`, `sqlx::raw_sql`). Waiters poll then.
//!
//! ```no_run
//! use std::time::Duration;
//!
//! use leasehold_postgres::tokio_postgres::{self, Client, SimpleQueryMessage, SimpleQueryRow};
//! use leasehold_postgres::{PostgresBackend, PostgresConfig, Row, Run, RunError, Text, Urgency, reported};
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
//! Otherwise one client makes up to [`connections`](PostgresConfig::connections) + 2 connections, and one that listens while anything is waited for or
//! held.
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

/// Locks in a PostgreSQL database. Clones share connections.
pub type PostgresBackend = leasehold_sql_support::Backend<leasehold_sql_support::Remote<Postgres>>;

/// Which database to use, and how.
///
/// A URL is one that `libpq` and its like take: `postgres://[user[:password]@][host][:port][,…][/database][?…]`, also `postgresql://`.
/// With several hosts, the parameter `target_session_attrs=read-write` finds the primary among them. Each host has an equal part of the
/// call's time to let a client in.
///
/// | parameter | value |
/// | --- | --- |
/// | `prefix`, `schema`, `timeout-ms`, `connections` | as the methods of these names |
/// | `push=off` | as [`without_push`](leasehold_sql_support::remote::Config::without_push) |
/// | `tables=exist` | as [`without_creating_tables`](leasehold_sql_support::remote::Config::without_creating_tables) |
/// | `sslmode` | `disable` (the default), or `require`, `verify-ca` or `verify-full`, which all ask for a server with a certificate for its name |
/// | `sslrootcert` | the PEM file of the authority, if it is not one that the system trusts |
/// | `sslcert`, `sslkey` | PEM files of a client's certificate |
///
/// Options that the application made as a [`tokio_postgres::Config`] make connections without encryption.
pub type PostgresConfig = leasehold_sql_support::remote::Config<Postgres>;

/// The driver, to make the [`tokio_postgres::Config`] that
/// [`PostgresConfig::from_options`](leasehold_sql_support::remote::Config::from_options) takes.
pub use tokio_postgres;
