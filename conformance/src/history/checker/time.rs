//! Converts times on the machine's clock to times since the start of the run.

use std::time::Duration;

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
