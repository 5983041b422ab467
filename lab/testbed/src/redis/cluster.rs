//! A Redis Cluster.

mod launch;
mod member;
mod migration;
mod options;
mod view;

use std::path::Path;

use tempfile::TempDir;

use crate::certificates::Certificates;
use crate::proxy::{FaultProxy, NetworkFault};
use crate::until::{until, until_some};

use super::server::Login;
use member::Member;
use view::View;

pub use options::ClusterOptions;

/// How many slots every cluster has.
const SLOTS: u16 = 16_384;

/// A running Redis Cluster on loopback. It dies when dropped.
///
/// Its nodes are counted from 0. At first, the primaries come first; the next are one replica of each, and so on.
#[derive(Debug)]
pub struct RedisCluster {
    options: ClusterOptions,
    // Before the folder, so that they are gone when it is removed.
    members: Vec<Member>,
    folder: TempDir,
    login: Option<Login>,
    certificates: Option<Certificates>,
}

impl RedisCluster {
    /// Starts three primaries with one replica each.
    ///
    /// # Panics
    ///
    /// As [`ClusterOptions::start`].
    pub async fn start() -> Self {
        ClusterOptions::new().start().await
    }

    /// Its URL, `redis-cluster://127.0.0.1:port,…`, or `rediss-cluster://…` if it speaks TLS.
    ///
    /// It names all nodes, or the proxies in front of them.
    pub fn url(&self) -> String {
        let scheme = if self.certificates.is_some() { "rediss-cluster" } else { "redis-cluster" };
        let nodes: Vec<_> = self.members.iter().map(|member| member.node.address()).collect();
        format!("{scheme}://{}", nodes.join(","))
    }

    /// The certificates that it and its clients use.
    ///
    /// # Panics
    ///
    /// If it was started without TLS.
    pub fn certificates(&self) -> &Certificates {
        self.certificates.as_ref().expect("it was started with TLS")
    }

    /// Its folder, with the saved data and the logs of the nodes.
    pub fn folder(&self) -> &Path {
        self.folder.path()
    }

    /// How many nodes there are.
    pub fn nodes(&self) -> usize {
        self.members.len()
    }

    /// The address, `127.0.0.1:port`, by which clients know a node, which is its proxy's address if
    /// there is a proxy.
    pub fn node_address(&self, i: usize) -> String {
        self.members[i].node.address()
    }

    /// The slot of a key.
    ///
    /// # Panics
    ///
    /// If no node runs.
    pub async fn slot_of(&self, key: &str) -> u16 {
        let running = self.running().next().expect("a node runs");
        let reply = self.command(running, &["CLUSTER", "KEYSLOT", key]).await;
        reply.trim_start_matches(':').parse().expect("it is a number")
    }

    /// Waits until a running node reports that it owns the key's slot, and returns the node.
    ///
    /// # Panics
    ///
    /// If no running node owns the slot in time.
    pub async fn owner_of(&self, key: &str) -> usize {
        let slot = self.slot_of(key).await;
        until_some("a node has the slot", async || self.owner(slot).await).await
    }

    /// Waits until a node other than `i` has a key's slot and takes commands, and returns it.
    ///
    /// # Panics
    ///
    /// If no other node owns the slot in time.
    pub async fn until_owned_by_another(&self, key: &str, i: usize) -> usize {
        let slot = self.slot_of(key).await;
        until_some("another node has the slot", async || {
            let owner = self.owner(slot).await.filter(|owner| *owner != i)?;
            self.is_content(owner).await.then_some(owner)
        })
        .await
    }

    /// A running replica of a node.
    ///
    /// # Panics
    ///
    /// If the node does not get a replica in time.
    pub async fn replica_of(&self, i: usize) -> usize {
        until_some("the node has a replica", async || {
            let is_replica = |view: &View| {
                let primary = view.own().and_then(|own| own.primary.as_deref());
                primary == Some(&*self.members[i].id)
            };
            let views = self.views().await;
            views.iter().rfind(|(_, view)| is_replica(view)).map(|(j, _)| *j)
        })
        .await
    }

    /// Makes a replica the primary in the place of its own, and waits until it is.
    ///
    /// # Panics
    ///
    /// If it is not for long.
    pub async fn failover(&self, replica: usize) {
        until("a failover begins", async || {
            // Not while the replica has lost touch with its primary.
            self.command(replica, &["CLUSTER", "FAILOVER"]).await == "+OK"
        })
        .await;
        until("the replica is the primary", async || self.primaries().await.contains(&replica))
            .await;
    }

    /// Makes a replica the primary in the place of its own without asking that one, and waits until it is.
    ///
    /// # Panics
    ///
    /// If it is not for long.
    pub async fn force_failover(&self, replica: usize) {
        until("the replica is the primary", async || {
            // Refused while one is under way.
            self.command(replica, &["CLUSTER", "FAILOVER", "FORCE"]).await;
            self.primaries().await.contains(&replica)
        })
        .await;
    }

    /// Waits until all running nodes agree on the owners of the slots, each of them runs, and replicas have their
    /// copies.
    ///
    /// # Panics
    ///
    /// If that is not so for long.
    pub async fn until_settled(&self) {
        until("all nodes agree", async || self.is_settled().await).await;
    }

    /// Returns a function that sends one request to a server at each call and waits for the reply. A late return shows a stall. A call
    /// returns within half a second in any case.
    pub fn heartbeat(&self, i: usize) -> impl FnMut() + Send + use<> {
        self.members[i].node.server.heartbeat()
    }

    /// Stops a node in its tracks: connections stay open, nothing is answered.
    pub fn pause(&self, i: usize) {
        self.members[i].node.server.pause();
    }

    /// Lets a node go on.
    pub fn resume(&self, i: usize) {
        self.members[i].node.server.resume();
    }

    /// Kills a node at once.
    pub fn kill(&mut self, i: usize) {
        self.members[i].node.server.kill();
    }

    /// Starts a node again, on the same ports and with its knowledge of the cluster.
    ///
    /// If it was a primary and has not been replaced, it refuses writes for two seconds.
    ///
    /// # Panics
    ///
    /// If it does not start.
    pub async fn restart(&mut self, i: usize) {
        self.spawn(i);
        let server = &mut self.members[i].node.server;
        assert!(server.comes_up().await, "redis-server does not start again");
    }

    /// Sends one command to a node, past its proxy, and returns the whole reply as text.
    ///
    /// The command comes from a user with all rights. The testbed repeats it if the server closes the connection
    /// instead of answering, as a server does to all connections when its role changes.
    ///
    /// # Panics
    ///
    /// If the node does not answer.
    pub async fn command(&self, i: usize, command: &[&str]) -> String {
        self.members[i].node.server.insist(command).await
    }

    /// How often a node has run these commands, such as `["eval", "evalsha"]`.
    ///
    /// # Panics
    ///
    /// If the node does not answer.
    pub async fn calls(&self, i: usize, commands: &[&str]) -> u64 {
        self.members[i].node.server.calls(commands).await
    }

    /// The proxies, one for each node. The list is empty if the cluster was started without
    /// proxies.
    pub fn proxies(&self) -> Vec<&FaultProxy> {
        self.members.iter().filter_map(|member| member.node.proxy()).collect()
    }

    /// Sets the network fault between the cluster, its clients and its replicas.
    ///
    /// # Panics
    ///
    /// If there are no proxies.
    pub fn set_network_fault(&self, fault: NetworkFault) {
        for member in &self.members {
            member.node.set_network_fault(fault);
        }
    }

    /// Cuts a node off from clients and from its replicas, without a word: the other nodes still see it.
    ///
    /// # Panics
    ///
    /// If there are no proxies.
    pub fn isolate(&self, i: usize) {
        self.members[i].node.set_network_fault(NetworkFault::BlackHole);
    }

    /// Cuts a node off from all other nodes without a notification. Clients still reach the node.
    ///
    /// # Panics
    ///
    /// If there are no proxies.
    pub fn isolate_with_clients(&self, i: usize) {
        for (_, other) in self.members.iter().enumerate().filter(|(j, _)| *j != i) {
            self.members[i].set_network_fault_between(other, NetworkFault::BlackHole);
        }
    }

    /// Lets all traffic pass again.
    ///
    /// # Panics
    ///
    /// If there are no proxies.
    pub fn heal(&self) {
        self.set_network_fault(NetworkFault::None);
        self.members.iter().for_each(Member::heal);
    }

    /// Sends a command that must be done.
    async fn demand(&self, i: usize, command: &[&str]) {
        let reply = self.command(i, command).await;
        assert_eq!(reply, "+OK", "node {i}: {}", command.join(" "));
    }

    fn running(&self) -> impl Iterator<Item = usize> {
        (0..self.members.len()).filter(|i| self.members[*i].node.server.runs())
    }

    /// The view of each running node.
    async fn views(&self) -> Vec<(usize, View)> {
        let mut views = Vec::new();
        for i in self.running() {
            let server = &self.members[i].node.server;
            let reply = server.try_command(&["CLUSTER", "NODES"]).await;
            views.push((i, View::parse(&reply.unwrap_or_default())));
        }
        views
    }

    async fn primaries(&self) -> Vec<usize> {
        let views = self.views().await;
        let is_primary = |view: &View| view.own().is_some_and(|own| own.primary.is_none());
        views.iter().filter(|(_, view)| is_primary(view)).map(|(i, _)| *i).collect()
    }

    async fn owner(&self, slot: u16) -> Option<usize> {
        let views = self.views().await;
        let owns = |view: &View| view.own().filter(|own| own.owns(slot)).map(|own| own.epoch);
        let owners = views.iter().filter_map(|(i, view)| Some((owns(view)?, *i)));
        // A node that was unreachable may still report that it owns the slot.
        owners.max().map(|(_, owner)| owner)
    }

    /// Whether a node finds that the cluster is there.
    async fn is_content(&self, i: usize) -> bool {
        let info = self.members[i].node.server.try_command(&["CLUSTER", "INFO"]).await;
        info.is_ok_and(|info| info.contains("cluster_state:ok"))
    }

    async fn is_settled(&self) -> bool {
        let views = self.views().await;
        let running: Vec<_> = views.iter().map(|(i, _)| self.members[*i].id.as_str()).collect();
        let Some((_, first)) = views.first() else { return false };
        let owners = first.owners();
        let slots = owners.iter().flat_map(|(_, slots)| *slots).map(|slots| slots.len());
        if slots.sum::<usize>() != usize::from(SLOTS)
            || !owners.iter().all(|(owner, _)| running.contains(owner))
        {
            return false;
        }
        for (i, view) in &views {
            let knows = |id: &&str| view.nodes.get(*id).is_some_and(|node| node.connected);
            if view.owners() != owners
                || !running.iter().all(knows)
                || !self.is_content(*i).await
                || !self.has_its_copy(*i).await
            {
                return false;
            }
        }
        true
    }

    /// Whether a node is not a replica or is connected to its primary and has its data.
    async fn has_its_copy(&self, i: usize) -> bool {
        let info = self.members[i].node.server.try_command(&["INFO", "replication"]).await;
        info.is_ok_and(|info| !info.contains("master_link_status:down"))
    }
}
