//! Outcomes of requests.

use crate::contract::backend::{Contention, Grant};
use crate::contract::key::LockKey;

/// The outcome of an attempt to acquire a lease.
///
/// See [`Entry`](crate::backend::entry::Entry) for an example that acquires a lease.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum Attempt {
    /// The lease is in force.
    Granted(Grant),
    /// The claim was not granted because of another lease or an earlier queued claim.
    Held(Contention),
}

/// The outcome of an attempt to acquire leases on several keys together.
///
/// ```
/// use leasehold_core::LockKey;
/// use leasehold_core::backend::{AttemptAll, Contention};
///
/// let refused = AttemptAll::Held { key: LockKey::new("b")?, contention: Contention::new() };
/// if let AttemptAll::Held { key, .. } = refused {
///     println!("{key} is not free");
/// }
/// # Ok::<(), leasehold_core::Error>(())
/// ```
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum AttemptAll {
    /// All leases are in force. The list contains one grant per claim, in the order of the claims.
    Granted(Vec<Grant>),
    /// A key is not free. No lease was granted.
    Held {
        /// The first key that is not free.
        key: LockKey,
        /// Details of the refusal, as far as the store reports them.
        contention: Contention,
    },
}

/// The outcome of a renewal.
///
/// See [`LockBackend`](crate::backend::LockBackend) for an example with a `renew` method that
/// returns this type.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Renewal {
    /// The lease is renewed. The TTL restarted when the store received the request.
    Renewed,
    /// The lease is renewed, but an operator or a waiter has
    /// [asked](crate::backend::StoreAdmin::request_revocation) the holder to finish early.
    RevocationRequested,
    /// The lease is no longer in force, and a lease of the [same
    /// type](crate::backend::rules::is_same_type) holds the key.
    Taken,
    /// The lease is no longer in force, and the key is free or in use as a different type of lock.
    Vanished,
}

/// The outcome of a release.
///
/// See [`Machine`](crate::memory::Machine) for an example that releases an expired lease.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Release {
    /// The lease was not in force.
    NotHeld,
    /// The lease was in force and is now released.
    Released,
}
