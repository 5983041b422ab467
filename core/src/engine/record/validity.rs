//! How long a lease is valid.

use std::time::Duration;

use crate::clock::Instant;
use crate::engine::deadline;

/// How long the lease is valid. All TTLs are shorter than the TTLs in the store by
/// [`LockOptions::lock_delay`](crate::LockOptions::lock_delay).
#[derive(Debug)]
pub(super) struct Validity {
    pub(super) deadline: Instant,
    /// The TTL that renewals request.
    pub(super) requested_ttl: Duration,
    /// The TTL that the store has last confirmed.
    pub(super) confirmed_ttl: Duration,
    /// When the request that the store last confirmed was sent.
    pub(super) confirmed_at: Instant,
    /// The shortest TTL of all requests without a reply, because the store may still apply any of
    /// these requests. Boxed, because such requests are rare and a process may have many leases.
    pub(super) unanswered_ttl: Option<Box<Duration>>,
}

impl Validity {
    /// Returns the delay of a renewal that is confirmed at `now`, measured from the time when it
    /// was first due.
    pub(super) fn lag(&self, now: Instant) -> Duration {
        now.since(deadline::renewal_due(self.confirmed_at, self.confirmed_ttl))
    }

    /// Returns the TTL within which renewals must succeed. A longer TTL counts only after the store
    /// has confirmed it.
    pub(super) fn renewal_ttl(&self) -> Duration {
        self.limited_ttl(self.requested_ttl).min(self.confirmed_ttl)
    }

    /// Limits `ttl` to the time that the holder may use, because the store may still apply an
    /// earlier request with a shorter TTL.
    pub(super) fn limited_ttl(&self, ttl: Duration) -> Duration {
        self.unanswered_ttl.as_deref().map_or(ttl, |unanswered| ttl.min(*unanswered))
    }

    /// Records a request that got no reply. The store may already have applied `ttl` or may still
    /// apply it.
    pub(super) fn note_unanswered(&mut self, ttl: Duration) {
        let ttl = if flaw!("unanswered-renewal-forgotten") { Duration::MAX } else { ttl };
        self.unanswered_ttl = Some(Box::new(self.limited_ttl(ttl)));
    }
}
