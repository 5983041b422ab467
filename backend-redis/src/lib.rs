//! Leasehold locks on Redis and Valkey, through the [`redis`] crate.
//!
//! ```no_run
//! # async fn example() -> Result<(), leasehold_core::Error> {
//! use leasehold_core::LockClient;
//! use leasehold_redis::RedisBackend;
//!
//! // Or redis-sentinel://host:26379,host2:26379/master-name, or redis-cluster://host:6379,host2:6379
//! let client = LockClient::new(RedisBackend::connect("redis://127.0.0.1").await?);
//! let guard = client.mutex("invoice:42")?.lock().await?;
//! # drop(guard);
//! # Ok(())
//! # }
//! ```
//!
//! [`leasehold_redis_support`] documents the store: URLs and options, guarantees, permissions,
//! server settings, failover, managed services and troubleshooting.
#![cfg_attr(docsrs, feature(doc_cfg))]

mod connection;
mod driver;

mod error;

pub use connection::RedisConnection;
pub use driver::RedisDriver;
pub use leasehold_redis_support::Replicas;

/// Locks on Redis or Valkey, through the `redis` crate. Clones share connections. The [crate]'s
/// example shows how to connect.
pub type RedisBackend = leasehold_redis_support::Backend<RedisDriver>;

/// The servers and their options.
///
/// ```
/// # use leasehold_redis::RedisConfig;
/// let config = RedisConfig::from_url("redis://127.0.0.1/2?prefix=shop:")?;
/// # let _ = config;
/// # Ok::<(), leasehold_core::Error>(())
/// ```
pub type RedisConfig = leasehold_redis_support::Config<RedisDriver>;

/// The client crate, re-exported. Use this re-export to create the [`redis::Client`] for
/// [`RedisConfig::from_client`].
pub use redis;
