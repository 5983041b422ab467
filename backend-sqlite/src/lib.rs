// The page contains examples that use the `leasehold` crate, which this crate cannot depend on. The
// examples are tested as doctests of `leasehold`.
#![cfg_attr(not(doctest), doc = include_str!("../README.md"))]
//!
//! # Quorums
//!
//! On Linux, a file can be a member of a quorum of the crate `leasehold-quorum` whose clients
//! all run on this machine. Restarting the machine ends the file's quorum membership and all
//! leases.
//!
//! # How it works
//!
//! Each key has [one row](leasehold_sql_support::rows). Each request is a `BEGIN IMMEDIATE`
//! transaction, which runs on the caller's thread if the file is not busy. Otherwise, one thread runs
//! the transaction. If several calls wait, the thread runs up to 64 calls in one transaction, and
//! renewals come first. If a call fails, the calls of its transaction run again, one by one. If the
//! outcome of the transaction is unknown, all of its calls return
//! [`Indeterminate`](leasehold_core::ErrorKind::Indeterminate) instead. If another process keeps the
//! file locked, the call retries for a limited time and then returns
//! [`Unavailable`](leasehold_core::ErrorKind::Unavailable), so that the client retries later.
//!
//! A release wakes the next waiter in another process by a datagram. The waiting process creates a
//! socket for the datagrams next to the file (`-wake-0`, `-wake-1` and so on). The thread also checks
//! for changes by other processes (`PRAGMA data_version`):
//!
//! - While callers wait, the thread checks the file every 5 to 10 ms. If other claims precede all
//!   claims of the process in the queue, or if the queue has no space for these claims, the interval
//!   is longer, but at most 200 ms.
//! - While there are only holders, the thread checks the file every 100 to 200 ms.
//! - While there are neither waiting callers nor holders, the thread checks every 1 to 2 s whether
//!   the files still exist.
//!
//! # Layout
//!
//! `leasehold_key` has [one row per key](leasehold_sql_support::rows), and the view
//! `leasehold_locks` shows the rows that have not been released. Times are in microseconds since the
//! machine was started. `leasehold_host` and `leasehold_member` have a single row each.
//!
//! | column of `leasehold_host` | contents |
//! | --- | --- |
//! | `layout` | the number of this layout, 2 |
//! | `machine`, `boot` | the machine on which the file can be used, and its boot ID |
//! | `ceiling` | the upper bound of all granted tokens, which is on the disk |
//! | `alarms` | the number of forced releases and revocation requests |
//! | `min_token` | the minimum token, which the tokens of new rows exceed |
//!
//! | column of `leasehold_member` | contents |
//! | --- | --- |
//! | `store` | the identity of the data |
//! | `charter` | the [quorum configuration](leasehold_core::backend::QuorumConfiguration); null if the file is not a member of a quorum |
//! | `since` | when the data was given this identity |
//! | `incarnation` | the boot ID at that time; after a restart of the machine, the row counts as empty |

mod config;
mod host;

mod database;
mod worker;

mod poll;
mod wake;

mod tables;

mod connection;
mod file;
mod store;

mod error;

pub use config::SqliteConfig;
pub use database::Sqlite;
pub use host::Host;

/// Locks in a SQLite file. [`connect`](leasehold_sql_support::rows::Backend::connect) accepts a URL, and
/// [`connect_with`](leasehold_sql_support::rows::Backend::connect_with) accepts a [`SqliteConfig`].
/// Clones share one connection.
pub type SqliteBackend = leasehold_sql_support::rows::Backend<Sqlite>;
