//! Leasehold locks on Redis and Valkey, with the [`redis`] crate: on one server, on the one that sentinels name, or on a cluster.
//!
//! Works with Redis 6.2 and newer, and Valkey. Acquiring, renewing and releasing take one round trip each;
//! the server tells waiters when the lock is released, deleted or expires.
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
//! # Promises
//!
//! Mutual exclusion holds while the server's clock does not jump and the key is not lost. A server that restarts without its
//! saved data, that evicts keys (`maxmemory-policy` must be `noeviction`), or whose replica takes over, may grant a lock again.
//! [`Config::wait_replicas`] narrows the last of these, and does not rule it out. A fencing token is the larger of the last
//! token + 1 and the server's clock, of which each microsecond has two tokens: they stay in order through all of these cases unless the clock
//! goes back at the same time.
//!
//! The `redis` crate makes the connections, one to each server that is used. Which one that is, how long a reply may take
//! and when a connection is given up is decided here, and is the same with all client crates.
//!
//! # Access rules
//!
//! All keys begin with the prefix. These are the rights that a user of the server needs, for the prefix `lock:`:
//!
//! ```text
//! ACL SETUSER locker on >PASSWORD resetkeys resetchannels -@all ~lock:* &lock:* +publish +subscribe
//!     +evalsha +eval +get +mget +set +del +exists +pexpire +pttl +time +client|tracking +client|caching
//!     +zadd +zrem +zcard +zscore +zmscore +zrank +zrange +zrangebyscore +hset +hget +hmget +hdel +hincrby
//! ```
//!
//! Without `+client|tracking`, waiters poll; without `&lock:* +publish +subscribe`, they are told to ask instead of being given the
//! lock; without `+mget +zmscore` and `+client|caching`, calls of several callers at the same time take longer.
//! In a cluster: `+cluster|slots +cluster|nodes +asking`. To wait for replicas: `+wait`. On sentinels,
//! `+sentinel|master +sentinel|myid +sentinel|sentinels +subscribe &+switch-master`.
//!
//! [`Config::wait_replicas`]: leasehold_redis_support::Config::wait_replicas
#![cfg_attr(docsrs, feature(doc_cfg))]

mod connection;
mod driver;

mod error;

pub use connection::RedisConnection;
pub use driver::RedisDriver;
pub use leasehold_redis_support::Replicas;

/// Locks on Redis or Valkey, with the `redis` crate. Clones share connections.
pub type RedisBackend = leasehold_redis_support::Backend<RedisDriver>;

/// Which servers to use, and how.
pub type RedisConfig = leasehold_redis_support::Config<RedisDriver>;

/// The client crate, to make the [`redis::Client`] that [`RedisConfig::from_client`] takes.
pub use redis;
