//! The tests of the Redis family with the `redis` crate, and those of a quorum of servers.

use leasehold_redis::{
    RedisBackend as Backend, RedisConfig as Config, RedisDriver as Native, redis::Client,
};
use leasehold_testbed::Redis;

mod family;
mod quorum;

fn native(redis: &Redis) -> Client {
    Client::open(redis.url()).unwrap()
}

/// Whether this driver reports the flush of a server. Otherwise, holders learn of it with their next renewal.
const HEARS_OF_FLUSHES: bool = true;

/// In how many pieces this driver may send a hundred requests.
const READS_OF_A_BATCH: u64 = 10;
