//! An etcd cluster of three members.

use std::collections::BTreeMap;
use std::process::Stdio;
use std::time::Duration;

use async_trait::async_trait;
use leasehold_conformance::FaultKind;
use leasehold_testbed::{Etcd, EtcdOptions, FaultProxy, group_of, until_some};
use tokio::process::Command;
use tokio::time::sleep;

use super::network_fault::{self, change};
use super::{Store, version};
use crate::firewall::Peer;

const MEMBERS: usize = 3;

/// Used up by some values of a megabyte.
const QUOTA: &str = "16777216";

/// Longer than an election takes.
const STALL: &str = "inject=fdatasync:delay_enter=1500000";

pub(super) struct ThreeEtcd {
    proxies: Vec<FaultProxy>,
    cluster: Etcd,
}

impl ThreeEtcd {
    pub(super) async fn start() -> Self {
        let options = EtcdOptions::new().members(MEMBERS).durable();
        let cluster = options.args(["--quota-backend-bytes", QUOTA]).start().await;
        Self { proxies: cluster.proxies().await, cluster }
    }

    fn all_proxies(&self) -> Vec<&FaultProxy> {
        self.proxies.iter().collect()
    }

    async fn follower(&self) -> usize {
        (self.cluster.leader().await + 1) % MEMBERS
    }

    /// Fills the database up to its quota, and makes room again.
    async fn use_up_quota(&self, time: Duration) {
        let value = "x".repeat(1_000_000);
        for i in 0..64 {
            if self.put(&format!("ballast/{i}"), &value).await.is_err() {
                break;
            }
        }
        sleep(time).await;
        self.insist(&["del", "--prefix", "ballast/"]).await;
        self.compact().await;
        self.insist(&["defrag", "--cluster"]).await;
        self.insist(&["alarm", "disarm"]).await;
    }

    async fn compact(&self) {
        until_some("the history is compacted", async || {
            let fields = self.insist(&["get", "any-key", "-w", "fields"]).await;
            let revision = fields.lines().find_map(|line| line.strip_prefix(r#""Revision" : "#))?;
            self.cluster.try_ctl(&["compact", revision]).await.ok()
        })
        .await;
    }

    /// Runs `etcdctl` again and again: the cluster is busy, or another fault is in force.
    async fn insist(&self, args: &[&str]) -> String {
        until_some(args.join(" "), async || self.cluster.try_ctl(args).await.ok()).await
    }

    /// By standard input: an argument may not be as long as the value.
    async fn put(&self, key: &str, value: &str) -> Result<(), ()> {
        let mut put = self.cluster.ctl_command(&["put", key]);
        put.stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::null());
        let mut put = put.spawn().expect("etcdctl can be started");
        let mut input = put.stdin.take().expect("it is piped");
        let written = tokio::io::AsyncWriteExt::write_all(&mut input, value.as_bytes()).await;
        drop((written, input));
        let status = put.wait().await.expect("a child can be waited for");
        if status.success() { Ok(()) } else { Err(()) }
    }

    /// Has each write to the leader's disk wait.
    async fn stall_disk(&self, leader: usize, time: Duration) {
        let id = self.cluster.id(leader).to_string();
        let mut strace = Command::new("strace");
        strace.args([
            "-f",
            "-qq",
            "-o",
            "/dev/null",
            "-p",
            &id,
            "-e",
            "trace=fdatasync",
            "-e",
            STALL,
        ]);
        let strace = strace.stdout(Stdio::null()).stderr(Stdio::null()).kill_on_drop(true).spawn();
        let mut strace = strace.expect("strace can be started");
        sleep(time).await;
        // It lets go of the member when it ends.
        let id = strace.id().and_then(|id| rustix::process::Pid::from_raw(id.try_into().ok()?));
        let id = id.expect("it was not waited for");
        let _ = rustix::process::kill_process(id, rustix::process::Signal::TERM);
        drop(strace.wait().await);
    }
}

#[async_trait]
impl Store for ThreeEtcd {
    fn url(&self) -> String {
        let addresses: Vec<_> = self.proxies.iter().map(FaultProxy::address).collect();
        format!("etcd://{}", addresses.join(","))
    }

    fn ports(&self) -> Vec<u16> {
        network_fault::ports(&self.all_proxies())
    }

    async fn leader(&self) -> Option<Peer> {
        let leader = self.cluster.leader().await;
        let mut others = self.cluster.peer_ports();
        let own = vec![others.remove(leader)];
        let group = group_of(self.cluster.id(leader));
        Some(Peer { name: format!("member {leader}"), group, own, others })
    }

    async fn versions(&self) -> BTreeMap<String, String> {
        let told = self.cluster.ctl(&["version"]).await;
        let told = told.lines().next().and_then(|line| line.split_whitespace().last());
        version("etcd", told.unwrap_or("unknown"))
    }

    async fn disturb(&mut self, kind: FaultKind, time: Duration) -> String {
        let leader = self.cluster.leader().await;
        let follower = self.follower().await;
        let target = if matches!(kind, FaultKind::FollowerKilled | FaultKind::FollowerStopped) {
            follower
        } else {
            leader
        };
        match kind {
            FaultKind::LeaderKilled | FaultKind::FollowerKilled => {
                self.cluster.kill_member(target);
                sleep(time).await;
                self.cluster.restart_member(target).await;
            }
            FaultKind::LeaderStopped | FaultKind::FollowerStopped => {
                self.cluster.pause_member(target);
                sleep(time).await;
                self.cluster.resume_member(target);
            }
            FaultKind::RollingRestart => {
                for i in 0..MEMBERS {
                    self.cluster.restart_member(i).await;
                    sleep(time).await;
                }
                return "all members".to_owned();
            }
            FaultKind::AllStopped => {
                self.cluster.pause();
                sleep(time).await;
                self.cluster.resume();
                return "all members".to_owned();
            }
            FaultKind::LeaderMoved => {
                self.cluster.move_leader(follower).await;
                sleep(time).await;
            }
            FaultKind::HistoryCompacted => {
                self.compact().await;
                sleep(time).await;
            }
            FaultKind::DiskStalled => self.stall_disk(leader, time).await,
            FaultKind::QuotaUsedUp => self.use_up_quota(time).await,
            FaultKind::LeasesRevoked => {
                let leases = self.insist(&["lease", "list"]).await;
                for lease in leases.lines().skip(1) {
                    // It may have ended by itself.
                    drop(self.cluster.try_ctl(&["lease", "revoke", lease]).await);
                }
                sleep(time).await;
            }
            _ => {
                let changed = change(&self.all_proxies(), kind, time).await;
                return changed.expect("it is in the catalogue");
            }
        }
        format!("member {target}")
    }
}
