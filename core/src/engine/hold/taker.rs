//! Remembers the task that acquired a lease, as a hint for callers that wait for themselves.
//!
//! A guard can move to another task. A task that locks a key again may therefore succeed later, so
//! it gets a warning instead of an error.

use super::Hold;
use crate::clock::Instant;
use crate::contract::owner::OwnerId;
use crate::sync::lock;

impl Hold {
    /// Records that the caller has received the lease from the previous holder. Returns `false` if
    /// the lease was lost before a stalled caller received it.
    pub(crate) fn taken_over(&self, now: Instant) -> bool {
        let taker = OwnerId::current();
        self.update(now, |state| {
            state.taker = taker;
            !state.is_over()
        })
    }

    /// Returns whether the current task, or the current thread outside of tasks, acquired the
    /// lease.
    pub(crate) fn was_taken_by_caller(&self) -> bool {
        lock(&self.state).taker == OwnerId::current()
    }
}
