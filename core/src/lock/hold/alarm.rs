//! How holds call for the watchdog.

use std::mem;
use std::sync::Arc;

use super::Hold;
use crate::sync::{Mutex, Notify, lock};

/// How a hold calls for the watchdog.
#[derive(Debug, Default)]
pub(crate) struct Alarm {
    rung_for: Mutex<Vec<Arc<Hold>>>,
    wake: Notify,
}

impl Alarm {
    /// Wakes the watchdog.
    pub(crate) fn wake(&self) {
        self.wake.notify_one();
    }

    /// Waits until somebody has called for the watchdog since the last time.
    pub(crate) async fn heard(&self) {
        self.wake.notified().await;
    }

    /// Those that it was rung for.
    pub(crate) fn answer(&self) -> Vec<Arc<Hold>> {
        mem::take(&mut *lock(&self.rung_for))
    }

    /// Makes the watchdog look at `hold` now.
    pub(super) fn ring(&self, hold: Arc<Hold>) {
        lock(&self.rung_for).push(hold);
        self.wake();
    }
}
