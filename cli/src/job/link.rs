//! The messages between `leasehold` and the guardian, as lines of JSON over a pair of sockets.

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

/// The size of the buffer for the first message, which contains at most one path.
const LONGEST: usize = 8192;

/// The first message to a guardian. The command itself is in the guardian's arguments.
#[derive(Debug, Deserialize, Serialize)]
pub(super) struct Begin {
    /// The process id of `leasehold`.
    pub(super) supervisor: i32,
    /// When the command must end, until an [`Order::Until`] changes it. If `None`, the command may outlive `leasehold`.
    pub(super) cutoff: Option<Cutoff>,
    /// The control group for the command.
    pub(super) cgroup: Option<PathBuf>,
}

/// A request to the guardian.
#[derive(Clone, Copy, Debug, Deserialize, Serialize)]
pub(super) enum Order {
    /// Sets a new cutoff, after a renewal or a loss of the lease.
    Until(Cutoff),
    /// Sends a signal.
    Signal(i32, Reach),
    /// Exits without ending the remaining processes.
    Leave,
}

/// The processes that should receive a signal.
#[derive(Clone, Copy, Debug, Deserialize, Eq, PartialEq, Serialize)]
pub(crate) enum Reach {
    /// Only the command.
    Command,
    /// The command and all processes that it has started.
    All,
    /// The processes of the command that did not receive the signal from its sender, who sent it to several processes.
    ///
    /// A process certainly did not receive the signal if it was already running when the signal was sent, does not handle the signal, and is
    /// still running. This process noticed the signal at `since`, by the boot clock.
    Missed { since: u64 },
}

/// A report of the guardian.
#[derive(Debug, Deserialize, Serialize)]
pub(crate) enum Report {
    /// The command has been started.
    Started,
    /// The command could not be started.
    NotStarted(String),
    /// The command has exited with this wait status. Processes that it has started may still be running.
    Exited(i32),
    /// The cutoff has passed, and the guardian is ending the command.
    Ending,
    /// The guardian has seen the command and every process that it has started exit.
    Empty,
    /// A signal could not be sent to these processes.
    Unreached(Vec<Survivor>),
    /// These processes are still running after SIGKILL.
    Survivors(Vec<Survivor>),
}

/// A process that could not be signalled, or that is still running after SIGKILL.
#[derive(Clone, Debug, Deserialize, Eq, PartialEq, Serialize)]
pub(crate) struct Survivor {
    pub(crate) pid: i32,
    pub(crate) name: String,
    /// Why the signal could not be sent, if it could not.
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

/// Sends the first message together with the file descriptor that becomes the command's stdin.
pub(super) fn send_begin(link: &StdStream, begin: &Begin, stdin: impl AsFd) -> io::Result<()> {
    let line = line_of(begin);
    let descriptors = [stdin.as_fd()];
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut control = SendAncillaryBuffer::new(&mut space);
    control.push(SendAncillaryMessage::ScmRights(&descriptors));
    sendmsg(link, &[IoSlice::new(line.as_bytes())], &mut control, SendFlags::empty())?;
    Ok(())
}

/// Waits for the first message and its file descriptor.
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
    /// Writes do not go through Tokio, which refuses them until the event loop has reported that the socket is writable.
    writer: StdStream,
}

impl Link {
    pub(super) fn new(stream: StdStream) -> io::Result<Self> {
        stream.set_nonblocking(true)?;
        let writer = stream.try_clone()?;
        Ok(Self { lines: BufReader::new(UnixStream::from_std(stream)?).lines(), writer })
    }

    /// Waits for the next message. Returns `None` when the other process has exited.
    ///
    /// # Cancel safety
    ///
    /// This method is cancel safe.
    pub(super) async fn next<M: DeserializeOwned>(&mut self) -> Option<M> {
        let line = self.lines.next_line().await.ok()??;
        serde_json::from_str(&line).ok()
    }

    /// Sends a message without waiting. Does nothing if the other process has exited.
    ///
    /// The buffer of the socket is full only if the other process has been paused for a long time. In that case the message is dropped.
    pub(super) fn send(&self, message: &impl Serialize) {
        let _ = (&self.writer).write(line_of(message).as_bytes());
    }
}

fn line_of(message: &impl Serialize) -> String {
    let line = serde_json::to_string(message).expect("a message can always be written as JSON");
    line + "\n"
}
