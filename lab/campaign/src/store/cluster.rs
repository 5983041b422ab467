//! A Redis Cluster of three primaries with a replica each.

use std::collections::BTreeMap;
use std::time::Duration;

use async_trait::async_trait;
use leasehold_conformance::FaultKind;
use leasehold_testbed::{ClusterOptions, RedisCluster};
use tokio::time::sleep;

use super::network_fault::{self, change};
use super::{Store, of_a_primary, redis_version};

/// A key by which its primary is picked, which has one of the hot locks.
const KEY: &str = "lock:hot/1";

pub(super) struct Cluster {
    nodes: RedisCluster,
}

impl Cluster {
    pub(super) async fn start() -> Self {
        Self { nodes: ClusterOptions::new().proxied().start().await }
    }

    async fn other_primary(&self, primary: usize) -> usize {
        // Each of three primaries has a third of all slots, and so some of these keys.
        for n in 0..1_000 {
            let owner = self.nodes.owner_of(&n.to_string()).await;
            if owner != primary {
                return owner;
            }
        }
        panic!("node {primary} has all slots")
    }
}

#[async_trait]
impl Store for Cluster {
    fn url(&self) -> String {
        self.nodes.url()
    }

    fn ports(&self) -> Vec<u16> {
        network_fault::ports(&self.nodes.proxies())
    }

    async fn versions(&self) -> BTreeMap<String, String> {
        redis_version(&self.nodes.command(0, &["INFO", "server"]).await)
    }

    async fn disturb(&mut self, kind: FaultKind, time: Duration) -> String {
        let primary = self.nodes.owner_of(KEY).await;
        let target = match kind {
            FaultKind::FailoverCommanded => {
                self.nodes.failover(self.nodes.replica_of(primary).await).await;
                sleep(time).await;
                primary
            }
            FaultKind::FailoverForced => {
                self.nodes.force_failover(self.nodes.replica_of(primary).await).await;
                sleep(time).await;
                primary
            }
            FaultKind::PrimaryKilled | FaultKind::ReplicaKilled => {
                let is_primary = kind == FaultKind::PrimaryKilled;
                let i = if is_primary { primary } else { self.nodes.replica_of(primary).await };
                self.nodes.kill(i);
                sleep(time).await;
                self.nodes.restart(i).await;
                i
            }
            FaultKind::PrimaryStopped | FaultKind::ReplicaStopped => {
                let is_primary = kind == FaultKind::PrimaryStopped;
                let i = if is_primary { primary } else { self.nodes.replica_of(primary).await };
                self.nodes.pause(i);
                sleep(time).await;
                self.nodes.resume(i);
                i
            }
            FaultKind::PrimaryIsolated => {
                self.nodes.isolate(primary);
                sleep(time).await;
                self.nodes.heal();
                primary
            }
            FaultKind::PrimaryIsolatedWithClients => {
                self.nodes.isolate_with_clients(primary);
                sleep(time).await;
                self.nodes.heal();
                primary
            }
            FaultKind::SlotMigrated => {
                let (slot, to) = (self.nodes.slot_of(KEY).await, self.other_primary(primary).await);
                self.nodes.begin_migration(slot, primary, to).await;
                sleep(time / 2).await;
                self.nodes.move_keys(slot, primary, to).await;
                sleep(time / 2).await;
                self.nodes.move_keys(slot, primary, to).await;
                self.nodes.end_migration(slot, primary, to).await;
                return format!("slot {slot}, from node {primary} to node {to}");
            }
            _ => {
                let Some(command) = of_a_primary(kind, time) else {
                    let changed = change(&self.nodes.proxies(), kind, time).await;
                    return changed.expect("it is in the catalogue");
                };
                let words: Vec<_> = command.split(' ').collect();
                self.nodes.command(primary, &words).await;
                sleep(time).await;
                primary
            }
        };
        self.nodes.until_settled().await;
        format!("node {target}")
    }
}
