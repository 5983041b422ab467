//! Entries that may still come, since the outcome of the transaction that was to create them is unknown.
//!
//! A transaction whose reply was lost, or not waited for, may be applied late, even after a client deleted its entry to be
//! on the safe side, and then no client would release the late entry. So the client that deletes such an entry leaves a mark
//! beside it, for as long as a transaction can be under way, and no transaction creates an entry that is so marked.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use leasehold_core::backend::{Lease, LeaseId};
use leasehold_core::clock::{Clock, Instant};

use crate::sync::locked;

/// The TTL of the session that marks are attached to. At least a third of it is left when a mark is made, which is several
/// times the limit that servers give a transaction: 5 s and two election timeouts.
pub(crate) const MARKED_FOR: Duration = Duration::from_secs(60);

/// The entries in doubt, and until when they are worth remembering.
#[derive(Debug)]
pub(crate) struct Doubts {
    clock: Arc<dyn Clock>,
    entries: Mutex<HashMap<LeaseId, Instant>>,
}

/// A transaction under way that may create entries. Dropped without having been settled, they are in doubt.
pub(crate) struct Creating<'a> {
    doubts: &'a Doubts,
    leases: Vec<&'a Lease>,
}

impl Doubts {
    pub(crate) fn new(clock: Arc<dyn Clock>) -> Self {
        Self { clock, entries: Mutex::default() }
    }

    /// Begins to create the entries of `leases`.
    pub(crate) fn creating<'a>(
        &'a self,
        leases: impl IntoIterator<Item = &'a Lease>,
    ) -> Creating<'a> {
        Creating { doubts: self, leases: leases.into_iter().collect() }
    }

    /// Whether the entry of `lease` may still come.
    pub(crate) fn concern(&self, lease: &Lease) -> bool {
        let entries = self.entries();
        !entries.is_empty() && entries.contains_key(&lease.id())
    }

    /// The entry of `lease` will not come any more, or no caller will ask for it; tells whether it was in doubt.
    pub(crate) fn forget(&self, lease: &Lease) -> bool {
        self.entries().remove(&lease.id()).is_some()
    }

    fn entries(&self) -> MutexGuard<'_, HashMap<LeaseId, Instant>> {
        locked(&self.entries)
    }
}

impl Creating<'_> {
    /// The outcome is known.
    pub(crate) fn settle(&mut self) {
        self.leases.clear();
    }
}

impl Drop for Creating<'_> {
    fn drop(&mut self) {
        if self.leases.is_empty() {
            return;
        }
        let now = self.doubts.clock.now();
        let mut entries = self.doubts.entries();
        // A caller that has not released by then has given up.
        entries.retain(|_, until| now < *until);
        for lease in &self.leases {
            entries.insert(lease.id(), now + lease.ttl() * 2 + MARKED_FOR);
        }
    }
}
