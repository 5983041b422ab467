//! A Redis server with a replica and three sentinels.

use std::collections::BTreeMap;
use std::time::Duration;

use async_trait::async_trait;
use leasehold_conformance::FaultKind;
use leasehold_testbed::{RedisSentinel, SentinelOptions};
use tokio::time::sleep;

use super::network_fault::{self, change};
use super::{Store, of_a_primary, redis_version};

pub(super) struct WithSentinel {
    servers: RedisSentinel,
}

impl WithSentinel {
    pub(super) async fn start() -> Self {
        Self { servers: SentinelOptions::new().fast().proxied().start().await }
    }

    async fn replica(&self) -> usize {
        1 - self.servers.primary().await
    }

    /// The old primary has heard of the new one, and has its data.
    async fn settle(&self) {
        self.servers.until_replicated().await;
    }
}

#[async_trait]
impl Store for WithSentinel {
    fn url(&self) -> String {
        self.servers.url()
    }

    fn ports(&self) -> Vec<u16> {
        network_fault::ports(&self.servers.proxies())
    }

    async fn versions(&self) -> BTreeMap<String, String> {
        redis_version(&self.servers.command(0, &["INFO", "server"]).await)
    }

    async fn disturb(&mut self, kind: FaultKind, time: Duration) -> String {
        let primary = self.servers.primary().await;
        let target = match kind {
            FaultKind::FailoverCommanded => {
                self.servers.failover().await;
                sleep(time).await;
                primary
            }
            FaultKind::PrimaryKilled | FaultKind::ReplicaKilled => {
                let i =
                    if kind == FaultKind::PrimaryKilled { primary } else { self.replica().await };
                self.servers.kill(i);
                sleep(time).await;
                self.servers.restart(i).await;
                i
            }
            FaultKind::PrimaryStopped | FaultKind::ReplicaStopped => {
                let i =
                    if kind == FaultKind::PrimaryStopped { primary } else { self.replica().await };
                self.servers.pause(i);
                sleep(time).await;
                self.servers.resume(i);
                i
            }
            FaultKind::PrimaryIsolated => {
                self.servers.isolate(primary);
                sleep(time).await;
                self.servers.heal();
                primary
            }
            FaultKind::PrimaryIsolatedWithClients => {
                self.servers.isolate_with_clients(primary);
                sleep(time).await;
                self.servers.heal();
                primary
            }
            FaultKind::SentinelKilled => {
                self.servers.kill_sentinel(0);
                sleep(time).await;
                self.servers.restart_sentinel(0).await;
                return "sentinel 0".to_owned();
            }
            FaultKind::SentinelStopped => {
                self.servers.pause_sentinel(1);
                sleep(time).await;
                self.servers.resume_sentinel(1);
                return "sentinel 1".to_owned();
            }
            _ => {
                let Some(command) = of_a_primary(kind, time) else {
                    let changed = change(&self.servers.proxies(), kind, time).await;
                    return changed.expect("it is in the catalogue");
                };
                let words: Vec<_> = command.split(' ').collect();
                self.servers.command(primary, &words).await;
                sleep(time).await;
                primary
            }
        };
        self.settle().await;
        format!("node {target}")
    }
}
