//! Leasehold locks on Redis and Valkey, with the [`fred`] crate.
//!
//! This is `leasehold-redis` with another client crate: the same locks under the same keys, so that both can be used side by
//! side, the same URLs, promises and access rules. It is there for applications that use fred already and want one client
//! crate and one TLS stack; all others are better off with `leasehold-redis`.
//!
//! ```no_run
//! # async fn example() -> Result<(), leasehold_core::Error> {
//! use leasehold_core::LockClient;
//! use leasehold_fred::FredBackend;
//!
//! let client = LockClient::new(FredBackend::connect("redis://127.0.0.1").await?);
//! let guard = client.mutex("invoice:42")?.lock().await?;
//! # drop(guard);
//! # Ok(())
//! # }
//! ```
//!
//! # Maintenance
//!
//! fred has had no release and no commit since February 2025. So this backend uses only its reliable part: one connection to one
//! server, which is never made again and sends nothing twice. The Redis backend, as for `leasehold-redis`,
//! chooses the server, limits the time and handles failures.
//!
//! # How it differs
//!
//! - fred does not report a `FLUSHALL`. A waiter for a flushed lock takes it when its TTL would have ended; a holder learns of the
//!   loss on its next renewal.
//! - If a server of a cluster says `CLUSTERDOWN`, fred closes its connection, so that a request has an unknown outcome
//!   ([`Indeterminate`](leasehold_core::ErrorKind::Indeterminate)) though the server did not run it.
//! - On connecting, fred sends `CLIENT ID` and `INFO`. A user without the right to them is let in all the same, but the server's
//!   `ACL LOG` counts it.
//! - fred sends a batch of requests in as many pieces, though without waiting for replies in between.
//! - fred passes over a server's objection to a password where none is needed.
#![cfg_attr(docsrs, feature(doc_cfg))]

mod connection;
mod driver;

mod error;

pub use connection::FredConnection;
pub use driver::FredDriver;
pub use leasehold_redis_support::Replicas;

/// Locks on Redis or Valkey, with the `fred` crate. Clones share connections.
pub type FredBackend = leasehold_redis_support::Backend<FredDriver>;

/// Which servers to use, and how.
pub type FredConfig = leasehold_redis_support::Config<FredDriver>;

/// The client crate, to make the [`fred::types::config::Config`] that [`FredConfig::from_client`] takes.
pub use fred;
