//! The faults that befall database servers of all kinds.

use std::time::Duration;

use leasehold_conformance::FaultKind;
use leasehold_testbed::{DatabaseKind, DatabaseServer};
use tokio::time::sleep;

/// The table of leases.
pub(super) const TABLE: &str = "leasehold_key";

/// Causes a fault of a server for `time`. Returns `false` if only some database servers support the fault.
pub(super) async fn disturb<K: DatabaseKind>(
    server: &mut DatabaseServer<K>,
    kind: FaultKind,
    time: Duration,
) -> bool {
    match kind {
        FaultKind::ServerStopped => {
            server.pause();
            sleep(time).await;
            server.resume();
        }
        FaultKind::ServerKilled => {
            server.kill();
            sleep(time).await;
            server.restart().await;
        }
        FaultKind::ServerTerminated => {
            server.shut_down();
            sleep(time).await;
            server.restart().await;
        }
        FaultKind::ReadOnly => {
            server.set_read_only(true).await;
            sleep(time).await;
            server.set_read_only(false).await;
        }
        _ => return false,
    }
    true
}
