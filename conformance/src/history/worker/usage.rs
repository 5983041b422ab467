//! Measures the resources that this process uses.

use std::collections::BTreeMap;
use std::fs;

use tokio::runtime::Handle;

use crate::history::event::Usage;

/// Returns the resource usage. `entries` contains the number of entries in each map of the client.
pub(super) fn usage(entries: BTreeMap<String, u64>) -> Usage {
    let count = |count: usize| u64::try_from(count).expect("counts are small");
    Usage {
        memory_kib: resident_kib().unwrap_or_default(),
        fds: count(fs::read_dir("/proc/self/fd").map_or(0, Iterator::count)),
        tasks: count(Handle::current().metrics().num_alive_tasks()),
        entries,
    }
}

fn resident_kib() -> Option<u64> {
    let status = fs::read_to_string("/proc/self/status").ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"))?;
    line.split_whitespace().next()?.parse().ok()
}
