//! A ZooKeeper ensemble of three members.

use std::collections::BTreeMap;
use std::time::Duration;

use async_trait::async_trait;
use leasehold_conformance::FaultKind;
use leasehold_testbed::{FaultProxy, ZooKeeper, ZooKeeperOptions, group_of};
use tokio::time::sleep;

use super::network_fault::{self, change};
use super::{Store, version};
use crate::firewall::Peer;

const MEMBERS: usize = 3;

pub(super) struct ThreeZooKeeper {
    proxies: Vec<FaultProxy>,
    ensemble: ZooKeeper,
}

impl ThreeZooKeeper {
    pub(super) async fn start() -> Self {
        let options = ZooKeeperOptions::new().members(MEMBERS).small_disks();
        // A soak of hours must not fill the disks.
        let ensemble = options.set("autopurge.purgeInterval", "1").start().await;
        Self { proxies: ensemble.proxies().await, ensemble }
    }

    fn all_proxies(&self) -> Vec<&FaultProxy> {
        self.proxies.iter().collect()
    }
}

#[async_trait]
impl Store for ThreeZooKeeper {
    fn url(&self) -> String {
        let addresses: Vec<_> = self.proxies.iter().map(FaultProxy::address).collect();
        format!("zookeeper://{}", addresses.join(","))
    }

    fn ports(&self) -> Vec<u16> {
        network_fault::ports(&self.all_proxies())
    }

    async fn leader(&self) -> Option<Peer> {
        let leader = self.ensemble.leader().await;
        let mut others = self.ensemble.peer_ports();
        let own = others.remove(leader).to_vec();
        let group = group_of(self.ensemble.id(leader));
        Some(Peer { name: format!("member {leader}"), group, own, others: others.concat() })
    }

    async fn versions(&self) -> BTreeMap<String, String> {
        let told = self.ensemble.ask(0, "srvr").await;
        let told = told.lines().next().and_then(|line| line.split([' ', '-', ',']).nth(2));
        version("zookeeper", told.unwrap_or("unknown"))
    }

    async fn disturb(&mut self, kind: FaultKind, time: Duration) -> String {
        let leader = self.ensemble.leader().await;
        let follower = (leader + 1) % MEMBERS;
        let target = if matches!(kind, FaultKind::FollowerKilled | FaultKind::FollowerStopped) {
            follower
        } else {
            leader
        };
        match kind {
            FaultKind::LeaderKilled | FaultKind::FollowerKilled => {
                self.ensemble.kill_member(target);
                sleep(time).await;
                self.ensemble.restart_member(target).await;
            }
            FaultKind::LeaderStopped | FaultKind::FollowerStopped => {
                self.ensemble.pause_member(target);
                sleep(time).await;
                self.ensemble.resume_member(target);
            }
            FaultKind::DiskFull => {
                self.ensemble.fill_disk(target);
                sleep(time).await;
                self.ensemble.clear_disk(target);
                self.ensemble.restart_member(target).await;
            }
            FaultKind::RollingRestart => {
                for i in 0..MEMBERS {
                    self.ensemble.restart_member(i).await;
                    sleep(time).await;
                }
                return "all members".to_owned();
            }
            FaultKind::AllStopped => {
                self.ensemble.pause();
                sleep(time).await;
                self.ensemble.resume();
                return "all members".to_owned();
            }
            _ => {
                let changed = change(&self.all_proxies(), kind, time).await;
                return changed.expect("it is in the catalogue");
            }
        }
        format!("member {target}")
    }
}
