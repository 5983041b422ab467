//! Details of a refused claim.

use std::time::Duration;

use crate::contract::holder::Holder;

/// Details of a refused claim, as far as the store reports them. The client treats these details as
/// hints.
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

/// The notification after which the client of a queued claim tries again.
///
/// ```
/// use leasehold_core::backend::{CalledBy, Contention};
///
/// let contention = Contention::new().with_called_by(CalledBy::Name);
/// assert_eq!(contention.called_by(), Some(CalledBy::Name));
/// ```
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum CalledBy {
    /// Any notification for the key.
    Key,
    /// A notification for this claim only ([`KeyWatches::call`](crate::backend::KeyWatches::call)).
    /// Other notifications for the key do not concern it.
    Name,
}

impl Contention {
    /// Creates a refusal without details.
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds the holder whose lease expires first.
    #[must_use]
    pub fn with_holder(mut self, holder: Holder) -> Self {
        self.holder = Some(holder);
        self
    }

    /// Sets the time until a lease or an earlier queue entry expires that prevents the grant. Call
    /// this if the time may be shorter than the remaining time of the reported holder.
    #[must_use]
    pub fn with_retry_after(mut self, time: Duration) -> Self {
        self.retry_after = Some(time);
        self
    }

    /// Declares that the claim is now queued in the store, and sets how long its queue entry lasts
    /// without another attempt.
    ///
    /// A store may queue a claim that only [waits](crate::backend::Patience::Waits) and did not ask
    /// to be [queued](crate::backend::Patience::Queues).
    #[must_use]
    pub fn with_place(mut self, time: Duration) -> Self {
        self.place = Some(time);
        self
    }

    /// Declares that the claim is queued in the store, and sets which notification the store sends
    /// when its turn comes.
    ///
    /// Until then, the client tries again only when [something expires](Self::retry_after), or in
    /// time to keep its queue entry. A retry policy of the caller can add attempts.
    #[must_use]
    pub fn with_called_by(mut self, by: CalledBy) -> Self {
        self.called_by = Some(by);
        self
    }

    /// Returns the holder whose lease expires first, if the store names it.
    pub fn holder(&self) -> Option<&Holder> {
        self.holder.as_ref()
    }

    /// Returns the time until the key may be free even if no holder renews or releases its lease. A
    /// later poll would cause a delay.
    pub fn retry_after(&self) -> Option<Duration> {
        let holder = self.holder.as_ref().and_then(Holder::remaining);
        self.retry_after.into_iter().chain(holder).min()
    }

    /// Returns which notification the store sends when the turn of the claim comes, or `None` if
    /// the store sends none.
    pub fn called_by(&self) -> Option<CalledBy> {
        self.called_by
    }

    /// Returns how long the queue entry of the claim lasts, if the store queued a claim that did
    /// not ask to be queued. Returns `None` for other claims.
    pub fn place(&self) -> Option<Duration> {
        self.place
    }
}
