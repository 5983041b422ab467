//! The tests of the Redis family with the `fred` crate.

use leasehold_fred::fred::types::config::Config as FredsOwn;
use leasehold_fred::{FredBackend as Backend, FredConfig as Config, FredDriver as Native};
use leasehold_testbed::Redis;

mod family;

fn native(redis: &Redis) -> FredsOwn {
    FredsOwn::from_url(&redis.url()).unwrap()
}

/// Whether this driver reports the flush of a server. Otherwise, holders learn of it with their next renewal.
const HEARS_OF_FLUSHES: bool = false;

/// In how many pieces this driver may send a hundred requests.
const READS_OF_A_BATCH: u64 = 110;
