//! Sets of signals in `/proc`.

/// Reads a set of signals from the `status` of a process, one bit per signal.
pub(crate) fn signal_set(status: &str, field: &str) -> Option<u64> {
    let set = status.lines().find_map(|line| line.strip_prefix(field))?;
    u64::from_str_radix(set.trim(), 16).ok()
}
