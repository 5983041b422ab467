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

/// The first session of a member that has just started takes longer than a reply.
const SESSION_WAIT: Duration = Duration::from_secs(20);

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

    /// Waits until the member starts sessions. If it does not, its output is printed.
    pub(super) async fn serves(&mut self) -> bool {
        let give_up = Instant::now() + START_WAIT;
        loop {
            if self.instance.exited().is_some() || Instant::now() > give_up {
                eprintln!("{}", fs::read_to_string(self.log()).unwrap_or_default());
                return false;
            }
            // A member may reply to `srvr` many seconds before it starts the first session.
            if self.starts_session().await.is_ok() {
                return true;
            }
            sleep(PAUSE).await;
        }
    }

    /// Starts a session without any client crate, and closes it.
    async fn starts_session(&self) -> io::Result<()> {
        // The length, the protocol version, the last zxid, the timeout in milliseconds, the session
        // and the password of a `ConnectRequest`.
        let mut connect = [0; 48];
        connect[3] = 44;
        connect[16..20].copy_from_slice(&4_000_i32.to_be_bytes());
        connect[31] = 16;
        // The length, the number of the request, and the code of `closeSession`.
        let close = [0, 0, 0, 8, 0, 0, 0, 1, 0xff, 0xff, 0xff, 0xf5];

        let session = async {
            let mut stream = TcpStream::connect(("127.0.0.1", self.client_port)).await?;
            stream.write_all(&connect).await?;
            let length = stream.read_u32().await?;
            stream.read_exact(&mut vec![0; length as usize]).await?;
            stream.write_all(&close).await?;
            stream.read_u32().await
        };
        timeout(SESSION_WAIT, session).await?.map(drop)
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
