//! The tests of the Redis family, with this client crate.

use leasehold_redis::{RedisBackend as Backend, RedisConfig as Config, redis::Client};
use leasehold_testbed::Redis;

#[path = "../../redis-support/tests/family/mod.rs"]
mod family;

fn native(redis: &Redis) -> Client {
    Client::open(redis.url()).unwrap()
}
