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
    place: Option<Duration>,
    called_by: Option<CalledBy>,
}

/// The notification that prompts a client to retry its queued claim.
///
/// ```
/// use leasehold_core::backend::{CalledBy, Contention};
///
/// let contention = Contention::new().with_called_by(CalledBy::Name);
/// assert_eq!(contention.called_by(), Some(CalledBy::Name));
/// ```
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum CalledBy {
    /// The client retries after any notification for the key.
    Key,
    /// The client retries only after a notification for this claim
    /// ([`KeyWatches::call`](crate::backend::KeyWatches::call)). The client ignores other
    /// notifications for the key.
    Name,
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

    /// Sets the time after which a new attempt can succeed. This is the time until the expiry of
    /// the lease, or of the earlier queue entry, that prevents the grant. Call this method if the
    /// key may become free before the reported holder's lease expires.
    #[must_use]
    pub fn with_retry_after(mut self, time: Duration) -> Self {
        self.retry_after = Some(time);
        self
    }

    /// Declares that the store has queued the claim, and sets how long the queue entry lasts if no
    /// further attempt is made.
    ///
    /// Call this method only if the claim did not request a queue entry, that is, its patience is
    /// [`Waits`](crate::backend::Patience::Waits) and not
    /// [`Queues`](crate::backend::Patience::Queues).
    #[must_use]
    pub fn with_place(mut self, time: Duration) -> Self {
        self.place = Some(time);
        self
    }

    /// Declares that the store has queued the claim, and sets which notification the store sends
    /// when the claim can be granted.
    ///
    /// Before this notification, the client retries only when a [lease or queue entry
    /// expires](Self::retry_after), or when its own queue entry must be refreshed. The caller's
    /// retry policy can add further attempts.
    #[must_use]
    pub fn with_called_by(mut self, by: CalledBy) -> Self {
        self.called_by = Some(by);
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
    pub fn called_by(&self) -> Option<CalledBy> {
        self.called_by
    }

    /// Returns how long the queue entry of the claim lasts, if the claim did not request a queue
    /// entry but the store queued the claim nevertheless. Returns `None` for all other claims.
    pub fn place(&self) -> Option<Duration> {
        self.place
    }
}
