//! Details of a refused claim.

use std::time::Duration;

use crate::contract::holder::Holder;

/// Details of a refused claim, as far as the store reports them. The client treats the details of a
/// refusal as hints.
///
/// ```
/// use std::time::Duration;
/// use leasehold_core::backend::Contention;
///
/// let contention = Contention::new().with_retry_after(Duration::from_secs(2));
/// assert_eq!(contention.retry_after(), Some(Duration::from_secs(2)));
/// assert!(contention.holder().is_none());
/// ```
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct Contention {
    holder: Option<Holder>,
    retry_after: Option<Duration>,
    queue_entry: Option<Duration>,
    woken_by: Option<WokenBy>,
}

/// Which notification wakes a waiter, so that it retries its queued claim.
///
/// ```
/// use leasehold_core::backend::{WokenBy, Contention};
///
/// let contention = Contention::new().with_woken_by(WokenBy::Claim);
/// assert_eq!(contention.woken_by(), Some(WokenBy::Claim));
/// ```
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum WokenBy {
    /// The client retries after any notification for the key.
    Key,
    /// The client retries only after an individual notification for this claim, such as
    /// [`KeyWatches::notify_claim`](crate::backend::KeyWatches::notify_claim) sends. The client
    /// ignores other notifications for the key.
    Claim,
}

impl Contention {
    /// Creates a `Contention` without any details of the refusal.
    pub fn new() -> Self {
        Self::default()
    }

    /// Sets the holder of the key. If the key has several holders, specify the holder whose lease
    /// expires first.
    #[must_use]
    pub fn with_holder(mut self, holder: Holder) -> Self {
        self.holder = Some(holder);
        self
    }

    /// Sets the time after which a new attempt can succeed, even if the reported holder does not
    /// release its lease before then. This is the time until the first expiry among the leases and
    /// the earlier queue entries that prevent the grant.
    ///
    /// Do not include queue entries if the claim is exclusive and the key is held, because the
    /// claim cannot be granted before the holder's lease has ended.
    #[must_use]
    pub fn with_retry_after(mut self, time: Duration) -> Self {
        self.retry_after = Some(time);
        self
    }

    /// Declares that the store has queued the claim, and sets the TTL of the queue entry, which is
    /// [`Claim::queue_ttl`](crate::backend::Claim::queue_ttl). The next attempt restarts this TTL.
    ///
    /// Call this method only if the claim did not request a queue entry, that is, its patience is
    /// [`Waits`](crate::backend::Patience::Waits) and not
    /// [`Queues`](crate::backend::Patience::Queues).
    #[must_use]
    pub fn with_queue_entry(mut self, ttl: Duration) -> Self {
        self.queue_entry = Some(ttl);
        self
    }

    /// Declares that the store has queued the claim, and sets which notification the store sends
    /// when the claim can be granted.
    ///
    /// Before this notification, the client retries only when a [lease or queue entry
    /// expires](Self::retry_after), or when its own queue entry must be refreshed. The caller's
    /// retry policy can add further attempts.
    #[must_use]
    pub fn with_woken_by(mut self, by: WokenBy) -> Self {
        self.woken_by = Some(by);
        self
    }

    /// Returns the holder whose lease expires first, if the store reports one.
    pub fn holder(&self) -> Option<&Holder> {
        self.holder.as_ref()
    }

    /// Returns the time until the key may become free, assuming that no holder renews or releases
    /// its lease. The client waits for at most this time before it retries.
    pub fn retry_after(&self) -> Option<Duration> {
        let holder = self.holder.as_ref().and_then(Holder::remaining);
        self.retry_after.into_iter().chain(holder).min()
    }

    /// Returns which notification the store sends when the claim can be granted, or `None` if the
    /// store does not send one.
    pub fn woken_by(&self) -> Option<WokenBy> {
        self.woken_by
    }

    /// Returns the TTL of the claim's queue entry, if the claim did not request a queue entry but
    /// the store queued the claim nevertheless. Returns `None` for all other claims.
    pub fn queue_entry(&self) -> Option<Duration> {
        self.queue_entry
    }
}
