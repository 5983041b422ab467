//! One member of an ensemble.

use std::fs;
use std::io;
use std::path::PathBuf;
use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::time::{Instant, sleep, timeout};

use crate::disk::SmallDisk;
use crate::instance::Instance;
use crate::port::free_port;

/// A member takes half a second to start and to elect a leader. On a busy machine, some.
const START_WAIT: Duration = Duration::from_secs(60);

/// A member that runs answers within milliseconds.
const REPLY_WAIT: Duration = Duration::from_secs(1);

/// Between two looks at a member that starts. A look costs it a millisecond.
const PAUSE: Duration = Duration::from_millis(20);

#[derive(Debug)]
pub(super) struct Member {
    pub(super) client_port: u16,
    pub(super) secure_port: u16,
    pub(super) peer_port: u16,
    pub(super) election_port: u16,
    pub(super) folder: PathBuf,
    pub(super) disk: Option<SmallDisk>,
    pub(super) instance: Instance,
}

impl Member {
    pub(super) fn new(folder: PathBuf) -> Self {
        Self {
            client_port: free_port(),
            secure_port: free_port(),
            peer_port: free_port(),
            election_port: free_port(),
            folder,
            disk: None,
            instance: Instance::default(),
        }
    }

    pub(super) fn log(&self) -> PathBuf {
        self.folder.join("output")
    }

    /// Where its transactions lie, apart from its snapshots.
    pub(super) fn transactions(&self) -> PathBuf {
        self.folder.join("transactions")
    }

    /// Waits until it serves clients. If it does not, its output is shown.
    pub(super) async fn serves(&mut self) -> bool {
        let give_up = Instant::now() + START_WAIT;
        loop {
            if self.instance.exited().is_some() || Instant::now() > give_up {
                eprintln!("{}", fs::read_to_string(self.log()).unwrap_or_default());
                return false;
            }
            match self.mode().await {
                Ok(Some(_)) => return true,
                _ => sleep(PAUSE).await,
            }
        }
    }

    pub(super) async fn leads(&self) -> bool {
        let mode = self.mode().await.ok().flatten();
        mode.is_some_and(|mode| mode == "leader" || mode == "standalone")
    }

    /// `leader`, `follower` or `standalone`, while it serves clients.
    async fn mode(&self) -> io::Result<Option<String>> {
        let state = self.ask("srvr").await?;
        let mode = state.lines().find_map(|line| line.strip_prefix("Mode: "));
        Ok(mode.map(str::to_owned))
    }

    /// Sends a command of four letters. The end of the stream ends the reply.
    pub(super) async fn ask(&self, command: &str) -> io::Result<String> {
        let reply = async {
            let mut stream = TcpStream::connect(("127.0.0.1", self.client_port)).await?;
            stream.write_all(command.as_bytes()).await?;
            let mut reply = String::new();
            stream.read_to_string(&mut reply).await?;
            Ok(reply)
        };
        timeout(REPLY_WAIT, reply).await?
    }
}
