//! A command that runs under supervision.

use std::ffi::OsString;
use std::io;
use std::os::unix::process::CommandExt;
use std::process::{Command as StdCommand, ExitStatus};

use rustix::process::{
    Pid, Signal, getpgrp, getpid, getppid, kill_process, kill_process_group,
    set_parent_process_death_signal,
};
use rustix::stdio::stdin;
use rustix::termios::{isatty, tcgetpgrp};
use tokio::process::{Child, Command};

use crate::args::{Exec, OnLost};
use crate::exit::{self, Failure};

/// A command that was started by us, and everything that it starts.
#[derive(Debug)]
pub(crate) struct Supervised {
    child: Child,
    pid: Pid,
    group: Group,
}

/// Whom a signal for the command reaches.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum Group {
    /// It is in our process group, the foreground of a terminal, and gets what the terminal sends by itself.
    Ours,
    /// It has a group of its own.
    Own,
}

impl Supervised {
    /// Starts `command` with `env` added to its environment.
    ///
    /// Unless it may outlive its lease, it dies with us, also if we are killed.
    pub(crate) fn start(
        command: &[OsString],
        env: &[(&str, String)],
        on_lost: OnLost,
    ) -> io::Result<Self> {
        let group = if in_foreground() { Group::Ours } else { Group::Own };
        let mut start = match on_lost {
            OnLost::Term => {
                let mut start = Command::new("/proc/self/exe");
                start.arg("exec").arg(getpid().as_raw_nonzero().to_string()).arg("--");
                start.args(command);
                start
            }
            OnLost::Ignore => {
                let mut start = Command::new(&command[0]);
                start.args(&command[1..]);
                start
            }
        };
        start.envs(env.iter().map(|(name, value)| (name, value)));
        if group == Group::Own {
            start.process_group(0);
        }
        let child = start.spawn()?;
        let pid = child.id().and_then(|id| Pid::from_raw(i32::try_from(id).ok()?));
        let pid = pid.expect("a child that was not waited for has a process id");
        Ok(Self { child, pid, group })
    }

    /// Waits until it ends.
    ///
    /// # Cancel safety
    ///
    /// Safe to drop: it may be waited for again.
    pub(crate) async fn ended(&mut self) -> io::Result<ExitStatus> {
        self.child.wait().await
    }

    /// Passes on a signal that we got, unless the terminal has sent it to both of us.
    ///
    /// Those that end processes go to all that the command has started, or a shell that dies of one
    /// would leave its own children running without the lock.
    pub(crate) fn pass_on(&self, signal: Signal) {
        let from_terminal = signal == Signal::INT || signal == Signal::QUIT;
        if signal == Signal::USR1 || signal == Signal::USR2 {
            self.send(Group::Ours, signal);
        } else if !(self.group == Group::Ours && from_terminal) {
            self.signal(signal);
        }
    }

    /// Sends a signal to the command and, if it has a group of its own, to all of that.
    pub(crate) fn signal(&self, signal: Signal) {
        self.send(self.group, signal);
    }

    fn send(&self, group: Group, signal: Signal) {
        if self.child.id().is_none() {
            return;
        }
        // It was not waited for, so the process id is its own; an error means that it has just ended.
        let _ = match group {
            Group::Ours => kill_process(self.pid, signal),
            Group::Own => kill_process_group(self.pid, signal),
        };
    }
}

/// Whether we are what the terminal's keys reach.
fn in_foreground() -> bool {
    isatty(stdin()) && tcgetpgrp(stdin()).is_ok_and(|group| group == getpgrp())
}

/// Becomes the command that a supervisor has asked for, and dies with that supervisor.
///
/// Returns only if that cannot be.
pub(crate) fn exec(args: Exec) -> Failure {
    if let Err(error) = set_parent_process_death_signal(Some(Signal::KILL)) {
        return Failure::new(exit::NOT_EXECUTABLE, format!("cannot be supervised: {error}"));
    }
    // If it died before, nobody will tell us.
    if getppid().is_none_or(|parent| parent.as_raw_nonzero().get() != args.supervisor) {
        return Failure::new(exit::LOST, "the supervisor has gone");
    }
    let error = StdCommand::new(&args.command[0]).args(&args.command[1..]).exec();
    not_started(&args.command[0], &error)
}

/// Why a command could not be started, as a shell says it.
pub(crate) fn not_started(command: &OsString, error: &io::Error) -> Failure {
    let code = match error.kind() {
        io::ErrorKind::NotFound => exit::NOT_FOUND,
        _ => exit::NOT_EXECUTABLE,
    };
    Failure::new(code, format!("{}: {error}", command.display()))
}
