//! The tests of the Redis family, with this client crate.

use leasehold_redis::{RedisBackend as Backend, RedisConfig as Config, redis::Client};
use leasehold_testbed::Redis;

#[path = "../../redis-support/tests/family/mod.rs"]
mod family;

fn native(redis: &Redis) -> Client {
    Client::open(redis.url()).unwrap()
}

/// Whether this client crate reports the flush of a server. Otherwise, holders learn of it with their next renewal.
const HEARS_OF_FLUSHES: bool = true;

/// In how many pieces this client crate may send a hundred requests.
const READS_OF_A_BATCH: u64 = 10;
