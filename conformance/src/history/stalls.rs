//! The times in which the machine runs no process of the campaign.

use std::sync::Arc;
use std::time::Duration;

use crate::history::event::{EventKind, now};
use crate::history::record::Record;
use crate::stalls;

/// A thread that is this late has stood still, and so may all others have.
const LATE: Duration = Duration::from_millis(200);

/// Watches the machine. When dropped, it records the stalls.
#[derive(Debug)]
pub struct Stalls {
    watched: stalls::Stalls,
    record: Arc<Record>,
}

impl Stalls {
    /// Watches from now on.
    ///
    /// # Panics
    ///
    /// If a thread cannot be started.
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
