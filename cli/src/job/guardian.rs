//! The guardian, a small process between `leasehold` and the command.
//!
//! The guardian ends the command and all processes that the command has started in two cases: `leasehold` exits, or the cutoff passes.
//! With each renewal of the lease, `leasehold` moves the cutoff. As a result, the command does not continue without its lock if
//! `leasehold` is killed or paused.
//!
//! All descendants of the command become children of the guardian when their parents exit, so the guardian sees each of them exit. The
//! guardian leaves the process group of `leasehold` and ignores the signals that terminate processes. If the guardian itself is killed,
//! `leasehold` ends the command.

use std::ffi::OsString;
use std::fs::{self, File};
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::UnixStream as StdStream;
use std::process::{self, Stdio};

use rustix::io::Errno;
use rustix::process::{Pid, Signal, WaitOptions, kill_process, setpgid, wait};
use rustix::stdio::{dup2_stderr, dup2_stdin, dup2_stdout};
use tokio::signal::unix::{self, SignalKind};

use crate::job::cgroup::Cgroup;
use crate::job::clock::{Cutoff, boot_clock, reaches};
use crate::job::command::Preparation;
use crate::job::helper::Helper;
use crate::job::link::{self, Begin, Link, Order, Reach, Report, Survivor};
use crate::job::tree::Tree;
use crate::signals::{Signals, TOGETHER};

/// The pause after the first attempt to kill all processes, in nanoseconds. Each further pause is twice as long, up to [`LONGEST_PAUSE`].
const FIRST_PAUSE: u64 = 5_000_000;

const LONGEST_PAUSE: u64 = 1_000_000_000;

/// Processes that are still running this long after the first SIGKILL are reported. In nanoseconds. An exit usually takes milliseconds.
const PATIENCE: u64 = 500_000_000;

/// If `leasehold` has not passed on a signal within this time, only the guardian has received the signal. In nanoseconds.
const ALONE: u64 = 2 * TOGETHER.as_nanos() as u64;

/// Runs a guardian for a command.
pub(super) fn run(command: &[OsString]) -> io::Result<()> {
    Helper::Guardian.name_this_process();
    let link = StdStream::from(io::stdin().as_fd().try_clone_to_owned()?);
    let (begin, stdin) = link::receive_begin(&link)?;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(async {
        let signals = Signals::catch_all()?;
        let deaths = unix::signal(SignalKind::child())?;
        let link = Link::new(link)?;
        let cutoff = begin.cutoff;
        match Processes::start(begin, stdin, command) {
            Ok(processes) => {
                link.send(&Report::Started);
                Guardian::new(link, processes, cutoff).run(deaths, signals).await;
            }
            Err(error) => link.send(&Report::NotStarted(error.to_string())),
        }
        Ok(())
    })
}

#[derive(Debug)]
struct Guardian {
    link: Link,
    /// Whether `leasehold` is still running.
    is_supervised: bool,
    processes: Processes,
    cutoff: Option<Cutoff>,
    phase: Phase,
    /// The survivors of the last report.
    reported: Vec<Survivor>,
    /// Signals that this process has received, with the time. Usually they were sent to all processes of the command.
    received: Vec<(Signal, u64)>,
}

/// How far the end of the command has come.
#[derive(Clone, Copy, Debug)]
enum Phase {
    Guarding,
    /// The command was asked to end.
    Asked,
    /// SIGKILL is repeated until no process is left.
    Killing {
        since: u64,
        next: u64,
        pause: u64,
    },
}

impl Guardian {
    fn new(link: Link, processes: Processes, cutoff: Option<Cutoff>) -> Self {
        let (phase, reported, received) = (Phase::Guarding, Vec::new(), Vec::new());
        Self { link, is_supervised: true, processes, cutoff, phase, reported, received }
    }

    async fn run(mut self, mut deaths: unix::Signal, mut signals: Signals) {
        loop {
            self.reap();
            self.act();
            if self.processes.is_empty && !self.is_supervised {
                return;
            }
            let due = self.due();
            tokio::select! {
                order = self.link.next(), if self.is_supervised => match order {
                    Some(Order::Until(cutoff)) => self.set_cutoff(cutoff),
                    Some(Order::Signal(number, reach)) => self.obey(number, reach),
                    Some(Order::Leave) => return,
                    // Without a cutoff, the command may outlive `leasehold`.
                    None if self.cutoff.is_none() => return,
                    None => {
                        self.is_supervised = false;
                        self.set_cutoff(Cutoff::NOW);
                    }
                },
                signal = signals.next_ending() => self.received.push((signal, boot_clock())),
                _ = deaths.recv() => {}
                () = reaches(due) => {}
            }
        }
    }

    fn set_cutoff(&mut self, cutoff: Cutoff) {
        match (self.phase, &mut self.cutoff) {
            // The command may already be shutting down. A later cutoff is ignored.
            (Phase::Asked | Phase::Killing { .. }, Some(own)) => {
                own.kill_at = own.kill_at.min(cutoff.kill_at);
            }
            (_, own) => *own = Some(cutoff),
        }
    }

    /// Performs the steps that are due.
    fn act(&mut self) {
        let now = boot_clock();
        while let Some(&(signal, since)) = self.received.first()
            && now >= since + ALONE
        {
            // The sender has mistaken this process for `leasehold`.
            self.received.remove(0);
            self.signal(signal, Reach::Missed { since });
        }
        let Some(cutoff) = self.cutoff else { return };
        if matches!(self.phase, Phase::Guarding) && now >= cutoff.term_at {
            self.phase = Phase::Asked;
            self.link.send(&Report::Ending);
            if now < cutoff.kill_at {
                self.signal(Signal::TERM, Reach::All);
            }
        }
        if matches!(self.phase, Phase::Asked) && now >= cutoff.kill_at {
            self.phase = Phase::Killing { since: now, next: now, pause: FIRST_PAUSE };
        }
        if let Phase::Killing { since, next, pause } = self.phase
            && now >= next
            && !self.processes.is_empty
        {
            let unreached = self.processes.kill();
            self.reap();
            self.report_survivors(unreached, now >= since + PATIENCE);
            let pause = (pause * 2).min(LONGEST_PAUSE);
            self.phase = Phase::Killing { since, next: now + pause, pause };
        }
    }

    /// When the next step of [`act`](Self::act) is due.
    fn due(&self) -> Option<u64> {
        if self.processes.is_empty {
            return None;
        }
        let step = self.cutoff.map(|cutoff| match self.phase {
            Phase::Guarding => cutoff.term_at,
            Phase::Asked => cutoff.kill_at,
            Phase::Killing { next, .. } => next,
        });
        let signal = self.received.first().map(|(_, since)| since + ALONE);
        step.into_iter().chain(signal).min()
    }

    /// Reports the processes to which SIGKILL could not be sent. If the end is overdue, reports all remaining processes.
    fn report_survivors(&mut self, mut survivors: Vec<Survivor>, is_overdue: bool) {
        if is_overdue {
            let reached = self.processes.running();
            let is_known = |pid| survivors.iter().any(|known| known.pid == pid);
            let reached: Vec<_> = reached.into_iter().filter(|it| !is_known(it.pid)).collect();
            survivors.extend(reached);
        }
        if !self.processes.is_empty && !survivors.is_empty() && survivors != self.reported {
            self.link.send(&Report::Survivors(survivors.clone()));
            self.reported = survivors;
        }
    }

    /// Passes on a signal that `leasehold` has received.
    fn obey(&mut self, number: i32, reach: Reach) {
        if let Some(signal) = Signal::from_named_raw(number) {
            self.received.retain(|(received, _)| *received != signal);
            self.signal(signal, reach);
        }
    }

    fn signal(&mut self, signal: Signal, reach: Reach) {
        let unreached = self.processes.signal(signal, reach);
        if !unreached.is_empty() {
            self.link.send(&Report::Unreached(unreached));
        }
    }

    fn reap(&mut self) {
        let was_empty = self.processes.is_empty;
        if let Some(status) = self.processes.reap() {
            self.link.send(&Report::Exited(status));
        }
        if self.processes.is_empty && !was_empty {
            self.link.send(&Report::Empty);
        }
    }
}

/// The command and its descendants.
#[derive(Debug)]
struct Processes {
    tree: Tree,
    cgroup: Option<Cgroup>,
    /// `None` after the command has been reaped, because its process id may be reused.
    command: Option<Pid>,
    is_empty: bool,
}

impl Processes {
    fn start(begin: Begin, stdin: OwnedFd, command: &[OsString]) -> io::Result<Self> {
        let tree = Tree::plant()?;
        let cgroup = begin.cgroup.and_then(Cgroup::open);
        let preparation = Preparation {
            supervisor: begin.supervisor,
            guardian: begin.cutoff.and_then(|_| i32::try_from(process::id()).ok()),
            cgroup: cgroup.as_ref().map(Cgroup::path),
        };
        let mut start = preparation.start(command);
        let child = start.stdin(Stdio::from(stdin)).spawn()?;
        // The command stays in the process group of `leasehold`. The guardian leaves it.
        setpgid(None, None)?;
        let _ = leave_output();
        Ok(Self { tree, cgroup, command: Some(Pid::from_child(&child)), is_empty: false })
    }

    /// Kills all processes, and returns those that it cannot kill. Processes that start in the meantime are killed by the next call.
    fn kill(&mut self) -> Vec<Survivor> {
        if let Some(cgroup) = &mut self.cgroup {
            cgroup.kill();
        }
        self.signal(Signal::KILL, Reach::All)
    }

    /// Sends a signal, and returns the processes to which it could not be sent.
    fn signal(&mut self, signal: Signal, reach: Reach) -> Vec<Survivor> {
        let sent = match reach {
            Reach::Command => self.signal_command(signal),
            // If `/proc` cannot be read, the process id of the command is still known.
            Reach::All => self.tree.signal(signal).or_else(|_| self.signal_command(signal)),
            Reach::Missed { since } => self.tree.signal_missed(signal, since),
        };
        sent.unwrap_or_default()
    }

    fn signal_command(&self, signal: Signal) -> io::Result<Vec<Survivor>> {
        let Some(command) = self.command else { return Ok(Vec::new()) };
        let pid = command.as_raw_nonzero().get();
        let refused = kill_process(command, signal).err();
        Ok(refused
            .map(|error| Survivor::new(pid, "the command", Some(error)))
            .into_iter()
            .collect())
    }

    /// All processes that have not exited.
    fn running(&mut self) -> Vec<Survivor> {
        let found = self.tree.running().unwrap_or_default();
        if found.is_empty() { hidden() } else { found }
    }

    /// Reaps all children that have exited. Returns the wait status of the command if it has exited.
    fn reap(&mut self) -> Option<i32> {
        let mut exited = None;
        while !self.is_empty {
            match wait(WaitOptions::NOHANG) {
                Ok(Some((pid, status))) if Some(pid) == self.command => {
                    self.command = None;
                    exited = Some(status.as_raw());
                }
                Ok(Some(_)) | Err(Errno::INTR) => {}
                // Orphaned descendants become children of this process, so no descendant is left.
                Err(Errno::CHILD) => self.is_empty = true,
                Ok(None) | Err(_) => break,
            }
        }
        exited
    }
}

/// Closes the input and output that this process shares with the command. A reader would otherwise wait for the guardian to exit.
fn leave_output() -> io::Result<()> {
    let nothing = File::options().read(true).write(true).open("/dev/null")?;
    dup2_stdin(&nothing)?;
    dup2_stdout(&nothing)?;
    dup2_stderr(&nothing)?;
    Ok(())
}

/// The children of this process, including those that `/proc` hides from this user (`hidepid`).
fn hidden() -> Vec<Survivor> {
    let pid = process::id();
    let children = fs::read_to_string(format!("/proc/self/task/{pid}/children"));
    let pids = children.unwrap_or_default();
    let pids = pids.split_whitespace().filter_map(|pid| pid.parse().ok());
    pids.map(|pid| Survivor::new(pid, "hidden by /proc", None)).collect()
}
