//! The task that took a lease: a hint for one that waits for itself.
//!
//! A guard may move to another task, so that a task which took a lock and asks for it again does not surely wait for ever. It is told, and
//! not refused.

use super::Hold;
use crate::clock::Instant;
use crate::contract::owner::OwnerId;
use crate::sync::lock;

impl Hold {
    /// Notes that the caller has taken it over from the holder before; `false` if it was lost on its way to a caller that was stalled.
    pub(crate) fn taken_over(&self, now: Instant) -> bool {
        let taker = OwnerId::current();
        self.update(now, |state| {
            state.taker = taker;
            !state.is_over()
        })
    }

    /// Whether the caller's own task took it, or its thread outside of tasks.
    pub(crate) fn was_taken_by_caller(&self) -> bool {
        lock(&self.state).taker == OwnerId::current()
    }
}
