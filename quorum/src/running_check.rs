//! Ensures that only one check of the members runs at a time.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use leasehold_core::backend::unpoisoned;
use leasehold_core::clock::Instant;

/// A check requests statuses, minimum tokens and votes. The number of requests is doubled to allow
/// for a delayed runtime.
const REQUESTS_PER_LOOK: u32 = 6;

/// The time until which no other background check begins. Clones share the same state.
#[derive(Clone, Default)]
pub(super) struct RunningCheck(Arc<Mutex<Option<Instant>>>);

impl RunningCheck {
    /// Begins a check whose requests take at most `limit` each. Returns `false` if another check is
    /// in progress.
    ///
    /// A check blocks later checks only for a limited time, because it may never finish if its
    /// runtime is stalled or has ended.
    pub(super) fn begin(&self, now: Instant, limit: Duration) -> bool {
        let mut until = unpoisoned(&self.0);
        let begins = until.is_none_or(|until| until <= now);
        if begins {
            *until = Some(now + limit * REQUESTS_PER_LOOK);
        }
        begins
    }

    pub(super) fn end(&self) {
        *unpoisoned(&self.0) = None;
    }
}
