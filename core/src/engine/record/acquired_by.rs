//! Records which task acquired a lease, to detect callers that may be waiting for themselves.
//!
//! A task that locks a key again gets a warning instead of an error, because its guard may have
//! moved to a different task, which can release the key.

use super::LeaseRecord;
use crate::clock::Instant;
use crate::contract::owner::OwnerId;
use crate::sync::lock;

impl LeaseRecord {
    /// Records that the caller has received the lease from the previous holder. Returns `false` if
    /// the caller was stalled and the lease was lost in the meantime.
    pub(crate) fn accept(&self, now: Instant) -> bool {
        let taker = OwnerId::current();
        self.update(now, |state| {
            state.holders.acquired_by = taker;
            !state.is_over()
        })
    }

    /// Returns whether the current task acquired the lease. Outside tasks, the current thread
    /// counts instead.
    pub(crate) fn was_acquired_by_caller(&self) -> bool {
        lock(&self.state).holders.acquired_by == OwnerId::current()
    }
}
