//! The tests of the Redis family, with this client crate.

use leasehold_fred::fred::types::config::Config as FredsOwn;
use leasehold_fred::{FredBackend as Backend, FredConfig as Config};
use leasehold_testbed::Redis;

#[path = "../../redis-support/tests/family/mod.rs"]
mod family;

fn native(redis: &Redis) -> FredsOwn {
    FredsOwn::from_url(&redis.url()).unwrap()
}

/// Whether this client crate reports the flush of a server. Otherwise, holders learn of it with their next renewal.
const HEARS_OF_FLUSHES: bool = false;

/// In how many pieces this client crate may send a hundred requests.
const READS_OF_A_BATCH: u64 = 110;
