//! How servers and their sentinels come up.

use std::fs;

use crate::certificates::{Certificates, TlsClients};
use crate::until::until;

use super::super::node::Node;
use super::super::settings::{display, flags, tls_between_servers, tls_settings};
use super::{NAME, RedisSentinel, SentinelOptions};

/// After this many milliseconds without success, a failover is given up. A failover here takes a second; after twice this
/// time, the sentinels try again.
const FAILOVER_TIMEOUT: &str = "3000";

/// How often a sentinel looks after its connections, if it is not told otherwise.
const PING_PERIOD: [&str; 2] = ["PING-PERIOD", "1000"];

/// The same until all know each other.
const FIRST_PING_PERIOD: [&str; 2] = ["PING-PERIOD", "50"];

/// The periods of a sentinel that is told to be fast, in milliseconds.
///
/// Without a primary, a replica is asked for its state once a second, and is not chosen if that is older than five
/// times the first of these.
#[rustfmt::skip]
const FAST: [&str; 12] = [
    "PING-PERIOD", "300",
    "ASK-PERIOD", "100",
    "INFO-PERIOD", "200",
    "PUBLISH-PERIOD", "200",
    "ELECTION-TIMEOUT", "1000",
    "MIN-LINK-RECONNECT-PERIOD", "100",
];

impl SentinelOptions {
    /// Starts all and waits until the replicas have their copies and the sentinels know everybody.
    ///
    /// # Panics
    ///
    /// If they cannot be started, see [`RedisOptions::start`](crate::RedisOptions::start).
    pub async fn start(self) -> RedisSentinel {
        for _ in 0..10 {
            if let Some(redis) = RedisSentinel::launch(self.clone()).await {
                return redis;
            }
            // Another program took one of the ports.
        }
        panic!("redis-server does not start, see its output above");
    }
}

impl RedisSentinel {
    /// Starts all, unless another program has taken one of their ports.
    async fn launch(mut options: SentinelOptions) -> Option<Self> {
        let folder = tempfile::Builder::new().prefix("leasehold-sentinel-").tempdir();
        let folder = folder.expect("a temporary folder can be made");
        let tls = options.node.tls;
        let certificates =
            tls.map(|_| Certificates::create(folder.path(), &["localhost", "127.0.0.1"]));
        let login = options.node.let_in_ourselves();
        let sentinel_login =
            options.sentinel_password.clone().map(|password| ["default".to_owned(), password]);
        let path = |name: &str, i: usize| folder.path().join(format!("{name}-{i}"));
        let nodes = (0..=options.replicas).map(|i| Node::new(path("node", i), login.clone()));
        let sentinels =
            (0..options.sentinels).map(|i| Node::new(path("sentinel", i), sentinel_login.clone()));
        let (nodes, sentinels) = (nodes.collect(), sentinels.collect());
        let mut redis = Self { options, nodes, sentinels, login, folder, certificates };
        if redis.options.proxied {
            for (n, node) in redis.nodes.iter_mut().chain(&mut redis.sentinels).enumerate() {
                node.hide(n).await;
            }
        }
        redis.try_launch().await.then_some(redis)
    }

    async fn try_launch(&mut self) -> bool {
        self.write_settings();
        // A sentinel or replica looks again after a second for a server that was not up. So the primary starts before
        // its replicas, and they before the sentinels.
        self.spawn_node(0);
        if !self.nodes[0].server.comes_up().await {
            return false;
        }
        for i in 1..self.nodes.len() {
            self.spawn_node(i);
        }
        for node in &mut self.nodes {
            if !node.server.comes_up().await {
                return false;
            }
        }
        self.until_replicated().await;
        for i in 0..self.sentinels.len() {
            self.spawn_sentinel(i);
        }
        for sentinel in &mut self.sentinels {
            if !sentinel.server.comes_up().await {
                return false;
            }
        }
        self.acquaint_sentinels().await;
        true
    }

    pub(super) fn spawn_node(&mut self, i: usize) {
        let node = &self.nodes[i];
        let mut args = vec![display(&node.server.folder().join("redis.conf"))];
        args.extend(self.options.node.replicated_args(node, self.certificates.as_ref()));
        args.extend(flags([
            ("replica-announce-ip", "127.0.0.1".to_owned()),
            ("replica-announce-port", node.announced_port()),
        ]));
        args.extend(self.options.node.args.iter().cloned());
        self.nodes[i].server.spawn(args);
    }

    pub(super) fn spawn_sentinel(&mut self, i: usize) {
        let server = &mut self.sentinels[i].server;
        let file = display(&server.folder().join("sentinel.conf"));
        server.spawn(vec![file, "--sentinel".to_owned()]);
    }

    /// Sets how often a sentinel looks around.
    pub(super) async fn set_pace(&self, i: usize) {
        let pace = if self.options.fast { &FAST[..] } else { &PING_PERIOD };
        let reply = self.debug(i, pace).await;
        assert!(!self.options.fast || reply == "+OK", "to be fast takes Redis 7.0: {reply}");
    }

    /// Waits until all sentinels are connected to everybody.
    async fn acquaint_sentinels(&self) {
        for i in 0..self.sentinels.len() {
            // An older server does not know the command. It looks again after a second for servers that were not
            // up.
            self.debug(i, &FIRST_PING_PERIOD).await;
        }
        for i in 0..self.sentinels.len() {
            until("a sentinel knows everybody", async || self.knows_everybody(i).await).await;
            self.set_pace(i).await;
        }
    }

    async fn debug(&self, i: usize, settings: &[&str]) -> String {
        self.sentinel_command(i, &[&["SENTINEL", "DEBUG"], settings].concat()).await
    }

    async fn knows_everybody(&self, i: usize) -> bool {
        let count = async |role: &str, field: &str, value: &str| {
            let reply = self.sentinel_command(i, &["SENTINEL", role, NAME]).await;
            reply.matches(&format!("\r\n{field}\r\n${}\r\n{value}", value.len())).count()
        };
        // A server that is not connected has an additional flag.
        count("MASTER", "flags", "master").await == 1
            && count("REPLICAS", "flags", "slave").await == self.options.replicas
            && count("REPLICAS", "master-link-status", "ok").await == self.options.replicas
            && count("SENTINELS", "flags", "sentinel").await == self.options.sentinels - 1
    }

    /// Writes the files that sentinels change: their own, and the settings by which a server follows its primary.
    fn write_settings(&self) {
        let primary = &self.nodes[0].announced_port();
        for (i, node) in self.nodes.iter().enumerate() {
            let settings = format!("replicaof 127.0.0.1 {primary}\n");
            let settings = if i == 0 { "" } else { &settings };
            write(node, "redis.conf", settings);
        }
        for (i, sentinel) in self.sentinels.iter().enumerate() {
            write(sentinel, "sentinel.conf", &self.sentinel_settings(i));
        }
    }

    fn sentinel_settings(&self, i: usize) -> String {
        let sentinel = &self.sentinels[i];
        let folder = sentinel.server.folder();
        let primary = self.nodes[0].announced_port();
        let quorum = self.options.sentinels / 2 + 1;
        let mut settings = vec![
            ("bind", "127.0.0.1".to_owned()),
            ("dir", display(folder)),
            ("unixsocket", display(&sentinel.server.socket())),
            ("sentinel myid", id(i)),
            ("sentinel announce-ip", "127.0.0.1".to_owned()),
            ("sentinel announce-port", sentinel.announced_port()),
            ("sentinel monitor", format!("{NAME} 127.0.0.1 {primary} {quorum}")),
            ("sentinel down-after-milliseconds", self.down_after()),
            ("sentinel failover-timeout", format!("{NAME} {FAILOVER_TIMEOUT}")),
            ("sentinel parallel-syncs", format!("{NAME} 1")),
        ];
        if let Some(certificates) = &self.certificates {
            settings.push(("port", "0".to_owned()));
            let clients = TlsClients::NeedNoCertificate;
            settings.extend(tls_settings(sentinel.port(), certificates, clients));
            settings.extend(tls_between_servers(certificates));
        } else {
            settings.push(("port", sentinel.port().to_string()));
        }
        settings.extend(sentinel.source().map(|source| ("bind-source-addr", source.to_string())));
        if let Some([user, password]) = &self.login {
            settings.push(("sentinel auth-user", format!("{NAME} {user}")));
            settings.push(("sentinel auth-pass", format!("{NAME} {password}")));
        }
        if let Some(password) = &self.options.sentinel_password {
            settings.push(("requirepass", password.clone()));
            settings.push(("sentinel sentinel-pass", password.clone()));
        }
        // They would find each other within two seconds.
        for replica in &self.nodes[1..] {
            let port = replica.announced_port();
            settings.push(("sentinel known-replica", format!("{NAME} 127.0.0.1 {port}")));
        }
        for (j, other) in self.sentinels.iter().enumerate().filter(|(j, _)| *j != i) {
            let (port, id) = (other.announced_port(), id(j));
            settings.push(("sentinel known-sentinel", format!("{NAME} 127.0.0.1 {port} {id}")));
        }
        settings.into_iter().map(|(name, value)| format!("{name} {value}\n")).collect()
    }

    fn down_after(&self) -> String {
        format!("{NAME} {}", self.options.down_after.as_millis())
    }
}

fn write(node: &Node, name: &str, text: &str) {
    fs::write(node.server.folder().join(name), text).expect("temporary files can be written");
}

/// The ID by which sentinels identify each other, which consists of forty digits.
fn id(i: usize) -> String {
    format!("{:040x}", i + 1)
}
