//! A process that shows whether a signal was sent only to `leasehold`, or also to the command.
//!
//! Terminals and shells signal a whole process group. Service managers signal each process of a unit, and `pkill -f` signals each process
//! whose command line matches. In these cases the command receives the signal directly, and `leasehold` must not send it again. The canary
//! belongs to the same group and unit, has the words of the command in its command line, and does not handle signals. If a signal kills the
//! canary, the command has received that signal, too.

use std::ffi::OsString;
use std::fs;
use std::io::{self, Read};
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream as StdStream;
use std::os::unix::process::ExitStatusExt;
use std::process::{self, Child, Stdio};

use rustix::process::Signal;
use tokio::io::AsyncReadExt;
use tokio::net::UnixStream;

use crate::exit::Failure;
use crate::job::helper::{self, Helper};
use crate::signals::signal_set;

#[derive(Debug)]
pub(crate) struct Canary {
    process: Child,
    /// Closed when either process dies.
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

    /// Waits until the canary dies, and returns the signal that killed it.
    ///
    /// # Cancel safety
    ///
    /// This method is cancel safe.
    pub(crate) async fn died(&mut self) -> Option<Signal> {
        while self.link.read(&mut [0]).await.is_ok_and(|read| read > 0) {}
        Signal::from_named_raw(self.process.wait().ok()?.signal()?)
    }

    /// Whether the canary has received `signal`. On a busy machine, some time can pass before the signal kills it.
    pub(crate) fn has_received(&self, signal: Signal) -> bool {
        let Ok(status) = fs::read_to_string(format!("/proc/{}/status", self.process.id())) else {
            return false;
        };
        let sets = ["ShdPnd:", "SigPnd:"].map(|set| signal_set(&status, set).unwrap_or(0));
        sets.iter().any(|set| set & (1 << (signal.as_raw() - 1)) != 0)
    }
}

/// Waits until a signal kills this process or `leasehold` exits.
pub(super) fn run(words: &[OsString]) -> Result<(), Failure> {
    Helper::Canary.name_this_process();
    let supervisor = words.first().and_then(|word| word.to_str()?.parse().ok());
    if supervisor.is_some_and(|supervisor| helper::die_with(supervisor) == Ok(true)) {
        let _ = io::stdin().lock().read(&mut [0]);
    }
    Ok(())
}
