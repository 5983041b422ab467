//! Leasehold locks in a SQLite file, for the processes of one machine. No server is needed.
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
//! # Promises
//!
//! As much as by a store in memory, for all processes of one machine. Holders, waiters and the file go by one clock, which goes on while
//! the machine is suspended and cannot be set, so exclusion does not hang on the time of day. A restart of the machine frees
//! all keys at once. Fencing tokens are strict, also over a loss of power: the disk has them before a grant gives them out,
//! a minute's worth at a time, and no other commit waits for the disk.
//!
//! A file that is deleted or replaced is a store that has lost its data: the next call creates another. Its former holders are notified
//! within 250 ms. Tokens go on from the time of day. The log (`-wal`) and the index (`-shm`) that SQLite keeps next to the file belong to it:
//! if they are deleted, no lease is lost, and a new client waits until all clients with the former files have noticed.
//!
//! A file can be a member of a [`Quorum`](leasehold_core::quorum::Quorum) whose clients are all on this machine, if that runs Linux. A restart of the machine ends its
//! membership, as it ends its leases.
//!
//! # Where the file may lie
//!
//! On a disk of this machine. The file remembers the machine and its boot id; a file of another machine is refused
//! ([`Unsupported`](leasehold_core::ErrorKind::Unsupported)), and so are NFS, SMB, FUSE, 9P and other file systems that several machines may use,
//! and time namespaces with a clock of their own. Containers of one machine may share a file. It takes a Unix; elsewhere than on Linux, leases end by
//! the time of day.
//!
//! The file and missing directories are created for their owner alone. A process that may write the file may acquire every lock in it. A process
//! that may only read the file can [look](leasehold_core::LockClient::admin) at the locks. Lease ids, which are secrets, are not in it.
//!
//! An application may have Leasehold's tables in its own database, which then is in WAL mode. A transaction of the application that
//! writes keeps out all requests for locks as long as it lasts.
//! It must not open the file by another copy of SQLite in the same process: closing that would end the locks of the file
//! (see *How To Corrupt An SQLite Database File*, 2.2).
//!
//! # How it works
//!
//! One thread has the connection, and does renewals and releases first. Each request is one `BEGIN IMMEDIATE` transaction; a file that others keep
//! busy is tried again within the call, and then was [not changed](leasehold_core::ErrorKind::Unavailable), so that core goes on. While
//! callers wait, the thread looks every 5 to 10 ms whether other processes have changed anything (`PRAGMA data_version`), every 100 to 200 ms while there are only
//! holders, and otherwise every 1 to 2 s whether the files are still in place.

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

/// Locks in a SQLite file: [`connect`](leasehold_sql_support::Backend::connect) takes a URL,
/// [`connect_with`](leasehold_sql_support::Backend::connect_with) a [`SqliteConfig`]. Clones share one connection.
pub type SqliteBackend = leasehold_sql_support::Backend<Sqlite>;
