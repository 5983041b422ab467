//! An etcd cluster of one or more members.

mod ctl;
mod ctl_lock;
mod launch;
mod member;
mod options;
mod program;

use std::net::TcpStream;
use std::path::Path;
use std::time::Duration;

use tempfile::TempDir;
use tokio::time::{sleep, timeout};

use crate::certificates::Certificates;
use crate::heartbeat::{TIMEOUT, heartbeat};
use crate::proxy::FaultProxy;
use crate::until_some;
use member::{Member, Stage};
use program::Program;

pub use ctl_lock::CtlLock;
pub use options::EtcdOptions;

/// An election takes about a second. On a busy machine, some.
const ELECTION_WAIT: Duration = Duration::from_secs(30);

/// A running etcd cluster on loopback. It dies when dropped. Its members are counted from 0.
#[derive(Debug)]
pub struct Etcd {
    options: EtcdOptions,
    program: Program,
    // Before the folder, so that the members are gone when it is removed.
    members: Vec<Member>,
    folder: TempDir,
    certificates: Option<Certificates>,
    auth_enabled: bool,
}

impl Etcd {
    /// Starts one member, which everybody may use.
    ///
    /// # Panics
    ///
    /// As [`EtcdOptions::start`].
    pub async fn start() -> Self {
        EtcdOptions::new().start().await
    }

    /// The addresses of all members, each `127.0.0.1:port`.
    pub fn endpoints(&self) -> Vec<String> {
        self.members.iter().map(|member| format!("127.0.0.1:{}", member.client_port)).collect()
    }

    /// The cluster's URL, `etcd://127.0.0.1:port,…`.
    pub fn url(&self) -> String {
        format!("etcd://{}", self.endpoints().join(","))
    }

    /// The cluster's URL for TLS.
    ///
    /// # Panics
    ///
    /// If it was started without TLS.
    pub fn tls_url(&self) -> String {
        assert!(self.certificates.is_some(), "it was started with TLS");
        let endpoint = |member: &Member| format!("localhost:{}", member.client_port);
        let endpoints: Vec<_> = self.members.iter().map(endpoint).collect();
        format!("etcds://{}", endpoints.join(","))
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

    /// Starts a proxy in front of every member.
    pub async fn proxies(&self) -> Vec<FaultProxy> {
        let mut proxies = Vec::new();
        for endpoint in self.endpoints() {
            proxies.push(FaultProxy::start(endpoint).await);
        }
        proxies
    }

    /// The process id of a member.
    ///
    /// # Panics
    ///
    /// If it was killed.
    pub fn id(&self, i: usize) -> u32 {
        self.members[i].instance.id()
    }

    /// The ports on which the members listen for each other.
    pub fn peer_ports(&self) -> Vec<u16> {
        self.members.iter().map(|member| member.peer_port).collect()
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

    /// Starts a member again, on the same ports and with its data, and waits until it knows a leader.
    ///
    /// # Panics
    ///
    /// If it does not start, or is not one of a majority then.
    pub async fn restart_member(&mut self, i: usize) {
        self.kill_member(i);
        self.spawn(i);
        assert!(self.members[i].reaches(Stage::Healthy).await, "etcd does not start again");
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
        assert!(self.try_launch().await, "etcd does not start again");
    }

    /// The leader, once there is one. Killed and paused members are not asked.
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

    /// Returns a function that sends one request to a server at each call and waits for the reply. A late return shows a stall. A call
    /// returns within half a second in any case.
    pub fn heartbeat(&self) -> impl FnMut() + Send + use<> {
        let address = self.endpoints().remove(0);
        let connect = move || {
            let connection = TcpStream::connect(&address)?;
            connection.set_nodelay(true)?;
            connection.set_read_timeout(Some(TIMEOUT))?;
            Ok(connection)
        };
        heartbeat(connect, b"GET /version HTTP/1.1\r\nHost: etcd\r\n\r\n")
    }

    async fn leaders(&self) -> Vec<usize> {
        let mut leaders = Vec::new();
        for (i, member) in
            self.members.iter().enumerate().filter(|(_, member)| member.instance.runs())
        {
            if matches!(member.metric("etcd_server_is_leader").await, Ok(1.0)) {
                leaders.push(i);
            }
        }
        leaders
    }

    /// Reads a metric of a member, such as `grpc_server_handled_total{grpc_method="Txn"}`: the sum
    /// of all series that have at least these labels.
    ///
    /// # Panics
    ///
    /// If the member does not answer for a minute.
    pub async fn metric(&self, member: usize, selector: &str) -> f64 {
        until_some("the member answers", async || self.members[member].metric(selector).await.ok())
            .await
    }
}
