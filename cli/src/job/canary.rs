//! A process that shows whether a signal was sent to `leasehold` alone, or to the command as well.
//!
//! A terminal and a shell signal a whole process group, a service manager signals each process of a unit, and `pkill -f` signals each process
//! with some words in its command line. The command then receives the signal without our help, and must not receive it twice. The canary is in
//! the same group, in the same unit and has the same words, and it has no signal handlers. So if it dies, the signal was sent to the command.

use std::ffi::OsString;
use std::io::{self, Read};
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream as StdStream;
use std::process::{self, Child, Stdio};

use tokio::io::AsyncReadExt;
use tokio::net::UnixStream;

use crate::exit::Failure;
use crate::job::helper::{self, Helper};

#[derive(Debug)]
pub(crate) struct Canary {
    process: Child,
    /// Ends when the canary dies, and ends the canary when we die.
    link: UnixStream,
}

impl Canary {
    /// Starts a canary for `command`.
    pub(crate) fn start(command: &[OsString]) -> io::Result<Self> {
        let (ours, theirs) = StdStream::pair()?;
        ours.set_nonblocking(true)?;
        let mut start = Helper::Canary.start();
        start.arg(process::id().to_string()).args(command);
        start.stdin(OwnedFd::from(theirs)).stdout(Stdio::null()).stderr(Stdio::null());
        Ok(Self { process: start.spawn()?, link: UnixStream::from_std(ours)? })
    }

    /// Waits until it dies.
    ///
    /// # Cancel safety
    ///
    /// This method is cancel safe.
    pub(crate) async fn died(&mut self) {
        while self.link.read(&mut [0]).await.is_ok_and(|read| read > 0) {}
        // Its exit status says nothing more.
        let _ = self.process.wait();
    }
}

/// Waits for a signal, or for the end of `leasehold`.
pub(super) fn run(words: &[OsString]) -> Result<(), Failure> {
    Helper::Canary.name_this_process();
    let supervisor = words.first().and_then(|word| word.to_str()?.parse().ok());
    if supervisor.is_some_and(|supervisor| helper::die_with(supervisor) == Ok(true)) {
        let _ = io::stdin().lock().read(&mut [0]);
    }
    Ok(())
}
