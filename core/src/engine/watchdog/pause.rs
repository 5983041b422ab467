//! Detects pauses of the whole machine, which are not visible in the machine's monotonic clock.
//!
//! A hypervisor may pause a machine for a snapshot or a migration. The clock that measures the time
//! since boot stops during the pause, so a lease would still appear to be in force after the pause.
//! However, once the time of day has been corrected after a pause, it has advanced further than the
//! clock that measures the time since boot.

use std::time::Duration;

use crate::clock::{Clock, Instant};
use crate::sync::{Mutex, lock};

/// How often the clocks are compared while leases exist.
pub(super) const CHECK_EVERY: Duration = Duration::from_secs(1);

/// The smallest difference that counts as a pause, because time servers adjust clocks in small
/// steps.
const LEAST: Duration = Duration::from_secs(1);

/// The offset of the time of day from the client's clock.
#[derive(Debug)]
pub(super) struct PauseDetector(Mutex<Option<Duration>>);

impl PauseDetector {
    pub(super) fn new(clock: &dyn Clock) -> Self {
        Self(Mutex::new(lead(clock)))
    }

    /// Returns whether the time of day has advanced at least one second more than the clock since
    /// the last detected pause.
    pub(super) fn notice(&self, clock: &dyn Clock) -> bool {
        let Some(lead) = lead(clock) else { return false };
        let mut before = lock(&self.0);
        let gained = before.map_or(Duration::ZERO, |before| lead.saturating_sub(before));
        let paused = gained >= LEAST;
        if paused || before.is_none_or(|before| lead < before) {
            *before = Some(lead);
        }
        paused
    }
}

fn lead(clock: &dyn Clock) -> Option<Duration> {
    let counted = clock.now().since(Instant::from_zero(Duration::ZERO));
    Some(clock.time_of_day()?.saturating_sub(counted))
}
