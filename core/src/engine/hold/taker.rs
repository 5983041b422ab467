//! The task that took a lease: a hint for one that waits for itself.
//!
//! A guard may move to another task, so that a task which took a lock and asks for it again does not surely wait for ever. It is told, and
//! not refused.

use super::Hold;
use crate::contract::owner::OwnerId;
use crate::sync::lock;

impl Hold {
    /// Notes that the caller has taken it over from the holder before.
    pub(crate) fn taken_over(&self) {
        lock(&self.state).taker = OwnerId::current();
    }

    /// Whether the caller's own task took it, or its thread outside of tasks.
    pub(crate) fn was_taken_by_caller(&self) -> bool {
        lock(&self.state).taker == OwnerId::current()
    }
}
