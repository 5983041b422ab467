//! The tests of the Redis family, which each driver passes.
//!
//! The test binary of a driver names the `Backend` and `Config` types, and `native`, the client crate's own configuration for a server, and
//! says which features its driver lacks.

mod access;
mod batches;
mod clock;
mod cluster;
mod connections;
mod contention;
#[cfg(debug_assertions)]
mod depth;
mod failover;
mod failures;
mod fair;
mod interop;
mod membership;
mod partition;
mod replicas;
mod reservations;
mod sentinel;
mod steps;
mod together;
mod turns;
mod units;

use leasehold_core::{Error, ErrorKind};
use leasehold_testbed::{patiently, until_some};

use leasehold_redis_tests::rights;

use crate::Backend;

/// Connects, and gives replies as much time as a busy machine may need, unless the URL says how much.
async fn connect(url: &str) -> Result<Backend, Error> {
    Backend::connect(&patiently(url)).await
}

/// Connects a client that waits for replies only as long as clients do by default, or as the URL says. A busy machine may take longer than that to answer
/// at first.
async fn connect_by_default(url: &str) -> Backend {
    until_some("connected", async || match Backend::connect(url).await {
        Err(error) if error.kind() == ErrorKind::Unavailable => None,
        connected => Some(connected.unwrap()),
    })
    .await
}
