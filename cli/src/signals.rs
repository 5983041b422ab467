//! The signals that are passed on to a command.

mod set;

use std::ffi::OsString;
use std::fs;
use std::future::pending;
use std::io;
use std::process;
use std::time::Duration;

use rustix::process::Signal;
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::mpsc;
use tokio::time::{Instant, sleep_until};

use crate::exit::{self, Failure};
use crate::job::{Canary, Reach, boot_clock};

pub(crate) use set::signal_set;

/// If a sender signals several processes, the signal reaches all of them within this time. Sending takes microseconds, but on a busy
/// machine the sender may lose the processor in between.
pub(crate) const TOGETHER: Duration = Duration::from_millis(200);

/// The signals that this process has received and not yet passed on.
#[derive(Debug)]
pub(crate) struct Signals {
    received: mpsc::UnboundedReceiver<Signal>,
    /// Sorted by `due`.
    undecided: Vec<Undecided>,
    canary: Option<Canary>,
    /// The signal that killed the last canary, and when.
    died: Option<(Option<Signal>, Instant)>,
}

/// A signal of which it is not yet known whether the command has received it, too.
#[derive(Clone, Copy, Debug)]
struct Undecided {
    signal: Signal,
    /// When this process received the signal, by the boot clock.
    since: u64,
    was_shared: bool,
    due: Instant,
}

impl Signals {
    const ENDING: [Signal; 4] = [Signal::HUP, Signal::INT, Signal::QUIT, Signal::TERM];
    const OTHERS: [Signal; 2] = [Signal::USR1, Signal::USR2];
    const JOB_CONTROL: [Signal; 3] = [Signal::TSTP, Signal::TTIN, Signal::TTOU];

    /// Catches the signals that are passed on to a command.
    pub(crate) fn catch() -> Result<Self, Failure> {
        let caught = Self::catch_these(Self::ENDING.into_iter().chain(Self::OTHERS));
        caught.map_err(|error| {
            Failure::new(exit::UNSUPERVISED, format!("cannot catch signals: {error}"))
        })
    }

    /// Catches the signals that terminate processes. A process with the id 1 would ignore them otherwise.
    pub(crate) fn catch_ending() -> Result<Self, Failure> {
        let caught = Self::catch_these(Self::ENDING);
        caught.map_err(|error| {
            Failure::new(exit::UNSUPERVISED, format!("cannot catch signals: {error}"))
        })
    }

    /// Catches the signals that are passed on to a command, and the signals that pause a process.
    pub(crate) fn catch_all() -> io::Result<Self> {
        Self::catch_these(Self::ENDING.into_iter().chain(Self::OTHERS).chain(Self::JOB_CONTROL))
    }

    /// Catches signals, except those that this process already ignores.
    ///
    /// `nohup`, and shells that start background jobs, set signals to be ignored by all processes that they start. A handler would undo
    /// this, both here and in the command, which inherits the ignored signals.
    fn catch_these(signals: impl IntoIterator<Item = Signal>) -> io::Result<Self> {
        let (sender, received) = mpsc::unbounded_channel();
        let ignored = ignored();
        for caught in signals {
            if ignored & (1 << (caught.as_raw() - 1)) != 0 {
                continue;
            }
            let mut stream = signal(SignalKind::from_raw(caught.as_raw()))?;
            let sender = sender.clone();
            tokio::spawn(async move {
                while stream.recv().await.is_some() && sender.send(caught).is_ok() {}
            });
        }
        Ok(Self { received, undecided: Vec::new(), canary: None, died: None })
    }

    /// Waits for the next signal.
    ///
    /// # Cancel safety
    ///
    /// This method is cancel safe.
    pub(crate) async fn next(&mut self) -> Signal {
        match self.received.recv().await {
            Some(signal) => signal,
            None => pending().await,
        }
    }

    /// Waits for the next signal that terminates processes.
    ///
    /// # Cancel safety
    ///
    /// This method is cancel safe.
    pub(crate) async fn next_ending(&mut self) -> Signal {
        loop {
            let signal = self.next().await;
            if Self::ENDING.contains(&signal) {
                return signal;
            }
        }
    }

    /// Waits for the next signal that must be passed on to `command`, and returns it with the processes that should receive it.
    ///
    /// If the sender has signalled the command as well, within [`TOGETHER`], the signal is not passed on to processes that have received
    /// it.
    ///
    /// # Cancel safety
    ///
    /// This method is cancel safe.
    pub(crate) async fn next_for(&mut self, command: &[OsString]) -> (Signal, Reach) {
        loop {
            self.keep_canary(command);
            let due = self.undecided.first().map(|first| first.due);
            let over = self.died.map(|(_, died)| died + TOGETHER);
            tokio::select! {
                biased;
                of = death_of(&mut self.canary) => {
                    self.canary = None;
                    self.died = Some((of, Instant::now()));
                    for undecided in &mut self.undecided {
                        undecided.was_shared |= is_shared_with(of, undecided.signal);
                    }
                }
                signal = self.received.recv() => signal.into_iter().for_each(|it| self.consider(it)),
                () = reaches(over) => self.died = None,
                () = reaches(due) => {
                    let Undecided { signal, since, was_shared, .. } = self.undecided.remove(0);
                    let is_dying = self.canary.as_ref().is_some_and(|it| it.has_received(signal));
                    match (Self::OTHERS.contains(&signal), was_shared || is_dying) {
                        (true, true) => {}
                        (true, false) => return (signal, Reach::Command),
                        (false, true) => return (signal, Reach::Missed { since }),
                        (false, false) => return (signal, Reach::All),
                    }
                }
            }
        }
    }

    fn consider(&mut self, signal: Signal) {
        if self.undecided.iter().all(|undecided| undecided.signal != signal) {
            let (since, due) = (boot_clock(), Instant::now() + TOGETHER);
            let was_shared = self.died.is_some_and(|(of, _)| is_shared_with(of, signal));
            self.undecided.push(Undecided { signal, since, was_shared, due });
        }
    }

    /// Starts a canary if no canary is running. For the time [`TOGETHER`] after a canary died, its signal counts as shared, and no new canary starts.
    fn keep_canary(&mut self, command: &[OsString]) {
        if self.canary.is_none() && self.died.is_none() {
            // If no canary can be started, all signals are passed on, and a command can receive a signal twice.
            self.canary = Canary::start(command).ok();
        }
    }
}

/// Whether `signal` was also sent to the command, given the signal that killed the canary at about the same time.
///
/// Some service managers send SIGTERM to all processes and then SIGHUP. The canary only shows the first of the two.
fn is_shared_with(of: Option<Signal>, signal: Signal) -> bool {
    let is_ending = |signal| Signals::ENDING.contains(&signal);
    of == Some(signal) || is_ending(signal) && of.is_some_and(is_ending)
}

async fn death_of(canary: &mut Option<Canary>) -> Option<Signal> {
    match canary {
        Some(canary) => canary.died().await,
        None => pending().await,
    }
}

async fn reaches(time: Option<Instant>) {
    match time {
        Some(time) => sleep_until(time).await,
        None => pending().await,
    }
}

/// Has a write beyond the limit on the size of files (`ulimit -f`) fail. By default, SIGXFSZ would kill this process and leave its command running.
///
/// The command gets the default action back. If this process was started with the signal ignored, the command ignores it too.
pub(crate) fn outlive_file_size_limit() -> Result<(), Failure> {
    if ignored() & (1 << (Signal::XFSZ.as_raw() - 1)) == 0 {
        let caught = signal(SignalKind::from_raw(Signal::XFSZ.as_raw()));
        // The handler stays without its listener.
        drop(caught.map_err(|error| {
            Failure::new(exit::UNSUPERVISED, format!("cannot catch signals: {error}"))
        })?);
    }
    Ok(())
}

/// The signals that this process ignores, one bit each. Empty if `/proc` cannot be read.
fn ignored() -> u64 {
    if process::id() == 1 {
        // Nothing is ignored on behalf of the first process of a container, which is not a job of a shell.
        return 0;
    }
    let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
    signal_set(&status, "SigIgn:").unwrap_or(0)
}
