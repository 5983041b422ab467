//! One Redis server, and several that stand together.

mod cluster;
mod node;
mod sentinel;
mod server;
mod settings;

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use tempfile::TempDir;

use crate::certificates::{Certificates, TlsClients};
use crate::clock::{Pace, ServerClock};
use crate::port::free_port;
use server::Server;
use settings::NodeOptions;

pub use cluster::{ClusterOptions, RedisCluster};
pub use sentinel::{RedisSentinel, SentinelOptions};

/// How a server is started.
#[derive(Clone, Debug, Default)]
pub struct RedisOptions {
    node: NodeOptions,
    clock: Option<Pace>,
}

impl RedisOptions {
    /// A plain server that saves nothing.
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds arguments of `redis-server`, such as `["--maxmemory", "1mb"]`.
    #[must_use]
    pub fn args<A: Into<String>>(mut self, args: impl IntoIterator<Item = A>) -> Self {
        self.node.args.extend(args.into_iter().map(Into::into));
        self
    }

    /// Writes every command to disk before it is answered, so that a restart loses nothing.
    #[must_use]
    pub fn append_only(mut self) -> Self {
        self.node.append_only = true;
        self
    }

    /// Adds a line of the ACL file, such as `user locker on >password ~lock:* +@all`.
    #[must_use]
    pub fn acl(mut self, line: impl Into<String>) -> Self {
        self.node.acl.push(line.into());
        self
    }

    /// Also listens for TLS, with certificates made on the spot.
    #[must_use]
    pub fn tls(mut self) -> Self {
        self.node.tls = Some(TlsClients::NeedNoCertificate);
        self
    }

    /// Also listens for TLS, and asks clients for a certificate.
    #[must_use]
    pub fn tls_with_client_certificates(mut self) -> Self {
        self.node.tls = Some(TlsClients::NeedCertificate);
        self
    }

    /// Gives the server a wall clock of its own, [`Redis::clock`]. One server only, on Linux.
    #[must_use]
    pub fn clock(mut self, pace: Pace) -> Self {
        self.clock = Some(pace);
        self
    }

    /// Starts the server and waits until it answers.
    ///
    /// # Panics
    ///
    /// If it cannot be started. `redis-server` is searched on the path; the environment variable
    /// `LEASEHOLD_REDIS_SERVER` names another program, such as a `valkey-server`.
    pub async fn start(self) -> Redis {
        for _ in 0..10 {
            let mut redis =
                Redis::new(self.node.clone(), self.clock).expect("a temporary folder can be made");
            if redis.try_launch().await {
                return redis;
            }
            // Another program took one of the ports.
        }
        panic!("redis-server does not start, see its output above");
    }
}

/// A running Redis server on loopback. It dies when dropped.
#[derive(Debug)]
pub struct Redis {
    options: NodeOptions,
    // Before the folder, so that it is gone when that is removed.
    server: Server,
    folder: TempDir,
    port: u16,
    tls_port: Option<u16>,
    certificates: Option<Certificates>,
}

impl Redis {
    /// Starts a plain server that saves nothing.
    ///
    /// # Panics
    ///
    /// As [`RedisOptions::start`].
    pub async fn start() -> Self {
        RedisOptions::new().start().await
    }

    fn new(options: NodeOptions, clock: Option<Pace>) -> io::Result<Self> {
        let folder = tempfile::Builder::new().prefix("leasehold-redis-").tempdir()?;
        let certificates = options.tls.map(|_| Certificates::create(folder.path(), &["localhost"]));
        let tls_port = options.tls.map(|_| free_port());
        let server = Server::new(folder.path().to_owned(), None).with_clock(clock);
        Ok(Self { options, server, folder, port: free_port(), tls_port, certificates })
    }

    /// Its address, `127.0.0.1:port`.
    pub fn address(&self) -> String {
        format!("127.0.0.1:{}", self.port)
    }

    /// Its URL, `redis://127.0.0.1:port`.
    pub fn url(&self) -> String {
        format!("redis://{}", self.address())
    }

    /// The URL of its TLS listener.
    ///
    /// # Panics
    ///
    /// If it was started without TLS.
    pub fn tls_url(&self) -> String {
        let port = self.tls_port.expect("it was started with TLS");
        format!("rediss://localhost:{port}")
    }

    /// The certificates that it and its clients use.
    ///
    /// # Panics
    ///
    /// If it was started without TLS.
    pub fn certificates(&self) -> &Certificates {
        self.certificates.as_ref().expect("it was started with TLS")
    }

    /// Its wall clock.
    ///
    /// # Panics
    ///
    /// If it was started without one of its own.
    pub fn clock(&self) -> &ServerClock {
        self.server.clock().expect("it was started with a clock of its own")
    }

    /// Its folder, with the data that it saves.
    pub fn folder(&self) -> &Path {
        self.folder.path()
    }

    /// Its Unix socket.
    pub fn socket(&self) -> PathBuf {
        self.server.socket()
    }

    /// Its process id.
    pub fn id(&self) -> u32 {
        self.server.id()
    }

    /// Stops it in its tracks: connections stay open, nothing is answered.
    pub fn pause(&self) {
        self.server.pause();
    }

    /// Lets it go on.
    pub fn resume(&self) {
        self.server.resume();
    }

    /// Kills it at once.
    pub fn kill(&mut self) {
        self.server.kill();
    }

    /// Kills it, and removes all its saved data: it starts again as an empty server.
    ///
    /// # Panics
    ///
    /// If a file cannot be removed.
    pub fn wipe(&mut self) {
        self.kill();
        for saved in
            ["appendonlydir", "appendonly.aof", "dump.rdb"].map(|it| self.folder().join(it))
        {
            if saved.is_dir() {
                fs::remove_dir_all(saved).expect("temporary folders can be removed");
            } else if saved.exists() {
                fs::remove_file(saved).expect("temporary files can be removed");
            }
        }
    }

    /// Shuts it down in order.
    pub fn terminate(&mut self) {
        self.server.terminate();
    }

    /// Starts it again, on the same port and with its saved data.
    ///
    /// # Panics
    ///
    /// If it does not start.
    pub async fn restart(&mut self) {
        assert!(self.try_launch().await, "redis-server does not start again");
    }

    /// Sends one command over a connection of its own and returns the server's whole reply as text.
    ///
    /// This is how tests look straight into the store, past every client of ours.
    ///
    /// # Panics
    ///
    /// If the server does not answer.
    pub async fn command(&self, command: &[&str]) -> String {
        self.server.command(command).await
    }

    /// How often the server has run these commands, such as `["eval", "evalsha"]`.
    ///
    /// # Panics
    ///
    /// If the server does not answer.
    pub async fn calls(&self, commands: &[&str]) -> u64 {
        self.server.calls(commands).await
    }

    /// Returns a function that sends one request to a server at each call and waits for the reply. A late return shows a stall. A call
    /// returns within half a second in any case.
    pub fn heartbeat(&self) -> impl FnMut() + Send + use<> {
        self.server.heartbeat()
    }

    async fn try_launch(&mut self) -> bool {
        let tls = self.tls_port.zip(self.certificates.as_ref());
        let mut args = self.options.server_args(self.folder.path(), self.port, tls);
        args.extend(self.options.args.iter().cloned());
        self.server.spawn(args);
        self.server.comes_up().await
    }
}
