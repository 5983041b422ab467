//! A quorum of five Redis servers.

use std::collections::BTreeMap;
use std::time::Duration;

use async_trait::async_trait;
use futures_util::future::join_all;
use leasehold_conformance::FaultKind;
use leasehold_testbed::{FaultProxy, Pace, Redis, RedisOptions};
use tokio::time::sleep;

use super::network_fault::{self, change};
use super::{Store, redis_version};

const MEMBERS: usize = 5;

pub(super) struct FiveRedis {
    proxies: Vec<FaultProxy>,
    members: Vec<Redis>,
    max_ttl: Duration,
    /// The member that the next fault befalls.
    next: usize,
}

impl FiveRedis {
    pub(super) async fn start(max_ttl: Duration) -> Self {
        let start = || RedisOptions::new().append_only().clock(Pace::Running).start();
        let members = join_all((0..MEMBERS).map(|_| start())).await;
        let proxies = members.iter().map(|member| FaultProxy::start(member.address()));
        Self { proxies: join_all(proxies).await, members, max_ttl, next: 0 }
    }

    fn all_proxies(&self) -> Vec<&FaultProxy> {
        self.proxies.iter().collect()
    }

    /// So many members, from the next one on.
    fn some(&self, count: usize) -> Vec<usize> {
        (0..count).map(|i| (self.next + i) % MEMBERS).collect()
    }

    async fn kill(&mut self, targets: &[usize], time: Duration) {
        targets.iter().for_each(|i| self.members[*i].kill());
        sleep(time).await;
        for i in targets {
            self.members[*i].restart().await;
        }
    }

    async fn stop(&self, targets: &[usize], time: Duration) {
        targets.iter().for_each(|i| self.members[*i].pause());
        sleep(time).await;
        targets.iter().for_each(|i| self.members[*i].resume());
    }
}

#[async_trait]
impl Store for FiveRedis {
    fn url(&self) -> String {
        let addresses: Vec<_> = self.proxies.iter().map(FaultProxy::address).collect();
        let max_ttl = self.max_ttl.as_millis();
        format!("redlock+redis://{}?max-ttl-ms={max_ttl}", addresses.join(","))
    }

    fn ports(&self) -> Vec<u16> {
        network_fault::ports(&self.all_proxies())
    }

    async fn versions(&self) -> BTreeMap<String, String> {
        redis_version(&self.members[0].command(&["INFO", "server"]).await)
    }

    async fn disturb(&mut self, kind: FaultKind, time: Duration) -> String {
        self.next = (self.next + 1) % MEMBERS;
        let first = self.next;
        let targets = match kind {
            FaultKind::MembersKilled | FaultKind::MembersStopped => self.some(2),
            FaultKind::MajorityStopped => self.some(3),
            _ => self.some(1),
        };
        match kind {
            FaultKind::MemberKilled | FaultKind::MembersKilled => self.kill(&targets, time).await,
            FaultKind::MemberStopped | FaultKind::MembersStopped | FaultKind::MajorityStopped => {
                self.stop(&targets, time).await;
            }
            FaultKind::MemberWiped => {
                self.members[first].wipe();
                sleep(time).await;
                self.members[first].restart().await;
            }
            FaultKind::MemberClockForward => {
                self.members[first].clock().advance(self.max_ttl * 2);
                sleep(time).await;
            }
            FaultKind::MemberClockBack => {
                self.members[first].clock().set_back(self.max_ttl * 2);
                sleep(time).await;
            }
            FaultKind::ScriptsFlushed => {
                for member in &self.members {
                    member.command(&["SCRIPT", "FLUSH"]).await;
                }
                sleep(time).await;
            }
            FaultKind::ConnectionsKilled => {
                for i in &targets {
                    self.members[*i].command(&["CLIENT", "KILL", "TYPE", "normal"]).await;
                }
                sleep(time).await;
            }
            _ => {
                let changed = change(&self.all_proxies(), kind, time).await;
                return changed.expect("it is in the catalogue");
            }
        }
        let targets: Vec<_> = targets.iter().map(|i| format!("member {i}")).collect();
        targets.join(", ")
    }
}
