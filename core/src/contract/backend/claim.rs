//! One request for a key.

use std::time::Duration;

use crate::contract::backend::{Charter, Lease, LeaseId, Share};
use crate::contract::error::{Error, ErrorKind};
use crate::contract::key::LockKey;

/// One request for a key: the lease that is asked for, and how the caller asks.
///
/// All attempts of one acquisition carry the same claim, so that an attempt whose reply was lost
/// can be repeated: the store knows the claim again by its [`LeaseId`].
///
/// See [`LockBackend`](crate::backend::LockBackend) for an example.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Claim {
    lease: Lease,
    patience: Patience,
    spare_tokens: u32,
    least_token: u64,
    charter: Option<Charter>,
    needs_whole_ttl: bool,
}

/// Whether the caller of a [`Claim`] will wait if the key is held.
///
/// See [`LockBackend`](crate::backend::LockBackend) for an example.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
#[non_exhaustive]
pub enum Patience {
    /// It goes away if it is refused: a store keeps no place for it.
    Leaves,
    /// It comes back until it is served or gives up. A store with a [queue](crate::backend::Feature::Queue) gives it a
    /// [place](crate::backend::Contention::with_place) there of its own accord.
    Waits,
    /// It comes back, and stands in the store's queue meanwhile: no later claim passes it.
    ///
    /// The store keeps its place for this long after its last attempt, so that a waiter that dies
    /// holds up the others no longer. Releasing the lease leaves the queue at once.
    Queues(Duration),
}

impl Patience {
    /// How long a store that gives a place to claims that only [wait](Self::Waits) keeps room for one of them: a round
    /// trip to anywhere in the world, and no longer than others may be held up by one that is dead.
    pub const RESERVATION: Duration = Duration::from_millis(250);
}

impl Claim {
    /// How far ahead of its own clock a store follows a [wish](Self::with_least_token) for a token, which it reads as a
    /// [time](crate::backend::Grant::TOKENS_PER_MICROSECOND): longer than a round trip to anywhere in the world, so that the wish of a client
    /// whose clock is right is heeded.
    pub const WISHED_AHEAD: Duration = Duration::from_secs(1);

    /// Creates the claim of a caller that goes away if it is refused.
    pub fn new(lease: Lease) -> Self {
        Self {
            lease,
            patience: Patience::Leaves,
            spare_tokens: 0,
            least_token: 0,
            charter: None,
            needs_whole_ttl: false,
        }
    }

    /// Says whether the caller will wait.
    #[must_use]
    pub fn with_patience(mut self, patience: Patience) -> Self {
        self.patience = patience;
        self
    }

    /// Says how many [tokens](crate::backend::Grant::with_spare_tokens) the caller has a use for beyond the first.
    #[must_use]
    pub fn with_spare_tokens(mut self, count: u32) -> Self {
        self.spare_tokens = count;
        self
    }

    /// Says which number the last token of the grant shall reach, spare ones included, so that several stores grant the same.
    ///
    /// A wish: a store with [`Feature::Membership`](crate::backend::Feature::Membership) ignores a number more than
    /// [`WISHED_AHEAD`](Self::WISHED_AHEAD) ahead of its own clock. So a client whose clock is wrong uses up no numbers. Other stores may
    /// ignore all wishes, and so may any store for a claim without a [charter](Self::with_charter).
    #[must_use]
    pub fn with_least_token(mut self, number: u64) -> Self {
        self.least_token = number;
        self
    }

    /// Says under which charter the store must be enlisted to grant the claim.
    ///
    /// A store with [`Feature::Membership`](crate::backend::Feature::Membership) fails the attempt otherwise, with
    /// [`ErrorKind::Unavailable`](crate::ErrorKind::Unavailable). It may refuse, as [`ErrorKind::Unsupported`](crate::ErrorKind::Unsupported),
    /// claims of units under a charter, and several claims at once.
    #[must_use]
    pub fn with_charter(mut self, charter: Charter) -> Self {
        self.charter = Some(charter);
        self
    }

    /// Says that the lease must last for its whole TTL from the grant on, even if nobody renews it.
    ///
    /// Otherwise, a store may grant a lease that its holder [keeps](crate::backend::Tenure::Kept) for a
    /// [shorter time](crate::backend::Grant::with_ttl) at first: the holder renews it soon.
    #[must_use]
    pub fn with_whole_ttl(mut self, is_needed: bool) -> Self {
        self.needs_whole_ttl = is_needed;
        self
    }

    /// The lease that a grant of this claim gives.
    pub fn lease(&self) -> &Lease {
        &self.lease
    }

    /// The key that is asked for.
    pub fn key(&self) -> &LockKey {
        self.lease.key()
    }

    /// The id by which the store knows this claim again.
    pub fn id(&self) -> LeaseId {
        self.lease.id()
    }

    /// How much of the key is asked for.
    pub fn share(&self) -> Share {
        self.lease.share()
    }

    /// How many tokens the caller has a use for beyond the first. It may get fewer, and none.
    pub fn spare_tokens(&self) -> u32 {
        self.spare_tokens
    }

    /// The number that the token shall reach, if the store goes along with it.
    pub fn least_token(&self) -> u64 {
        self.least_token
    }

    /// The charter under which the store must be enlisted.
    pub fn charter(&self) -> Option<&Charter> {
        self.charter.as_ref()
    }

    /// Whether the lease must last for its whole TTL from the grant on.
    pub fn needs_whole_ttl(&self) -> bool {
        self.needs_whole_ttl
    }

    /// How long the store keeps the caller's place in the queue; `None` if it does not queue.
    pub fn place(&self) -> Option<Duration> {
        match self.patience {
            Patience::Queues(place) => Some(place),
            Patience::Leaves | Patience::Waits => None,
        }
    }

    /// Whether the caller will wait.
    pub fn patience(&self) -> Patience {
        self.patience
    }

    pub(crate) fn waits(&self) -> bool {
        self.patience != Patience::Leaves
    }

    /// Creates the error of a claim whose key is held as a lock of another kind: [`ErrorKind::WrongType`].
    pub fn wrong_type(&self) -> Error {
        let message = if self.share().is_whole() {
            "it is held in units, as a semaphore or by readers and writers; each kind of lock needs a key of its own"
        } else {
            "it is held as a mutex; each kind of lock needs a key of its own"
        };
        Error::new(ErrorKind::WrongType, message).with_key(self.key())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_error_of_another_kind_says_how_the_key_is_held() {
        let key = LockKey::new("job").unwrap();
        let refusal = |share| {
            let lease = Lease::new(&key, Duration::from_secs(30)).with_share(share);
            Claim::new(lease).wrong_type().to_string()
        };

        let advice = "each kind of lock needs a key of its own";
        assert_eq!(refusal(Share::READER), format!("\"job\": it is held as a mutex; {advice}"));
        let units = "it is held in units, as a semaphore or by readers and writers";
        assert_eq!(refusal(Share::Whole), format!("\"job\": {units}; {advice}"));
    }
}
