//! Recognizes server versions that may expire leases even after they have been renewed.

/// Returns whether a leader of this version may expire renewed leases when it resumes after a long
/// pause during which it was replaced (etcd-io/etcd#15247).
///
/// Since 3.4.31 and 3.5.13, a server first checks whether it is still the leader. The server skips
/// the check if its clock has just ticked, so the problem can still occur.
/// [Sessions](crate::session::Sessions) are therefore replaced after every election, regardless of
/// the servers' version.
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
        "if a leader of this etcd version is paused for longer than a TTL, it revokes live leases when it resumes (etcd-io/etcd#15247); use 3.4.31, 3.5.13 or newer, where this is rare, and TTLs of 10 s or more"
    );
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_that_always_end_live_leases_are_known() {
        for version in ["2.3.8", "3.3.27", "3.4.23", "3.4.30", "3.5.0", "3.5.12", "3.5.12+git"] {
            assert!(is_unsafe(version), "{version}");
        }
        for version in ["3.4.31", "3.5.13", "3.5.16", "3.6.0", "3.6.0-rc.1", "4.0.0"] {
            assert!(!is_unsafe(version), "{version}");
        }
    }
}
