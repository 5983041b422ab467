//! Detects periods in which the machine does not run the campaign.

use std::sync::Arc;
use std::time::Duration;

use crate::history::event::{EventKind, now};
use crate::history::record::Record;
use crate::stalls;

/// The delay of a wake-up that counts as a stall. If a thread wakes this late, the machine did not
/// run it, and may not have run any other thread.
const LATE: Duration = Duration::from_millis(200);

/// Observes the machine. When this value is dropped, it records the stalls.
///
/// The [`history`](super) module shows how the parts work together.
#[derive(Debug)]
pub struct Stalls {
    watched: stalls::Stalls,
    record: Arc<Record>,
}

impl Stalls {
    /// Starts to observe the machine.
    ///
    /// # Panics
    ///
    /// Panics if a thread cannot be started.
    pub fn watch(record: &Arc<Record>) -> Self {
        let watched = stalls::Stalls::watch_those_over(LATE, || {});
        Self { watched, record: Arc::clone(record) }
    }
}

impl Drop for Stalls {
    fn drop(&mut self) {
        for (end, start) in self.watched.all() {
            let late = start - end;
            self.record.add_at(now() - end, 0, EventKind::Stalled { late });
        }
    }
}
