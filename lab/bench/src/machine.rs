//! The machine's figures of time and of this process.

use std::fs;
use std::time::Duration;

use rustix::process::Pid;
use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};
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

/// The time of a process and of all its children, of those too that have ended.
pub(crate) fn cpu_time_of(pid: &str) -> Duration {
    /// The kernel counts so many per second, on all machines.
    const TICKS: u64 = 100;

    let read = |name: &str| fs::read_to_string(format!("/proc/{pid}/{name}")).unwrap_or_default();
    let stat = read("stat");
    // The name before it may have anything.
    let numbers = stat.rsplit_once(')').map_or("", |(_, numbers)| numbers);
    let ticks: u64 =
        numbers.split_whitespace().skip(11).take(4).filter_map(|n| n.parse::<u64>().ok()).sum();
    let children = read(&format!("task/{pid}/children"));
    let of_children: Duration = children.split_whitespace().map(cpu_time_of).sum();
    Duration::from_millis(ticks * 1_000 / TICKS) + of_children
}

/// Keeps this process off the last of its processors, for as long as this lives.
pub(crate) struct Apart {
    all: CpuSet,
    last: usize,
}

impl Apart {
    /// `None` if there is one processor only.
    pub(crate) fn new() -> Option<Self> {
        let all = sched_getaffinity(None).expect("a thread may ask for its processors");
        let last = (0..CpuSet::MAX_CPU).rfind(|cpu| all.is_set(*cpu))?;
        let mut others = all;
        others.unset(last);
        if others.count() == 0 {
            return None;
        }
        run_on(&others);
        Some(Self { all, last })
    }

    /// The processor for a server, as Redis wants it named.
    pub(crate) fn server(&self) -> String {
        self.last.to_string()
    }
}

impl Drop for Apart {
    fn drop(&mut self) {
        run_on(&self.all);
    }
}

/// Has all threads of this process, and all that they start from now on, run on these processors.
fn run_on(processors: &CpuSet) {
    let threads = fs::read_dir("/proc/self/task").expect("this is Linux").flatten();
    let ids = threads.filter_map(|thread| thread.file_name().to_str()?.parse().ok());
    for thread in ids.filter_map(Pid::from_raw) {
        // A thread may have ended since the folder was read.
        let _ = sched_setaffinity(Some(thread), processors);
    }
}

#[cfg(test)]
mod tests {
    use std::process;

    use super::*;

    #[test]
    fn a_process_is_told_its_own_time() {
        while cpu_time() < Duration::from_millis(100) {}

        let time = cpu_time_of(&process::id().to_string());

        assert!(time >= Duration::from_millis(80), "{time:?}");
    }
}
