//! The boot clock, which includes the time during which the machine is suspended.

use std::future::pending;
use std::time::Duration;

use rustix::time::{ClockId, clock_gettime};
use serde::{Deserialize, Serialize};
use tokio::time::sleep;

const SECOND: u64 = 1_000_000_000;

/// Nanoseconds since the machine started.
pub(crate) fn boot_clock() -> u64 {
    let now = clock_gettime(ClockId::Boottime);
    // The clock starts at 0.
    u64::try_from(now.tv_sec).unwrap_or(0) * SECOND + u64::try_from(now.tv_nsec).unwrap_or(0)
}

/// When a command must end, by [`boot_clock`].
#[derive(Clone, Copy, Debug, Deserialize, Eq, PartialEq, Serialize)]
pub(crate) struct Cutoff {
    /// When the command receives SIGTERM. At most `kill_at`.
    pub(super) term_at: u64,
    /// When the command is killed.
    pub(super) kill_at: u64,
}

impl Cutoff {
    /// The command is killed immediately.
    pub(crate) const NOW: Self = Self { term_at: 0, kill_at: 0 };

    /// Kills the command after the time that `left` returns, and sends SIGTERM `notice` earlier.
    ///
    /// The clock is read before `left` is called. If the process is paused between the two, the cutoff becomes earlier, not later.
    pub(crate) fn after(left: impl FnOnce() -> Duration, notice: Duration) -> Self {
        let (now, left) = (boot_clock(), left());
        let at =
            |wait: Duration| now.saturating_add(wait.as_nanos().try_into().unwrap_or(u64::MAX));
        Self { term_at: at(left.saturating_sub(notice)), kill_at: at(left) }
    }

    /// The time until the command is killed.
    pub(crate) fn remaining(self) -> Duration {
        Duration::from_nanos(self.kill_at.saturating_sub(boot_clock()))
    }
}

/// Waits until [`boot_clock`] reaches `due`, or indefinitely if there is no `due`.
///
/// The timers of Tokio do not count suspended time. Therefore this function reads the boot clock every second.
///
/// # Cancel safety
///
/// This function is cancel safe.
pub(super) async fn reaches(due: Option<u64>) {
    let Some(due) = due else { return pending().await };
    while let left @ 1.. = due.saturating_sub(boot_clock()) {
        sleep(Duration::from_nanos(left.min(SECOND))).await;
    }
}
