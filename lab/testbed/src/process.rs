//! A server's process.

use std::ffi::OsStr;
use std::fs::{self, File};
use std::io;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};

use rustix::process::{Pid, Signal, WaitId, WaitIdOptions, kill_process, waitid};

/// The group of the next process, or 0 if processes do not get a group.
static NEXT_GROUP: AtomicU32 = AtomicU32::new(0);

/// Gives each server that starts from now on a group of its own, counted from `first`: a firewall tells the packets of servers apart by it.
///
/// It takes root. A server that starts again has another group, see [`group_of`].
pub fn give_groups(first: u32) {
    NEXT_GROUP.store(first, Ordering::Relaxed);
}

/// The group of a process.
///
/// # Panics
///
/// If there is no such process.
pub fn group_of(id: u32) -> u32 {
    let status = fs::read_to_string(format!("/proc/{id}/status")).expect("the process is there");
    let groups = status.lines().find_map(|line| line.strip_prefix("Gid:"));
    // The fourth is the one of files and sockets.
    let group = groups.and_then(|groups| groups.split_whitespace().nth(3)?.parse().ok());
    group.expect("each process has groups")
}

/// A child process that is killed and reaped when dropped.
#[derive(Debug)]
pub struct Process {
    child: Child,
}

impl Process {
    /// Starts `program`; its output goes to the file `log`.
    ///
    /// # Errors
    ///
    /// If the program is missing or the log cannot be written.
    pub fn start<A: AsRef<OsStr>>(
        program: impl AsRef<OsStr>,
        args: impl IntoIterator<Item = A>,
        log: &Path,
    ) -> io::Result<Self> {
        Self::spawn(Command::new(program).args(args), log)
    }

    /// Starts `command`; its output goes to the file `log`.
    ///
    /// # Errors
    ///
    /// As [`Process::start`].
    pub fn spawn(command: &mut Command, log: &Path) -> io::Result<Self> {
        if NEXT_GROUP.load(Ordering::Relaxed) != 0 {
            command.gid(NEXT_GROUP.fetch_add(1, Ordering::Relaxed));
        }
        let log = File::options().create(true).append(true).open(log)?;
        let child = command.stdin(Stdio::null()).stdout(log.try_clone()?).stderr(log).spawn()?;
        Ok(Self { child })
    }

    /// The process id.
    pub fn id(&self) -> u32 {
        self.child.id()
    }

    /// Whether it has ended by itself.
    pub fn exited(&mut self) -> Option<ExitStatus> {
        self.child.try_wait().expect("a child can be waited for")
    }

    /// Stops its execution (SIGSTOP), and returns once it stands still: connections stay open and nothing is answered.
    pub fn pause(&self) {
        self.signal(Signal::STOP);
        // On a busy machine, its threads go on for a while. If it has ended, it is left to be reaped.
        let still = WaitIdOptions::STOPPED | WaitIdOptions::EXITED | WaitIdOptions::NOWAIT;
        let _ = waitid(WaitId::Pid(Pid::from_child(&self.child)), still);
    }

    /// Lets it go on (SIGCONT).
    pub fn resume(&self) {
        self.signal(Signal::CONT);
    }

    /// Kills it at once (SIGKILL) and reaps it.
    pub fn kill(&mut self) {
        // An error means that it has ended already.
        drop(self.child.kill());
        drop(self.child.wait());
    }

    /// Asks it to end (SIGTERM) and waits until it has.
    pub fn terminate(&mut self) {
        self.end(Signal::TERM);
    }

    /// Asks it to end by a signal of its own, and waits until it has.
    pub(crate) fn end(&mut self, signal: Signal) {
        self.signal(signal);
        drop(self.child.wait());
    }

    fn signal(&self, signal: Signal) {
        let pid = Pid::from_child(&self.child);
        // An unreaped child keeps its pid, so this can hit no other process; an error means it has ended.
        let _ = kill_process(pid, signal);
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        self.kill();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_has_the_group_of_its_maker() {
        assert_eq!(group_of(std::process::id()), rustix::process::getegid().as_raw());
    }
}
