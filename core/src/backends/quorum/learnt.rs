//! The number that all members are asked for, so that their grants need no second round.

use std::sync::Arc;

use crate::backend::Grant;
use crate::clock::Instant;
use crate::sync::{Mutex, lock};

/// The largest token that this client has seen. Clones share it.
#[derive(Clone, Default)]
pub(super) struct Learnt(Arc<Mutex<Option<Seen>>>);

#[derive(Clone, Copy)]
struct Seen {
    token: u64,
    /// When the request left that it answers. The next takes as long to the members, so that both have the same distance to their clocks.
    sent_at: Instant,
    /// Whether all members that voted granted the same.
    is_common: bool,
}

impl Learnt {
    pub(super) fn note(&self, token: u64, is_common: bool, sent_at: Instant) {
        let mut seen = lock(&self.0);
        if seen.is_none_or(|largest| largest.token < token) {
            *seen = Some(Seen { token, sent_at, is_common });
        }
    }

    /// A number that the counters of all members are below: those that follow a clock go on with it. 0 if nothing is known.
    pub(super) fn next(&self, now: Instant) -> u64 {
        let Some(Seen { token, sent_at, is_common }) = *lock(&self.0) else { return 0 };
        let elapsed = u64::try_from(now.since(sent_at).as_micros()).unwrap_or(u64::MAX);
        let elapsed = elapsed.saturating_mul(Grant::TOKENS_PER_MICROSECOND);
        // A number that all have granted is ahead of their clocks already. Further ahead with each grant, it would be too far for them soon.
        let margin = if is_common { 1 } else { MARGIN };
        token.saturating_add(elapsed.saturating_add(margin))
    }
}

/// A request takes less to reach a member nearby: a millisecond, in tokens.
const MARGIN: u64 = 1_000 * Grant::TOKENS_PER_MICROSECOND;
