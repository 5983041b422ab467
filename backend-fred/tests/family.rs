//! The tests of the Redis family, with this client crate.

use leasehold_fred::fred::types::config::Config as FredsOwn;
use leasehold_fred::{FredBackend as Backend, FredConfig as Config};
use leasehold_testbed::Redis;

#[path = "../../redis-support/tests/family/mod.rs"]
mod family;

fn native(redis: &Redis) -> FredsOwn {
    FredsOwn::from_url(&redis.url()).unwrap()
}
