//! The alarm that wakes the watchdog when a lease needs its attention.

use std::mem;
use std::sync::Arc;

use tokio::sync::futures::Notified;

use crate::sync::{Mutex, Notify, lock};

/// Wakes the watchdog's tasks on all runtimes, because the task on any runtime may be idle.
#[derive(Debug)]
pub(crate) struct Alarm<H> {
    rung_for: Mutex<Vec<Arc<H>>>,
    wake: Notify,
}

impl<H> Alarm<H> {
    pub(crate) fn wake(&self) {
        self.wake.notify_waiters();
    }

    /// Waits for the next alarm. An alarm before the first poll also counts.
    pub(crate) fn heard(&self) -> Notified<'_> {
        self.wake.notified()
    }

    /// Returns the holds that caused alarms since the last call.
    pub(crate) fn answer(&self) -> Vec<Arc<H>> {
        mem::take(&mut *lock(&self.rung_for))
    }

    /// Makes the watchdog check `hold` now.
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
