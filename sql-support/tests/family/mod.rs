//! The tests of databases on a server, which each client crate passes.
//!
//! The including file names the client crate and its server: the `Backend`, `Config`, `Server`, `Options` and `Direct` types, and the SQL
//! in which the databases differ. Tests for which a pooler can make a difference use a `Store`, which is a server behind a pooler or a
//! server alone.

mod access;
pub(crate) mod attack;
pub(crate) mod failures;
pub(crate) mod limits;
pub(crate) mod membership;
pub(crate) mod recovery;
pub(crate) mod runtimes;
mod statements;

use std::time::Duration;

use leasehold_core::LockKey;
use leasehold_core::backend::Lease;
use leasehold_testbed::patiently;

use crate::{Backend, Direct, Options, Server, Store};

pub(crate) const TTL: Duration = Duration::from_secs(60);

/// Starts a server, behind a pooler if the test runs behind one.
pub(crate) async fn start() -> Store {
    crate::start(Options::new()).await
}

/// Opens a connection past the pooler.
pub(crate) async fn direct(server: &Server) -> Direct {
    Direct::open(&server.url()).await
}

/// Connects, and gives replies as much time as a busy machine may need.
pub(crate) async fn connect(url: &str) -> Backend {
    Backend::connect(&patiently(url)).await.unwrap()
}

pub(crate) fn lease(key: &str) -> Lease {
    Lease::new(&LockKey::new(key).unwrap(), TTL)
}
