//! Times on the machine's clock, and times since the start of the run.

use std::time::Duration;

use crate::history::event::{Event, EventKind};

#[derive(Clone, Copy, Debug)]
pub(super) struct Timeline {
    start: Duration,
}

impl Timeline {
    pub(super) fn new(start: Duration) -> Self {
        Self { start }
    }

    pub(super) fn ms(&self, at: Duration) -> f64 {
        self.seconds(at) * 1_000.0
    }

    pub(super) fn seconds(&self, at: Duration) -> f64 {
        at.as_secs_f64() - self.start.as_secs_f64()
    }
}

/// Returns the periods in which the machine did not run any process.
pub(super) fn stalls(events: &[Event]) -> impl Iterator<Item = (Duration, Duration)> {
    events.iter().filter_map(|event| match event.kind {
        EventKind::Stalled { late } => Some((event.at.saturating_sub(late), event.at)),
        _ => None,
    })
}
