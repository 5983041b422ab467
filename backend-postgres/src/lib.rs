//! Leasehold locks in a PostgreSQL database, with the [`tokio_postgres`] crate.
//!
//! An application that has a database needs nothing else. Acquiring, renewing and releasing are one message and one transaction each;
//! those who wait are told by `NOTIFY`.
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
//! # What is promised
//!
//! Mutual exclusion holds while the server's clock does not jump and no server takes over that has not heard of the last commits. Fencing
//! tokens strictly increase while the server keeps what it acknowledged: those of a key are the larger of the last one + 1 and the
//! server's clock in microseconds.
//!
//! # Tables and rights
//!
//! Two tables of bounded size, `leasehold_stripe` and `leasehold_lease`, are made at the first connection, or by an administrator who runs the
//! statements of [`PostgresConfig::migration`]. This is all that a user needs then:
//!
//! ```sql
#![doc = include_str!("../tests/rights.sql")]
//! ```
//!
//! [`PostgresConfig::schema`] and [`PostgresConfig::prefix`] put them elsewhere. Version 12 or newer is needed.
//!
//! # Poolers, pools and other drivers
//!
//! Transactions need no session of their own, so they go through poolers such as PgBouncer in transaction mode. Nothing is heard there: say
//! `push=off`. [`Run`] lets an application run them on connections that it has, with `deadpool`, `sqlx` or any other crate.
//!
//! One client makes up to [`connections`](PostgresConfig::connections) + 2 connections, and one that listens while anything is waited for or
//! held.

mod database;

mod listener;
mod pool;
mod run;
mod under_way;

mod config;
mod connector;
mod error;
mod tls;

pub use config::PostgresConfig;
pub use database::Postgres;
pub use error::RunError;
pub use leasehold_sql_support::remote::{Row, Text};
pub use run::{Run, Urgency};

/// Locks in a PostgreSQL database. Clones share connections.
pub type PostgresBackend = leasehold_sql_support::Backend<Postgres>;

/// The driver, to make the [`tokio_postgres::Config`] that [`PostgresConfig::from_options`] takes.
pub use tokio_postgres;
