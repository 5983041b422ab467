//! A request for a key.

use std::time::Duration;

use crate::contract::backend::{Lease, LeaseId, Mode};
use crate::contract::error::{Error, ErrorKind};
use crate::contract::key::LockKey;

/// A request for a key: the requested lease, and whether the caller waits if the key is held.
///
/// All attempts of one acquisition send the same claim. If the reply to an attempt is lost, the
/// caller can retry, because the store recognizes the claim by its [`LeaseId`]. If the lease is
/// already in force, the store grants the lease again with a full TTL and a new token.
///
/// A store may ignore the [tenure](crate::backend::Tenure) of the lease, the [spare
/// tokens](Self::with_spare_tokens) and a [patience](Patience) of [`Waits`](Patience::Waits). A
/// store without operations for [operators](crate::backend::LockBackend::admin) may also ignore the
/// description. All other parts of a claim must be honored, or the backend must not declare the
/// [feature](crate::backend::Feature) that needs them.
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
    /// [queue](crate::backend::Feature::Queue) may queue the claim, even though the caller did not
    /// request a queue entry, and then reports the queue entry with
    /// [`Contention::with_queue_entry`](crate::backend::Contention::with_queue_entry).
    ///
    /// Each attempt restarts the lifetime of the queue entry, which is [`Claim::queue_ttl`]. As
    /// soon as the claim can be granted, the rest of the lifetime is limited to
    /// [`Claim::reservation`]. A store may also grant the claim for this time, so a release of a
    /// refused claim may report [`Released`](crate::backend::Release::Released).
    Waits,
    /// The caller retries, and the store queues the claim in the meantime. Later claims are granted
    /// only if they fit in addition to the queued claim, as the [rules](crate::backend::rules) of
    /// admission define.
    ///
    /// Each attempt restarts the lifetime of the queue entry, which is this duration. A crashed
    /// waiter therefore blocks later claims for at most this duration. Releasing the lease removes
    /// the queue entry immediately.
    Queues(Duration),
}

impl Patience {
    /// How long a store reserves a free key for a claim that the store has queued although its
    /// caller only [waits](Self::Waits) and did not request a queue entry.
    ///
    /// The reservation is long enough for a round trip to anywhere in the world. A crashed waiter
    /// delays other waiters by at most the duration of one reservation.
    pub const RESERVATION: Duration = Duration::from_millis(250);

    /// How long a store keeps the queue entry of a claim whose caller only [waits](Self::Waits),
    /// unless the TTL of the lease is shorter.
    pub const QUEUE_TTL: Duration = Duration::from_secs(5);
}

impl Claim {
    /// Creates a claim for a caller that does not wait.
    pub fn new(lease: Lease) -> Self {
        Self { lease, patience: Patience::Leaves, spare_tokens: 0 }
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

    /// Returns whether the claim is exclusive or requests a number of units.
    pub fn mode(&self) -> Mode {
        self.lease.mode()
    }

    /// Returns how many spare tokens the caller can assign to further holders. The store may
    /// reserve fewer spare tokens, or none.
    pub fn spare_tokens(&self) -> u32 {
        self.spare_tokens
    }

    /// Returns how long the store keeps the queue entry of the claim after its last attempt, or
    /// `None` if the store does not queue the claim.
    ///
    /// A store without a [queue](crate::backend::Feature::Queue) ignores this time.
    pub fn queue_ttl(&self) -> Option<Duration> {
        match self.patience {
            Patience::Leaves => None,
            Patience::Waits => Some(Patience::QUEUE_TTL.min(self.lease.ttl())),
            Patience::Queues(time) => Some(time),
        }
    }

    /// Returns the limit for the remaining time of the queue entry from the moment when the claim
    /// can be granted. `None` means that there is no limit.
    ///
    /// A crashed waiter that did not request a queue entry therefore delays later claims for at
    /// most this time.
    pub fn reservation(&self) -> Option<Duration> {
        (self.patience == Patience::Waits).then_some(Patience::RESERVATION)
    }

    /// Returns whether the caller waits.
    pub fn patience(&self) -> Patience {
        self.patience
    }

    /// Creates an [`ErrorKind::WrongType`] error for a claim whose key is in use as a different
    /// type of lock.
    pub fn wrong_type(&self) -> Error {
        let message = if self.mode().is_mutex() {
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
        let refusal = |mode| {
            let lease = Lease::new(&key, Duration::from_secs(30)).with_mode(mode);
            Claim::new(lease).wrong_type().to_string()
        };

        let advice = "a lock of another type needs a different name";
        assert_eq!(
            refusal(Mode::READER),
            format!("\"job\": the key is in use as a mutex; {advice}")
        );
        let units = "the key is in use as a semaphore or a read-write lock";
        assert_eq!(refusal(Mode::Exclusive), format!("\"job\": {units}; {advice}"));
    }
}
