//! A command that runs under supervision.

use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io;
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::process::{Command, ExitStatus};

use rustix::io::Errno;
use rustix::process::{
    Pid, Signal, WaitOptions, getpgrp, getpid, getppid, kill_process,
    set_parent_process_death_signal, wait,
};
use rustix::termios::tcgetpgrp;
use tokio::signal::unix::{self, SignalKind};

use crate::cmd::exec;
use crate::exit::{self, Failure};
use crate::tree::Tree;

/// A command that was started by us, and everything that it starts.
#[derive(Debug)]
pub(crate) struct Supervised {
    pid: Pid,
    /// Once it has ended.
    status: Option<ExitStatus>,
    tree: Tree,
    /// The terminal of our session. With one, the command is in our process group, so that it is where we are: in the foreground,
    /// in the background or stopped, as the terminal and its shell wish.
    terminal: Option<File>,
    deaths: unix::Signal,
}

/// Whether a command may go on after its supervisor.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Orphan {
    /// The system kills it with its supervisor.
    Dies,
    GoesOn,
}

impl Supervised {
    /// Starts `command` with `env` added to its environment.
    pub(crate) fn start(
        command: &[OsString],
        env: &[(OsString, OsString)],
        orphan: Orphan,
    ) -> io::Result<Self> {
        let terminal = File::open("/dev/tty").ok();
        let (tree, deaths) = (Tree::plant()?, unix::signal(SignalKind::child())?);
        let mut start = match orphan {
            Orphan::Dies => {
                let mut start = Command::new("/proc/self/exe");
                start.arg(exec::WORD).arg(getpid().as_raw_nonzero().to_string()).args(command);
                start
            }
            Orphan::GoesOn => {
                let mut start = Command::new(&command[0]);
                start.args(&command[1..]);
                start
            }
        };
        start.envs(env.iter().map(|(name, value)| (name, value)));
        if terminal.is_none() {
            // A signal for our group then reaches the command once, through us, and not twice.
            start.process_group(0);
        }
        let pid = i32::try_from(start.spawn()?.id()).ok().and_then(Pid::from_raw);
        let pid = pid.expect("a child has a process id");
        Ok(Self { pid, status: None, tree, terminal, deaths })
    }

    /// Waits until it ends. Processes that it has started may go on.
    ///
    /// # Cancel safety
    ///
    /// Safe to drop: it may be waited for again.
    pub(crate) async fn ended(&mut self) -> io::Result<ExitStatus> {
        loop {
            self.reap()?;
            if let Some(status) = self.status {
                return Ok(status);
            }
            self.deaths.recv().await;
        }
    }

    /// Waits until it has ended, and all that it has started.
    ///
    /// # Cancel safety
    ///
    /// Safe to drop: it may be waited for again.
    pub(crate) async fn all_ended(&mut self) -> io::Result<()> {
        loop {
            self.reap()?;
            if !self.tree.is_alive()? {
                return Ok(());
            }
            self.deaths.recv().await;
        }
    }

    /// Kills it and all that it has started, until there is none of them any more.
    ///
    /// # Cancel safety
    ///
    /// Safe to drop; some may go on then.
    pub(crate) async fn kill(&mut self) -> io::Result<()> {
        loop {
            self.reap()?;
            if !self.tree.is_alive()? {
                return Ok(());
            }
            // A process that was started meanwhile is found in the next round, which the end of its parent brings about.
            self.tree.signal(Signal::KILL)?;
            self.deaths.recv().await;
        }
    }

    /// Passes on a signal that we got, unless the terminal has sent it to both of us.
    ///
    /// A signal that ends processes goes to all that the command has started, or a shell that dies of it
    /// would leave its own children running without the lock.
    pub(crate) fn pass_on(&self, signal: Signal) -> io::Result<()> {
        let is_key = signal == Signal::INT || signal == Signal::QUIT;
        if signal == Signal::USR1 || signal == Signal::USR2 {
            if self.status.is_none() {
                // It was not waited for, so the process id is its own; an error means that it has just ended.
                let _ = kill_process(self.pid, signal);
            }
            return Ok(());
        }
        if is_key && self.is_in_foreground() { Ok(()) } else { self.signal(signal) }
    }

    /// Sends a signal to the command and to all that it has started.
    pub(crate) fn signal(&self, signal: Signal) -> io::Result<()> {
        self.tree.signal(signal)
    }

    /// Whether the terminal's keys reach us, and with us the command.
    fn is_in_foreground(&self) -> bool {
        let foreground = self.terminal.as_ref().and_then(|terminal| tcgetpgrp(terminal).ok());
        foreground == Some(getpgrp())
    }

    /// Takes note of all children that have ended: the command, and those of its children that we have adopted.
    fn reap(&mut self) -> io::Result<()> {
        loop {
            match wait(WaitOptions::NOHANG) {
                Ok(Some((pid, status))) if pid == self.pid => {
                    self.status = Some(ExitStatus::from_raw(status.as_raw()));
                }
                Ok(Some(_)) | Err(Errno::INTR) => {}
                Ok(None) | Err(Errno::CHILD) => return Ok(()),
                Err(error) => return Err(error.into()),
            }
        }
    }
}

/// Becomes the command that a supervisor has asked for, and dies with that supervisor.
///
/// Returns only if that cannot be.
pub(crate) fn exec(supervisor: i32, command: &[OsString]) -> Failure {
    if let Err(error) = set_parent_process_death_signal(Some(Signal::KILL)) {
        return Failure::new(exit::NOT_EXECUTABLE, format!("cannot be supervised: {error}"));
    }
    // If it died before, no signal will come.
    if getppid().is_none_or(|parent| parent.as_raw_nonzero().get() != supervisor) {
        return Failure::new(exit::LOST, "the supervisor has gone");
    }
    let error = Command::new(&command[0]).args(&command[1..]).exec();
    not_started(&command[0], &error)
}

/// Why a command could not be started, as a shell says it.
pub(crate) fn not_started(command: &OsStr, error: &io::Error) -> Failure {
    let code = match error.kind() {
        io::ErrorKind::NotFound => exit::NOT_FOUND,
        _ => exit::NOT_EXECUTABLE,
    };
    Failure::new(code, format!("{}: {error}", crate::key::escape(command.as_encoded_bytes())))
}
