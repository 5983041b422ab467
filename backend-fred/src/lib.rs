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
//! fred has had no release and no commit since February 2025. So it is used for what it does reliably, and for nothing else: one
//! connection to one server, which is never made again and sends nothing twice. Which server is asked, for how long, and what
//! follows from a failure is decided here, as for `leasehold-redis`.
//!
//! # How it differs
//!
//! - Of a `FLUSHALL`, fred passes on nothing. Who waits for a lock that was flushed takes it when its TTL would have
//!   ended; who holds one learns of the loss on the next renewal.
//! - A server of a cluster that says `CLUSTERDOWN` has its connection closed by fred, so that what it was asked for has an
//!   unknown outcome ([`Indeterminate`](leasehold_core::ErrorKind::Indeterminate)) where it was in fact not done.
//! - On connecting, fred asks for `CLIENT ID` and `INFO`. A user who may not ask is let in all the same, but the server's `ACL LOG`
//!   counts it.
//! - A batch of requests is sent in as many pieces, though without waiting for replies in between.
//! - fred passes over a server's objection to a password where none is needed.
#![cfg_attr(docsrs, feature(doc_cfg))]

mod client;
mod link;

mod error;

pub use client::FredClient;
pub use leasehold_redis_support::Replicas;
pub use link::FredLink;

/// Locks on Redis or Valkey, with the `fred` crate. Clones share connections.
pub type FredBackend = leasehold_redis_support::Backend<FredClient>;

/// Which servers to use, and how.
pub type FredConfig = leasehold_redis_support::Config<FredClient>;

/// The client crate, to make the [`fred::types::config::Config`] that [`FredConfig::from_client`] takes.
pub use fred;
