//! A Redis server with replicas, and sentinels that choose another primary when it is gone.

mod launch;
mod options;

use std::path::Path;

use tempfile::TempDir;

use crate::certificates::Certificates;
use crate::proxy::{FaultProxy, NetworkFault};
use crate::until::{until, until_some};

use super::node::Node;
use super::server::Login;

pub use options::SentinelOptions;

/// The name by which the sentinels know the servers.
const NAME: &str = "mymaster";

/// A running Redis server with replicas and sentinels, all on loopback. They die when it is dropped.
///
/// The servers that hold data are counted from 0, which is the primary at first; and so are the sentinels.
#[derive(Debug)]
pub struct RedisSentinel {
    options: SentinelOptions,
    // Before the folder, so that they are gone when it is removed.
    nodes: Vec<Node>,
    sentinels: Vec<Node>,
    folder: TempDir,
    login: Option<Login>,
    certificates: Option<Certificates>,
}

impl RedisSentinel {
    /// Starts a primary with one replica and three sentinels.
    ///
    /// # Panics
    ///
    /// As [`SentinelOptions::start`].
    pub async fn start() -> Self {
        SentinelOptions::new().start().await
    }

    /// Its URL, `redis-sentinel://127.0.0.1:port,…/mymaster`, or `rediss-sentinel://…` if it speaks TLS.
    ///
    /// It names the sentinels, or the proxies in front of them.
    pub fn url(&self) -> String {
        let scheme = if self.certificates.is_some() { "rediss-sentinel" } else { "redis-sentinel" };
        let sentinels: Vec<_> = self.sentinels.iter().map(Node::address).collect();
        format!("{scheme}://{}/{NAME}", sentinels.join(","))
    }

    /// The certificates that all and their clients use.
    ///
    /// # Panics
    ///
    /// If it was started without TLS.
    pub fn certificates(&self) -> &Certificates {
        self.certificates.as_ref().expect("it was started with TLS")
    }

    /// The folder with their saved data and their logs.
    pub fn folder(&self) -> &Path {
        self.folder.path()
    }

    /// How many servers hold data.
    pub fn nodes(&self) -> usize {
        self.nodes.len()
    }

    /// How many sentinels there are.
    pub fn sentinels(&self) -> usize {
        self.sentinels.len()
    }

    /// The address, `127.0.0.1:port`, by which the sentinels know a server, which is its proxy's
    /// address if there is a proxy.
    pub fn node_address(&self, i: usize) -> String {
        self.nodes[i].address()
    }

    /// The address by which the remaining sentinels know a sentinel, which is its proxy's address
    /// if there is a proxy.
    pub fn sentinel_address(&self, i: usize) -> String {
        self.sentinels[i].address()
    }

    /// The server that most sentinels report as the primary, as soon as most running sentinels
    /// agree.
    ///
    /// # Panics
    ///
    /// If they do not for long.
    pub async fn primary(&self) -> usize {
        until_some("most sentinels name one primary", async || {
            let named = self.named_primaries().await;
            let votes = |i: usize| named.iter().filter(|named| **named == Some(i)).count();
            (0..self.nodes.len()).find(|i| votes(*i) * 2 > named.len())
        })
        .await
    }

    /// Lets the sentinels choose another primary, and waits until all that run name it and it says so too.
    ///
    /// # Panics
    ///
    /// If they do not for long.
    pub async fn failover(&self) {
        let old = self.primary().await;
        let sentinel = self.sentinels.iter().position(|sentinel| sentinel.server.runs());
        let sentinel = sentinel.expect("a sentinel runs");
        until("all sentinels name another primary", async || {
            let named = self.named_primaries().await;
            let [Some(new), ..] = named[..] else { return false };
            if new == old {
                // The sentinel rejects this command while a failover is in progress. A failed
                // failover is not reported.
                self.sentinel_command(sentinel, &["SENTINEL", "FAILOVER", NAME]).await;
            }
            new != old && named.iter().all(|named| *named == Some(new)) && self.leads(new).await
        })
        .await;
    }

    /// Waits until every server that runs and copies another is connected to it and has its data.
    ///
    /// # Panics
    ///
    /// If that is not so for long.
    pub async fn until_replicated(&self) {
        for node in self.nodes.iter().filter(|node| node.server.runs()) {
            until("a replica has its copy", async || {
                let info = node.server.try_command(&["INFO", "replication"]).await;
                info.is_ok_and(|info| !info.contains("master_link_status:down"))
            })
            .await;
        }
    }

    /// Returns a function that sends one request to a server at each call and waits for the reply. A late return shows a stall. A call
    /// returns within half a second in any case.
    pub fn heartbeat(&self, i: usize) -> impl FnMut() + Send + use<> {
        self.nodes[i].server.heartbeat()
    }

    /// Stops a server in its tracks: connections stay open, nothing is answered.
    pub fn pause(&self, i: usize) {
        self.nodes[i].server.pause();
    }

    /// Lets a server go on.
    pub fn resume(&self, i: usize) {
        self.nodes[i].server.resume();
    }

    /// Kills a server at once.
    pub fn kill(&mut self, i: usize) {
        self.nodes[i].server.kill();
    }

    /// Starts a server again, on the same port and in the role in which it ended.
    ///
    /// A former primary considers itself the primary until the sentinels reconfigure it.
    ///
    /// # Panics
    ///
    /// If it does not start.
    pub async fn restart(&mut self, i: usize) {
        self.spawn_node(i);
        assert!(self.nodes[i].server.comes_up().await, "redis-server does not start again");
    }

    /// Stops a sentinel in its tracks.
    pub fn pause_sentinel(&self, i: usize) {
        self.sentinels[i].server.pause();
    }

    /// Lets a sentinel go on.
    pub fn resume_sentinel(&self, i: usize) {
        self.sentinels[i].server.resume();
    }

    /// Kills a sentinel at once.
    pub fn kill_sentinel(&mut self, i: usize) {
        self.sentinels[i].server.kill();
    }

    /// Starts a sentinel again, on the same port and with its saved state.
    ///
    /// # Panics
    ///
    /// If it does not start.
    pub async fn restart_sentinel(&mut self, i: usize) {
        self.spawn_sentinel(i);
        assert!(self.sentinels[i].server.comes_up().await, "the sentinel does not start again");
        self.set_pace(i).await;
    }

    /// Sends one command to a server, past its proxy, and returns the whole reply as text.
    ///
    /// The command comes from a user with all rights. The testbed repeats it if the server closes the connection
    /// instead of answering, as a server does to all connections when its role changes.
    ///
    /// # Panics
    ///
    /// If the server does not answer.
    pub async fn command(&self, i: usize, command: &[&str]) -> String {
        self.nodes[i].server.insist(command).await
    }

    /// How often a server has run these commands, such as `["eval", "evalsha"]`.
    ///
    /// # Panics
    ///
    /// If the server does not answer.
    pub async fn calls(&self, i: usize, commands: &[&str]) -> u64 {
        self.nodes[i].server.calls(commands).await
    }

    /// Sends one command to a sentinel, as [`command`](Self::command).
    ///
    /// # Panics
    ///
    /// If the sentinel does not answer.
    pub async fn sentinel_command(&self, i: usize, command: &[&str]) -> String {
        self.sentinels[i].server.insist(command).await
    }

    /// The servers' proxies, followed by the sentinels' proxies. The list is empty if the setup was
    /// started without proxies.
    pub fn proxies(&self) -> Vec<&FaultProxy> {
        self.nodes.iter().chain(&self.sentinels).filter_map(Node::proxy).collect()
    }

    /// Sets the network fault for all traffic.
    ///
    /// # Panics
    ///
    /// If there are no proxies.
    pub fn set_network_fault(&self, fault: NetworkFault) {
        for node in self.nodes.iter().chain(&self.sentinels) {
            node.set_network_fault(fault);
        }
    }

    /// Cuts off a server without a word: clients, sentinels and replicas do not reach it.
    ///
    /// If it is a replica, it does go on to copy the primary, to which it has connected by itself.
    ///
    /// # Panics
    ///
    /// If there are no proxies.
    pub fn isolate(&self, i: usize) {
        self.nodes[i].set_network_fault(NetworkFault::BlackHole);
    }

    /// Cuts a server off from the sentinels and from all other servers without a notification.
    /// Clients still reach the server.
    ///
    /// # Panics
    ///
    /// If there are no proxies.
    pub fn isolate_with_clients(&self, i: usize) {
        let all = self.nodes.iter().chain(&self.sentinels).enumerate();
        for (_, other) in all.filter(|(j, _)| *j != i) {
            self.nodes[i].set_network_fault_between(other, NetworkFault::BlackHole);
        }
    }

    /// Lets all traffic pass again.
    ///
    /// # Panics
    ///
    /// If there are no proxies.
    pub fn heal(&self) {
        self.set_network_fault(NetworkFault::None);
    }

    /// The server that each running sentinel names as the primary.
    async fn named_primaries(&self) -> Vec<Option<usize>> {
        let mut named = Vec::new();
        for sentinel in self.sentinels.iter().filter(|sentinel| sentinel.server.runs()) {
            let command = ["SENTINEL", "GET-MASTER-ADDR-BY-NAME", NAME];
            let reply = sentinel.server.try_command(&command).await.unwrap_or_default();
            // The last line of the reply is the port.
            let port = reply.lines().last();
            let is_named = |node: &Node| Some(&*node.announced_port()) == port;
            named.push(self.nodes.iter().position(is_named));
        }
        named
    }

    /// Whether a server takes itself for the primary.
    async fn leads(&self, i: usize) -> bool {
        let role = self.nodes[i].server.try_command(&["ROLE"]).await;
        role.is_ok_and(|role| role.contains("\r\nmaster\r\n"))
    }
}
