//! Which servers can be trusted with leases.

/// Whether a server of this version may end a lease that is being kept alive.
///
/// Before 3.4.31 and 3.5.13, a leader that was stuck for longer than a TTL and then replaced ends live leases when it wakes
/// (etcd-io/etcd#15247).
pub(crate) fn is_unsafe(version: &str) -> bool {
    let mut numbers =
        version.split(['.', '-', '+']).map(|number| number.parse::<u64>().unwrap_or(0));
    let mut next = || numbers.next().unwrap_or(0);
    match (next(), next(), next()) {
        (3, 4, patch) => patch < 31,
        (3, 5, patch) => patch < 13,
        (major, minor, _) => (major, minor) < (3, 4),
    }
}

pub(crate) fn warn(version: &str) {
    tracing::warn!(
        version,
        "this etcd may end leases that are kept alive when a stuck leader wakes up (etcd-io/etcd#15247): \
         use 3.4.31, 3.5.13 or newer"
    );
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn those_that_end_live_leases_are_known() {
        for version in ["2.3.8", "3.3.27", "3.4.23", "3.4.30", "3.5.0", "3.5.12", "3.5.12+git"] {
            assert!(is_unsafe(version), "{version}");
        }
        for version in ["3.4.31", "3.5.13", "3.5.16", "3.6.0", "3.6.0-rc.1", "4.0.0"] {
            assert!(!is_unsafe(version), "{version}");
        }
    }
}
