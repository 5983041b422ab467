//! Failures of servers and of the network, each with the outcome that it has.

mod a_full_disk;
mod a_majority;
mod an_operator;
mod servers;
mod sessions;

use std::time::Duration;

use leasehold_core::LockKey;
use leasehold_core::backend::{Attempt, Claim, Lease, LockBackend, Tenure};
use leasehold_testbed::until_some;
use leasehold_zookeeper::{ZooKeeperBackend, ZooKeeperConfig};

const TICK: Duration = Duration::from_millis(500);

const TTL: Duration = Duration::from_secs(4);

async fn connect(servers: impl IntoIterator<Item = impl Into<String>>) -> ZooKeeperBackend {
    let config = ZooKeeperConfig::from_servers(servers).unwrap().tick(TICK).unwrap();
    until_some("connected", async || ZooKeeperBackend::connect_with(config.clone()).await.ok())
        .await
}

fn kept(name: &str) -> Lease {
    Lease::new(&LockKey::new(name).unwrap(), TTL).with_tenure(Tenure::Kept)
}

async fn is_granted(backend: &ZooKeeperBackend, lease: &Lease) -> bool {
    let attempt = backend.try_acquire(&Claim::new(lease.clone())).await.unwrap();
    matches!(attempt, Attempt::Granted(_))
}
