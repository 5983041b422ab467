//! Leasehold locks on Redis and Valkey, through the [`fred`] crate.
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
//! [`leasehold_redis_support`] documents the store: URLs and options, guarantees, permissions,
//! server settings, failover, managed services and troubleshooting. The `leasehold-redis` crate
//! uses the same keys, so both crates share their locks. Use `leasehold-fred` only if your
//! application already uses `fred` and you want a single client crate and a single TLS library.
//!
//! # Maintenance
//!
//! fred has not had a release or a commit since February 2025. This backend therefore uses only a
//! small part of fred: a connection to a single server, which is never reopened and never retries a
//! request. Leasehold's Redis backend chooses the server, enforces the time limits and handles
//! failures, as it does for `leasehold-redis`.
//!
//! # Differences from `leasehold-redis`
//!
//! - fred does not report a `FLUSHALL`. After a flush, a waiter acquires the lock when the former
//!   TTL would have expired, and a holder notices the loss at its next renewal.
//! - If a server of a cluster replies `CLUSTERDOWN`, fred closes its connection. The outcome of the
//!   request is then unknown ([`Indeterminate`](leasehold_core::ErrorKind::Indeterminate)),
//!   although the server did not run the request.
//! - When fred connects, it sends `CLIENT ID` and `INFO`. A user without permission for these
//!   commands can still connect, but the server's `ACL LOG` lists the attempts.
//! - fred sends a batch of requests in several pieces, without waiting for replies between them.
//! - fred ignores an error for a password that the server does not require.
#![cfg_attr(docsrs, feature(doc_cfg))]

mod connection;
mod driver;

mod error;

pub use connection::FredConnection;
pub use driver::FredDriver;
pub use leasehold_redis_support::Replicas;

/// Locks on Redis or Valkey, through the `fred` crate. Clones share connections. The [crate]'s
/// example shows how to connect.
pub type FredBackend = leasehold_redis_support::Backend<FredDriver>;

/// The servers and their options.
///
/// ```
/// # use leasehold_fred::FredConfig;
/// let config = FredConfig::from_url("redis://127.0.0.1/2?prefix=shop:")?;
/// # let _ = config;
/// # Ok::<(), leasehold_core::Error>(())
/// ```
pub type FredConfig = leasehold_redis_support::Config<FredDriver>;

/// The client crate, re-exported. Use this re-export to create the [`fred::types::config::Config`]
/// for [`FredConfig::from_client`].
pub use fred;
