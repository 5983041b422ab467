//! The token that all members are asked to grant. If all members grant the same token, no second
//! round of requests is necessary.

use std::sync::{Arc, Mutex};

use leasehold_core::backend::{Grant, unpoisoned};
use leasehold_core::clock::Instant;

/// The largest token that this client has seen. Clones share the same state.
#[derive(Clone, Default)]
pub(super) struct LargestToken(Arc<Mutex<Option<Seen>>>);

#[derive(Clone, Copy)]
struct Seen {
    token: u64,
    /// When the request that returned the token was sent. The next request takes about as long to
    /// reach the members, so the offset from the members' clocks stays about the same.
    sent_at: Instant,
    /// Whether all members that voted granted the same token.
    is_common: bool,
}

impl LargestToken {
    pub(super) fn note(&self, token: u64, is_common: bool, sent_at: Instant) {
        let mut seen = unpoisoned(&self.0);
        if seen.is_none_or(|largest| largest.token < token) {
            *seen = Some(Seen { token, sent_at, is_common });
        }
    }

    /// Returns a token that is larger than the token counters of all members. Counters that follow
    /// a clock continue from this token. Returns 0 if no token is known.
    pub(super) fn next(&self, now: Instant) -> u64 {
        let Some(Seen { token, sent_at, is_common }) = *unpoisoned(&self.0) else { return 0 };
        let elapsed = u64::try_from(now.since(sent_at).as_micros()).unwrap_or(u64::MAX);
        let elapsed = elapsed.saturating_mul(Grant::TOKENS_PER_MICROSECOND);
        // A token that all members granted is already ahead of their clocks. If each grant added a
        // margin, tokens would soon be too far ahead of the clocks.
        let margin = if is_common { 1 } else { MARGIN };
        token.saturating_add(elapsed.saturating_add(margin))
    }
}

/// One millisecond, in tokens. A request may reach a nearby member up to this much sooner than the
/// remaining members.
const MARGIN: u64 = 1_000 * Grant::TOKENS_PER_MICROSECOND;
