//! Leasehold locks on ZooKeeper, in the layout of Apache Curator's recipes, with the [`zookeeper-client`](zookeeper_client) crate.
//!
//! Fencing tokens are strict: they are made of ZooKeeper's transaction ids. All kinds of lock are first come, first served among
//! processes. Mutexes, readers and writers stand in one line with Curator's `InterProcessMutex` and `InterProcessReadWriteLock`: the lock
//! `job` below the prefix `/lock` is Curator's lock with the path `/lock/job`.
//!
//! ```no_run
//! # async fn example() -> Result<(), leasehold_core::Error> {
//! use leasehold_core::LockClient;
//! use leasehold_zookeeper::ZooKeeperBackend;
//!
//! let client = LockClient::new(ZooKeeperBackend::connect("zookeeper://10.0.0.1,10.0.0.2,10.0.0.3").await?);
//! let guard = client.mutex("invoice:42")?.lock().await?;
//! # drop(guard);
//! # Ok(())
//! # }
//! ```
//!
//! # Promise
//!
//! A majority of servers decides, by no clock, which claim owns a lock. That its holder *believes* in it for no longer assumes that
//! its own monotonic clock and the leader's run at the same rate, within 1 %. A lease is renewed by connecting to its session again, since
//! the leader has to allow that: a follower answers other requests of a session without telling the leader.
//!
//! # Time to live
//!
//! A lease is a session of ZooKeeper's, with the TTL for its timeout. Servers allow sessions of 2 to 20 of their ticks, 4 s to 40 s
//! with a `tickTime` of 2 s: connecting finds out which, and other TTLs are refused. Servers end a session up to a tick late, and others wait
//! that long when a holder dies.
//!
//! All leases of a client that are renewed share one session per TTL, so that keeping a thousand locks alive
//! takes one connection. Each lease without renewal has a session of its own.
//!
//! # Access rules
//!
//! With a user and a password, only this user may read and change the nodes. Without, every client may, as with Curator by default.
#![cfg_attr(docsrs, feature(doc_cfg))]

mod config;

mod backend;

mod entry;
mod layout;
mod name;
mod queue;

mod addresses;
mod claims;
mod connection;
mod driver;
mod session;
mod sync;
mod watch;

mod error;

pub use backend::ZooKeeperBackend;
pub use config::ZooKeeperConfig;
