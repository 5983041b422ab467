//! Records lock entries that a delayed request may still create.
//!
//! If the reply to a transaction was lost or not awaited, the transaction may be applied late. A
//! late transaction could create an entry after the client has deleted the entry as a precaution,
//! and nothing would ever delete the new entry. When the client deletes an entry as a precaution,
//! it therefore also stores a mark. The mark is kept for longer than a transaction can be delayed,
//! and no transaction creates an entry for which a mark exists.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use leasehold_core::backend::{Lease, LeaseId, unpoisoned};
use leasehold_core::clock::{Clock, Instant};

/// The TTL of the session that marks are attached to. When a mark is created, at least one third of
/// this TTL is left, which is several times the servers' limit for a transaction. The servers'
/// limit is 5 s plus two election timeouts.
pub(crate) const MARKED_FOR: Duration = Duration::from_secs(60);

/// The entries that may be created late, and the time for which each entry must be remembered.
#[derive(Debug)]
pub(crate) struct LateEntries {
    clock: Arc<dyn Clock>,
    entries: Mutex<HashMap<LeaseId, Instant>>,
}

/// A transaction in progress that may create entries. If this value is dropped before the outcome
/// is known, the entries may be created late.
pub(crate) struct Creating<'a> {
    late_entries: &'a LateEntries,
    leases: Vec<&'a Lease>,
}

impl LateEntries {
    pub(crate) fn new(clock: Arc<dyn Clock>) -> Self {
        Self { clock, entries: Mutex::default() }
    }

    /// Registers a transaction that creates the entries of `leases`.
    pub(crate) fn creating<'a>(
        &'a self,
        leases: impl IntoIterator<Item = &'a Lease>,
    ) -> Creating<'a> {
        Creating { late_entries: self, leases: leases.into_iter().collect() }
    }

    /// Returns whether a late request may still create the entry of `lease`.
    pub(crate) fn concern(&self, lease: &Lease) -> bool {
        let entries = self.entries();
        !entries.is_empty() && entries.contains_key(&lease.id())
    }

    /// Forgets the entry of `lease`, because the entry can no longer be created or because no
    /// caller will query it. Returns whether the entry was recorded.
    pub(crate) fn forget(&self, lease: &Lease) -> bool {
        self.entries().remove(&lease.id()).is_some()
    }

    fn entries(&self) -> MutexGuard<'_, HashMap<LeaseId, Instant>> {
        unpoisoned(&self.entries)
    }
}

impl Creating<'_> {
    /// Records that the outcome of the transaction is known.
    pub(crate) fn settle(&mut self) {
        self.leases.clear();
    }
}

impl Drop for Creating<'_> {
    fn drop(&mut self) {
        if self.leases.is_empty() {
            return;
        }
        let now = self.late_entries.clock.now();
        let mut entries = self.late_entries.entries();
        // A caller that has not released its lease by that time was dropped.
        entries.retain(|_, until| now < *until);
        for lease in &self.leases {
            entries.insert(lease.id(), now + lease.ttl() * 2 + MARKED_FOR);
        }
    }
}
