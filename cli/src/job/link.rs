//! The messages between `leasehold` and the guardian of its command: one JSON document per line, over a pair of sockets.

use std::io::{self, IoSlice, IoSliceMut, Write};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::UnixStream as StdStream;
use std::path::PathBuf;

use rustix::io::Errno;
use rustix::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer,
    SendAncillaryMessage, SendFlags, recvmsg, sendmsg,
};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use tokio::io::{AsyncBufReadExt, BufReader, Lines};
use tokio::net::UnixStream;

use crate::job::clock::Cutoff;

/// More than the length of the first message, which contains a path.
const LONGEST: usize = 8192;

/// What a guardian needs to know before it starts the command. Its own arguments are the command and its words.
#[derive(Debug, Deserialize, Serialize)]
pub(super) struct Begin {
    /// The process id of `leasehold`.
    pub(super) supervisor: i32,
    /// When the command must end, unless a later [`Order::Until`] says otherwise. Without it, the command may outlive its supervisor.
    pub(super) cutoff: Option<Cutoff>,
    /// The control group for the command.
    pub(super) cgroup: Option<PathBuf>,
}

/// What `leasehold` asks of the guardian.
#[derive(Clone, Copy, Debug, Deserialize, Serialize)]
pub(super) enum Order {
    /// The lease was renewed, or it was lost.
    Until(Cutoff),
    /// Send this signal.
    Signal(i32, Reach),
    /// Exit, and leave the remaining processes alone.
    Leave,
}

/// The processes that a signal is for.
#[derive(Clone, Copy, Debug, Deserialize, Eq, PartialEq, Serialize)]
pub(crate) enum Reach {
    /// The command alone.
    Command,
    /// The command and all processes that it has started.
    All,
    /// Those of them that certainly have not received the signal, although it was sent to more processes than this one at this time of the
    /// boot clock: they were running then, and still are, although the signal ends them.
    Missed { since: u64 },
}

/// What the guardian has done or seen.
#[derive(Debug, Deserialize, Serialize)]
pub(crate) enum Report {
    /// The command has been started.
    Started,
    /// The command could not be started.
    NotStarted(String),
    /// The command has exited with this wait status. Processes that it has started may still be running.
    Exited(i32),
    /// The cutoff has come: the guardian ends the command.
    Ending,
    /// The guardian has seen the command and every process that it has started exit.
    Empty,
    /// A signal did not reach these processes.
    Unreached(Vec<Survivor>),
    /// These processes are still running after SIGKILL.
    Survivors(Vec<Survivor>),
}

/// A process that a signal did not reach, or did not end.
#[derive(Clone, Debug, Deserialize, Eq, PartialEq, Serialize)]
pub(crate) struct Survivor {
    pub(crate) pid: i32,
    pub(crate) name: String,
    /// Why the signal could not be sent. `None` if it was sent.
    pub(crate) refused: Option<String>,
}

impl Survivor {
    pub(super) fn new(pid: i32, name: &str, refused: Option<Errno>) -> Self {
        let refused = refused.map(|error| match error {
            Errno::PERM => "permission denied".to_owned(),
            error => error.to_string(),
        });
        Self { pid, name: name.to_owned(), refused }
    }
}

/// Sends the first message, and with it the descriptor that becomes the command's stdin.
pub(super) fn send_begin(link: &StdStream, begin: &Begin, stdin: impl AsFd) -> io::Result<()> {
    let line = line_of(begin);
    let descriptors = [stdin.as_fd()];
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut control = SendAncillaryBuffer::new(&mut space);
    control.push(SendAncillaryMessage::ScmRights(&descriptors));
    sendmsg(link, &[IoSlice::new(line.as_bytes())], &mut control, SendFlags::empty())?;
    Ok(())
}

/// Waits for the first message, and for the descriptor that comes with it.
pub(super) fn receive_begin(link: &StdStream) -> io::Result<(Begin, OwnedFd)> {
    let mut line = [0; LONGEST];
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut control = RecvAncillaryBuffer::new(&mut space);
    let flags = RecvFlags::CMSG_CLOEXEC;
    let received = recvmsg(link, &mut [IoSliceMut::new(&mut line)], &mut control, flags)?;
    let stdin = control.drain().find_map(|message| match message {
        RecvAncillaryMessage::ScmRights(mut descriptors) => descriptors.next(),
        _ => None,
    });
    let begin = serde_json::from_slice(&line[..received.bytes])?;
    Ok((begin, stdin.ok_or(io::ErrorKind::UnexpectedEof)?))
}

/// One end of the link.
#[derive(Debug)]
pub(super) struct Link {
    lines: Lines<BufReader<UnixStream>>,
    /// Tokio would not write before it has seen the socket ready.
    writer: StdStream,
}

impl Link {
    pub(super) fn new(stream: StdStream) -> io::Result<Self> {
        stream.set_nonblocking(true)?;
        let writer = stream.try_clone()?;
        Ok(Self { lines: BufReader::new(UnixStream::from_std(stream)?).lines(), writer })
    }

    /// Waits for the next message. `None` if the other process has exited.
    ///
    /// # Cancel safety
    ///
    /// This method is cancel safe.
    pub(super) async fn next<M: DeserializeOwned>(&mut self) -> Option<M> {
        let line = self.lines.next_line().await.ok()??;
        serde_json::from_str(&line).ok()
    }

    /// Sends a message if the other process is there, without waiting.
    ///
    /// The socket's buffer has room for thousands of messages, so it is full only if the other process has been paused for long. A later
    /// message replaces those that are dropped then.
    pub(super) fn send(&self, message: &impl Serialize) {
        let _ = (&self.writer).write(line_of(message).as_bytes());
    }
}

fn line_of(message: &impl Serialize) -> String {
    let line = serde_json::to_string(message).expect("the messages have no maps and no bytes");
    line + "\n"
}
