//! The leases that the watchdog must check now.

use std::mem;
use std::sync::{Arc, Weak};

use tokio::sync::futures::Notified;

use crate::sync::{Mutex, Notify, lock};

/// Wakes the watchdog's tasks on all runtimes, because the task on any runtime may be idle.
#[derive(Debug)]
pub(crate) struct WakeList<R> {
    /// Weak references, because the records refer to this list, and no task empties the list after
    /// the last runtime has ended.
    records: Mutex<Vec<Weak<R>>>,
    wake: Notify,
}

impl<R> WakeList<R> {
    pub(crate) fn wake(&self) {
        self.wake.notify_waiters();
    }

    /// Waits for the next wake-up. A wake-up before the first poll also counts.
    pub(crate) fn woken(&self) -> Notified<'_> {
        self.wake.notified()
    }

    /// Returns the leases that were added since the last call.
    pub(crate) fn drain(&self) -> Vec<Arc<R>> {
        let records = mem::take(&mut *lock(&self.records));
        records.iter().filter_map(Weak::upgrade).collect()
    }

    /// Makes the watchdog check `record` now.
    pub(super) fn push(&self, record: &Arc<R>) {
        lock(&self.records).push(Arc::downgrade(record));
        self.wake();
    }
}

impl<R> Default for WakeList<R> {
    fn default() -> Self {
        Self { records: Mutex::default(), wake: Notify::default() }
    }
}
