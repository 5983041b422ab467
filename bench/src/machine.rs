//! What the machine tells of time and of this process.

use std::fs;
use std::time::Duration;

use rustix::time::{ClockId, clock_gettime};

/// The time on a clock that all processes of the machine share.
pub(crate) fn now() -> Duration {
    read(ClockId::Monotonic)
}

/// The time that this process kept cores busy, with all its threads.
pub(crate) fn cpu_time() -> Duration {
    read(ClockId::ProcessCPUTime)
}

fn read(clock: ClockId) -> Duration {
    clock_gettime(clock).try_into().expect("clocks of this kind start at zero")
}

/// The memory that this process has, in bytes; `None` where there is no `/proc`.
pub(crate) fn memory() -> Option<u64> {
    let status = fs::read_to_string("/proc/self/status").ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"))?;
    let kilobytes: u64 = line.trim().strip_suffix(" kB")?.parse().ok()?;
    Some(kilobytes * 1_024)
}
