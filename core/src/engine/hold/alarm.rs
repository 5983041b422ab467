//! How holds call for the watchdog.

use std::mem;
use std::sync::Arc;

use tokio::sync::futures::Notified;

use crate::sync::{Mutex, Notify, lock};

/// How a hold calls for the watchdog: for its tasks on all runtimes, since any of those may be idle.
#[derive(Debug)]
pub(crate) struct Alarm<H> {
    rung_for: Mutex<Vec<Arc<H>>>,
    wake: Notify,
}

impl<H> Alarm<H> {
    /// Wakes the watchdog.
    pub(crate) fn wake(&self) {
        self.wake.notify_waiters();
    }

    /// Waits for a call for the watchdog that comes from now on, even before the first poll.
    pub(crate) fn heard(&self) -> Notified<'_> {
        self.wake.notified()
    }

    /// Takes the holds that it was rung for.
    pub(crate) fn answer(&self) -> Vec<Arc<H>> {
        mem::take(&mut *lock(&self.rung_for))
    }

    /// Makes the watchdog look at `hold` now.
    pub(super) fn ring(&self, hold: Arc<H>) {
        lock(&self.rung_for).push(hold);
        self.wake();
    }
}

impl<H> Default for Alarm<H> {
    fn default() -> Self {
        Self { rung_for: Mutex::default(), wake: Notify::default() }
    }
}
