//! The leases that the watchdog must check now.

use std::mem;
use std::sync::{Arc, Weak};

use tokio::sync::futures::Notified;

use crate::sync::{Mutex, Notify, lock};

/// Wakes the watchdog's tasks on all runtimes, because the task on any runtime may be idle.
#[derive(Debug)]
pub(crate) struct WakeList<H> {
    /// The records refer to this list. After the last task has ended, nothing empties it.
    records: Mutex<Vec<Weak<H>>>,
    wake: Notify,
}

impl<H> WakeList<H> {
    pub(crate) fn wake(&self) {
        self.wake.notify_waiters();
    }

    /// Waits for the next wake-up. A wake-up before the first poll also counts.
    pub(crate) fn woken(&self) -> Notified<'_> {
        self.wake.notified()
    }

    /// Returns the leases that were added since the last call.
    pub(crate) fn drain(&self) -> Vec<Arc<H>> {
        let records = mem::take(&mut *lock(&self.records));
        records.iter().filter_map(Weak::upgrade).collect()
    }

    /// Makes the watchdog check `record` now.
    pub(super) fn push(&self, record: &Arc<H>) {
        lock(&self.records).push(Arc::downgrade(record));
        self.wake();
    }
}

impl<H> Default for WakeList<H> {
    fn default() -> Self {
        Self { records: Mutex::default(), wake: Notify::default() }
    }
}
