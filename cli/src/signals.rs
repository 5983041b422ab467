//! The signals that are passed on to a command.

use std::ffi::OsString;
use std::fs;
use std::future::pending;
use std::io;
use std::time::Duration;

use rustix::process::Signal;
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::mpsc;
use tokio::time::{Instant, sleep_until};

use crate::exit::{self, Failure};
use crate::job::{Canary, Reach, boot_clock};

/// How far apart a signal may arrive at two processes that it was sent to at the same time. Senders take microseconds for it, but a busy
/// machine takes longer to schedule the receivers.
pub(crate) const TOGETHER: Duration = Duration::from_millis(200);

/// The signals that this process has received and not yet acted on.
#[derive(Debug)]
pub(crate) struct Signals {
    received: mpsc::UnboundedReceiver<Signal>,
    /// In the order of `due`.
    undecided: Vec<Undecided>,
    canary: Option<Canary>,
    canary_died: Option<Instant>,
}

/// A signal that may have been sent to the command as well.
#[derive(Clone, Copy, Debug)]
struct Undecided {
    signal: Signal,
    /// By the boot clock.
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
        caught.map_err(|error| Failure::new(exit::UNAVAILABLE, error.to_string()))
    }

    /// Catches those signals, and the ones that pause a process.
    pub(crate) fn catch_all() -> io::Result<Self> {
        Self::catch_these(Self::ENDING.into_iter().chain(Self::OTHERS).chain(Self::JOB_CONTROL))
    }

    /// Catches signals from now on, except for those that the parent has this process ignore.
    ///
    /// `nohup`, and a shell for its background jobs, ignore signals on behalf of everything that they start. A handler would end that, here
    /// and in the command, which inherits the ignored signals.
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
        Ok(Self { received, undecided: Vec::new(), canary: None, canary_died: None })
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

    /// Waits for the next signal that asks a process to end.
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

    /// Waits for the next signal to pass on to `command`, which is running, and to its processes.
    ///
    /// No process receives a signal twice that was sent to this process and to the command, [`TOGETHER`] at the most apart.
    ///
    /// # Cancel safety
    ///
    /// This method is cancel safe.
    pub(crate) async fn next_for(&mut self, command: &[OsString]) -> (Signal, Reach) {
        loop {
            self.keep_canary(command);
            let (due, died) = (self.undecided.first().map(|first| first.due), self.canary_died);
            tokio::select! {
                signal = self.received.recv() => signal.into_iter().for_each(|it| self.consider(it)),
                () = died_of(&mut self.canary) => {
                    self.canary = None;
                    self.canary_died = Some(Instant::now());
                    self.undecided.iter_mut().for_each(|undecided| undecided.was_shared = true);
                }
                () = reaches(died.map(|died| died + TOGETHER)) => self.canary_died = None,
                () = reaches(due) => {
                    let Undecided { signal, since, was_shared, .. } = self.undecided.remove(0);
                    match (Self::OTHERS.contains(&signal), was_shared) {
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
            let was_shared = self.canary_died.is_some();
            self.undecided.push(Undecided { signal, since, was_shared, due });
        }
    }

    /// Starts a canary if there is none. Signals that arrive shortly after the death of one are known to be shared.
    fn keep_canary(&mut self, command: &[OsString]) {
        if self.canary.is_none() && self.canary_died.is_none() {
            // Without a canary, a signal counts as sent to this process alone.
            self.canary = Canary::start(command).ok();
        }
    }
}

async fn died_of(canary: &mut Option<Canary>) {
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

/// The signals that this process ignores, one bit each. Linux tells; without `/proc`, none is known.
fn ignored() -> u64 {
    let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
    signal_set(&status, "SigIgn:").unwrap_or(0)
}

/// A set of signals in the `status` of a process, one bit each.
pub(crate) fn signal_set(status: &str, field: &str) -> Option<u64> {
    let set = status.lines().find_map(|line| line.strip_prefix(field))?;
    u64::from_str_radix(set.trim(), 16).ok()
}
