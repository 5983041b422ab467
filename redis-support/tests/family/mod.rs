//! The tests of the Redis family, which each client crate passes.
//!
//! What includes them says with what: the types `Backend` and `Config`, and `native`, what the client crate itself would connect
//! with to a server; and what that cannot do.

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
