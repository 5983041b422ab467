//! The tests of databases on a server, which each client crate passes.
//!
//! The including file names the client crate and its server: the `Backend`, `Config`, `Server`, `Options` and `Direct` types, and the SQL
//! in which the databases differ.

mod access;
mod attack;
pub(crate) mod failures;
mod limits;
pub(crate) mod membership;
mod recovery;
mod runtimes;
mod statements;

use std::time::Duration;

use leasehold_core::LockKey;
use leasehold_core::backend::Lease;
use leasehold_testbed::patiently;

use crate::Backend;

pub(crate) const TTL: Duration = Duration::from_secs(60);

/// Connects, and gives replies as much time as a busy machine may need.
pub(crate) async fn connect(url: &str) -> Backend {
    Backend::connect(&patiently(url)).await.unwrap()
}

pub(crate) fn lease(key: &str) -> Lease {
    Lease::new(&LockKey::new(key).unwrap(), TTL)
}
