//! The figures that a Redis server gives of its work.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use leasehold_testbed::Redis;
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader};
use tokio::net::TcpStream;
use tokio::task::JoinHandle;

/// The commands by which this bench looks at the server.
const OURS: [&str; 3] = ["config", "info", "monitor"];

/// A server, and which of the commands that it counts were sent by clients.
///
/// A server counts commands of scripts like commands of clients. So the bench watches once with `MONITOR`, while a
/// contestant warms up, to tell them apart: that slows the server down.
#[derive(Debug)]
pub(crate) struct Store {
    redis: Arc<Redis>,
    commands: Commands,
}

/// Commands by caller.
#[derive(Debug, Default)]
struct Commands {
    by_clients: BTreeSet<String>,
    by_scripts: BTreeSet<String>,
}

/// How many commands a server has run.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Count {
    /// The commands of clients; `None` if the server does not tell, since scripts call the same ones.
    pub(crate) sent: Option<u64>,
    /// With those that scripts called.
    pub(crate) all: u64,
}

impl Count {
    pub(crate) fn since(self, earlier: Self) -> Self {
        let sent = self.sent.zip(earlier.sent);
        Self { sent: sent.map(|(now, then)| now - then), all: self.all - earlier.all }
    }
}

impl Store {
    pub(crate) fn new(redis: &Arc<Redis>) -> Self {
        Self { redis: Arc::clone(redis), commands: Commands::default() }
    }

    pub(crate) fn url(&self) -> String {
        self.redis.url()
    }

    /// Does `work` and watches which commands are sent.
    pub(crate) async fn watch<T>(&mut self, work: impl Future<Output = T>) -> T {
        let spy = Spy::start(&self.redis.address()).await;
        let done = work.await;
        self.commands = spy.stop().await;
        done
    }

    /// How many commands were run so far.
    pub(crate) async fn count(&self) -> Count {
        let stats = self.redis.command(&["INFO", "commandstats"]).await;
        let mut count = Count { sent: Some(0), all: 0 };
        for line in stats.lines().filter_map(|line| line.trim().strip_prefix("cmdstat_")) {
            let (command, numbers) = line.split_once(':').expect("it is a name with numbers");
            let name = command.split('|').next().unwrap_or(command);
            if OURS.contains(&name) {
                continue;
            }
            let calls = numbers.strip_prefix("calls=").and_then(|calls| calls.split(',').next());
            let calls: u64 = calls.and_then(|calls| calls.parse().ok()).expect("it is a number");
            count.all += calls;
            let by_scripts = self.commands.by_scripts.contains(name);
            let by_clients = self.commands.by_clients.contains(name);
            count.sent = match count.sent {
                _ if by_scripts && by_clients => None,
                sent if by_scripts => sent,
                sent => sent.map(|sent| sent + calls),
            };
        }
        count
    }

    /// The time that the server kept a core busy.
    pub(crate) async fn cpu_time(&self) -> Duration {
        let info = self.redis.command(&["INFO", "cpu"]).await;
        let seconds = |name: &str| -> f64 {
            let figure = info.lines().find_map(|line| line.trim().strip_prefix(name));
            figure.and_then(|figure| figure.parse().ok()).expect("servers tell their time")
        };
        Duration::from_secs_f64(seconds("used_cpu_sys:") + seconds("used_cpu_user:"))
    }

    /// Forgets all locks, so that the next contestant finds the server as the first one did.
    pub(crate) async fn clear(&self) {
        self.redis.command(&["FLUSHALL"]).await;
    }
}

/// A connection that is told of all commands.
struct Spy {
    listening: JoinHandle<Commands>,
    end: tokio::sync::oneshot::Sender<()>,
}

impl Spy {
    async fn start(address: &str) -> Self {
        let stream = TcpStream::connect(address).await.expect("the server is up");
        let mut stream = BufReader::new(stream);
        stream.write_all(b"MONITOR\r\n").await.expect("the server is up");
        let mut line = Vec::new();
        stream.read_until(b'\n', &mut line).await.expect("the server is up");
        let (end, mut ended) = tokio::sync::oneshot::channel();
        let listening = tokio::spawn(async move {
            let mut commands = Commands::default();
            loop {
                line.clear();
                tokio::select! {
                    read = stream.read_until(b'\n', &mut line) => {
                        if read.is_err() || line.is_empty() {
                            return commands;
                        }
                        commands.hear(&String::from_utf8_lossy(&line));
                    }
                    _ = &mut ended => return commands,
                }
            }
        });
        Self { listening, end }
    }

    async fn stop(self) -> Commands {
        // An error means that the server has closed the connection.
        let _ = self.end.send(());
        self.listening.await.expect("listening does not panic")
    }
}

impl Commands {
    /// Reads a line such as `+1732212345.123456 [0 127.0.0.1:60866] "EVALSHA" "8a3f…"`, or with `[0 lua]`.
    fn hear(&mut self, line: &str) {
        let Some((head, command)) = line.split_once("] \"") else { return };
        let Some((command, _)) = command.split_once('"') else { return };
        let command = command.to_ascii_lowercase();
        if head.ends_with(" lua") {
            self.by_scripts.insert(command);
        } else {
            self.by_clients.insert(command);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn calls_of_scripts_and_of_clients_are_told_apart() {
        let mut commands = Commands::default();

        commands.hear("+1732212345.123456 [0 127.0.0.1:60866] \"EVALSHA\" \"8a3f\" \"1\"\r\n");
        commands.hear("+1732212345.123457 [0 lua] \"get\" \"a] \\\"b\"\r\n");
        commands.hear("+OK\r\n");

        assert_eq!(commands.by_clients, BTreeSet::from(["evalsha".to_owned()]));
        assert_eq!(commands.by_scripts, BTreeSet::from(["get".to_owned()]));
    }
}
