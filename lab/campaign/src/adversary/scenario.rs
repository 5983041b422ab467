//! The scenarios of an attack.

use super::book::Report;

/// The work of the callers in an attack.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Scenario {
    /// Leases are always released. The clock jumps, and rows are deleted.
    Purges,
    /// Leases of about 8 ms are renewed, released late, or left to expire.
    Expiry,
}

impl Scenario {
    /// Returns whether an attack is strong enough to mean something.
    pub fn is_enough(self, report: &Report) -> bool {
        let has_purged = self == Self::Expiry || report.purged > 20;
        report.grants > 50 && report.confirmed > 20 && has_purged
    }
}
