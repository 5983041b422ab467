//! The signals that are passed on to a command.

use std::fs;

use rustix::process::Signal;
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::mpsc;

use crate::exit::{self, Failure};

/// The signals that this process has got and not yet acted upon.
#[derive(Debug)]
pub(crate) struct Signals(mpsc::UnboundedReceiver<Signal>);

impl Signals {
    const PASSED_ON: [Signal; 6] =
        [Signal::HUP, Signal::INT, Signal::QUIT, Signal::TERM, Signal::USR1, Signal::USR2];

    /// Catches them from now on, but for those that the parent has this process ignore.
    ///
    /// `nohup`, and a shell for its background jobs, ignore signals on behalf of all that they start. A handler would end that here and in
    /// the command, which inherits the ignored ones.
    pub(crate) fn catch() -> Result<Self, Failure> {
        let (sender, receiver) = mpsc::unbounded_channel();
        let ignored = ignored();
        for caught in Self::PASSED_ON {
            if ignored & (1 << (caught.as_raw() - 1)) != 0 {
                continue;
            }
            let stream = signal(SignalKind::from_raw(caught.as_raw()));
            let mut stream =
                stream.map_err(|error| Failure::new(exit::UNAVAILABLE, error.to_string()))?;
            let sender = sender.clone();
            tokio::spawn(async move {
                while stream.recv().await.is_some() && sender.send(caught).is_ok() {}
            });
        }
        Ok(Self(receiver))
    }

    pub(crate) async fn next(&mut self) -> Signal {
        match self.0.recv().await {
            Some(signal) => signal,
            None => std::future::pending().await,
        }
    }
}

/// Has a write beyond the limit on the size of files (`ulimit -f`) fail. By default, SIGXFSZ would kill this process and leave its command running.
///
/// The command gets the default action back. If this process was started with the signal ignored, the command ignores it too.
pub(crate) fn outlive_file_size_limit() -> Result<(), Failure> {
    if ignored() & (1 << (Signal::XFSZ.as_raw() - 1)) == 0 {
        let caught = signal(SignalKind::from_raw(Signal::XFSZ.as_raw()));
        // The handler stays without its listener.
        drop(caught.map_err(|error| Failure::new(exit::UNAVAILABLE, error.to_string()))?);
    }
    Ok(())
}

/// The signals that this process ignores, one bit each. Linux tells; without `/proc`, none is known.
fn ignored() -> u64 {
    let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
    let mask = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    mask.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok()).unwrap_or(0)
}
