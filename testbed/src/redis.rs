//! One Redis server.

use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

use tempfile::TempDir;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpStream, UnixStream};
use tokio::time::{Instant, sleep, timeout};

use crate::certificates::{Certificates, TlsClients};
use crate::port::free_port;
use crate::process::Process;

/// A Redis server takes 15 ms to start. On a machine that is busy with a build, some seconds.
const START_WAIT: Duration = Duration::from_secs(30);

/// How a server is started.
#[derive(Clone, Debug, Default)]
pub struct RedisOptions {
    args: Vec<String>,
    acl: Vec<String>,
    tls: Option<TlsClients>,
    append_only: bool,
}

impl RedisOptions {
    /// A plain server that saves nothing.
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds arguments of `redis-server`, such as `["--maxmemory", "1mb"]`.
    #[must_use]
    pub fn args<A: Into<String>>(mut self, args: impl IntoIterator<Item = A>) -> Self {
        self.args.extend(args.into_iter().map(Into::into));
        self
    }

    /// Writes every command to disk before it is answered, so that a restart loses nothing.
    #[must_use]
    pub fn append_only(mut self) -> Self {
        self.append_only = true;
        self
    }

    /// Adds a line of the ACL file, such as `user locker on >password ~lock:* +@all`.
    #[must_use]
    pub fn acl(mut self, line: impl Into<String>) -> Self {
        self.acl.push(line.into());
        self
    }

    /// Also listens for TLS, with certificates made on the spot.
    #[must_use]
    pub fn tls(mut self) -> Self {
        self.tls = Some(TlsClients::NeedNoCertificate);
        self
    }

    /// Also listens for TLS, and asks clients for a certificate.
    #[must_use]
    pub fn tls_with_client_certificates(mut self) -> Self {
        self.tls = Some(TlsClients::NeedCertificate);
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
            let mut redis = Redis::new(self.clone()).expect("a temporary folder can be made");
            if redis.try_launch().await {
                return redis;
            }
            // Somebody else took one of the ports.
        }
        panic!("redis-server does not start, see its output above");
    }
}

/// A running Redis server on loopback. It dies when dropped.
#[derive(Debug)]
pub struct Redis {
    options: RedisOptions,
    folder: TempDir,
    port: u16,
    tls_port: Option<u16>,
    certificates: Option<Certificates>,
    process: Option<Process>,
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

    fn new(options: RedisOptions) -> io::Result<Self> {
        let folder = tempfile::Builder::new().prefix("leasehold-redis-").tempdir()?;
        let certificates = options.tls.map(|_| Certificates::create(folder.path(), &["localhost"]));
        if !options.acl.is_empty() {
            std::fs::write(folder.path().join("users.acl"), options.acl.join("\n"))?;
        }
        let tls_port = options.tls.map(|_| free_port());
        Ok(Self { options, folder, port: free_port(), tls_port, certificates, process: None })
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

    /// Its folder, with what it saves.
    pub fn folder(&self) -> &Path {
        self.folder.path()
    }

    /// Its Unix socket.
    pub fn socket(&self) -> PathBuf {
        self.folder.path().join("redis.sock")
    }

    /// Its process id.
    pub fn id(&self) -> u32 {
        self.process().id()
    }

    /// Stops it in its tracks: connections stay open, nothing is answered.
    pub fn pause(&self) {
        self.process().pause();
    }

    /// Lets it go on.
    pub fn resume(&self) {
        self.process().resume();
    }

    /// Kills it at once.
    pub fn kill(&mut self) {
        self.process = None;
    }

    /// Shuts it down in order.
    pub fn terminate(&mut self) {
        if let Some(mut process) = self.process.take() {
            process.terminate();
        }
    }

    /// Starts it again, on the same port and with what it saved.
    ///
    /// # Panics
    ///
    /// If it does not start.
    pub async fn restart(&mut self) {
        self.kill();
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
        let reply = timeout(START_WAIT, self.try_command(command)).await;
        reply.expect("the server answers").expect("the server answers")
    }

    async fn try_command(&self, command: &[&str]) -> io::Result<String> {
        let mut stream = TcpStream::connect(self.address()).await?;
        let mut request = format!("*{}\r\n", command.len());
        for part in command {
            request += &format!("${}\r\n{part}\r\n", part.len());
        }
        // The server closes the connection after its reply to QUIT, so the end of the reply is the end of the stream.
        request += "*1\r\n$4\r\nQUIT\r\n";
        stream.write_all(request.as_bytes()).await?;
        let mut reply = Vec::new();
        stream.read_to_end(&mut reply).await?;
        let reply = String::from_utf8_lossy(&reply);
        Ok(reply.strip_suffix("+OK\r\n").unwrap_or(&reply).trim_end().to_owned())
    }

    async fn try_launch(&mut self) -> bool {
        let (log, socket) = (self.folder.path().join("log"), self.socket());
        let program = std::env::var("LEASEHOLD_REDIS_SERVER");
        let program = program.as_deref().unwrap_or("redis-server");
        let process = Process::start(program, self.args(), &log)
            .unwrap_or_else(|error| panic!("{program} cannot be started: {error}"));
        let process = self.process.insert(process);
        let give_up = Instant::now() + START_WAIT;
        loop {
            if process.exited().is_some() || Instant::now() > give_up {
                eprintln!("{}", std::fs::read_to_string(&log).unwrap_or_default());
                return false;
            }
            if is_up(&socket).await {
                return true;
            }
            sleep(Duration::from_millis(5)).await;
        }
    }

    fn args(&self) -> Vec<String> {
        let folder = self.folder.path();
        let path = |name: &str| display(&folder.join(name));
        let append_only = if self.options.append_only { "yes" } else { "no" };
        let mut args = vec![
            ("--bind", "127.0.0.1".to_owned()),
            ("--port", self.port.to_string()),
            ("--unixsocket", path("redis.sock")),
            ("--dir", display(folder)),
            ("--save", String::new()),
            ("--appendonly", append_only.to_owned()),
            ("--appendfsync", "always".to_owned()),
        ];
        if !self.options.acl.is_empty() {
            args.push(("--aclfile", path("users.acl")));
        }
        if let (Some(port), Some(certificates), Some(clients)) =
            (self.tls_port, &self.certificates, self.options.tls)
        {
            let ask = match clients {
                TlsClients::NeedCertificate => "yes",
                TlsClients::NeedNoCertificate => "no",
            };
            args.extend([
                ("--tls-port", port.to_string()),
                ("--tls-cert-file", display(&certificates.server_certificate())),
                ("--tls-key-file", display(&certificates.server_key())),
                ("--tls-ca-cert-file", display(&certificates.authority())),
                ("--tls-auth-clients", ask.to_owned()),
            ]);
        }
        let args = args.into_iter().flat_map(|(name, value)| [name.to_owned(), value]);
        args.chain(self.options.args.iter().cloned()).collect()
    }

    fn process(&self) -> &Process {
        self.process.as_ref().expect("the server was not killed")
    }
}

fn display(path: &Path) -> String {
    path.to_str().expect("temporary folders have plain names").to_owned()
}

/// Whether a server answers there. One that wants a password first is up too; one that is loading is not.
///
/// It is asked on its Unix socket, which it opens after its ports: on a port that another has taken meanwhile, that
/// other would answer.
async fn is_up(socket: &Path) -> bool {
    let ping = async {
        let mut stream = UnixStream::connect(socket).await?;
        stream.write_all(b"PING\r\n").await?;
        let mut reply = [0; 7];
        stream.read_exact(&mut reply).await?;
        Ok::<_, io::Error>(matches!(&reply, b"+PONG\r\n" | b"-NOAUTH"))
    };
    matches!(timeout(Duration::from_secs(1), ping).await, Ok(Ok(true)))
}
