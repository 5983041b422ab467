//! A request for a key.

use std::time::Duration;

use crate::contract::backend::{Charter, Lease, LeaseId, Share};
use crate::contract::error::{Error, ErrorKind};
use crate::contract::key::LockKey;

/// A request for a key: the requested lease, and whether the caller waits if the key is held.
///
/// All attempts of one acquisition send the same claim. If the reply to an attempt is lost, the
/// caller can retry, because the store recognizes the claim by its [`LeaseId`].
///
/// ```
/// # use std::time::Duration;
/// use leasehold_core::LockKey;
/// use leasehold_core::backend::{Claim, Lease, Patience};
///
/// let lease = Lease::new(&LockKey::new("invoice:42")?, Duration::from_secs(30));
/// let claim = Claim::new(lease.clone()).with_patience(Patience::Waits);
/// assert_eq!(claim.id(), lease.id());
/// # Ok::<(), leasehold_core::Error>(())
/// ```
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Claim {
    lease: Lease,
    patience: Patience,
    spare_tokens: u32,
    least_token: u64,
    charter: Option<Charter>,
}

/// Whether the caller of a [`Claim`] waits if the key is held.
///
/// See [`Claim`] for an example that creates a claim for a caller that waits.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
#[non_exhaustive]
pub enum Patience {
    /// The caller does not wait, so the store does not queue a claim that it refuses.
    Leaves,
    /// The caller retries until it acquires the lock or gives up. A store with a
    /// [queue](crate::backend::Feature::Queue) may [queue](crate::backend::Contention::with_place)
    /// the claim, even though the caller did not request a queue entry.
    Waits,
    /// The caller retries, and the store queues the claim in the meantime. Later claims cannot
    /// overtake a queued claim.
    ///
    /// The store keeps the queue entry for this duration after the last attempt. A crashed waiter
    /// therefore blocks later claims for at most this duration. Releasing the lease removes the
    /// queue entry immediately.
    Queues(Duration),
}

impl Patience {
    /// How long a store reserves a free key for a claim that the store has queued although its
    /// caller only [waits](Self::Waits) and did not request a queue entry.
    ///
    /// The reservation is long enough for a round trip to anywhere in the world. A crashed waiter
    /// delays other waiters by at most the duration of one reservation.
    pub const RESERVATION: Duration = Duration::from_millis(250);
}

impl Claim {
    /// How far a [requested minimum token](Self::with_least_token), interpreted as a time, may be
    /// ahead of the store's own clock.
    ///
    /// See [`TOKENS_PER_MICROSECOND`](crate::backend::Grant::TOKENS_PER_MICROSECOND) for how tokens
    /// and times correspond. The limit is longer than a round trip to anywhere in the world, so a
    /// store accepts the minimum token of every client with a correct clock.
    pub const WISHED_AHEAD: Duration = Duration::from_secs(1);

    /// Creates a claim for a caller that does not wait.
    pub fn new(lease: Lease) -> Self {
        Self { lease, patience: Patience::Leaves, spare_tokens: 0, least_token: 0, charter: None }
    }

    /// Sets whether the caller waits.
    #[must_use]
    pub fn with_patience(mut self, patience: Patience) -> Self {
        self.patience = patience;
        self
    }

    /// Requests a number of [spare tokens](crate::backend::Grant::with_spare_tokens) in addition to
    /// the token of the grant. When the caller hands off the lease to further holders, it can
    /// assign the spare tokens to these holders.
    #[must_use]
    pub fn with_spare_tokens(mut self, count: u32) -> Self {
        self.spare_tokens = count;
        self
    }

    /// Asks the store for a grant whose last token is at least `number`. If the grant has spare
    /// tokens, the last spare token is the last token. Clients use this request to get the same
    /// token from several stores.
    ///
    /// A store with [`Feature::Membership`](crate::backend::Feature::Membership) ignores a
    /// requested minimum token that, interpreted as a time, is more than
    /// [`WISHED_AHEAD`](Self::WISHED_AHEAD) ahead of its own clock. A client with a wrong clock
    /// therefore cannot use up the range of tokens. Any store may ignore the requested minimum
    /// token if the claim does not have a [quorum configuration](Self::with_charter). A store
    /// without the membership feature may always ignore the requested minimum token.
    #[must_use]
    pub fn with_least_token(mut self, number: u64) -> Self {
        self.least_token = number;
        self
    }

    /// Sets the quorum configuration that the store must have in order to grant the claim.
    ///
    /// A store with [`Feature::Membership`](crate::backend::Feature::Membership) returns
    /// [`ErrorKind::Unavailable`](crate::ErrorKind::Unavailable) if its own configuration differs
    /// from the requested configuration. For a claim with a quorum configuration, the store may
    /// return [`ErrorKind::Unsupported`](crate::ErrorKind::Unsupported) if the claim requests units
    /// or if the request contains several claims.
    #[must_use]
    pub fn with_charter(mut self, charter: Charter) -> Self {
        self.charter = Some(charter);
        self
    }

    /// Returns the lease that will be in force once the claim is granted.
    pub fn lease(&self) -> &Lease {
        &self.lease
    }

    /// Returns the requested key.
    pub fn key(&self) -> &LockKey {
        self.lease.key()
    }

    /// Returns the id by which the store recognizes this claim.
    pub fn id(&self) -> LeaseId {
        self.lease.id()
    }

    /// Returns whether the claim requests the whole key or a number of its units.
    pub fn share(&self) -> Share {
        self.lease.share()
    }

    /// Returns how many spare tokens the caller can assign to further holders. The store may
    /// reserve fewer spare tokens, or none.
    pub fn spare_tokens(&self) -> u32 {
        self.spare_tokens
    }

    /// Returns the requested minimum token, which the store may ignore.
    pub fn least_token(&self) -> u64 {
        self.least_token
    }

    /// Returns the quorum configuration that the store must have.
    pub fn charter(&self) -> Option<&Charter> {
        self.charter.as_ref()
    }

    /// Returns how long the store keeps the queue entry of the claim, or `None` if the claim did
    /// not request a queue entry.
    pub fn place(&self) -> Option<Duration> {
        match self.patience {
            Patience::Queues(place) => Some(place),
            Patience::Leaves | Patience::Waits => None,
        }
    }

    /// Returns whether the caller waits.
    pub fn patience(&self) -> Patience {
        self.patience
    }

    pub(crate) fn waits(&self) -> bool {
        self.patience != Patience::Leaves
    }

    /// Creates an [`ErrorKind::WrongType`] error for a claim whose key is in use as a different
    /// type of lock.
    pub fn wrong_type(&self) -> Error {
        let message = if self.share().is_whole() {
            "the key is in use as a semaphore or a read-write lock; a lock of another type needs a different name"
        } else {
            "the key is in use as a mutex; a lock of another type needs a different name"
        };
        Error::new(ErrorKind::WrongType, message).with_key(self.key())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn error_of_another_lock_type_says_how_the_key_is_in_use() {
        let key = LockKey::new("job").unwrap();
        let refusal = |share| {
            let lease = Lease::new(&key, Duration::from_secs(30)).with_share(share);
            Claim::new(lease).wrong_type().to_string()
        };

        let advice = "a lock of another type needs a different name";
        assert_eq!(
            refusal(Share::READER),
            format!("\"job\": the key is in use as a mutex; {advice}")
        );
        let units = "the key is in use as a semaphore or a read-write lock";
        assert_eq!(refusal(Share::Whole), format!("\"job\": {units}; {advice}"));
    }
}
