#![doc = include_str!("../README.md")]

mod connect;

#[cfg(feature = "blocking")]
pub mod blocking;

pub use connect::{backend, connect};
pub use leasehold_core::*;

/// Locks on one Redis or Valkey server.
#[cfg(feature = "redis")]
pub mod redis {
    pub use leasehold_redis::{RedisBackend, RedisConfig, redis as client};
}
