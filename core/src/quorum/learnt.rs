//! The number that all members are asked for, so that their grants need no second round.

use crate::clock::Instant;
use crate::sync::{Mutex, lock};

/// The largest token that this client has seen, and when.
#[derive(Default)]
pub(super) struct Learnt(Mutex<Option<(u64, Instant)>>);

impl Learnt {
    pub(super) fn note(&self, token: u64, now: Instant) {
        let mut learnt = lock(&self.0);
        if learnt.is_none_or(|(largest, _)| largest < token) {
            *learnt = Some((token, now));
        }
    }

    /// A number that the counters of all members are below: those that follow a clock go on by one each microsecond. 0 if nothing is known.
    pub(super) fn next(&self, now: Instant) -> u64 {
        let Some((token, at)) = *lock(&self.0) else { return 0 };
        let elapsed = u64::try_from(now.since(at).as_micros()).unwrap_or(u64::MAX);
        token.saturating_add(elapsed.saturating_add(MARGIN))
    }
}

/// A request takes less to reach a member nearby, in microseconds.
const MARGIN: u64 = 1_000;
