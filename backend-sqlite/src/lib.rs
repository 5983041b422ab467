//! Leasehold's locks in a SQLite file, for processes on one machine. You do not need a server.
//!
//! ```
//! # tokio::runtime::Builder::new_current_thread().enable_all().build()?.block_on(async {
//! # let folder = tempfile::tempdir()?;
//! # let file = folder.path().join("locks.db");
//! use leasehold_core::{LockClient, TryLockError};
//! use leasehold_sqlite::{SqliteBackend, SqliteConfig};
//!
//! let config = SqliteConfig::new(&file)?;
//! let one = LockClient::new(SqliteBackend::connect_with(config.clone()).await?);
//! let other = LockClient::new(SqliteBackend::connect_with(config).await?);
//!
//! let guard = one.mutex("invoice:42")?.lock().await?;
//! assert!(matches!(other.mutex("invoice:42")?.try_lock().await, Err(TryLockError::Busy(_))));
//! guard.release().await?;
//! assert!(other.mutex("invoice:42")?.try_lock().await.is_ok());
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! # })?;
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! # Guarantees
//!
//! Locks in a file have the guarantees of an in-memory store, for all processes on one machine.
//! Holders, waiters and the file use a single clock. This clock keeps running while the machine is
//! suspended and cannot be set, so locks do not depend on the time of day. Restarting the machine
//! frees all keys immediately. Fencing tokens are strict, even after a power failure, because an
//! upper bound for the tokens is written to the disk before a token is granted. Each new bound is
//! high enough for the tokens of the next minute, so only one commit per minute waits for the disk.
//!
//! If the file is deleted or replaced, the store loses its data. The next call creates a new file.
//! Former holders are notified within 250 ms. The first fencing token in the new file is derived
//! from the time of day. Next to the file, SQLite keeps a log (`-wal`) and an index (`-shm`), which
//! the store needs. If the log or the index is deleted, no lease is lost, but a new client waits
//! until all existing clients have noticed the deletion.
//!
//! On Linux, a file can be a member of a [`Quorum`](leasehold_core::quorum::Quorum) whose clients
//! all run on this machine. Restarting the machine ends the file's quorum membership and all
//! leases.
//!
//! # Where to put the file
//!
//! Put the file on a local disk. The file stores the machine's identity and boot ID. The backend
//! returns [`Unsupported`](leasehold_core::ErrorKind::Unsupported) for a file from a different
//! machine, in a time namespace with a separate clock, and on file systems that several machines
//! may use, such as NFS, SMB, FUSE and 9P. Containers on one machine can share a file. The backend
//! runs on Unix systems. On systems other than Linux, leases expire according to the wall clock.
//!
//! The backend creates the file and missing directories for the current user only. If a process can
//! write the file, it can acquire every lock in it. If a process can only read the file, it can
//! [inspect](leasehold_core::LockClient::admin) the locks but not acquire them. The file does not
//! contain lease IDs, because they are secrets.
//!
//! You can add Leasehold's tables to your application's database. The backend then switches the
//! database to WAL mode. While your application has an open write transaction, all lock requests
//! wait. Do not open the file with a second copy of SQLite in the same process, because closing
//! that copy's connection would remove the file's locks (see *How To Corrupt An SQLite Database
//! File*, 2.2).
//!
//! # How it works
//!
//! One thread owns the connection, and runs renewals and releases before other requests. Each
//! request is a `BEGIN IMMEDIATE` transaction. If another process keeps the file locked, the call
//! retries for a limited time and then returns
//! [`Unavailable`](leasehold_core::ErrorKind::Unavailable), so that the client retries later. The
//! thread also checks for changes by other processes (`PRAGMA data_version`):
//!
//! - While callers wait, the thread checks the file every 5 to 10 ms.
//! - While there are only holders, the thread checks the file every 100 to 200 ms.
//! - While there are neither waiting callers nor holders, the thread checks every 1 to 2 s whether
//!   the files still exist.

mod config;
mod host;

mod database;
mod worker;

mod look;
mod steps;

mod entry;
mod tables;

mod connection;
mod file;
mod store;

mod error;

pub use config::SqliteConfig;
pub use database::Sqlite;
pub use host::Host;

/// Locks in a SQLite file. [`connect`](leasehold_sql_support::Backend::connect) accepts a URL, and
/// [`connect_with`](leasehold_sql_support::Backend::connect_with) accepts a [`SqliteConfig`].
/// Clones share one connection.
pub type SqliteBackend = leasehold_sql_support::Backend<Sqlite>;
