//! One process of `redis-server`, in any role.

use std::env;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::net::UnixStream;
use tokio::time::{Instant, sleep, timeout};

use crate::clock::{Pace, ServerClock};
use crate::heartbeat::{TIMEOUT, heartbeat};
use crate::instance::Instance;
use crate::process::Process;

/// A server takes 15 ms to start. On a machine that is busy with a build, some seconds.
pub(super) const START_WAIT: Duration = Duration::from_secs(30);

/// A server that runs answers within milliseconds.
const REPLY_WAIT: Duration = Duration::from_secs(1);

/// The user and the password that commands are sent with.
pub(super) type Login = [String; 2];

/// The version of the program, as its major and its minor number.
///
/// # Panics
///
/// If the program is missing, or does not tell.
pub(super) fn version() -> (u32, u32) {
    let output = Command::new(program()).arg("--version").output();
    let output = output.expect("redis-server can be started").stdout;
    let output = String::from_utf8_lossy(&output);
    let version = output.split_whitespace().find_map(|word| word.strip_prefix("v="));
    let mut numbers = version.into_iter().flat_map(|version| version.split('.'));
    let mut number = || numbers.next()?.parse().ok();
    number().zip(number()).expect("redis-server tells its version")
}

fn program() -> String {
    env::var("LEASEHOLD_REDIS_SERVER").unwrap_or_else(|_| "redis-server".to_owned())
}

/// A process of `redis-server` with a folder of its own, in which its Unix socket lies.
#[derive(Debug)]
pub(super) struct Server {
    folder: PathBuf,
    login: Option<Login>,
    clock: Option<ServerClock>,
    instance: Instance,
}

impl Server {
    pub(super) fn new(folder: PathBuf, login: Option<Login>) -> Self {
        fs::create_dir_all(&folder).expect("temporary folders can be written");
        Self { folder, login, clock: None, instance: Instance::default() }
    }

    /// Gives it a clock of its own.
    pub(super) fn with_clock(mut self, pace: Option<Pace>) -> Self {
        self.clock = pace.map(|pace| ServerClock::new(&self.folder, pace));
        self
    }

    pub(super) fn clock(&self) -> Option<&ServerClock> {
        self.clock.as_ref()
    }

    pub(super) fn folder(&self) -> &Path {
        &self.folder
    }

    pub(super) fn socket(&self) -> PathBuf {
        self.folder.join("redis.sock")
    }

    pub(super) fn heartbeat(&self) -> impl FnMut() + Send + use<> {
        let socket = self.socket();
        let connect = move || {
            let connection = std::os::unix::net::UnixStream::connect(&socket)?;
            connection.set_read_timeout(Some(TIMEOUT))?;
            Ok(connection)
        };
        heartbeat(connect, b"PING\r\n")
    }

    /// Starts the process, or starts it again.
    ///
    /// # Panics
    ///
    /// If the program is missing.
    pub(super) fn spawn(&mut self, args: Vec<String>) {
        self.kill();
        let program = program();
        let mut command = Command::new(&program);
        command.args(args);
        if let Some(clock) = &self.clock {
            clock.rule(&mut command);
            // The allocator's thread waits until a time of the wall clock. Where that stands still, the wait ends at once, again and again.
            command.args(["--jemalloc-bg-thread", "no"]);
        }
        let process = Process::spawn(&mut command, &self.log())
            .unwrap_or_else(|error| panic!("{program} cannot be started: {error}"));
        self.instance.put(process);
    }

    /// Waits until it answers. If it does not, its output is shown.
    pub(super) async fn comes_up(&mut self) -> bool {
        let give_up = Instant::now() + START_WAIT;
        loop {
            if self.instance.exited().is_some() || Instant::now() > give_up {
                eprintln!("{}", fs::read_to_string(self.log()).unwrap_or_default());
                return false;
            }
            if is_up(&self.socket()).await {
                return true;
            }
            sleep(Duration::from_millis(5)).await;
        }
    }

    /// Whether it is there and not paused.
    pub(super) fn runs(&self) -> bool {
        self.instance.runs()
    }

    pub(super) fn id(&self) -> u32 {
        self.instance.id()
    }

    pub(super) fn pause(&self) {
        self.instance.pause();
    }

    pub(super) fn resume(&self) {
        self.instance.resume();
    }

    pub(super) fn kill(&mut self) {
        self.instance.kill();
    }

    pub(super) fn terminate(&mut self) {
        self.instance.terminate();
    }

    /// Sends one command over a connection of its own and returns the whole reply as text.
    ///
    /// # Panics
    ///
    /// If the server does not answer.
    pub(super) async fn command(&self, command: &[&str]) -> String {
        let reply = timeout(START_WAIT, self.exchange(command)).await;
        reply.expect("the server answers").expect("the server answers")
    }

    /// How often it has run these commands.
    ///
    /// # Panics
    ///
    /// If the server does not answer.
    pub(super) async fn calls(&self, commands: &[&str]) -> u64 {
        let stats = self.insist(&["INFO", "commandstats"]).await;
        commands.iter().map(|command| calls_in(&stats, command)).sum()
    }

    /// Sends one command, and again if the server closes the connection instead of answering.
    ///
    /// It does that to all when it is told to copy another.
    ///
    /// # Panics
    ///
    /// If the server does not answer.
    pub(super) async fn insist(&self, command: &[&str]) -> String {
        let answered = async {
            loop {
                match self.exchange(command).await {
                    Ok(reply) if reply.is_empty() => {}
                    Err(error) if is_closed(&error) => {}
                    reply => return reply,
                }
            }
        };
        let reply = timeout(START_WAIT, answered).await;
        reply.expect("the server answers").expect("the server answers")
    }

    /// Sends one command to a server that may be gone or stand still.
    pub(super) async fn try_command(&self, command: &[&str]) -> io::Result<String> {
        timeout(REPLY_WAIT, self.exchange(command)).await?
    }

    async fn exchange(&self, command: &[&str]) -> io::Result<String> {
        let mut stream = BufReader::new(UnixStream::connect(self.socket()).await?);
        if let Some([user, password]) = &self.login {
            stream.write_all(encode(&["AUTH", user, password]).as_bytes()).await?;
            let reply = read_reply(&mut stream).await?;
            if reply.is_empty() {
                return Err(io::ErrorKind::ConnectionReset.into());
            }
            assert_eq!(reply, "+OK", "the login is right");
        }
        stream.write_all(encode(command).as_bytes()).await?;
        read_reply(&mut stream).await
    }

    fn log(&self) -> PathBuf {
        self.folder.join("log")
    }
}

/// How often a command was run, by the reply to `INFO commandstats`.
fn calls_in(stats: &str, command: &str) -> u64 {
    let name = format!("cmdstat_{command}:calls=");
    let calls = stats.lines().find_map(|line| line.strip_prefix(&name)?.split(',').next());
    calls.map_or(0, |calls| calls.parse().expect("it is a number"))
}

fn is_closed(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::ConnectionReset | io::ErrorKind::BrokenPipe)
}

fn encode(command: &[&str]) -> String {
    let parts = command.iter().map(|part| format!("${}\r\n{part}\r\n", part.len()));
    format!("*{}\r\n{}", command.len(), parts.collect::<String>())
}

/// Reads one reply, or the part of it that comes before the server closes the connection.
async fn read_reply(stream: &mut BufReader<UnixStream>) -> io::Result<String> {
    let mut reply = Vec::new();
    let mut missing = 1;
    while missing > 0 {
        let start = reply.len();
        if stream.read_until(b'\n', &mut reply).await? == 0 {
            break;
        }
        missing -= 1;
        let line = String::from_utf8_lossy(&reply[start..]).trim_end().to_owned();
        // A missing value has the length -1.
        if let Some(len) = line.strip_prefix('$').and_then(|len| len.parse::<u64>().ok()) {
            (&mut *stream).take(len + 2).read_to_end(&mut reply).await?;
        }
        if let Some(len) = line.strip_prefix('*').and_then(|len| len.parse::<u64>().ok()) {
            missing += len;
        }
    }
    Ok(String::from_utf8_lossy(&reply).trim_end().to_owned())
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
    matches!(timeout(REPLY_WAIT, ping).await, Ok(Ok(true)))
}
