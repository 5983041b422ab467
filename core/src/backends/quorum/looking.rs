//! One look at the members at a time, beside other calls.

use std::sync::Arc;
use std::time::Duration;

use crate::clock::Instant;
use crate::sync::{Mutex, lock};

/// A look asks for standings, for floors, and for votes; and as long again for a runtime that is late.
const REQUESTS_PER_LOOK: u32 = 6;

/// The look that runs beside other calls: until when no other begins. Clones share it.
#[derive(Clone, Default)]
pub(super) struct Looking(Arc<Mutex<Option<Instant>>>);

impl Looking {
    /// Begins a look whose requests have `limit` each; `false` if there is one. The runtime of that one may stand still, or have ended.
    pub(super) fn begin(&self, now: Instant, limit: Duration) -> bool {
        let mut until = lock(&self.0);
        let begins = until.is_none_or(|until| until <= now);
        if begins {
            *until = Some(now + limit * REQUESTS_PER_LOOK);
        }
        begins
    }

    pub(super) fn end(&self) {
        *lock(&self.0) = None;
    }
}
