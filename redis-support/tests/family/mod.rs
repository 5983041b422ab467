//! The tests of the Redis family, which each client crate passes.
//!
//! The file that includes them gives the types `Backend` and `Config`, and `native`, the client crate's own configuration for a
//! server; and says which features its client crate lacks.

mod access;
mod batches;
mod clock;
mod cluster;
mod contention;
mod failover;
mod failures;
mod fair;
mod interop;
mod membership;
mod offers;
mod partition;
mod replicas;
mod rights;
mod sentinel;
mod steps;
mod together;
mod turns;
mod units;

use leasehold_core::Error;
use leasehold_testbed::patiently;

use crate::Backend;

/// Connects, and gives replies as much time as a busy machine may need, unless the URL says how much.
async fn connect(url: &str) -> Result<Backend, Error> {
    Backend::connect(&patiently(url)).await
}
