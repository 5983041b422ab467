//! ZooKeeper servers: one, or an ensemble.

mod archive;
mod curator;
mod launch;
mod member;
mod options;
mod program;
mod settings;
mod wire;

use std::path::Path;
use std::time::Duration;

use tokio::time::{sleep, timeout};

use crate::certificates::Certificates;
use crate::disk::SmallDisk;
use crate::heartbeat::heartbeat;
use crate::memory::Folder;
use crate::proxy::FaultProxy;
use crate::until_some;
use member::Member;

pub use curator::{Curator, CuratorEvent};
pub use options::ZooKeeperOptions;

/// An election takes about half a second. On a busy machine, some.
const ELECTION_WAIT: Duration = Duration::from_secs(30);

/// A running ZooKeeper ensemble on loopback. It dies when dropped. Its members are counted from 0.
#[derive(Debug)]
pub struct ZooKeeper {
    options: ZooKeeperOptions,
    // Before the folder, so that the members are gone when it is removed.
    members: Vec<Member>,
    folder: Folder,
    certificates: Option<Certificates>,
}

impl ZooKeeper {
    /// Starts one server, open to all clients.
    ///
    /// # Panics
    ///
    /// As [`ZooKeeperOptions::start`].
    pub async fn start() -> Self {
        ZooKeeperOptions::new().start().await
    }

    /// The addresses of all members, each `127.0.0.1:port`.
    pub fn endpoints(&self) -> Vec<String> {
        self.members.iter().map(|member| format!("127.0.0.1:{}", member.client_port)).collect()
    }

    /// The ensemble's URL, `zookeeper://127.0.0.1:port,…`.
    pub fn url(&self) -> String {
        format!("zookeeper://{}", self.endpoints().join(","))
    }

    /// The ensemble's URL for TLS.
    ///
    /// # Panics
    ///
    /// If it was started without TLS.
    pub fn tls_url(&self) -> String {
        assert!(self.certificates.is_some(), "it was started with TLS");
        let endpoint = |member: &Member| format!("localhost:{}", member.secure_port);
        let endpoints: Vec<_> = self.members.iter().map(endpoint).collect();
        format!("zookeepers://{}", endpoints.join(","))
    }

    /// The certificates that it and its clients use.
    ///
    /// # Panics
    ///
    /// If it was started without TLS.
    pub fn certificates(&self) -> &Certificates {
        self.certificates.as_ref().expect("it was started with TLS")
    }

    /// Its folder, with its data and its logs.
    pub fn folder(&self) -> &Path {
        self.folder.path()
    }

    /// The time that the members count in.
    pub fn tick(&self) -> Duration {
        self.options.tick
    }

    /// Starts a proxy in front of every member.
    pub async fn proxies(&self) -> Vec<FaultProxy> {
        let mut proxies = Vec::new();
        for endpoint in self.endpoints() {
            proxies.push(FaultProxy::start(endpoint).await);
        }
        proxies
    }

    /// The process ids of the members that run.
    pub fn ids(&self) -> Vec<u32> {
        let members = self.members.iter().filter(|member| member.instance.runs());
        members.map(|member| member.instance.id()).collect()
    }

    /// The process id of a member.
    ///
    /// # Panics
    ///
    /// If it was killed.
    pub fn id(&self, i: usize) -> u32 {
        self.members[i].instance.id()
    }

    /// The ports on which each member listens for connections from the remaining members.
    pub fn peer_ports(&self) -> Vec<[u16; 2]> {
        self.members.iter().map(|member| [member.peer_port, member.election_port]).collect()
    }

    /// Stops a member in its tracks: connections stay open, nothing is answered.
    pub fn pause_member(&self, i: usize) {
        self.members[i].instance.pause();
    }

    /// Lets a member go on.
    pub fn resume_member(&self, i: usize) {
        self.members[i].instance.resume();
    }

    /// Kills a member at once.
    pub fn kill_member(&mut self, i: usize) {
        self.members[i].instance.kill();
    }

    /// Starts a member again, on the same ports and with its data, and waits until it serves clients.
    ///
    /// # Panics
    ///
    /// If it does not start, or is not one of a majority then.
    pub async fn restart_member(&mut self, i: usize) {
        self.kill_member(i);
        self.spawn(i);
        assert!(self.members[i].serves().await, "ZooKeeper does not start again");
    }

    /// Stops all members in their tracks.
    pub fn pause(&self) {
        self.members.iter().for_each(|member| member.instance.pause());
    }

    /// Lets all members go on.
    pub fn resume(&self) {
        self.members.iter().for_each(|member| member.instance.resume());
    }

    /// Kills all members at once.
    pub fn kill(&mut self) {
        self.members.iter_mut().for_each(|member| member.instance.kill());
    }

    /// Starts all members again, on the same ports and with their data.
    ///
    /// # Panics
    ///
    /// If they do not start.
    pub async fn restart(&mut self) {
        self.kill();
        assert!(self.try_launch().await, "ZooKeeper does not start again");
    }

    /// Fills the small disk of a member, which ends with its next write.
    ///
    /// # Panics
    ///
    /// If it was started without one.
    pub fn fill_disk(&self, i: usize) {
        self.disk(i).fill();
    }

    /// Makes room on the small disk of a member, which does not start again by itself.
    ///
    /// # Panics
    ///
    /// If it was not filled.
    pub fn clear_disk(&self, i: usize) {
        self.disk(i).clear();
    }

    /// The member that leads, once there is one; a single server leads. Members that are killed or paused are not asked.
    ///
    /// # Panics
    ///
    /// If no leader is elected in time.
    pub async fn leader(&self) -> usize {
        let elected = async {
            loop {
                let leaders = self.leaders().await;
                // Two members may consider themselves the leader, for example after a pause.
                if let [leader] = leaders[..] {
                    return leader;
                }
                sleep(Duration::from_millis(10)).await;
            }
        };
        timeout(ELECTION_WAIT, elected).await.expect("a leader is elected")
    }

    async fn leaders(&self) -> Vec<usize> {
        let mut leaders = Vec::new();
        for (i, member) in self.members.iter().enumerate() {
            if member.instance.runs() && member.leads().await {
                leaders.push(i);
            }
        }
        leaders
    }

    /// Returns a function that sends one request to a server at each call and waits for the reply. A late return shows a stall. A call
    /// returns within a second in any case.
    pub fn heartbeat(&self) -> impl FnMut() + Send + use<> {
        let address = self.endpoints().remove(0);
        heartbeat(move || wire::connect(&address), wire::PING)
    }

    /// Sends one of ZooKeeper's commands of four letters to a member, such as `srvr`, `cons` or `wchp`, and returns the reply.
    ///
    /// # Panics
    ///
    /// If the member does not answer for a minute.
    pub async fn ask(&self, member: usize, command: &str) -> String {
        until_some("the member answers", async || self.members[member].ask(command).await.ok())
            .await
    }

    /// Reads one of the numbers that a member tells by `mntr`, such as `zk_znode_count`.
    ///
    /// # Panics
    ///
    /// If the member does not answer for a minute, or knows no such number.
    pub async fn metric(&self, member: usize, name: &str) -> f64 {
        let metrics = self.ask(member, "mntr").await;
        let mut lines = metrics.lines().filter_map(|line| line.split_once('\t'));
        let value = lines.find_map(|(key, value)| (key == name).then_some(value));
        let value = value.unwrap_or_else(|| panic!("mntr tells no {name}: {metrics}"));
        value.parse().expect("it is a number")
    }

    fn disk(&self, i: usize) -> &SmallDisk {
        self.members[i].disk.as_ref().expect("it was started with small disks")
    }
}
