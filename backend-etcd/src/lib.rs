//! Leasehold locks on etcd, with the [`etcd-client`](etcd_client) crate.
//!
//! Ownership is linearizable in the store, and fencing tokens are strict: revisions of the store. All kinds of lock
//! are first come, first served among processes. They share a queue with etcd's own tools: `etcdctl lock <prefix><name>` and
//! Go's `concurrency.Mutex` exclude our locks and are excluded by them, in order of arrival.
//!
//! ```no_run
//! # async fn example() -> Result<(), leasehold_core::Error> {
//! use leasehold_core::LockClient;
//! use leasehold_etcd::EtcdBackend;
//!
//! let client = LockClient::new(EtcdBackend::connect("etcd://10.0.0.1:2379,10.0.0.2:2379").await?);
//! let guard = client.mutex("invoice:42")?.lock().await?;
//! # drop(guard);
//! # Ok(())
//! # }
//! ```
//!
//! # To build
//!
//! `etcd-client` runs `protoc` when it is built. Debian has it in `protobuf-compiler` *and* `libprotobuf-dev`; elsewhere, set the
//! environment variable `PROTOC` to the path of one, such as the one in the crate `protoc-bin-vendored`.
//!
//! # Promises
//!
//! etcd's consensus decides the owner of a lock, and no clock does. The holder's *belief* in its lease assumes that its own monotonic
//! clock and the leader's run at the same rate, within 1 %. A token is the revision of the store at which the lock was granted, times
//! 65,536; holders that the lease passes to within the process have the numbers that follow. A backup that is restored without raising
//! the revision resets it.
//!
//! Use etcd 3.4.31, 3.5.13 or newer. A leader of an older one that was stopped for longer than a TTL, and replaced meanwhile, ends leases
//! that are kept alive when it goes on (etcd-io/etcd#15247); a warning is logged when such a server is met. Newer ones do so in some
//! cases. Locks move to new leases at their first renewal after an election, which the former leader does not know.
//!
//! # Time to live
//!
//! etcd counts whole seconds and rounds up, to 2 s at least with its default settings: others wait that long when a holder dies, while
//! the holder counts the TTL that it asked for. Use 10 s or more (the default is 30 s): a request to keep a lease alive goes through
//! the leader, and a frozen leader holds it up for 5 s and two election timeouts, which is longer than a shorter lease lasts.
//!
//! All renewed leases of a client share one etcd lease per TTL, so that keeping a thousand locks alive costs as much
//! as keeping one. Each lease without renewal has an etcd lease of its own.
//!
//! # Access rules
//!
//! A user needs a role that may read and write everything under the prefix:
//!
//! ```text
//! etcdctl role add locker
//! etcdctl role grant-permission locker --prefix=true readwrite lock/
//! etcdctl user grant-role app locker
//! ```
#![cfg_attr(docsrs, feature(doc_cfg))]

mod config;

mod backend;
mod owner;

mod entry;
mod layout;
mod place;
mod queue;
mod slots;

mod batch;
mod connection;
mod doubt;
mod session;
mod sync;
mod version;
mod watch;

mod error;

pub use backend::EtcdBackend;
pub use config::EtcdConfig;
pub use owner::EtcdGuard;

/// The client crate, for the [`etcd_client::ConnectOptions`] that [`EtcdConfig::from_options`] takes.
pub use etcd_client;
