//! Failures of servers and of the network, each with the outcome that it has.

mod a_full_disk;
mod a_majority;
mod an_operator;
mod attempts;
mod connections;
mod lag;
mod servers;
mod sessions;

use std::time::Duration;

use leasehold_core::LockKey;
use leasehold_core::backend::{Attempt, Claim, Lease, LockBackend, Tenure};
use leasehold_testbed::until_some;
use leasehold_zookeeper::{ZooKeeperBackend, ZooKeeperConfig};

const TICK: Duration = Duration::from_millis(500);

const TTL: Duration = Duration::from_secs(6);

/// A client of servers that fail: it notices within a third of a TTL.
async fn connect(servers: impl IntoIterator<Item = impl Into<String>>) -> ZooKeeperBackend {
    connect_with(servers, TTL / 3).await
}

/// A client of healthy servers: it waits for replies as long as a very busy machine takes.
async fn connect_patiently(
    servers: impl IntoIterator<Item = impl Into<String>>,
) -> ZooKeeperBackend {
    connect_with(servers, Duration::from_secs(30)).await
}

async fn connect_with(
    servers: impl IntoIterator<Item = impl Into<String>>,
    timeout: Duration,
) -> ZooKeeperBackend {
    let config = ZooKeeperConfig::from_servers(servers).unwrap().tick(TICK).unwrap();
    let config = config.timeout(timeout).unwrap();
    until_some("connected", async || ZooKeeperBackend::connect_with(config.clone()).await.ok())
        .await
}

fn kept(name: &str) -> Lease {
    Lease::new(&LockKey::new(name).unwrap(), TTL).with_tenure(Tenure::Kept)
}

async fn is_granted(backend: &ZooKeeperBackend, lease: &Lease) -> bool {
    let attempt = backend.acquire(&Claim::new(lease.clone())).await.unwrap();
    matches!(attempt, Attempt::Granted(_))
}
